"""AddRaftVoter (key 80): makes a controller that follows the metadata quorum one of its voters (KIP-853).

Flexible from the start. v1: whether the answer waits until the change is committed (KIP-1186)."""

from __future__ import annotations

from ..schema import Api, Struct, array, boolean, int16, int32, string, uint16, uuid


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class Request(Struct):
    cluster_id: str | None = string(nullable="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    ack_when_committed: bool = boolean("1+", default=True)


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", ignorable=True)


API = Api(80, "AddRaftVoter", Request, Response, versions="0-1", flexible="0+")
