"""UnregisterController (key 94): removes the registration of a controller that will not come back from the metadata.

Flexible from the start. New in Kafka 4.4."""

from __future__ import annotations

from ..schema import Api, Struct, int16, int32, string


class Request(Struct):
    controller_id: int = int32()


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


API = Api(94, "UnregisterController", Request, Response, versions="0", flexible="0+")
