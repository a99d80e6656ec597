"""UnregisterBroker (key 64): removes a broker that will not come back from the metadata (KIP-631).

Flexible from the start."""

from __future__ import annotations

from ..schema import Api, Struct, int16, int32, string


class Request(Struct):
    broker_id: int = int32()


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


API = Api(64, "UnregisterBroker", Request, Response, versions="0", flexible="0+")
