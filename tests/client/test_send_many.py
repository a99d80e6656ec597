"""Records that one call sends as columns: the same batches as if each was sent, and one outcome for all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.client import Producer
from isthmus.client.columns import Columns
from isthmus.client.errors import BufferFull, ClientError, TransactionAborted
from isthmus.client.outcomes import Acknowledged, Many, Run, Stretch, cut
from isthmus.client.partitioner import PARTITIONERS, partition_for_key
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.records import decode_batch, read_header
from tests.client.coordinating import CoordinatingBroker
from tests.client.producing import begun, losing, refusing, values
from tests.client.scripted import World, simulate, started_client
from tests.running import run_by

NUMBERS = [b"%d" % number for number in range(1_000)]


@run_by(simulate)
async def test_many_are_written_in_order_among_others_and_the_last_offset_is_told(world: World, /) -> None:
    producer = await begun(world, batch_bytes=500)
    before = producer.send("t", b"before", partition=0)
    many = producer.send_many("t", NUMBERS, partition=0)
    after = producer.send("t", b"after", partition=0)
    more = producer.send_many("t", NUMBERS[:3], partition=0)
    assert (await many).offsets == {0: 1_000}
    assert ((await before).offset, (await after).offset, (await more).offsets) == (0, 1_001, {0: 1_004})
    assert values(world.log("t")) == [b"before", *NUMBERS, b"after", *NUMBERS[:3]]
    assert len(world.log("t").batches) > 10
    assert producer.buffered_bytes == 0


@run_by(simulate)
async def test_each_record_has_what_its_columns_say_in_the_partition_of_its_key(world: World, /) -> None:
    world.add_topic("t", 4)
    producer = await begun(world)
    keys = [b"a", None, b"b", bytearray(b"c"), b"a"]
    wanted = [b"1", b"2", None, memoryview(b"4"), b""]
    headers = [(), [("h", b"x"), ("n", None)], (), (), (("i", bytearray(b"y")),)]
    many = await producer.send_many("t", wanted, keys, timestamps_ms=[5, 4, 3, 2, 1], headers=headers)  # type: ignore[list-item]
    found: dict[bytes, list[tuple[int, Any, Any]]] = {}
    for index in range(4):
        records = [record for batch in world.log("t", index).batches for record in decode_batch(batch)]
        assert many.offsets.get(index, -1) == len(records) - 1
        for record in records:
            found.setdefault(record.key or b"", []).append((record.timestamp_ms, record.value, record.headers))
            assert record.key is None or partition_for_key(record.key, 4) == index
    places = [many.metadata(row) for row in range(5)]
    assert len({each[1:3] for each in places}) == 5 and [each.timestamp_ms for each in places] == [5, 4, 3, 2, 1]
    for row, (topic, index, offset, _) in enumerate(places):
        log = [record for batch in world.log(topic, index).batches for record in decode_batch(batch)]
        assert log[offset].timestamp_ms == 5 - row
    with pytest.raises(IndexError):
        many.metadata(5)
    assert found == {
        b"a": [(5, b"1", ()), (1, b"", (("i", b"y"),))],
        b"": [(4, b"2", (("h", b"x"), ("n", None)))],
        b"b": [(3, None, ())],
        b"c": [(2, b"4", ())],
    }


@run_by(simulate)
async def test_without_a_time_it_is_now_or_one_for_all(world: World, /) -> None:
    producer = await begun(world)
    now = world.client.runtime.wall_ms()
    await producer.send_many("t", [b"now"] * 3)
    await producer.send_many("t", [b"then"] * 3, timestamps_ms=7)
    stamps = [record.timestamp_ms for batch in world.log("t").batches for record in decode_batch(batch)]
    assert len(set(stamps[:3])) == 1 and 0 <= stamps[0] - now < 1_000
    assert stamps[3:] == [7, 7, 7]


@run_by(simulate)
async def test_without_keys_each_full_batch_may_be_of_another_partition(world: World, /) -> None:
    world.add_topic("t", 3)
    producer = await begun(world, batch_bytes=300)
    many = await producer.send_many("t", NUMBERS)
    assert sorted(many.offsets) == [0, 1, 2]
    counts = [read_header(batch).records_count for index in many.offsets for batch in world.log("t", index).batches]
    assert sum(counts) == 1_000
    assert sorted(counts)[3] > 20, "all but each partition's last are full"


@run_by(simulate)
async def test_a_function_partitions_each(world: World, /) -> None:
    world.add_topic("t", 3)
    turns = iter(range(1_000))
    producer = await begun(world, partitioner=lambda key, partitions: next(turns) % partitions)
    assert (await producer.send_many("t", NUMBERS[:30])).offsets == {0: 9, 1: 9, 2: 9}
    assert values(world.log("t", 1)) == NUMBERS[1:30:3]


@run_by(simulate)
async def test_a_call_may_have_a_partitioner_of_its_own(world: World, /) -> None:
    world.add_topic("t", 5)
    producer = await begun(world)
    keys = [b"%d" % number for number in range(100)]
    for by in ("consistent", "fnv1a_random", lambda key, count: len(key or b"") % count, None):
        place = partition_for_key if by is None else PARTITIONERS[by] if isinstance(by, str) else by
        for _ in range(2):  # chosen, and remembered
            many = await producer.send_many("t", keys, keys, partitioner=by)
            assert [many.metadata(row)[1] for row in range(100)] == [place(key, 5) for key in keys]
        one = await producer.send("t", b"", keys[7], partitioner=by)
        assert one.partition == place(keys[7], 5)
    assert (await producer.send_many("t", [b""] * 9, partitioner="consistent")).offsets.keys() == {0}, "as of no key"
    assert sum((await producer.send_many("t", [b""] * 9)).offsets.values()) > 0
    world.add_topic("unlearned", 5)
    many = await producer.send_many("unlearned", keys, keys, partitioner="fnv1a")
    assert [many.metadata(row)[1] for row in range(100)] == [PARTITIONERS["fnv1a"](key, 5) for key in keys]


@pytest.mark.parametrize(
    ("columns", "error", "told"),
    [
        ({"keys": [b"k"]}, ValueError, "keys has 1 elements, and values has 2"),
        ({"timestamps_ms": [1, 2, 3]}, ValueError, "timestamps_ms has 3 elements"),
        ({"headers": [()]}, ValueError, "headers has 1 elements"),
        ({"values": [b"a", "b"]}, TypeError, "bytes-like"),
        ({"keys": [b"a", 5]}, TypeError, "bytes-like"),
        ({"timestamps_ms": [1, "2"]}, TypeError, "integer"),
        ({"timestamps_ms": [1, 2**63]}, OverflowError, "int"),
        ({"headers": [(), [("h", "x")]]}, TypeError, "bytes-like"),
        ({"partition": 7}, KafkaError, "topic t has 1 partitions, and no partition 7"),
    ],
)
@run_by(simulate)
async def test_columns_that_cannot_be_are_refused_before_anything_is_sent(
    world: World, /, columns: dict[str, Any], error: type[Exception], told: str
) -> None:
    producer = await begun(world)
    with pytest.raises(error, match=told):
        producer.send_many("t", **{"values": [b"a", b"b"], **columns})
    await producer.flush()
    assert (world.log("t").batches, producer.buffered_bytes) == ([], 0)


@run_by(simulate)
async def test_none_at_all_are_done_at_once(world: World, /) -> None:
    producer = await begun(world)
    assert (await producer.send_many("t", [])).offsets == {}
    assert (await producer.send_many("new", [], [])).offsets == {}


@run_by(simulate)
async def test_an_error_after_the_first_records_is_in_the_future(
    world: World, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await begun(world, batch_bytes=300)
    into, calls = Columns.into, iter(range(100))

    def failing(self: Columns, *more: Any) -> int:
        if next(calls) == 2:
            raise MemoryError("no more")
        return into(self, *more)

    monkeypatch.setattr(Columns, "into", failing)
    many = producer.send_many("t", NUMBERS)
    await producer.flush()
    with pytest.raises(MemoryError):
        await many
    assert 0 < len(values(world.log("t"))) < 100


@run_by(simulate)
async def test_a_topic_that_is_new_is_learnt_first_and_what_becomes_of_the_columns_does_not_matter(
    world: World, /
) -> None:
    world.add_topic("t", 2)
    client = await started_client(world)
    producer = Producer(client, linger_ms=0)
    await producer.start()
    world.to_close.append(producer.close)
    sent = [b"a", b"bb", b"ccc"]
    one = producer.send("t", b"first", partition=1)
    many = producer.send_many("t", sent, partition=1, headers=[[("h", b"12345678")], (), ()])
    assert producer.buffered_bytes > sum(map(len, sent)) + 8
    sent.clear()
    wrong = producer.send_many("t", [b"no"], partition=2)
    last = producer.send("t", b"last", partition=1)
    assert ((await one).offset, (await many).offsets, (await last).offset) == (0, {1: 3}, 4)
    assert values(world.log("t", 1)) == [b"first", b"a", b"bb", b"ccc", b"last"]
    with pytest.raises(KafkaError, match="no partition 2"):
        await wrong
    none = producer.send_many("..", [b"x"] * 5)
    with pytest.raises(KafkaError):
        await none
    assert producer.buffered_bytes == 0


@run_by(simulate)
async def test_a_full_buffer_takes_none(world: World, /) -> None:
    producer = await begun(world, buffer_bytes=2_000, batch_bytes=500, linger_ms=50)
    first = producer.send_many("t", NUMBERS)
    assert not producer.has_space
    with pytest.raises(BufferFull, match="await wait_for_space"):
        producer.send_many("t", [b"x"])
    await producer.wait_for_space()
    assert producer.buffered_bytes < 2_000
    assert (await producer.send_many("t", [b"x"])).offsets == {0: 1_000}
    assert (await first).offsets == {0: 999}
    assert producer.buffered_bytes == 0
    await producer.close()
    with pytest.raises(ClientError, match="closed"):
        producer.send_many("t", [b"x"])


@run_by(simulate)
async def test_batches_that_are_sent_again_are_written_once_and_in_order(world: World, /) -> None:
    producer = await begun(world, batch_bytes=300)
    broker = world.brokers[1]
    await producer.send_many("t", [b"connects"])
    broker.script["produce"].extend([losing(broker), refusing(broker, ErrorCode.NOT_ENOUGH_REPLICAS, at=(60,))])
    written = await producer.send_many("t", NUMBERS)
    assert [written.metadata(row).offset for row in range(1_000)] == list(range(1, 1_001))
    assert values(world.log("t")) == [b"connects", *NUMBERS]


@run_by(simulate)
async def test_a_batch_over_the_limit_is_split_and_the_record_that_does_not_go_is_told(world: World, /) -> None:
    producer = await begun(world)
    broker = world.brokers[1]
    chance = world.sim.random

    def limited(message: Any) -> Any:
        too_large = [len(each.records) > 700 for topic in message.topic_data for each in topic.partition_data]
        return broker.produced(message, lambda *_: ErrorCode.MESSAGE_TOO_LARGE if any(too_large) else 0)

    broker.script["produce"].extend([limited] * 200)
    sent = [chance.randbytes(chance.choice((10, 60, 200))) for _ in range(40)]
    sent[20] = chance.randbytes(1_000)
    good, one, bad = (
        producer.send_many("t", sent[:15], partition=0),
        producer.send("t", sent[15], partition=0),
        producer.send_many("t", sent[16:], partition=0),
    )
    await producer.flush()
    assert [(await good).metadata(row).offset for row in range(15)] == list(range(15)) and (await one).offset == 15
    with pytest.raises(KafkaError, match=r"over max.message.bytes"):
        await bad
    del sent[20]
    assert values(world.log("t")) == sent
    assert producer.buffered_bytes == 0


@run_by(simulate)
async def test_an_unknown_place_is_told_as_such(world: World, /) -> None:
    producer = await begun(world, acks=0)
    assert (await producer.send_many("t", NUMBERS)).offsets == {0: -1}


@run_by(simulate, broker=CoordinatingBroker)
async def test_many_belong_to_the_transaction_that_is_open(world: World, /) -> None:
    producer = await begun(world, transactional_id="x")
    with pytest.raises(ClientError, match="transaction"):
        producer.send_many("t", [b"none is open"])
    async with producer.transaction():
        committed = producer.send_many("t", NUMBERS[:3])
    assert committed.result().offsets == {0: 2}
    await producer.begin_transaction()
    aborted = producer.send_many("t", NUMBERS)
    await producer.abort_transaction()
    with pytest.raises(ClientError):
        await aborted
    assert all(read_header(batch).is_transactional for batch in world.log("t").batches)
    assert producer.buffered_bytes == 0


@run_by(simulate, broker=CoordinatingBroker)
async def test_records_that_cannot_be_put_in_fail_the_transaction(
    world: World, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await begun(world, transactional_id="x", batch_bytes=300)
    into, calls = Columns.into, iter(range(100))

    def failing(self: Columns, *more: Any) -> int:
        if next(calls) == 2:
            raise MemoryError("no more")
        return into(self, *more)

    monkeypatch.setattr(Columns, "into", failing)
    with pytest.raises(TransactionAborted):
        async with producer.transaction():
            producer.send_many("t", NUMBERS)


# --- Outcomes ---------------------------------------------------------------------------------------


@run_by(simulate)
async def test_the_outcome_of_many_waits_for_all_and_an_error_counts_most(_: World, /) -> None:
    def new(count: int) -> tuple[Many, asyncio.Future[Acknowledged]]:
        future: asyncio.Future[Acknowledged] = asyncio.get_running_loop().create_future()
        return Many(future, "t", list(range(count))), future

    many, future = new(6)
    many.acked(Stretch([3, 4], 0, 8, -1))
    many.acked(Stretch([2], 1, 3, 77))
    many.acked(Stretch(range(2), 0, 6, -1))  # of an earlier batch, whose answer came later
    assert not future.done()
    many.acked(Stretch([5], 1, -1, -1))
    written = future.result()
    assert written.offsets == {0: 9, 1: 3}
    assert [written.metadata(row)[1:] for row in (1, 2, 4, 5)] == [(0, 7, 1), (1, 3, 77), (0, 9, 4), (1, -1, 5)]
    many, future = new(3)
    many.failed(ValueError("first"), 1)
    many.failed(ValueError("second"), 1)
    assert not future.done()
    many.acked(Stretch([2], 0, 1, -1))
    with pytest.raises(ValueError, match="first"):
        future.result()
    many, future = new(1)
    future.cancel()
    many.acked(Stretch([0], 0, 1, -1))  # nobody waits any more


@run_by(simulate)
async def test_outcomes_are_cut_at_a_record(_: World, /) -> None:
    loop = asyncio.get_running_loop()
    many = Many(loop.create_future(), "t", [0] * 9)
    one, other = loop.create_future(), loop.create_future()
    outcomes = [one, Run(many, range(5)), other, Run(many, [5, 6, 7, 8])]

    def described(half: tuple[list[Any], list[int]]) -> list[tuple[Any, int]]:
        return [(each.count if isinstance(each, Run) else each, stamp) for each, stamp in zip(*half, strict=True)]

    for count, first, rest in (
        (0, [], [(one, 1), (5, 2), (other, 3), (4, 4)]),
        (1, [(one, 1)], [(5, 2), (other, 3), (4, 4)]),
        (3, [(one, 1), (2, 2)], [(3, 2), (other, 3), (4, 4)]),
        (6, [(one, 1), (5, 2)], [(other, 3), (4, 4)]),
        (10, [(one, 1), (5, 2), (other, 3), (3, 4)], [(1, 4)]),
        (11, [(one, 1), (5, 2), (other, 3), (4, 4)], []),
    ):
        assert [described(half) for half in cut(outcomes, [1, 2, 3, 4], count)] == [first, rest]
