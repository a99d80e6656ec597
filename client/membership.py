"""What the two kinds of membership in a group have in common: what the consumer asks of them, and their heartbeats.

All changes of the assignment happen in the consumer's polls, as in Kafka's Java client: user callbacks never run in
parallel with the user's own code. Heartbeats go on by themselves, even while a rebalance waits for the user's poll.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from ..protocol.errors import KafkaError
from .cluster import Client
from .coordinator import Coordinator
from .errors import ClientError
from .holdings import Holdings, Step

log = logging.getLogger("isthmus.client")

LEAVE_TIMEOUT_MS = 5_000


class Subscription(NamedTuple):
    """Topics by name, or all whose whole name matches a regular expression."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None


class Membership(Protocol):
    """One member of one group. changed: the next poll has something to do. error: raised by the next poll, once."""

    coordinator: Coordinator
    group_id: str
    instance_id: str | None
    polls: Polls
    changed: asyncio.Event
    error: Exception | None

    @property
    def holdings(self) -> Holdings: ...

    @property
    def member_id(self) -> str:
        """Empty where the coordinator has not given one yet."""

    @property
    def generation(self) -> int:
        """Or the member epoch; -1 while the group does not have this member."""

    @property
    def must_poll(self) -> bool:
        """Whether the group waits for the next poll."""

    @property
    def unheard_s(self) -> float:
        """For how long the group has not answered a heartbeat, once that is longer than the session: others may have
        what is held; else 0."""

    def subscribe(self, subscription: Subscription) -> None:
        """Join for this with the next poll, or with a join in progress. Raises ClientError for a pattern that is
        none."""

    def step(self) -> Step | None:
        """What a poll has to do next. Joins, by itself, when there is nothing before that."""

    def told_of_loss(self, code: int, generation: int) -> None:
        """A commit under this generation was refused with this code."""

    async def leave(self, timeout_ms: float = LEAVE_TIMEOUT_MS) -> None:
        """Stop, and leave the group as a member that is closed does, within the time. Without time the request is sent,
        but its answer is not awaited."""


class Polls:
    """Whether the user polls as often as promised (`max.poll.interval.ms`). A poll that waits for data counts; one that
    waits for the user's callback does not. max_ms None: there is no promise."""

    def __init__(self, max_ms: float | None) -> None:
        self.max_ms = max_ms
        self._at = 0.0  # loop time of the last sign of a poll
        self._waits = False

    def seen(self, now: float, waits: bool = False) -> None:
        """waits: from now until it is seen again, the poll waits for data."""
        self._at, self._waits = now, waits

    def left_s(self, now: float) -> float:
        """Until the promise is broken."""
        if self.max_ms is None or self._waits:
            return float("inf")
        return self._at + self.max_ms / 1000 - now


class Heart:
    """Sends heartbeats: one after each `interval_s`, at once when woken, and sooner after one that failed.

    beat: sends one; False ends it. stalled: called instead, at the end, when the user does not poll any more. failed:
    called, at the end, with an error that another attempt cannot help."""

    def __init__(
        self,
        client: Client,
        group_id: str,
        interval_s: float,
        polls: Polls,
        beat: Callable[[], Awaitable[bool]],
        stalled: Callable[[], Awaitable[None]],
        failed: Callable[[Exception], None],
    ) -> None:
        self.interval_s = interval_s
        self._client = client
        self._group_id = group_id
        self._polls = polls
        self._beat = beat
        self._stalled = stalled
        self._failed = failed
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._heard_at: float | None = None  # loop time at which the last heartbeat that was answered was sent

    def unheard_s(self, session_s: float) -> float:
        """Since the last heartbeat that was answered, if that is longer than a session; else 0."""
        if self._heard_at is None:
            return 0.0
        since_s = asyncio.get_running_loop().time() - self._heard_at
        return since_s if since_s > session_s else 0.0

    @property
    def beats(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        if not self.beats:
            self._heard_at = asyncio.get_running_loop().time()
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"heart in {self._group_id}")

    def wake(self) -> None:
        """There is something to tell."""
        self._woken.set()

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            left_s = self._polls.left_s(loop.time())
            if failures:
                pause_s = self._client.back_off_ms(failures - 1) / 1000
                await asyncio.sleep(max(0.0, min(pause_s, self.interval_s, left_s)))
            else:
                await self._sleep(min(self.interval_s, left_s))
            if self._polls.left_s(loop.time()) <= 0:
                log.warning(
                    "group %s: nothing was polled for %s ms (max_poll_interval_ms), so the member leaves and its "
                    "partitions go to others. The next poll joins again: poll fewer records, or raise the limit",
                    self._group_id,
                    self._polls.max_ms,
                )
                await self._stalled()
                return
            self._woken.clear()
            sent_at = loop.time()
            try:
                goes_on = await self._beat()
            except Exception as error:  # an error of our own, too, is told: a member without a heart loses its place
                if not (isinstance(error, (ClientError, KafkaError)) and error.retriable):
                    self._failed(error)
                    return
                failures += 1  # for example, no coordinator for long
                continue
            failures = 0
            if not goes_on:
                return
            self._heard_at = sent_at

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._woken.wait()
        except TimeoutError:
            pass
