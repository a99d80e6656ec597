"""ListTransactions (key 66): the transactions that a broker coordinates (KIP-664).

v1: those that have lasted long enough. v2: a pattern of ids (KIP-1152).
"""

from __future__ import annotations

from ..schema import Api, Struct, array, int16, int32, int64, string


class Request(Struct):
    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


class TransactionState(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)


API = Api(66, "ListTransactions", Request, Response, versions="0-2", flexible="0+")
