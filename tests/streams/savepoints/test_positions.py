"""Where inputs are read on in the cluster that a savepoint is restored to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from isthmus.client import TopicPartition
from isthmus.protocol.primitives import uuid_to_str
from isthmus.streams.engine.checkpoint import Position
from isthmus.streams.errors import AppError
from isthmus.streams.savepoints import positions
from isthmus.streams.savepoints.format import Input, Reached
from tests.running import in_loop, run_by

SAME, OTHER = bytes(15) + b"\1", bytes(15) + b"\2"


class Cluster:
    """A client and an Admin. logs: of each partition of topics, the first offset and the times of the records."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, logs: Mapping[str, Sequence[tuple[int, list[int]]]]) -> None:
        self.logs = logs
        self.id = OTHER
        monkeypatch.setattr(positions, "Admin", lambda client: self)

    async def refresh_metadata(self, topics: Sequence[str]) -> None: ...

    def topic_id(self, topic: str) -> bytes | None:
        return self.id if topic in self.logs else None

    def partitions(self, topic: str) -> list[int]:
        return list(range(len(self.logs.get(topic, ()))))

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, str | int]
    ) -> dict[TopicPartition, tuple[int, int, int]]:
        return {tp: (self._offset(tp, what), -1, -1) for tp, what in wanted.items()}

    def _offset(self, tp: TopicPartition, what: str | int) -> int:
        first, times = self.logs[tp.topic][tp.partition]
        if isinstance(what, str):
            return {"earliest": first, "latest": first + len(times)}[what]
        return next((first + n for n, time in enumerate(times) if time >= what), -1)

    async def resolve(self, *said: str, **reached: Sequence[Reached]) -> dict[TopicPartition, Position]:
        inputs = {topic: Input(uuid_to_str(SAME), len(at), dict(enumerate(at))) for topic, at in reached.items()}
        client: Any = self
        return await positions.resolve(client, inputs, positions.parse(said))


LOGS = {"in": [(2, [10, 20, 30, 40]), (0, [15, 25])]}
AT = (Reached(4, 3, 30), Reached(2, 1, 26))


def at(*offsets: int, epochs: Sequence[int] = (-1, -1)) -> dict[TopicPartition, Position]:
    return {TopicPartition("in", n): Position(offset, epochs[n]) for n, offset in enumerate(offsets)}


@run_by(in_loop)
async def test_offsets_are_kept_in_the_same_topic_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, LOGS)
    with pytest.raises(AppError, match="in: not the topic that the app has read, by its id"):
        await cluster.resolve(**{"in": AT})
    with pytest.raises(AppError, match="topic gone is not here, and the app has read it: make it first"):
        await cluster.resolve(gone=AT)
    assert await cluster.resolve("keep", **{"in": AT}) == at(4, 2)  # epochs are those of another cluster
    cluster.id = SAME
    assert await cluster.resolve(**{"in": AT}) == at(4, 2, epochs=(3, 1))
    assert await cluster.resolve("latest", **{"in": AT}) == at(4, 2, epochs=(3, 1))  # it is said of other topics
    assert await cluster.resolve("in=latest", **{"in": AT}) == at(6, 2)


@run_by(in_loop)
async def test_an_offset_that_a_copy_does_not_have_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, LOGS)
    for offset in (1, 7):
        with pytest.raises(AppError, match=f"in-0 has offsets 2 to 6 here, and the state goes up to {offset}"):
            await cluster.resolve("keep", **{"in": (Reached(offset), AT[1])})
    with pytest.raises(AppError, match="in has 2 partitions here, and the app has read partition 2"):
        await cluster.resolve("keep", **{"in": (*AT, Reached(0))})


@run_by(in_loop)
async def test_times_say_where_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, LOGS)
    assert await cluster.resolve("time", **{"in": AT}) == at(4, 2)
    assert await cluster.resolve("time", **{"in": (Reached(9, -1, 11), Reached(9, -1, -1))}) == at(3, 0)
    # With another number of partitions a record may be anywhere: all begin at the earliest time.
    assert await cluster.resolve("time", **{"in": (*AT, Reached(9, -1, 21))}) == at(4, 1)


@run_by(in_loop)
async def test_a_topic_that_is_not_here_can_only_be_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, LOGS)
    with pytest.raises(AppError, match="topic gone is not here, so that positions in it cannot be kept"):
        await cluster.resolve("keep", gone=AT)
    assert await cluster.resolve("keep", "gone=earliest", **{"gone": AT, "in": AT}) == at(4, 2)


def test_a_way_that_is_none_is_refused() -> None:
    assert positions.parse(["keep", "a=b=latest"]) == {"": "keep", "a=b": "latest"}
    with pytest.raises(AppError, match="--positions in=now: write WAY or TOPIC=WAY, and as way one of keep, time"):
        positions.parse(["in=now"])


@run_by(in_loop)
async def test_a_way_for_a_topic_that_the_app_has_not_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, LOGS)
    with pytest.raises(AppError, match="--positions inn=latest: the app has not read it, but in"):
        await cluster.resolve("keep", "inn=latest", **{"in": AT})
