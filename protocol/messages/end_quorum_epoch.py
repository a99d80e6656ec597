"""EndQuorumEpoch (key 54): the leader of the metadata quorum resigns, and names who should follow it (KIP-595).

v1: flexible, candidates with directory ids instead of successors, the leader's endpoints (KIP-853)."""

from __future__ import annotations

from ..schema import Api, Struct, array, int16, int32, string, uint16, uuid


class ReplicaInfo(Struct):
    candidate_id: int = int32("1+")
    candidate_directory_id: bytes = uuid("1+")


class PartitionData(Struct):
    """The successors and candidates are sorted, the preferred first."""

    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32()
    preferred_successors: list[int] = array(int32, "0", ignorable=True)
    preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo, "1+", ignorable=True)


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class LeaderEndpoint(Struct):
    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class Request(Struct):
    cluster_id: str | None = string(nullable="0+", default=None)
    topics: list[TopicData] = array(TopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", ignorable=True)


class PartitionResult(Struct):
    """leader_id: -1 when no leader is known."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class TopicResult(Struct):
    topic_name: str = string()
    partitions: list[PartitionResult] = array(PartitionResult)


class NodeEndpoint(Struct):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class Response(Struct):
    error_code: int = int16()
    topics: list[TopicResult] = array(TopicResult)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0, ignorable=True)


API = Api(54, "EndQuorumEpoch", Request, Response, versions="0-1", flexible="1+")
