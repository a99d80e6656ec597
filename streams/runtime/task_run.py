"""A task that runs: its lanes (`lane.py`), and what they are together. A checkpoint is of all of them, since they share
the task's tables."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..engine.origin import Origins
from ..engine.task import Task
from .agents import NEVER
from .backlog import Backlog
from .lane import Chained, Lane, LeftOut, Parts, Sender


class TaskRun:
    """Its arguments are those of `Lane`. Who has many rows has `parts` read before, in turns."""

    def __init__(
        self,
        task: Task,
        parts: Parts,
        leave_out: Callable[[Task, LeftOut], Awaitable[None]],
        sender: Sender,
        has_more: Callable[[str, int], bool] = lambda topic, partition: False,
        careful_at: tuple[str, int] | None = None,
        origins: Origins | None = None,
    ) -> None:
        self.task = task
        for _ in parts.read():
            pass
        closing = asyncio.Lock()
        self.lanes = [
            Lane(task, topics, each, leave_out, sender, has_more, careful_at, origins or Origins(), closing)
            for topics, each in apart(parts)
        ]
        self._by_topic = {topic: lane for lane in self.lanes for topic in lane.topics}

    @property
    def chained(self) -> list[Chained]:
        return [each for lane in self.lanes for each in lane.chained]

    def add(self, backlog: Backlog) -> None:
        """More of a partition, behind what there is of it."""
        self._by_topic[backlog.tp.topic].add(backlog)

    def lane_of(self, topic: str) -> Lane:
        return self._by_topic[topic]

    @property
    def is_ready(self) -> bool:
        """Whether there is something to process now."""
        return any(lane.is_ready for lane in self.lanes)

    async def process(self, most: int, until: float = NEVER, wall_ms: int = 0) -> int:
        """`Lane.process` of the first lane that is ready."""
        ready = next(lane for lane in self.lanes if lane.is_ready)
        return await ready.process(most, until, wall_ms)

    async def fill(self) -> None:
        """`Lane.fill` of all lanes."""
        for lane in self.lanes:
            await lane.fill()

    async def tick(self, wall_ms: int) -> None:
        """The wall clock has moved on."""
        for lane in self.lanes:
            await lane.tick(wall_ms)

    async def send_heartbeats(self) -> None:
        """Tell the tasks that read what this one writes how far it is."""
        for lane in self.lanes:
            await lane.send_heartbeats()

    async def complete(self, topic: str, until_ms: int) -> None:
        """A topic is known to have no more events before this time."""
        if topic in self._by_topic:
            await self._by_topic[topic].complete(topic, until_ms)

    @property
    def is_whole(self) -> bool:
        """Whether tables and positions include the same events, so that a checkpoint may be written."""
        return all(lane.is_whole for lane in self.lanes)

    def is_committed(self) -> bool:
        """Whether everything that is done is in a checkpoint, also what agents had taken and have done since the last
        batch."""
        for lane in self.lanes:
            lane.settle()
        return self.is_whole and not self.task.changed

    @property
    def is_behind(self) -> bool:
        """Whether an agent has taken events and not done them, which another agent or an operator may have done."""
        return any(lane.is_behind for lane in self.lanes)

    def check(self) -> None:
        """Raise the error that ended an agent, if any."""
        for lane in self.lanes:
            lane.check()

    def before_checkpoint(self) -> None:
        """Called when the task is whole, and a checkpoint is about to be taken."""
        for lane in self.lanes:
            lane.before_checkpoint()

    async def stop(self) -> bool:
        """Whether all agents have ended."""
        return all([await lane.stop() for lane in self.lanes])


def apart(parts: Parts) -> list[tuple[frozenset[str], Parts]]:
    """What a task is made of, by lanes, and the topics that each reads: those are together that an agent or operators
    read together, and all where records of several topics come in the order of time."""
    found: list[frozenset[str]] = []
    for topics in (*(topics for _, topics in parts.readers), *(each.topics for each in parts.chained)):
        tied = [each for each in found if parts.in_order or not topics.isdisjoint(each)]
        found = [each for each in found if each not in tied] + [topics.union(*tied)]
    return [(topics, _of(parts, topics)) for topics in found]


def _of(parts: Parts, topics: frozenset[str]) -> Parts:
    chained = [each for each in parts.chained if not topics.isdisjoint(each.topics)]
    return Parts(
        [(agent, reads) for agent, reads in parts.readers if not topics.isdisjoint(reads)],
        {node: parts.behind[node] for each in chained for node in each.agents},
        chained,
        parts.in_order,
    )
