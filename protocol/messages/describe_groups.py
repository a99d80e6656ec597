"""DescribeGroups (key 15): state and members of classic groups.

v3: authorized operations. v4: group instance id. v5: flexible. v6: error message, GROUP_ID_NOT_FOUND."""

from __future__ import annotations

from ..schema import Api, Struct, array, boolean, int16, int32, octets, string


class Request(Struct):
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = octets()
    member_assignment: bytes = octets()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-0x80000000)


class Response(Struct):
    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)


API = Api(15, "DescribeGroups", Request, Response, versions="0-6", flexible="5+")
