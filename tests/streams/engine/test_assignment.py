"""Which worker has which task: tasks stay where their tables are, until these are elsewhere, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from isthmus.streams.engine.assignment import CAUGHT_UP_ROWS, Plan, Worker, plan
from isthmus.streams.engine.task import TaskId

TASKS = [TaskId("in", number) for number in range(4)]


def worker(id: str, runs: Sequence[int] = (), lags: Mapping[int, int] | None = None) -> Worker:
    copies = {TASKS[number]: lag for number, lag in (lags or {}).items()}
    return Worker(id, frozenset(TASKS[number] for number in runs), copies, frozenset({"in"}))


def numbers(tasks: Sequence[TaskId]) -> list[int]:
    return sorted(task.partition for task in tasks)


def planned(*workers: Worker, standbys: int = 0, stateful: bool = True, warmups_max: int = 2) -> Plan:
    names = frozenset({"in"} if stateful else ())
    made = [plan(order, TASKS, names, standbys, warmups_max) for order in permutations(workers)]
    assert all(each == made[0] for each in made), "it depends on the order"
    return made[0]


def test_a_task_moves_once_a_copy_of_its_tables_has_caught_up() -> None:
    begun = planned(worker("a", range(4)), worker("b"))
    assert (numbers(begun.active["a"]), begun.active["b"], numbers(begun.warmups["b"])) == ([0, 1, 2, 3], [], [2, 3])
    later = planned(worker("a", range(4)), worker("b", lags={2: CAUGHT_UP_ROWS + 1, 3: CAUGHT_UP_ROWS}))
    assert (numbers(later.active["a"]), numbers(later.active["b"])) == ([0, 1, 2], [3])
    assert numbers(later.warmups["b"]) == [2]


def test_so_many_tables_are_copied_for_a_move_at_a_time() -> None:
    made = planned(worker("a", range(4)), worker("b"), worker("c"), worker("d"), warmups_max=2)
    assert sum(map(len, made.warmups.values())) == 2 and len(made.active["a"]) == 4


def test_a_task_that_waits_for_a_copy_stays_with_who_runs_it() -> None:
    """And does not go to a third worker meanwhile, though that one has a copy."""
    made = planned(worker("a", lags=dict.fromkeys(range(4), 0)), worker("b"), worker("c", range(4)))
    assert {id: numbers(each) for id, each in made.active.items()} == {"a": [2], "b": [], "c": [0, 1, 3]}
    assert numbers(made.warmups["b"]) == [3]


def test_tasks_without_tables_move_at_once() -> None:
    made = planned(worker("a", range(4)), worker("b"), stateful=False)
    assert (numbers(made.active["a"]), numbers(made.active["b"])) == ([0, 1], [2, 3])


def test_a_standby_is_on_another_worker_and_stays_where_it_is() -> None:
    made = planned(worker("a", (0, 1)), worker("b", (2, 3)), worker("c", lags={0: 5}), standbys=1)
    owners = {task: id for id, active in made.active.items() for task in active}
    copies = {task: id for id, each in made.standbys.items() for task in each}
    assert set(copies) == set(TASKS) and all(owners[task] != id for task, id in copies.items())
    assert {task.partition: id for task, id in copies.items()} == {0: "c", 1: "b", 2: "a", 3: "a"}
