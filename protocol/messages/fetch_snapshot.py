"""FetchSnapshot (key 59): reads bytes of a snapshot of the metadata, for members whose log is too old (KIP-630).

Flexible from the start. v1: the reader's directory id, endpoints in the answer (KIP-853)."""

from __future__ import annotations

from typing import Any

from ..schema import Api, Struct, array, batches, int16, int32, int64, nested, string, uint16, uuid


class SnapshotId(Struct):
    """end_offset: where the log continues after the snapshot. epoch: that of the last record in it."""

    end_offset: int = int64()
    epoch: int = int32()


class PartitionSnapshotRequest(Struct):
    """position: bytes into the snapshot."""

    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotId = nested(SnapshotId)
    position: int = int64()
    replica_directory_id: bytes = uuid("1+", tag=0, ignorable=True)


class TopicSnapshotRequest(Struct):
    name: str = string()
    partitions: list[PartitionSnapshotRequest] = array(PartitionSnapshotRequest)


class Request(Struct):
    cluster_id: str | None = string(nullable="0+", default=None, tag=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=0x7FFFFFFF)
    topics: list[TopicSnapshotRequest] = array(TopicSnapshotRequest)


class LeaderIdAndEpoch(Struct):
    """leader_id: -1 when no leader is known."""

    leader_id: int = int32()
    leader_epoch: int = int32()


class PartitionSnapshot(Struct):
    """size: bytes of the whole snapshot. unaligned_records: its bytes from position on, which may end in a batch."""

    index: int = int32()
    error_code: int = int16()
    snapshot_id: SnapshotId = nested(SnapshotId)
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, tag=0)
    size: int = int64()
    position: int = int64()
    unaligned_records: Any = batches()


class TopicSnapshot(Struct):
    name: str = string()
    partitions: list[PartitionSnapshot] = array(PartitionSnapshot)


class NodeEndpoint(Struct):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class Response(Struct):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    topics: list[TopicSnapshot] = array(TopicSnapshot)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0, ignorable=True)


API = Api(59, "FetchSnapshot", Request, Response, versions="0-1", flexible="0+")
