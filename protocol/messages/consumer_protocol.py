"""What consumers say to each other through JoinGroup and SyncGroup: their subscription, and the leader's assignment.

Bytes start with an int16 version; a version newer than ours is read as ours, since fields are only ever added at the
end. v1: owned partitions (KIP-429). v2: generation (KIP-792). v3: rack (KIP-881). Never flexible.
"""

from __future__ import annotations

from typing import Any

from ..errors import DecodeError
from ..schema import Codec, Struct, array, int32, octets, string


class TopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class Subscription(Struct):
    topics: list[str] = array(string)
    user_data: bytes | None = octets(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class Assignment(Struct):
    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = octets(nullable="0+", default=None)


NEWEST_VERSION = 3

_SUBSCRIPTION = Codec(Subscription, "ConsumerProtocolSubscription", "0-3", "none")
_ASSIGNMENT = Codec(Assignment, "ConsumerProtocolAssignment", "0-3", "none")

CODECS = (_SUBSCRIPTION, _ASSIGNMENT)


def encode_subscription(subscription: Subscription, version: int = NEWEST_VERSION) -> bytes:
    return version.to_bytes(2, "big") + _SUBSCRIPTION.encode_bytes(subscription, version)


def decode_subscription(buf: Any) -> Subscription:
    """Raises DecodeError."""
    return _decode(_SUBSCRIPTION, buf)


def decode_topics(buf: Any) -> list[str]:
    """The topics of a subscription: all versions begin like version 0, whatever follows. Raises DecodeError."""
    if len(buf) < 2:
        raise DecodeError(f"a subscription of {len(buf)} bytes")
    topics: list[str] = _SUBSCRIPTION.decode(buf, 2, 0)[0].topics
    return topics


def encode_assignment(assignment: Assignment, version: int = NEWEST_VERSION) -> bytes:
    return version.to_bytes(2, "big") + _ASSIGNMENT.encode_bytes(assignment, version)


def decode_assignment(buf: Any) -> Assignment:
    """Raises DecodeError. Nothing assigned is sometimes sent as no bytes at all: an empty assignment."""
    return _decode(_ASSIGNMENT, buf) if len(buf) else Assignment()


def _decode(codec: Codec, buf: Any) -> Any:
    if len(buf) < 2:
        raise DecodeError(f"{codec.name} of {len(buf)} bytes")
    version = int.from_bytes(buf[:2], "big", signed=True)
    return codec.decode(buf, 2, min(version, NEWEST_VERSION))[0]
