"""AllocateProducerIds (key 67): a broker asks the controller for a block of producer ids to give out (KIP-730).

Flexible from the start."""

from __future__ import annotations

from ..schema import Api, Struct, int16, int32, int64


class Request(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class Response(Struct):
    """The block: producer_id_len ids, the first of which is producer_id_start."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()


API = Api(67, "AllocateProducerIds", Request, Response, versions="0", flexible="0+")
