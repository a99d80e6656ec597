"""Where a record came into being: its datacenter, and its place in the topic there.

Mirrors copy batches to the same partition and offset, so what a topic is a copy of says it for each of its records. A
record that leaves its partition (a bridge, a repartition, a sink) takes its origin along, in one header.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextvars import ContextVar
from typing import NamedTuple, Protocol

from ..errors import AppError, RecordError

HEADER = "isthmus-origin"
FORMAT = 1
_FIXED = struct.Struct(">BIqB")  # format, partition, offset, bytes of the datacenter's name; both names follow


Headers = tuple[tuple[str, bytes | None], ...]


class Placed(Protocol):
    """An event, as far as its origin goes."""

    topic: str
    partition: int
    offset: int
    raw_headers: Headers


class Origin(NamedTuple):
    """datacenter: the mirror's alias of the cluster that the record was written to; of the app's own, its
    `datacenter=`. offset None: it is not known (a copy by MirrorMaker 2, which renumbers)."""

    datacenter: str
    topic: str
    partition: int
    offset: int | None

    def encode(self) -> bytes:
        """As the header has it: 14 bytes and the two names. Raises ValueError without an offset."""
        if self.offset is None:
            raise ValueError(f"the offset of {self} is not known")
        name = self.datacenter.encode()
        return _FIXED.pack(FORMAT, self.partition, self.offset, len(name)) + name + self.topic.encode()

    @classmethod
    def decode(cls, data: bytes) -> Origin:
        """Raises ValueError for what `encode` does not write."""
        try:
            version, partition, offset, length = _FIXED.unpack_from(data)
        except struct.error as error:
            raise ValueError(f"an origin of {len(data)} bytes is cut short") from error
        names = bytes(data[_FIXED.size :])
        if version != FORMAT or len(names) <= length or offset < 0:
            raise ValueError("it is not an origin as this release writes them")
        return cls(names[:length].decode(), names[length:].decode(), partition, offset)


class Copy(NamedTuple):
    """What a topic is a copy of. keeps_offsets: records have the offsets that they have there."""

    datacenter: str
    topic: str
    keeps_offsets: bool = True


class Beat(NamedTuple):
    """What a mirror knew of a partition of its source. seen_ms: wall time at which it asked; source_end: the source's
    high watermark then; mirrored_to: end of the copy; said_ms: wall time at which the mirror said so."""

    seen_ms: int
    source_end: int
    mirrored_to: int
    said_ms: int


class Origins:
    """What a running app knows of where its input is from. datacenter: the name of its own cluster's. copies: by topic;
    beats: by topic and partition. Both change while the app runs."""

    def __init__(self, datacenter: str = "", copies: Mapping[str, Copy] | None = None) -> None:
        self.datacenter = datacenter
        self.copies = dict(copies or {})
        self.beats: dict[tuple[str, int], Beat] = {}

    def datacenter_of(self, topic: str) -> str:
        copy = self.copies.get(topic)
        return self.datacenter if copy is None else copy.datacenter

    def of(self, event: Placed) -> Origin | None:
        """None for what no record has caused, such as a window that was closed by time. Raises RecordError for a header
        that is none of ours."""
        for name, value in event.raw_headers:
            if name == HEADER:
                try:
                    return Origin.decode(value or b"")
                except ValueError as error:
                    raise RecordError(
                        f"{event.topic}-{event.partition} offset {event.offset}: header {HEADER}: {error}: another "
                        "program uses this name, or another release wrote it"
                    ) from error
        if event.offset < 0:
            return None
        copy = self.copies.get(event.topic)
        if copy is None:
            return Origin(self.datacenter, event.topic, event.partition, event.offset)
        return Origin(copy.datacenter, copy.topic, event.partition, event.offset if copy.keeps_offsets else None)


current_origins: ContextVar[Origins | None] = ContextVar("isthmus.streams.origins", default=None)


def origin_of(event: Placed) -> Origin | None:
    """As `Origins.of` in the app that runs. Raises AppError where it does not know of origins."""
    origins = current_origins.get()
    if origins is None:
        raise AppError("where events are from is known to apps that ask for it: App(..., origins=True)")
    return origins.of(event)


def carrying(event: Placed) -> Headers:
    """The event's headers, with its origin among them where it is known."""
    if any(name == HEADER for name, _ in event.raw_headers):
        return event.raw_headers
    origin = origin_of(event)
    if origin is None or origin.offset is None:
        return event.raw_headers
    return (*event.raw_headers, (HEADER, origin.encode()))
