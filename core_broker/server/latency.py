"""How long requests took, in buckets that are cheap to count and fine enough for percentiles.

A request that is answered at once costs one search in a table and two additions. For one that waits, the time of its
handler and the whole time are counted separately, as in Kafka's LocalTimeMs and TotalTimeMs.
"""

from __future__ import annotations

from bisect import bisect_left

_MANTISSAS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
# Upper bounds of the buckets, from 10 microseconds to 80 seconds; one more bucket holds what took longer.
BOUNDS_NS: tuple[int, ...] = tuple(int(m * 10**decade) for decade in range(4, 11) for m in _MANTISSAS)
BUCKETS = len(BOUNDS_NS) + 1


class Latency:
    """Times of the requests of one API. Counters only rise."""

    __slots__ = ("_at_once", "_at_once_ns", "_began", "_began_ns", "_waited", "_waited_ns")

    def __init__(self) -> None:
        self._at_once = [0] * BUCKETS  # requests that were answered by their handler
        self._at_once_ns = 0
        self._began = [0] * BUCKETS  # requests that waited, by the time of their handlers
        self._began_ns = 0
        self._waited = [0] * BUCKETS  # the same requests, by their whole time
        self._waited_ns = 0

    def answered(self, elapsed_ns: int) -> None:
        """A handler has given an answer at once."""
        self._at_once[bisect_left(BOUNDS_NS, elapsed_ns)] += 1
        self._at_once_ns += elapsed_ns

    def began(self, elapsed_ns: int) -> None:
        """A handler has returned, and its answer has to wait."""
        self._began[bisect_left(BOUNDS_NS, elapsed_ns)] += 1
        self._began_ns += elapsed_ns

    def waited(self, elapsed_ns: int) -> None:
        """A request that waited has its answer; elapsed_ns counts from its arrival."""
        self._waited[bisect_left(BOUNDS_NS, elapsed_ns)] += 1
        self._waited_ns += elapsed_ns

    def total(self) -> tuple[list[int], int]:
        """From arrival to answer: requests by bucket, and the sum of their times in nanoseconds."""
        return [a + b for a, b in zip(self._at_once, self._waited, strict=True)], self._at_once_ns + self._waited_ns

    def local(self) -> tuple[list[int], int]:
        """In the handlers alone."""
        return [a + b for a, b in zip(self._at_once, self._began, strict=True)], self._at_once_ns + self._began_ns


def percentile_ns(counts: list[int], share: float) -> float:
    """The time below which a share (0 to 1) of requests stayed, interpolated within its bucket; 0 without requests."""
    wanted = share * sum(counts)
    seen = 0
    for number, count in enumerate(counts):
        if count and seen + count >= wanted:
            low = BOUNDS_NS[number - 1] if number else 0
            high = BOUNDS_NS[number] if number < len(BOUNDS_NS) else low
            return low + (high - low) * (wanted - seen) / count
        seen += count
    return 0.0
