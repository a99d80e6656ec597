"""Percentiles of the recent past out of counters that only rise: what was counted since a reading a while ago."""

from __future__ import annotations

from collections import deque

from ..server.latency import BUCKETS

WINDOW_S = 60.0  # percentiles are of at least so long, where somebody has asked so long ago; Kafka's fade over minutes
READINGS = 2  # kept of each counter: the one that is compared with, and the next to be


class Windows:
    """Earlier readings of counters by name."""

    def __init__(self) -> None:
        self._readings: dict[str, deque[tuple[float, list[int]]]] = {}

    def recent(self, name: str, counts: list[int], now: float) -> list[int]:
        """What `counts` has more than at the last reading that is WINDOW_S old, or since the start."""
        kept = self._readings.setdefault(name, deque(maxlen=READINGS))
        base = next((earlier for when, earlier in reversed(kept) if now - when >= WINDOW_S), [0] * BUCKETS)
        if not kept or now - kept[-1][0] >= WINDOW_S:
            kept.append((now, counts))
        return [a - b for a, b in zip(counts, base, strict=True)]
