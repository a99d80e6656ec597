"""What `__transaction_state` holds: the state of each transactional id, in Kafka's layout.

A key starts with an int16, the kind of record, of which there is one; a value with an int16, its version; a null value
is a tombstone.
"""

from __future__ import annotations

from typing import Any

from ..errors import DecodeError
from ..schema import Codec, Struct, array, int8, int16, int32, int64, string


class TransactionLogKey(Struct):
    transactional_id: str = string()


class PartitionsSchema(Struct):
    topic: str = string()
    partition_ids: list[int] = array(int32)


class TransactionLogValue(Struct):
    producer_id: int = int64()
    previous_producer_id: int = int64("1+", tag=0, default=-1)
    next_producer_id: int = int64("1+", tag=1, default=-1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16("1+", tag=3, default=-1)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)


KEY_TYPE = 0
FLEXIBLE_SINCE = 1  # version of a value that has the fields of KIP-890

_KEY = Codec(TransactionLogKey, "TransactionLogKey", "0", "none")
_VALUE = Codec(TransactionLogValue, "TransactionLogValue", "0-1", "1+")

CODECS = (_KEY, _VALUE)


def encode_key(key: TransactionLogKey) -> bytes:
    return KEY_TYPE.to_bytes(2, "big") + _KEY.encode_bytes(key, 0)


def decode_key(key: Any) -> TransactionLogKey | None:
    """None for a kind of record that is not known here: skip it. Raises DecodeError."""
    if _int16(key) != KEY_TYPE:
        return None
    found: TransactionLogKey = _KEY.decode(key, 2, 0)[0]
    return found


def encode_value(value: TransactionLogValue, version: int) -> bytes:
    return version.to_bytes(2, "big") + _VALUE.encode_bytes(value, version)


def decode_value(value: Any) -> TransactionLogValue | None:
    """None for a tombstone. Raises DecodeError."""
    if value is None:
        return None
    found: TransactionLogValue = _VALUE.decode(value, 2, _int16(value))[0]
    return found


def _int16(buf: Any) -> int:
    if len(buf) < 2:
        raise DecodeError(f"a transaction record of {len(buf)} bytes")
    return int.from_bytes(buf[:2], "big", signed=True)
