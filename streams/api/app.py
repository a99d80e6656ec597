"""`App`, `topic`, `agent`, `Table`: the API for stream processors, with Faust's names.

    app = App("counts")
    orders = app.topic("orders", value="json")
    totals = app.Table("totals", default=int)

    @app.agent(orders)
    async def count(stream):
        async for event in stream.events():
            totals[event.key.decode()] += 1

An app is only a description: a worker (`isthmus worker module:app`) or a `TestDriver` runs it.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol

from ..engine.codecs import Codec, codec, encode_key
from ..engine.tables import TableSpec
from ..engine.task import Event, Task
from ..errors import AppError
from . import tables

AgentFunction = Callable[["Stream"], Awaitable[None]]


class Outbox(Protocol):
    """The destination of `Topic.send`: the worker's producer, or a test's list."""

    async def send(
        self, task: Task, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int | None
    ) -> None: ...


class App:
    """A stream app. id: names the consumer group and the changelog topic `<id>-changelog`.

    checkpoint_interval_ms: how often state and input positions are written together. After a crash, what follows the
    last checkpoint is processed again.
    """

    def __init__(self, id: str, *, checkpoint_interval_ms: int = 500) -> None:
        if not id or "/" in id:
            raise AppError(f"app id {id!r} cannot name a group and a topic")
        self.id = id
        self.checkpoint_interval_ms = checkpoint_interval_ms
        self.agents: list[Agent] = []
        self.tables: dict[str, TableSpec] = {}
        self.outbox: Outbox | None = None  # set by the worker or the driver

    @property
    def changelog_topic(self) -> str:
        return f"{self.id}-changelog"

    def topic(self, *names: str, value: str = "raw", on_error: str = "fail") -> Topic:
        """One or more topics. value: codec json, str or raw. on_error: `fail` stops at a record that cannot be decoded,
        `skip` leaves it out and logs that."""
        return Topic(self, names, codec(value), on_error)

    def Table(self, name: str, default: Callable[[], Any] | None = None) -> tables.Table:
        """A table with a changelog; `.tumbling(seconds)` makes it one of windows by event time."""
        if name in self.tables:
            raise AppError(f"app {self.id} has two tables called {name}")
        table = tables.make(name, default)
        self.tables[name] = table.spec
        return table

    def agent(self, topic: Topic) -> Callable[[AgentFunction], Agent]:
        """Decorates `async def f(stream)`, which runs once for each task."""

        def declare(function: AgentFunction) -> Agent:
            agent = Agent(function, topic)
            self.agents.append(agent)
            return agent

        return declare

    def input_topics(self) -> dict[str, Topic]:
        """Declarations of the topics that agents read, by name."""
        found: dict[str, Topic] = {}
        for agent in self.agents:
            for name in agent.topic.names:
                first = found.setdefault(name, agent.topic)
                for what, same in (
                    ("codecs", first.codec is agent.topic.codec),
                    ("on_error", first.skips == agent.topic.skips),
                ):
                    if not same:  # a record is decoded once, for all agents that read it
                        raise AppError(f"app {self.id}: topic {name} is read by two agents with different {what}")
        if not found:
            raise AppError(f"app {self.id} has no agent: declare one with @app.agent(topic)")
        return found


class Topic:
    """Topics that an app reads or writes."""

    def __init__(self, app: App, names: Sequence[str], codec: Codec, on_error: str) -> None:
        if not names:
            raise AppError("app.topic() needs a name")
        if on_error not in ("fail", "skip"):
            raise AppError(f"topic {names[0]}: on_error is '{on_error}', but must be fail or skip")
        self.app = app
        self.names = tuple(names)
        self.codec = codec
        self.skips = on_error == "skip"

    async def send(self, *, key: Any = None, value: Any = None, timestamp_ms: int | None = None) -> None:
        """Send from an agent. The record is acknowledged before the checkpoint that covers the current event.
        timestamp_ms defaults to that event's. value None: a tombstone."""
        if len(self.names) != 1:
            raise AppError(f"a record can be sent to one topic, not to {', '.join(self.names)}")
        task = tables.task_in_hand(f"topic {self.names[0]}")
        if timestamp_ms is None and task.current is not None:
            timestamp_ms = task.current.timestamp_ms
        assert self.app.outbox is not None, "what runs an agent sets the outbox"
        data = None if value is None else self.codec.encode(value)
        await self.app.outbox.send(task, self.names[0], encode_key(key), data, timestamp_ms)


class Agent:
    """A function of an app, and the topic that it reads."""

    def __init__(self, function: AgentFunction, topic: Topic) -> None:
        self.function = function
        self.topic = topic
        self.name = getattr(function, "__name__", "agent")


class Feed(Protocol):
    """Where a stream gets its events; part of the runtime. An event is done when the agent asks for the next one."""

    task: Task
    batch: Iterator[Event]  # the rest of the batch: an iteration that is left and started again continues here
    until: float  # loop time after which no more events are given, except the first of a batch

    def begin(self) -> None:
        """An iteration begins. Raises AppError if another asyncio task iterates already."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the batch has ended by its time."""
        ...

    async def more(self) -> None:
        """Wait for the next batch."""
        ...


class Stream:
    """What an agent iterates over; each agent has one stream for each task.

    An iteration that is left, by `break` or by an error, can be started again and continues with the next event. An
    event is done when the agent asks for the next one, and not before.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    async def events(self) -> AsyncIterator[Event]:
        """Events in the order of their partition; the loop gets a turn only between batches."""
        feed, task, now = self._feed, self._feed.task, get_running_loop().time
        feed.begin()
        while True:
            if not feed.is_over:
                for event in feed.batch:
                    task.current = event
                    yield event
                    if now() >= feed.until:
                        break
            await feed.more()

    async def items(self) -> AsyncIterator[tuple[bytes | None, Any]]:
        """(key, value) of each event."""
        async for event in self.events():
            yield event.key, event.value

    async def batches(self) -> AsyncIterator[list[Event]]:
        """Several events at a time, which are done together. `current` windows are those of the last one."""
        feed = self._feed
        feed.begin()
        while True:
            if not feed.is_over and (batch := list(feed.batch)):
                feed.task.current = batch[-1]
                yield batch
            await feed.more()

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Values alone."""
        async for event in self.events():
            yield event.value
