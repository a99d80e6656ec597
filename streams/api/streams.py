"""What an agent iterates over; each agent has one stream for each task."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from asyncio import get_running_loop
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol

from ..engine.columns import cut, is_columns, joined
from ..engine.event import TP, Event
from ..engine.lengths import Seconds, seconds
from ..engine.taken import Taken
from ..engine.task import Work
from ..errors import AppError
from . import absent
from .generics import ValueT
from .work import current_event

NEVER_S = float("inf")
ROWS_MAX = 10_000  # default of `record_batches`
RecordBatch = Any  # pyarrow's, which is loaded where a topic has columns
Processor = Callable[[Any], Any] | Callable[[Any], Awaitable[Any]]


class Feed(Protocol):
    """Where a stream gets its events; part of the runtime. An event is done when the agent asks for the next one."""

    work: Work
    batch: Iterator[Event]  # the rest of the batch: an iteration that is left and started again continues here
    until: float  # loop time after which no more events are given, except the first of a batch
    taken: Taken  # what iterations that give several events together have of it

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


class _Skipped:
    """What a filter returns for a value to be left out."""


_SKIPPED = _Skipped()


class Stream(Generic[ValueT]):
    """What an agent iterates over: values, or with `events()` and `items()` more than these.

    An iteration that is left, by `break` or by an error, can be started again and continues with the next event. An
    event is done when the agent asks for the next one, and not before.
    """

    def __init__(self, feed: Feed, derivations: int = 0) -> None:
        self._feed = feed
        self._derivations = derivations  # calls of group_by and through that are to come
        self._processors: list[Processor] = []

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(absent.said("Stream", name, dir(type(self))))

    # --- Iterations ---------------------------------------------------------------------------------

    async def events(self) -> AsyncIterator[Event]:
        """Events in the order of their partition; the loop gets a turn only between batches."""
        feed, work, now = self._feed, self._feed.work, get_running_loop().time
        processors = self._processors
        feed.begin()
        while True:
            if not feed.is_over:
                for event in feed.batch:
                    work.current = event
                    if processors:
                        value = await self._processed(event.value)
                        if value is _SKIPPED:
                            if now() >= feed.until:
                                break
                            continue
                        if value is not event.value:
                            event = event.derived(event.key, value)
                    yield event
                    if now() >= feed.until:
                        break
            await feed.more()

    async def items(self) -> AsyncIterator[tuple[Any, ValueT]]:
        """(key, value) of each event."""
        async for event in self.events():
            yield event.key, event.value

    async def __aiter__(self) -> AsyncIterator[ValueT]:
        """Values alone."""
        async for event in self.events():
            yield event.value

    async def enumerate(self, start: int = 0) -> AsyncIterator[tuple[int, ValueT]]:
        """(number, value), counted from `start` since the agent began."""
        async for event in self.events():
            yield start, event.value
            start += 1

    async def batches(self) -> AsyncIterator[list[Event]]:
        """Several events at a time, as they were fetched; they are done together. `current` windows are those of the
        last one."""
        feed, taken = self._feed, self._feed.taken
        feed.begin()
        while True:
            if not feed.is_over:
                if self._processors:
                    async for event in self._all_processed(feed.batch):
                        taken.waiting.append(event)
                else:
                    taken.waiting += feed.batch
                if taken.waiting:
                    feed.work.current = taken.waiting[-1]
                    yield taken.give(taken.waiting, [])
                    taken.done()
            await feed.more()

    async def record_batches(self, most: int = ROWS_MAX, within: Seconds | None = None) -> AsyncIterator[RecordBatch]:
        """The records of a topic that has `columns=` as `pyarrow.RecordBatch`es of up to `most` rows, with the columns
        key, value, timestamp, offset, partition, topic and headers. within: wait so long, in seconds, for more rows
        than were there when the first of them came. A batch is done when the next one is asked for. `current` windows
        are those of the last row of what was fetched."""
        if most < 1:
            raise AppError(f"record_batches({most}) would never give anything: it takes 1 or more")
        feed, loop, wait_s = self._feed, get_running_loop(), seconds(within) if within else 0.0
        taken, deadline = feed.taken, 0.0
        feed.begin()
        while True:
            for event in feed.batch:
                if not is_columns(event.value):
                    raise AppError(
                        f"topic {event.topic} is read as events: declare it with columns= for record_batches()"
                    )
                feed.work.current = event
                deadline = deadline if taken.waiting else loop.time() + wait_s
                taken.waiting.append(event)
                if sum(each.value.num_rows for each in taken.waiting) >= most or loop.time() >= feed.until:
                    break
            rows = sum(each.value.num_rows for each in taken.waiting)
            if rows and (rows >= most or loop.time() >= deadline):
                yield joined([each.value for each in taken.give(*cut(taken.waiting, most))])
                taken.done()
                if taken.waiting or not feed.is_over:
                    continue
            await self._more(deadline)

    async def take(self, max_: int, within: Seconds | None) -> AsyncIterator[list[ValueT]]:
        """Lists of up to max_ values: of fewer where `within` seconds have passed since the first of them. They are
        done together."""
        async for events in self.take_events(max_, within):
            yield [event.value for event in events]

    async def take_events(self, max_: int, within: Seconds | None) -> AsyncIterator[list[Event]]:
        """`take` with events instead of values. within: None: until there are `max_`."""
        if max_ < 1:
            raise AppError(f"take({max_}) would never give anything: it takes 1 or more")
        feed, loop, wait_s = self._feed, get_running_loop(), seconds(within) if within else NEVER_S
        taken = feed.taken
        feed.begin()
        deadline = loop.time() + wait_s  # of what an earlier iteration has left
        while True:
            for event in feed.batch if len(taken.waiting) < max_ else ():
                feed.work.current = event
                value = await self._processed(event.value) if self._processors else event.value
                if value is not _SKIPPED:
                    taken.waiting.append(event if value is event.value else event.derived(event.key, value))
                    deadline = loop.time() + wait_s if len(taken.waiting) == 1 else deadline
                if len(taken.waiting) >= max_:
                    break
                if loop.time() >= feed.until:
                    break
            if taken.waiting and (len(taken.waiting) >= max_ or loop.time() >= deadline):
                yield taken.give(taken.waiting[:max_], taken.waiting[max_:])
                taken.done()
                if not feed.is_over:
                    continue
            await self._more(deadline)

    async def _more(self, deadline: float) -> None:
        """Wait for the next batch; where events wait to be given together, not beyond this loop time."""
        if not self._feed.taken.waiting:
            await self._feed.more()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._feed.more()

    async def take_with_timestamp(
        self, max_: int, within: Seconds | None, timestamp_field_name: str
    ) -> AsyncIterator[list[Any]]:
        """`take`; values that are dicts get the event's time, in seconds, as a field of this name."""
        async for events in self.take_events(max_, within):
            for event in events:
                if isinstance(event.value, dict) and timestamp_field_name:
                    event.value[timestamp_field_name] = event.timestamp
            yield [event.value for event in events]

    def noack_take(self, max_: int, within: Seconds | None) -> AsyncIterator[list[Event]]:
        """`take_events`: events are done when the next ones are asked for."""
        return self.take_events(max_, within)

    @property
    def current_event(self) -> Event | None:
        """The event that the agent has in hand."""
        return self._feed.work.current

    @property
    def active_partitions(self) -> set[TP]:
        """The partitions that the agent reads in this task, and those that are tied to them."""
        task = self._feed.work.task
        return {TP(topic, task.partition) for topic in task.positions}

    def get_active_stream(self) -> Stream:
        """This one: `group_by` and `through` return it."""
        return self

    def __and__(self, other: object) -> NoReturn:
        raise AppError("streams cannot be combined: declare one topic of several, app.topic('a', 'b')")

    # --- What is done with each event before the agent has it -----------------------------------------

    def add_processor(self, processor: Processor) -> None:
        """Call this with each value; what it returns takes the value's place. It may be async."""
        self._processors.append(processor)

    def filter(self, keep: Callable[[ValueT], Any]) -> Stream[ValueT]:
        """Leave out values for which `keep`, which may be async, returns nothing true."""
        self.add_processor(filtering(keep))
        return self

    def echo(self, *channels: Any) -> Stream:
        """Send each value to these topics, too, under its key."""
        self.add_processor(echoing(channels))
        return self

    def group_by(
        self,
        key: Any,
        *,
        name: str | None = None,
        topic: Any = None,
        partitions: int | None = None,
        partitioner: str | Callable[..., int] | None = None,
    ) -> Stream:
        """The records with another key, and so in the partition of that key: they go through a topic of the app,
        `<app>-<agent>-<topic>-<name>-repartition`, each exactly once.

        key: a field of the value's model, or a function of the value, which may be async and needs a `name`.
        partitions: of the topic; as many as the agent's topic has. topic: instead of one of the app. partitioner:
        as of a topic."""
        return self._derived("group_by")

    def through(self, channel: Any, *, partitioner: str | Callable[..., int] | None = None) -> Stream:
        """The records after they went through another topic, each exactly once."""
        return self._derived("through")

    def _derived(self, how: str) -> Stream:
        """`derive.steps` has noted this before; what was to be done with the values was done on the way."""
        if not self._derivations:
            raise AppError(
                f"{how}() must be called on the agent's stream before it is iterated over, and each time alike"
            )
        self._derivations -= 1
        self._processors = []
        return self

    def noack(self) -> Stream:
        """Nothing: an event is done when the next one is asked for."""
        return self

    async def _processed(self, value: Any) -> Any:
        for processor in self._processors:
            value = processor(value)
            if inspect.isawaitable(value):
                value = await value
            if value is _SKIPPED:
                break
        return value

    async def _all_processed(self, events: Iterator[Event]) -> AsyncIterator[Event]:
        for event in events:
            self._feed.work.current = event
            value = await self._processed(event.value)
            if value is not _SKIPPED:
                yield event if value is event.value else event.derived(event.key, value)


def filtering(keep: Callable[[Any], Any]) -> Processor:
    """A processor that leaves out values."""

    async def kept(value: Any) -> Any:
        wanted = keep(value)
        if inspect.isawaitable(wanted):
            wanted = await wanted
        return value if wanted else _SKIPPED

    return kept


def echoing(channels: Sequence[Any]) -> Processor:
    """A processor that sends values to topics, too."""

    async def echoed(value: Any) -> Any:
        event = current_event()
        for channel in channels:
            await channel.send(key=event.key if event else None, value=value)
        return value

    return echoed
