"""What `__consumer_offsets` holds for classic groups: committed offsets and group metadata, in Kafka's layouts.

A key starts with an int16 that says which record it is (0 and 1 a committed offset, 2 a group); a value starts with
an int16 that is its version; a null value is a tombstone. Records of newer kinds of groups are not read here.
"""

from __future__ import annotations

from typing import Any

from ..errors import DecodeError
from ..schema import Codec, Struct, array, int32, int64, octets, string, uuid


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


OFFSET_COMMIT_KEY_TYPES = (0, 1)
GROUP_METADATA_KEY_TYPE = 2
OFFSET_COMMIT_VALUE_VERSION = 4  # what Kafka 4.4 writes: offsets with the topic's id,
GROUP_METADATA_VALUE_VERSION = 3  # and groups in the layout from before flexible versions
EXPIRING_OFFSET_VALUE_VERSION = 1  # of offsets that say how long they live: the only one that can

_OFFSET_COMMIT_KEY = Codec(OffsetCommitKey, "OffsetCommitKey", "0-1", "none")
_GROUP_METADATA_KEY = Codec(GroupMetadataKey, "GroupMetadataKey", "2", "none")
_OFFSET_COMMIT_VALUE = Codec(OffsetCommitValue, "OffsetCommitValue", "0-4", "4+")
_GROUP_METADATA_VALUE = Codec(GroupMetadataValue, "GroupMetadataValue", "0-4", "4+")

CODECS = (_OFFSET_COMMIT_KEY, _GROUP_METADATA_KEY, _OFFSET_COMMIT_VALUE, _GROUP_METADATA_VALUE)

Key = OffsetCommitKey | GroupMetadataKey
Value = OffsetCommitValue | GroupMetadataValue


def encode_key(key: Key) -> bytes:
    if isinstance(key, OffsetCommitKey):
        return b"\0\x01" + _OFFSET_COMMIT_KEY.encode_bytes(key, 1)
    return b"\0\x02" + _GROUP_METADATA_KEY.encode_bytes(key, 2)


def decode_key(key: Any) -> Key | None:
    """None for a kind of record that is not known here: skip it. Raises DecodeError."""
    number = _int16(key)
    if number in OFFSET_COMMIT_KEY_TYPES:
        return _OFFSET_COMMIT_KEY.decode(key, 2, number)[0]
    if number == GROUP_METADATA_KEY_TYPE:
        return _GROUP_METADATA_KEY.decode(key, 2, number)[0]
    return None


def encode_value(value: Value, version: int | None = None) -> bytes:
    """The value in the version that Kafka writes, unless another is asked for."""
    if isinstance(value, OffsetCommitValue):
        codec, default = _OFFSET_COMMIT_VALUE, OFFSET_COMMIT_VALUE_VERSION
        if value.expire_timestamp != -1:
            default = EXPIRING_OFFSET_VALUE_VERSION
    else:
        codec, default = _GROUP_METADATA_VALUE, GROUP_METADATA_VALUE_VERSION
    version = default if version is None else version
    return version.to_bytes(2, "big") + codec.encode_bytes(value, version)


def decode_value(key: Key, value: Any) -> Any:
    """The value that belongs to a decoded key, or None for a tombstone. Raises DecodeError."""
    if value is None:
        return None
    codec = _OFFSET_COMMIT_VALUE if isinstance(key, OffsetCommitKey) else _GROUP_METADATA_VALUE
    return codec.decode(value, 2, _int16(value))[0]


def _int16(buf: Any) -> int:
    if len(buf) < 2:
        raise DecodeError(f"a group record of {len(buf)} bytes")
    return int.from_bytes(buf[:2], "big", signed=True)
