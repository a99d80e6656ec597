"""Requests for a partition that failed, or whose log did: all are told so, and the next partition is served."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from isthmus.core_broker.replication.states import Event
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import (
    alter_replica_log_dirs,
    delete_records,
    describe_producers,
    describe_topic_partitions,
    fetch,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from isthmus.protocol.records import build_batch
from tests.running import run_by

from ..asking import fetch_of, produce_of
from .serving import Serving, serve

LOST, SERVED = 0, 1
BOTH = (LOST, SERVED)
Wanted = Callable[[Serving, bytes], Any]


def append(serving: Serving, topic_id: bytes) -> produce.Request:
    data = build_batch([(serving.runtime.wall_ms(), b"k", b"v", ())])
    return produce_of(*((index, data) for index in BOTH), topic="t", topic_id=topic_id)


def read(serving: Serving, topic_id: bytes) -> fetch.Request:
    return fetch_of(*((index, 0) for index in BOTH), topic_id=topic_id, max_bytes=1 << 20, min_bytes=0)


def offsets(timestamp: int, epoch: int = -1) -> Wanted:
    rows = [
        list_offsets.ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
        for index in BOTH
    ]
    topic = list_offsets.ListOffsetsTopic(name="t", partitions=rows)
    return lambda serving, topic_id: list_offsets.Request(replica_id=-1, topics=[topic])


def ends(serving: Serving, topic_id: bytes) -> offset_for_leader_epoch.Request:
    rows = [offset_for_leader_epoch.OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in BOTH]
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic="t", partitions=rows)
    return offset_for_leader_epoch.Request(topics=[topic])


def delete(serving: Serving, topic_id: bytes) -> delete_records.Request:
    rows = [delete_records.DeleteRecordsPartition(partition_index=index, offset=1) for index in BOTH]
    return delete_records.Request(topics=[delete_records.DeleteRecordsTopic(name="t", partitions=rows)])


def producers(serving: Serving, topic_id: bytes) -> describe_producers.Request:
    topic = describe_producers.TopicRequest(name="t", partition_indexes=list(BOTH))
    return describe_producers.Request(topics=[topic])


def move(serving: Serving, topic_id: bytes) -> alter_replica_log_dirs.Request:
    topic = alter_replica_log_dirs.AlterReplicaLogDirTopic(name="t", partitions=list(BOTH))
    there = alter_replica_log_dirs.AlterReplicaLogDir(path=serving.replicas.data_dir, topics=[topic])
    return alter_replica_log_dirs.Request(dirs=[there])


WANTED: dict[str, Wanted] = {
    "Produce": append,
    "Fetch": read,
    "ListOffsets latest": offsets(-1),
    "ListOffsets earliest": offsets(-2),
    "ListOffsets of the largest timestamp": offsets(-3),
    "ListOffsets by timestamp": offsets(0),
    "OffsetForLeaderEpoch": ends,
    "DeleteRecords": delete,
    "DescribeProducers": producers,
    "AlterReplicaLogDirs": move,
}


def fail_partition(serving: Serving) -> None:
    serving.replicas.get("t", LOST).enter(
        Event.LOG_FAILED, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "Input/output error")
    )


def fail_log(serving: Serving) -> None:
    serving.replicas.get("t", LOST).log.status.unreadable(OSError(5, "broken"))


def codes(answer: Any) -> Iterator[tuple[int, int]]:
    """Of each partition, by its index."""
    for topic in getattr(answer, "responses", None) or getattr(answer, "topics", None) or answer.results:
        for row in getattr(topic, "partition_responses", None) or topic.partitions:
            index = next(getattr(row, name) for name in ("index", "partition_index", "partition") if hasattr(row, name))
            yield index, row.error_code


@pytest.mark.parametrize("wanted", WANTED.values(), ids=WANTED)
@pytest.mark.parametrize("fail", [fail_partition, fail_log])
@run_by(serve)
async def test_a_partition_that_is_offline_is_told_as_that_and_the_next_is_served(serving, /, fail, wanted):
    topic_id = await serving.topic("t", partitions=2)
    for index in BOTH:
        serving.fill("t", 3, index)
    fail(serving)
    answer = await serving.ask(wanted(serving, topic_id))
    assert dict(codes(answer)) == {LOST: ErrorCode.KAFKA_STORAGE_ERROR, SERVED: ErrorCode.NONE}


@run_by(serve)
async def test_a_client_of_another_epoch_is_told_that_the_partition_is_offline(serving, /):
    topic_id = await serving.topic("t", partitions=2)
    fail_log(serving)
    answer = await serving.ask(offsets(-1, epoch=9)(serving, topic_id))
    assert dict(codes(answer)) == {LOST: ErrorCode.KAFKA_STORAGE_ERROR, SERVED: ErrorCode.UNKNOWN_LEADER_EPOCH}


def break_disk(serving: Serving) -> None:
    serving.replicas.get("t", LOST).log.status.fail(OSError(5, "Input/output error"), "cannot append to")


def placed(row: Any) -> tuple[int, int, list[int], list[int], list[int]]:
    return row.partition_index, row.leader_id, row.replica_nodes, row.isr_nodes, row.offline_replicas


PLACED = [(LOST, -1, [1], [], [1]), (SERVED, 1, [1], [1], [])]


@pytest.mark.parametrize("version", [0, 5, metadata.API.max_version])
@run_by(serve)
async def test_metadata_tells_of_no_leader_of_a_partition_that_is_offline(serving, /, version):
    asked = metadata.Request(topics=[metadata.MetadataRequestTopic(name=name) for name in ("t", "u")])
    await serving.topic("t", partitions=2)
    await serving.topic("u")

    async def rows() -> dict[str, list[Any]]:
        answer = await serving.ask(asked, version)
        data = b"".join(map(bytes, metadata.API.encode_response(answer, version)))
        return {each.name: each.partitions for each in metadata.API.decode_response(data, 0, version).topics}

    assert [row.leader_id for row in (await rows())["t"]] == [1, 1]
    break_disk(serving)
    told = await rows()
    assert [row.error_code for row in told["t"]] == [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE]
    assert [placed(row)[: 5 if version >= 5 else 4] for row in told["t"]] == [
        each[: 5 if version >= 5 else 4] for each in PLACED
    ]
    assert [row.leader_id for row in told["u"]] == [1]


@run_by(serve)
async def test_pages_tell_of_no_leader_of_a_partition_that_is_offline(serving, /):
    await serving.topic("t", partitions=2)
    break_disk(serving)
    answer = await serving.ask(describe_topic_partitions.Request(response_partition_limit=9))
    assert [placed(row) for row in answer.topics[0].partitions] == PLACED
