"""`TestDriver`: runs an app without a broker or a clock, for users' own tests and ours.

driver = TestDriver(app)
await driver.send("orders", key=b"a", value=b"1", timestamp_ms=0)
assert driver.table("totals") == {"a": 1}
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .api.app import App
from .engine.checkpoint import Restorer, marker_key
from .engine.task import Task, events
from .runtime.agents import TaskRun

RUN = bytes(8)


class Sent(NamedTuple):
    """A record that an agent sent."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None


class TestDriver:
    """One task of an app. Use it inside a running loop, and close it."""

    __test__ = False  # pytest: not a test of its own

    def __init__(self, app: App, partition: int = 0, run: bytes = RUN) -> None:
        self.app = app
        self.sent: list[Sent] = []
        self.changelog: list[tuple[bytes, bytes | None, bytes | None]] = []  # key, value, run header
        self.task = Task(app.id, partition, app.tables.values(), run)
        self._topics = app.input_topics()
        self._run: TaskRun | None = None

    async def send(self, topic: str, *, value: bytes | None, key: bytes | None = None, timestamp_ms: int = 0) -> None:
        """Give the app one record and return when it has processed it."""
        if self._run is None:
            self._run = TaskRun(self.app, self.task)
            self.app.outbox = _Outbox(self.sent)
            self.changelog.append((marker_key(self.task.run, True), self.task.begin(), None))
        offset = self.task.position(topic)
        columns = ([offset], [timestamp_ms], [key], [value])
        found = events(topic, self.task.number, columns, self._topics[topic].codec, offset)
        await self._run.process(topic, found, offset + 1)

    def table(self, name: str) -> dict[Any, Any]:
        return self.task.tables[name].rows

    def checkpoint(self) -> None:
        """Write what changed to `changelog`, closed by a marker."""
        rows, marker, _ = self.task.checkpoint()
        self.changelog += [(row.key, row.value, self.task.row_header()) for row in rows]
        self.changelog.append((marker_key(self.task.run, False), marker, None))

    def restarted(self, run: bytes) -> TestDriver:
        """A new driver that has restored what this one's changelog committed."""
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
