"""What a log needs to know of its topic's options, already parsed: plain values with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass

MAX_INT64 = 2**63 - 1
DAY_MS = 24 * 60 * 60 * 1000


@dataclass(slots=True, frozen=True, kw_only=True)
class LogConfig:
    """Options of one topic, named as Kafka's with underscores. -1 stands for no limit where Kafka has it so."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    cleanup_policy: str = "delete"  # "delete", "compact" or both with a comma
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_INT64
    delete_retention_ms: int = DAY_MS  # of tombstones and transaction markers in a compacted log
    max_message_bytes: int = 1048588
    message_timestamp_type: str = "CreateTime"  # or "LogAppendTime"
    message_timestamp_before_max_ms: int = MAX_INT64
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    flush_messages: int = MAX_INT64
    flush_ms: int = MAX_INT64
    producer_id_expiration_ms: int = DAY_MS

    @property
    def roll_ms(self) -> int:
        """The age at which a segment closes: what is to be compacted in time must not stay in an active segment."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy
