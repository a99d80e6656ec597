"""How an app is laid out over the partitions that its topics have now.

Where topics that belong together have different numbers of partitions, or other ones than the tables with them, those
that do not fit go through a *bridge*: a topic of the app, `<app>-<topic>-copartitioned`, with the number that is
needed. Its records have the keys, values, times and headers of the topic's, and each is there exactly once. So an input
may grow while its tables stay as they are.

Topics that belong together must also agree on the partition of a key. What the app itself writes to such a topic goes
where the first topic of others there would have it: encoded, and hashed, as its keys are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...client import TopicPartition
from ..api.agents import Agent
from ..api.app import App, watermarks_of
from ..api.topics import Place, Topic
from ..engine import topic_names
from ..engine.datacenters import Rule, Source
from ..engine.described import BRIDGED_BY, digest_of
from ..engine.event import Event
from ..engine.graph import Chain, Kind, Node, Output, awaited_topics, part_of
from ..engine.origin import Origins
from ..engine.partitioning import KeyRule, Places, differing, partition_of, told
from ..engine.task import Task, TaskId
from ..engine.time import Clocks, Watermarks
from ..engine.topology import Reader, SubTopology, Topology
from ..errors import ChangeRefused
from .declaring import NEWER_OPTIONS
from .lane import Chained, Parts, Writer

# Of topics between two steps, as Kafka Streams has them: nothing goes unread, and what was read goes (`purging.py`).
# Where nothing is purged, too: a retention goes by the times of events, and would delete old ones before they are read.
# And a record has the event's time, which may be in the future or long ago, and a heartbeat of a task that knows no
# time has 0. Brokers take an hour of the future by default (KIP-937), and would refuse the whole transaction, again and
# again. A broker that does not know these options makes the topic without them (`declaring.py`).
BETWEEN_OPTIONS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "segment.bytes": str(50 * 1024 * 1024),
    **dict.fromkeys(NEWER_OPTIONS, str((1 << 63) - 1)),
}


def between_options(app: App, topic: str) -> Mapping[str, str]:
    """Of a topic of the app: nothing, unless it is between two steps."""
    if topic_names.kind_of(app.id, topic) not in topic_names.BETWEEN:
        return {}
    return BETWEEN_OPTIONS


def reset_of(app: App, topic: str) -> str:
    """Where a topic is read from that has no position: one between two steps from its beginning, since the app may have
    written there before its tasks know where they begin."""
    is_between = topic_names.kind_of(app.id, topic) in topic_names.BETWEEN
    return "earliest" if is_between else app.conf.consumer_auto_offset_reset


@dataclass(frozen=True)
class Reading:
    """An agent, and the topics that it reads in this layout."""

    agent: Agent
    topics: frozenset[str]


@dataclass(frozen=True)
class Layout:
    """topics: declarations of all that is read, by name; counts: their partitions; bridges: names of bridges -> how
    many partitions they have; bridged: topics -> their bridges; bridged_by: tables that have records of bridges -> by
    which rule, as markers have it; tables: -> how many partitions their changelogs have;
    direct: topics whose partitions are those of tables; chains: parts of the pipelines, and bridges; awaited: by node,
    `awaited_topics`; origins: where the input is from; apart: topics that are read together and are declared to be
    partitioned by different rules."""

    app: App
    topology: Topology
    topics: Mapping[str, Topic]
    counts: Mapping[str, int]
    readings: tuple[Reading, ...]
    bridges: Mapping[str, int]
    bridged: Mapping[str, str]
    bridged_by: Mapping[str, str]
    tables: Mapping[str, int]
    direct: frozenset[str]
    chains: tuple[tuple[Node, ...], ...]
    awaited: Mapping[str, frozenset[str]]
    origins: Origins
    apart: tuple[str, ...]

    @classmethod
    def of(
        cls, app: App, counts: Mapping[str, int], tables: Mapping[str, int], origins: Origins | None = None
    ) -> Layout:
        """counts: partitions of the input topics; tables: those of changelogs that exist, by table."""
        declared = app.topology()
        said = {name: spec.partitions for name, spec in app.all_tables().items() if spec.partitions}
        wanted = {**said, **tables}
        topics = dict(app.input_topics())
        bridged: dict[str, str] = {}  # topic -> bridge
        bridges: dict[str, int] = {}
        bridged_by: dict[str, str] = {}
        direct: list[str] = []
        apart: list[str] = []
        bridging: list[tuple[Node, ...]] = []
        sizes: dict[str, int] = {}
        for each in declared.subtopologies.values():
            _check_sizes(app.id, each, tables)
            size = _size(each, counts, wanted)
            sizes.update(dict.fromkeys(each.tables, size))
            if not declared.is_tied(each):
                continue
            fitting = [name for name in each.topics if counts[name] == size]
            direct += fitting
            # What the app writes itself goes where the others have their keys, unless it says otherwise; where all of
            # these have grown, to where they had their keys before.
            saying = [name for name in each.topics if not topics[name].is_internal or topics[name].partitioner]
            ruling = [name for name in saying if name in fitting] or saying or fitting or each.topics
            rules = {name: app.partitioner_of(topics[name]) for name in ruling}
            if differ := differing({name: rule for name, rule in rules.items() if name in fitting}):
                apart.append(differ)
            for name in each.topics:
                if name not in fitting:
                    bridge = topic_names.bridge(app.id, name)
                    bridged[name], bridges[bridge] = bridge, size
                    topics[bridge] = topics[name].derive(bridge, size)
                    topics[bridge].partitioner = rules[ruling[0]]
                    bridged_by.update(dict.fromkeys(each.tables, told(rules[ruling[0]])))
                    topics[name] = topics[name].as_events()
                    bridging.append(_bridge(name, bridge))

        def now(names: Iterable[str]) -> tuple[str, ...]:
            return tuple(sorted(bridged.get(name, name) for name in names))

        readings = [Reading(each, frozenset(now(each.reads.names))) for each in app.all_agents()]
        readers = [Reader(each[-1].name, each[0].topics) for each in bridging]
        readers += [replace(reader, topics=now(reader.topics)) for reader in declared.readers]
        chains = [
            tuple(replace(node, topics=now(node.topics)) if node.kind is Kind.TOPIC else node for node in part)
            for part in app.pipeline.graph.parts()
        ]
        read = frozenset(topic for part in chains for topic in _read(part))
        for bridge in read.intersection(bridges):
            topics[bridge].has_heartbeats = True
        chains += bridging
        topology = Topology(app.id, readers)
        origins = origins or Origins(app.datacenter)
        return cls(
            app,
            topology,
            topics,
            {**counts, **bridges},
            tuple(readings),
            bridges,
            bridged,
            bridged_by,
            sizes,
            frozenset(direct),
            tuple(chains),
            awaited_topics(chains),
            origins,
            tuple(apart),
        )

    def subtopology(self, id: TaskId) -> SubTopology:
        return self.topology.subtopologies[id.subtopology]

    def task_of(self, tp: TopicPartition) -> TaskId:
        return self.topology.task_of(*tp)

    def knows(self, tp: TopicPartition) -> bool:
        """Whether it belongs to a task."""
        if tp.topic not in self.topics:
            return False
        tables = self.topology.of_topic(tp.topic).tables
        return not tables or tp.partition < self.tables[tables[0]]

    def partitions(self, ids: Iterable[TaskId]) -> list[TopicPartition]:
        """What tasks read."""
        return [TopicPartition(topic, id.partition) for id in ids for topic in self.subtopology(id).topics]

    def tables_of(self, id: TaskId) -> Collection[str]:
        """Without any where there is no such task."""
        found = self.topology.subtopologies.get(id.subtopology)
        return frozenset(() if found is None else found.tables)

    def rule_of(self, subtopology: str) -> KeyRule:
        """By which a key's records, and so its rows, are in one of its partitions."""
        names = self.topology.subtopologies[subtopology].topics
        given = [name for name in names if self._is_given(name)]
        return self.app.partitioner_of(self.topics[(given or names)[0]])

    def places(self) -> dict[str, Places]:
        """Topics whose records must be where their keys belong: those that are read together with others."""
        return {
            name: Places(self.app.id, name, self.app.partitioner_of(self.topics[name]))
            for each in self.topology.subtopologies.values()
            if len(each.topics) > 1
            for name in each.topics
            if name in self.direct and self._is_given(name)
        }

    def described(self, subtopology: str) -> dict[str, Any]:
        """What a sub-topology is, for the markers of its tasks."""
        each = self.topology.subtopologies[subtopology]
        specs = self.app.all_tables()
        rules = [self.bridged_by[name] for name in each.tables if name in self.bridged_by]
        return ({BRIDGED_BY: rules[0]} if rules else {}) | {
            "digest": digest_of(each.topics, {name: specs[name].description for name in each.tables}),
            "guarantee": self.app.conf.processing_guarantee,
            "reads": {name: self._topics_of(name) for name in each.tables},
            "readers": sorted({reader.name for reader in self.app.topology().readers}),
        }

    def _topics_of(self, table: str) -> list[str]:
        """The topics of whose records a table has something: those of all that use it."""
        return sorted({topic for each in self.topology.readers if table in each.tables for topic in each.topics})

    def parts(self, task: Task) -> Parts:
        """What a task runs. Its stores have been filled."""
        topics = frozenset(self.topology.subtopologies[task.id.subtopology].topics)
        readers = [(each.agent, each.topics) for each in self.readings if not each.topics.isdisjoint(topics)]
        chained = [self._chained(part, task, topics) for part in self.chains if not topics.isdisjoint(_read(part))]
        agents = {each.node: each for each in self.app.agents if each.node is not None}
        behind = {name: agents[name] for each in chained for name in each.agents}
        return Parts(readers, behind, chained, in_order=any(each.is_joining for each in chained))

    def _chained(self, part: tuple[Node, ...], task: Task, its: frozenset[str]) -> Chained:
        topics = _read(part) & its
        tables = [watermarks_of(part), *(spec.name for node in part for spec in node.specs)]
        is_kept = not task.stores.keys().isdisjoint(tables)  # bridges have none of them
        kept = task.watermarks.setdefault(self._declared(part), {}) if is_kept else None
        upstreams = {name: self._writers(name) for name in topics if self.topics[name].has_heartbeats}
        by = self.app.watermarks if self._is_timed(part) else None
        clocks: dict[frozenset[str], Watermarks] = {}
        for node in part:
            awaited = self.awaited[node.name] & topics
            if awaited not in clocks:
                clocks[awaited] = Watermarks(
                    sorted(awaited),
                    kept=kept,
                    names=None if by is None else {name: self.origins.datacenter_of(name) for name in topics},
                    bounds_ms={name: self.topics[name].watermark_delay_ms for name in topics},
                    upstreams={name: writers for name, writers in upstreams.items() if name in awaited},
                    prefix="" if awaited == topics else f"{' '.join(sorted(awaited))} ",
                )
        of = {node.name: clocks[self.awaited[node.name] & topics] for node in part}
        first = of[part[0].name]
        stores: dict[str, Any] = {**self.app.global_stores, **task.stores}  # operators read the former only
        tasks = self._tasks_of(task.id.subtopology)
        chain = Chain(part, stores, first, task.partition, others=of, tasks=tasks)
        return Chained(
            chain,
            topics,
            {node.name: self._written(node) for node in part if node.kind in (Kind.SINK, Kind.REPARTITION)},
            tuple(node.name for node in part if node.kind is Kind.AGENT),
            any(node.is_joining for node in part),
            self.app.on_error,
            None if by is None else Rule(self.app.id, by, self._mirrored(topics), Clocks(clocks.values())),
            Writer(task.id.subtopology, task.partition, tasks),
            {name: self.topics[name].idle_after_ms for name in topics},
        )

    def _declared(self, part: Sequence[Node]) -> str:
        """The name of a part in any layout: of what it reads where nothing is bridged."""
        declared = {bridge: topic for topic, bridge in self.bridged.items()}
        return part_of(replace(node, topics=tuple(declared.get(name, name) for name in node.topics)) for node in part)

    @staticmethod
    def _is_timed(part: Sequence[Node]) -> bool:
        """Whether anything depends on its watermark."""
        return any(node.specs or node.kind is Kind.REPARTITION for node in part)

    def _writers(self, topic: str) -> dict[str, int]:
        """The sub-topologies whose tasks write a topic of the app, and how many tasks each has."""
        found: dict[str, int] = {}
        for part in self.chains:
            if any(node.kind is Kind.REPARTITION and node.topics == (topic,) for node in part):
                names = {self.topology.of_topic(name).name: None for name in sorted(_read(part))}
                found |= {name: self._tasks_of(name) for name in names}
        return found

    def _tasks_of(self, subtopology: str) -> int:
        return max(self.counts[name] for name in self.topology.subtopologies[subtopology].topics)

    def _written(self, node: Node) -> Topic:
        """The topic that a node writes, and where in it records go."""
        [name] = node.topics
        topic = self.topics[name] if name in self.topics else self.app.declaration(name)
        if node.kind is not Kind.REPARTITION:
            return topic.partitioned_by(node.partitioner)
        placed = copy.copy(topic.partitioned_by(node.partitioner))
        has_rule = name not in self.bridges and placed.partitioner is not None
        placed.place = _bridged if self._is_given(name) or has_rule else self._place(name)
        if topic.place is not None:
            placed.place = partial(_first_of, topic.place, placed.place)
        return placed

    def place_in(self, name: str) -> Place | None:
        """Where records go in a topic of the app that has them elsewhere than by their own keys; None: it has not."""
        nodes = (node for part in self.chains for node in part if node.kind is Kind.REPARTITION)
        writer = next((node for node in nodes if node.topics == (name,)), None)
        place = None if writer is None else self._written(writer).place
        return None if place is _bridged else place

    def _is_given(self, name: str) -> bool:
        """Whether the keys of a topic, or of what a bridge brings, are others': the app has no say in them."""
        brought = next((topic for topic, bridge in self.bridged.items() if bridge == name), name)
        return not self.topics[brought].is_internal

    def _place(self, name: str) -> Place:
        """Where records go in a topic of the app: where the topics of others that it belongs with have their keys."""
        others = [each for each in self.topology.of_topic(name).topics if self._is_given(each)]
        if not others:
            return _bridged
        other = self.topics[others[0]]
        return partial(_as_in, other.encode_key, self.app.partitioner_of(other))

    def _mirrored(self, topics: Iterable[str]) -> dict[str, Source]:
        """The topics that mirrors bring, with their datacenters."""
        found = {}
        for name in sorted(topics):
            of = self.origins.copies.get(name)
            if of is not None and of.keeps_offsets:
                found[name] = Source(of.datacenter, self.topics[name].watermark_delay_ms)
        return found


def partitions_of(
    topic: Topic, app: App, inputs: Mapping[str, Topic], count: Callable[[str], int], default: int
) -> int:
    """How many partitions a topic of the app gets. inputs: all that it reads, by name; count: how many a topic has
    that is there, 0 otherwise; default: where nothing else says how many."""
    if topic.partitions is not None:
        return topic.partitions
    beside = [app.changelog_topic(table) for table in app.tables_beside(topic)]
    if have := [found for name in beside if (found := count(name))]:
        return max(have)
    if sources := [name for name in topic.names for name in app.sources_of(name)]:
        own = [inputs[name] for name in sources if inputs[name].is_internal]
        return max([*map(count, sources), *(partitions_of(each, app, inputs, count, default) for each in own)])
    if topic.derived_from is None:
        return default
    source = topic.derived_from
    if source.is_internal:
        return partitions_of(source, app, inputs, count, default)
    return max(map(count, source.names))


def _read(part: Iterable[Node]) -> frozenset[str]:
    return frozenset(topic for node in part if node.kind is Kind.TOPIC for topic in node.topics)


def _check_sizes(app: str, each: SubTopology, tables: Mapping[str, int]) -> None:
    """Raises ChangeRefused for tables that belong together now, and were made when they did not."""
    sizes = {name: tables[name] for name in each.tables if name in tables}
    if len(set(sizes.values())) > 1:
        said = ", ".join(f"{name} has {count}" for name, count in sorted(sizes.items()))
        raise ChangeRefused(
            f"app {app}: tables that are used together must have the same number of partitions, and {said}: their keys "
            "are not in the same tasks. Keep them apart, or let one have a new name, with which it begins empty"
        )


def _size(each: SubTopology, counts: Mapping[str, int], tables: Mapping[str, int]) -> int:
    """How many tasks it has: as many as its tables have partitions, else as many as its largest topic."""
    have = [tables[name] for name in each.tables if name in tables]
    return max(have) if have else max(counts[name] for name in each.topics)


def _bridge(topic: str, bridge: str) -> tuple[Node, ...]:
    """The part of the graph that brings a topic's records to its bridge."""
    name = f"{topic}>{bridge}"
    source = Node(f"{name} reads", Kind.TOPIC, topics=(topic,))
    return source, Node(name, Kind.REPARTITION, ((Output(source.name),),), topics=(bridge,))


def _bridged(event: Event, count: int) -> int | None:
    """By the key; what has none stays with what was beside it."""
    return event.partition % count if event.key is None else None


def _first_of(place: Place, other: Place, event: Event, count: int) -> int | None:
    found = place(event, count)
    return other(event, count) if found is None else found


def _as_in(encode: Callable[[Any], bytes | None], rule: KeyRule, event: Event, count: int) -> int | None:
    """Where another topic would have the key. Raises TypeError, ValueError for one that it cannot have."""
    key = encode(event.key)
    return event.partition % count if key is None else partition_of(key, count, rule)
