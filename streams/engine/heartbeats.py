"""Heartbeats: by them the tasks that write a topic of the app tell those that read it how far they are in event time.

Several tasks write such a topic, each at its own pace, so that timestamps there say nothing of what is still to come. A
task writes a heartbeat to each partition, behind the records that it has written before, and says up to where they are
complete. A reader takes the least of what all of them have said (`time.py`). A heartbeat is a record without key and
value, in the transaction of the records before it. A record that is late where it is written takes one along, so that
it is late for its reader, too, whenever the next heartbeat would come.
"""

from __future__ import annotations

from typing import NamedTuple

import orjson

from .origin import Headers

HEADER = "isthmus-watermark"  # of a heartbeat
ALONG = "isthmus-late-behind"  # of a record that takes one along


class Heartbeat(NamedTuple):
    """writer, partition: the task that has written it, by its sub-topology; tasks: how many that has now.
    watermark_ms: no record below this event time will come from it, but for late ones; -1: it does not know yet.
    is_idle: nobody shall wait for it: it has nothing to read, or what it reads is excluded. lacking: as `Watermarks`
    has it."""

    writer: str
    partition: int
    tasks: int
    watermark_ms: int
    is_idle: bool = False
    lacking: tuple[tuple[str, int], ...] = ()

    @property
    def timestamp_ms(self) -> int:
        """Of its record."""
        return max(self.watermark_ms, 0)

    @property
    def headers(self) -> Headers:
        return ((HEADER, orjson.dumps(list(self))),)

    @property
    def along(self) -> tuple[str, bytes]:
        """The header of a record that takes it along."""
        return ALONG, orjson.dumps(list(self))


def is_heartbeat(headers: Headers) -> bool:
    """Whether a record with these headers is one."""
    return len(headers) == 1 and headers[0][0] == HEADER


def heartbeat_in(headers: Headers) -> Heartbeat:
    """The heartbeat that a record is. Raises ValueError for what another release has written."""
    return _decoded(*headers[0])


def taken_along(headers: Headers) -> tuple[Heartbeat | None, Headers]:
    """The heartbeat that a record takes along, and its other headers."""
    for at, (name, value) in enumerate(headers):
        if name == ALONG:
            return _decoded(name, value), (*headers[:at], *headers[at + 1 :])
    return None, headers


def _decoded(name: str, data: bytes | None) -> Heartbeat:
    try:
        writer, partition, tasks, watermark_ms, is_idle, lacking = orjson.loads(data or b"")
        return Heartbeat(
            str(writer),
            int(partition),
            int(tasks),
            int(watermark_ms),
            bool(is_idle),
            tuple((str(name), int(at_ms)) for name, at_ms in lacking),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"header {name} is not one of this release: {error}") from error
