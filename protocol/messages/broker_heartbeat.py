"""BrokerHeartbeat (key 63): a broker tells the controller that it lives and how far it has read the metadata (KIP-631).

Flexible from the start. v1: log directories that failed (KIP-858). v2: log directories that take no new partitions
(KIP-1066)."""

from __future__ import annotations

from ..schema import Api, Struct, array, boolean, int16, int32, int64, uuid


class Request(Struct):
    """cordoned_log_dirs: None when the broker does not say."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[bytes] = array(uuid, "1+", tag=0)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "2+", nullable="2+", default=None, tag=1)


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()


API = Api(63, "BrokerHeartbeat", Request, Response, versions="0-2", flexible="0+")
