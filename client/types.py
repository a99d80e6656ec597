"""Small values that everyone who uses the client holds in hand."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class RecordMetadata(NamedTuple):
    """Where a produced record is. timestamp_ms: its own, or the broker's append time where the topic says so."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
