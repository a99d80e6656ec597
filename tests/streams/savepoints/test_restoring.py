"""When a restore is refused, and what is left then. That it restores is tested with brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isthmus.streams.errors import AppError, StreamsError
from isthmus.streams.savepoints import fence, restoring
from isthmus.streams.savepoints.format import Manifest, Savepoint
from isthmus.streams.savepoints.plan import Plan
from tests.running import in_loop, run_by

SAVED = Savepoint(Path("saved"), Manifest("app", "", 7))
PLAN = Plan("app", {}, lambda: iter(()), {}, {})


class Cluster:
    """What a restore asks of a cluster. begins: when it is looked for workers, whether there are any. change: what is
    known of one that was not finished."""

    def __init__(
        self, patch: pytest.MonkeyPatch, *, runs: list[bool], topics: list[str], change: fence.Change | None = None
    ) -> None:
        self.runs, self.topics, self.change = runs, topics, change
        self.done: list[str] = []
        for module, names in (
            (restoring.admin, ("is_running", "own_topics", "group_state")),
            (fence, ("is_up", "read")),
        ):
            for name in names:
                patch.setattr(module, name, getattr(self, name))
        patch.setattr(fence, "put_up", lambda *_: self._do("put up"))
        patch.setattr(fence, "take_down", lambda *_: self._do("taken down"))
        patch.setattr(restoring, "_made_anew", lambda *_: self._do("made anew"))

    async def _do(self, what: str) -> None:
        self.done.append(what)
        if what == "made anew":
            raise StreamsError("the cluster is gone")

    async def is_running(self, *_: Any) -> bool:
        return self.runs.pop(0) if len(self.runs) > 1 else self.runs[0]

    async def own_topics(self, *_: Any) -> list[str]:
        return list(self.topics)

    async def group_state(self, *_: Any) -> str | None:
        return None

    async def is_up(self, *_: Any) -> bool:
        return self.change is not None

    async def read(self, *_: Any) -> fence.Change | None:
        return self.change

    async def restore(self, **options: Any) -> None:
        client: Any = None
        await restoring.restore(client, SAVED, PLAN, **options)


@run_by(in_loop)
async def test_state_that_is_there_is_replaced_if_that_was_said_or_it_is_of_a_change_that_was_not_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = ["app-n-changelog"]
    cluster = Cluster(monkeypatch, runs=[False], topics=there)
    with pytest.raises(AppError, match=r"app app has state here: app-n-changelog\. Say --force to replace it"):
        await cluster.restore()
    assert cluster.done == []
    for force, change in ((True, None), (False, fence.Change(fence.RESTORE, "/saved", 7))):
        cluster = Cluster(monkeypatch, runs=[False], topics=there, change=change)
        with pytest.raises(StreamsError, match="the cluster is gone"):
            await cluster.restore(force=force)
        assert cluster.done == ["put up", "made anew"], "workers are kept away until it is finished"


@run_by(in_loop)
async def test_nothing_is_changed_while_workers_run_also_if_they_begin_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for runs, done in (([True], []), ([False, True], ["put up", "taken down"])):
        cluster = Cluster(monkeypatch, runs=runs, topics=[])
        with pytest.raises(AppError, match="app app"):
            await cluster.restore(force=True)
        assert cluster.done == done
