"""The options of a topic that its log needs, already parsed, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass, field

from ._limits import AppendLimits

MAX_INT64 = 2**63 - 1
DAY_MS = 24 * 60 * 60 * 1000
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@dataclass(slots=True, frozen=True, kw_only=True)
class LogConfig:
    """Options of one topic, named as in Kafka, with underscores. -1 means no limit where it does in Kafka."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
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
    compression_type: str = "producer"  # or uncompressed, gzip, snappy, lz4, zstd
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    flush_messages: int = MAX_INT64
    flush_ms: int = MAX_INT64
    producer_id_expiration_ms: int = DAY_MS
    transaction_partition_verification_enable: bool = True

    # Derived values, used by every append.
    deletes: bool = field(init=False)
    compacts: bool = field(init=False)
    roll_ms: int = field(init=False)  # age at which a segment closes; limited by max.compaction.lag.ms
    codec: int | None = field(init=False)  # to which clients' batches are recompressed; None keeps theirs
    codec_level: int | None = field(init=False)  # None for a codec without levels
    looks_at_records: bool = field(init=False)  # the headers of clients' batches do not show enough
    looks_into: bool = field(init=False)  # batches are decompressed, for that or for another codec
    stamps: bool = field(init=False)  # records get the time of their append as timestamp
    keeps_batches: bool = field(init=False)  # clients' batches: the headers show enough, and nothing is changed
    index_entries_safe: int = field(init=False)  # with this many offset index entries, neither index can be full
    limits: AppendLimits = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        compacts = "compact" in self.cleanup_policy
        codec = CODECS.get(self.compression_type)
        stamps = self.message_timestamp_type == "LogAppendTime"
        by_time = self.message_timestamp_before_max_ms < MAX_INT64 and not stamps
        looks_at_records = compacts or by_time
        looks_into = looks_at_records or codec is not None
        derived = {
            "deletes": "delete" in self.cleanup_policy,
            "compacts": compacts,
            "roll_ms": min(self.segment_ms, self.max_compaction_lag_ms) if compacts else self.segment_ms,
            "codec": codec,
            "codec_level": levels.get(self.compression_type),
            "looks_at_records": looks_at_records,
            "looks_into": looks_into,
            "stamps": stamps,
            "keeps_batches": not (looks_into or stamps),
            # The time index has larger entries, of 12 bytes, and one more each time the segment was closed.
            "index_entries_safe": self.segment_index_bytes // 16 - 64,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        limits = AppendLimits(
            segment_bytes=self.segment_bytes,
            max_message_bytes=self.max_message_bytes,
            index_interval_bytes=self.index_interval_bytes,
            # With jitter the size limit depends on the segment's base offset: no append is certain to fit.
            index_entries_safe=-1 if self.segment_jitter_ms else self.index_entries_safe,
            roll_ms=self.roll_ms,
            # Where the broker stamps them, clients' own timestamps may be any.
            timestamp_after_max_ms=MAX_INT64 if stamps else self.message_timestamp_after_max_ms,
            timestamp_before_max_ms=MAX_INT64 if stamps else self.message_timestamp_before_max_ms,
            keeps_batches=self.keeps_batches,
        )
        object.__setattr__(self, "limits", limits)
