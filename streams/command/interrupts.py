"""SIGTERM and SIGINT of a process that somebody else has written, such as a web server."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

NUMBERS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def cancelling(task: asyncio.Task[Any]) -> Iterator[list[str]]:
    """For as long as the block runs, signals cancel a task, beside what they do anyway. Gives the names of those that
    have come. One that nobody has taken ends the process as before; so do all, in any other thread than the first."""
    loop = asyncio.get_running_loop()
    came: list[str] = []
    before: dict[int, Callable[[int, Any], Any]] = {}

    def take(number: int, frame: Any) -> None:
        came.append(signal.Signals(number).name)
        loop.call_soon_threadsafe(task.cancel)
        before[number](number, frame)

    with suppress(ValueError):  # as Python has it in other threads
        for number in NUMBERS:
            if callable(handler := signal.getsignal(number)):
                signal.signal(number, take)
                before[number] = handler
    try:
        yield came
    finally:
        for taken, handler in before.items():
            signal.signal(taken, handler)
