"""Waiting for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

POLL_S = 0.05

T = TypeVar("T")


def until(look: Callable[[], T], what: str | Callable[[], object], within_s: float = 30.0) -> T:
    """The first true answer of `look`; AssertionError when none comes in time. what: is waited for, or tells how it
    is."""
    deadline = time.monotonic() + within_s
    while not (said := look()):
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what if isinstance(what, str) else what()}"
        time.sleep(POLL_S)
    return said
