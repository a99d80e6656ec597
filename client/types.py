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


class GroupMetadata(NamedTuple):
    """Who commits offsets of a group: for a producer's `send_offsets` (KIP-447). generation_id: the generation of a
    classic member, or the member epoch (KIP-848); -1 with an empty member_id: a consumer that is no member."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Progress(NamedTuple):
    """How far a partition is read, and where it ended when it was last fetched; offsets. position: of the next record
    for the user, None before it is known. end: up to which the isolation lets one read: the high watermark, or with
    read_committed the last stable offset. All but the position are -1 before the first answer."""

    position: int | None
    end: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int

    @property
    def lag(self) -> int | None:
        """Offsets from the position to the end, markers of transactions included; None before both are known."""
        return None if self.end < 0 or self.position is None else max(0, self.end - self.position)
