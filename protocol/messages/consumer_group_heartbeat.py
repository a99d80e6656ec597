"""ConsumerGroupHeartbeat (key 68): a member of a consumer group joins, stays, or leaves (KIP-848).

member_epoch: 0 to join, -1 to leave, -2 for a static member that may come back. What has not changed since the last
heartbeat may be null. v1: subscription by a regular expression; the member chooses its id (KIP-1082).
"""

from __future__ import annotations

from ..schema import Api, Struct, array, int16, int32, nested, string, uuid


class TopicPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


class Request(Struct):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+", default=None)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nested(Assignment, nullable="0+")


API = Api(68, "ConsumerGroupHeartbeat", Request, Response, versions="0-1", flexible="0+")
