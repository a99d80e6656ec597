"""AddOffsetsToTxn (key 25): a transaction is to commit a group's offsets.

v2: PRODUCER_FENCED. v3: flexible. v4: TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from ..schema import Api, Struct, int16, int32, int64, string


class Request(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()


API = Api(25, "AddOffsetsToTxn", Request, Response, versions="0-4", flexible="3+")
