"""The periodic work on the logs of a data directory: saves, retention, flush.ms, syncs of closed segments.

One task for each kind of work. The owner of the logs reports changes (`note`, `rolled`). A log that has not changed
and is not due is not looked at, so that thousands of idle logs cost nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from ....protocol.errors import KafkaError
from ....runtime import Runtime
from ...pauses import Pauses
from ..log.log import Log
from ..log.log_config import MAX_INT64
from .schedule import Schedule

logger = logging.getLogger(__name__)

FLUSH_TICK_MS = 50  # flush.ms is checked this often
FIRST_MS = 30_000  # before periodic work runs first, at most its interval; Kafka: log.initial.task.delay.ms
LOOK_AT_ONCE = 32  # logs that retention checks in one turn of the loop

Key = tuple[str, int]  # topic, partition


class Job(NamedTuple):
    """Periodic work for all logs together. Errors are logged."""

    name: str
    interval_ms: int
    work: Callable[[], Awaitable[None]]


class Duties:
    """See the module. logs: all open logs. high_watermark: returns a log's; retention deletes only before it."""

    def __init__(
        self,
        logs: Mapping[Key, Log],
        runtime: Runtime,
        high_watermark: Callable[[Key, Log], int],
        jobs: Sequence[Job],
        retention_interval_ms: int,
    ) -> None:
        self.aging: dict[Key, Log] = {}  # logs with flush.ms that have unsynced appends
        self._logs = logs
        self._runtime = runtime
        self._high_watermark = high_watermark
        self._jobs = [*jobs, Job("retention", retention_interval_ms, self.enforce_retention)]
        self._retention = Schedule[Key]()
        self._aging_due = asyncio.Event()
        self._unflushed: dict[Key, Log] = {}  # logs with a closed segment that may be unsynced
        self._flush_due = asyncio.Event()
        self._pauses = Pauses()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, name: str) -> None:
        """Begin the periodic work; `stop` ends it."""
        loop = asyncio.get_running_loop()
        works = {"what recurs": self._recur(), "flush": self._flush_closed(), "flush.ms": self._flush_by_age()}
        self._tasks = [loop.create_task(work, name=f"{what} in {name}") for what, work in works.items()]

    async def stop(self) -> None:
        """End after the work that runs now. Nothing is cancelled."""
        self._pauses.stop()
        self._flush_due.set()
        self._aging_due.set()
        if self._tasks:
            await asyncio.wait(self._tasks)
            self._tasks = []

    def note(self, key: Key, log: Log) -> None:
        """The log's offsets or options have changed, or it has a new append."""
        self._retention.note(key)
        if log.progress.unsynced_since_ms is not None and log.config.flush_ms < MAX_INT64:
            self.aging[key] = log
            self._aging_due.set()

    def rolled(self, key: Key, log: Log) -> None:
        """A segment of the log was closed."""
        self._unflushed[key] = log
        self._flush_due.set()

    def forget(self, key: Key) -> None:
        self._retention.forget(key)
        self.aging.pop(key, None)
        self._unflushed.pop(key, None)

    async def _recur(self) -> None:
        loop = asyncio.get_running_loop()
        due = [loop.time() + min(job.interval_ms, FIRST_MS) / 1000 for job in self._jobs]
        while not self._pauses.is_stopping:
            await self._pauses.pause(max(0.0, min(due) - loop.time()))
            if self._pauses.is_stopping:
                return
            for number, job in enumerate(self._jobs):
                if due[number] <= loop.time():
                    try:
                        await job.work()
                    except KafkaError as error:
                        logger.error("%s: %s", job.name, error.message)
                    due[number] = loop.time() + job.interval_ms / 1000

    async def enforce_retention(self) -> None:
        """Delete old segments. If that fails for a log, the error is logged and the others go on."""
        wall_ms = self._runtime.wall_ms()
        for number, key in enumerate(self._retention.take(wall_ms), 1):
            log = self._logs.get(key)
            if log is not None and log.failure is None:
                log.tail.is_noted = False  # so that the next append calls `note`
                try:
                    await log.enforce_retention(self._high_watermark(key, log), wall_ms)
                except KafkaError as error:
                    logger.error("retention of %s-%d: %s", *key, error.message)
                    self._retention.note(key)
                if self._logs.get(key) is log:
                    self._retention.put(key, log.retention.next_due_ms(self._high_watermark(key, log)))
            if not number % LOOK_AT_ONCE:
                await asyncio.sleep(0)

    async def _flush_closed(self) -> None:
        """Sync closed segments, one after the other, and save how far: a start need not read these."""
        while not self._pauses.is_stopping:
            await self._flush_due.wait()
            self._flush_due.clear()
            while self._unflushed and not self._pauses.is_stopping:
                key, log = next(iter(self._unflushed.items()))
                del self._unflushed[key]
                if log.failure is None:
                    try:
                        await log.syncing.sync_closed()
                    except KafkaError as error:
                        logger.error("closed segments of %s-%d: %s", *key, error.message)

    async def _flush_by_age(self) -> None:
        """Keep flush.ms. Only logs that have this option and unsynced appends are looked at."""
        while not self._pauses.is_stopping:
            if not self.aging:
                self._aging_due.clear()
                await self._aging_due.wait()
            await self._pauses.pause(FLUSH_TICK_MS / 1000)
            if self._pauses.is_stopping:
                return
            await self.flush_old()

    async def flush_old(self) -> None:
        """Sync the logs whose oldest unsynced append is older than flush.ms."""
        wall_ms = self._runtime.wall_ms()
        for key, log in list(self.aging.items()):
            since_ms = log.progress.unsynced_since_ms
            if log.failure is not None or since_ms is None or log.config.flush_ms == MAX_INT64:
                self.aging.pop(key, None)
            elif not 0 <= wall_ms - since_ms < log.config.flush_ms:  # also if the clock was set back
                try:
                    await log.sync()
                except KafkaError as error:
                    logger.error("flush.ms of %s-%d: %s", *key, error.message)
