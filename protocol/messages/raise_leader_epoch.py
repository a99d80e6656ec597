"""RaiseLeaderEpoch (key 30001, private to Isthmus): the leader of mirrored partitions asks the active controller to
raise their leader epochs to those of their source.

v0: flexible.
"""

from __future__ import annotations

from ..schema import Api, Struct, array, int16, int32, string


class PartitionData(Struct):
    """leader_epoch: to be reached."""

    index: int = int32()
    leader_epoch: int = int32()


class TopicData(Struct):
    name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class Request(Struct):
    topics: list[TopicData] = array(TopicData)


class Response(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


API = Api(30001, "RaiseLeaderEpoch", Request, Response, versions="0", flexible="0+")
