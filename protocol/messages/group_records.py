"""What `__consumer_offsets` holds: committed offsets, classic groups and consumer groups, in Kafka's layouts.

A key starts with an int16 that says which record it is (0 and 1 a committed offset, 2 a classic group, 3 to 8 and 16 a
consumer group); a value starts with an int16 that is its version; a null value is a tombstone. `_KINDS` has them all.
Records of newer kinds of groups are not read here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import DecodeError
from ..schema import Codec, Struct, array, int32, int64, octets, string, uuid
from . import consumer_group_records as c


class OffsetCommitKey(Struct):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Struct):
    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: bytes = uuid("4+", tag=0, ignorable=True)


class GroupMetadataKey(Struct):
    group: str = string()


class MemberMetadata(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = octets()
    assignment: bytes = octets()


class GroupMetadataValue(Struct):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+", default=None)
    leader: str | None = string(nullable="0+", default=None)
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


class Kind(NamedTuple):
    """One type of record. written: the version in which Kafka 4.4 writes the value."""

    key: Codec
    value: Codec
    written: int = 0


EXPIRING_OFFSET_VALUE_VERSION = 1  # of offsets that say how long they live: the only one that can


def _kind(key: type[Struct], value: type[Struct]) -> Kind:
    """A type of record that is flexible from its first version on, as all newer ones are."""
    return Kind(Codec(key, key.__name__, "0", "none"), Codec(value, value.__name__, "0", "0+"))


_OFFSET_COMMIT = Kind(
    Codec(OffsetCommitKey, "OffsetCommitKey", "0", "none"),
    Codec(OffsetCommitValue, "OffsetCommitValue", "0-4", "4+"),
    4,  # with the topic's id
)
_KINDS: dict[int, Kind] = {
    0: _OFFSET_COMMIT,
    1: _OFFSET_COMMIT,
    2: Kind(
        Codec(GroupMetadataKey, "GroupMetadataKey", "0", "none"),
        Codec(GroupMetadataValue, "GroupMetadataValue", "0-4", "4+"),
        3,  # the layout from before flexible versions
    ),
    3: _kind(c.ConsumerGroupMetadataKey, c.ConsumerGroupMetadataValue),
    4: _kind(c.ConsumerGroupPartitionMetadataKey, c.ConsumerGroupPartitionMetadataValue),
    5: _kind(c.ConsumerGroupMemberMetadataKey, c.ConsumerGroupMemberMetadataValue),
    6: _kind(c.ConsumerGroupTargetAssignmentMetadataKey, c.ConsumerGroupTargetAssignmentMetadataValue),
    7: _kind(c.ConsumerGroupTargetAssignmentMemberKey, c.ConsumerGroupTargetAssignmentMemberValue),
    8: _kind(c.ConsumerGroupCurrentMemberAssignmentKey, c.ConsumerGroupCurrentMemberAssignmentValue),
    16: _kind(c.ConsumerGroupRegularExpressionKey, c.ConsumerGroupRegularExpressionValue),
}
_NUMBERS: dict[type[Struct], int] = {kind.key.struct: number for number, kind in _KINDS.items()}  # the one written
_BY_VALUE: dict[type[Struct], Kind] = {kind.value.struct: kind for kind in _KINDS.values()}

CODECS = tuple(codec for kind in dict.fromkeys(_KINDS.values()) for codec in (kind.key, kind.value))

Key = Any  # a struct of one of the keys
Value = Any  # the struct that belongs to it


def encode_key(key: Key) -> bytes:
    number = _NUMBERS[type(key)]
    return number.to_bytes(2, "big") + _KINDS[number].key.encode_bytes(key, 0)


def decode_key(key: Any) -> Key | None:
    """None for a kind of record that is not known here: skip it. Raises DecodeError."""
    kind = _KINDS.get(_int16(key))
    return None if kind is None else kind.key.decode(key, 2, 0)[0]


def encode_value(value: Value, version: int | None = None) -> bytes:
    """The value in the version that Kafka writes, unless another is asked for."""
    kind = _BY_VALUE[type(value)]
    if version is None:
        expires = isinstance(value, OffsetCommitValue) and value.expire_timestamp != -1
        version = EXPIRING_OFFSET_VALUE_VERSION if expires else kind.written
    return version.to_bytes(2, "big") + kind.value.encode_bytes(value, version)


def decode_value(key: Key, value: Any) -> Value | None:
    """The value that belongs to a decoded key, or None for a tombstone. Raises DecodeError."""
    if value is None:
        return None
    return _KINDS[_NUMBERS[type(key)]].value.decode(value, 2, _int16(value))[0]


def _int16(buf: Any) -> int:
    if len(buf) < 2:
        raise DecodeError(f"a group record of {len(buf)} bytes")
    return int.from_bytes(buf[:2], "big", signed=True)
