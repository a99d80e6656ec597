"""Vote (key 52): a candidate for leader of the metadata quorum asks the voters for their votes (KIP-595).

Flexible from the start. v1: the voter asked, directory ids, endpoints in the answer (KIP-853). v2: asks first whether a
vote would be given, without a new epoch (KIP-996)."""

from __future__ import annotations

from ..schema import Api, Struct, array, boolean, int16, int32, int64, string, uint16, uuid


class PartitionData(Struct):
    """replica_id, replica_epoch and replica_directory_id are the candidate's: its epoch is raised already, unless this
    is a pre-vote."""

    partition_index: int = int32()
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("1+", ignorable=True)
    voter_directory_id: bytes = uuid("1+", ignorable=True)
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean("2+")


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class Request(Struct):
    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[TopicData] = array(TopicData)


class PartitionResult(Struct):
    """leader_id: -1 when no leader is known."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    vote_granted: bool = boolean()


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


API = Api(52, "Vote", Request, Response, versions="0-2", flexible="0+")
