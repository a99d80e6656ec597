"""What the tasks of a worker say together of the datacenters that their input is from: for its log, and for its pages.

What a task does about one that is stalled is in `engine/datacenters.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from ..engine.datacenters import COMPLETE, EXCLUDED, STALLED, STANDINGS, Standing
from .task_run import TaskRun

log = logging.getLogger("isthmus.streams")


class Known(NamedTuple):
    """standing: the worst one of a task. tasks: how many stand so, of so many."""

    standing: Standing
    tasks: int
    of: int


class Datacenters:
    """Of the app of this id. known: by name, as of the last look."""

    def __init__(self, app: str) -> None:
        self._app = app
        self.known: dict[str, Known] = {}
        self._ahead: dict[str, None] = {}  # it was told that their mirrors' clocks are

    def look(self, runs: Iterable[TaskRun]) -> None:
        """Log what is different since the last look."""
        found: dict[str, list[Standing]] = {}
        for run in runs:
            of_task: dict[str, list[Standing]] = {}
            for chained in run.chained:
                for name, standing in chained.rule.standings.items() if chained.rule is not None else ():
                    of_task.setdefault(name, []).append(standing)
            for name, standings in of_task.items():
                found.setdefault(name, []).append(max(standings, key=_rank))
        before, self.known = self.known, {name: _together(found[name]) for name in sorted(found)}
        for name, known in self.known.items():
            was = before[name].standing.state if name in before else COMPLETE
            if known.standing.state != was:
                self._tell(name, known)
            self._tell_clock(name, known.standing.ahead_ms)

    def _tell(self, name: str, known: Known) -> None:
        state, _, why, _ = known.standing
        tasks = f"{known.tasks} of {known.of} tasks here"
        if state == EXCLUDED:
            log.warning("app %s: datacenter %s is excluded: %s; results of %s lack it", self._app, name, why, tasks)
        elif state == STALLED:
            log.warning("app %s: datacenter %s is stalled: %s; windows of %s wait for it", self._app, name, why, tasks)
        elif state == COMPLETE:
            log.info("app %s: datacenter %s is complete again", self._app, name)
        else:
            log.info(
                "app %s: datacenter %s is back; results of %s lack what is still to be read", self._app, name, tasks
            )

    def _tell_clock(self, name: str, ahead_ms: int) -> None:
        if ahead_ms and name not in self._ahead:
            log.warning(
                "app %s: the clock of the mirror of datacenter %s is %.1f s ahead of the one here, which is more than "
                "watermark_delay: windows may close before their records are here",
                self._app,
                name,
                ahead_ms / 1000,
            )
            self._ahead[name] = None


def _rank(standing: Standing) -> int:
    return STANDINGS.index(standing.state)


def _together(standings: list[Standing]) -> Known:
    worst = max(standings, key=_rank)
    alike = [each for each in standings if each.state == worst.state]
    said = worst._replace(
        complete_ms=min(each.complete_ms for each in alike), ahead_ms=max(each.ahead_ms for each in standings)
    )
    return Known(said, len(alike), len(standings))
