"""InitProducerId (key 22): an id and epoch for an idempotent or transactional producer.

v2: flexible. v3: the producer's present id and epoch, to be bumped. v4: PRODUCER_FENCED. v5: TRANSACTION_ABORTABLE."""

from __future__ import annotations

from ..schema import Api, Struct, int16, int32, int64, string


class Request(Struct):
    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


class Response(Struct):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()


API = Api(22, "InitProducerId", Request, Response, versions="0-5", flexible="2+")
