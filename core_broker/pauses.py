"""How the broker's tasks that go on for ever wait between two turns: by the loop's time, and never longer than a stop
or news allow. And how long between tries of what was refused for now: ever longer, up to a bound.
"""

from __future__ import annotations

import asyncio
import contextlib

RETRY_FIRST_S = 1.0
RETRY_MOST_S = 30.0


class Pauses:
    """Those of all tasks of one owner. A task looks at `is_stopping` after each."""

    def __init__(self) -> None:
        self.is_stopping = False
        self._early = asyncio.Event()  # of the pauses under way

    async def pause(self, seconds: float | None) -> None:
        """Until so much time has passed (None: for ever), or `wake`, or `stop`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._early.wait(), seconds)

    def wake(self) -> None:
        """End the pauses under way; those that come last as long as they are to."""
        if not self.is_stopping:
            self._early.set()
            self._early = asyncio.Event()

    def stop(self) -> None:
        """End the pauses under way, and each that comes at once."""
        self.is_stopping = True
        self._early.set()


class RetryDelay:
    """Between tries of one thing: RETRY_FIRST_S, then each time twice as long, RETRY_MOST_S at most."""

    def __init__(self) -> None:
        self._next_s = RETRY_FIRST_S

    def next_s(self) -> float:
        """Of the try that comes, in seconds; the one after it waits longer."""
        delay_s, self._next_s = self._next_s, min(2 * self._next_s, RETRY_MOST_S)
        return delay_s

    def reset(self) -> None:
        """A try succeeded: the next delay is the first again."""
        self._next_s = RETRY_FIRST_S
