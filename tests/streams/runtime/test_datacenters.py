"""What a worker says of the datacenters that its input is from."""

from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.streams.engine.datacenters import COMPLETE, EXCLUDED, RETURNING, STALLED, Standing
from isthmus.streams.runtime.datacenters import Datacenters, Known

SILENT = "its mirror has said nothing of north.orders for 6 s"


def run(**standings: Standing) -> Any:
    return SimpleNamespace(
        chained=[SimpleNamespace(rule=None), SimpleNamespace(rule=SimpleNamespace(standings=standings))]
    )


def test_a_worker_says_once_which_datacenter_is_stalled_and_why_and_that_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "isthmus.streams")
    datacenters = Datacenters("app")

    def told(*runs: Any) -> list[str]:
        caplog.clear()
        datacenters.look(runs)
        return caplog.messages

    fine = Standing(COMPLETE, 9_000)
    assert told(run(north=fine, south=fine)) == []
    stalled, excluded = (Standing(state, 3_000, SILENT) for state in (STALLED, EXCLUDED))
    assert told(run(north=fine, south=fine), run(north=stalled)) == [
        f"app app: datacenter north is stalled: {SILENT}; windows of 1 of 2 tasks here wait for it"
    ]
    assert told(run(north=stalled), run(north=excluded), run(north=excluded._replace(complete_ms=2_000))) == [
        f"app app: datacenter north is excluded: {SILENT}; results of 2 of 3 tasks here lack it"
    ]
    assert datacenters.known == {"north": Known(Standing(EXCLUDED, 2_000, SILENT), 2, 3)}
    assert told(run(north=excluded)) == []
    assert told(run(north=Standing(RETURNING, 8_000))) == [
        "app app: datacenter north is back; results of 1 of 1 tasks here lack what is still to be read"
    ]
    assert told(run(north=fine)) == ["app app: datacenter north is complete again"]
    ahead = [fine._replace(ahead_ms=ahead_ms) for ahead_ms in (61_000, 61_500)]
    assert told(run(north=ahead[0])) == [
        "app app: the clock of the mirror of datacenter north is 61.0 s ahead of the one here, which is more than "
        "watermark_delay: windows may close before their records are here"
    ]
    assert told(run(north=ahead[1])) == []
