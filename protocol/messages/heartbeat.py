"""Heartbeat (key 12): a member of a classic group is alive. v3: group instance id. v4: flexible."""

from __future__ import annotations

from ..schema import Api, Struct, int16, int32, string


class Request(Struct):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class Response(Struct):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()


API = Api(12, "Heartbeat", Request, Response, versions="0-4", flexible="4+")
