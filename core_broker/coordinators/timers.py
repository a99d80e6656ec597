"""Many named deadlines on one heap and one loop timer.

A deadline that moves later, as each heartbeat moves a session's, costs no heap operation: its entry stays in the heap,
and is pushed again when its time has come. So the heap has about one entry per name, at any rate of heartbeats.

After a pause of the process, heartbeats that came meanwhile are still in the sockets, and a loop runs its timers
before it reads sockets. Deadlines are then delayed once by `GRACE_S`, so that the heartbeats are read first.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Hashable

LATE_S = 0.5  # when its timer fires so late, the process was paused, or the loop was busy for as long
GRACE_S = 0.1


class Timers:
    """Calls `fire(name)` on the loop when the deadline of `name` has passed; it may schedule again."""

    def __init__(self, fire: Callable[[Hashable], None]) -> None:
        self._fire = fire
        self._deadlines: dict[Hashable, float] = {}
        self._entries: dict[Hashable, float] = {}  # time of the name's earliest entry in the heap
        self._heap: list[tuple[float, int, Hashable]] = []
        self._sequence = 0
        self._handle: asyncio.TimerHandle | None = None
        self._armed_for = 0.0
        self._was_late = False

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._deadlines

    def schedule(self, name: Hashable, delay_ms: float) -> None:
        """Set the deadline of `name`; it replaces an earlier one."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + delay_ms / 1000
        self._deadlines[name] = deadline
        entry = self._entries.get(name)
        if entry is None or deadline < entry:
            self._push(name, deadline)
            self._arm(loop)

    def cancel(self, name: Hashable) -> None:
        self._deadlines.pop(name, None)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._deadlines.clear()
        self._entries.clear()
        self._heap.clear()

    def _push(self, name: Hashable, deadline: float) -> None:
        self._sequence += 1
        self._entries[name] = deadline
        heapq.heappush(self._heap, (deadline, self._sequence, name))

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._heap or (self._was_late and self._handle is not None):
            return
        first = self._heap[0][0]
        if self._handle is not None:
            if self._armed_for <= first:
                return
            self._handle.cancel()
        self._armed_for = first
        self._handle = loop.call_at(first, self._tick)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._handle = None
        now = loop.time()
        self._was_late = not self._was_late and now - self._armed_for > LATE_S
        if self._was_late:
            self._handle = loop.call_at(now + GRACE_S, self._tick)
            return
        try:
            self._fire_due(now)
        finally:  # when `fire` raises, the other deadlines still come
            self._arm(loop)

    def _fire_due(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            at, _, name = heapq.heappop(self._heap)
            if self._entries.get(name) != at:
                continue  # an earlier entry has replaced it
            del self._entries[name]
            deadline = self._deadlines.get(name)
            if deadline is None:
                continue
            if deadline > now:
                self._push(name, deadline)
                continue
            del self._deadlines[name]
            self._fire(name)
