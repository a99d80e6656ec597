"""JoinGroup (key 11): a member enters a classic group and waits for the others.

v1: rebalance timeout. v4: MEMBER_ID_REQUIRED (KIP-394). v5: group instance id. v6: flexible. v7: protocol type in the
answer. v8: reason. v9: skip assignment."""

from __future__ import annotations

from ..schema import Api, Struct, array, boolean, int16, int32, octets, string


class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: bytes = octets()


class Request(Struct):
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = octets()


class Response(Struct):
    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


API = Api(11, "JoinGroup", Request, Response, versions="0-9", flexible="6+")
