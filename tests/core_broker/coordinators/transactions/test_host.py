"""The transactions of one broker over a real log: committed before they count, ended after every crash, timed out,
forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.core_broker.cluster.controller import DeleteTopics
from isthmus.core_broker.coordinators.transactions import host as host_module
from isthmus.core_broker.coordinators.transactions.states import State
from isthmus.core_broker.purgatory import Pending
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.messages import init_producer_id as ipi
from tests.core_broker.coordinators.desk import FSYNC
from tests.running import run_by

from .counter import Counter, add_request, counted, end_request

T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)
QUICK_ABORT = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
QUICK_EXPIRY = {
    "transactional.id.expiration.ms": "20000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "5000",
}


async def until_over(counter: Counter, key: str = "x") -> None:
    await counter.sim.until(lambda: counter.current(key).state.value.startswith("Complete"), f"{key} is over")


# --- The life of a transaction ----------------------------------------------------------------------------------------


@run_by(counted)
async def test_a_transaction_is_decided_marked_and_over(counter: Counter, /) -> None:
    counter.peers.at_once = False
    producer = await counter.begun("x", T0, U0)
    assert await counter.end("x", producer) == (E.NONE, producer[0], producer[1] + 1)
    assert counter.current().state is State.PREPARE_COMMIT
    await counter.sim.until(lambda: counter.peers.asked, "the markers")
    (asked,) = counter.peers.asked
    assert asked.markers == {(producer[0], place): (producer[1] + 1, True) for place in (T0, U0)}
    assert await counter.init() == (E.CONCURRENT_TRANSACTIONS, -1, -1)
    asked.respond()
    await until_over(counter)
    assert counter.current().state is State.COMPLETE_COMMIT and counter.current().partitions == frozenset()
    assert await counter.init() == (E.NONE, producer[0], producer[1] + 2)


@run_by(counted, options=FSYNC)
async def test_nothing_counts_before_it_is_committed(counter: Counter, /) -> None:
    """With fsync a record is committed after the answer's turn: who asks meanwhile has to wait."""
    _, *ids = await counter.init()
    producer = ids[0], ids[1]
    adding = await counter.start_asking(add_request("x", producer, T0), 3)
    assert isinstance(adding, Pending) and counter.current().state is State.EMPTY
    busy = await counter.start_asking(add_request("x", producer, T1), 3)
    assert busy.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 51
    assert (await counter.start_asking(end_request("x", producer), 5)).error_code == E.CONCURRENT_TRANSACTIONS
    await counter.sim.until(lambda: adding.done, "the commit")
    assert counter.current().partitions == {T0}
    ending = await counter.start_asking(end_request("x", producer), 5)
    assert counter.current().state is State.ONGOING and counter.peers.asked == []
    await counter.sim.until(lambda: ending.done, "the commit")
    await until_over(counter)


@run_by(counted, options=FSYNC)
async def test_a_new_id_is_nobody_elses_while_its_first_record_is_written(counter: Counter, /) -> None:
    request = ipi.Request(transactional_id="new", transaction_timeout_ms=1000)
    first = await counter.start_asking(request, 5)
    second = await counter.start_asking(request, 5)
    if isinstance(second, Pending):  # both waited for a block of producer ids
        await counter.sim.until(lambda: second.done, "the second")
        second = second.answer
    await counter.sim.until(lambda: first.done, "the first")
    assert sorted([first.answer.error_code, second.error_code]) == [E.NONE, E.CONCURRENT_TRANSACTIONS]


@run_by(counted)
async def test_what_cannot_be_written_leaves_everything_as_it_was(counter: Counter, /) -> None:
    producer = await counter.begun()
    shards: Any = counter.transactions.host.shards
    write = shards.write

    def fails(*args: Any, **kwargs: Any) -> int:
        raise KafkaError(E.NOT_ENOUGH_REPLICAS)

    before = counter.current()
    shards.write = fails
    assert (await counter.end("x", producer))[0] == E.COORDINATOR_NOT_AVAILABLE
    assert (await counter.add("x", producer, T1))[T1] == E.COORDINATOR_NOT_AVAILABLE
    assert (await counter.init("new"))[0] == E.COORDINATOR_NOT_AVAILABLE
    assert counter.current() is before and set(counter.state.entries) == {"x"}
    shards.write = write
    assert (await counter.end("x", producer))[0] == E.NONE
    assert (await counter.init("new"))[0] == E.NONE


@run_by(counted)
async def test_a_completion_waits_until_it_can_be_written(counter: Counter, /) -> None:
    counter.peers.at_once = False
    producer = await counter.begun()
    await counter.end("x", producer)
    await counter.sim.until(lambda: counter.peers.asked, "the markers")
    shards: Any = counter.transactions.host.shards
    write, failures = shards.write, []

    def fails(*args: Any, **kwargs: Any) -> int:
        failures.append(args)
        raise KafkaError(E.NOT_ENOUGH_REPLICAS)

    shards.write = fails
    counter.peers.asked[0].respond()
    await counter.sim.until(lambda: len(failures) > 2, "tries")
    assert counter.current().state is State.PREPARE_COMMIT
    shards.write = write
    await until_over(counter)


@run_by(counted)
async def test_ids_are_bounded(counter: Counter, /, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "MAX_TRANSACTIONS", 2)
    assert [(await counter.init(key))[0] for key in ("a", "b", "c", "a")] == [0, 0, E.COORDINATOR_NOT_AVAILABLE, 0]


# --- Crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [False, True])
@run_by(counted, options=FSYNC)
async def test_a_transaction_survives_a_crash_at_each_record(counter: Counter, /, power: bool) -> None:
    code, *ids = await counter.init()
    producer = ids[0], ids[1]
    await counter.restart(power=power)
    assert (await counter.described()).transaction_state == "Empty"
    assert await counter.add("x", producer, T0, U0) == {T0: E.NONE, U0: E.NONE}

    await counter.restart(power=power, at_once=False)
    found = await counter.described()
    assert found.transaction_state == "Ongoing" and (found.producer_id, found.producer_epoch) == producer
    assert {(topic.topic, *topic.partitions) for topic in found.topics} == {T0, U0}
    assert await counter.end("x", producer) == (E.NONE, producer[0], producer[1] + 1)

    await counter.restart(power=power, at_once=False)
    assert (await counter.described()).transaction_state == "PrepareCommit"
    await counter.sim.until(lambda: counter.peers.asked, "the markers, again")
    assert set(counter.peers.asked[0].places) == {T0, U0}
    counter.peers.asked[0].respond()
    await until_over(counter)

    await counter.restart(power=power)
    assert (await counter.described()).transaction_state == "CompleteCommit"
    assert await counter.end("x", producer) == (E.NONE, producer[0], producer[1] + 1), "its answer was lost"


@run_by(counted)
async def test_a_shard_that_is_led_elsewhere_answers_nothing_and_sends_no_markers(counter: Counter, /) -> None:
    counter.peers.at_once = False
    producer = await counter.begun()
    await counter.end("x", producer)
    await counter.sim.until(lambda: counter.peers.asked, "the markers")
    host = counter.transactions.host
    await counter.inside(lambda: host.shards.resign(0))
    assert len(host.markers) == 0
    assert (await counter.init())[0] == (await counter.described()).error_code == E.NOT_COORDINATOR
    counter.peers.asked[0].respond()
    await counter.sim.sleep(2)
    await counter.inside(lambda: host.shards.elect(0))
    await counter.sim.until(lambda: counter.peers.asked, "the markers, once more")
    counter.peers.asked[0].respond()
    await until_over(counter)


@run_by(counted, options=FSYNC)
async def test_who_waits_for_a_record_is_told_when_the_shard_is_led_elsewhere(counter: Counter, /) -> None:
    producer = await counter.begun()
    ending = await counter.start_asking(end_request("x", producer), 5)
    await counter.inside(lambda: counter.transactions.host.shards.resign(0))
    await counter.sim.until(lambda: ending.done, "an answer")
    assert ending.answer.error_code == E.NOT_COORDINATOR and len(counter.transactions.host.markers) == 0


@run_by(counted)
async def test_while_transactions_are_read_clients_are_told_to_wait(counter: Counter, /) -> None:
    shard = counter.transactions.host.shards.shards[0]
    shard.failure = KafkaError(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert (await counter.init())[0] == (await counter.described()).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert counter.transactions.unread() == {0: shard.failure.message}


@run_by(counted)
async def test_a_node_that_was_cut_off_tells_nobody_anything(counter: Counter, /) -> None:
    producer = await counter.begun("x", T0, timeout_ms=1000)
    counter.has_session = False
    assert (await counter.init())[0] == E.NOT_COORDINATOR
    assert (await counter.add("x", producer, T0))[T0] == E.NOT_COORDINATOR, "even what is so in its memory"
    assert (await counter.described()).error_code == E.NOT_COORDINATOR
    await counter.sim.sleep(30)
    assert counter.current().state is State.ONGOING, "nor does it end what may have gone on elsewhere"


@run_by(counted)
async def test_a_deleted_topic_does_not_hold_a_transaction(counter: Counter, /) -> None:
    counter.peers.at_once = False
    producer = await counter.begun("x", T0, U0)
    await counter.submit(DeleteTopics(names=["t"]))
    await counter.end("x", producer)
    await counter.sim.until(lambda: counter.peers.asked, "the markers")
    (asked,) = counter.peers.asked
    assert asked.places == [U0]
    asked.respond()
    await until_over(counter)


# --- Time -------------------------------------------------------------------------------------------------------------


@run_by(counted, options=QUICK_ABORT)
async def test_a_transaction_that_lasts_too_long_is_aborted_and_its_producer_fenced(counter: Counter, /) -> None:
    producer = await counter.begun("x", T0, timeout_ms=5000)
    other = await counter.begun("y", T1, timeout_ms=60_000)
    await counter.sim.sleep(4.8)
    assert counter.current().state is State.ONGOING
    await counter.sim.sleep(2.5)
    assert counter.current().state is State.COMPLETE_ABORT and counter.current("y").state is State.ONGOING
    assert (await counter.end("x", producer, version=4))[0] == E.PRODUCER_FENCED
    assert (await counter.end("y", other))[0] == E.NONE


@run_by(counted, options=QUICK_ABORT)
async def test_the_time_of_a_transaction_goes_on_over_a_restart(counter: Counter, /) -> None:
    await counter.begun("x", T0, timeout_ms=5000)
    await counter.sim.sleep(4)
    await counter.restart()
    await counter.sim.sleep(3.5)
    assert counter.current().state is State.COMPLETE_ABORT


@run_by(counted, options=QUICK_ABORT)
async def test_a_transaction_does_not_wait_for_a_clock_that_was_set_back(counter: Counter, /) -> None:
    await counter.begun("x", T0, timeout_ms=5000)
    counter.host.machine.jump(-3_600_000)
    await counter.sim.sleep(4.8)
    assert counter.current().state is State.ONGOING
    await counter.sim.sleep(2.5)
    assert counter.current().state is State.COMPLETE_ABORT


@run_by(counted, options=QUICK_ABORT)
async def test_a_producer_that_ends_in_time_is_not_fenced(counter: Counter, /) -> None:
    producer = await counter.begun("x", T0, timeout_ms=5000)
    await counter.sim.sleep(4)
    assert await counter.end("x", producer) == (E.NONE, producer[0], producer[1] + 1)
    await counter.sim.sleep(5)
    assert counter.current().state is State.COMPLETE_COMMIT and counter.current().epoch == producer[1] + 1


@run_by(counted, options=QUICK_EXPIRY)
async def test_ids_that_are_not_used_are_forgotten_for_good(counter: Counter, /) -> None:
    await counter.init("empty")
    producer = await counter.begun("over", T0)
    await counter.end("over", producer)
    await counter.begun("ongoing", T0, timeout_ms=900_000)
    await counter.sim.sleep(19)
    assert set(counter.state.entries) == {"empty", "over", "ongoing"}
    await counter.init("empty")
    await counter.sim.sleep(7)
    assert set(counter.state.entries) == {"empty", "ongoing"}
    assert (await counter.described("over")).error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    assert await counter.end("over", producer) == (E.INVALID_PRODUCER_ID_MAPPING, -1, -1)
    await counter.restart()
    assert set(counter.state.entries) == {"empty", "ongoing"}
    code, producer_id, epoch = await counter.init("over")
    assert (code, epoch) == (E.NONE, 0) and producer_id != producer[0]


@run_by(counted, options=QUICK_EXPIRY)
async def test_many_ids_are_forgotten_a_slice_at_a_time(counter: Counter, /, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "MAX_EXPIRED", 2)
    for key in "abcde":
        await counter.init(key)
    state = counter.state
    await counter.sim.until(lambda: len(state.entries) == 3, "the first slice")
    await counter.sim.sleep(0.15)
    assert len(state.entries) == 1
    await counter.sim.sleep(0.15)
    assert state.entries == {}
