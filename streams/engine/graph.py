"""The graph of an app's operators, and the part of it that a task runs. Pure.

Nodes are added in an order in which each follows its inputs. A topic that a `group_by` writes and reads cuts the graph:
what is behind it is another part, with tasks of its own. `Graph.readers` says what belongs together, for `Topology`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from typing import Any

from ..errors import AppError
from .described import COMPUTES, GRACE, KEPT
from .event import NO_WATERMARK, Event
from .operators.operator import Context, Failed, Operator, ReadsRows, raise_failed
from .operators.processor import ProcessorOperator
from .operators.table_sources import Change, TableSource
from .partitioning import KeyRule
from .placement import BY_FIRST, BY_KEY
from .steps import in_steps
from .stores.store import Store
from .tables import TableSpec
from .time import Clocks, Lacking, Watermarks
from .topic_names import check_topic
from .topology import Reader


class Kind(Enum):
    """What a node is: a topic that is read, an operator, or the end of a chain."""

    TOPIC = "topic"
    OPERATOR = "operator"
    SINK = "sink"  # its events are written to `topic`
    REPARTITION = "repartition"  # the same, and `topic` is one of the app that another part reads
    AGENT = "agent"  # its events go to an agent


# What rows depend on: fields of operators, and of their windows.
_OF_OPERATORS = ("emit", "how", "ids")
_OF_WINDOWS = ("size_ms", "step_ms", "gap_ms", "before_ms", "after_ms")
ENDS = (Kind.SINK, Kind.REPARTITION, Kind.AGENT)


@dataclass(frozen=True)
class Output:
    """One output of a node."""

    node: str
    number: int = 0


@dataclass(frozen=True)
class Node:
    """inputs: by port, the outputs that it reads. make: returns the operator, once for each task. specs: its tables.
    topics: of a topic node, those that are read; of a sink or a repartition, the one that is written. reads: tables of
    other nodes or of the app; global_tables: those that are in all tasks. is_joining: its inputs must be
    co-partitioned, and come in the order of their times. partitions: of a repartition's topic; None: as many as its
    inputs have, or as `sized_as`, a table. partitioner: by which a sink or a repartition writes; None: its topic's.
    place: where in it an event goes, of so many; None: by its key. of_rows: the step that needs all rows of the tables
    whose changes the node reads, by its name; None: changes are enough."""

    name: str
    kind: Kind
    inputs: tuple[tuple[Output, ...], ...] = ()
    make: Callable[[], Operator] | None = None
    specs: tuple[TableSpec, ...] = ()
    topics: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    global_tables: tuple[str, ...] = ()
    is_joining: bool = False
    partitions: int | None = None
    partitioner: KeyRule | None = None
    sized_as: str | None = None
    place: Callable[[Event, int], int | None] | None = None
    of_rows: str | None = None

    @property
    def sources(self) -> list[Output]:
        return [output for port in self.inputs for output in port]


def made_by(operator: Operator) -> dict[str, Any]:
    """What makes the rows of an operator's tables."""
    windows, aggregation = getattr(operator, "windows", None), getattr(operator, "aggregation", None)
    said: dict[str, Any] = {"step": type(operator).__name__}
    if aggregation is not None:
        said[COMPUTES] = aggregation.computes
        if windows is None:  # else they are in the rows of windows, whatever is given of them
            said["accumulators"] = "the rows" if aggregation.result is None else "in a table of their own"
    if windows is not None and hasattr(windows, GRACE):
        said[GRACE] = windows.grace_ms
        retention_ms = getattr(windows, "retention_ms", None)  # from a window's start on
        said[KEPT] = windows.grace_ms if retention_ms is None else retention_ms - windows.size_ms
    fields = ((operator, _OF_OPERATORS), (windows, _OF_WINDOWS))
    return said | {name: getattr(of, name) for of, names in fields for name in names if hasattr(of, name)}


def part_of(nodes: Iterable[Node]) -> str:
    """The name of nodes that hang together: of the topics that they read."""
    return "+".join(sorted({topic for node in nodes if node.kind is Kind.TOPIC for topic in node.topics}))


@dataclass
class Graph:
    """All nodes of an app, and their tables, by name."""

    app: str
    nodes: dict[str, Node] = field(default_factory=dict)
    specs: dict[str, TableSpec] = field(default_factory=dict)  # the tables of all operators

    def add(self, node: Node) -> None:
        """Raises AppError for a name, or a table, that another node has, and for topics that cannot be."""
        for topic in node.topics:
            check_topic(topic)
        if node.name in self.nodes:
            raise AppError(
                f"app {self.app}: two steps are called {node.name}, which is made of what they do and what they read. "
                "Give one of them a name=, which must stay the same: tables and topics are named after it"
            )
        for spec in node.specs:
            if spec.name in self.specs:
                raise AppError(
                    f"app {self.app}: step {node.name} would have table {spec.name}, which another step has: give it "
                    "another name="
                )
            self.specs[spec.name] = spec
        self.nodes[node.name] = node

    def readers(self) -> list[Reader]:
        """One for each part of the graph that hangs together: the topics that it reads, and all its tables."""
        return [self.reader(part) for part in self.parts()]

    def tables(self) -> dict[str, TableSpec]:
        """The tables of all operators, by name, with what they belong to."""
        for part in self.parts():
            name = part_of(part)
            for node in part:
                for spec in node.specs:
                    spec.part, spec.feeds, spec.rows_of = name, {}, []
                    spec.made_by = {} if node.make is None else made_by(node.make())
        following = self._following()
        for node in self.nodes.values():
            for table in (output.node for output in node.sources if node.of_rows is not None):
                behind = self._behind(node, following)
                self.specs[table].feeds = {**self.specs[table].feeds, str(node.of_rows): behind}
                for name in behind:
                    spec = self.specs[name]
                    spec.rows_of = sorted({*spec.rows_of, table})
        return dict(self.specs)

    def _following(self) -> dict[str, list[Node]]:
        """By node: those that read what it gives, itself or from the topic of the app that it writes."""
        found: dict[str, list[Node]] = {}
        writers = {each.topics[0]: each.name for each in self.nodes.values() if each.kind is Kind.REPARTITION}
        for node in self.nodes.values():
            names = [output.node for output in node.sources]
            if node.kind is Kind.TOPIC:
                names = [writers[topic] for topic in node.topics if topic in writers]
            for name in dict.fromkeys(names):
                found.setdefault(name, []).append(node)
        return found

    @staticmethod
    def _behind(node: Node, following: Mapping[str, list[Node]]) -> list[str]:
        """The first tables that are made of what a node gives."""
        found: dict[str, None] = {}
        waiting = [node]
        while waiting:
            at = waiting.pop()
            if at.specs:
                found[at.name] = None
            else:
                waiting += following.get(at.name, ())
        return sorted(found)

    def keyed_by(self) -> dict[str, set[str]]:
        """Tables of steps whose rows have the keys of records as they are in topics of others, and these topics."""
        own = {topic for node in self.nodes.values() if node.kind is Kind.REPARTITION for topic in node.topics}
        found = {}
        for node in self.nodes.values():
            by_key = [spec.name for spec in node.specs if spec.placement in (BY_KEY, BY_FIRST)]
            topics = self._keys_of(node) if by_key else None
            if topics and topics.isdisjoint(own):
                found.update(dict.fromkeys(by_key, topics))
        return found

    def _keys_of(self, node: Node) -> set[str] | None:
        """The topics of whose records a node has the keys; None where a step of the app's own makes them."""
        if node.kind is Kind.TOPIC:
            return set(node.topics)
        if node.make is not None and isinstance(node.make(), ProcessorOperator):
            return None
        found: set[str] = set()
        for output in node.sources:
            topics = self._keys_of(self.nodes[output.node])
            if topics is None:
                return None
            found |= topics
        return found

    def made_from(self, topic: str) -> list[str]:
        """The topics of whose records nodes make those of a topic of the app; none where no node does."""
        found: dict[str, None] = {}
        waiting = [each for each in self.nodes.values() if each.kind is Kind.REPARTITION and each.topics == (topic,)]
        while waiting:
            node = waiting.pop()
            if node.kind is Kind.TOPIC:
                found.update(dict.fromkeys(node.topics))
            waiting += [self.nodes[output.node] for output in node.sources]
        return list(found)

    def is_read(self, name: str) -> bool:
        """Whether a node reads this one."""
        return any(output.node == name for node in self.nodes.values() for output in node.sources)

    def reader(self, part: Sequence[Node], more_tables: Sequence[str] = ()) -> Reader:
        """What a part reads. more_tables: that it uses besides those of its nodes."""
        topics = [topic for node in part if node.kind is Kind.TOPIC for topic in node.topics]
        tables = [spec.name for node in part for spec in node.specs]
        reads = [table for node in part for table in node.reads]
        name = next((node.name for node in part if node.kind is not Kind.TOPIC), part[0].name)
        return Reader(
            name,
            tuple(dict.fromkeys(topics)),
            tuple(dict.fromkeys([*tables, *reads, *more_tables])),
            any(node.is_joining for node in part),
        )

    def parts(self) -> list[list[Node]]:
        """The nodes that hang together by inputs, or by tables of each other, each in the order of their declaration.
        Topics that nothing reads are left out."""
        parent = {name: name for name in self.nodes}

        def root(name: str) -> str:
            while parent[name] != name:
                parent[name] = name = parent[parent[name]]
            return name

        owners = {spec.name: node.name for node in self.nodes.values() for spec in node.specs}
        for node in self.nodes.values():
            tied = [output.node for output in node.sources] + [owners[table] for table in node.reads if table in owners]
            for other in tied:
                parent[root(node.name)] = root(other)
        found: dict[str, list[Node]] = {}
        for node in self.nodes.values():
            found.setdefault(root(node.name), []).append(node)
        return [part for part in found.values() if any(node.kind is not Kind.TOPIC for node in part)]


def awaited_topics(parts: Sequence[Sequence[Node]]) -> dict[str, frozenset[str]]:
    """The topics of which the watermark of each node is made: all that its part reads, with two exceptions.

    Where parts write topics for each other in a circle, as those of a foreign key join do, each would wait for itself.
    A node waits for such a topic only if its events come from there. And events that only go through the part, to a
    topic of the app, have nothing to do with the others that it reads.
    """
    reads = [frozenset(topic for node in part if node.kind is Kind.TOPIC for topic in node.topics) for part in parts]
    written = [
        frozenset(topic for node in part if node.kind is Kind.REPARTITION for topic in node.topics) for part in parts
    ]
    behind = [{number for number, its in enumerate(reads) if its & topics} for topics in written]
    for _ in parts:
        for numbers in behind:
            numbers.update(*(behind[number] for number in list(numbers)))
    found: dict[str, frozenset[str]] = {}
    for number, part in enumerate(parts):
        circle = [other for other in behind[number] if number in behind[other]]
        circular = reads[number] & _union(written[other] for other in circle)
        owners = {spec.name: node.name for node in part for spec in node.specs}
        come: dict[str, frozenset[str]] = {}  # node -> topics that its events come from
        for node in part:
            before = [output.node for output in node.sources] + [owners[name] for name in node.reads if name in owners]
            come[node.name] = (
                frozenset(node.topics) if node.kind is Kind.TOPIC else _union(come[name] for name in before)
            )
            found[node.name] = (reads[number] - circular) | (come[node.name] & circular)
        for name in _passing(part):
            found[name] = come[name]
    return found


def _passing(part: Sequence[Node]) -> set[str]:
    """Nodes from topics to a topic of the app with nothing between them that has a table or reads one."""
    plain: dict[str, Node] = {}
    for node in part:
        if not node.specs and not node.reads and all(output.node in plain for output in node.sources):
            plain[node.name] = node
    found: set[str] = set()
    waiting = [node for node in plain.values() if node.kind is Kind.REPARTITION]
    while waiting:
        node = waiting.pop()
        found.add(node.name)
        waiting += [plain[output.node] for output in node.sources]
    return found


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


Given = dict[str, list[Event]]  # end -> its events, in order


class _Domain:
    """Nodes with one watermark. before_ms: what it was before the present call."""

    def __init__(self, watermarks: Watermarks, context: Context) -> None:
        self.watermarks = watermarks
        self.before_ms = watermarks.watermark_ms
        self.context = context
        self.context.watermark_ms = watermarks.watermark_ms
        self.refresh()

    def refresh(self) -> None:
        self.context.stream_time_ms = self.watermarks.stream_time_ms
        self.context.lacking = self.watermarks.lacking

    def as_here(self, watermark_ms: int, other: _Domain) -> int:
        """This watermark when that of another domain, whose events come here, was this one."""
        if other is self:
            return watermark_ms
        return max(self.before_ms, min(watermark_ms, self.watermarks.least_beside(other.watermarks)))


class Chain:
    """A part of the graph in one task. Its calls return what is for sinks, repartitions and agents.

    nodes: of the part, in the graph's order. stores: of all its tables. watermarks: of its nodes; others: of nodes with
    other ones, by name. tasks: how many have this part. Nothing is written but to the stores, so a call whose changes
    are rolled back may be made again on a new chain.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        stores: Mapping[str, Store],
        watermarks: Watermarks,
        partition: int = 0,
        failed: Failed = raise_failed,
        others: Mapping[str, Watermarks] | None = None,
        tasks: int = 1,
    ) -> None:
        nodes = tuple(nodes)
        domains = {
            id(each): _Domain(each, Context(stores, partition, failed, tasks))
            for each in (watermarks, *(others or {}).values())
        }
        self._domains = list(domains.values())
        self._domain = {node.name: domains[id((others or {}).get(node.name, watermarks))] for node in nodes}
        versions = self._domains[0].context.versions
        for domain in self._domains:
            domain.context.versions = versions
        self.clocks = Clocks(each.watermarks for each in self._domains)
        self.operators: dict[str, Operator] = {}
        self._nodes = [node for node in nodes if node.kind is not Kind.TOPIC]
        self._topics: dict[str, list[str]] = {}  # topic -> nodes that read it
        for node in nodes:
            if node.kind is Kind.TOPIC:
                for topic in node.topics:
                    self._topics.setdefault(topic, []).append(node.name)
        for node in self._nodes:
            if node.make is not None:
                operator = self.operators[node.name] = node.make()
                operator.open(self._domain[node.name].context)
        self._unread = [each for each in self.operators.values() if isinstance(each, ReadsRows)]
        self._holds, self._behind = self._added_holds()
        self._one_by_one = {topic for topic, names in self._topics.items() if self._meets_its_table(names)}

    def read(self) -> Generator[None, None, None]:
        """Have the operators look at what was restored, in steps of some rows: before anything else. The second time
        there is nothing to do."""
        unread, self._unread = self._unread, []
        for operator in unread:
            yield from operator.read()

    def on_failure(self, failed: Failed) -> None:
        """What is told of functions of the app that fail."""
        for domain in self._domains:
            domain.context.on_failed = failed

    def process(self, topic: str, events: list[Event], wall_ms: int) -> Given:
        """Events of one of the part's topics. Of several topics, a task gives runs of them in the order of time."""
        names = self._topics.get(topic, ())
        if not names:
            return {}
        home = self._domain[names[0]]
        for domain in self._domains:
            domain.context.wall_ms, domain.before_ms = wall_ms, domain.watermarks.watermark_ms
            if domain is not home and domain.watermarks.has(topic):
                _received(domain.watermarks, topic, events)
        events = _received(home.watermarks, topic, events)
        for domain in self._domains:
            domain.refresh()
        given = {Output(name): self._as_home(name, home, events) for name in names}
        if topic not in self._one_by_one:
            return self._run(given)
        ends: Given = {}
        for number, event in enumerate(events):
            run = self._run({output: [its[number]] for output, its in given.items()}, event.watermark_ms, home)
            for end, more in run.items():
                ends.setdefault(end, []).extend(more)
        if not events or events[-1].watermark_ms < home.watermarks.watermark_ms:  # heartbeats came after them
            for end, more in self._run({}).items():
                ends.setdefault(end, []).extend(more)
        return ends

    def complete(self, topic: str, watermark_ms: int) -> Given:
        """A topic is complete up to this event time."""
        self.clocks.complete(topic, watermark_ms)
        return self.advance()

    def advance(self) -> Given:
        """Watermarks were moved by something other than events."""
        for domain in self._domains:
            domain.refresh()
        return self._run({})

    def tick(self, wall_ms: int, idle: Iterable[str] = ()) -> Given:
        """The wall clock has moved. idle: topics that have had nothing to read for long enough: until their next event
        they are not waited for, or windows of the others would not close."""
        for topic in sorted(idle, key=self.clocks.source):  # what all of them have is complete
            self.clocks.idle(topic)
        for domain in self._domains:
            domain.context.wall_ms = wall_ms
            domain.refresh()
        return self._run({}, wall_ms=wall_ms)

    def fill(self, feeds: Mapping[str, Collection[str]]) -> Iterator[Given]:
        """Give steps that are new all rows of tables, before any event. feeds: by table, the names of the steps."""
        for node in self._nodes:
            for port, outputs in enumerate(node.inputs if node.of_rows is not None else ()):
                for table in (output.node for output in outputs if node.of_rows in feeds.get(output.node, ())):
                    for some in in_steps(self._rows(table)):
                        yield self._feed(node, port, some)

    def _rows(self, table: str) -> Iterator[tuple[Any, Any]]:
        """All present rows of a table of an operator."""
        context = self._domain[table].context
        versions, rows = context.versions.get(table), context.store(table).rows
        if versions is None:
            return iter(rows.items())
        known = ((key[0], versions.get(key[0])) for key in rows if len(key) == 1)
        return ((key, version.value) for key, version in known if version is not None)

    def _feed(self, node: Node, port: int, rows: Iterable[tuple[Any, Any]]) -> Given:
        """Rows as changes from nothing, to one node alone, and what comes of them to those behind it."""
        context = self._domain[node.name].context
        watermark_ms = context.watermark_ms - self._holds[node.name]
        at_ms = max(context.stream_time_ms, watermark_ms, 0)  # no row has a time of its own
        given: dict[Output, list[Event]] = {}
        ends: Given = {}
        fed = [
            Event(key, Change(None, value), at_ms, node.name, context.partition, -1, (), watermark_ms)
            for key, value in rows
        ]
        for each in self._nodes:
            self._pass(each, given, ends, [(port, fed)] if each is node else [])
        return ends

    def told(self, node: str) -> tuple[int, bool, Lacking]:
        """What is known of the events that an end has given: up to which event time they are complete, whether none of
        its topics is waited for, and what they lack."""
        watermarks, hold_ms = self._domain[node].watermarks, self._holds[node]
        # What is held was given for the time watermark - hold_ms, too: the bound is exclusive.
        complete_ms = max(watermarks.watermark_ms - hold_ms + (hold_ms > 0), NO_WATERMARK)
        return complete_ms, watermarks.is_idle, watermarks.lacking

    def save(self) -> None:
        """Keep the watermarks, before a checkpoint."""
        for domain in self._domains:
            domain.watermarks.save()

    def _as_home(self, name: str, home: _Domain, events: list[Event]) -> list[Event]:
        """Events with the watermarks of a node that reads them, which may not be those of the topic's first one."""
        domain = self._domain[name]
        if domain is home:
            return events
        return [_stamped(event, domain.as_here(event.watermark_ms, home)) for event in events]

    def _meets_its_table(self, topics: list[str]) -> bool:
        """Whether events of these topic nodes come to a step that reads a table, and to the table as well, or rows of
        the table end as time goes on. Then each must be done with before the next, or the step would see the table as
        it is after later ones."""
        reached = set(topics)
        tables = {name for name, each in self.operators.items() if isinstance(each, TableSource) and each.ttl_ms}
        for node in self._nodes:
            if reached.intersection(output.node for output in node.sources):
                reached.add(node.name)
                if tables.intersection(node.reads):
                    return True
                tables.update(spec.name for spec in node.specs)
        return False

    def _added_holds(self) -> tuple[dict[str, int], dict[str, int]]:
        """How far the watermark of each node's inputs is behind the task's, and that of its outputs."""
        behind: dict[str, int] = {}
        found = {}
        for node in self._nodes:
            found[node.name] = max((behind.get(output.node, 0) for output in node.sources), default=0)
            operator = self.operators.get(node.name)
            behind[node.name] = found[node.name] + (operator.hold_ms if operator else 0)
        return found, behind

    def _held(self, node: Node, output: Output, events: list[Event]) -> list[Event]:
        """The events with the watermark that the node has then: another of its inputs may be further behind."""
        hold_ms, behind_ms = self._holds[node.name], self._behind.get(output.node, 0)
        here, there = self._domain[node.name], self._domain[output.node]
        if here is not there:
            return [_stamped(event, here.as_here(event.watermark_ms + behind_ms, there) - hold_ms) for event in events]
        further_ms = hold_ms - behind_ms
        return [_stamped(event, event.watermark_ms - further_ms) for event in events] if further_ms else events

    def _run(
        self,
        given: dict[Output, list[Event]],
        watermark_ms: int | None = None,
        of: _Domain | None = None,
        wall_ms: int | None = None,
    ) -> Given:
        """All nodes once, each after its inputs: their events, then the watermark, then the clock. watermark_ms: the
        one of a domain; None: all are what they are now."""
        for domain in self._domains:
            now_ms = domain.watermarks.watermark_ms
            if watermark_ms is not None and of is not None:
                now_ms = domain.as_here(watermark_ms, of)
            domain.context.watermark_ms = max(now_ms, domain.context.watermark_ms)
        ends: Given = {}
        for node in self._nodes:
            operator = self._pass(node, given, ends)
            if operator is None:
                continue
            advanced_ms = self._domain[node.name].context.watermark_ms - self._holds[node.name]
            _add(given, node.name, operator.advance(advanced_ms))
            if wall_ms is not None:
                _add(given, node.name, operator.tick(wall_ms))
        return ends

    def _pass(
        self,
        node: Node,
        given: dict[Output, list[Event]],
        ends: Given,
        more: Iterable[tuple[int, list[Event]]] = (),
    ) -> Operator | None:
        """Let a node have what is given to it, and `more` at its ports. Returns its operator; None for an end."""
        ports = [
            [self._held(node, output, given[output]) for output in port if given.get(output)] for port in node.inputs
        ]
        operator = self.operators.get(node.name)
        if operator is None:
            if ports[0]:
                ends[node.name] = _merged(ports[0])
            return None
        for port, events in (*_runs(ports), *more):
            _add(given, node.name, operator.process(port, events))
        return operator


def _received(watermarks: Watermarks, topic: str, events: list[Event]) -> list[Event]:
    """The events with their watermarks, without heartbeats."""
    if topic in watermarks.topics_told:
        return watermarks.receive(events)
    watermarks.stamp(events)
    return events


def _add(given: dict[Output, list[Event]], name: str, outputs: tuple[list[Event], ...]) -> None:
    for number, events in enumerate(outputs):
        if events:
            where = Output(name, number)
            before = given.get(where)
            given[where] = events if before is None else before + events


def _stamped(event: Event, watermark_ms: int) -> Event:
    other = event.derived(event.key, event.value)
    other.watermark_ms = watermark_ms
    return other


def _runs(ports: list[list[list[Event]]]) -> list[tuple[int, list[Event]]]:
    """The events of each port in runs. All have come of one list of events of one topic, or of time, so watermarks and
    offsets say what was first: that their branches were processed one after the other does not change their order."""
    waiting = [(port, events) for port, lists in enumerate(ports) for events in lists]
    if len(waiting) < 2:
        return waiting
    ranked = [
        (rank, port, event) for port, events in waiting for rank, event in zip(_ranks(events), events, strict=True)
    ]
    ranked.sort(key=lambda each: each[0])
    found: list[tuple[int, list[Event]]] = []
    for _, port, event in ranked:
        if found and found[-1][0] == port:
            found[-1][1].append(event)
        else:
            found.append((port, [event]))
    return found


def _merged(lists: list[list[Event]]) -> list[Event]:
    if len(lists) == 1:
        return lists[0]
    return [event for _, events in _runs([lists]) for event in events]


def _ranks(events: list[Event]) -> list[tuple[int, bool, int]]:
    """When each event, or one before it, was caused. What time has caused, without an offset, comes before the event
    that has moved the watermark there."""
    caused = ((event.watermark_ms, event.offset >= 0, event.offset) for event in events)
    return list(accumulate(caused, max))
