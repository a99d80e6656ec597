"""UpdateRaftVoter (key 82): a voter of the metadata quorum tells the leader its endpoints and versions (KIP-853).

Flexible from the start."""

from __future__ import annotations

from ..schema import Api, Struct, array, int16, int32, nested, string, uint16, uuid


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    """The levels of kraft.version that the voter can work at."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


class Request(Struct):
    """current_leader_epoch: -1 when it is not known."""

    cluster_id: str | None = string(nullable="0+")
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    kraft_version_feature: KRaftVersionFeature = nested(KRaftVersionFeature)


class CurrentLeader(Struct):
    """leader_id: -1 when no leader is known."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    host: str = string()
    port: int = int32()


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: CurrentLeader | None = nested(CurrentLeader, tag=0)


API = Api(82, "UpdateRaftVoter", Request, Response, versions="0", flexible="0+")
