"""Records that go to a producer as columns: which of them go together, and in what order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.client import Producer
from isthmus.client.errors import TransactionAborted
from isthmus.client.partitioner import PARTITIONERS
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.streams import AppError, StreamsError
from isthmus.streams.engine.event import Event
from isthmus.streams.engine.task import Task, TaskId
from isthmus.streams.runtime.outputs import Outputs
from tests.client.producing import begun, values
from tests.client.scripted import World, simulate
from tests.running import in_loop, run_by

from .fakes import PLAIN
from .test_commits import World as CommitsWorld

EVENT = Event(b"k", b"v", 5, "in", 0, 7)


class Given:
    """What `send_many` of a producer is asked for: topic, values, partition, partitioner."""

    def __init__(self, producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.send_many = producer.send_many
        monkeypatch.setattr(producer, "send_many", self)

    def __call__(self, topic: str, values: Any, keys: Any, **more: Any) -> Any:
        self.calls.append((topic, list(values), more["partition"], more["partitioner"]))
        return self.send_many(topic, values, keys, **more)


def outputs_of(producer: Producer) -> Outputs:
    return Outputs(producer, lambda written: None, lambda error: error)


@run_by(simulate)
async def test_what_goes_by_one_rule_goes_together_and_each_partition_keeps_its_order(
    world: World, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add_topic("t", 3)
    world.add_topic("other")
    producer = await begun(world)
    given = Given(producer, monkeypatch)
    outputs = outputs_of(producer)
    rules: list[tuple[bytes, str, int | None, str | None]] = [
        (b"1", "t", None, None),
        (b"2", "other", None, "fnv1a"),
        (b"3", "t", None, None),
        (b"4", "t", None, "consistent"),
        (b"5", "t", None, "consistent"),
        (b"6", "t", 2, None),
        (b"7", "t", 1, None),
        (b"8", "t", 2, None),
        (b"9", "t", None, "murmur2"),
    ]
    sent = [outputs.put(topic, b"k", value, partition, 5, by, EVENT) for value, topic, partition, by in rules]
    places = [await each for each in sent if each is not None]
    assert given.calls == [
        ("t", [b"1", b"3"], None, None),
        ("other", [b"2"], None, "fnv1a"),
        ("t", [b"4", b"5"], None, "consistent"),
        ("t", [b"6", b"8"], 2, None),
        ("t", [b"7"], 1, None),
        ("t", [b"9"], None, "murmur2"),
    ]
    murmur2, crc32 = (PARTITIONERS[by](b"k", 3) for by in ("murmur2", "consistent"))
    assert murmur2 != crc32
    assert [each.partition for each in places] == [murmur2, 0, murmur2, crc32, crc32, 2, 1, 2, murmur2]
    for partition in range(3):
        assert values(world.log("t", partition)) == [
            value
            for (value, topic, *_), at in zip(rules, places, strict=True)
            if (topic, at.partition) == ("t", partition)
        ]


@run_by(in_loop)
async def test_a_function_that_partitions_goes_as_columns_and_is_told_of_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def by_length(key: bytes | None, count: int) -> int:
        return len(key or b"") % count if key != b"bad" else 9

    for app_wide in (False, True):
        world = CommitsWorld(monkeypatch, **{"producer_partitioner": by_length} if app_wide else {})
        topic = world.app.topic("placed", value_serializer="raw", partitioner=None if app_wide else by_length)
        world.commits.client.partitions = lambda name: [0, 1, 2]  # type: ignore[method-assign]
        task = Task("app", TaskId("in", 0), {})
        put = [
            world.commits.put(task, topic, key, b"", None, 5, topic.partitioner, EVENT) for key in (b"a", b"bb", b"ccc")
        ]
        assert None not in put
        assert world.commits.put(task, topic, b"a", b"", 2, 5, topic.partitioner, EVENT) is not None
        with pytest.raises(AppError, match="its partitioner chose 9 of 3 partitions for key b'bad'"):
            world.commits.put(task, topic, b"bad", b"", None, 5, topic.partitioner, EVENT)
        await asyncio.sleep(0)
        sent = [(each[1], each[3], each[5]) for each in world.journal.done if each[0] == "send"]
        assert sent == [(PLAIN, b"a", 1), (PLAIN, b"bb", 2), (PLAIN, b"a", 2), (PLAIN, b"ccc", 0)]


def of(offset: int) -> Event:
    return Event(b"k", b"v", 5, "in", 2, offset)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize(
    ("code", "said"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, r"the largest has 9 bytes and key b'large', of the event in-2 at offset 8$"),
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "it is of the event in-2 at offset 7, or one of those after that up to the event in-2 at offset 9$",
        ),
    ],
)
@run_by(in_loop)
async def test_one_that_is_refused_later_names_its_event(
    monkeypatch: pytest.MonkeyPatch, guarantee: str, code: ErrorCode, said: str
) -> None:
    world = CommitsWorld(monkeypatch, guarantee)
    world.journal.at_once = False
    world.work(1)
    if guarantee == "exactly_once":
        await world.send(b"opens the transaction", world.app.topic("another", value_serializer="raw"))
    for key, offset in ((b"k", 7), (b"large", 8), (b"k", 9)):
        assert world.commits.put(world.task, world.out, key, b"1234", None, 5, None, of(offset)) is not None
    commit = world.commit()
    error: Exception = KafkaError.of(code, "out-0: no")
    if guarantee == "exactly_once":
        error, error.__cause__ = TransactionAborted("it was aborted", retriable=False), error  # type: ignore[assignment]
    world.journal.settle(error)
    with pytest.raises(StreamsError, match=said) as caught:
        await commit
    assert type(caught.value) is StreamsError and "a checkpoint" not in str(caught.value)


@run_by(simulate)
async def test_what_a_producer_never_takes_is_left_to_the_send_that_tells_it(world: World, /) -> None:
    world.add_topic("t", 3)
    outputs = outputs_of(await begun(world))
    for value, partition, timestamp_ms in (("str", None, 5), (b"", 3, 5), (b"", -1, 5), (b"", None, 1 << 63)):
        assert outputs.put("t", b"k", value, partition, timestamp_ms, None, EVENT) is None  # type: ignore[arg-type]
