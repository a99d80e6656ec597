"""ListGroups (key 16): the groups a broker coordinates. v3: flexible. v4: states. v5: types."""

from __future__ import annotations

from ..schema import Api, Struct, array, int16, int32, string


class Request(Struct):
    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


class Response(Struct):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


API = Api(16, "ListGroups", Request, Response, versions="0-5", flexible="3+")
