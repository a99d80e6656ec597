"""Tasks that have failed: each is tried again after a pause that grows, while others go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..engine.task import TaskId
from ..errors import StreamsError
from .task_run import TaskRun

log = logging.getLogger("isthmus.streams")

RETRY_S, RETRY_MAX_S = 1.0, 60.0  # pauses before a task that failed is tried again


class Failed(NamedTuple):
    """A task that a record has stopped, or that has state of other code. failures: in a row; retry_at:
    loop time; careful_at: see `TaskRun`."""

    problem: StreamsError
    failures: int
    retry_at: float
    careful_at: tuple[str, int] | None


class FailedTasks:
    """Of one worker: those that have failed, and have not yet committed what they had failed at."""

    def __init__(self) -> None:
        self.tasks: dict[TaskId, Failed] = {}

    def add(self, id: TaskId, problem: StreamsError, careful_at: tuple[str, int] | None) -> None:
        """A task has failed, again if it is here already."""
        failures = self.tasks[id].failures + 1 if id in self.tasks else 1
        pause_s = min(RETRY_S * 2 ** (failures - 1), RETRY_MAX_S)
        self.tasks[id] = Failed(problem, failures, asyncio.get_running_loop().time() + pause_s, careful_at)
        log.error("task %s ends, and is tried again in %.0f s: %s", id, pause_s, problem, exc_info=problem.__cause__)

    def careful_at(self, id: TaskId) -> tuple[str, int] | None:
        return self.tasks[id].careful_at if id in self.tasks else None

    def due(self, now: float, is_here: Callable[[TaskId], bool]) -> list[TaskId]:
        """Which are to be tried now. Those that are not here any more are forgotten."""
        for id in [id for id in self.tasks if not is_here(id)]:
            del self.tasks[id]
        return [id for id, each in self.tasks.items() if each.retry_at <= now]

    def committed(self, running: Mapping[TaskId, TaskRun]) -> None:
        """Of these tasks there was a commit: those that have committed what they had failed at have not failed any
        more."""
        for id, (_, _, _, careful_at) in list(self.tasks.items()):
            run = running.get(id)
            if run is None:
                continue
            at = run.task.positions.get(careful_at[0]) if careful_at is not None else None
            if careful_at is None or at is None or at.offset > careful_at[1]:
                log.info("task %s goes on after what it had failed at", id)
                del self.tasks[id]
