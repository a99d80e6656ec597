"""Small values that users of the client handle."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class RecordMetadata(NamedTuple):
    """The place of a produced record. offset: -1 if unknown: without acks, or if a broker has the record but does not
    know where, as a Kafka that was killed. timestamp_ms: the record's own, or the broker's append time if the topic is
    configured so."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ConsumedRecord(NamedTuple):
    """A record and its place. headers: (name, value or None) pairs."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
