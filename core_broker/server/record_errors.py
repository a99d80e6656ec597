"""Which records of a refused batch were wrong, for the answer to its producer (KIP-467).

Only a small batch is looked into, since its records are decoded one by one.
"""

from __future__ import annotations

from typing import Any

from ...protocol.batch_layout import ATTRIBUTES_LOW_AT, LOG_APPEND_TIME
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import BatchIndexAndErrorMessage
from ...protocol.records import CorruptBatch, Record, decode_batch
from ..replication.partition import Partition
from ..storage.log._batch_check import time_reason
from ..storage.log.batch_reasons import PLAIN
from ..storage.log.errors import NullKeys

MAX_BATCH_BYTES = 256 * 1024  # a larger batch is refused without naming its records
MAX_NAMED = 1_000


def record_errors(
    error: KafkaError, records: Any, partition: Partition, wall_ms: int
) -> list[BatchIndexAndErrorMessage]:
    """What is wrong with each record of a batch that the log refused; empty if the batch itself is wrong."""
    of_keys = isinstance(error, NullKeys)
    if not (of_keys or error.code == ErrorCode.INVALID_TIMESTAMP) or len(records) > MAX_BATCH_BYTES:
        return []
    try:
        decoded = decode_batch(records, max_bytes=MAX_BATCH_BYTES)
    except CorruptBatch:
        return []
    found = []
    for index, record in enumerate(decoded):
        if of_keys:
            reason = _without_key(record, partition)
        else:
            reason = _out_of_time(record, partition, wall_ms, records[ATTRIBUTES_LOW_AT] & LOG_APPEND_TIME)
        if reason:
            found.append(BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=reason))
            if len(found) == MAX_NAMED:
                break
    return found


def _without_key(record: Record, partition: Partition) -> str:
    if record.key is not None or not partition.log.config.compacts:
        return ""
    return f"{partition} is compacted: a record without a key cannot be kept"


def _out_of_time(record: Record, partition: Partition, wall_ms: int, claims_our_clock: int) -> str:
    if claims_our_clock:
        return f"a record that claims {partition}'s own clock, LogAppendTime"
    config = partition.log.config
    if time_reason(record.timestamp_ms, record.timestamp_ms, config.limits, wall_ms) == PLAIN:
        return ""
    earliest = wall_ms - config.message_timestamp_before_max_ms
    latest = wall_ms + config.message_timestamp_after_max_ms
    return f"timestamp {record.timestamp_ms} is not between {earliest} and {latest}, as {partition} takes it"
