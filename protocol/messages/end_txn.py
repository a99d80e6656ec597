"""EndTxn (key 26): commits or aborts a transaction.

v2: PRODUCER_FENCED. v3: flexible. v4: TRANSACTION_ABORTABLE. v5: the answer has the id and epoch of the next
transaction (KIP-890).
"""

from __future__ import annotations

from ..schema import Api, Struct, boolean, int16, int32, int64, string


class Request(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)


API = Api(26, "EndTxn", Request, Response, versions="0-5", flexible="3+")
