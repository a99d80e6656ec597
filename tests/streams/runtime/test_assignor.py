"""Workers with different code in one group: which of them have the tasks."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from isthmus.client import TopicPartition
from isthmus.client.assignors import Member
from isthmus.streams.engine.task import TaskId
from isthmus.streams.engine.topology import Reader, Topology
from isthmus.streams.runtime.assignor import Here, TaskAssignor, Told, to_end

COUNTS = {"orders": 2, "payments": 2, "clicks": 2}
OLD = (Reader("a", ("orders",), ("totals",)), Reader("b", ("clicks",), ("seen",)))
TIED = (Reader("a", ("orders", "payments"), ("totals",)), Reader("b", ("clicks",), ("seen",)))


def worker(
    readers: Sequence[Reader], *runs: tuple[str, int], version: int = 1, fits: bool = False
) -> tuple[TaskAssignor, Member]:
    """As it joins. version: of the table `totals`."""
    told: list[Told] = []
    topology = Topology("app", readers)
    here = Here(tuple(TaskId(*each) for each in runs), {})
    made = TaskAssignor(topology, 0, lambda: here, told.append)
    made.digests = {
        name: str(version) if "totals" in each.tables else "" for name, each in topology.subtopologies.items()
    }
    made.fitting = frozenset(topology.subtopologies if fits else ())
    return made, Member(topology.topics, user_data=made.user_data())


def assigned(*workers: tuple[TaskAssignor, Member]) -> tuple[list[dict[str, list[int]]], list[list[str]]]:
    """By worker: its partitions, and the sub-topologies that it waits for."""
    members = {f"m{number}": member for number, (_, member) in enumerate(workers)}
    shares = workers[0][0].assign(members, COUNTS)
    given = [{topic: sorted(each) for topic, each in sorted(shares[id][0].items())} for id in members]
    return given, [orjson.loads(shares[id][1])["waiting"] for id in members]


def test_what_all_know_alike_is_shared() -> None:
    given, waiting = assigned(worker(OLD), worker(OLD))
    assert [set(each) for each in given] == [{"orders", "clicks"}] * 2 and waiting == [[], []]


def test_later_code_waits_for_what_earlier_code_runs_and_shares_the_rest() -> None:
    """Whoever leads, and whatever fits the state."""
    old = worker(OLD, ("orders", 0), ("orders", 1), ("clicks", 0))
    for order in (1, -1):
        workers = [old, worker(OLD, version=2, fits=True)][::order]
        given, waiting = (each[::order] for each in assigned(*workers))
        assert given == [{"clicks": [0], "orders": [0, 1]}, {"clicks": [1]}] and waiting == [[], ["orders"]]


def test_later_code_has_all_once_the_last_of_the_earlier_has_left() -> None:
    given, waiting = assigned(worker(OLD, version=2), worker(OLD, version=2))
    assert [each["orders"] for each in given] == [[0], [1]] and waiting == [[], []]


def test_where_nobody_runs_it_whoever_fits_the_state_does() -> None:
    for fits in (True, False):
        given, waiting = assigned(worker(OLD, fits=fits), worker(OLD, version=2, fits=not fits))
        assert given[0].get("orders", []) == ([0, 1] if fits else []) and waiting[fits] == ["orders"]


def test_a_table_is_in_one_task_though_the_codes_tie_it_to_other_topics() -> None:
    """Each takes its tasks from the code that runs: no half of both."""
    given, waiting = assigned(worker(TIED), worker(OLD, ("orders", 0)))
    assert "orders" not in given[0] and "payments" not in given[0]
    assert given[1]["orders"] == [0, 1] and "payments" not in given[1] and waiting == [["orders+payments"], []]
    given, waiting = assigned(worker(TIED, ("orders+payments", 0)), worker(OLD))
    assert given[0]["orders"] == given[0]["payments"] == [0, 1] and waiting == [[], ["orders"]]


def test_one_of_those_that_stay_ends_what_those_that_are_gone_have_open() -> None:
    told: list[Told] = []
    made = [
        TaskAssignor(Topology("app", OLD), 0, lambda name=name: Here((), {}, writer=name), told.append)  # type: ignore[misc]
        for name in ("app-b", "app-c", "app-a", "")
    ]
    members = {f"m{number}": Member(("orders",), user_data=each.user_data()) for number, each in enumerate(made)}
    for there in (members, {id: members[id] for id in ("m0", "m1")}, {"m1": members["m1"]}, members):
        made[0].on_assignment([], made[0].assign(there, COUNTS)[next(iter(there))][1])
    all_three, two, one, again = told
    assert all_three.writers == {"app-a", "app-b", "app-c"}, "one with earlier code says nothing"
    assert to_end(all_three, two, "app-b") == ["app-a"] and to_end(all_three, two, "app-c") == []
    assert to_end(two, one, "app-c") == ["app-b"]
    assert to_end(one, again, "app-c") == [] == to_end(Told(), all_three, "app-a") == to_end(all_three, Told(), "app-a")


def test_a_task_s_tables_are_kept_until_its_last_owner_has_given_it_up() -> None:
    """It moves here, since they have caught up; and would be restored anew if they went meanwhile."""
    orders = [TopicPartition("orders", number) for number in range(2)]
    topology = Topology("app", OLD[:1])
    runs = [TaskId("orders", number) for number in range(2)]
    first = TaskAssignor(topology, 0, lambda: Here(tuple(runs), {}), lambda told: None)
    second = TaskAssignor(topology, 0, lambda: Here((), dict.fromkeys(runs, 0)), lambda told: None)
    members = {
        "m0": Member(["orders"], owned=orders, user_data=first.user_data()),
        "m1": Member(["orders"], user_data=second.user_data()),
    }
    shares = first.assign(members, COUNTS)
    assert {id: share for id, (share, _) in shares.items()} == {"m0": {"orders": [0]}, "m1": {}}
    assert orjson.loads(shares["m1"][1])["copies"] == [["orders", 1]]


def test_what_was_assigned_to_other_code_is_not_current() -> None:
    """A static member that comes back is told what the code before was."""
    told: list[Told] = []
    before, now = (TaskAssignor(Topology("app", OLD), 0, lambda: Here((), {}), told.append) for _ in range(2))
    now.digests = {"orders": "2"}
    shares = before.assign({"m0": Member(("orders", "clicks"), user_data=before.user_data())}, COUNTS)
    for each in (before, now):
        each.on_assignment([], shares["m0"][1])
    assert [each.is_current for each in told] == [True, False]
