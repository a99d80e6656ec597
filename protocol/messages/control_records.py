"""What a metadata quorum writes of itself: its leaders, voters and version, where a snapshot begins and ends.

These are Kafka's control records, in control batches of `__cluster_metadata` and its snapshots (KIP-595, KIP-630,
KIP-853). A key is two int16: its version, 0, and the type. A value begins with its version, which is one of its fields:
a record is written in the version that it names. The markers of transactions, types 0 and 1, are not read here.
"""

from __future__ import annotations

import struct
from typing import Any

from ..errors import DecodeError
from ..schema import Codec, Struct, array, int16, int32, int64, nested, string, uint16, uuid

_KEY = struct.Struct(">hh")
_KEY_VERSION = 0  # others are read as this one


class LeaderVoter(Struct):
    voter_id: int = int32()
    voter_directory_id: bytes = uuid("1+")


class LeaderChangeMessage(Struct):
    """The first record of an epoch, by its leader. Kafka 4.4 writes and reads version 0, whatever a record says."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[LeaderVoter] = array(LeaderVoter)
    granting_voters: list[LeaderVoter] = array(LeaderVoter)


class SnapshotHeaderRecord(Struct):
    """The first record of a snapshot. last_contained_log_timestamp: ms."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Struct):
    """The last record of a snapshot, without which it is not whole."""

    version: int = int16()


class KRaftVersionRecord(Struct):
    """The finalized level of kraft.version: from 1 on, the voters are those of the last VotersRecord."""

    version: int = int16()
    kraft_version: int = int16()


class VoterEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    """The levels of kraft.version that the voter can work at."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


class Voter(Struct):
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    endpoints: list[VoterEndpoint] = array(VoterEndpoint)
    kraft_version_feature: KRaftVersionFeature = nested(KRaftVersionFeature)


class VotersRecord(Struct):
    """All voters, from this record's offset on, committed or not."""

    version: int = int16()
    voters: list[Voter] = array(Voter)


_VERSIONS: dict[int, tuple[type[Struct], str]] = {
    2: (LeaderChangeMessage, "0-1"),
    3: (SnapshotHeaderRecord, "0"),
    4: (SnapshotFooterRecord, "0"),
    5: (KRaftVersionRecord, "0"),
    6: (VotersRecord, "0"),
}

CODECS: dict[int, Codec] = {
    number: Codec(struct, struct.__name__, versions, "0+") for number, (struct, versions) in _VERSIONS.items()
}
_TYPES = {codec.struct: number for number, codec in CODECS.items()}


def encode(record: Any) -> tuple[bytes, bytes]:
    """Key and value of a control record. Raises EncodeError."""
    number = _TYPES[type(record)]
    return _KEY.pack(_KEY_VERSION, number), CODECS[number].encode_bytes(record, record.version)


def decode(key: Any, value: Any) -> Any | None:
    """The record of a key and a value; None for an unknown type, which is to be skipped. Raises DecodeError."""
    if key is None or len(key) < _KEY.size:
        raise DecodeError(f"a control record's key of {0 if key is None else len(key)} bytes")
    codec = CODECS.get(_KEY.unpack_from(key)[1])
    if codec is None:
        return None
    if value is None or len(value) < 2:
        raise DecodeError(f"{codec.name}: a value of {0 if value is None else len(value)} bytes")
    version = int.from_bytes(value[:2], "big", signed=True)
    record, end = codec.decode(value, 0, version)
    if end != len(value):
        raise DecodeError(f"{codec.name} v{version}: {len(value) - end} bytes follow it")
    return record
