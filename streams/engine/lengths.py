"""Lengths of time, as users write them: seconds, as a number or a timedelta."""

from __future__ import annotations

from datetime import timedelta

from ..errors import AppError

Seconds = float | timedelta


def seconds(of: Seconds) -> float:
    return of.total_seconds() if isinstance(of, timedelta) else float(of)


def milliseconds(of: Seconds, what: str) -> int:
    """Raises AppError for what is no time."""
    try:
        return round(of.total_seconds() * 1000) if isinstance(of, timedelta) else round(of * 1000)
    except (TypeError, ValueError, OverflowError):
        raise AppError(f"{what} is {of!r}, but must be seconds or a timedelta") from None
