"""The log's part of a compaction: it runs the steps and replaces segments by cleaned ones.

upkeep/ decides what is compacted, and how; swap_files.py changes the files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from . import swap_files
from ._ranges import LogRanges
from ._segment import Segment
from .progress import LogLocks
from .swap_files import Replacement


class CompactionSwap:
    """Replaces the segments of one log."""

    __slots__ = ("_locks", "_ranges")

    def __init__(self, ranges: LogRanges, locks: LogLocks) -> None:
        self._ranges = ranges
        self._locks = locks

    async def step(self, work: Iterator[int | Replacement]) -> int | Replacement | None:
        """Run the next step of a round in the pool; None after the last. Raises StorageError, CorruptBatch."""
        status = self._ranges.status
        async with self._locks.cleaning:
            status.check_online()
            try:
                return await self._ranges.files.run(_next, work)
            except OSError as error:
                raise status.refuse(error, "cannot compact") from error

    async def end(self, unfinished: Segment) -> None:
        """Remove the files of a round that will not continue. Raises StorageError."""
        async with self._locks.cleaning:
            if self._ranges.tail.failure is None:
                try:
                    await self._ranges.files.run(swap_files.discard, self._ranges.files, unfinished)
                except OSError as error:
                    raise self._ranges.status.refuse(error, "cannot remove the rest of a compaction in") from error

    async def replace(self, new: Segment, old: Sequence[Segment], cuts: int) -> bool:
        """Replace closed segments by a cleaned one. Returns False, with nothing done, if the log has changed.

        cuts: `LogRanges.cuts` when the round began. Raises StorageError. If it is then unknown which segments a start
        would find, the log goes offline.
        """
        ranges, status, files = self._ranges, self._ranges.status, self._ranges.files
        async with self._locks.maintenance, self._locks.cleaning:
            status.check_online()
            if cuts != ranges.cuts or not self._are_closed_neighbours(old):
                return False
            try:
                await files.run(swap_files.decide, files, new, old)
            except OSError as error:
                try:
                    await files.run(swap_files.discard, files, new)
                except OSError as second:
                    raise status.fail(second, "cannot undo a compaction in") from error
                raise status.refuse(error, "cannot compact") from error
            number = ranges.bases.index(old[0].base_offset)  # an append may have rolled meanwhile
            ranges.segments[number : number + len(old)] = [new]
            ranges.bases[number : number + len(old)] = [new.base_offset]
            try:
                await files.run(swap_files.finish, files, new, old)
            except OSError as error:
                raise status.fail(error, "cannot finish a compaction in") from error
            return True

    def _are_closed_neighbours(self, segments: Sequence[Segment]) -> bool:
        ranges = self._ranges
        number = bisect_left(ranges.bases, segments[0].base_offset)
        found = ranges.segments[number : number + len(segments)]
        return len(found) == len(segments) and all(
            a is b and a is not ranges.tail.active for a, b in zip(found, segments, strict=True)
        )

    def last_records(self) -> dict[int, tuple[int, int]]:
        """For each known producer: the last offset of its last data batch (-1: none), and its epoch."""
        return {
            producer_id: (entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
            for producer_id, entry in self._ranges.tail.producers.items()
        }


def _next(work: Iterator[int | Replacement]) -> int | Replacement | None:
    return next(work, None)
