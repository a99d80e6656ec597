"""Which lanes are given their next events, and which of them are at it: one step each, beside each other.

A commit is of whole events alone. When one is due, no lane begins a step until those under way have ended, but for

* steps that last (`LONG_S`), or whose agents wait for replies: tasks that are in the middle of one are left out of the
  commit. They are *owed* one then: when that step ends, the lanes of the task wait for it;
* lanes that are asked: their replies are waited for.

Outputs of all tasks are in one transaction, so that a task in the middle of an event holds up the commit of all that
have written to it, and these wait, too, for `HOLD_S`. After that they go on, since the event may depend on them in ways
that are not to be seen here; but a lane that was found in a long step is held when it ends, so that the moment comes
when all are between events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any, NamedTuple

from ..engine.task import Task
from .lane import Lane
from .task_run import TaskRun

LONG_S = 0.1  # a step that has lasted for so long is not waited for by a commit that need not
HOLD_S = 1.0  # for how long a step that lasts holds up lanes that have written to the same transaction
SLOW_HOLD_S = 10.0  # the same for lanes that were in a long step themselves
REPLY_S = 1.0  # for steps that wait for replies, when their tasks leave
TURNS = 8  # of the loop that steps are given, before the worker looks what has arrived


class Step(NamedTuple):
    """Of a lane. begun: loop time."""

    run: TaskRun
    lane: Lane
    begun: float
    running: asyncio.Task[int | None]


class Rounds:
    """writers: the tasks that have written to the open transaction."""

    def __init__(self, writers: Callable[[], Collection[Task]]) -> None:
        self._writers = writers
        self._steps: dict[Lane, Step] = {}
        self._owed: dict[TaskRun, None] = {}
        self._slow: dict[Lane, None] = {}  # of those: found in a long step since their commit was due

    # --- Steps ----------------------------------------------------------------------------------------

    def begin(self, run: TaskRun, lane: Lane, step: Coroutine[Any, Any, int | None]) -> None:
        """A step of a lane that is in none. Its result: the events that are done, or None where it is no batch."""
        loop = asyncio.get_running_loop()
        self._steps[lane] = Step(run, lane, loop.time(), loop.create_task(step, name=f"step of {run.task.id}"))

    def is_busy(self, lane: Lane) -> bool:
        return lane in self._steps

    @property
    def futures(self) -> list[asyncio.Future[Any]]:
        """Steps under way."""
        return [step.running for step in self._steps.values()]

    async def turn(self) -> None:
        """Let steps get on: those whose agents wait for nothing end meanwhile."""
        for _ in range(TURNS):
            if not self._steps or any(step.running.done() for step in self._steps.values()):
                return
            await asyncio.sleep(0)

    def ended(self) -> list[Step]:
        """Steps that have ended since it was asked last."""
        found = [step for step in self._steps.values() if step.running.done()]
        for step in found:
            del self._steps[step.lane]
        return found

    def worth_waiting_for(self, runs: Collection[TaskRun], since: float) -> list[asyncio.Future[Any]]:
        """Steps of these that are under way. Those whose agents wait for replies, perhaps of a task that processes
        nothing more, are for `REPLY_S` after this loop time."""
        is_over = asyncio.get_running_loop().time() - since >= REPLY_S
        return [each.running for each in self._under_way(runs) if not (is_over and each.lane.asked)]

    async def finish(self, which: Callable[[], Collection[TaskRun]], seconds: float) -> None:
        """Wait for the steps of these that are under way, but not longer. Nothing is processed meanwhile, so that those
        whose agents wait for replies of this worker do not end: they have `REPLY_S`. which: asked again, as steps may
        change it."""
        deadline = asyncio.get_running_loop().time() + seconds
        while steps := self._under_way(which()):
            left = deadline - asyncio.get_running_loop().time()
            left = min(left, REPLY_S) if all(step.lane.asked for step in steps) else left
            running = [step.running for step in steps]
            done, _ = await asyncio.wait(running, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return

    def _under_way(self, runs: Collection[TaskRun]) -> list[Step]:
        return [step for step in self._steps.values() if step.run in runs and not step.running.done()]

    async def drop(self, run: TaskRun) -> None:
        """A task ends: cancel its steps."""
        steps = [step for step in self._steps.values() if step.run is run]
        for step in steps:
            step.running.cancel()
        await asyncio.gather(*(step.running for step in steps), return_exceptions=True)
        self._owed.pop(run, None)
        for lane in run.lanes:
            self._steps.pop(lane, None)
            self._slow.pop(lane, None)

    # --- Commits --------------------------------------------------------------------------------------

    def must_wait(self) -> bool:
        """Whether a commit that is due waits for steps which are about to end."""
        return any(not self._is_long(step, LONG_S) for step in self._steps.values())

    def _is_long(self, step: Step, seconds: float) -> bool:
        return bool(step.lane.asked) or self._lasts(step) >= seconds

    @staticmethod
    def _lasts(step: Step) -> float:
        return asyncio.get_running_loop().time() - step.begun

    def missed(self, runs: Iterable[TaskRun]) -> None:
        """A commit was due that these have had no part in."""
        self._owed.update(dict.fromkeys(runs))
        self._slow.update((step.lane, None) for step in self._steps.values() if step.run in self._owed)

    def committed(self, runs: Iterable[TaskRun]) -> None:
        for run in runs:
            self._owed.pop(run, None)
            for lane in run.lanes:
                self._slow.pop(lane, None)

    @property
    def is_owed(self) -> bool:
        """Whether a task that was left out of a commit is between events now."""
        return any(run.is_whole for run in self._owed)

    def may_begin(self, run: TaskRun, lane: Lane, is_due: bool) -> bool:
        """Whether a lane may be given events now. is_due: a commit is."""
        if not is_due and run not in self._owed:
            return True
        if self._is_asked(lane):
            return True
        if run not in self._owed:
            return not self.must_wait()
        writers = self._writers()
        together = writers if run.task in writers else [run.task]
        steps = [step for step in self._steps.values() if step.run.task in together]
        if lane in self._slow:
            return any(self._lasts(step) >= SLOW_HOLD_S for step in steps)
        return any(self._is_long(step, LONG_S if step.run is run else HOLD_S) for step in steps)

    def _is_asked(self, lane: Lane) -> bool:
        return any(not lane.topics.isdisjoint(step.lane.asked) for step in self._steps.values())
