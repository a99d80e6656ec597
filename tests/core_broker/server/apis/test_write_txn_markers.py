"""WriteTxnMarkers: transactions end at the partitions that this broker leads, once that is committed."""

import pytest

from isthmus.core_broker.storage.log.append import Origin
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import write_txn_markers as m
from isthmus.protocol.records import build_batch
from tests.running import run_by

from .serving import serve

E = ErrorCode


def marker(*topics, pid=7, epoch=0, commit=True, coordinator_epoch=0, version=0):
    return m.WritableTxnMarker(
        producer_id=pid, producer_epoch=epoch, transaction_result=commit, coordinator_epoch=coordinator_epoch,
        transaction_version=version,
        topics=[m.WritableTxnMarkerTopic(name=name, partition_indexes=list(indexes)) for name, *indexes in topics],
    )  # fmt: skip


async def write(serving, *markers):
    """{(producer id, topic, partition): error}"""
    answer = await serving.ask(m.Request(markers=list(markers)))
    return {
        (each.producer_id, topic.name, row.partition_index): row.error_code
        for each in answer.markers
        for topic in each.topics
        for row in topic.partitions
    }


def begin(serving, topic, index=0, pid=7, epoch=0):
    partition = serving.replicas.get(topic, index)
    now = serving.runtime.wall_ms()
    guard = partition.begin_verification(pid, epoch, 0, False, now)
    header = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": 0, "transactional": True}
    partition.append(build_batch([(now, b"k", b"v", ())], **header), Origin.CLIENT, now, guard=guard)
    return partition


@run_by(serve)
async def test_all_named_transactions_end(serving, /):
    await serving.topic("t", 2)
    await serving.topic("u")
    led = [begin(serving, "t"), begin(serving, "t", 1, pid=8), begin(serving, "u")]
    assert [each.last_stable_offset for each in led] == [0, 0, 0]
    codes = await write(serving, marker(("t", 0), ("u", 0)), marker(("t", 1), pid=8, commit=False))
    assert codes == {(7, "t", 0): 0, (7, "u", 0): 0, (8, "t", 1): 0}
    assert [each.last_stable_offset for each in led] == [2, 2, 2]
    assert [each.aborted_transactions(0, 2) for each in led] == [[], [(8, 0)], []]


@run_by(serve)
async def test_each_partition_has_its_own_error(serving, /):
    await serving.topic("t", 3)
    begin(serving, "t", 0, epoch=5)
    followed = serving.replicas.get("t", 1)
    followed.leadership = None
    await write(serving, marker(("t", 2), coordinator_epoch=9))
    codes = await write(serving, marker(("t", 0, 1, 2, 3), ("no", 0), epoch=4, coordinator_epoch=8))
    assert codes == {
        (7, "t", 0): E.INVALID_PRODUCER_EPOCH,
        (7, "t", 1): E.NOT_LEADER_OR_FOLLOWER,
        (7, "t", 2): E.TRANSACTION_COORDINATOR_FENCED,
        (7, "t", 3): E.UNKNOWN_TOPIC_OR_PARTITION,
        (7, "no", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize("wrong", [{"pid": -1}, {"epoch": -1}, {"version": -1}])
@run_by(serve)
async def test_a_marker_of_nobody_is_not_written(serving, /, wrong):
    await serving.topic("t")
    partition = begin(serving, "t")
    codes = await write(serving, marker(("t", 0), **wrong))
    assert codes == {(wrong.get("pid", 7), "t", 0): E.UNKNOWN_SERVER_ERROR}
    assert (partition.last_stable_offset, partition.high_watermark) == (0, 1)


@run_by(serve)
async def test_the_version_of_transactions_is_the_markers(serving, /):
    await serving.topic("t")
    begin(serving, "t", epoch=5)
    assert await write(serving, marker(("t", 0), epoch=5, version=2)) == {(7, "t", 0): E.INVALID_PRODUCER_EPOCH}
    assert await write(serving, marker(("t", 0), epoch=6, version=2)) == {(7, "t", 0): E.NONE}


@run_by(serve)
async def test_a_marker_is_answered_when_it_is_committed(serving, /):
    await serving.topic("t")
    partition = begin(serving, "t")
    partition.place(1, [1, 2], [1, 2])
    pending = serving.handle(m.Request(markers=[marker(("t", 0))]))
    assert not pending.done
    assert partition.last_stable_offset == 0  # the marker is in the log, but readers must not rely on it
    partition.follower_fetched(2, 2, 0, -1)
    assert pending.done
    assert pending.answer.markers[0].topics[0].partitions[0].error_code == E.NONE
    assert partition.last_stable_offset == 2


@run_by(serve)
async def test_time_is_up_and_too_few_in_sync(serving, /):
    await serving.topic("t", min_insync_replicas="2")
    partition = begin(serving, "t")
    partition.place(1, [1, 2], [1, 2])
    pending = serving.handle(m.Request(markers=[marker(("t", 0))]))
    pending.expire()
    assert pending.answer.markers[0].topics[0].partitions[0].error_code == E.REQUEST_TIMED_OUT
    partition.place(1, [1, 2], [1])
    end = partition.log.log_end_offset
    assert await write(serving, marker(("t", 0))) == {(7, "t", 0): E.NOT_ENOUGH_REPLICAS}
    assert partition.log.log_end_offset == end


@run_by(serve)
async def test_what_a_mirror_writes_is_not_ended_here(serving, /):
    await serving.topic("t", mirror_link="l", mirror_source_cluster_id="c")
    assert await write(serving, marker(("t", 0))) == {(7, "t", 0): E.NONE}, "a producer has added it in vain"
    partition = serving.replicas.get("t", 0)
    assert partition.log.log_end_offset == 0
    header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    now = serving.runtime.wall_ms()
    partition.append(build_batch([(now, b"k", b"v", ())], **header), Origin.MIRROR, now)
    assert await write(serving, marker(("t", 0))) == {(7, "t", 0): E.POLICY_VIOLATION}
    assert partition.log.log_end_offset == 1


class Groups:
    """A coordinator of groups that notes what it is told."""

    def __init__(self, serving):
        self.host = self
        self.told = []
        self.error = None
        self.serving = serving

    def complete_transaction(self, *told):
        self.told.append(told)
        if self.error is not None:
            raise KafkaError(self.error)
        return self.serving.replicas.get("__consumer_offsets", told[0]), 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, E.NONE),
        (E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_LEADER_OR_FOLLOWER),
        (E.COORDINATOR_NOT_AVAILABLE, E.NOT_LEADER_OR_FOLLOWER),
        (E.NOT_COORDINATOR, E.NOT_LEADER_OR_FOLLOWER),
        (E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH),
    ],
)
@run_by(serve)
async def test_the_coordinator_of_groups_ends_what_is_of_groups(serving, /, error, code):
    await serving.topic("__consumer_offsets", 2)
    serving.context.services.groups = groups = Groups(serving)
    groups.error = error
    told = marker(("__consumer_offsets", 1), epoch=3, coordinator_epoch=4, commit=False, version=2)
    assert await write(serving, told) == {(7, "__consumer_offsets", 1): code}
    assert groups.told == [(1, 7, 3, 4, False, 2)]


@run_by(serve)
async def test_nothing_to_end(serving, /):
    assert await write(serving) == {}
    assert await write(serving, marker()) == {}
