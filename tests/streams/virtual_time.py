"""A runner of tests whose loop has a clock of its own: when nothing is left to do, it is the time of the next timer."""

from __future__ import annotations

import asyncio
import selectors
from random import Random
from typing import Any

from isthmus.runtime import Runtime
from tests.running import Test

BEGIN_MS = 1_767_225_600_000  # 2026-01-01 00:00 UTC


class _Selector(selectors.SelectSelector):
    passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found and timeout:
            self.passed_s += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = _Selector()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.passed_s

    def wall_ms(self) -> int:
        return BEGIN_MS + round(self.clock.passed_s * 1000)

    def runtime(self) -> Runtime:
        return Runtime(Random(1), self.wall_ms, lambda: round(self.clock.passed_s * 1e9))


def in_virtual_time(test: Test) -> None:
    """A runner: the test on a loop of its own, which it is given."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(test(loop))
        rest = asyncio.all_tasks(loop)
        assert not rest, f"left running: {rest}"
    finally:
        loop.close()
