"""BrokerRegistration (key 62): the controller gives a broker that starts its epoch (KIP-631).

Flexible from the start. v1: whether it migrates from ZooKeeper (KIP-866). v2: log directories (KIP-858). v3: the epoch
before a clean shutdown (KIP-966). v4: features that may start at 0 (KIP-1022)."""

from __future__ import annotations

from ..schema import Api, Struct, array, boolean, int16, int32, int64, string, uint16, uuid


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class Feature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class Request(Struct):
    """incarnation_id: new at every start of the broker. previous_broker_epoch: -1 after an unclean shutdown."""

    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable="0+")
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid, "2+", ignorable=True)
    previous_broker_epoch: int = int64("3+", default=-1, ignorable=True)


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)


API = Api(62, "BrokerRegistration", Request, Response, versions="0-4", flexible="0+")
