"""MirrorAppend (key 30000, private to Isthmus): a mirror appends another cluster's batches, bytes and offsets kept.

The target log is the checkpoint: a partition takes batches only at `range_from`, its expected next offset, where the
batch before has the leader epoch that is expected, and only from the link and source topic that own it. A partition
that never held a record begins at the source's log start. Without records and with `range_from` -1 it is a probe: the
answer says where the target log ends.
v0: flexible.
"""

from __future__ import annotations

from typing import Any

from ..schema import Api, Struct, array, batches, int8, int16, int32, int64, string, uuid


class MirrorAppendPartition(Struct):
    index: int = int32()
    mode: int = int8()
    source_leader_epoch: int = int32(default=-1)
    previous_leader_epoch: int = int32(default=-2)  # of the batch before `range_from`; -1: there is none, -2: not told
    range_from: int = int64()  # where the target log must end; -1 in a probe
    source_log_start_offset: int = int64(default=-1)  # where a target log that never held a record begins
    records: Any = batches(nullable="0+")


class MirrorAppendTopic(Struct):
    name: str = string()
    source_topic_id: bytes = uuid()
    partitions: list[MirrorAppendPartition] = array(MirrorAppendPartition)


class Request(Struct):
    link_id: str = string()
    link_epoch: int = int32()
    source_cluster_id: str = string()
    timeout_ms: int = int32()
    topics: list[MirrorAppendTopic] = array(MirrorAppendTopic)


class MirrorAppendPartitionResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    next_offset: int = int64(default=-1)
    next_epoch: int = int32(default=-1)
    link_epoch: int = int32(default=-1)


class MirrorAppendTopicResponse(Struct):
    name: str = string()
    partitions: list[MirrorAppendPartitionResponse] = array(MirrorAppendPartitionResponse)


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[MirrorAppendTopicResponse] = array(MirrorAppendTopicResponse)


API = Api(30000, "MirrorAppend", Request, Response, versions="0", flexible="0+")
