"""Events and results as table values, for operators that keep them for later."""

from __future__ import annotations

from typing import Any

from ..event import Event
from .table_sources import Change
from .windows import WindowResult

Packed = list[Any]


def pack(value: Any) -> Packed:
    """A value in a list whose length says what it is: 1 for a plain value, 2 for a change, 6 for a window's result."""
    if type(value) is WindowResult:
        return [*value[:-1], list(value.missing)]
    return list(value) if type(value) is Change else [value]


def unpack(packed: Packed) -> Any:
    if len(packed) == 1:
        return packed[0]
    if len(packed) == 2:
        return Change(packed[0], packed[1])
    key, start_ms, end_ms, value, revision, missing = packed
    return WindowResult(key, start_ms, end_ms, value, revision, tuple(missing))


def pack_event(event: Event) -> Packed:
    """All of an event but its watermark."""
    headers = [list(header) for header in event.raw_headers]
    position = [event.topic, event.partition, event.offset]
    return [event.key, pack(event.value), event.timestamp_ms, position, headers]


def unpack_event(packed: Packed, watermark_ms: int) -> Event:
    key, value, timestamp_ms, (topic, partition, offset), headers = packed
    pairs = tuple((name, content) for name, content in headers)
    return Event(key, unpack(value), timestamp_ms, topic, partition, offset, pairs, watermark_ms)
