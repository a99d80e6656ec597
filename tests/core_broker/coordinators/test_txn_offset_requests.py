"""Offsets that are committed in transactions, over a real log: who may, when they count, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.core_broker.cluster.controller import DeleteTopics
from isthmus.core_broker.coordinators import txn_offset_requests
from isthmus.core_broker.purgatory import Pending
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.messages import delete_groups as dlg
from isthmus.protocol.messages import list_groups as lsg
from isthmus.protocol.messages import offset_fetch as of
from isthmus.protocol.records import decode_batch, walk
from tests.running import run_by

from .desk import FSYNC, Desk, delete_request, simulated, txn_request

UNSTABLE = -E.UNSTABLE_OFFSET_COMMIT


@run_by(simulated)
async def test_offsets_count_from_the_commit_of_their_transaction_on(desk: Desk, /) -> None:
    assert await desk.commit(3) == E.NONE
    assert await desk.txn_commit(5, metadata="m") == E.NONE
    for _ in range(2):
        assert await desk.fetched() == (3, -1, "") and await desk.stable() == UNSTABLE
        assert await desk.stable(partition=1) == -1, "that one is not in the transaction"
        await desk.restart()
    await desk.end(7)
    for _ in range(2):
        assert await desk.fetched() == (5, -1, "m") and await desk.stable() == 5
        await desk.restart()


@run_by(simulated)
async def test_offsets_of_an_aborted_transaction_never_count(desk: Desk, /) -> None:
    assert await desk.commit(3) == E.NONE
    assert await desk.txn_commit(5) == E.NONE
    assert await desk.txn_commit(6, partition=1) == E.NONE
    assert await desk.stable() == await desk.stable(partition=1) == UNSTABLE
    await desk.end(7, committed=False)
    for _ in range(2):
        assert await desk.stable() == 3 and await desk.stable(partition=1) == -1
        await desk.restart()


@run_by(simulated)
async def test_a_marker_ends_the_transaction_of_its_producer_alone(desk: Desk, /) -> None:
    await desk.txn_commit(5, producer=7)
    await desk.txn_commit(6, producer=8, epoch=2)
    await desk.txn_commit(9, producer=8, epoch=2, group="h")
    await desk.end(8, epoch=2)
    assert await desk.fetched() == (6, -1, "") and await desk.stable() == UNSTABLE
    assert await desk.stable("h") == 9
    await desk.end(8, False, epoch=2)  # of a transaction without offsets
    await desk.end(7, False)
    assert await desk.stable() == 6


@run_by(simulated)
async def test_of_two_offsets_the_later_record_counts_and_not_the_later_marker(desk: Desk, /) -> None:
    await desk.txn_commit(5)
    await desk.commit(6)
    await desk.txn_commit(7, partition=1)
    await desk.txn_commit(8, partition=1, producer=8)
    await desk.end(8)
    await desk.end(7)
    for _ in range(2):
        assert await desk.stable() == 6 and await desk.stable(partition=1) == 8
        await desk.restart()


@run_by(simulated)
async def test_all_offsets_of_a_group_with_open_transactions(desk: Desk, /) -> None:
    await desk.commit(1)
    await desk.txn_commit(2)
    await desk.txn_commit(3, partition=1)
    topics = desk.host.broker._controller.image.topics  # type: ignore[union-attr]
    for version in (7, 9, 10):
        group = of.OffsetFetchRequestGroup(group_id="g", topics=None)
        answer = await desk.ask(of.Request(group_id="g", topics=None, groups=[group], require_stable=True), version)
        (topic,) = answer.topics if version < 8 else answer.groups[0].topics
        rows = [(row.partition_index, row.error_code, row.committed_offset) for row in topic.partitions]
        assert rows == [(0, E.UNSTABLE_OFFSET_COMMIT, -1)], "partition 1 has no offset that could be unstable"
    by_id = of.OffsetFetchRequestTopics(topic_id=topics["t"].id, partition_indexes=[0, 1])
    request = of.Request(groups=[of.OffsetFetchRequestGroup(group_id="g", topics=[by_id])], require_stable=True)
    (topic,) = (await desk.ask(request, 10)).groups[0].topics
    assert [row.error_code for row in topic.partitions] == [E.UNSTABLE_OFFSET_COMMIT] * 2


# --- Whom the coordinator of the transaction knows --------------------------------------------------------------------


@run_by(simulated)
async def test_the_transactions_coordinator_is_asked_once_a_transaction(desk: Desk, /) -> None:
    for version, adds, knows_abortable in ((3, False, False), (4, False, True), (5, True, True)):
        desk.coordinators.asked.clear()
        for epoch in (0, 0, 1):
            assert await desk.txn_commit(5, version=version, producer=version, epoch=epoch) == E.NONE
        first, second = desk.coordinators.asked
        assert first["producer"] == ("tx", version, 0) and second["producer"] == ("tx", version, 1)
        assert first["partitions"] == {"__consumer_offsets": [0]} and first["adds"] is adds
        assert first["knows_abortable"] is knows_abortable


REFUSED = [
    (E.INVALID_TXN_STATE, 3, E.INVALID_TXN_STATE),
    (E.TRANSACTION_ABORTABLE, 4, E.TRANSACTION_ABORTABLE),
    (E.INVALID_PRODUCER_EPOCH, 4, E.INVALID_PRODUCER_EPOCH),
    (E.INVALID_PRODUCER_ID_MAPPING, 5, E.INVALID_PRODUCER_ID_MAPPING),
    (E.CONCURRENT_TRANSACTIONS, 5, E.CONCURRENT_TRANSACTIONS),
    (E.NETWORK_EXCEPTION, 2, E.COORDINATOR_LOAD_IN_PROGRESS),
    (E.COORDINATOR_LOAD_IN_PROGRESS, 1, E.COORDINATOR_NOT_AVAILABLE),
    (E.REQUEST_TIMED_OUT, 5, E.COORDINATOR_NOT_AVAILABLE),
    (E.NOT_COORDINATOR, 5, E.NOT_COORDINATOR),
]


@pytest.mark.parametrize(("said", "version", "told"), REFUSED)
@run_by(simulated)
async def test_nothing_is_written_that_the_transactions_coordinator_refuses(
    desk: Desk, /, said: E, version: int, told: E
) -> None:
    desk.coordinators.error = said
    assert await desk.txn_commit(5, version=version) == told
    desk.coordinators.error = E.NONE
    assert await desk.stable() == -1 and not (await desk.ask(lsg.Request(), 4)).groups


@run_by(simulated)
async def test_a_coordinator_that_does_not_answer_is_waited_for(desk: Desk, /) -> None:
    desk.coordinators.waits = True
    asked: Any = await desk.start_asking(txn_request(5), 5)
    late: Any = await desk.start_asking(txn_request(6, group="late"), 5)
    assert isinstance(asked, Pending) and not asked.done
    timeout_ms = desk.coordinators.asked[0]["timeout_ms"]
    assert timeout_ms == 30_000
    desk.coordinators.asked[1], done = {**desk.coordinators.asked[1], "done": None}, desk.coordinators.asked[1]["done"]
    await desk.inside(desk.coordinators.tell)
    await desk.sim.until(lambda: asked.done, "an answer")
    assert asked.answer.topics[0].partitions[0].error_code == E.NONE and await desk.stable() == UNSTABLE
    await desk.sim.sleep(timeout_ms / 1000 + 10)
    assert late.answer.topics[0].partitions[0].error_code == E.COORDINATOR_NOT_AVAILABLE
    await desk.inside(lambda: done({}))
    assert await desk.stable("late") == -1, "who was told that it failed may have ended its transaction"


@run_by(simulated)
async def test_a_transaction_that_ends_while_its_coordinator_is_asked(desk: Desk, /) -> None:
    """What the coordinator said before is of no use: the offsets would stay pending for ever."""
    desk.coordinators.waits = True
    for committed in (False, True):
        asked: Any = await desk.start_asking(txn_request(5), 4)
        await desk.end(7, committed)
        await desk.inside(desk.coordinators.tell)
        assert asked.answer.topics[0].partitions[0].error_code == E.INVALID_TXN_STATE
        assert await desk.stable() == -1
    desk.coordinators.waits = False
    assert await desk.txn_commit(6, version=4) == E.NONE


@run_by(simulated)
async def test_a_marker_of_the_new_protocol_begins_the_producers_next_epoch(desk: Desk, /) -> None:
    await desk.txn_commit(5)
    with pytest.raises(KafkaError) as caught:
        await desk.end(7, epoch=0, version=2)
    assert caught.value.code == E.INVALID_PRODUCER_EPOCH
    await desk.end(7, epoch=1, version=2)
    assert await desk.stable() == 5
    assert await desk.txn_commit(6, epoch=0) == E.INVALID_PRODUCER_EPOCH
    assert await desk.txn_commit(7, epoch=1) == E.NONE
    await desk.end(7, committed=False, epoch=2, version=2)
    assert await desk.stable() == 5


@run_by(simulated)
async def test_a_shard_that_is_lost_while_the_coordinator_is_asked(desk: Desk, /) -> None:
    desk.coordinators.waits = True
    asked: Any = await desk.start_asking(txn_request(5), 5)
    await desk.inside(lambda: desk.groups.host.shards.resign(0))
    await desk.inside(desk.coordinators.tell)
    assert asked.answer.topics[0].partitions[0].error_code == E.NOT_COORDINATOR
    assert await desk.txn_commit(5) == E.NOT_COORDINATOR
    with pytest.raises(KafkaError) as caught:
        await desk.end(7)
    assert caught.value.code == E.NOT_COORDINATOR


@run_by(simulated, ready=False)
async def test_there_is_no_coordinator_before_its_topic(desk: Desk, /) -> None:
    await desk.create("t")
    assert await desk.txn_commit(5) == E.COORDINATOR_NOT_AVAILABLE
    await desk.ready()
    assert await desk.txn_commit(5) == E.NONE


# --- Whom the group knows ---------------------------------------------------------------------------------------------


@run_by(simulated)
async def test_commits_that_are_refused(desk: Desk, /) -> None:
    assert await desk.txn_commit(1, topic="unknown") == E.UNKNOWN_TOPIC_OR_PARTITION
    assert await desk.txn_commit(1, partition=2) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert not desk.coordinators.asked, "nothing could be written"
    assert await desk.txn_commit(1, group="") == E.INVALID_GROUP_ID
    assert await desk.txn_commit(1, metadata="x" * 4097) == E.OFFSET_METADATA_TOO_LARGE
    assert await desk.txn_commit(1, group="new", generation=3, member="m") == E.ILLEGAL_GENERATION
    unknown = desk.host.broker._controller.image.topics["t"].id  # type: ignore[union-attr]
    request = txn_request(1, group="new", generation=3, member="m")
    request.topics[0].topic_id = unknown
    assert (await desk.ask(request, 6)).topics[0].partitions[0].error_code == E.GROUP_ID_NOT_FOUND
    request.topics[0].topic_id = bytes(15) + b"1"
    assert (await desk.ask(request, 6)).topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_ID
    assert await desk.stable() == -1


@run_by(simulated)
async def test_members_are_fenced_and_who_names_none_is_not(desk: Desk, /) -> None:
    member, generation = await desk.member()
    good = {"member": member, "generation": generation}
    assert await desk.txn_commit(1, **good) == E.NONE
    assert await desk.txn_commit(1, member=member, generation=generation + 1) == E.ILLEGAL_GENERATION
    assert await desk.txn_commit(1, member="x", generation=generation) == E.UNKNOWN_MEMBER_ID
    assert await desk.txn_commit(1, member=member) == E.ILLEGAL_GENERATION
    assert await desk.txn_commit(1, **good, instance="i") == E.UNKNOWN_MEMBER_ID
    assert await desk.txn_commit(1, version=2) == E.NONE, "a producer of before KIP-447"
    assert await desk.commit(1) == E.UNKNOWN_MEMBER_ID, "the control: outside of a transaction it is refused"
    assert await desk.txn_commit(1, group="empty", member="x") == E.NONE


# --- What becomes of groups and offsets -------------------------------------------------------------------------------


@run_by(simulated)
async def test_who_deletes_offsets_deletes_the_pending_ones_too(desk: Desk, /) -> None:
    await desk.txn_commit(1)
    await desk.txn_commit(2, partition=1)
    await desk.commit(3, partition=1)
    answer = await desk.ask(delete_request("g", ("t", 0)), 0)
    assert answer.error_code == E.NONE
    assert await desk.stable() == -1 and await desk.stable(partition=1) == UNSTABLE
    await desk.end(7)
    for _ in range(2):
        assert await desk.stable() == -1 and await desk.stable(partition=1) == 3
        await desk.restart()


@run_by(simulated)
async def test_a_group_is_deleted_with_its_pending_offsets(desk: Desk, /) -> None:
    await desk.txn_commit(1)
    await desk.txn_commit(2, group="other")
    deleted = await desk.ask(dlg.Request(groups_names=["g"]), 2)
    assert deleted.results[0].error_code == E.NONE
    assert await desk.stable() == -1
    await desk.end(7)
    for _ in range(2):
        assert await desk.stable() == -1 and await desk.stable("other") == 2
        assert [group.group_id for group in (await desk.ask(lsg.Request(), 4)).groups] == ["other"]
        await desk.restart()


@run_by(simulated)
async def test_pending_offsets_go_with_their_topic(desk: Desk, /) -> None:
    await desk.create("u")
    for topic in ("t", "u"):
        await desk.txn_commit(7, topic=topic)
    await desk.submit(DeleteTopics(names=["t"]))
    await desk.create("t")
    await desk.end(7)
    for _ in range(2):
        assert await desk.stable() == -1 and await desk.stable(topic="u") == 7
        await desk.restart()


@run_by(simulated, options={"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "20000"})
async def test_offsets_and_groups_with_open_transactions_do_not_grow_old(desk: Desk, /) -> None:
    await desk.commit(1)
    await desk.commit(2, partition=1)
    await desk.txn_commit(3)
    await desk.txn_commit(4, group="only")
    await desk.sim.sleep(130)
    assert (await desk.fetched())[0] == 1 and (await desk.fetched(partition=1))[0] == -1
    assert {group.group_id for group in (await desk.ask(lsg.Request(), 4)).groups} == {"g", "only"}
    await desk.end(7, committed=False)
    await desk.sim.sleep(41)
    assert not (await desk.ask(lsg.Request(), 4)).groups and (await desk.fetched())[0] == -1


@run_by(simulated)
async def test_a_shard_keeps_so_many_pending_offsets_and_no_more(desk: Desk, /, monkeypatch) -> None:
    monkeypatch.setattr(txn_offset_requests, "MAX_PENDING_OFFSETS", 2)
    for partition in (0, 0, 1):
        assert await desk.txn_commit(1, partition=partition) == E.NONE
    assert await desk.txn_commit(3, group="h") == E.COORDINATOR_NOT_AVAILABLE
    await desk.end(7)
    assert await desk.txn_commit(3, group="h") == E.NONE
    await desk.end(7, committed=False)
    assert not len(desk.groups.host.shards.shards[0].state.offsets.pending)


@run_by(simulated, options=FSYNC)
async def test_a_commit_and_a_marker_are_answered_when_they_are_on_disk(desk: Desk, /) -> None:
    commit: Any = await desk.start_asking(txn_request(7), 5)
    assert isinstance(commit, Pending) and not commit.done
    await desk.sim.until(lambda: commit.done, "an answer")
    await desk.end(7)
    await desk.restart(power=True)
    assert await desk.stable() == 7


@run_by(simulated)
async def test_batches_are_kafkas(desk: Desk, /) -> None:
    await desk.txn_commit(5, epoch=3)
    await desk.end(7, epoch=3)
    data = desk.host.partition_bytes("__consumer_offsets")
    (_, commit), (at, marker) = walk(data)
    assert (commit.producer_id, commit.producer_epoch, commit.base_sequence) == (7, 3, 0)
    assert commit.is_transactional and not commit.is_control
    assert (marker.producer_id, marker.producer_epoch, marker.base_sequence) == (7, 3, -1)
    assert marker.is_transactional and marker.is_control
    assert [(record.key, record.value) for record in decode_batch(data, at)] == [(b"\0\0\0\1", bytes(6))]
