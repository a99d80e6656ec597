"""Who waits for the records of a batch: a future for one record, or one for all that a call has sent. No I/O."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from .types import RecordMetadata


class Stretch(NamedTuple):
    """Records of one call that stand one after another in the log. rows: their places in the call's columns, in order.
    append_time_ms: the broker's, or -1: each has its own."""

    rows: Sequence[int]
    partition: int
    first_offset: int
    append_time_ms: int


class Acknowledged:
    """Where the records of one call are. offsets: of the last one in each partition, -1 where it is not known."""

    __slots__ = ("_stretches", "_timestamps", "_topic", "offsets")

    def __init__(self, topic: str, timestamps: Sequence[int]) -> None:
        self.offsets: dict[int, int] = {}
        self._topic = topic
        self._timestamps = timestamps
        self._stretches: list[Stretch] = []

    def add(self, found: Stretch) -> None:
        last = found.first_offset + len(found.rows) - 1 if found.first_offset >= 0 else -1
        self.offsets[found.partition] = max(last, self.offsets.get(found.partition, -1))
        self._stretches.append(found)

    def metadata(self, row: int) -> RecordMetadata:
        """The place of one record, by its place in the call's columns. Raises IndexError where it has none."""
        for rows, partition, first_offset, append_time_ms in self._stretches:
            at = bisect_left(rows, row)
            if at < len(rows) and rows[at] == row:
                offset = first_offset + at if first_offset >= 0 else -1
                stamp = self._timestamps[row] if append_time_ms < 0 else append_time_ms
                return RecordMetadata(self._topic, partition, offset, stamp)
        raise IndexError(f"{row} is no place in columns of {len(self._timestamps)} records")


class Many:
    """The outcome of the records that one call has sent. When that of each is known, the future has where they are, or
    the first error."""

    __slots__ = ("_error", "_left", "_written", "future", "put")

    def __init__(self, future: asyncio.Future[Acknowledged], topic: str, timestamps: Sequence[int]) -> None:
        self.future = future
        self.put = 0  # how many are in batches
        self._left = len(timestamps)
        self._written = Acknowledged(topic, timestamps)
        self._error: Exception | None = None
        if not self._left:
            self._resolve()

    def run(self, rows: Sequence[int]) -> Run:
        """The next ones, which stand one after another in a batch."""
        self.put += len(rows)
        return Run(self, rows)

    def acked(self, found: Stretch) -> None:
        self._written.add(found)
        self._less(len(found.rows))

    def failed(self, error: Exception, count: int) -> None:
        self._error = self._error or error
        self._less(count)

    def _less(self, count: int) -> None:
        self._left -= count
        if not self._left:
            self._resolve()

    def _resolve(self) -> None:
        if self.future.done():  # cancelled
            return
        if self._error is None:
            self.future.set_result(self._written)
        else:
            self.future.set_exception(self._error)
            self.future.exception()  # avoids the loop's "never retrieved" message


class Run:
    """Records of one call that stand one after another in a batch. rows: their places in the call's columns."""

    __slots__ = ("many", "rows")

    def __init__(self, many: Many, rows: Sequence[int]) -> None:
        self.many = many
        self.rows = rows

    @property
    def count(self) -> int:
        return len(self.rows)


Outcome = asyncio.Future[RecordMetadata] | Run


def cut(outcomes: Sequence[Outcome], stamps: Sequence[int], count: int) -> list[tuple[list[Outcome], list[int]]]:
    """The outcomes of the first `count` records and those of the others, each with its element of `stamps`."""
    halves: list[tuple[list[Outcome], list[int]]] = [([], []), ([], [])]
    left = count
    for outcome, stamp in zip(outcomes, stamps, strict=True):
        size = outcome.count if isinstance(outcome, Run) else 1
        first = min(left, size)
        for piece, (some, their_stamps) in zip((slice(0, first), slice(first, size)), halves, strict=True):
            if piece.start < piece.stop:
                some.append(Run(outcome.many, outcome.rows[piece]) if isinstance(outcome, Run) else outcome)
                their_stamps.append(stamp)
        left -= first
    return halves
