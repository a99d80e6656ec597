"""How periodic tasks of the broker wait between two turns: by the loop's clock, and until a stop or a wake-up. Also the
delay between tries of an operation that failed: it grows up to a limit.
"""

from __future__ import annotations

import asyncio
import contextlib

RETRY_FIRST_S = 1.0
RETRY_MOST_S = 30.0


class Pauses:
    """The pauses of all tasks of one owner. A task checks `is_stopping` after each pause."""

    def __init__(self) -> None:
        self.is_stopping = False
        self._early = asyncio.Event()  # ends the current pauses

    async def pause(self, seconds: float | None) -> None:
        """Wait for this time (None: for ever), or until `wake` or `stop`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._early.wait(), seconds)

    def wake(self) -> None:
        """End the current pauses; later ones are not affected."""
        if not self.is_stopping:
            self._early.set()
            self._early = asyncio.Event()

    def stop(self) -> None:
        """End the current pauses, and all later ones at once."""
        self.is_stopping = True
        self._early.set()


class RetryDelay:
    """The delay between tries of one operation: `first_s`, then doubled each time, at most `most_s`."""

    def __init__(self, first_s: float = RETRY_FIRST_S, most_s: float = RETRY_MOST_S) -> None:
        self._first_s = min(first_s, most_s)
        self._most_s = most_s
        self._next_s = self._first_s

    def next_s(self) -> float:
        """The delay before the next try, in seconds; the following one is longer."""
        delay_s, self._next_s = self._next_s, min(2 * self._next_s, self._most_s)
        return delay_s

    def reset(self) -> None:
        """A try succeeded: the next delay is the first again."""
        self._next_s = self._first_s
