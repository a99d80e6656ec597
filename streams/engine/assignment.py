"""Which worker has which task, which has a copy of a task's tables, and which gets one before the task moves there.
Pure.

As Kafka Streams does since KIP-441: a task with tables runs where its tables are. To even out, another worker first
gets a copy (a warm-up), and the task moves when that has caught up. Standbys are copies that stay, to take over at
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .task import TaskId

CAUGHT_UP_ROWS = 10_000  # a copy so far behind is read up faster than a task moves
WARMUPS_MAX = 2  # at a time, as in Kafka Streams


@dataclass(frozen=True)
class Worker:
    """What the leader knows of a worker. runs: its tasks; lags: tasks whose tables it has a copy of -> rows that it is
    behind; knows: names of the sub-topologies that it can run."""

    id: str
    runs: frozenset[TaskId] = frozenset()
    lags: Mapping[TaskId, int] = field(default_factory=dict)
    knows: frozenset[str] = frozenset()

    def is_ready(self, task: TaskId) -> bool:
        """Whether it can go on with the task's tables at once."""
        return task in self.runs or self.lags.get(task, CAUGHT_UP_ROWS + 1) <= CAUGHT_UP_ROWS


@dataclass
class Plan:
    """By worker. standbys: copies to keep; warmups: copies to get, for a task that is to move there then."""

    active: dict[str, list[TaskId]]
    standbys: dict[str, list[TaskId]]
    warmups: dict[str, list[TaskId]]


def plan(
    workers: Sequence[Worker],
    tasks: Sequence[TaskId],
    stateful: frozenset[str],
    standbys: int = 0,
    warmups_max: int = WARMUPS_MAX,
) -> Plan:
    """Assign every task that a worker knows. stateful: the sub-topologies with tables; standbys: copies of each of
    their tasks. The result depends on what is given alone, not on its order."""
    workers = sorted(workers, key=lambda each: each.id)
    made = Plan({each.id: [] for each in workers}, {each.id: [] for each in workers}, {each.id: [] for each in workers})
    by_id = {each.id: each for each in workers}
    even = _even(workers, sorted(tasks))
    moves: list[tuple[TaskId, str, str]] = []
    for task in sorted(even):
        wanted = even[task]
        if task.subtopology in stateful and not by_id[wanted].is_ready(task):
            ready = [each for each in workers if task.subtopology in each.knows and each.is_ready(task)]
            if ready:
                keeper = next((each for each in ready if task in each.runs), ready[0])
                moves.append((task, keeper.id, wanted))
                made.active[keeper.id].append(task)
                continue
        made.active[wanted].append(task)
    for task, _, wanted in moves[:warmups_max]:
        made.warmups[wanted].append(task)
    _add_standbys(made, workers, [task for task in sorted(even) if task.subtopology in stateful], standbys)
    return made


def _even(workers: Sequence[Worker], tasks: Iterable[TaskId]) -> dict[TaskId, str]:
    """An owner for each task, so that of each sub-topology, and of all, nobody has two more than another one who could
    have them; who has a task keeps it where that allows."""
    load = dict.fromkeys((each.id for each in workers), 0)
    found: dict[TaskId, str] = {}
    groups: dict[str, list[TaskId]] = {}
    for task in tasks:
        groups.setdefault(task.subtopology, []).append(task)
    for name in sorted(groups):
        able = [each for each in workers if name in each.knows]
        if not able:
            continue
        here = dict.fromkeys((each.id for each in able), 0)
        least, more = divmod(len(groups[name]), len(able))
        left: list[TaskId] = []
        larger = 0  # workers that have one more than the least
        for task in groups[name]:
            owners = [each.id for each in able if task in each.runs]
            owner = owners[0] if len(owners) == 1 else None
            if owner is not None and (here[owner] < least or (here[owner] == least and larger < more)):
                larger += here[owner] == least
                here[owner] += 1
                found[task] = owner
            else:
                left.append(task)
        for task in left:
            owner = min(
                able, key=lambda each: (here[each.id], not each.is_ready(task), load[each.id] + here[each.id], each.id)
            ).id
            here[owner] += 1
            found[task] = owner
        for id, count in here.items():
            load[id] += count
    return found


def _add_standbys(made: Plan, workers: Sequence[Worker], tasks: Sequence[TaskId], standbys: int) -> None:
    """Copies on other workers: first where one is already, then where the fewest are."""
    owner = {task: id for id, each in made.active.items() for task in each}
    for task in tasks:
        able = [each for each in workers if task.subtopology in each.knows and each.id != owner.get(task)]
        able.sort(key=lambda each: (task not in each.lags, len(made.standbys[each.id]), each.id))
        for each in able[:standbys]:
            if task not in made.warmups[each.id]:
                made.standbys[each.id].append(task)
