"""FindCoordinator (key 10): the broker that coordinates a group (key type 0) or a transactional id (1).

v1: key type, error message. v3: flexible. v4: many keys, which stand in fields of their own. v5: TRANSACTION_ABORTABLE.
v6: share groups (key type 2)."""

from __future__ import annotations

from ..schema import Api, Struct, array, int8, int16, int32, string


class Request(Struct):
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


class Coordinator(Struct):
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", ignorable=True)


class Response(Struct):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")


API = Api(10, "FindCoordinator", Request, Response, versions="0-6", flexible="3+")
