"""What the cluster agrees on: Kafka's metadata records in KRaft's framing, and our own from type 10000.

A record's value in `__cluster_metadata` is three unsigned varints (frame version 1, type, version of that type) and
the body, all flexible. Facts are those of Kafka 4.4; fields of ZooKeeper's time are kept only where bytes need them.
"""

from __future__ import annotations

from typing import Any

from ..errors import DecodeError
from ..primitives import read_uvarint, write_uvarint
from ..schema import Codec, Struct, array, boolean, int8, int16, int32, int64, string, uint16, uuid

FRAME_VERSION = 1


class BrokerEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class BrokerFeature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterBrokerRecord(Struct):
    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: bytes = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable="0+", default=None)
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid, "3+", tag=0)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "4+", nullable="4+", default=None, tag=1)


class UnregisterBrokerRecord(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64()


class TopicRecord(Struct):
    name: str = string()
    topic_id: bytes = uuid()


class PartitionRecord(Struct):
    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[bytes] = array(uuid, "1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=1)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=2)


class ConfigRecord(Struct):
    """resource_type: 2 a topic, 4 a broker (an empty name: all brokers). A null value removes the option."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


class PartitionChangeRecord(Struct):
    """What changed in a partition: None (or -2 as leader, -1 as recovery state) stands for unchanged."""

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    isr: list[int] | None = array(int32, nullable="0+", default=None, tag=0)
    leader: int = int32(default=-2, tag=1)
    replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=2)
    removing_replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=3)
    adding_replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    directories: list[bytes] | None = array(uuid, "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=6)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=7)


class FenceBrokerRecord(Struct):
    id: int = int32()
    epoch: int = int64()


class UnfenceBrokerRecord(Struct):
    id: int = int32()
    epoch: int = int64()


class RemoveTopicRecord(Struct):
    topic_id: bytes = uuid()


class FeatureLevelRecord(Struct):
    name: str = string()
    feature_level: int = int16()


class ProducerIdsRecord(Struct):
    """All producer ids below next_producer_id are given out, in blocks, to brokers."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class BrokerRegistrationChangeRecord(Struct):
    """fenced: 1 fenced, -1 unfenced, 0 unchanged. in_controlled_shutdown: 1 begun, 0 unchanged."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: list[bytes] = array(uuid, "2+", tag=2)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "3+", nullable="3+", default=None, tag=3)


class NoOpRecord(Struct):
    pass


class BeginTransactionRecord(Struct):
    """The records up to the matching end are applied together, or not at all after an abort (KIP-868)."""

    name: str | None = string(nullable="0+", default=None, tag=0)


class EndTransactionRecord(Struct):
    pass


class AbortTransactionRecord(Struct):
    reason: str | None = string(nullable="0+", default=None, tag=0)


class RegisterControllerRecord(Struct):
    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)


class ClearElrRecord(Struct):
    """A topic has no eligible leader replicas any more; an empty name stands for all topics (KIP-966)."""

    topic_name: str = string()


class UnregisterControllerRecord(Struct):
    controller_id: int = int32()


class MirrorLinkRecord(Struct):
    """Ours: a mirror link that owns topics here. A higher epoch fences workers of lower ones."""

    link_id: str = string()
    source_cluster_id: str = string()
    link_epoch: int = int32()


_VERSIONS: dict[int, tuple[type[Struct], str]] = {
    0: (RegisterBrokerRecord, "0-4"),
    1: (UnregisterBrokerRecord, "0"),
    2: (TopicRecord, "0"),
    3: (PartitionRecord, "0-2"),
    4: (ConfigRecord, "0"),
    5: (PartitionChangeRecord, "0-2"),
    7: (FenceBrokerRecord, "0"),
    8: (UnfenceBrokerRecord, "0"),
    9: (RemoveTopicRecord, "0"),
    12: (FeatureLevelRecord, "0"),
    15: (ProducerIdsRecord, "0"),
    17: (BrokerRegistrationChangeRecord, "0-3"),
    20: (NoOpRecord, "0"),
    23: (BeginTransactionRecord, "0"),
    24: (EndTransactionRecord, "0"),
    25: (AbortTransactionRecord, "0"),
    27: (RegisterControllerRecord, "0"),
    28: (ClearElrRecord, "0"),
    29: (UnregisterControllerRecord, "0"),
    10000: (MirrorLinkRecord, "0"),
}

CODECS: dict[int, Codec] = {
    number: Codec(struct, struct.__name__, versions, "0+") for number, (struct, versions) in _VERSIONS.items()
}
_TYPES = {codec.struct: number for number, codec in CODECS.items()}


class UnknownRecord(DecodeError):
    """A record of a type, `number`, that is not in the table."""

    def __init__(self, number: int) -> None:
        super().__init__(f"a metadata record of unknown type {number}")
        self.number = number


def encode(record: Struct, version: int | None = None) -> bytes:
    """The value of a metadata record, in the newest version of its type unless one is asked for."""
    number = _TYPES[type(record)]
    codec = CODECS[number]
    if version is None:
        version = codec.versions.high
    head = write_uvarint(FRAME_VERSION) + write_uvarint(number) + write_uvarint(version)
    return head + codec.encode_bytes(record, version)


def decode(value: Any) -> Any:
    """The record in a value of `__cluster_metadata`. Raises DecodeError, UnknownRecord."""
    try:
        frame_version, position = read_uvarint(value, 0)
        number, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except IndexError:
        raise DecodeError(f"a metadata record of {len(value)} bytes") from None
    if frame_version != FRAME_VERSION:
        raise DecodeError(f"a metadata record in frame version {frame_version}, known is {FRAME_VERSION}")
    codec = CODECS.get(number)
    if codec is None:
        raise UnknownRecord(number)
    record, end = codec.decode(value, position, version)
    if end != len(value):
        raise DecodeError(f"{codec.name} v{version}: {len(value) - end} bytes follow it")
    return record
