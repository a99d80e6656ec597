"""An event loop whose clock moves only where it is told to, or where somebody waits for a time.

It runs until nothing is left to do, from code that is not async, and from code that is: then the loop around it stands
still meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Callable, Iterator

OUTSIDE_S = 5.0  # of real time, for what only the world outside can bring: an executor's thread, a socket
NEVER_S = 3_600.0  # of the loop's time, for what somebody waits for


class Stuck(Exception):
    """Somebody waits for what does not come."""


class _Selector(selectors.DefaultSelector):
    """Where the loop would sleep, it says what comes next."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.idle: Callable[[float | None], float | None] = lambda timeout: 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or (timeout is not None and timeout <= 0):
            return found
        outside_s = self.idle(timeout)
        return super().select(outside_s) if outside_s else []


class VirtualLoop(asyncio.SelectorEventLoop):
    """time(): seconds since it was made."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)
        self._clock.idle = self._idle
        self._until_s = 0.0
        self._is_busy: Callable[[], bool] = lambda: False
        self._give_up_s = 0.0
        self._is_stuck = False
        self._waited_outside = False

    def time(self) -> float:
        return self._clock.now_s

    def run(self, until_s: float, is_busy: Callable[[], bool] = lambda: False) -> None:
        """Run everything that is to be done by then; where `is_busy` says so at its end, until that is over, with the
        clock going on as far as is needed. Raises Stuck where it does not end."""
        self._until_s, self._is_busy = until_s, is_busy
        self._give_up_s = max(until_s, self.time()) + NEVER_S
        self._is_stuck = self._waited_outside = False
        with _beside_another_loop():
            self.run_forever()
        self._clock.now_s = max(self._clock.now_s, until_s)
        if self._is_stuck:
            raise Stuck

    def _idle(self, timeout: float | None) -> float | None:
        """Nothing is left to do now, and the next timer is after `timeout` seconds. Moves the clock there, or ends the
        run. Returns for how long the world outside is to be waited for."""
        clock = self._clock
        if timeout is not None and clock.now_s + timeout <= self._until_s:
            clock.now_s += timeout
            return None
        if not self._is_busy():
            self.stop()
            return None
        if timeout is not None and clock.now_s + timeout <= self._give_up_s:
            clock.now_s += timeout
            return None
        if timeout is None and not self._waited_outside:
            self._waited_outside = True  # once: whatever comes from there sets this back
            return OUTSIDE_S
        self._is_stuck = True
        self.stop()
        return None

    def _process_events(self, event_list: list[tuple[selectors.SelectorKey, int]]) -> None:
        if event_list:
            self._waited_outside = False
        super()._process_events(event_list)  # type: ignore[misc]  # of asyncio's own


@contextlib.contextmanager
def _beside_another_loop() -> Iterator[None]:
    """The loop that runs in this thread, if any, stands still: its present task has called. By what asyncio has for
    those who write loops."""
    outer = asyncio._get_running_loop()
    task = asyncio.current_task(outer) if outer is not None else None
    if outer is None:
        yield
        return
    if task is not None:
        asyncio.tasks._leave_task(outer, task)
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)
        if task is not None:
            asyncio.tasks._enter_task(outer, task)
