"""The transaction indexes of segments that are read, in memory: each fetch under read_committed asks them.

They follow the `.txnindex` files, whose entries are in the order of their markers (KIP-98).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from weakref import WeakKeyDictionary

from ._segment import Segment
from .index_files import AbortedTransaction

ENTRIES_KEPT = 1 << 18  # of all segments of a broker, 32 bytes each


class AbortedIndex:
    """The aborted transactions whose markers are in one segment."""

    __slots__ = ("_firsts", "_lasts", "_producers", "_stables", "least_first")

    def __init__(self, entries: Iterable[AbortedTransaction]) -> None:
        self._producers, self._firsts = array("q"), array("q")
        self._lasts, self._stables = array("q"), array("q")
        self.least_first = 2**63 - 1
        for each in entries:
            self.add(each)

    def __len__(self) -> int:
        return len(self._lasts)

    def add(self, entry: AbortedTransaction) -> None:
        """Take the one whose marker was written last."""
        self._producers.append(entry.producer_id)
        self._firsts.append(entry.first_offset)
        self._lasts.append(entry.last_offset)
        self._stables.append(entry.last_stable_offset)
        self.least_first = min(self.least_first, entry.first_offset)

    def overlapping(self, offset: int, upper: int, found: list[tuple[int, int]]) -> bool:
        """Add (first offset, producer id) of those that overlap the offsets from `offset` to before `upper`. Whether
        no later segment has one, as all that was open before `upper` had ended then."""
        for at in range(bisect_left(self._lasts, offset), len(self._lasts)):
            if self._firsts[at] < upper:
                found.append((self._firsts[at], self._producers[at]))
            if self._stables[at] >= upper:
                return True
        return False


class AbortedIndexes:
    """Those of the segments that were read last, with ENTRIES_KEPT entries at most. One goes with its segment."""

    def __init__(self, most: int = ENTRIES_KEPT) -> None:
        self._most = most
        self._held: WeakKeyDictionary[Segment, AbortedIndex] = WeakKeyDictionary()

    def __len__(self) -> int:
        """How many entries there are."""
        return sum(map(len, self._held.values()))

    def get(self, segment: Segment) -> AbortedIndex | None:
        return self._held.get(segment)

    def keep(self, segment: Segment, index: AbortedIndex) -> None:
        """As long as it is among those that are read last. One that is too large is not kept."""
        self._held.pop(segment, None)
        held = len(self)
        while self._held and held + len(index) > self._most:
            held -= len(self._held.pop(next(iter(self._held))))
        if held + len(index) <= self._most:
            self._held[segment] = index

    def added(self, segment: Segment, entry: AbortedTransaction) -> None:
        """A segment's file has another entry."""
        index = self._held.get(segment)
        if index is not None:
            index.add(entry)
            if len(self) > self._most:
                self.drop(segment)

    def drop(self, segment: Segment) -> None:
        """The segment's file is cut."""
        self._held.pop(segment, None)
