"""LeaveGroup (key 13): members leave a classic group.

v0-2: one member. v3: a list of members, by id or instance id. v4: flexible. v5: reason."""

from __future__ import annotations

from ..schema import Api, Struct, array, int16, int32, string


class MemberIdentity(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class Request(Struct):
    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


class Response(Struct):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")


API = Api(13, "LeaveGroup", Request, Response, versions="0-5", flexible="4+")
