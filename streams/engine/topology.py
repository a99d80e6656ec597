"""The topology of an app: which of its input topics belong together, and so what its tasks are. Pure.

Topics that an agent reads belong together where the agent uses a table, and so do topics of agents that share a table:
the records of a key must meet the rows of that key in one task. Such topics need the same number of partitions. All
other topics are a sub-topology of their own, so that their numbers of partitions may differ, and grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .task import TaskId


@dataclass(frozen=True)
class Reader:
    """An agent, or a chain of operators: what it reads, and the tables that it uses. is_joining: it needs the topics
    that it reads in one task, even without a table."""

    name: str
    topics: tuple[str, ...]
    tables: tuple[str, ...] = ()
    is_joining: bool = False


@dataclass(frozen=True)
class SubTopology:
    """Topics and tables that belong together. name: of its topics."""

    topics: tuple[str, ...]
    tables: tuple[str, ...]
    readers: tuple[str, ...]

    @property
    def name(self) -> str:
        return "+".join(self.topics)


class Topology:
    """The sub-topologies of an app, by name, in the order of their topics' names."""

    def __init__(self, app: str, readers: Sequence[Reader]) -> None:
        self.app = app
        self.readers = tuple(readers)
        self.subtopologies = {each.name: each for each in _connected(readers)}
        self._of_topic = {topic: each for each in self.subtopologies.values() for topic in each.topics}
        self._of_table = {table: each for each in self.subtopologies.values() for table in each.tables}

    def of_topic(self, topic: str) -> SubTopology:
        return self._of_topic[topic]

    def of_table(self, table: str) -> SubTopology | None:
        """None: no agent was seen to use it."""
        return self._of_table.get(table)

    def is_tied(self, each: SubTopology) -> bool:
        """Whether its topics need the same number of partitions."""
        return bool(each.tables) or len(each.topics) > 1

    @property
    def topics(self) -> list[str]:
        return sorted(self._of_topic)

    def task_of(self, topic: str, partition: int) -> TaskId:
        return TaskId(self._of_topic[topic].name, partition)


def _connected(readers: Iterable[Reader]) -> list[SubTopology]:
    """The connected components of topics and tables."""
    parent: dict[tuple[str, str], tuple[str, str]] = {}

    def root(node: tuple[str, str]) -> tuple[str, str]:
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = node = parent[parent[node]]
        return node

    for reader in readers:
        topics = [("topic", topic) for topic in reader.topics]
        tied = [*topics, *(("table", table) for table in reader.tables)]
        for node in tied:
            root(node)
        if reader.tables or reader.is_joining:
            for node in tied[1:]:
                parent[root(node)] = root(tied[0])
    members: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for node in parent:
        members.setdefault(root(node), []).append(node)
    found = []
    for nodes in members.values():
        topics_of = tuple(sorted(name for kind, name in nodes if kind == "topic"))
        tables_of = tuple(sorted(name for kind, name in nodes if kind == "table"))
        who = tuple(reader.name for reader in readers if set(reader.topics) & set(topics_of))
        found.append(SubTopology(topics_of, tables_of, who))
    return sorted(found, key=lambda each: each.topics)
