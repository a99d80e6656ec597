"""A worker of an app with a table; group, changelogs and producers are replaced.

Transactions are those of `fakes.py`; a task is restored from what they committed.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.client import Client, FetchedBatches, TopicPartition
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.primitives import ZERO_UUID
from isthmus.streams import App
from isthmus.streams.engine.changes import Written
from isthmus.streams.engine.checkpoint import MARKER, Marker, Position, as_read
from isthmus.streams.engine.task import Task
from isthmus.streams.runtime import declaring as declaring_module
from isthmus.streams.runtime import group as group_module
from isthmus.streams.runtime import restoring as restoring_module
from isthmus.streams.runtime import worker as worker_module
from isthmus.streams.runtime import written as written_module
from isthmus.streams.runtime.worker import StreamWorker

from .fakes import Journal
from .running import fetched

ALO, EOS = "at_least_once", "exactly_once"
CHANGELOG = "app-seen-changelog"
ONE, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)
GONE = KafkaError.of(ErrorCode.ILLEGAL_GENERATION, "app")


class Group:
    """Stands for the consumer: its partitions change, and have records, as the test says."""

    member_id = ""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.positions: dict[TopicPartition, int | None] = {}
        self.paused: set[TopicPartition] = set()
        self.epochs: dict[TopicPartition, int] = {}  # of the record before the position
        self.ends: dict[TopicPartition, int] = {}
        self.offsets: dict[TopicPartition, int] = {}
        self.coming: list[Callable[[], Any]] = []  # rebalances, each in a poll
        self.must_poll = False
        self.waits = False  # polls last until something is to be done: else each is a turn of the loop
        self.rejoins = 0

    async def subscribe(self, topics: Sequence[str], *, on_assigned: Any, on_revoked: Any, on_lost: Any) -> None:
        self.callbacks = {"assign": on_assigned, "revoke": on_revoked, "lose": on_lost}

    def rebalance(self, what: str, *tps: TopicPartition) -> None:
        async def happen() -> None:
            if what == "assign":
                self.positions |= dict.fromkeys(tps)
            await self.callbacks[what](list(tps))
            if what != "assign":
                for tp in tps:
                    del self.positions[tp]
                    self.paused.discard(tp)
            self.journal.done.append((what, *tps))

        self.coming.append(happen)

    async def poll_batches(self, timeout_ms: float, unless: Sequence[Any] = ()) -> list[FetchedBatches]:
        await asyncio.sleep(0)
        if self.coming:
            await self.coming.pop(0)()
        found = self._arrived()
        if self.waits and not found:
            loop = asyncio.get_running_loop()
            passed: asyncio.Future[None] = loop.create_future()
            loop.call_later(timeout_ms / 1000, passed.set_result, None)
            await asyncio.wait([passed, *unless], return_when=asyncio.FIRST_COMPLETED)
        return found

    async def take_arrived(self, timeout_ms: float, unless: Sequence[Any] = ()) -> list[FetchedBatches]:
        await asyncio.sleep(0)
        return self._arrived()

    def _arrived(self) -> list[FetchedBatches]:
        found = []
        for tp, position in self.positions.items():
            end = self.ends.get(tp, 0)
            if tp in self.paused or position is None or position >= end:
                continue
            found.append(fetched(end - position, position, tp.partition))
            self.positions[tp] = end
        return found

    def assignment(self) -> list[TopicPartition]:
        return list(self.positions)

    def lag(self, tp: TopicPartition) -> int:
        return self.ends.get(tp, 0) - (self.positions[tp] or 0)

    def pause(self, tps: Sequence[TopicPartition]) -> None:
        self.paused.update(tps)

    def resume(self, tps: Sequence[TopicPartition]) -> None:
        self.paused.difference_update(tps)

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        assert tp in self.positions
        self.positions[tp], self.epochs[tp] = offset, leader_epoch

    async def committed(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        self.journal.done.append(("committed",))
        return {tp: self.offsets[tp] for tp in tps if tp in self.offsets}

    def group_metadata(self) -> str:
        return "group"

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets |= offsets

    def request_rejoin(self) -> None:
        self.rejoins += 1

    async def close(self, timeout_ms: float = 0) -> None: ...


class World:
    """A worker of an app with a table `seen`, which counts what it reads by key. reads: what the agents do; interval_s:
    between commits; between_s: at most, between one that took long and the next."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *agents: Any,
        guarantee: str = ALO,
        has_table: bool = True,
        reads: Callable[[App], Any] = lambda app: app.topic("in"),
        interval_s: float = 0.0,
        between_s: float = 0.0,
        **options: Any,
    ) -> None:
        self.journal = Journal(monkeypatch)
        self.app = app = App("app", processing_guarantee=guarantee, broker_commit_interval=interval_s)
        monkeypatch.setattr(worker_module, "BETWEEN_S", between_s)
        self.seen = seen = app.Table("seen", default=int) if has_table else {}
        self.out = app.topic("out")
        self.created: list[str] = []
        self.policy = "compact"
        self.gates: dict[int, asyncio.Event] = {}  # restorations of these partitions wait

        async def count(stream: Any) -> None:
            async for event in stream.events():
                seen[event.offset % 3] = seen.get(event.offset % 3, 0) + 1
                if guarantee == EOS:
                    await self.out.send(key=None, value=event.offset)

        for agent in agents or (count,):
            app.agent(reads(app), tables=[seen] if has_table else (), **options)(agent)
        client = Client("127.0.0.1:1")
        self.topic_id: bytes | None = None
        known = SimpleNamespace(leaders={0: 1, 1: 1}, topic_id=ZERO_UUID)
        changelogs = [f"app-{table}-changelog" for table in app.all_tables()]
        client.topics.update(dict.fromkeys(["in", *changelogs], known))  # type: ignore[arg-type]

        async def refresh_metadata(*_: Any, **__: Any) -> None: ...

        monkeypatch.setattr(client, "refresh_metadata", refresh_metadata)
        self.changelog_id: bytes | None = None
        monkeypatch.setattr(client, "topic_id", lambda name: self.topic_id if name == "in" else self.changelog_id)
        monkeypatch.setattr(restoring_module, "load", self._load)
        self.written = Written()
        monkeypatch.setattr(written_module, "written", self._written)
        for module in (restoring_module, declaring_module):
            monkeypatch.setattr(module, "Admin", lambda client: self)
        self.group = Group(self.journal)
        monkeypatch.setattr(group_module, "Consumer", lambda *_, **__: self.group)
        self.client = client
        self.worker = StreamWorker(app, client, name="me")
        self.running: asyncio.Task[None] | None = None

    async def list_offsets(self, wanted: Mapping[TopicPartition, str]) -> dict[TopicPartition, tuple[int, int]]:
        return dict.fromkeys(wanted, (0, -1))

    async def describe_configs(self, topics: Sequence[str]) -> dict[str, list[Any]]:
        return {topic: [SimpleNamespace(name="cleanup.policy", value=self.policy)] for topic in topics}

    async def create_topics(self, topics: Sequence[Any]) -> None:
        self.created += [topic.name for topic in topics]

    async def _written(self, client: Client, app_id: str, read: Any) -> Written:
        return self.written

    async def _load(
        self, client: Client, tasks: Sequence[Task], changelog: Any, loaded: Any, is_here: Any, begins: Any
    ) -> None:
        self.journal.done.append(("load",))
        for task in tasks:
            if task.partition in self.gates:
                await self.gates[task.partition].wait()
            for table, store in task.stores.items():
                committed = self.journal.committed(changelog(table), task.partition)
                rows, marker = as_read([key for key, _ in committed], [value for _, value in committed], table)
                if is_here(task):
                    store.restore(rows, len(committed), marker)

    async def start(self, *tps: TopicPartition) -> None:
        await self.worker.start()
        self.running = asyncio.ensure_future(self.worker.run())
        if tps:
            self.group.rebalance("assign", *tps)

    async def until(self, what: Callable[[], Any]) -> None:
        for _ in range(2_000):
            if what():
                return
            if self.running is not None and self.running.done():
                self.running.result()
            await asyncio.sleep(0)
        raise AssertionError("it does not come to that")

    def table(self, partition: int = 0) -> dict[int, int]:
        """What is committed."""
        committed = self.journal.committed(CHANGELOG, partition)
        return {int(key): int(value) for key, value in committed if key != MARKER and value}  # type: ignore[arg-type]

    def position(self, partition: int = 0) -> int:
        """What is committed."""
        decided = 0
        pending = 0
        for each in self.journal.done:
            if each[0] == "offsets":
                pending = each[1].get(TopicPartition("in", partition), pending)
            elif each[0] == "commit":
                decided = pending
            elif each[0] == "abort":
                pending = decided
        return decided

    def processed(self, partition: int) -> int:
        """Up to where a task has processed its topic."""
        [run] = [run for id, run in self.worker.running.items() if id.partition == partition]
        return run.task.positions["in"].offset

    async def end(self) -> None:
        if self.running is not None:
            self.running.cancel()
            await asyncio.gather(self.running, return_exceptions=True)
        await self.worker.abandon()


def counted(end: int) -> dict[int, int]:
    """The table after so many records."""
    return {n: len(range(n, end, 3)) for n in range(3) if n < end}


def left_by(version: int, offset: int = 3) -> Marker:
    """A marker that code with this version of the table has written."""
    return Marker("app", 1, ("seen",), {"in": Position(offset)}, table={"version": version})
