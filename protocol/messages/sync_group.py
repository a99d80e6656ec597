"""SyncGroup (key 14): the leader hands out assignments, each member takes its own.

v3: group instance id. v4: flexible. v5: protocol type and name, checked."""

from __future__ import annotations

from ..schema import Api, Struct, array, int16, int32, octets, string


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = octets()


class Request(Struct):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class Response(Struct):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = octets()


API = Api(14, "SyncGroup", Request, Response, versions="0-5", flexible="4+")
