"""Errors of an append that need more than a code."""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError


class OffsetMismatch(KafkaError):
    """An append that must begin at the log's end does not; `next_offset` is where the log ends."""

    def __init__(self, message: str, next_offset: int) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.next_offset = next_offset


class NullKeys(KafkaError):
    """A batch for a compacted topic that is sound but for records without a key."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
