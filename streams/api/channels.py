"""Channels: events in memory, from code of the app to agents in the same process.

Nothing of a channel is in a checkpoint: what is in one is lost when the process ends, and what its agents send is
written at once, whatever becomes of the event that it comes from.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from ...runtime import system
from ..engine import lengths
from ..engine.event import Event, Headers
from ..errors import AppError
from . import absent
from .work import current_work

EVENTS_MAX = 4_096  # of one reader, unless the channel says otherwise
NAME = "<channel>"  # the topic of its events


class Channel:
    """Made by `App.channel`. Each reader gets each event: an agent, an iteration, and `get` where there are no others.
    maxsize: events that wait for a reader, before `send` waits."""

    def __init__(self, maxsize: int | None = None) -> None:
        self.maxsize = EVENTS_MAX if maxsize is None else maxsize
        if self.maxsize < 1:
            raise AppError(f"a channel has maxsize {self.maxsize}, but must be bounded, by 1 or more")
        self._own: asyncio.Queue[Event] = asyncio.Queue(self.maxsize)  # where nobody else reads
        self._readers: list[asyncio.Queue[Event]] = []
        self._sent = 0
        self._now_ms = system().wall_ms

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(absent.said("Channel", name, dir(type(self))))

    def subscribed(self) -> asyncio.Queue[Event]:
        """The queue of a new reader; of the first one, with what has been sent before."""
        queue = asyncio.Queue[Event](self.maxsize) if self._readers else self._own
        self._readers.append(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[Event]) -> None:
        self._readers.remove(queue)
        if queue is self._own:
            self._own = asyncio.Queue(self.maxsize)

    async def send(
        self,
        *,
        key: Any = None,
        value: Any = None,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
        **options: Any,
    ) -> None:
        """Put a key and a value, as they are. timestamp: seconds since the epoch; of the event in hand, or now.
        partition, options: as if they were not there; a channel has no partitions and no codecs."""
        work = current_work.get(None)
        if timestamp is not None:
            timestamp_ms = round(timestamp * 1000)
        else:
            in_hand = None if work is None else work.current
            timestamp_ms = self._now_ms() if in_hand is None else in_hand.timestamp_ms
        carried = tuple(headers.items()) if isinstance(headers, Mapping) else tuple(headers)
        await self.put(Event(key, value, timestamp_ms, NAME, 0, self._sent, carried))

    async def put(self, event: Event) -> None:
        """Give an event to all readers. Waits for those that have `maxsize` already."""
        self._sent += 1
        for queue in [*self._readers] or [self._own]:
            await queue.put(event)

    async def get(self, *, timeout: lengths.Seconds | None = None) -> Event:
        """The next event, where no agent reads the channel. timeout: seconds; raises TimeoutError when they are
        over."""
        seconds = None if timeout is None else lengths.seconds(timeout)
        async with asyncio.timeout(seconds or None):
            event = await self._own.get()
        self._own.task_done()
        return event

    def empty(self) -> bool:
        """Whether nothing waits for any reader."""
        return all(queue.empty() for queue in [*self._readers] or [self._own])

    async def __aiter__(self) -> AsyncIterator[Event]:
        queue = self.subscribed()
        try:
            while True:
                yield await queue.get()
                queue.task_done()
        finally:
            self.unsubscribe(queue)

    def get_topic_name(self) -> str:
        """Raises AppError: it has none."""
        raise AppError("a channel is in memory, and no topic: a reply needs a topic")

    def __class_getitem__(cls, _: Any) -> type[Channel]:
        """`Channel[Order]` is for readers of the code."""
        return cls

    def __repr__(self) -> str:
        return f"<Channel of {len(self._readers)} readers>"
