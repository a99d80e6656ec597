"""What a quorum writes to its log about itself: control records of a leader, of snapshots and of the voters.

A control record's key is its version, 0, and its type; its value is a message that begins with its own version. All are
flexible (KIP-595, 630, 853). Facts are those of Kafka 4.4.
"""

from __future__ import annotations

import struct
from typing import Any

from ..errors import DecodeError
from ..schema import Codec, Struct, array, int16, int32, int64, nested, string, uint16, uuid

_KEY = struct.Struct(">hh")


class LeaderVoter(Struct):
    voter_id: int = int32()
    voter_directory_id: bytes = uuid("1+")


class LeaderChange(Struct):
    """The first record of a leader's epoch."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[LeaderVoter] = array(LeaderVoter)
    granting_voters: list[LeaderVoter] = array(LeaderVoter)


class SnapshotHeader(Struct):
    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooter(Struct):
    version: int = int16()


class KRaftVersion(Struct):
    version: int = int16()
    kraft_version: int = int16()


class VoterEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class QuorumVoter(Struct):
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    endpoints: list[VoterEndpoint] = array(VoterEndpoint)
    kraft_version_feature: KRaftVersionFeature = nested(KRaftVersionFeature)


class KRaftVoters(Struct):
    """All voters, from this record on."""

    version: int = int16()
    voters: list[QuorumVoter] = array(QuorumVoter)


_VERSIONS: dict[int, tuple[type[Struct], str]] = {
    2: (LeaderChange, "0-1"),
    3: (SnapshotHeader, "0"),
    4: (SnapshotFooter, "0"),
    5: (KRaftVersion, "0"),
    6: (KRaftVoters, "0"),
}
_CODECS = {number: Codec(each, each.__name__, versions, "0+") for number, (each, versions) in _VERSIONS.items()}
_TYPES = {codec.struct: number for number, codec in _CODECS.items()}


def encode(record: Any) -> tuple[bytes, bytes]:
    """Key and value of a control record, in the version that the record names."""
    number = _TYPES[type(record)]
    return _KEY.pack(0, number), _CODECS[number].encode_bytes(record, record.version)


def decode(key: Any, value: Any) -> Any:
    """The control record, or None if it is of another type, such as the end of a transaction. Raises DecodeError."""
    if key is None or len(key) < _KEY.size or value is None or len(value) < 2:
        raise DecodeError("a control record without type or version")
    codec = _CODECS.get(_KEY.unpack_from(key)[1])
    if codec is None:
        return None
    record, _ = codec.decode(value, 0, int.from_bytes(value[:2], "big"))
    return record
