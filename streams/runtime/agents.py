"""Runs agents on the asyncio loop: one asyncio task for each agent and task, woken once a batch, not once an event.

A batch costs three turns of the loop at most: one that wakes the agents, which then take the whole batch without
giving the loop a turn unless they wait for something of their own, and one that wakes whoever offered the batch.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable

from ..api.app import Agent, App, Stream
from ..api.tables import current_task
from ..engine.task import Event, Task
from ..errors import RecordError, StreamsError


class AgentRun:
    """One agent on one task."""

    def __init__(self, agent: Agent, task: Task) -> None:
        self.agent = agent
        self.task = task
        self._offered: asyncio.Future[list[Event]] | None = None  # the agent waits for it
        self._finished: asyncio.Future[None] | None = None  # whoever offered a batch waits for it
        token = current_task.set(task)  # the new asyncio task copies the context
        self._runner = asyncio.get_running_loop().create_task(self._run(), name=f"agent {agent.name} {task.number}")
        current_task.reset(token)
        self._runner.add_done_callback(self._ended)

    async def _run(self) -> None:
        await self.agent.function(Stream(self.task, self._next_batch))

    async def _next_batch(self) -> list[Event]:
        self._offered = asyncio.get_running_loop().create_future()
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(None)
        return await self._offered

    async def offer(self, events: list[Event]) -> None:
        """Give the agent a batch and return when it asks for the next; raises what the agent raised."""
        while self._offered is None:  # its first turn is still to come
            if self._runner.done():
                self._raise()
            await asyncio.sleep(0)
        if self._runner.done():
            self._raise()
        offered, self._offered = self._offered, None
        self._finished = asyncio.get_running_loop().create_future()
        offered.set_result(events)
        await self._finished

    def _ended(self, runner: asyncio.Task[None]) -> None:
        if self._finished is not None and not self._finished.done():
            try:
                self._raise()
            except StreamsError as error:
                self._finished.set_exception(error)

    def _raise(self) -> None:
        """What ended the agent, with the coordinates of the event it had in hand."""
        event = self.task.current
        where = f"at {event.topic}-{event.partition} offset {event.offset}" if event else "before any event"
        error = None if self._runner.cancelled() else self._runner.exception()
        if isinstance(error, StreamsError):
            raise error
        what = f"raised {described(error, self.agent.function)}" if error else "returned, but an agent runs for ever"
        raise RecordError(f"agent {self.agent.name} {what} {where}") from error

    async def stop(self) -> None:
        self._runner.cancel()
        await asyncio.gather(self._runner, return_exceptions=True)


def described(error: BaseException, function: Callable[..., object]) -> str:
    """Type, words and the last line of the agent's own file that the error came through."""
    file = function.__code__.co_filename
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return f"{type(error).__name__}: {error}" + (f" ({file}:{lines[-1]})" if lines else "")


class TaskRun:
    """All agents of one task."""

    def __init__(self, app: App, task: Task) -> None:
        self.task = task
        self.runs = [AgentRun(agent, task) for agent in app.agents]

    async def process(self, topic: str, events: list[Event], next_offset: int) -> None:
        """Run every agent that reads the topic over a batch; the task then stands at `next_offset`."""
        if events:
            for run in self.runs:
                if topic in run.agent.topic.names:
                    await run.offer(events)
        self.task.processed(topic, next_offset)

    async def stop(self) -> None:
        for run in self.runs:
            await run.stop()
