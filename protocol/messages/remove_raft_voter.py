"""RemoveRaftVoter (key 81): takes a voter out of the metadata quorum (KIP-853).

Flexible from the start."""

from __future__ import annotations

from ..schema import Api, Struct, int16, int32, string, uuid


class Request(Struct):
    cluster_id: str | None = string(nullable="0+")
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", ignorable=True)


API = Api(81, "RemoveRaftVoter", Request, Response, versions="0", flexible="0+")
