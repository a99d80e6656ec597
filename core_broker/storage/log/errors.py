"""Errors of an append that carry more than a code."""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError


class OffsetMismatch(KafkaError):
    """An append does not begin at the log's end; `next_offset` is the log's end."""

    def __init__(self, message: str, next_offset: int) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.next_offset = next_offset


class NullKeys(KafkaError):
    """A batch for a compacted topic is valid, except that records have no key."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
