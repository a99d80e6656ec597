"""Runs agents on the asyncio loop: one asyncio task for each agent and task, woken once per batch, not once per event.

A batch costs at most three turns of the loop: one wakes the agent, which then takes event after event without giving up
control, unless it waits for something itself; another one wakes the caller that offered the batch. A batch has a time
limit: an agent that asks for an event after it gets none, and the rest of the batch is offered again.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterator
from operator import length_hint
from typing import Any

from ..api.agents import Agent
from ..api.streams import Stream
from ..api.work import current_work
from ..engine.event import Event
from ..engine.taken import Taken
from ..engine.task import Task, Work
from ..errors import AppError, RecordError, StreamsError

log = logging.getLogger("isthmus.streams")

BATCH_EVENTS_MAX = 5_000  # what an agent is given at once
STOP_S = 2.0  # for an agent that was cancelled
NEVER = float("inf")

Failed = Callable[["AgentRun", RecordError], Awaitable[bool]]


class AgentRun:
    """One agent on one task, and the `Feed` of its stream. The batch is stored here, not in an iteration, because the
    agent may leave one iteration and begin another."""

    def __init__(self, agent: Agent, task: Task, failed: Failed) -> None:
        """failed: told of what the agent raised while it had an event; whether the agent goes on after it."""
        self.agent = agent
        self.work = Work(task)
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self.batch: Iterator[Event] = iter(())
        self.until = NEVER
        self.taken = Taken()
        self._begun_with = 0  # events of the batch when it was offered
        self._reader: asyncio.Task[Any] | None = None  # the asyncio task that iterates, or did so last
        self._waiting: asyncio.Future[None] | None = None  # pending while the agent waits for a batch
        self._finished: asyncio.Future[None] | None = None  # pending while a caller of `offer` waits
        token = current_work.set(self.work)  # the new asyncio task copies the context
        self._runner = self._loop.create_task(self._run(), name=f"agent {agent.name} {task.id}")
        current_work.reset(token)
        self._runner.add_done_callback(self._ended)

    async def _run(self) -> None:
        while True:
            try:
                await self._call()
            except StreamsError:
                raise
            except Exception as error:
                problem = RecordError(self._described(error))
                problem.__cause__ = error
                if self.work.current is None or not await self._failed(self, problem):
                    raise problem from error
                self.taken.leave_out(self.work.current)
                continue
            return

    async def _call(self) -> None:
        result = self.agent.function(Stream(self, len(self.agent.steps)))
        if inspect.isawaitable(result):
            await result
            return
        async for value in result:
            await self.agent.yielded(value, self.work.current)

    # --- Called by the stream -----------------------------------------------------------------------

    def begin(self) -> None:
        reader = asyncio.current_task()
        if self._reader is not None and self._reader is not reader and not self._reader.done():
            raise AppError(
                "a stream is iterated over in two asyncio tasks: an event of one would count as done when the "
                "other asks for the next. Iterate in one of them, and pass the events on from there"
            )
        self._reader = reader
        self.taken.done()

    @property
    def is_over(self) -> bool:
        return self._loop.time() >= self.until and length_hint(self.batch) < self._begun_with

    async def more(self) -> None:
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(None)
        self._waiting = self._loop.create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None  # also if the agent's own timeout ended it

    # --- Called by the worker -----------------------------------------------------------------------

    async def offer(self, batch: Iterator[Event], until: float) -> None:
        """Give the agent a batch, which other runs may share. Returns when it asks for an event and the batch is used
        up, or `until` (loop time) is over and it has taken one: what is left of the batch is left in the iterator.
        Raises what the agent raised."""
        self.check()
        self.batch, self.until, self._begun_with = batch, until, length_hint(batch)
        self._finished = self._loop.create_future()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
        try:
            await self._finished
        finally:
            self.batch = iter(())  # an agent whose own timeout ends `more` must not go on with it

    @property
    def is_idle(self) -> bool:
        """Whether the agent waits for an event, or has not asked for the first one: it changes nothing meanwhile."""
        return self._reader is None or (self._waiting is not None and not self._waiting.done())

    @property
    def has_ended(self) -> bool:
        return self._runner.done()

    def check(self) -> None:
        """Raise the error that ended the agent, if any."""
        if self.has_ended:
            self._raise()

    def _ended(self, runner: asyncio.Task[None]) -> None:
        if self._finished is not None and not self._finished.done():
            try:
                self._raise()
            except StreamsError as error:
                self._finished.set_exception(error)

    def _raise(self) -> None:
        """The error that ended the agent, with the coordinates of its current event."""
        error = None if self._runner.cancelled() else self._runner.exception()
        if isinstance(error, AppError):
            raise AppError(f"agent {self.agent.name} {self._where()}: {error}") from error
        if isinstance(error, StreamsError):
            raise error
        raise RecordError(self._described(None))

    def _described(self, error: BaseException | None) -> str:
        what = "returned, but an agent runs for ever"
        if error is not None:
            what = f"raised {described(error, self.agent.function)}"
        return f"agent {self.agent.name} {what} {self._where()}"

    def _where(self) -> str:
        event = self.work.current
        return f"at {event.topic}-{event.partition} offset {event.offset}" if event else "before any event"

    async def stop(self) -> bool:
        """Cancel the agent. If it does not end, for example because of a bare `except`, it is left alone and gets no
        more events. Returns whether it has ended."""
        self._runner.cancel()
        await asyncio.wait([self._runner], timeout=STOP_S)
        if not self._runner.done():
            log.warning(
                "agent %s of task %s runs on after it was cancelled, and is left alone: does it catch CancelledError, "
                "as a bare `except:` does?",
                self.agent.name,
                self.work.task.id,
            )
        elif not self._runner.cancelled():
            self._runner.exception()  # else asyncio logs it as never retrieved
        return self.has_ended


def described(error: BaseException, function: Callable[..., object]) -> str:
    """Type and text of an error, and the last line of the agent's own file in its traceback."""
    code = getattr(function, "__code__", None)
    file = code.co_filename if code is not None else None
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return f"{type(error).__name__}: {error}" + (f" ({file}:{lines[-1]})" if lines else "")


class Readers:
    """The runs of one agent on one task: `concurrency` of them, which share each batch."""

    def __init__(self, agent: Agent, task: Task, failed: Failed) -> None:
        self.agent = agent
        self.runs = [AgentRun(agent, task, failed) for _ in range(agent.concurrency)]

    async def offer(self, events: list[Event], until: float) -> int:
        """Give them a batch. Returns the number of events that are done, at least one."""
        batch = iter(events)
        if len(self.runs) == 1:
            await self.runs[0].offer(batch, until)
        else:
            await asyncio.gather(*(run.offer(batch, until) for run in self.runs))
        return len(events) - length_hint(batch)

    @property
    def held_from(self) -> int | None:
        """Offset of the first event that was taken and is not done."""
        first = (run.taken.first for run in self.runs)
        return min((event.offset for event in first if event is not None), default=None)

    @property
    def asked(self) -> list[str]:
        """Topics where requests are to which they wait for the replies."""
        return [topic for run in self.runs for topics in run.work.asked.values() for topic in topics]

    @property
    def is_idle(self) -> bool:
        """Whether none of them is in the middle of something, or has ended."""
        return all(run.is_idle and not run.has_ended for run in self.runs)

    def check(self) -> None:
        """Raise the error that ended an agent, if any."""
        for run in self.runs:
            run.check()

    async def stop(self) -> bool:
        """Whether all have ended."""
        return all([await run.stop() for run in self.runs])
