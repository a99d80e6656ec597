"""Which windows a table has. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import AppError


@dataclass(frozen=True)
class TableWindows:
    """Windows [start, start + size_ms) at all multiples of step_ms. Tumbling: they are equal. expires_ms: so long after
    its end a window closes; None: never."""

    size_ms: int
    step_ms: int
    expires_ms: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.step_ms <= self.size_ms:
            raise AppError(
                f"windows of {self.size_ms / 1000} s at each {self.step_ms / 1000} s: both must be at least 0.001 s, "
                "and the step not longer than the window, or no window would have the events between two of them"
            )
        if self.expires_ms is not None and self.expires_ms < 0:
            raise AppError(f"windows that expire {self.expires_ms / 1000} s after their end: it cannot be negative")

    @property
    def is_tumbling(self) -> bool:
        return self.step_ms == self.size_ms

    def last(self, time_ms: int) -> int:
        """Start of the last window that has this time in it."""
        return time_ms - time_ms % self.step_ms

    def starts(self, time_ms: int) -> Iterator[int]:
        """Starts of all windows that have this time in them, the earliest first."""
        first = (time_ms - self.size_ms) // self.step_ms * self.step_ms + self.step_ms
        return iter(range(first, time_ms + 1, self.step_ms))
