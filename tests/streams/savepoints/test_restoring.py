"""What a restore does, in which order, and when it is refused. That an app goes on from it is tested with brokers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.client import TopicPartition
from isthmus.client.types import GroupMetadata
from isthmus.protocol.primitives import uuid_to_str
from isthmus.streams.engine.checkpoint import MARKER, Marker, Position
from isthmus.streams.errors import AppError, StreamsError
from isthmus.streams.savepoints import fence, restoring
from isthmus.streams.savepoints.format import Manifest, Savepoint
from isthmus.streams.savepoints.plan import NewTopic, Plan, Put
from tests.running import in_loop, run_by

INPUT, CHANGELOG, BETWEEN = (TopicPartition(topic, 0) for topic in ("in", "app-n-changelog", "app-by-repartition"))
SAVED = Savepoint(Path("saved"), Manifest("app", "", 7))
PLAN = Plan("app", {}, lambda: iter(()), {}, {})


class Cluster:
    """What a restore asks of a cluster. begins: when it is looked for workers, whether there are any. change: what is
    known of one that was not finished. is_gone: it fails as soon as topics are made."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        *,
        runs: list[bool],
        topics: list[str],
        change: fence.Change | None = None,
        is_gone: bool = True,
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
        if is_gone:
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

    async def ended(self, *_: Any) -> str:
        return "Empty"

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


class Filling:
    """A cluster, its Admin and a transactional producer: what happens to them. partitions: of each topic, once made."""

    def __init__(self, patch: pytest.MonkeyPatch, partitions: int = 1) -> None:
        self.happened: list[Any] = []
        self._partitions = partitions
        patch.setattr(restoring, "Admin", lambda client: self)
        patch.setattr(restoring, "Producer", lambda client, **options: self)

    def partitions(self, topic: str) -> list[int]:
        return list(range(self._partitions))

    def topic_id(self, topic: str) -> bytes:
        return bytes(16)

    async def refresh_metadata(self, topics: Any) -> None: ...

    @contextlib.asynccontextmanager
    async def operation(self, *_: Any) -> AsyncIterator[None]:
        yield

    async def delete_groups(self, groups: list[str]) -> None:
        self.happened.append(("deleted", groups))

    async def delete_topics(self, topics: list[str]) -> None:
        self.happened.append(("deleted", topics))

    async def create_topics(self, topics: list[Any]) -> None:
        self.happened.append(("made", [each.name for each in topics]))

    async def start(self) -> None: ...

    async def wait_for_space(self) -> None: ...

    async def flush(self) -> None: ...

    async def close(self) -> None: ...

    async def begin_transaction(self) -> None:
        self.happened.append("begun")

    async def commit_transaction(self) -> None:
        self.happened.append("committed")

    async def send_offsets(self, offsets: Any, group: GroupMetadata) -> None:
        self.happened.append((group.group_id, offsets))

    def send_many(self, topic: str, values: Any, keys: Any, *, partition: int, **_: Any) -> Any:
        self.happened.append((TopicPartition(topic, partition), keys, values))
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


def filled() -> Plan:
    topics = {CHANGELOG.topic: NewTopic(1, {}), BETWEEN.topic: NewTopic(1, {})}
    marker = Marker("app", 3, ("n",), {"in": Position(5), BETWEEN.topic: Position(0)})
    rows = Put(CHANGELOG, None, [b"k"], [b"1"])
    return Plan("app", topics, lambda: iter([rows]), {CHANGELOG: marker}, {INPUT: 5, BETWEEN: 0})


@run_by(in_loop)
async def test_an_app_s_topics_and_group_are_made_anew_and_the_last_transaction_has_all_positions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, runs=[False], topics=["app-old-changelog"], is_gone=False)
    monkeypatch.setattr(restoring.admin, "group_state", cluster.ended)
    filling: Any = Filling(monkeypatch)
    assert await restoring.restore(filling, SAVED, filled(), force=True) == 1
    ids = {"in": uuid_to_str(bytes(16))}  # that of the topic between steps may be another one's yet
    marker = Marker("app", 3, ("n",), {"in": Position(5), BETWEEN.topic: Position(0)}, ids)
    assert filling.happened == [
        ("deleted", ["app"]),
        ("deleted", ["app-old-changelog"]),
        ("made", [CHANGELOG.topic, BETWEEN.topic]),
        "begun",
        (CHANGELOG, [b"k"], [b"1"]),
        "committed",
        "begun",
        (CHANGELOG, [MARKER], [marker.encode()]),
        ("app", {INPUT: 5, BETWEEN: 0}),
        "committed",
    ]
    assert cluster.done == ["put up", "taken down"]


@run_by(in_loop)
async def test_topics_that_another_program_makes_are_not_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, runs=[False], topics=[], is_gone=False)
    filling: Any = Filling(monkeypatch, partitions=2)
    with pytest.raises(AppError, match="topic app-n-changelog has 2 partitions, not 1: another program makes it"):
        await restoring.restore(filling, SAVED, filled(), force=True)
    assert cluster.done == ["put up"]
