"""The group's assignor: tells the leader what each worker has, and each worker which copies to keep and who runs what.

What members say and are told is JSON, with a version. `engine/assignment.py` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from ...client import TopicPartition
from ...client.assignors import Member, Share, cooperatively
from ..engine.assignment import Worker, plan
from ..engine.task import TaskId
from ..engine.topology import Reader, SubTopology, Topology

NAME = "isthmus-streams"
VERSION = 1


@dataclass(frozen=True)
class Here:
    """What a worker says of itself. lags: tasks whose tables it has a copy of -> rows behind. url: of its web
    server. writer: its transactional id."""

    runs: tuple[TaskId, ...]
    lags: Mapping[TaskId, int]
    url: str = ""
    writer: str = ""


@dataclass(frozen=True)
class Told:
    """What a worker is told. copies: tasks whose tables it shall have, without running them; moving: those among them
    that move here once they have caught up. waiting: sub-topologies of which it gets no task, since workers with other
    code have them. is_current: the leader knew what the worker says now; a static member that comes back with other
    code is told what was for the code before. owners, copy_owners: task -> URLs of workers. writers: transactional ids
    of all in the group."""

    copies: tuple[TaskId, ...] = ()
    moving: tuple[TaskId, ...] = ()
    waiting: tuple[str, ...] = ()
    is_current: bool = True
    owners: Mapping[TaskId, str] = field(default_factory=dict)
    copy_owners: Mapping[TaskId, tuple[str, ...]] = field(default_factory=dict)
    writers: frozenset[str] = frozenset()


def to_end(before: Told, now: Told, writer: str) -> list[str]:
    """Transactional ids of workers that the group has lost between two assignments, if it is for this one to end what
    they have open: one of those that were there before, and are. writer: its own."""
    stay = before.writers & now.writers
    return sorted(before.writers - now.writers) if stay and min(stay) == writer else []


class TaskAssignor:
    """An `Assignor` of the client. here: what this worker has now; told: called with what the leader says. digests: of
    its sub-topologies, by name; fitting: those whose state was written by the same code, as far as it knows.

    Workers with other code may be in one group, while it is changed worker by worker. Sub-topologies that they know
    alike are shared by all. Of those that they do not, tasks go to the workers with one code only: that which runs
    them, else that which fits their state. So no task goes back and forth between two versions, which would migrate its
    rows each time, and the newer code takes over when the last worker with the older one has left.
    """

    name = NAME
    is_cooperative = True

    def __init__(
        self, topology: Topology, standbys: int, here: Callable[[], Here], told: Callable[[Told], None]
    ) -> None:
        self.topology = topology
        self.digests: Mapping[str, str] = {}
        self.fitting: frozenset[str] = frozenset()
        self.standbys = standbys
        self._here = here
        self._told = told

    @property
    def _identity(self) -> str:
        """Of the code of this worker."""
        return repr(sorted((name, self.digests.get(name, "")) for name in self.topology.subtopologies))

    def user_data(self) -> bytes:
        here = self._here()
        said = {
            "version": VERSION,
            "identity": self._identity,
            "subtopologies": [
                {
                    "topics": each.topics,
                    "tables": each.tables,
                    "digest": self.digests.get(each.name, ""),
                    "fits": each.name in self.fitting,
                }
                for each in self.topology.subtopologies.values()
            ],
            "runs": [list(task) for task in here.runs],
            "lags": [[*task, lag] for task, lag in here.lags.items()],
            "url": here.url,
            "writer": here.writer,
        }
        return orjson.dumps(said)

    def assign(self, members: Mapping[str, Member], counts: Mapping[str, int]) -> Mapping[str, Share]:
        said = {id: _said(member) for id, member in members.items()}
        subtopologies, knows, waiting = _agreed(said)
        stateful = frozenset(name for name, each in subtopologies.items() if each.tables)
        workers = [
            Worker(
                id,
                frozenset(TaskId(*task) for task in one["runs"]),
                {TaskId(name, partition): lag for name, partition, lag in one["lags"]},
                frozenset(knows[id]),
            )
            for id, one in said.items()
        ]
        tasks = [
            TaskId(name, number)
            for name, each in subtopologies.items()
            for number in range(max(counts.get(topic, 0) for topic in each.topics))
        ]
        made = plan(workers, tasks, stateful, self.standbys)
        wanted: dict[str, dict[str, list[int]]] = {}
        for id, active in made.active.items():
            share = wanted.setdefault(id, {})
            for task in active:
                for topic in subtopologies[task.subtopology].topics:
                    if task.partition < counts.get(topic, 0):
                        share.setdefault(topic, []).append(task.partition)
        urls = {id: one["url"] for id, one in said.items()}
        owners = [[*task, urls[id]] for id, active in made.active.items() for task in active if urls[id]]
        copies = [[*task, urls[id]] for id, each in made.standbys.items() for task in each if urls[id]]
        writers = sorted({one.get("writer", "") for one in said.values()} - {""})
        shares = cooperatively(wanted, members)
        # Tasks that another worker has still to give up: their tables stay here until then.
        coming = {
            id: [
                task
                for task in made.active[id]
                if task.partition not in shares[id].get(subtopologies[task.subtopology].topics[0], ())
            ]
            for id in members
        }
        return {
            id: (
                shares[id],
                orjson.dumps(
                    {
                        "version": VERSION,
                        "copies": [list(task) for task in (*made.standbys[id], *made.warmups[id], *coming[id])],
                        "moving": [list(task) for task in made.warmups[id]],
                        "waiting": waiting[id],
                        "identity": said[id].get("identity", ""),
                        "owners": owners,
                        "copy_owners": copies,
                        "writers": writers,
                    }
                ),
            )
            for id in members
        }

    def on_assignment(self, partitions: list[TopicPartition], user_data: bytes) -> None:
        if not user_data:
            self._told(Told())
            return
        said = orjson.loads(user_data)
        copy_owners: dict[TaskId, tuple[str, ...]] = {}
        for name, partition, url in said["copy_owners"]:
            task = TaskId(name, partition)
            copy_owners[task] = (*copy_owners.get(task, ()), url)
        self._told(
            Told(
                tuple(TaskId(*task) for task in said["copies"]),
                tuple(TaskId(*task) for task in said["moving"]),
                tuple(said.get("waiting", ())),
                said.get("identity") == self._identity,
                {TaskId(name, partition): url for name, partition, url in said["owners"]},
                copy_owners,
                frozenset(said.get("writers", ())),
            )
        )


Known = dict[str, SubTopology]
Variant = tuple[tuple[str, str], ...]  # names and digests of sub-topologies


def _agreed(said: Mapping[str, dict[str, Any]]) -> tuple[Known, dict[str, list[str]], dict[str, list[str]]]:
    """The sub-topologies that have tasks; by member, names of those that it can run, and of those of its own that it
    must leave to other code."""
    # What one member ties is tied for all, and so is what has the same table: else two tasks would have its rows.
    readers = [
        Reader(str(number), tuple(each["topics"]), tuple(each["tables"]), is_joining=True)
        for number, each in enumerate(each for one in said.values() for each in one["subtopologies"])
    ]
    found: Known = {}
    knows: dict[str, list[str]] = {id: [] for id in said}
    waiting: dict[str, list[str]] = {id: [] for id in said}
    for region in Topology("", readers).subtopologies.values():
        topics = frozenset(region.topics)
        own = {
            id: [each for each in one["subtopologies"] if not topics.isdisjoint(each["topics"])]
            for id, one in said.items()
        }
        variants: dict[Variant, list[str]] = {}
        for id in sorted(own):
            if own[id]:
                variant = tuple(sorted((_name(each), each.get("digest", "")) for each in own[id]))
                variants.setdefault(variant, []).append(id)
        ranks: dict[Variant, tuple[int, int, Variant]] = {}
        for variant, ids in variants.items():
            names = {name for name, _ in variant}
            runs = sum(name in names for id in ids for name, _ in said[id]["runs"])
            fits = sum(bool(each.get("fits")) for id in ids for each in own[id])
            ranks[variant] = (-runs, -fits, variant)
        chosen = min(variants, key=ranks.__getitem__)
        for each in own[variants[chosen][0]]:
            found[_name(each)] = SubTopology(tuple(each["topics"]), tuple(each["tables"]), ())
        for variant, ids in variants.items():
            for id in ids:
                (knows if variant == chosen else waiting)[id] += [name for name, _ in variant]
    return found, knows, waiting


def _name(each: Mapping[str, Any]) -> str:
    return "+".join(each["topics"])


def _said(member: Member) -> dict[str, Any]:
    """What a member says; one that says nothing has nothing, and each of its topics stands alone."""
    if not member.user_data:
        topics = [{"topics": [topic], "tables": []} for topic in member.topics]
        return {"subtopologies": topics, "runs": [], "lags": [], "url": ""}
    said: dict[str, Any] = orjson.loads(member.user_data)
    return said
