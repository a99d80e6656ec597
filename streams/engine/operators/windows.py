"""Windows of event time: what there is of them, and what is given of one.

A window closes once the watermark has passed its end by its grace: then it takes no more events and, with `final`, its
result is given. An event is late if every window that it belongs to has closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from ...errors import AppError

K = TypeVar("K")
V = TypeVar("V")

CURRENT, FINAL = "current", "final"  # emission: each update, at most one a key and batch; or once, at the close


class WindowResult(NamedTuple, Generic[K, V]):
    """The value of one window of one key.

    end_ms: exclusive for tumbling and hopping windows; for sliding windows and sessions the last millisecond that
    belongs to it. revision: 0 for the first result of this window, then 1, and so on. value None: the window is no
    more, because its session has become part of an earlier one. missing: sources that were not waited for when the
    result was given, so that it may lack their events (`Watermarks.exclude`).
    """

    key: K
    start_ms: int
    end_ms: int
    value: V
    revision: int
    missing: tuple[str, ...] = ()

    def to_representation(self) -> dict[str, Any]:
        """As JSON has it."""
        return self._asdict()


@dataclass(frozen=True)
class TimeWindows:
    """Windows [start, start + size) that begin every `step_ms`, aligned to the epoch. Tumbling: step = size.

    retention_ms: rows are kept so long after a window's start, to be looked at; None: until it closes. revises: until
    then late events are added all the same, and each gives the window's result again, as its next revision.
    """

    size_ms: int
    step_ms: int
    grace_ms: int = 0
    retention_ms: int | None = None
    revises: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.step_ms <= self.size_ms:
            raise AppError(
                f"windows of {self.size_ms} ms that begin every {self.step_ms} ms: both must be at least 1 ms, and the "
                "step not longer than the window, or events between two windows would be lost"
            )
        _check_grace(self.grace_ms)
        if self.revises and self.retention_ms is None:
            raise AppError("windows cannot be revised once their rows are gone: give them a retention=")
        if self.retention_ms is not None and self.retention_ms < self.size_ms + self.grace_ms:
            raise AppError(
                f"a retention of {self.retention_ms} ms would delete windows that still take events: it must be at "
                f"least the size and the grace together, {self.size_ms + self.grace_ms} ms"
            )


@dataclass(frozen=True)
class SlidingWindows:
    """Windows [start, start + size], both ends inclusive, at every start for which other events of a key are in it than
    a millisecond before (KIP-450): each event ends one, and begins another right after itself."""

    size_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        if self.size_ms < 1:
            raise AppError(f"sliding windows of {self.size_ms} ms: they must be at least 1 ms")
        _check_grace(self.grace_ms)


@dataclass(frozen=True)
class SessionWindows:
    """Events of a key of which each is at most `gap_ms` after the one before."""

    gap_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        if self.gap_ms < 1:
            raise AppError(f"sessions with a gap of {self.gap_ms} ms: it must be at least 1 ms")
        _check_grace(self.grace_ms)


def _check_grace(grace_ms: int) -> None:
    if grace_ms < 0:
        raise AppError(f"a grace of {grace_ms} ms: it cannot be negative")
