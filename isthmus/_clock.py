# cython: auto_pickle=False
"""The system's wall clock, which each produce request asks: compiled, without a step of the interpreter."""

from __future__ import annotations

import time

import cython

COMPILED = cython.compiled

_C_CODE = """
#include <time.h>

static inline long long isthmus_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}
"""


def wall_ms() -> int:
    """Milliseconds since the epoch."""
    if cython.compiled:
        return isthmus_wall_ms()  # noqa: F821
    else:
        return time.time_ns() // 1_000_000
