"""`TestDriver`: runs an app without a broker or a clock, for tests.

driver = TestDriver(app)
await driver.send("orders", key=b"a", value=b"1", timestamp_ms=0)
assert driver.table("totals") == {"a": 1}
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..client import FetchedBatches, TopicPartition
from ..protocol import records
from .api.app import App
from .engine.changelog import ChangelogRecord, Restorer
from .engine.task import Task
from .errors import AppError, RecordError
from .runtime.agents import BATCH_EVENTS_MAX, TaskRun
from .runtime.backlog import Backlog

RUN = bytes(8)


class Sent(NamedTuple):
    """A record that an agent sent."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None


class Record(NamedTuple):
    """A record for an app."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = 0


class TestDriver:
    """One task of an app. Use it inside a running loop, and close it. Records are processed as in a worker: as fetched
    batches, so that an agent has many events at once. Records that cannot be decoded, of a topic with on_error='skip',
    go to `skipped`."""

    __test__ = False  # pytest: not a test of its own

    def __init__(self, app: App, partition: int = 0, run: bytes = RUN) -> None:
        self.app = app
        self.sent: list[Sent] = []
        self.skipped: list[RecordError] = []
        self.changelog: list[ChangelogRecord] = []
        self.task = Task(app.id, partition, app.tables.values(), run)
        self._topics = app.input_topics()
        self._run: TaskRun | None = None
        self._turn = asyncio.Lock()  # serializes `send`

    async def send(self, topic: str, *, value: bytes | None, key: bytes | None = None, timestamp_ms: int = 0) -> None:
        """Give the app one record and wait until it is processed."""
        await self.send_batch(topic, [Record(value, key, timestamp_ms)])

    async def send_batch(self, topic: str, given: Iterable[Record]) -> None:
        """Give the app records as one fetch, and wait until all are processed."""
        reads = self._topics.get(topic)
        if reads is None:
            raise AppError(f"app {self.app.id} reads no topic {topic}; it reads {', '.join(self._topics)}")
        async with self._turn:
            if self._run is None:
                self._run = TaskRun(self.app, self.task)
                self.app.outbox = _Outbox(self.sent)
                self.changelog.append(self.task.begin())
            offset = self.task.position(topic)
            fields = [(each.timestamp_ms, each.key, each.value, ()) for each in given]
            data = memoryview(records.build_batch(fields, base_offset=offset) if fields else b"")
            end = offset + len(fields)
            fetched = FetchedBatches(TopicPartition(topic, self.task.number), data, offset, end, end, end)
            backlog = Backlog(fetched, reads.codec, offset, self.skipped.append if reads.skips else None)
            while not backlog.empty:
                await self._run.process(backlog, BATCH_EVENTS_MAX)

    def table(self, name: str) -> dict[Any, Any]:
        return self.task.tables[name].rows

    def checkpoint(self) -> None:
        """Write what changed to `changelog`, closed by a marker. Raises AppError during an event and after an agent has
        failed; a worker writes no checkpoint then."""
        if self._run is not None and not self._run.is_whole:
            raise AppError(f"app {self.app.id}: no checkpoint can be written during an event, or after an agent failed")
        rows, marker, _ = self.task.checkpoint()
        self.changelog += [*rows, marker]
        for tombstones in self.task.confirm_checkpoint():
            self.changelog += tombstones

    def restarted(self, run: bytes) -> TestDriver:
        """A new driver that is restored from this one's changelog."""
        restorer = Restorer(self.app.id, self.app.changelog_topic)
        for record in self.changelog:
            restorer.feed(*record)
        fresh = TestDriver(self.app, self.task.number, run)
        fresh.changelog = self.changelog
        fresh.task.restore(restorer.end())
        return fresh

    async def close(self) -> None:
        if self._run:
            await self._run.stop()


class _Outbox:
    def __init__(self, sent: list[Sent]) -> None:
        self._sent = sent

    async def send(
        self, task: Task, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int | None
    ) -> None:
        self._sent.append(Sent(topic, key, value, timestamp_ms))
