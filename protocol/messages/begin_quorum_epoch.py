"""BeginQuorumEpoch (key 53): a new leader of the metadata quorum makes itself known to the voters (KIP-595).

v1: flexible, the voter addressed, the leader's endpoints (KIP-853)."""

from __future__ import annotations

from ..schema import Api, Struct, array, int16, int32, string, uint16, uuid


class PartitionData(Struct):
    partition_index: int = int32()
    voter_directory_id: bytes = uuid("1+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class LeaderEndpoint(Struct):
    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class Request(Struct):
    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
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


API = Api(53, "BeginQuorumEpoch", Request, Response, versions="0-1", flexible="1+")
