"""Answers that must wait: a `Pending` is completed by an event or by its deadline, whichever comes first.

Nothing here polls. All deadlines of a broker share one heap and one loop timer. Their number is limited
(`max.pending.requests`): above the limit a pending is answered at once, as if its deadline had passed.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Any

Answer = Any  # a response message of the protocol, or None for "no answer"


class Pending:
    """One answer that is not ready. `on_expire` makes the answer after the deadline; the first completion counts.

    `on_expire` and whatever completes the pending run on the loop and must not block. holds_up: no request that comes
    after it on its connection is begun before `let_on`, even one that need not wait for its answer.
    """

    __slots__ = ("_callback", "_cleanup", "_on_expire", "_on_let_on", "answer", "deadline", "done", "holds_up")

    def __init__(self, on_expire: Callable[[], Answer], cleanup: Callable[[], None] | None = None) -> None:
        self.done = False
        self.answer: Answer = None
        self.deadline = 0.0  # loop time; set by Purgatory.add
        self.holds_up = False
        self._on_expire = on_expire
        self._cleanup = cleanup  # removes the pending from what it waits on
        self._callback: Callable[[Answer], object] | None = None
        self._on_let_on: Callable[[], object] | None = None

    def complete(self, answer: Answer) -> bool:
        """Complete with this answer; False if there is an answer already."""
        if self.done:
            return False
        self.done = True
        cleanup, self._cleanup = self._cleanup, None
        callback, self._callback = self._callback, None
        self._on_let_on = None
        self._on_expire = _no_answer  # a done pending stays in the heap for a while and must not keep objects alive
        if cleanup is not None:
            cleanup()
        if callback is not None:
            callback(answer)
        else:
            self.answer = answer
        return True

    def expire(self) -> None:
        if not self.done:
            self.complete(self._on_expire())

    def let_on(self) -> None:
        """It holds up nothing any more."""
        self.holds_up = False
        callback, self._on_let_on = self._on_let_on, None
        if callback is not None:
            callback()

    def when_let_on(self, callback: Callable[[], object]) -> None:
        """Call `callback()` once, should `let_on` come before the answer."""
        self._on_let_on = callback

    def abandon(self) -> None:
        """The connection is closed: drop the answer, release what is held."""
        self._callback = None
        self.complete(None)

    def when_done(self, callback: Callable[[Answer], object]) -> None:
        """Call `callback(answer)` once; at once if there is an answer already. Only one callback is allowed."""
        if self.done:
            callback(self.answer)
        else:
            self._callback = callback


def _no_answer() -> Answer:
    return None


class Purgatory:
    """Deadlines of all pendings of one broker."""

    def __init__(self, max_pending: int) -> None:
        self.max_pending = max_pending
        self._heap: list[tuple[float, int, Pending]] = []
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, pending: Pending, timeout_ms: float) -> Pending:
        """Start the deadline of `pending`, `timeout_ms` from now."""
        if pending.done:
            return pending
        if timeout_ms <= 0:
            pending.expire()
            return pending
        if len(self._heap) >= self.max_pending:
            self._drop_done()
            if len(self._heap) >= self.max_pending:
                pending.expire()
                return pending
        loop = asyncio.get_running_loop()
        pending.deadline = loop.time() + timeout_ms / 1000
        self._sequence += 1
        heapq.heappush(self._heap, (pending.deadline, self._sequence, pending))
        if self._timer is None or pending.deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._arm(loop)
        return pending

    def close(self) -> None:
        """Expire everything that still waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        heap, self._heap = self._heap, []
        for _, _, pending in sorted(heap, key=lambda entry: entry[:2]):
            pending.expire()

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer_at = self._heap[0][0]
        self._timer = loop.call_at(self._timer_at, self._tick)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = None
        heap = self._heap
        try:
            while heap and (heap[0][2].done or heap[0][0] <= now):
                heapq.heappop(heap)[2].expire()
        finally:  # even if one raises, the others must expire
            if heap and self._timer is None:
                self._arm(loop)

    def _drop_done(self) -> None:
        self._heap[:] = [entry for entry in self._heap if not entry[2].done]  # in place: `_tick` may be using the list
        heapq.heapify(self._heap)
