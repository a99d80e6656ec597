"""ListConfigResources (key 74): the names of what has options; v0 asks for subscriptions to client metrics alone.

All flexible. v1: kinds of resources, all if none is named (KIP-1142)."""

from __future__ import annotations

from ..schema import Api, Struct, array, int8, int16, int32, string

CLIENT_METRICS = 16


class Request(Struct):
    resource_types: list[int] = array(int8, "1+")


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8("1+", default=CLIENT_METRICS, ignorable=True)


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)


API = Api(74, "ListConfigResources", Request, Response, versions="0-1", flexible="0+")
