"""The transactional producer against a coordinator that is told what to do, by both protocols: an epoch for each
transaction, and partitions that are added first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from isthmus.client import GroupMetadata, Producer, TopicPartition
from isthmus.client.errors import (
    ClientError,
    ConnectionLost,
    DataLost,
    OperationTimeout,
    ProducerFailed,
    TransactionAborted,
)
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import end_txn, init_producer_id
from isthmus.protocol.records import iter_records, walk
from tests.client.coordinating import CoordinatingBroker, Stage, classic
from tests.client.producing import begun, refusing
from tests.client.scripted import HANG_UP, SILENCE, World, simulate
from tests.running import run_by

TP = TopicPartition("t", 0)
GROUP = GroupMetadata("g")


def coordinated(test: Callable[[World], Any], protocol: Callable[[World], CoordinatingBroker]) -> None:
    """A runner: the broker coordinates by this protocol."""
    simulate(test, broker=protocol)


def both(test: Callable[..., Any]) -> Callable[..., None]:
    """Run by each protocol."""
    return pytest.mark.parametrize("protocol", [CoordinatingBroker, classic], ids=["epochs", "added"])(
        run_by(coordinated)(test)
    )


async def started(world: World, partitions: int = 1, **options: Any) -> tuple[CoordinatingBroker, Producer]:
    world.add_topic("t", partitions)
    broker = world.brokers[1]
    assert isinstance(broker, CoordinatingBroker)
    return broker, await begun(world, transactional_id="mine", **options)


async def committed(world: World, partitions: int = 1) -> list[bytes]:
    """What a reader of committed records finds, in the order of the partitions, once all markers are written."""
    broker = world.brokers[1]
    assert isinstance(broker, CoordinatingBroker)
    while broker.is_writing_markers:
        await asyncio.sleep(0.001)
    found = []
    for index in range(partitions):
        log = world.log("t", index)
        data, aborted = log.read_committed(0, 1 << 30)
        gone = [range(first, last) for each, first, last in log.aborted if (each, first) in aborted]
        found += [r.value or b"" for r in iter_records(data) if not any(r.offset in each for each in gone)]
    return found


def cut(broker: CoordinatingBroker) -> None:
    """All connections: what they owe is not waited for."""
    for link in broker.links:
        link.transport.abort()


def again(broker: CoordinatingBroker, name: str, instead: Any) -> Callable[[Any], Any]:
    """An answer that does what was asked, and says something else."""

    def answer(message: Any) -> Any:
        getattr(broker, f"on_{name}")(message)
        return instead

    return answer


@run_by(simulate, broker=CoordinatingBroker)
async def test_each_transaction_has_an_epoch_of_its_own_and_adds_nothing(world: World, /) -> None:
    broker, producer = await started(world, 3)
    for n in range(3):
        async with producer.transaction():
            for p in range(3):
                producer.send("t", b"%d" % n, partition=p)
            await producer.send_offsets({TP: n}, GROUP)
    assert not broker.requests("add_partitions_to_txn") and not broker.requests("add_offsets_to_txn")
    assert [each.producer_epoch for each in broker.requests("end_txn")] == [0, 1, 2]
    headers = [header for batch in world.log("t").batches for _, header in walk(batch) if not header.is_control]
    assert [(header.producer_epoch, header.base_sequence) for header in headers] == [(0, 0), (1, 0), (2, 0)]
    assert all(header.is_transactional for header in headers)
    await committed(world)
    assert broker.offsets == {("g", TP): 2}


@run_by(simulate, broker=classic)
async def test_all_partitions_of_a_moment_are_added_by_one_request_and_the_epoch_stays(world: World, /) -> None:
    broker, producer = await started(world, 5)
    for n in range(2):
        async with producer.transaction():
            for p in range(5):
                producer.send("t", b"%d" % n, partition=p)
            await producer.send_offsets({TP: n}, GROUP)
        await committed(world)
    assert len(broker.requests("add_partitions_to_txn")) == 2
    assert len(broker.requests("add_offsets_to_txn")) == 2
    headers = [header for batch in world.log("t").batches for _, header in walk(batch) if not header.is_control]
    assert [(header.producer_epoch, header.base_sequence) for header in headers] == [(0, 0), (0, 1)]
    assert await committed(world, 5) == [b"0", b"1"] * 5
    assert broker.offsets == {("g", TP): 1}


@both
async def test_a_transaction_of_nothing_asks_the_coordinator_nothing(world: World, /) -> None:
    broker, producer = await started(world)
    async with producer.transaction():
        pass
    await producer.begin_transaction()
    await producer.abort_transaction()
    assert not broker.requests("end_txn")


@both
async def test_a_commit_whose_answer_was_lost_is_committed_once(world: World, /) -> None:
    broker, producer = await started(world)
    broker.script["end_txn"].extend([again(broker, "end_txn", HANG_UP)] * 2)
    for n in range(2):
        async with producer.transaction():
            producer.send("t", b"%d" % n)
    assert await committed(world) == [b"0", b"1"]


@both
async def test_a_commit_that_is_not_answered_in_time_goes_on_with_the_next_call(world: World, /) -> None:
    broker, producer = await started(world, max_block_ms=3_000)
    broker.script["end_txn"].extend([again(broker, "end_txn", SILENCE)])
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(OperationTimeout, match="whether the transaction is committed is not known"):
        async with producer.transaction():
            producer.send("t", b"x")
    assert loop.time() - began == pytest.approx(3.0, abs=0.2)
    for refused in (producer.begin_transaction, producer.abort_transaction):
        with pytest.raises(ClientError, match="outcome of the commit is not known"):
            await refused()
    cut(broker)
    await producer.commit_transaction()
    assert await committed(world) == [b"x"]
    async with producer.transaction():
        producer.send("t", b"y")
    assert await committed(world) == [b"x", b"y"]


@both
async def test_a_commit_that_is_cancelled_goes_on_and_tells_the_next_call(world: World, /) -> None:
    broker, producer = await started(world)
    broker.script["end_txn"].extend([lambda _: end_txn.Response(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 2)

    async def work() -> None:
        async with producer.transaction():
            producer.send("t", b"x")

    task = asyncio.ensure_future(work())
    while not broker.requests("end_txn"):
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ClientError, match="nobody was told the outcome"):
        await producer.begin_transaction()
    await producer.commit_transaction()
    assert await committed(world) == [b"x"]
    await producer.begin_transaction()


@both
async def test_a_commit_that_is_cancelled_before_it_was_asked_for_is_aborted(world: World, /) -> None:
    broker, producer = await started(world)
    broker.script["produce"].append(again(broker, "produce", SILENCE))

    async def work() -> None:
        async with producer.transaction():
            producer.send("t", b"x")

    task = asyncio.ensure_future(work())
    while not broker.requests("produce"):
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.sleep(0.5)
    cut(broker)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [each.committed for each in broker.requests("end_txn")] == [False]
    async with producer.transaction():
        producer.send("t", b"y")
    assert await committed(world) == [b"y"]


@both
async def test_what_is_not_sent_when_a_transaction_is_aborted_is_dropped_and_its_futures_fail(world: World, /) -> None:
    broker, producer = await started(world, linger_ms=60_000)
    await producer.begin_transaction()
    lingering = producer.send("t", b"a")
    unknown = producer.send("another", b"b")
    await producer.abort_transaction()
    for future in (lingering, unknown):
        with pytest.raises(ClientError, match="the transaction was aborted"):
            await future
    assert producer.buffered_bytes == 0
    assert not broker.requests("produce")
    async with producer.transaction():
        producer.send("t", b"c")
    assert await committed(world) == [b"c"]


@run_by(simulate, broker=classic)
async def test_a_batch_whose_fate_is_unknown_when_it_is_aborted_costs_the_epoch(world: World, /) -> None:
    """A late copy of it would count as part of the next transaction otherwise (KIP-360)."""
    broker, producer = await started(world)
    broker.script["produce"].append(again(broker, "produce", HANG_UP))
    await producer.begin_transaction()
    future = producer.send("t", b"x")
    while not broker.requests("produce"):
        await asyncio.sleep(0.001)
    await producer.abort_transaction()
    assert isinstance(future.exception(), ClientError)
    asked = dict.fromkeys((each.producer_id, each.producer_epoch) for each in broker.requests("init_producer_id"))
    assert list(asked) == [(-1, -1), (101, 0)]
    async with producer.transaction():
        producer.send("t", b"y")
    assert await committed(world) == [b"y"]
    assert world.log("t").producers[101][0] == 1


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH])
@both
async def test_a_leader_that_expects_another_sequence_or_epoch_costs_the_epoch(
    world: World, /, code: ErrorCode
) -> None:
    broker, producer = await started(world)
    broker.script["produce"].append(refusing(broker, code))
    with pytest.raises(TransactionAborted) as caught:
        async with producer.transaction():
            producer.send("t", b"x")
    assert isinstance(caught.value.__cause__, KafkaError) and caught.value.__cause__.code == code
    async with producer.transaction():
        producer.send("t", b"y")
    assert await committed(world) == [b"y"]
    assert world.log("t").producers[101][0] >= 1


@both
async def test_an_abort_without_a_coordinator_ends_in_time_and_the_next_transaction_waits_for_it(
    world: World, /
) -> None:
    broker, producer = await started(world, max_block_ms=2_000)
    broker.script["end_txn"].extend([lambda _: end_txn.Response(error_code=ErrorCode.NOT_COORDINATOR)] * 4)
    with pytest.raises(LookupError):
        async with producer.transaction():
            await producer.send("t", b"x")
            raise LookupError
    async with producer.transaction():
        producer.send("t", b"y")
    assert len(broker.requests("end_txn")) > 4
    assert await committed(world) == [b"y"]


@both
async def test_the_body_may_abort_by_itself(world: World, /) -> None:
    _, producer = await started(world)
    async with producer.transaction():
        await producer.send("t", b"x")
        await producer.abort_transaction()
    async with producer.transaction():
        producer.send("t", b"y")
    assert await committed(world) == [b"y"]


@both
async def test_a_failed_transaction_takes_nothing_more_until_it_is_aborted(world: World, /) -> None:
    broker, producer = await started(world)
    broker.script["produce"].append(refusing(broker, ErrorCode.INVALID_RECORD))
    await producer.begin_transaction()
    with pytest.raises(TransactionAborted) as caught:
        await producer.send("t", b"x")
    assert isinstance(caught.value.__cause__, KafkaError)
    for refused in (
        lambda: producer.send("t", b"y"),
        producer.commit_transaction,
        producer.begin_transaction,
        lambda: producer.send_offsets({TP: 1}, GROUP),
    ):
        with pytest.raises(TransactionAborted, match="t-0: invalid record"):
            if (found := refused()) is not None:
                await found
    await producer.abort_transaction()
    async with producer.transaction():
        await producer.send("t", b"z")
    assert await committed(world) == [b"z"]


@both
async def test_a_batch_that_is_too_large_is_split_within_its_transaction(world: World, /) -> None:
    """Also where batches behind it are under way, which the broker refuses until its records are there."""
    broker, producer = await started(world)
    await producer.begin_transaction()
    await producer.send("t", b"first", partition=0)
    broker.script["produce"].append(refusing(broker, ErrorCode.MESSAGE_TOO_LARGE, at=(1,)))
    futures = []
    for n in range(4):
        futures += [producer.send("t", b"%d.%d" % (n, k), partition=0) for k in range(4)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await producer.commit_transaction()
    assert [future.result().offset for future in futures] == list(range(1, 17))
    assert await committed(world) == [b"first"] + [b"%d.%d" % (n, k) for n in range(4) for k in range(4)]
    assert {header.producer_epoch for batch in world.log("t").batches[:-1] for _, header in walk(batch)} == {0}


@both
async def test_records_that_the_broker_has_lost_end_the_producer(world: World, /) -> None:
    broker, producer = await started(world)
    async with producer.transaction():
        await producer.send("t", b"a")
        await producer.send("t", b"b")
    await committed(world)
    log = world.log("t")
    log.batches, log.end = [], 0
    log.producers.clear()
    with pytest.raises(ProducerFailed) as caught:
        async with producer.transaction():
            producer.send("t", b"c")
    assert isinstance(caught.value.__cause__, DataLost)
    with pytest.raises(ProducerFailed):
        await producer.begin_transaction()


@both
async def test_a_coordinator_that_may_not_be_used_is_told_at_the_start(world: World, /) -> None:
    broker = world.brokers[1]
    broker.script["init_producer_id"].append(
        lambda _: init_producer_id.Response(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    )
    with pytest.raises(ProducerFailed, match="transactional id mine, getting a producer id"):
        await started(world)


@both
async def test_a_start_without_a_coordinator_ends_in_time_and_may_be_repeated(world: World, /) -> None:
    world.add_topic("t")
    broker = world.brokers[1]
    broker.script["find_coordinator"].extend([lambda _: SILENCE] * 2)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises((ConnectionLost, KafkaError)):
        await begun(world, transactional_id="mine", max_block_ms=2_500)
    assert loop.time() - began == pytest.approx(2.5, abs=0.1)
    broker.script["find_coordinator"].clear()
    cut(broker)
    producer = Producer(world.client, transactional_id="mine", linger_ms=0)
    with pytest.raises(ClientError, match="not started"):
        await producer.begin_transaction()
    await producer.start()
    async with producer.transaction():
        producer.send("t", b"x")
    await producer.close()
    assert await committed(world) == [b"x"]


@both
async def test_a_coordinator_that_moves_or_loads_is_found_again(world: World, /) -> None:
    broker, producer = await started(world)
    asked = len(broker.requests("find_coordinator"))
    for code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        broker.script["end_txn"].append(lambda _, code=code: end_txn.Response(error_code=code))  # type: ignore[misc]
    async with producer.transaction():
        producer.send("t", b"x")
    assert len(broker.requests("find_coordinator")) == asked + 2
    assert await committed(world) == [b"x"]


@both
async def test_many_tasks_send_in_one_transaction_and_a_second_one_is_refused(world: World, /) -> None:
    _, producer = await started(world, 3)

    async def send(n: int) -> None:
        for k in range(10):
            await producer.send("t", b"%d.%d" % (n, k), partition=k % 3)

    async with producer.transaction():
        await asyncio.gather(*(send(n) for n in range(8)))
        with pytest.raises(ClientError, match="a transaction is open: commit or abort it first"):
            await producer.begin_transaction()
    assert sorted(await committed(world, 3)) == sorted(b"%d.%d" % (n, k) for n in range(8) for k in range(10))


@both
async def test_a_commit_waits_for_offsets_under_way(world: World, /) -> None:
    broker, producer = await started(world)
    await producer.begin_transaction()
    sending = asyncio.ensure_future(producer.send_offsets({TP: 5}, GROUP))
    await asyncio.sleep(0)
    await producer.commit_transaction()
    assert sending.done() and await committed(world) == []
    assert broker.offsets == {("g", TP): 5}


@both
async def test_offsets_that_are_cancelled_end_the_transaction(world: World, /) -> None:
    """They may be with the group already: they must not be committed with what comes next."""
    broker, producer = await started(world)
    broker.script["txn_offset_commit"].append(again(broker, "txn_offset_commit", SILENCE))
    await producer.begin_transaction()
    sending = asyncio.ensure_future(producer.send_offsets({TP: 5}, GROUP))
    while not broker.requests("txn_offset_commit"):
        await asyncio.sleep(0.001)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    with pytest.raises(TransactionAborted, match="cancelled"):
        await producer.commit_transaction()
    cut(broker)
    await producer.abort_transaction()
    async with producer.transaction():
        producer.send("t", b"x")
    assert broker.offsets == {} and await committed(world) == [b"x"]


@both
async def test_a_close_without_a_coordinator_ends_in_time(world: World, /, caplog: pytest.LogCaptureFixture) -> None:
    broker, producer = await started(world)
    await producer.begin_transaction()
    await producer.send("t", b"x")
    broker.hangs = True
    loop = asyncio.get_running_loop()
    began = loop.time()
    await producer.close(timeout_ms=4_000)
    assert loop.time() - began == pytest.approx(4.0, abs=1.1)
    assert "what transactional id mine has open ends after its timeout" in caplog.text
    broker.hangs = False
    await asyncio.sleep(61)
    assert broker.transactions["mine"].stage is Stage.ABORTED


@both
async def test_a_producer_that_is_closed_while_it_commits_commits_no_part(world: World, /) -> None:
    broker, producer = await started(world, 2)
    answers = [lambda _: SILENCE] * 9
    await producer.begin_transaction()
    await producer.send("t", b"x", partition=0)
    broker.script["produce"].extend(answers)
    producer.send("t", b"y", partition=1)
    committing = asyncio.ensure_future(producer.commit_transaction())
    while len(broker.requests("produce")) < 2:
        await asyncio.sleep(0.001)
    await producer.close(timeout_ms=1_000)
    with pytest.raises(TransactionAborted, match="the producer was closed"):
        await committing
    assert not broker.requests("end_txn")
    await asyncio.sleep(61)
    assert broker.transactions["mine"].stage is Stage.ABORTED


@both
async def test_a_commit_whose_producer_is_closed_says_that_its_outcome_is_not_known(world: World, /) -> None:
    broker, producer = await started(world)
    broker.script["end_txn"].extend([lambda _: SILENCE] * 9)
    await producer.begin_transaction()
    await producer.send("t", b"x")
    committing = asyncio.ensure_future(producer.commit_transaction())
    while not broker.requests("end_txn"):
        await asyncio.sleep(0.001)
    await producer.close(timeout_ms=1_000)
    with pytest.raises(OperationTimeout, match="not known: the producer was closed"):
        await committing


@both
async def test_two_tasks_that_wait_for_an_abort_begin_one_transaction(world: World, /) -> None:
    broker, producer = await started(world)
    await producer.begin_transaction()
    await producer.send("t", b"x")
    broker.script["end_txn"].append(lambda _: end_txn.Response(error_code=ErrorCode.NOT_COORDINATOR))
    aborting = asyncio.ensure_future(producer.abort_transaction())
    await asyncio.sleep(0)
    aborting.cancel()

    async def work(value: bytes) -> bool:
        try:
            async with producer.transaction():
                producer.send("t", value)
            return True
        except ClientError:
            return False

    done = await asyncio.gather(work(b"a"), work(b"b"))
    assert sorted(done) == [False, True]
    assert await committed(world) == [b"a" if done[0] else b"b"]


@pytest.mark.parametrize("lasting", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
@run_by(simulate, broker=classic)
async def test_a_partition_that_cannot_be_added_is_named(world: World, /, lasting: ErrorCode) -> None:
    broker, producer = await started(world, 3, max_block_ms=3_000)
    codes = [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lasting]

    def refuse(message: Any) -> Any:
        answer = broker.on_add_partitions_to_txn(message)
        for each in answer.results_by_topic_v3_and_below[0].results_by_partition:
            each.partition_error_code = codes[each.partition_index]
        return answer

    broker.script["add_partitions_to_txn"].extend([refuse] * 20)
    with pytest.raises(TransactionAborted, match=r"adding partitions: .*t-[12]: ") as caught:
        async with producer.transaction():
            await asyncio.gather(*(producer.send("t", b"x", partition=p) for p in range(3)))
    assert isinstance(caught.value.__cause__, KafkaError) and caught.value.__cause__.code == lasting
    broker.script["add_partitions_to_txn"].clear()
    async with producer.transaction():
        producer.send("t", b"y")
    assert await committed(world, 3) == [b"y"]


@both
async def test_records_outside_of_a_transaction_are_refused(world: World, /) -> None:
    _, producer = await started(world)
    with pytest.raises(ClientError, match="no transaction is open: begin one first"):
        producer.send("t", b"x")
    plain = Producer(world.client)
    with pytest.raises(ClientError, match="make it with a transactional_id"):
        await plain.begin_transaction()
    for wrong in ({"acks": 1}, {"idempotent": False}, {"transactional_id": ""}):
        with pytest.raises(ClientError, match="transactional producer needs"):
            Producer(world.client, **{"transactional_id": "x", **wrong})  # type: ignore[arg-type]
