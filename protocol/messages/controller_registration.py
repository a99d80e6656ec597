"""ControllerRegistration (key 70): a controller makes its listeners and features known to the active one (KIP-919).

Flexible from the start."""

from __future__ import annotations

from ..schema import Api, Struct, array, boolean, int16, int32, string, uint16, uuid


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
    """incarnation_id: new at every start of the controller."""

    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


API = Api(70, "ControllerRegistration", Request, Response, versions="0", flexible="0+")
