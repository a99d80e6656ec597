"""Percentiles of the recent past, from counters that only increase: the counts since an earlier reading."""

from __future__ import annotations

from collections import deque

from ..server.latency import BUCKETS

WINDOW_S = 60.0  # minimum period of percentiles, if there is a reading that old; Kafka's decay over minutes
READINGS = 2  # kept for each counter: the one to compare with, and its successor


class Windows:
    """Earlier readings of counters by name."""

    def __init__(self) -> None:
        self._readings: dict[str, deque[tuple[float, list[int]]]] = {}

    def recent(self, name: str, counts: list[int], now: float) -> list[int]:
        """How much `counts` has increased since the last reading that is WINDOW_S old, or since the start."""
        kept = self._readings.setdefault(name, deque(maxlen=READINGS))
        base = next((earlier for when, earlier in reversed(kept) if now - when >= WINDOW_S), [0] * BUCKETS)
        if not kept or now - kept[-1][0] >= WINDOW_S:
            kept.append((now, counts))
        return [a - b for a, b in zip(counts, base, strict=True)]
