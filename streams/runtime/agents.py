"""Runs agents on the asyncio loop: one asyncio task for each agent and task, woken once per batch, not once per event.

A batch costs at most three turns of the loop: one wakes the agent, which then takes event after event without giving up
control, unless it waits for something itself; another one wakes the caller that offered the batch. A batch has a time
limit: an agent that asks for an event after it gets none, and the rest of the batch is offered again.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterator
from operator import length_hint
from typing import Any

from ..api.app import Agent, App, Stream
from ..api.tables import current_task
from ..engine.task import Event, Task
from ..errors import AppError, RecordError, StreamsError
from .backlog import Backlog

log = logging.getLogger("isthmus.streams")

BATCH_EVENTS_MAX = 5_000  # what an agent is given at once
TOGETHER_EVENTS = 16  # where several agents read a topic: each gets so many before the first gets more
STOP_S = 2.0  # for an agent that was cancelled
NEVER = float("inf")


class AgentRun:
    """One agent on one task, and the `Feed` of its stream. The batch is stored here, not in an iteration, because the
    agent may leave one iteration and begin another."""

    def __init__(self, agent: Agent, task: Task) -> None:
        self.agent = agent
        self.task = task
        self._loop = asyncio.get_running_loop()
        self.batch: Iterator[Event] = iter(())
        self.until = NEVER
        self._offered = 0  # events of the batch
        self._reader: asyncio.Task[Any] | None = None  # the asyncio task that iterates, or did so last
        self._waiting: asyncio.Future[None] | None = None  # pending while the agent waits for a batch
        self._finished: asyncio.Future[int] | None = None  # pending while a caller of `offer` waits
        token = current_task.set(task)  # the new asyncio task copies the context
        self._runner = self._loop.create_task(self._run(), name=f"agent {agent.name} {task.number}")
        current_task.reset(token)
        self._runner.add_done_callback(self._ended)

    async def _run(self) -> None:
        await self.agent.function(Stream(self))

    # --- Called by the stream -----------------------------------------------------------------------

    def begin(self) -> None:
        reader = asyncio.current_task()
        if self._reader is not None and self._reader is not reader and not self._reader.done():
            raise AppError(
                "a stream is iterated over in two asyncio tasks: an event of one would count as done when the "
                "other asks for the next. Iterate in one of them, and pass the events on from there"
            )
        self._reader = reader

    @property
    def is_over(self) -> bool:
        return length_hint(self.batch) < self._offered and self._loop.time() >= self.until

    async def more(self) -> None:
        left, self.batch = length_hint(self.batch), iter(())
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(self._offered - left)
        self._waiting = self._loop.create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None  # also if the agent's own timeout ended it

    # --- Called by the worker -----------------------------------------------------------------------

    async def offer(self, events: list[Event], until: float) -> int:
        """Give the agent a batch. Returns when it asks for an event and the batch is used up, or `until` (loop time) is
        over: the number of events that it has done, at least one. Raises what the agent raised."""
        self.check()
        self.batch, self.until, self._offered = iter(events), until, len(events)
        self._finished = self._loop.create_future()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
        return await self._finished

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
        event = self.task.current
        where = f"at {event.topic}-{event.partition} offset {event.offset}" if event else "before any event"
        error = None if self._runner.cancelled() else self._runner.exception()
        if isinstance(error, AppError):
            raise AppError(f"agent {self.agent.name} {where}: {error}") from error
        if isinstance(error, StreamsError):
            raise error
        what = f"raised {described(error, self.agent.function)}" if error else "returned, but an agent runs for ever"
        raise RecordError(f"agent {self.agent.name} {what} {where}") from error

    async def stop(self) -> None:
        """Cancel the agent. If it does not end, for example because of a bare `except`, it is left alone and gets no
        more events."""
        self._runner.cancel()
        await asyncio.wait([self._runner], timeout=STOP_S)
        if not self._runner.done():
            log.warning(
                "agent %s of task %d runs on after it was cancelled, and is left alone: does it catch CancelledError, "
                "as a bare `except:` does?",
                self.agent.name,
                self.task.number,
            )
        elif not self._runner.cancelled():
            self._runner.exception()  # else asyncio logs it as never retrieved


def described(error: BaseException, function: Callable[..., object]) -> str:
    """Type and text of an error, and the last line of the agent's own file in its traceback."""
    file = function.__code__.co_filename
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return f"{type(error).__name__}: {error}" + (f" ({file}:{lines[-1]})" if lines else "")


class TaskRun:
    """All agents of one task."""

    def __init__(self, app: App, task: Task) -> None:
        self.task = task
        self.runs = [AgentRun(agent, task) for agent in app.agents]
        self._between_events = True

    @property
    def is_whole(self) -> bool:
        """Whether tables and positions include the same events, so that a checkpoint may be written."""
        return self._between_events and not any(run.has_ended for run in self.runs)

    def check(self) -> None:
        """Raise the error that ended an agent, if any."""
        for run in self.runs:
            run.check()

    async def process(self, backlog: Backlog, most: int, until: float = NEVER) -> int:
        """Run every agent that reads the topic over the next events, and move the task's position behind them.

        Returns the number of events: at most `most`, fewer where `until` (loop time) is over before, at least one.
        """
        events = backlog.ahead(most)
        self._between_events = False  # stays false if an agent fails or this is cancelled
        done = await self._give(backlog.tp.topic, events, until) if events else 0
        self.task.mark_processed(backlog.tp.topic, backlog.passed(done))
        self._between_events = True
        return done

    async def _give(self, topic: str, events: list[Event], until: float) -> int:
        readers = [run for run in self.runs if topic in run.agent.topic.names]
        if len(readers) == 1:
            return await readers[0].offer(events, until)
        loop = asyncio.get_running_loop()
        done, together = 0, 1  # begin with one: the agents may be slow
        while done < len(events) and not (done and loop.time() >= until):
            some = events[done : done + together]
            first = await readers[0].offer(some, until)
            for run in readers[1:]:
                await run.offer(some[:first], NEVER)
            done += first
            together = min(2 * together, TOGETHER_EVENTS)
        return done

    async def stop(self) -> None:
        for run in self.runs:
            await run.stop()
