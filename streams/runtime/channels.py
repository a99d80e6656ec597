"""Runs agents that read channels: once in each worker, beside its tasks, and in no checkpoint.

An event that an agent fails at is lost, and the agent begins anew, unless its policy is to stop the worker.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Iterable, Iterator

from ..api.agents import Agent
from ..api.channels import Channel
from ..api.streams import Stream
from ..api.work import current_work
from ..engine.event import Event
from ..engine.failures import STOP, decided
from ..engine.taken import Taken
from ..engine.task import Task, TaskId, Work
from ..errors import AppError, RecordError
from .agents import NEVER, described

log = logging.getLogger("isthmus.streams")

AGAIN_S = 1.0  # before an agent that failed between events begins anew


class ChannelRun:
    """One agent on one channel, and the `Feed` of its stream. queue: others of the agent may share it."""

    def __init__(self, agent: Agent, app: str, queue: asyncio.Queue[Event]) -> None:
        self.agent = agent
        self.work = Work(Task(app, TaskId(f"channel of {agent.name}", 0), {}), is_beside=True)
        self.batch: Iterator[Event] = iter(())
        self.until = NEVER
        self.taken = Taken()
        self.problem: Exception | None = None  # that ends the worker
        self._queue = queue
        self._taken = False  # an event that is not done
        token = current_work.set(self.work)
        self.runner = asyncio.get_running_loop().create_task(self._run(), name=f"agent {agent.name}")
        current_work.reset(token)

    # --- Called by the stream -----------------------------------------------------------------------

    def begin(self) -> None:
        """There is no position that an iteration could pass."""
        self.taken.done()

    @property
    def is_over(self) -> bool:
        return False

    async def more(self) -> None:
        self._done()
        self.batch = iter([await self._queue.get()])
        self._taken = True

    def _done(self) -> None:
        if self._taken:
            self._taken = False
            self._queue.task_done()

    # --- The agent ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._call()
                error: Exception = AppError(f"agent {self.agent.name} returned, but an agent runs for ever")
            except Exception as raised:
                error = raised
            if self._ends(error):
                self._done()
                return
            if not self._taken:
                await asyncio.sleep(AGAIN_S)
            if self.work.current is not None:
                self.taken.leave_out(self.work.current)
            self._done()

    async def _call(self) -> None:
        result = self.agent.function(Stream(self))
        if inspect.isawaitable(result):
            await result
            return
        async for value in result:
            await self.agent.yielded(value, self.work.current)

    def _ends(self, error: Exception) -> bool:
        said = described(error, self.agent.function)
        log.error("agent %s of a channel raised %s; it goes on with the next event", self.agent.name, said)
        event = self.work.current
        offset = -1 if event is None else event.offset
        if isinstance(error, AppError) or decided(self.agent.on_error, "<channel>", 0, offset, error) == STOP:
            self.problem = error if isinstance(error, AppError) else RecordError(f"agent {self.agent.name}: {said}")
            return True
        return False

    async def stop(self) -> None:
        self.runner.cancel()
        await asyncio.gather(self.runner, return_exceptions=True)


class ChannelAgents:
    """All agents of an app that read channels."""

    def __init__(self, app: str, agents: Iterable[Agent]) -> None:
        self._readings: list[tuple[Channel, asyncio.Queue[Event], list[ChannelRun]]] = []
        for agent in agents:
            channel = agent.memory
            if channel is None:
                continue
            if agent.tables:
                raise AppError(
                    f"agent {agent.name} reads a channel, and uses table {agent.tables[0]}: rows belong to partitions, "
                    "and a channel has none. Send what is to be stored to a topic"
                )
            queue = channel.subscribed()
            runs = [ChannelRun(agent, app, queue) for _ in range(agent.concurrency)]
            self._readings.append((channel, queue, runs))

    @property
    def ends(self) -> list[asyncio.Future[None]]:
        """Each is done when an agent has ended, by an error."""
        return [run.runner for _, _, runs in self._readings for run in runs]

    def check(self) -> None:
        """Raise the error that ended an agent, if any."""
        for _, _, runs in self._readings:
            for run in runs:
                if run.problem is not None:
                    raise run.problem

    async def settle(self) -> None:
        """Wait until all events are done."""
        for _, queue, _ in self._readings:
            await queue.join()
        self.check()

    async def close(self) -> None:
        for channel, queue, runs in self._readings:
            for run in runs:
                await run.stop()
            channel.unsubscribe(queue)
        self._readings.clear()
