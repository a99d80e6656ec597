"""Pipelines: what an app declares of filters, windows, joins and tables, in place of agents that do it event by event.

    orders = pipeline.topic("orders")
    large = orders.filter(lambda order: order["total"] > 100)
    per_minute = large.group_by(lambda order: order["shop"], name="by-shop").tumbling(60).count(name="large-orders")
    per_minute.final().to("large-orders-per-minute")

These calls only add nodes to the app's graph (`engine/graph.py`); a worker or a test driver runs it. Functions get the
values of events, not the events. Times are seconds, or timedeltas.

Each step has a name. Tables and topics are named after the steps that need them, so a name must stay what it is while
an app runs on. It is given by `name=`, or made of what the step does and of what it reads, and must be the only one.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast, overload

from ..engine import topic_names
from ..engine.described import name_of
from ..engine.graph import Graph, Kind, Node, Output
from ..engine.lengths import Seconds, milliseconds
from ..engine.operators import aggregations, stateless, table_aggregate, window_keys
from ..engine.operators.aggregations import Aggregation
from ..engine.operators.dedup import Dedup
from ..engine.operators.foreign_key_join import (
    ForeignKeyRequests,
    ForeignKeyResponses,
    ForeignKeyResult,
    response_place,
)
from ..engine.operators.key_aggregate import KeyAggregate
from ..engine.operators.operator import Operator
from ..engine.operators.origin_dedup import OriginDedup
from ..engine.operators.processor import Processor, ProcessorOperator
from ..engine.operators.session_windows import SessionWindowAggregate
from ..engine.operators.sliding_windows import SlidingWindowAggregate
from ..engine.operators.stream_join import INNER, LEFT, OUTER, JoinWindows, StreamJoin
from ..engine.operators.stream_table_join import StreamTableJoin
from ..engine.operators.suppress import Suppress
from ..engine.operators.table_aggregate import TableAggregate
from ..engine.operators.table_joins import TableJoin
from ..engine.operators.table_sources import Change, TableSource, VersionedTableSource
from ..engine.operators.time_windows import TimeWindowAggregate
from ..engine.operators.windows import CURRENT, FINAL, SessionWindows, SlidingWindows, TimeWindows, WindowResult
from ..engine.partitioning import KeyRule, key_rule
from ..engine.placement import BY_FIRST, Placement
from ..engine.plain_functions import check_functions, refuse_async
from ..engine.record_rows import RecordCodec
from ..engine.table_codec import TableCodec
from ..engine.tables import MEMORY, TableSpec
from ..errors import AppError
from ..near import or_near
from . import absent, aggregates
from .aggregates import Aggregate, Of, TopN
from .host import Hosted
from .rows import TableLike, rows_at_hand
from .tables import Table

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
W = TypeVar("W")
U = TypeVar("U")
R = TypeVar("R")
Windows = TimeWindows | SlidingWindows | SessionWindows
Migrations = Mapping[int, Callable[[Any, Any], Any]]  # from a version, of a key and an accumulator
WITH_SOURCE = ("within", "before", "after", "grace")  # options of joins, as `_stream_join` has them
WITH_TABLE = ("key", "grace")  # as `_table_join` has them
TOPIC = "topic "  # names of topic nodes begin with it, so that a table may have a topic's name


def topic_output(names: Sequence[str]) -> Output:
    """The events of topics; a node for it is added with the first step that reads them."""
    return Output(TOPIC + "+".join(names))


def _rule(partitioner: Any, step: str) -> KeyRule | None:
    return None if partitioner is None else key_rule(partitioner, f"step {step}")


class Pipeline:
    """The graph of one app, and where its chains begin. store: where the rows of its steps' tables are. host: the app,
    whose worker has the rows."""

    def __init__(self, app: str, store: str = MEMORY, host: Hosted | None = None) -> None:
        self.graph = Graph(app)
        self.store = store
        self.host = host
        self.needs_origins = False  # a step asks where events are from
        self._made: dict[str, None] = {}  # names that were not given

    def topic(self, *names: str) -> Source[Any, Any]:
        """The events of one or more topics."""
        if not names:
            raise AppError(f"app {self.graph.app}: a source needs the name of a topic")
        return Source(self, topic_output(names), "-".join(names))

    def declare(self, node: Node) -> None:
        """Add a node, and the topics that it reads where they are new. Raises AppError as `Graph.add` does."""
        for output in node.sources:
            if output.node.startswith(TOPIC) and output.node not in self.graph.nodes:
                topics = tuple(output.node.removeprefix(TOPIC).split("+"))
                self.graph.add(Node(output.node, Kind.TOPIC, topics=topics))
        self.graph.add(node)

    def _add(
        self,
        name: str,
        make: Callable[[], Operator],
        *inputs: tuple[Output, ...],
        reads: Sequence[str] = (),
        global_tables: Sequence[str] = (),
        is_joining: bool = False,
        value_type: Any = None,
        of_rows: str | None = None,
    ) -> Output:
        """value_type: of the rows of the table that has the step's name. of_rows: as of its `Node`."""
        refuse_async(f"step {name}", make)
        made = make().specs  # what cannot be is said here
        specs = tuple(replace(spec, store=self.store, codec=RecordCodec(), is_untyped=True) for spec in made)
        if value_type is not None:
            codec, kind = TableCodec(value_type=value_type), name_of(value_type)
            typed = (
                replace(spec, codec=codec, is_untyped=False, value_type=kind) for spec in specs if spec.name == name
            )
            specs = (*typed, *(spec for spec in specs if spec.name != name))
        node = Node(
            name,
            Kind.OPERATOR,
            inputs,
            make,
            specs,
            reads=tuple(reads),
            global_tables=tuple(global_tables),
            is_joining=is_joining,
            of_rows=of_rows,
        )
        self.declare(node)
        return Output(name)

    def _through(self, name: str, output: Output, *, partitioner: Any = None, **options: Any) -> Output:
        """The same events, out of a topic of the app. options: of its `Node`."""
        topic, by = topic_names.repartition(self.graph.app, name), _rule(partitioner, name)
        self.declare(Node(name, Kind.REPARTITION, ((output,),), topics=(topic,), partitioner=by, **options))
        return self.topic(topic)._output

    def label(self, given: str | None, made: str) -> str:
        """The name of a step whose tables or topics are named after it. made: of what it does and reads."""
        if given is None:
            self._made[made] = None
        return given or made

    @property
    def shifting(self) -> list[str]:
        """Steps with tables or topics whose names change when a named step is put before them, or is taken away."""
        nodes = self.graph.nodes
        return [name for name in self._made if name in nodes and (nodes[name].specs or nodes[name].topics)]

    def check_other(self, what: str, other: Any) -> None:
        """Raises AppError for what a step cannot read beside its own source: what is none, or is of another app."""
        if isinstance(other, (Source, TableView)):
            is_own = other._pipeline is self
        elif isinstance(other, Table):
            is_own = other._app is self.host or None in (other._app, self.host)
        else:
            raise AppError(
                f"{what} takes a source or a table, and not {other!r}: app.stream(topic) is the source of a topic, and "
                "app.stream(topic).table(name) its table"
            )
        if not is_own:
            raise AppError(
                f"{what}: {other!r} is of another app than {self.graph.app}, and steps read what their own app "
                "declares: declare it there, or have the other app write it to a topic"
            )

    def place(self, name: str, placement: Placement) -> None:
        """Say where the rows of a step's tables are, where that is not by their keys."""
        node = self.graph.nodes[name]
        specs = tuple(replace(spec, placement=placement) for spec in node.specs)
        self.graph.nodes[name] = replace(node, specs=specs)
        self.graph.specs.update({spec.name: spec for spec in specs})

    def _free(self, name: str) -> str:
        """A name for a step without state, which may change."""
        number, free = 2, name
        while free in self.graph.nodes:
            free = f"{name}-{number}"
            number += 1
        return free


class Source(Generic[K, V]):
    """A stream: of a topic, or of what a step gives. Each call declares a step that reads it."""

    if not TYPE_CHECKING:  # type checkers know what there is
        __getattr__ = absent.missing_of_step

    def __init__(self, pipeline: Pipeline, output: Output, base: str) -> None:
        self._pipeline = pipeline
        self._output = output
        self._base = base  # names are made of it: that of the last step with a name that matters

    def __repr__(self) -> str:
        return f"<Source {self._output.node}>"

    def __aiter__(self) -> NoReturn:
        raise AppError(f"{self!r} declares steps, and is not iterated over: declare an agent, @app.agent(topic)")

    # --- One event at a time --------------------------------------------------------------------------

    def _step(self, kind: str, name: str | None, make: Callable[..., Operator], *given: Any) -> Source[Any, Any]:
        label = name or self._pipeline._free(f"{self._base}-{kind}")
        check_functions(f"step {label}", *given)
        output = self._pipeline._add(label, partial(make, label, *given), (self._output,))
        return Source(self._pipeline, output, self._base)

    def map(self, function: Callable[[V], U], *, name: str | None = None) -> Source[K, U]:
        """Each value is replaced by what the function returns."""
        return self._step("map", name, stateless.map_values, function)

    def flat_map(self, function: Callable[[V], Iterable[U]], *, name: str | None = None) -> Source[K, U]:
        """Each event is replaced by one for each value that the function returns."""
        return self._step("flat_map", name, stateless.flat_map, function)

    def filter(self, function: Callable[[V], Any], *, name: str | None = None) -> Source[K, V]:
        """Only events stay for which the function returns something true."""
        return self._step("filter", name, stateless.filter_values, function)

    def peek(self, function: Callable[[V], Any], *, name: str | None = None) -> Source[K, V]:
        """The function is called with each value, which goes on unchanged."""
        return self._step("peek", name, stateless.peek, function)

    def branch(self, *functions: Callable[[V], Any], name: str | None = None) -> tuple[Source[K, V], ...]:
        """One source for each function, and one for what is left: an event goes to the first whose function says so."""
        first = self._step("branch", name, stateless.branch, functions)
        numbers = range(len(functions) + 1)
        return tuple(Source(self._pipeline, Output(first._output.node, n), f"{self._base}-{n}") for n in numbers)

    def merge(self, *others: Source[K, V], name: str | None = None) -> Source[K, V]:
        """The events of this and the other sources."""
        for each in others:
            self._pipeline.check_other(f"{self._base}: merge", each)
        base = "-".join(dict.fromkeys([self._base, *(other._base for other in others)]))
        label = name or self._pipeline._free(f"{base}-merge")
        inputs = (self._output, *(other._output for other in others))
        output = self._pipeline._add(label, partial(stateless.merge, label), inputs)
        return Source(self._pipeline, output, label if name else base)

    def group_by(
        self,
        function: Callable[[V], K2],
        *,
        name: str | None = None,
        partitions: int | None = None,
        partitioner: str | Callable[..., int] | None = None,
    ) -> Source[K2, V]:
        """The events with another key, and so in the partition of that key: they go through the topic
        `<app>-<name>-repartition`. partitions: of that topic; as many as the input has. partitioner: as
        of a topic."""
        label = self._pipeline.label(name, f"{self._base}-group_by")
        keyed = self._step("rekey", f"{label}-key", stateless.rekey, function)
        read = self._pipeline._through(label, keyed._output, partitions=partitions, partitioner=partitioner)
        return Source(self._pipeline, read, label)

    def group_by_key(self) -> Keyed[K, V]:
        """The events of each key, all of them together: what is done with them follows."""
        return Keyed(self)

    # --- Windows --------------------------------------------------------------------------------------

    def tumbling(self, size: Seconds, *, grace: Seconds = 0, retention: Seconds | None = None) -> Windowed[K, V]:
        """Windows of event time that follow each other, aligned to the epoch. grace: so long after its end a window
        takes events. retention: so long after its start its row is kept, to be looked at; until it closes."""
        return self.hopping(size, size, grace=grace, retention=retention, _kind="tumbling")

    def hopping(
        self,
        size: Seconds,
        step: Seconds,
        *,
        grace: Seconds = 0,
        retention: Seconds | None = None,
        _kind: str = "hopping",
    ) -> Windowed[K, V]:
        """Windows that begin every `step`. An event is in several of them."""
        kept = None if retention is None else milliseconds(retention, "retention")
        of = TimeWindows(milliseconds(size, "size"), milliseconds(step, "step"), milliseconds(grace, "grace"), kept)
        return Windowed(self, of, _kind)

    def sliding(self, size: Seconds, *, grace: Seconds = 0) -> Windowed[K, V]:
        """A window for each set of events of a key that are at most `size` apart (KIP-450)."""
        return Windowed(self, SlidingWindows(milliseconds(size, "size"), milliseconds(grace, "grace")), "sliding")

    def session(self, gap: Seconds, *, grace: Seconds = 0) -> Windowed[K, V]:
        """Windows of events of which each is at most `gap` after the one before."""
        return Windowed(self, SessionWindows(milliseconds(gap, "gap"), milliseconds(grace, "grace")), "session")

    # --- Joins ----------------------------------------------------------------------------------------

    @overload
    def join(
        self,
        other: Source[K, W],
        *,
        value: Callable[[V, W], R],
        within: Seconds | None = None,
        before: Seconds | None = None,
        after: Seconds | None = None,
        grace: Seconds = 0,
        name: str | None = None,
    ) -> Late[K, R]: ...

    @overload
    def join(
        self,
        other: TableView[Any, W],
        *,
        value: Callable[[V, W], R],
        key: Callable[[V], Any] | None = None,
        grace: Seconds | None = None,
        name: str | None = None,
    ) -> Source[K, R]: ...

    @overload
    def join(
        self,
        other: Mapping[Any, Any],
        *,
        value: Callable[[V, Any], R],
        key: Callable[[V], Any] | None = None,
        name: str | None = None,
    ) -> Source[K, R]: ...

    def join(self, other: Any, *, value: Callable[[Any, Any], Any], name: str | None = None, **options: Any) -> Any:
        """Each event with those of the other source, or with the row of a table, that belong to it; value(left, right)
        returns the result.

        Of two sources, events of a key belong together if the other's is at most `before` earlier and `after` later;
        `within` stands for both. Results of windows belong together if they are of one window, without a `within`. Both
        sources must have the same number of partitions. Of a table, it is the row of the event's key, or of what `key`
        returns for its value; of a global table, which has all keys, as it is here now. With a grace an event waits so
        long, and gets the row that a table with a history had at its time.
        """
        return self._joined(INNER, other, value, name, **options)

    @overload
    def left_join(
        self,
        other: Source[K, W],
        *,
        value: Callable[[V, W | None], R],
        within: Seconds | None = None,
        before: Seconds | None = None,
        after: Seconds | None = None,
        grace: Seconds = 0,
        name: str | None = None,
    ) -> Late[K, R]: ...

    @overload
    def left_join(
        self,
        other: TableView[Any, W],
        *,
        value: Callable[[V, W | None], R],
        key: Callable[[V], Any] | None = None,
        grace: Seconds | None = None,
        name: str | None = None,
    ) -> Source[K, R]: ...

    @overload
    def left_join(
        self,
        other: Mapping[Any, Any],
        *,
        value: Callable[[V, Any], R],
        key: Callable[[V], Any] | None = None,
        name: str | None = None,
    ) -> Source[K, R]: ...

    def left_join(
        self, other: Any, *, value: Callable[[Any, Any], Any], name: str | None = None, **options: Any
    ) -> Any:
        """As `join`. An event to which nothing belongs is given with None once nothing can come any more; of a table,
        at once."""
        return self._joined(LEFT, other, value, name, **options)

    def outer_join(
        self,
        other: Source[K, W],
        *,
        value: Callable[[V | None, W | None], R],
        within: Seconds | None = None,
        before: Seconds | None = None,
        after: Seconds | None = None,
        grace: Seconds = 0,
        name: str | None = None,
    ) -> Late[K, R]:
        """As `left_join` of two sources, with events of the other one, too, to which nothing belongs."""
        self._pipeline.check_other(f"outer_join {name or self._base}", other)
        if not isinstance(other, Source):
            raise AppError(f"outer_join {name or self._base} takes a source, and not {other!r}: use left_join")
        return self._stream_join(OUTER, other, value, name, within=within, before=before, after=after, grace=grace)

    def _joined(self, how: str, other: Any, value: Any, name: str | None, **options: Any) -> Source[Any, Any]:
        what = f"join {name or self._base}"
        self._pipeline.check_other(what, other)
        kind, known = ("a source", WITH_SOURCE) if isinstance(other, Source) else ("a table", WITH_TABLE)
        for option in options:
            if option not in known:
                instead = or_near(option, known, "=") or f": there are {', '.join(f'{each}=' for each in known)}"
                raise AppError(f"{what}: a join with {kind} has no option {option}={instead}")
        join = self._stream_join if isinstance(other, Source) else self._table_join
        return join(how, other, value, name, **options)

    def _stream_join(
        self,
        how: str,
        other: Source[Any, Any],
        value: Callable[[Any, Any], Any],
        name: str | None,
        *,
        within: Seconds | None = None,
        before: Seconds | None = None,
        after: Seconds | None = None,
        grace: Seconds = 0,
    ) -> Late[Any, Any]:
        label = self._pipeline.label(name, f"{self._base}-{other._base}-join")
        check_functions(f"join {label}", value)
        if within is before is after is None and isinstance(self, Results) and isinstance(other, Results):
            return self._window_join(how, other, value, label)
        bounds = [within if bound is None else bound for bound in (before, after)]
        if None in bounds:
            raise AppError(f"join {label}: say how far apart events may be, with within=, or with before= and after=")
        earlier, later = (milliseconds(cast(Seconds, bound), "within") for bound in bounds)
        of = JoinWindows(earlier, later, milliseconds(grace, "grace"))
        alone = self._output == other._output
        inputs = ((self._output,),) if alone else ((self._output,), (other._output,))
        make = partial(StreamJoin, label, of, value, how, alone)
        output = self._pipeline._add(label, make, *inputs, is_joining=True)
        return Late(self._pipeline, output, label)

    def _table_join(
        self,
        how: str,
        other: Any,
        value: Callable[[Any, Any], Any],
        name: str | None,
        *,
        key: Callable[[Any], Any] | None = None,
        grace: Seconds | None = None,
    ) -> Source[Any, Any]:
        if isinstance(other, TableView):
            table, history_ms = other.name, other._history_ms
        else:
            table, history_ms = other.spec.name, None
        is_global = isinstance(other, Table) and other.is_global
        label = f"{self._base}-{table}-join"
        label = name or (self._pipeline._free(label) if is_global else label)  # nothing is named after the former
        check_functions(f"join {label}", value, key)
        grace_ms = None if grace is None else milliseconds(grace, "grace")
        make = partial(StreamTableJoin, label, table, value, how, key=key, history_ms=history_ms, grace_ms=grace_ms)
        if is_global:  # any key is in any task, and nothing is waited for
            output = self._pipeline._add(label, make, (self._output,), global_tables=(table,))
        else:
            # With a grace events wait for the watermark: in which order records of several topics come is no matter.
            in_order = grace is None
            output = self._pipeline._add(label, make, (self._output,), reads=(table,), is_joining=in_order)
        return Source(self._pipeline, output, label)

    # --- Tables and state -----------------------------------------------------------------------------

    def table(
        self, name: str, *, history: Seconds | None = None, ttl: Seconds | None = None, value_type: Any = None
    ) -> TableView[K, V]:
        """A table of the last value of each key; None deletes its row. history: so long what rows were before is known,
        for joins with the row of an event's time, and updates that come out of order do not replace newer ones. ttl: a
        row is deleted when it had no event for so long, by event time. value_type: what values are, where they are
        objects of a class."""
        if history is None:
            ttl_ms = None if ttl is None else milliseconds(ttl, "ttl")
            make: Callable[[], Operator] = partial(TableSource, name, ttl_ms)
        elif ttl is not None:
            raise AppError(f"table {name}: it can have a history or a ttl, not both")
        else:
            make = partial(VersionedTableSource, name, milliseconds(history, "history"))
        self._pipeline._add(name, make, (self._output,), value_type=value_type)
        history_ms = None if history is None else milliseconds(history, "history")
        return TableView(self._pipeline, Output(name), name, history_ms)

    def dedup(
        self,
        function: Callable[[V], Any] | None = None,
        *,
        within: Seconds,
        grace: Seconds | None = None,
        name: str | None = None,
    ) -> Late[K, V]:
        """Only the first event of each id within a time; later and earlier ones that are as near are dropped. function:
        returns the id for a value; None: it is the key. grace: how late an event may be; as long as `within`."""
        label = self._pipeline.label(name, f"{self._base}-dedup")
        check_functions(f"dedup {label}", function)
        grace_ms = None if grace is None else milliseconds(grace, "grace")
        make = partial(Dedup, label, milliseconds(within, "within"), function, grace_ms)
        return Late(self._pipeline, self._pipeline._add(label, make, (self._output,)), label)

    def dedup_origin(self, *, name: str | None = None) -> Source[K, V]:
        """Only records that were not applied before, by their place in the datacenter that they are from: whatever a
        bridge or another app brings again is dropped. Its memory is one number for each partition there, kept for ever.
        It reads topics, before anything else: of several events that one record became, it would give the first alone.
        """
        label = self._pipeline.label(name, f"{self._base}-dedup_origin")
        if not self._output.node.startswith(TOPIC):
            raise AppError(
                f"dedup_origin {label}: it must read topics: write app.stream(topic).dedup_origin(), and the other "
                "steps behind it"
            )
        self._pipeline.needs_origins = True
        return Source(self._pipeline, self._pipeline._add(label, partial(OriginDedup, label), (self._output,)), label)

    def process(
        self,
        make: Callable[[], Processor],
        *,
        tables: Sequence[Any] = (),
        hold: Seconds = 0,
        name: str | None = None,
        version: int = 1,
        migrate: Migrations | None = None,
    ) -> Source[Any, Any]:
        """A step of the app's own, with state and timers: `make` returns a `Processor` for each task. tables: others
        that it uses. hold: how far the timestamps of what its timers give are behind the event time at most.
        version: of its rows; migrate: from a version a function(key, value) that returns a row's value in the next."""
        label = self._pipeline.label(name, f"{self._base}-process")
        if not callable(make):
            raise AppError(
                f"process {label}: {make!r} is one processor, and each task needs its own: give its class, or a "
                "function that makes one"
            )
        own = [each for each in tables if not (isinstance(each, Table) and each.is_global)]
        reads = [each.name if isinstance(each, TableView) else each.spec.name for each in own]
        everywhere = [each.spec.name for each in tables if each not in own]
        aggregates.check_version(label, version, migrate)
        hold_ms, migrations = milliseconds(hold, "hold"), dict(migrate or {})
        operator = partial(
            ProcessorOperator, label, make, [*reads, *everywhere], hold_ms, version=version, migrate=migrations
        )
        output = self._pipeline._add(label, operator, (self._output,), reads=reads, global_tables=everywhere)
        return Source(self._pipeline, output, label)

    # --- Ends -----------------------------------------------------------------------------------------

    def to(self, topic: Any, *, partitioner: str | Callable[..., int] | None = None) -> None:
        """Write the events to a topic, given by its name or declared by the app, under their keys. partitioner: instead
        of the topic's."""
        if not isinstance(topic, str) and not hasattr(topic, "get_topic_name"):
            raise AppError(f"{self._base}: to() takes a topic or its name, and not {topic!r}")
        name = topic if isinstance(topic, str) else topic.get_topic_name()
        if name is not topic and self._pipeline.host is not None:
            self._pipeline.host.declared.setdefault(name, topic)
        label = self._pipeline._free(f"{self._base}-to-{name}")
        self._pipeline.declare(
            Node(label, Kind.SINK, ((self._output,),), topics=(name,), partitioner=_rule(partitioner, label))
        )

    def _to_agent(self, name: str) -> Node:
        """Give the events to an agent; used by `App.agent`."""
        node = Node(f"agent {name}", Kind.AGENT, ((self._output,),))
        self._pipeline.declare(node)
        return node


class Late(Source[K, V]):
    """The results of a step that leaves out late events."""

    @property
    def late(self) -> Source[Any, Any]:
        """The events that were late, as they were."""
        return Source(self._pipeline, Output(self._output.node, 1), f"{self._base}-late")


class Results(Source[K, WindowResult[K, R]], Generic[K, R]):
    """The results of windows."""

    def __init__(self, pipeline: Pipeline, output: Output, base: str, windows: Windows, is_final: bool) -> None:
        super().__init__(pipeline, output, base)
        self._windows = windows
        self._is_final = is_final

    def table(  # type: ignore[override]  # keys are of windows
        self, name: str, *, history: Seconds | None = None, ttl: Seconds | None = None, value_type: Any = None
    ) -> TableView[tuple[K, int, int], R]:
        """A table of the value of each window: its keys are (key, start_ms, end_ms). ttl: a row is deleted when so much
        event time has passed since the last event of `current()`, or the end of the window of `final()`; by default the
        size of the windows, or the gap of sessions, and their grace."""
        closes_ms = _closes_ms(self._windows)
        kept_ms = closes_ms if ttl is None else milliseconds(ttl, "ttl")
        if not self._is_final:
            if isinstance(self._windows, SessionWindows):
                raise AppError(f"table {name}: sessions that go on are no rows yet: make it of final()")
            if kept_ms < closes_ms:
                raise AppError(
                    f"table {name}: a ttl of {kept_ms} ms would delete windows that still get events: it must be at "
                    f"least the size and the grace together, {closes_ms} ms"
                )
        rows = self._step("rows", f"{name}-rows", window_keys.as_rows)
        kept = None if history is not None and ttl is None else kept_ms / 1000
        made = rows.table(name, history=history, ttl=kept, value_type=value_type)
        if history is None:
            self._pipeline.place(name, BY_FIRST)
        return made

    def _window_join(
        self, how: str, other: Results[Any, Any], value: Callable[[Any, Any], Any], label: str
    ) -> Late[Any, Any]:
        for each in (self, other):
            if not each._is_final or _revises(each._windows):
                raise AppError(
                    f"join {label}: {each._base} gives windows more than once: join final() without revise, or "
                    "tables of both"
                )
        if _kind(self._windows) != _kind(other._windows):
            raise AppError(
                f"join {label}: the windows of {self._base} and {other._base} differ, so that none of them are the same"
            )
        left = self._step("by-window", f"{label}-left-by-window", window_keys.by_window)
        right = left
        if self._output != other._output:
            right = other._step("by-window", f"{label}-right-by-window", window_keys.by_window)
        joined = left._stream_join(how, right, value, label, within=0)
        by_key = joined._step("by-key", f"{label}-by-key", window_keys.by_key)
        return Late(self._pipeline, by_key._output, label)


def _closes_ms(windows: Windows) -> int:
    """How long after its last event a window closes at the latest."""
    length_ms = windows.gap_ms if isinstance(windows, SessionWindows) else windows.size_ms
    return length_ms + windows.grace_ms


def _revises(windows: Windows) -> bool:
    return isinstance(windows, TimeWindows) and windows.revises


def _kind(windows: Windows) -> tuple[int, ...]:
    """Windows of the same kind begin and end alike."""
    if isinstance(windows, TimeWindows):
        return windows.size_ms, windows.step_ms
    return (windows.size_ms, 1, 1) if isinstance(windows, SlidingWindows) else (windows.gap_ms,)


class Windowed(Generic[K, V]):
    """A source in windows. What is done with each window of a key is said next."""

    if not TYPE_CHECKING:  # type checkers know what there is
        __getattr__ = absent.missing_of_step

    def __init__(self, source: Source[K, V], windows: Windows, kind: str) -> None:
        self._source = source
        self._windows = windows
        self._kind = kind

    def count(self, *, name: str | None = None) -> Aggregated[K, V, int]:
        """How many events."""
        return self._aggregated("count", aggregations.count(), name)

    def sum(self, function: Of = None, *, name: str | None = None) -> Aggregated[K, V, Any]:
        """The sum of the values, of a field by its name, or of what the function returns for them."""
        return self._aggregated("sum", aggregations.total(aggregates.taken(function)), name)

    def min(self, function: Of = None, *, name: str | None = None) -> Aggregated[K, V, Any]:
        """The least of the values, of a field by its name, or of what the function returns for them."""
        return self._aggregated("min", aggregations.least(aggregates.taken(function)), name)

    def max(self, function: Of = None, *, name: str | None = None) -> Aggregated[K, V, Any]:
        """The greatest of the values, of a field by its name, or of what the function returns for them."""
        return self._aggregated("max", aggregations.greatest(aggregates.taken(function)), name)

    def mean(self, function: Of = None, *, name: str | None = None) -> Aggregated[K, V, float]:
        """The arithmetic mean of the values, of a field by its name, or of what the function returns for them."""
        return self._aggregated("mean", aggregations.mean(aggregates.taken(function)), name)

    def reduce(self, function: Callable[[V, V], V], *, name: str | None = None) -> Aggregated[K, V, V]:
        """function(a, b) over the values, in their order."""
        check_functions(f"reduce {name or ''}".strip(), function)
        return self._aggregated("reduce", aggregations.reduce(function), name)

    def collect(self, *, name: str | None = None) -> Aggregated[K, V, list[V]]:
        """All values in a list."""
        return self._aggregated("collect", aggregations.collect(), name)

    def top(
        self, n: int, by: Of = None, of: Of = None, *, least: bool = False, ties: bool = False, name: str | None = None
    ) -> Aggregated[K, V, list[Any]]:
        """The n values with the greatest `by`, a field or a function, in a list, or what `of` takes of them, which
        those need that a table cannot have, such as results of windows; see `TopN`."""
        made = TopN(n, by, of, least=least, ties=ties).of_values
        return self._aggregated("top", made, name)

    @overload
    def aggregate(
        self,
        initial: Callable[[], U],
        add: Callable[[U, V], U],
        *,
        merge: Callable[[U, U], U] | None = None,
        name: str | None = None,
        version: int = 1,
        migrate: Migrations | None = None,
    ) -> Aggregated[K, V, U]: ...

    @overload
    def aggregate(
        self,
        initial: Callable[[], U],
        add: Callable[[U, V], U],
        *,
        merge: Callable[[U, U], U] | None = None,
        result: Callable[[U], R],
        name: str | None = None,
        version: int = 1,
        migrate: Migrations | None = None,
    ) -> Aggregated[K, V, R]: ...

    @overload
    def aggregate(
        self, *, result: Callable[..., R], name: str | None = None, version: int = 1, **columns: Aggregate
    ) -> Aggregated[K, V, R]: ...

    @overload
    def aggregate(
        self, *, name: str | None = None, version: int = 1, **columns: Aggregate
    ) -> Aggregated[K, V, dict[str, Any]]: ...

    def aggregate(
        self,
        initial: Any = None,
        add: Any = None,
        *,
        merge: Any = None,
        result: Any = None,
        name: Any = None,
        version: Any = 1,
        migrate: Any = None,
        **columns: Any,
    ) -> Aggregated[Any, Any, Any]:
        """Several aggregates at once: columns by name, such as `n=Count(), total=Sum("amount")`, in a dict. Or what
        `add` makes of an accumulator, first that of `initial`, and each value; accumulators must be such that a table
        can have them. merge: the accumulator of two, which sessions need. result: a class or a function, called with
        the columns by name, or with the accumulator; what it returns is the result. version: of what accumulators are,
        to be raised when they change: columns that stay keep what they have, and new ones begin with what comes.
        migrate: of accumulators of the app's own, from a version a function(key, accumulator) that returns one of the
        next; a window's key is (key, its start in ms)."""
        label = self._label("aggregate", name)
        made = aggregates.aggregation(
            label, initial, add, columns, merge=merge, result=result, version=version, migrate=migrate
        )
        return self._aggregated("aggregate", made, label)

    def _label(self, what: str, name: Any) -> str:
        made = f"{self._source._base}-{self._kind}-{what}"
        return self._source._pipeline.label(aggregates.given_name(name, made), made)

    def _aggregated(self, what: str, aggregation: Aggregation, name: str | None) -> Aggregated[Any, Any, Any]:
        return Aggregated(self._source, self._label(what, name), self._windows, aggregation.named(what))


def _class_of(result: Any) -> Any:
    """The class of what `result` returns, where it is one that a table must be told of."""
    return result if isinstance(result, type) and result.__module__ != "builtins" else None


class Keyed(Generic[K, V]):
    """All events of each key together. Each result is a table."""

    if not TYPE_CHECKING:  # type checkers know what there is
        __getattr__ = absent.missing_of_step

    def __init__(self, source: Source[K, V]) -> None:
        self._source = source

    def count(self, *, name: str | None = None) -> TableView[K, int]:
        """How many events."""
        return self._aggregated("count", aggregations.count(), name)

    def sum(self, function: Of = None, *, name: str | None = None) -> TableView[K, Any]:
        """The sum of the values, of a field by its name, or of what the function returns for them."""
        return self._aggregated("sum", aggregations.total(aggregates.taken(function)), name)

    def min(self, function: Of = None, *, name: str | None = None) -> TableView[K, Any]:
        """The least of the values, of a field by its name, or of what the function returns for them."""
        return self._aggregated("min", aggregations.least(aggregates.taken(function)), name)

    def max(self, function: Of = None, *, name: str | None = None) -> TableView[K, Any]:
        """The greatest of the values, of a field by its name, or of what the function returns for them."""
        return self._aggregated("max", aggregations.greatest(aggregates.taken(function)), name)

    def mean(self, function: Of = None, *, name: str | None = None) -> TableView[K, float]:
        """The arithmetic mean of the values, of a field by its name, or of what the function returns for them."""
        return self._aggregated("mean", aggregations.mean(aggregates.taken(function)), name)

    def reduce(self, function: Callable[[V, V], V], *, name: str | None = None) -> TableView[K, V]:
        """function(a, b) over the values, in their order."""
        check_functions(f"reduce {name or ''}".strip(), function)
        return self._aggregated("reduce", aggregations.reduce(function), name)

    def top(
        self, n: int, by: Of = None, of: Of = None, *, least: bool = False, ties: bool = False, name: str | None = None
    ) -> TableView[K, list[Any]]:
        """The n values with the greatest `by`, in a list, or what `of` takes of them; see `TopN`."""
        return self._aggregated("top", TopN(n, by, of, least=least, ties=ties).of_values, name)

    @overload
    def aggregate(
        self,
        initial: Callable[[], U],
        add: Callable[[U, V], U],
        *,
        name: str | None = None,
        version: int = 1,
        migrate: Migrations | None = None,
    ) -> TableView[K, U]: ...

    @overload
    def aggregate(
        self,
        initial: Callable[[], U],
        add: Callable[[U, V], U],
        *,
        result: Callable[[U], R],
        name: str | None = None,
        version: int = 1,
        migrate: Migrations | None = None,
    ) -> TableView[K, R]: ...

    @overload
    def aggregate(
        self, *, result: Callable[..., R], name: str | None = None, version: int = 1, **columns: Aggregate
    ) -> TableView[K, R]: ...

    @overload
    def aggregate(
        self, *, name: str | None = None, version: int = 1, **columns: Aggregate
    ) -> TableView[K, dict[str, Any]]: ...

    def aggregate(
        self,
        initial: Any = None,
        add: Any = None,
        *,
        result: Any = None,
        name: Any = None,
        version: Any = 1,
        migrate: Any = None,
        **columns: Any,
    ) -> TableView[Any, Any]:
        """As `aggregate` of windows. What `result` returns must be such that a table can have it, too; it can have
        objects of a class that `result` is."""
        label = self._label("aggregate", name)
        made = aggregates.aggregation(label, initial, add, columns, result=result, version=version, migrate=migrate)
        return self._aggregated("aggregate", made, label, _class_of(result))

    def _label(self, what: str, name: Any) -> str:
        made = f"{self._source._base}-{what}"
        return self._source._pipeline.label(aggregates.given_name(name, made), made)

    def _aggregated(
        self, what: str, aggregation: Aggregation, name: str | None, value_type: Any = None
    ) -> TableView[Any, Any]:
        pipeline, label = self._source._pipeline, self._label(what, name)
        make = partial(KeyAggregate, label, aggregation.named(what))
        output = pipeline._add(label, make, (self._source._output,), value_type=value_type)
        return TableView(pipeline, output, label)


class Aggregated(Generic[K, V, R]):
    """The result of each window of a key. It is given by `current()` or `final()`, one of them."""

    if not TYPE_CHECKING:  # type checkers know what there is
        __getattr__ = absent.missing_of_step

    def __init__(self, source: Source[K, V], name: str, windows: Windows, aggregation: Aggregation) -> None:
        self.name = name
        self._pipeline = source._pipeline
        self._windows = windows
        self._aggregation = aggregation
        self._emit: str | None = None
        self._output = self._pipeline._add(name, self._make, (source._output,))

    def _make(self) -> Operator:
        emit = self._emit or CURRENT
        if isinstance(self._windows, TimeWindows):
            return TimeWindowAggregate(self.name, self._windows, self._aggregation, emit)
        if isinstance(self._windows, SlidingWindows):
            return SlidingWindowAggregate(self.name, self._windows, self._aggregation, emit)
        return SessionWindowAggregate(self.name, self._windows, self._aggregation, emit)

    def current(self) -> Results[K, R]:
        """Each update, at most one a window and batch."""
        return self._given(CURRENT)

    def final(self, *, revise: bool = False) -> Results[K, R]:
        """One result a window, when it closes: once the event time has passed its end and the grace. revise: events
        that come later, within the windows' retention, are added all the same, and give the result again with the next
        revision; else they are late."""
        if revise:
            if not isinstance(self._windows, TimeWindows):
                raise AppError(f"windows {self.name}: only tumbling and hopping windows can be revised")
            self._windows = replace(self._windows, revises=True)
        return self._given(FINAL)

    @property
    def late(self) -> Source[K, V]:
        """Events whose windows had all closed, as they were."""
        return Source(self._pipeline, Output(self.name, 1), f"{self.name}-late")

    def _given(self, emit: str) -> Results[Any, Any]:
        if self._emit not in (None, emit):
            raise AppError(
                f"windows {self.name}: current() and final() are two steps with state of their own: declare the "
                f"windows "
                "twice, with a name= each"
            )
        self._emit = emit
        return Results(self._pipeline, self._output, self.name, self._windows, emit == FINAL)


class TableView(TableLike, Generic[K, V]):
    """A table of a topic, of windows, of a join of tables or of an aggregate. Agents and pages read its rows as those
    of a dict; an agent that reads the same topic sees them as they are after the batch that its event is in."""

    if not TYPE_CHECKING:  # type checkers know what there is
        __getattr__ = absent.missing_of_step

    def __init__(self, pipeline: Pipeline, output: Output, name: str, history_ms: int | None = None) -> None:
        self.name = name
        self._pipeline = pipeline
        self._output = output
        self._history_ms = history_ms
        self.recover_callbacks = []

    def __repr__(self) -> str:
        return f"<TableView {self.name}>"

    # --- Rows: of the task that an agent runs in; elsewhere of all tasks of the worker ----------------

    @property
    def spec(self) -> TableSpec:  # type: ignore[override]
        return self._pipeline.graph.specs[self.name]

    @property
    def _rows(self) -> Mapping[K, V]:
        if self._history_ms is not None:
            raise AppError(f"table {self.name} has a history: its rows are read by joins alone")
        return rows_at_hand(self.spec, self._pipeline.host).rows

    def __getitem__(self, key: K) -> V:
        return self._rows[key]

    @overload
    def get(self, key: K) -> V | None: ...

    @overload
    def get(self, key: K, default: U) -> V | U: ...

    def get(self, key: Any, default: Any = None) -> Any:
        return self._rows.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[K]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __bool__(self) -> bool:
        return True  # it is there, whatever its rows

    def keys(self) -> KeysView[K]:
        return self._rows.keys()

    def values(self) -> ValuesView[V]:
        return self._rows.values()

    def items(self) -> ItemsView[K, V]:
        return self._rows.items()

    # --- Steps ----------------------------------------------------------------------------------------

    def changes(self) -> Source[K, Change[V]]:
        """Each change of a row, with the old and the new value."""
        return Source(self._pipeline, self._output, self.name)

    def stream(self, *, name: str | None = None) -> Source[K, V | None]:
        """The new value of each change; None where the row was deleted."""
        return self.changes().map(lambda change: change.new, name=name or self._pipeline._free(f"{self.name}-stream"))

    def suppress(self, limit: Seconds, *, name: str | None = None) -> Source[K, Change[V]]:
        """Of a row's changes within a time, only the last one, with what was before the first."""
        label = self._pipeline.label(name, f"{self.name}-suppress")
        make = partial(Suppress, label, milliseconds(limit, "limit"))
        return Source(self._pipeline, self._pipeline._add(label, make, (self._output,)), label)

    def join(
        self,
        other: TableView[Any, W],
        *,
        value: Callable[[V, W], R],
        key: Callable[[V], Any] | None = None,
        name: str | None = None,
    ) -> TableView[K, R]:
        """The table of value(left, right) for each key that is in both. key: returns the other table's key for a left
        value, which many may refer to (KIP-213); None: there is no such row. Each change goes through the topics
        `<app>-<name>-request-repartition` and `<app>-<name>-response-repartition` then, so that the tables may have
        other numbers of partitions."""
        return self._joined(INNER, other, value, key, name)

    def left_join(
        self,
        other: TableView[Any, W],
        *,
        value: Callable[[V, W | None], R],
        key: Callable[[V], Any] | None = None,
        name: str | None = None,
    ) -> TableView[K, R]:
        """As `join`, with each row of this table, and None where the other one has none."""
        return self._joined(LEFT, other, value, key, name)

    def outer_join(
        self, other: TableView[K, W], *, value: Callable[[V | None, W | None], R], name: str | None = None
    ) -> TableView[K, R]:
        """As `join`, with each row of either table."""
        return self._joined(OUTER, other, value, None, name)

    def _joined(
        self, how: str, other: TableView[Any, Any], value: Any, key: Callable[[Any], Any] | None, name: str | None
    ) -> TableView[Any, Any]:
        self._pipeline.check_other(f"join {name or self.name}", other)
        if not isinstance(other, TableView):
            raise AppError(f"join {name or self.name}: a table is joined with another one of a step, and not {other!r}")
        label = self._pipeline.label(name, f"{self.name}-{other.name}-join")
        check_functions(f"join {label}", value, key)
        if key is not None:
            return self._joined_by(how, other, value, key, label)
        versioned = (self._history_ms is not None, other._history_ms is not None)
        make = partial(TableJoin, label, self.name, other.name, value, how, versioned)
        reads = (self.name, other.name)
        inputs = ((self._output,), (other._output,))
        output = self._pipeline._add(label, make, *inputs, reads=reads, is_joining=True, of_rows=label)
        return TableView(self._pipeline, output, label)

    def _joined_by(
        self, how: str, other: TableView[Any, Any], value: Any, key: Callable[[Any], Any], label: str
    ) -> TableView[Any, Any]:
        """By a foreign key; see `engine/operators/foreign_key_join.py`."""
        pipeline = self._pipeline
        is_versioned = (self._history_ms is not None, other._history_ms is not None)
        asking = partial(ForeignKeyRequests, f"{label}-asks", key)
        asks = pipeline._add(f"{label}-asks", asking, (self._output,), of_rows=label)
        requests = pipeline._through(f"{label}-request", asks, sized_as=other.name)
        answers = pipeline._add(
            f"{label}-references",
            partial(ForeignKeyResponses, f"{label}-references", other.name, is_versioned[1]),
            (requests,),
            (other._output,),
            reads=(other.name,),
            is_joining=True,
        )
        responses = pipeline._through(f"{label}-response", answers, sized_as=self.name, place=response_place)
        output = pipeline._add(
            label,
            partial(ForeignKeyResult, label, self.name, value, how, is_versioned[0]),
            (Output(asks.node, 1),),
            (responses,),
            reads=(self.name,),
            is_joining=True,
        )
        return TableView(pipeline, output, label)

    def group_by(
        self,
        function: Callable[[V], K2],
        *,
        name: str | None = None,
        partitions: int | None = None,
        partitioner: str | Callable[..., int] | None = None,
    ) -> GroupedTable[K2, V]:
        """The rows in groups, by what the function returns for their values; those for which it is None are in none.
        Changes go through the topic `<app>-<name>-repartition`."""
        label = self._pipeline.label(name, f"{self.name}-group_by")
        check_functions(f"group_by {label}", function)
        keyed = f"{label}-key"
        self._pipeline._add(keyed, partial(table_aggregate.regroup, keyed, function), (self._output,), of_rows=label)
        read = self._pipeline._through(label, Output(keyed), partitions=partitions, partitioner=partitioner)
        return GroupedTable(self._pipeline, read, label)


class GroupedTable(Generic[K, V]):
    """A table's rows in groups. Each row counts once, with its present value."""

    if not TYPE_CHECKING:  # type checkers know what there is
        __getattr__ = absent.missing_of_step

    def __init__(self, pipeline: Pipeline, output: Output, base: str) -> None:
        self._pipeline = pipeline
        self._output = output
        self._base = base

    def count(self, *, name: str | None = None) -> TableView[K, int]:
        """How many rows each group has."""
        return self._aggregated("count", aggregations.count(), name)

    def sum(self, function: Of, *, name: str | None = None) -> TableView[K, Any]:
        """The sum of a field of the rows' values, by its name, or of what the function returns for them."""
        return self._aggregated("sum", aggregations.total(aggregates.taken(function)), name)

    def top(
        self, n: int, by: Of = None, of: Of = None, *, least: bool = False, ties: bool = False, name: str | None = None
    ) -> TableView[K, list[Any]]:
        """The n values with the greatest `by`, in a list, or what `of` takes of them; see `TopN`."""
        made = TopN(n, by, of, least=least, ties=ties).of_rows
        assert made is not None
        return self._aggregated("top", made, name)

    @overload
    def aggregate(
        self,
        initial: Callable[[], U],
        add: Callable[[U, V], U],
        subtract: Callable[[U, V], U],
        *,
        name: str | None = None,
        version: int = 1,
        migrate: Migrations | None = None,
    ) -> TableView[K, U]: ...

    @overload
    def aggregate(
        self,
        initial: Callable[[], U],
        add: Callable[[U, V], U],
        subtract: Callable[[U, V], U],
        *,
        result: Callable[[U], R],
        name: str | None = None,
        version: int = 1,
        migrate: Migrations | None = None,
    ) -> TableView[K, R]: ...

    @overload
    def aggregate(
        self, *, result: Callable[..., R], name: str | None = None, version: int = 1, **columns: Aggregate
    ) -> TableView[K, R]: ...

    @overload
    def aggregate(
        self, *, name: str | None = None, version: int = 1, **columns: Aggregate
    ) -> TableView[K, dict[str, Any]]: ...

    def aggregate(
        self,
        initial: Any = None,
        add: Any = None,
        subtract: Any = None,
        *,
        result: Any = None,
        name: Any = None,
        version: Any = 1,
        migrate: Any = None,
        **columns: Any,
    ) -> TableView[Any, Any]:
        """As `aggregate` of keys, of the rows that a group has now: `add` takes in a value that comes, and `subtract`
        takes out one that goes."""
        label = self._label("aggregate", name)
        made = aggregates.aggregation(
            label,
            initial,
            add,
            columns,
            subtract=subtract,
            result=result,
            version=version,
            migrate=migrate,
            of_rows=True,
        )
        return self._aggregated("aggregate", made, label, _class_of(result))

    def _label(self, what: str, name: Any) -> str:
        made = f"{self._base}-{what}"
        return self._pipeline.label(aggregates.given_name(name, made), made)

    def _aggregated(
        self, what: str, aggregation: Aggregation, name: str | None, value_type: Any = None
    ) -> TableView[Any, Any]:
        label = self._label(what, name)
        make = partial(TableAggregate, label, aggregation.named(what))
        output = self._pipeline._add(label, make, (self._output,), value_type=value_type)
        return TableView(self._pipeline, output, label)
