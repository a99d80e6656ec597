# cython: auto_pickle=False
# ruff: noqa: F821  (names declared in _clock.pxd)
# mypy: ignore-errors
"""The system's wall clock, which each produce request asks: compiled, without a step of the interpreter."""

import time

import cython

COMPILED = cython.compiled


def wall_ms():
    """Milliseconds since the epoch."""
    if cython.compiled:
        return _wall_ms()
    else:
        return time.time_ns() // 1_000_000
