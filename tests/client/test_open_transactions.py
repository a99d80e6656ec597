"""Transactions as an administrator sees them: listed, described, found hanging, and ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from isthmus.client import Admin, Client, TopicPartition
from isthmus.client.errors import UnsupportedVersion
from isthmus.client.open_transactions import (
    OpenTransaction,
    PartitionProducer,
    TransactionDescription,
    TransactionListing,
    hanging,
    open_before,
)
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.messages import describe_producers as dp
from isthmus.protocol.messages import describe_transactions as dt
from isthmus.protocol.messages import find_coordinator as fc
from isthmus.protocol.messages import list_transactions as lt
from isthmus.protocol.messages import write_txn_markers as wtm
from tests.client.scripted import PORT, ScriptedBroker, World, simulate
from tests.running import run_by

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ONGOING = TransactionDescription("x", 1, 7, 0, "Ongoing", 60_000, 100, (T0,))
OPEN = PartitionProducer(7, 0, 3, 1000, -1, 40)


class Coordinator(ScriptedBroker):
    """Coordinates `transactions`, and leads partitions with `producers`."""

    def __init__(self, world: World, node_id: int = 1) -> None:
        super().__init__(world, node_id)
        self.transactions: dict[str, TransactionDescription] = {}
        self.producers: dict[TopicPartition, list[PartitionProducer]] = {}
        self.code = E.NONE  # of the next WriteTxnMarkers
        self.describes = E.NONE  # the code of DescribeTransactions for those that it coordinates

    def on_find_coordinator(self, message: Any) -> Any:
        found = []
        for key in message.coordinator_keys:
            assert message.key_type == 1
            node = next((each for each in self.world.brokers.values() if key in each.transactions), self)  # type: ignore[attr-defined]
            found.append(fc.Coordinator(key=key, node_id=node.node_id, host=node.host, port=PORT))
        return fc.Response(coordinators=found)

    def on_list_transactions(self, message: Any) -> Any:
        states = [
            lt.TransactionState(transactional_id=key, producer_id=each.producer_id, transaction_state=each.state)
            for key, each in self.transactions.items()
            if not message.producer_id_filters or each.producer_id in message.producer_id_filters
        ]
        return lt.Response(transaction_states=states)

    def on_describe_transactions(self, message: Any) -> Any:
        [key] = message.transactional_ids
        each = self.transactions.get(key)
        if each is None or self.describes:
            code = E.TRANSACTIONAL_ID_NOT_FOUND if each is None else self.describes
            state = dt.TransactionState(transactional_id=key, error_code=code)
        else:
            state = dt.TransactionState(
                transactional_id=key, transaction_state=each.state, producer_id=each.producer_id,
                producer_epoch=each.producer_epoch, transaction_timeout_ms=each.timeout_ms,
                transaction_start_time_ms=each.start_ms,
                topics=[dt.TopicData(topic=tp.topic, partitions=[tp.partition]) for tp in each.partitions],
            )  # fmt: skip
        return dt.Response(transaction_states=[state])

    def on_describe_producers(self, message: Any) -> Any:
        topics = []
        for topic in message.topics:
            rows = []
            for index in topic.partition_indexes:
                is_here = self.world.leaders[topic.name, index][0] == self.node_id
                code = E.NONE if is_here else E.NOT_LEADER_OR_FOLLOWER
                held = self.producers.get(TopicPartition(topic.name, index), []) if is_here else []
                states = [
                    dp.ProducerState(
                        producer_id=each.producer_id, producer_epoch=each.epoch, last_sequence=each.last_sequence,
                        last_timestamp=each.last_timestamp_ms, coordinator_epoch=each.coordinator_epoch,
                        current_txn_start_offset=each.transaction_start,
                    )
                    for each in held
                ]  # fmt: skip
                rows.append(dp.PartitionResponse(partition_index=index, error_code=code, active_producers=states))
            topics.append(dp.TopicResponse(name=topic.name, partitions=rows))
        return dp.Response(topics=topics)

    def on_write_txn_markers(self, message: Any) -> Any:
        [marker] = message.markers
        [topic] = marker.topics
        code, self.code = self.code, E.NONE
        row = wtm.WritableTxnMarkerPartitionResult(partition_index=topic.partition_indexes[0], error_code=code)
        result = wtm.WritableTxnMarkerTopicResult(name=topic.name, partitions=[row])
        return wtm.Response(markers=[wtm.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[result])])


async def admin_of(world: World) -> tuple[Admin, Coordinator, Coordinator]:
    """And brokers 2, which leads t-0, and 3, which leads t-1."""
    del world.brokers[1]
    first, second = Coordinator(world, 2), Coordinator(world, 3)
    await first.start()
    await second.start()
    world.add_topic("t", 2, 2)
    world.move("t", 1, 3)
    process = world.sim.machine("app").process
    assert process is not None
    client = Client(first.address, client_id="app", runtime=process.runtime)
    await client.start()
    world.to_close.append(client.close)
    await client.refresh_metadata(["t"])
    return Admin(client, 10_000), first, second


def test_open_transactions_are_those_that_have_written_nothing_since() -> None:
    closed, young, other = replace(OPEN, transaction_start=-1), replace(OPEN, last_timestamp_ms=1001), replace(OPEN)
    found = open_before({T1: [other], T0: [closed, young, OPEN]}, 1000)
    assert found == [OpenTransaction(T0, OPEN), OpenTransaction(T1, other)]


def test_what_no_coordinator_will_end_hangs() -> None:
    here, there = OpenTransaction(T0, OPEN), OpenTransaction(T1, OPEN)
    assert hanging([here, there], {7: ONGOING}) == [there], "it will be ended where its coordinator knows of it"
    assert hanging([here], {7: replace(ONGOING, state="CompleteAbort", partitions=())}) == [here]
    assert hanging([here], {8: ONGOING}) == [here]


@run_by(simulate)
async def test_transactions_of_all_coordinators_are_listed(world: World, /) -> None:
    admin, first, second = await admin_of(world)
    first.transactions["b"] = ONGOING
    second.transactions["a"] = replace(ONGOING, producer_id=8, state="Empty")
    first.script["list_transactions"].append(lambda _: lt.Response(error_code=E.COORDINATOR_LOAD_IN_PROGRESS))
    listed = await admin.list_transactions(["Ongoing"], longer_than_ms=5, pattern="a.*")
    assert listed == [TransactionListing("a", 3, 8, "Empty"), TransactionListing("b", 2, 7, "Ongoing")]
    (asked,) = second.requests("list_transactions")
    assert (asked.state_filters, asked.duration_filter, asked.transactional_id_pattern) == (["Ongoing"], 5, "a.*")


@run_by(simulate)
async def test_a_filter_that_a_broker_does_not_know_is_an_error(world: World, /) -> None:
    admin, first, second = await admin_of(world)
    for broker in (first, second):
        broker.versions[66] = (0, 1)
    await admin.list_transactions(longer_than_ms=5)
    with pytest.raises(UnsupportedVersion, match="node 2"):
        await admin.list_transactions(pattern="a")


@run_by(simulate)
async def test_a_transaction_is_described_by_its_coordinator(world: World, /) -> None:
    admin, _, second = await admin_of(world)
    second.transactions["x"] = ONGOING
    assert await admin.describe_transaction("x") == replace(ONGOING, coordinator=3)
    with pytest.raises(KafkaError, match="transactional id none") as caught:
        await admin.describe_transaction("none")
    assert caught.value.code == E.TRANSACTIONAL_ID_NOT_FOUND


@run_by(simulate)
async def test_hanging_transactions_are_found_over_all_leaders_and_coordinators(world: World, /) -> None:
    admin, first, second = await admin_of(world)
    first.transactions["x"] = ONGOING
    lost = replace(OPEN, producer_id=9, transaction_start=50)
    first.producers[T0] = [OPEN, lost]
    second.producers[T1] = [OPEN, replace(OPEN, producer_id=10, transaction_start=-1)]
    assert await admin.find_hanging_transactions([T0, T1], 1000) == [
        OpenTransaction(T0, lost),
        OpenTransaction(T1, OPEN),
    ]
    assert await admin.find_hanging_transactions([T0, T1], 999) == []


@pytest.mark.parametrize("code", [E.COORDINATOR_LOAD_IN_PROGRESS, E.UNKNOWN_SERVER_ERROR])
@run_by(simulate)
async def test_a_coordinator_that_cannot_tell_is_no_sign_of_hanging(world: World, /, code: E) -> None:
    admin, first, _ = await admin_of(world)
    first.transactions["x"] = ONGOING
    first.producers[T0] = [OPEN]
    first.describes = code
    with pytest.raises(KafkaError) as caught:
        await admin.find_hanging_transactions([T0], 1000)
    assert caught.value.code == code
    first.describes = E.TRANSACTIONAL_ID_NOT_FOUND  # it has expired since it was listed
    assert await admin.find_hanging_transactions([T0], 1000) == [OpenTransaction(T0, OPEN)]


@run_by(simulate)
async def test_transactions_that_nobody_coordinates_are_waited_for(world: World, /) -> None:
    admin, first, _ = await admin_of(world)
    world.add_topic("__transaction_state", 2, 2)
    world.move("__transaction_state", 1, -1)
    first.producers[T0] = [OPEN]
    with pytest.raises(KafkaError) as caught:
        await admin.find_hanging_transactions([T0], 1000)
    assert caught.value.code == E.LEADER_NOT_AVAILABLE
    world.move("__transaction_state", 1, 3)
    assert await admin.find_hanging_transactions([T0], 1000) == [OpenTransaction(T0, OPEN)]


@run_by(simulate)
async def test_producers_are_asked_of_the_new_leader(world: World, /) -> None:
    admin, first, second = await admin_of(world)
    second.producers[T0] = [OPEN]
    world.move("t", 0, 3)
    assert await admin.describe_producers([T0]) == {T0: [OPEN]}
    assert len(first.requests("describe_producers")) == 1


@run_by(simulate)
async def test_an_open_transaction_is_aborted_in_one_partition(world: World, /) -> None:
    admin, first, second = await admin_of(world)
    first.producers[T0] = [replace(OPEN, producer_id=1, transaction_start=41), OPEN]
    with pytest.raises(KafkaError, match="no open transaction of t-0 begins at offset 42"):
        await admin.abort_transaction(T0, 42)
    first.code = E.NOT_LEADER_OR_FOLLOWER
    assert await admin.abort_transaction(T0, 40) == OPEN
    _, asked = first.requests("write_txn_markers")
    (marker,) = asked.markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 0, False)
    assert (marker.coordinator_epoch, marker.topics[0].name, marker.topics[0].partition_indexes) == (0, "t", [0])
    second.producers[T1] = [replace(OPEN, coordinator_epoch=5)]
    second.code = E.TRANSACTION_COORDINATOR_FENCED
    with pytest.raises(KafkaError, match="abort of producer 7 in t-1"):
        await admin.abort_transaction(T1, 40)
    assert second.requests("write_txn_markers")[0].markers[0].coordinator_epoch == 5
