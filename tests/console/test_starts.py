"""Where to begin, as a person says it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from isthmus.client import TopicPartition
from isthmus.console.starts import Start, offsets_at, start_of
from isthmus.deploy.errors import DeployError

NOW_MS = 1_000_000_000_000
TEN = int(datetime(2026, 1, 31, 10, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start(end="earliest")),
        ("latest", Start(end="latest")),
        ("0", Start(offset=0)),
        ("2026", Start(offset=2026)),
        ("-1h", Start(time_ms=NOW_MS - 3_600_000)),
        ("-1d2h3m4s", Start(time_ms=NOW_MS - 93_784_000)),
        ("-99999999d", Start(time_ms=0)),  # not one of the protocol's special times
        ("2026-01-31T10:00Z", Start(time_ms=TEN)),
        ("2026-01-31T11:00:00.250+01:00", Start(time_ms=TEN + 250)),
        ("2026-01-31T10:00", Start(time_ms=int(datetime(2026, 1, 31, 10).timestamp() * 1000))),
        ("2026-01-31", Start(time_ms=int(datetime(2026, 1, 31).timestamp() * 1000))),
    ],
)
def test_ways_to_say_where(text: str, start: Start):
    assert start_of("--from", text, NOW_MS) == start


@pytest.mark.parametrize("text", ["", "-", "-5", "1h", "-1w", "-1h1d", "yesterday", "10:00", "2026-13-01", "³"])
def test_what_says_nothing_is_refused_with_the_ways(text: str):
    with pytest.raises(DeployError, match=f"--from {text}: write earliest, latest, an offset, or a time: "):
        start_of("--from", text, NOW_MS)


class Ends:
    """An Admin of two partitions, of which one has no record since."""

    async def list_offsets(self, wanted, isolation):
        told = {0: 7, 1: -1}
        return {tp: (90 + tp.partition if at == "latest" else told[tp.partition], -1, -1) for tp, at in wanted.items()}


def test_where_there_is_no_record_since_a_time_is_the_end(monkeypatch):
    import asyncio

    tps = [TopicPartition("t", each) for each in (0, 1)]
    found = asyncio.run(offsets_at(Ends(), Start(time_ms=5), tps, 0))  # type: ignore[arg-type]
    assert found == {tps[0]: 7, tps[1]: 91}
