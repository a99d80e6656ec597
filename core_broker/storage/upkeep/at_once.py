"""Work on many logs at once, with as many tasks as the pool has threads: thousands of logs do not need thousands of
tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable

from ....protocol.errors import KafkaError
from ..log.log import Log


async def together(works: Iterable[Coroutine[None, None, None]]) -> None:
    """Run all of them at once. If one ends with an error, the others are cancelled and the error is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        raise


async def sync_logs(logs: Iterable[Log], at_once: int, synced: Callable[[Log, KafkaError | None], None]) -> None:
    """Sync logs, `at_once` at the same time; `synced` is called for each, with the error if there was one."""
    waiting = iter(logs)

    async def sync_some() -> None:
        for log in waiting:
            error = None
            try:
                await log.sync()
            except KafkaError as refused:
                error = refused
            synced(log, error)

    await together(sync_some() for _ in range(at_once))
