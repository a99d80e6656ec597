"""OffsetForLeaderEpoch by the rules of Kafka's epoch cache: present, older, unknown, too old."""

from isthmus.core_broker.cluster.controller.raise_leader_epoch import RaiseLeaderEpoch
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import offset_for_leader_epoch as m
from tests.running import run_by

from .serving import serve

E = ErrorCode


async def end_of(serving, epoch, current=-1, topic="t", index=0):
    row = m.OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
    answer = await serving.ask(m.Request(topics=[m.OffsetForLeaderTopic(topic=topic, partitions=[row])]))
    found = answer.topics[0].partitions[0]
    assert found.partition == index
    return found.error_code, found.leader_epoch, found.end_offset


@run_by(serve)
async def test_an_epoch_ends_where_the_next_begins_and_the_present_one_at_the_logs_end(serving, /):
    await serving.topic("t")
    serving.fill("t", 3)
    await serving.controller.submit_wait(RaiseLeaderEpoch([("t", 0, 2)]))  # nothing is written in epoch 1
    serving.fill("t", 4)
    assert await end_of(serving, 0) == (E.NONE, 0, 3)
    assert await end_of(serving, 1) == (E.NONE, 0, 3)
    assert await end_of(serving, 2) == (E.NONE, 2, 7)
    assert await end_of(serving, 3) == (E.NONE, -1, -1)
    assert await end_of(serving, -1) == (E.NONE, -1, -1)


@run_by(serve)
async def test_a_client_with_another_leader_epoch_is_told(serving, /):
    await serving.topic("t")
    await serving.controller.submit_wait(RaiseLeaderEpoch([("t", 0, 2)]))
    assert await end_of(serving, 0, current=2) == (E.NONE, 0, 0)
    assert await end_of(serving, 0, current=1) == (E.FENCED_LEADER_EPOCH, -1, -1)
    assert await end_of(serving, 0, current=3) == (E.UNKNOWN_LEADER_EPOCH, -1, -1)


@run_by(serve)
async def test_what_is_not_there_is_told(serving, /):
    await serving.topic("t")
    assert await end_of(serving, 0, topic="no") == (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert await end_of(serving, 0, index=1) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    partition = serving.replicas.get("t", 0)
    partition.fail(OSError(5, "Input/output error"))
    assert await end_of(serving, 0) == (E.KAFKA_STORAGE_ERROR, -1, -1)
