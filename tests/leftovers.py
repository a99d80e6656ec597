"""What is still there after a thing was closed: one way to assert that nothing is.

    async with no_leftovers():
        client = Client(...)
        ...
        await client.close()

Looks at the running loop: tasks, timers and open transports that were made inside and are still there. On a simulated
loop only those of the current process count, so that brokers of the same loop do not disturb.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.simulation.hosts import PROCESS

TURNS = 3  # of the loop, in which what was cancelled or closed last comes to its end


@contextlib.asynccontextmanager
async def no_leftovers() -> AsyncIterator[None]:
    """Raise AssertionError on leaving, with the name of each task, timer and transport that is left behind."""
    before = _alive()
    yield
    for _ in range(TURNS):
        await asyncio.sleep(0)
    left = [said for number, (_, said) in _alive().items() if number not in before]
    assert not left, f"left behind: {'; '.join(left)}"


def _alive() -> dict[int, tuple[Any, str]]:
    """What there is now, by identity: the thing, which is held so that its identity stays its own, and its name."""
    loop: Any = asyncio.get_running_loop()
    process = PROCESS.get()
    tasks = [
        task
        for task in asyncio.all_tasks()
        if task is not asyncio.current_task() and getattr(task, "process", None) is process
    ]
    timers = [each for each in loop._scheduled if not each.cancelled() and each._context.get(PROCESS) is process]
    transports = list(loop._transports.values() if process is None else process.transports.values())
    found: list[tuple[Any, str]] = [(task, f"task {task.get_name()}") for task in tasks]
    found += [(each, f"timer {each!r}") for each in timers]
    found += [(each, f"transport {each!r}") for each in transports]
    return {id(thing): (thing, said) for thing, said in found}
