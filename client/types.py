"""Small values that everyone who uses the client holds in hand."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class RecordMetadata(NamedTuple):
    """Where a produced record is. offset: -1 where nobody says: without acks, or when a broker has the record but
    forgot where, as Kafka does when it is killed. timestamp_ms: its own, or the broker's append time where the topic
    says so."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ConsumedRecord(NamedTuple):
    """A record and where it is. headers: (name, value or None) pairs."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
