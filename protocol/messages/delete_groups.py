"""DeleteGroups (key 42): groups to be deleted. v2: flexible. v3: error message."""

from __future__ import annotations

from ..schema import Api, Struct, array, int16, int32, string


class Request(Struct):
    groups_names: list[str] = array(string)


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class Response(Struct):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)


API = Api(42, "DeleteGroups", Request, Response, versions="0-3", flexible="2+")
