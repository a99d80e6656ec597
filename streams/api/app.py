"""`App`, `topic`, `agent`, `Table`: the API for stream processors, with Faust's names.

    app = App("counts")
    orders = app.topic("orders")
    totals = app.Table("totals", default=int)

    @app.agent(orders)
    async def count(stream):
        async for event in stream.events():
            totals[event.key.decode()] += 1

An app is only a description: a worker (`isthmus worker module:app`) or a `TestDriver` runs it.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import importlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import tzinfo
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict, TypeVar, Unpack, cast, overload

from ...client import RecordMetadata
from ..engine import repartition, topic_names
from ..engine.codecs import CodecArg
from ..engine.columns import ColumnTypes, column_types
from ..engine.datacenters import ByDatacenter
from ..engine.event import Headers
from ..engine.failures import OnError
from ..engine.graph import Graph, Kind, Node, part_of
from ..engine.lengths import Seconds, milliseconds, seconds
from ..engine.partitioning import KeyRule
from ..engine.plain_functions import check_functions, refuse_async
from ..engine.serialization import Serializers
from ..engine.stores.global_store import GlobalStore
from ..engine.tables import TableSpec
from ..engine.topology import Reader, Topology
from ..errors import AppError
from ..near import or_near
from . import absent, tables
from .agents import Agent, AgentFunction, Sink, default_name, sinks_of
from .background import Background
from .channels import Channel
from .commands import DeclaredCommand, declared
from .discovery import discover, discover_installed_apps, set_up_django
from .global_tables import GlobalTable, SetGlobalTable, view_of
from .host import Host
from .outside import Outside
from .pipeline import Pipeline, Source
from .placing import partitioners
from .routing import Router, key_of, route
from .rows import TableLike
from .rpc import ReadsReplies, Replies
from .schema import Schema
from .sets import SetTable, SetTableManager
from .settings import EXACTLY_ONCE, Options, Settings
from .settings import table as settings_table
from .signals import Signals
from .table_options import TableOptions, recovered, spec_of
from .topics import NEVER_IDLE_MS, Outbox, Topic
from .web import Handler, View, Web, no_cors
from .windows import HoppingWindow, WindowedTable

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K")
V = TypeVar("V")


def keeps_watermarks(part: Sequence[Node], graph: Graph) -> bool:
    """Whether a part of the pipelines has a table for its watermarks alone: where it has no other, and passes on what
    heartbeats have told it, which none of them says again."""
    if any(node.specs for node in part):
        return False
    written = {topic for node in graph.nodes.values() if node.kind is Kind.REPARTITION for topic in node.topics}
    hears = any(node.kind is Kind.TOPIC and not written.isdisjoint(node.topics) for node in part)
    return hears and any(node.kind is Kind.REPARTITION for node in part)


def watermarks_of(part: Sequence[Node]) -> str:
    """The name of that table. It has no rows: the markers of its changelog have the watermarks."""
    return f"{part[-1].name}-watermarks"


class TopicOptions(TypedDict, total=False):
    """Of `App.topic`, beside the types."""

    key_serializer: CodecArg
    value_serializer: CodecArg
    allow_empty: bool | None
    schema: Schema | None
    partitions: int | None
    config: Mapping[str, Any] | None
    on_error: OnError | None
    internal: bool
    timestamp: Callable[[Any], int] | None
    watermark_delay: Seconds
    partitioner: str | Callable[..., int] | None
    columns: Any
    idle_after: Seconds | None


class App:
    """A stream app. id: names the consumer group, and the changelog topics `<id>-<table>-changelog`. options: its
    settings, see `api/settings.py`; the more important ones:

    processing_guarantee: `at_least_once`: what was done after the last commit is done again after a crash, and tables
    include each record once; `exactly_once`: what agents send counts once, too, for read_committed readers.
    broker_commit_interval: seconds between commits of tables, input positions and outputs; 0.5, and 0.1 for
    exactly_once. dead_letter_topic: where records go by on_error='dead_letter'; `<id>-dead-letters`. topic_partitions:
    of topics that the app creates, unless they say otherwise. table_standby_replicas: so many other workers keep a copy
    of each table. origins: events know where they came into being (`event.origin`), and what the app writes carries it
    on; a step that needs it asks by itself. datacenter: the name of the app's own cluster there. watermarks: see
    `ByDatacenter`; each topic is waited for as a topic otherwise.
    """

    def __init__(self, id: str, **options: Unpack[Options]) -> None:
        self._settings = Settings(id, options)
        self._is_configured = self._is_final = False
        self._keeps_tables = False  # settings are as they stay
        self._tables_found: tuple[tuple[int, ...], dict[str, TableSpec]] = ((), {})  # and of which declarations
        self.signals = Signals(self)
        self.on_before_configured = self.signals.on_before_configured
        self.on_configured = self.signals.on_configured
        self.on_after_configured = self.signals.on_after_configured
        self.on_worker_init = self.signals.on_worker_init
        self.on_started = self.signals.on_started
        self.on_partitions_assigned = self.signals.on_partitions_assigned
        self.on_partitions_revoked = self.signals.on_partitions_revoked
        self.on_rebalance_complete = self.signals.on_rebalance_complete
        self.on_before_shutdown = self.signals.on_before_shutdown
        self.background = Background()
        self.commands: list[DeclaredCommand] = []
        self.web = Web(self)
        self.router = Router(self)
        self.agents: list[Agent] = []
        self.tables: dict[str, tables.Table | WindowedTable] = {}
        self.global_stores: Mapping[str, GlobalStore] = {}  # while a worker or driver runs
        self.retired_tables: dict[str, None] = {}
        self.pipeline = Pipeline(self._settings.id, self._settings.tables_store, self)
        self.declared: dict[str, Topic] = {}  # topics by name, for pipelines
        self.on_startup_finished: Callable[[], Any] | None = None  # may be async; called after `on_started`
        self.outbox: Outbox | None = None  # set by the worker or the driver
        self.replies = Replies(id)
        self.worker: Host | None = None  # while one runs
        self._running: Any = None  # the worker of `start`
        self._outside: Outside | None = None  # what sends where none does

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(absent.said("App", name, dir(type(self))))

    # --- Settings -----------------------------------------------------------------------------------

    @property
    def conf(self) -> Settings:
        """The settings. The first to ask for them sends `on_before_configured` and `on_configured`."""
        if not self._is_configured:
            self._is_configured = True
            self.on_before_configured.send_now()
            self.on_configured.send_now(self._settings)
        return self._settings

    @property
    def id(self) -> str:
        return self.conf.id

    @functools.cached_property
    def serializers(self) -> Serializers:
        """Codecs of topics that name none."""
        return Serializers(self.conf.key_serializer, self.conf.value_serializer)

    @property
    def commit_interval_s(self) -> float:
        return self.conf.broker_commit_interval

    def config_from_object(self, source: object) -> None:
        """Take settings from the attributes of a module, class or object, or the module of this name."""
        if isinstance(source, str):
            source = importlib.import_module(source)
        self.conf.update({name: getattr(source, name) for name in settings_table() if hasattr(source, name)})

    def finalize(self) -> None:
        """All is declared: read the settings and import what is to be discovered, with Django after that is set up. A
        worker and a command do so."""
        if self._is_final:
            return
        self._is_final = True
        set_up_django()
        self.on_worker_init.send_now()
        self.discover()
        self.on_after_configured.send_now()
        self._keeps_tables = True

    def discover(self, *modules: str) -> None:
        """Import modules, and all modules of packages, so that the agents, tasks, pages and commands in them are known:
        these, and what the setting `autodiscover` says. Raises AppError for one that cannot be imported."""
        discover([*modules, *self._discovered()])
        if self.conf.autodiscover is True:
            discover_installed_apps()

    def _discovered(self) -> list[str]:
        wanted = self.conf.autodiscover
        if wanted is True:
            if not self.conf.origin:
                raise AppError(f"app {self.id}: autodiscover=True needs origin=, the package to look into")
            return [self.conf.origin]
        if not wanted:
            return []
        return list(wanted() if callable(wanted) else wanted)

    @property
    def standby_replicas(self) -> int:
        return self.conf.table_standby_replicas

    @property
    def topic_partitions(self) -> int:
        return self.conf.topic_partitions

    @functools.cached_property
    def dead_letters(self) -> Topic:
        """Where records go by on_error='dead_letter'."""
        name = self.conf.dead_letter_topic
        raw = Schema(value_serializer="raw").bind(self.serializers)
        return Topic(self, [name], serialization=raw, partitions=1, is_internal=True)

    @property
    def on_error(self) -> OnError:
        return self.conf.on_error

    @property
    def is_exactly_once(self) -> bool:
        return self.conf.processing_guarantee == EXACTLY_ONCE

    @property
    def needs_origins(self) -> bool:
        """Whether it must be known where events are from."""
        return self.carries_origins or self.watermarks is not None

    @property
    def datacenter(self) -> str:
        return self.conf.datacenter

    @property
    def watermarks(self) -> ByDatacenter | None:
        return self.conf.watermarks

    @property
    def carries_origins(self) -> bool:
        """Whether records that pipelines write have a header with their origin."""
        return self.conf.origins or self.pipeline.needs_origins

    def changelog_topic(self, table: str) -> str:
        return topic_names.changelog(self.id, table)

    @property
    def reply_to(self) -> str:
        """The topic of replies to what the app's workers ask; each of them takes its own."""
        return self.conf.reply_to or topic_names.replies(self.id)

    @overload
    def topic(
        self, *topics: str, key_type: type[K], value_type: type[V], **options: Unpack[TopicOptions]
    ) -> Topic[K, V]: ...

    @overload
    def topic(
        self, *topics: str, key_type: None = None, value_type: type[V], **options: Unpack[TopicOptions]
    ) -> Topic[Any, V]: ...

    @overload
    def topic(
        self, *topics: str, key_type: type[K], value_type: None = None, **options: Unpack[TopicOptions]
    ) -> Topic[K, Any]: ...

    @overload
    def topic(
        self, *topics: str, key_type: Any = None, value_type: Any = None, **options: Unpack[TopicOptions]
    ) -> Topic[Any, Any]: ...

    def topic(
        self,
        *topics: str,
        key_type: Any = None,
        value_type: Any = None,
        key_serializer: CodecArg = None,
        value_serializer: CodecArg = None,
        allow_empty: bool | None = None,
        schema: Schema | None = None,
        partitions: int | None = None,
        config: Mapping[str, Any] | None = None,
        on_error: OnError | None = None,
        internal: bool = False,
        timestamp: Callable[[Any], int] | None = None,
        watermark_delay: Seconds = 0,
        partitioner: str | Callable[..., int] | None = None,
        columns: Any = None,
        idle_after: Seconds | None = None,
    ) -> Topic:
        """One or more topics. key_type, value_type: what keys and values are, such as a `Record`; key_serializer,
        value_serializer: their codecs; schema: all of that in one. allow_empty: False refuses null values. timestamp:
        returns the event time of a value, in ms; the record's timestamp is the event time otherwise. on_error: what is
        done with a record that cannot be decoded, see `engine/failures.py`. internal: the app creates it, with so many
        partitions, and writes it in its transactions. watermark_delay: how far a record's time may be behind an earlier
        one's of its partition; pipelines wait so long before they take their input as complete. idle_after: a partition
        with nothing to read for so long, by the clock, is not waited for until its next record; 5 seconds, and
        `float("inf")` for never. partitioner: by which a key's records are in a partition, and go there; the app's
        `producer_partitioner`. columns: agents get its records as `pyarrow.RecordBatch`es; what values are: a
        `pyarrow.Schema` or a class, for JSON objects, or True: bytes."""
        schema = Schema() if schema is None else copy.copy(schema)
        schema.update(
            key_type=key_type,
            value_type=value_type,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            allow_empty=allow_empty,
        )
        made = Topic(
            self,
            topics,
            serialization=schema.bind(self.serializers),
            partitions=partitions,
            config=config,
            on_error=self.on_error if on_error is None else on_error,
            is_internal=internal,
            partitioner=partitioner,
        )
        if columns is not None:
            made.columns = self._columns(made, columns, schema, timestamp)
        check_functions(f"timestamp= of topic {', '.join(topics)}", timestamp)
        refuse_async(f"timestamp= of topic {', '.join(topics)}", timestamp)
        made.timestamp, made.watermark_delay_ms = timestamp, milliseconds(watermark_delay, "watermark_delay")
        if idle_after is not None:
            made.idle_after_ms = NEVER_IDLE_MS if idle_after == inf else milliseconds(idle_after, "idle_after")
        return made

    def _columns(self, topic: Topic, columns: Any, schema: Schema, timestamp: Any) -> ColumnTypes:
        name, codec = topic.names[0], schema.value_serializer or self.conf.value_serializer
        if schema.value_type is not None or topic.serialization.schema is not None or timestamp is not None:
            raise AppError(
                f"topic {name}: with columns= its records are never objects: it can have no value_type, timestamp or "
                "schema that looks at each"
            )
        return column_types(name, columns, schema.key_type, codec == "json")

    def channel(self, *, key_type: Any = None, value_type: Any = None, maxsize: int | None = None) -> Channel:
        """A channel in memory. key_type, value_type: for readers of the code; what is sent comes as it is."""
        return Channel(maxsize)

    @overload
    def Table(
        self, name: str, default: type[list[Any]], *, window: None = None, **options: Unpack[TableOptions]
    ) -> tables.Table[Any, list[Any]]: ...

    @overload
    def Table(
        self, name: str, default: type[dict[Any, Any]], *, window: None = None, **options: Unpack[TableOptions]
    ) -> tables.Table[Any, dict[Any, Any]]: ...

    @overload
    def Table(
        self, name: str, default: type[set[Any]], *, window: None = None, **options: Unpack[TableOptions]
    ) -> tables.Table[Any, set[Any]]: ...

    @overload
    def Table(
        self, name: str, default: Callable[[], V], *, window: None = None, **options: Unpack[TableOptions]
    ) -> tables.Table[Any, V]: ...

    @overload
    def Table(
        self,
        name: str,
        default: Callable[[], Any] | None = None,
        *,
        window: HoppingWindow | None = None,
        **options: Unpack[TableOptions],
    ) -> tables.Table: ...

    def Table(
        self,
        name: str,
        default: Callable[[], Any] | None = None,
        *,
        window: HoppingWindow | None = None,
        **options: Unpack[TableOptions],
    ) -> tables.Table:
        """A table with a changelog; `.tumbling(seconds)` and `.hopping(size, step)` make it one of windows by event
        time. options: see `TableOptions`, in `api/table_options.py`."""
        spec = self._spec(name, default, options)
        for from_version, function in (options.get("migrate") or {}).items():
            tables.add_migration(spec, function, from_version)
        table = tables.Table(spec, self, recovered(options))
        self.tables[name] = table
        if window is not None:
            table.using_window(window)
        return table

    def SetTable(
        self,
        name: str,
        *,
        start_manager: bool = False,
        manager_topic_name: str | None = None,
        **options: Unpack[TableOptions],
    ) -> SetTable:
        """A table of sets. start_manager: `table.manager` changes sets from outside of agents, by a topic,
        `<table>-setmanager` or `manager_topic_name`. options: as `Table` has them; value_type: of members."""
        table = SetTable(self._spec(name, None, options, of_sets=True), self, recovered(options))
        self.tables[name] = table
        table.manager = SetTableManager(table, self if start_manager else None, manager_topic_name)
        return table

    def GlobalTable(
        self,
        name: str,
        default: Callable[[], Any] | None = None,
        *,
        topic: Topic | str | None = None,
        window: HoppingWindow | None = None,
        **options: Unpack[TableOptions],
    ) -> GlobalTable:
        """A table of which each worker has all rows, see `api/global_tables.py`. Its changelog has one partition, or
        `partitions`, and rows are in that of their key. topic: it is a view of that instead, with the last value of
        each key, and can only be read; types and codecs are the topic's."""
        table = GlobalTable(self._global_spec(name, default, options, topic), self, recovered(options))
        if window is not None:
            table.using_window(window)
        self.tables[name] = table
        return table

    def SetGlobalTable(
        self,
        name: str,
        *,
        start_manager: bool = False,
        manager_topic_name: str | None = None,
        **options: Unpack[TableOptions],
    ) -> SetGlobalTable:
        """A `SetTable` of which each worker has all sets."""
        table = SetGlobalTable(self._global_spec(name, None, options, of_sets=True), self, recovered(options))
        self.tables[name] = table
        table.manager = SetTableManager(table, self if start_manager else None, manager_topic_name)
        return table

    def _global_spec(
        self,
        name: str,
        default: Callable[[], Any] | None,
        options: TableOptions,
        topic: Topic | str | None = None,
        of_sets: bool = False,
    ) -> TableSpec:
        given = {option: value for option, value in options.items() if option != "use_partitioner"}
        spec = self._spec(name, default, cast(TableOptions, given), of_sets)
        spec.is_global = True
        if topic is not None:
            read = self.topic(topic) if isinstance(topic, str) else topic
            view_of(spec, read, options)
            self._declare(read)
        return spec

    @property
    def global_tables(self) -> dict[str, TableSpec]:
        """By name."""
        return {name: table.spec for name, table in self.tables.items() if table.spec.is_global}

    def _spec(
        self, name: str, default: Callable[[], Any] | None, options: TableOptions, of_sets: bool = False
    ) -> TableSpec:
        if name in self.tables:
            raise AppError(f"app {self.id} has two tables called {name}")
        return spec_of(name, default, self.conf.tables_store, options, of_sets=of_sets)

    def retire(self, *tables: str) -> None:
        """Say that the app has had these tables, and shall not any more. Where tables have come as well, a worker does
        not start without that: one whose name was changed would begin empty. Their changelogs stay."""
        self.retired_tables.update(dict.fromkeys(tables))

    @overload
    def stream(self, *topics: Topic[K, V]) -> Source[K, V]: ...

    @overload
    def stream(self, *topics: Topic | str) -> Source[Any, Any]: ...

    def stream(self, *topics: Topic | str) -> Source[Any, Any]:
        """The events of topics, for steps that are declared: `app.stream(orders).filter(...).tumbling(60).count()`."""
        for each in topics:
            if not isinstance(each, (str, Topic)):
                raise AppError(f"app.stream() takes topics or their names, and not {each!r}")
        names = [name for each in topics for name in ([each] if isinstance(each, str) else each.names)]
        for each in topics:
            if isinstance(each, Topic):
                if each.columns is not None:
                    raise AppError(f"topic {each.names[0]} has columns: agents read it, steps of pipelines read events")
                self._declare(each)
        return self.pipeline.topic(*names)

    def _declare(self, topic: Topic) -> None:
        for name in topic.names:
            self.declared.setdefault(name, topic)

    def declaration(self, name: str) -> Topic:
        """How records of a topic are read and written in pipelines: as it was declared first, else as by default."""
        if name not in self.declared:
            repartitions = [node for node in self.pipeline.graph.nodes.values() if node.kind is Kind.REPARTITION]
            node = next((each for each in repartitions if each.topics == (name,)), None)
            self.declared[name] = self.topic(name) if node is None else self._repartition(node)
        return self.declared[name]

    def _repartition(self, node: Node) -> Topic:
        """The topic by which records get another key: whatever a table takes comes back as it was."""
        made = Topic(
            self,
            node.topics,
            serialization=repartition.SERIALIZATION,
            partitions=node.partitions,
            on_error=self.on_error,
            is_internal=True,
            partitioner=node.partitioner,
        )
        made.has_heartbeats, made.place = True, node.place
        return made

    def partitioner_of(self, topic: Topic) -> KeyRule:
        """Which partition a key has in it."""
        return self.conf.producer_partitioner if topic.partitioner is None else topic.partitioner

    def sources_of(self, topic: str) -> list[str]:
        """The topics whose number of partitions a repartition topic gets, if it says none: those of whose records its
        own are made; those of the table that it is to be read beside."""
        graph = self.pipeline.graph
        written = {each.topics[0]: each for each in graph.nodes.values() if each.kind is Kind.REPARTITION}
        if topic not in written:
            return []
        beside = written[topic].sized_as
        subtopology = None if beside is None else self.topology().of_table(beside)
        if subtopology is not None:
            return [name for name in subtopology.topics if name not in written or written[name].sized_as is None]
        return graph.made_from(topic)

    def tables_beside(self, topic: Topic) -> list[str]:
        """The tables of which it is to have the number of partitions."""
        nodes = self.pipeline.graph.nodes.values()
        return [each.sized_as for each in nodes if each.sized_as is not None and set(each.topics) & set(topic.names)]

    def agent(
        self,
        channel: Topic | Source[Any, Any] | Channel | str | None = None,
        *,
        name: str | None = None,
        concurrency: int = 1,
        sink: Iterable[Sink] | None = None,
        on_error: OnError | None = None,
        tables: Sequence[TableLike] = (),
        use_reply_headers: bool = False,
        isolated_partitions: bool = False,
        supervisor_strategy: Any = None,
        help: str = "",
        **of_topic: Any,
    ) -> Callable[[AgentFunction], Agent]:
        """Decorates `async def f(stream)`, which runs once for each task.

        channel: a topic, or its name; None: a topic of the app, `<app>-<name>`. name: by default module and function.
        use_reply_headers: whether who asks it says so by headers, so that any value can be sent; else by an envelope in
        JSON. isolated_partitions: as if it were true. supervisor_strategy: as if it were None; on_error says what is
        done with errors. of_topic: as `topic` has them, where channel is a name or None."""
        self._check_options(of_topic)
        if of_topic and channel is not None and not isinstance(channel, str):
            raise AppError(f"an agent of {channel!r} has no {next(iter(of_topic))}=: the topic is declared with it")
        if channel is not None and not isinstance(channel, (Topic, Source, Channel, str)):
            hint = ": write @app.agent(), with parentheses" if inspect.isfunction(channel) else ""
            raise AppError(f"an agent reads a topic, a channel or a source, and not {channel!r}{hint}")
        sinks = sinks_of(sink)

        def declare(function: AgentFunction) -> Agent:
            agent_name = name or default_name(function)
            memory = channel if isinstance(channel, Channel) else None
            topic = None if isinstance(channel, Channel) else channel
            if topic is None and memory is None:
                topic = self.topic(f"{self.id}-{agent_name}", internal=True, **of_topic)
            elif isinstance(topic, str):
                topic = self.topic(topic, internal=True, **of_topic)
            node = None
            if isinstance(topic, Source):
                node = topic._to_agent(agent_name).name
                topic = None
            agent = Agent(
                function,
                topic,
                node=node,
                name=agent_name,
                concurrency=concurrency,
                sink=sinks,
                on_error=self.on_error if on_error is None else on_error,
                tables=tables,
                app=self,
                memory=memory,
                use_reply_headers=use_reply_headers,
                help=help,
            )
            self.agents.append(agent)
            return agent

        return declare

    def _check_options(self, of_topic: Mapping[str, Any]) -> None:
        """Raises AppError for those of an agent that its topic, which is the app's own, cannot have."""
        of_topics = inspect.signature(self.topic).parameters.values()
        if any(each.kind is each.VAR_KEYWORD for each in of_topics):
            return  # an app that declares topics in its own way
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        known = [each.name for each in of_topics if each.kind in named and each.name != "internal"]
        own = [each.name for each in inspect.signature(self.agent).parameters.values() if each.kind in named]
        for option in of_topic:
            if option not in known:
                instead = or_near(option, [*own, *known], "=") or ": declare the topic with it, for @app.agent(topic)"
                raise AppError(f"an agent has no option {option}={instead}")

    def all_agents(self) -> list[Agent]:
        """The app's agents, and those that bring records to them through topics of the app."""
        return [each for agent in self.agents if agent.topic is not None for each in (*agent.forwarders(), agent)]

    # --- What runs beside the agents ----------------------------------------------------------------

    def task(self, function: F | None = None, *, on_leader: bool = False, traced: bool = True) -> Any:
        """Decorates an async function that runs once, when the worker has its first tasks. It may take the app."""
        return self.background.task(function, on_leader)

    def timer(
        self,
        interval: Seconds,
        on_leader: bool = False,
        traced: bool = True,
        name: str | None = None,
        max_drift_correction: float = 0.1,
    ) -> Callable[[F], F]:
        """Decorates an async function that runs every `interval` seconds; on_leader: in one worker of the app only. A
        run that takes longer leaves out those that it overlaps."""
        return self.background.timer(interval, on_leader, name)

    def crontab(
        self,
        cron_format: str,
        *,
        timezone: tzinfo | None = None,
        tz: tzinfo | None = None,
        on_leader: bool = False,
        traced: bool = True,
    ) -> Callable[[F], F]:
        """Decorates an async function that runs at the times of a line of a crontab, such as `30 18 * * mon-fri`; a
        sixth field has seconds.
        timezone (or tz): by default the app's, which is UTC by default."""
        return self.background.crontab(cron_format, timezone or tz, on_leader)

    def service(self, cls: F) -> F:
        """Decorates a subclass of `Service`, one of which the worker starts and stops with itself."""
        self.background.service(cls)
        return cls

    @property
    def should_stop(self) -> bool:
        """Whether the worker ends: for a loop in a task."""
        return self.background.ending is not None and self.background.ending.is_set()

    async def sleep(self, length: Seconds) -> None:
        """Until then, or until the worker ends."""
        if self.background.ending is None:
            await asyncio.sleep(seconds(length))
        else:
            await self.background.ending.sleep(length)

    def Worker(self, **options: Any) -> Any:
        """A `Worker` of this app."""
        from ..command.embedded import Worker  # allowed: the app is in hand

        return Worker(self, **options)

    # --- Pages --------------------------------------------------------------------------------------

    def page(
        self, path: str, *, base: type[View] = View, name: str | None = None, cors_options: Any = None
    ) -> Callable[[Any], type[View]]:
        """Decorates a `View`, or an async function that answers GET: it gets its view, the request, and what the path
        matches, such as `word` in `/count/{word}/`."""
        no_cors(path, cors_options)

        def declare(handler: Any) -> type[View]:
            return self.web.add_page(path, handler, name=name, base=base)

        return declare

    def table_route(
        self,
        table: tables.TableLike,
        shard_param: str | None = None,
        *,
        query_param: str | None = None,
        match_info: str | None = None,
        exact_key: str | None = None,
    ) -> Callable[[Handler], Handler]:
        """Decorates a handler below `@app.page`: a request is answered by the worker that has the row of its key, which
        is a parameter of the query (query_param, or shard_param), what the path matches (match_info), or fixed."""
        name = table.spec.name
        key = key_of(shard_param, query_param, match_info, exact_key)
        return route(self.router, lambda wanted: self.router.owner_url(name, wanted), key)

    def topic_route(
        self,
        topic: Topic,
        shard_param: str | None = None,
        *,
        query_param: str | None = None,
        match_info: str | None = None,
        exact_key: str | None = None,
    ) -> Callable[[Handler], Handler]:
        """`table_route` for the worker that reads the records of a key."""
        name = topic.get_topic_name()
        key = key_of(shard_param, query_param, match_info, exact_key)
        return route(self.router, lambda wanted: self.router.topic_owner_url(name, wanted), key)

    # --- Commands -----------------------------------------------------------------------------------

    def command(self, *options: Any, name: str | None = None, base: Any = None) -> Callable[[F], F]:
        """Decorates an async function that is run by `python app.py NAME`. options: of `option` and `argument`, which
        `isthmus.streams.cli` has; the function gets their values, after the command itself if it takes arguments. base:
        a subclass of `AppCommand`, of which the command is one then."""

        def declare(function: F) -> F:
            self.commands.append(declared(function, options, name, base))
            return function

        return declare

    def main(self) -> NoReturn:
        """Run the command line: `worker`, `agents`, `tables`, `send`, `reset`, and the app's own commands."""
        from ..command.tree import main  # allowed: a person starts it, with an app in hand

        main(self)

    def is_leader(self) -> bool:
        """Whether this is the worker with partition 0 of the first topic, by name, that the app reads: at any time at
        most one worker of the group has it, and one that the group has removed loses it when it learns so."""
        return self.worker is not None and self.worker.is_leader

    @property
    def rebalancing(self) -> bool:
        """Whether the worker is being given partitions, or restores tasks."""
        return self.worker is not None and self.worker.is_rebalancing

    # --- Sending, and running as a client -----------------------------------------------------------

    async def send(
        self,
        channel: Any,
        key: Any = None,
        value: Any = None,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
        **options: Any,
    ) -> Awaitable[RecordMetadata]:
        """Send a record to a topic, an agent, or the topic of this name, as `Topic.send` does. timestamp: seconds since
        the epoch."""
        to = self.topic(channel) if isinstance(channel, str) else channel
        if timestamp is not None:
            options["timestamp_ms"] = round(timestamp * 1000)
        sent: Awaitable[RecordMetadata] = await to.send(
            key=key, value=value, partition=partition, headers=headers, **options
        )
        return sent

    def outbox_at_hand(self) -> Outbox:
        """The worker's; where none runs, one of the running loop, which is made with the first record."""
        return self._outside_at_hand().outbox if self.outbox is None else self.outbox

    def reader_at_hand(self) -> ReadsReplies:
        """Of replies: the worker's; where none runs, that of the outbox."""
        return self._outside_at_hand().outbox if self.replies.reader is None else self.replies.reader

    def _outside_at_hand(self) -> Outside:
        loop = asyncio.get_running_loop()
        if self._outside is None or self._outside.loop is not loop:
            self._outside = Outside(self.conf, self.replies, loop)
        return self._outside

    async def start_client(self) -> None:
        """Connect now, to send or ask without a worker, rather than with the first record. Raises ClientError where no
        broker answers."""
        self.finalize()
        if self.outbox is None:
            await self._outside_at_hand().start()

    async def maybe_start_client(self) -> None:
        """`start_client`, unless the worker or the client runs."""
        await self.start_client()

    maybe_start_producer = maybe_start_client

    @property
    def client_only(self) -> bool:
        """Whether it runs as a client, without a worker."""
        return self.worker is None and self._outside is not None

    async def start(self) -> None:
        """Run a worker in this program, beside what else its loop does; returns when it has joined its group. Raises
        what keeps it from that. Later errors are raised by `stop`."""
        from ..runtime.process import Running  # allowed: the app is in hand

        if self._running is None:
            self._running = Running(self)
            try:
                await self._running.start()
            except BaseException:
                self._running = None
                raise

    async def maybe_start(self) -> bool:
        """`start`, unless a worker of it runs. Whether this call has started it."""
        if self._running is not None:
            return False
        await self.start()
        return True

    async def stop(self) -> None:
        """End the worker of `start`, with a last checkpoint, and the client: what was sent is acknowledged, and
        connections are closed. Raises the error by which the worker has ended."""
        running, self._running = self._running, None
        if running is not None:
            await running.stop()
        outside, self._outside = self._outside, None
        if outside is not None:
            await outside.close()

    # --- What it is made of -------------------------------------------------------------------------

    @property
    def reads(self) -> bool:
        """Whether it reads a topic: an app of channels, timers and pages alone does not, and is in no group."""
        graph = self.pipeline.graph
        return bool(self.all_agents()) or any(node.kind is Kind.TOPIC for node in graph.nodes.values())

    def input_topics(self) -> dict[str, Topic]:
        """Declarations of the topics that agents read, by name."""
        found: dict[str, Topic] = {}
        for agent in self.all_agents():
            for name in agent.reads.names:
                first = found.setdefault(name, agent.reads)
                first.is_asked = first.is_asked or agent.is_asked
                for what, same in (
                    ("types or codecs", first.reads_alike(agent.reads)),
                    ("on_error", first.on_error == agent.reads.on_error),
                ):
                    if not same:  # a record is decoded once, for all agents that read it
                        raise AppError(f"app {self.id}: topic {name} is read by two agents with different {what}")
        for node in self.pipeline.graph.nodes.values():
            if node.kind is Kind.TOPIC and self.pipeline.graph.is_read(node.name):
                for name in node.topics:
                    found.setdefault(name, self.declaration(name))
        if not found and not self.agents:
            raise AppError(f"app {self.id} has no agent: declare one with @app.agent(topic)")
        return found

    def all_tables(self) -> dict[str, TableSpec]:
        """The app's tables, and those of its pipelines' steps, by name."""
        so_far, found = self._tables_found
        if so_far == self._declared_so_far():
            return found
        graph = self.pipeline.graph
        alone = {watermarks_of(part): part_of(part) for part in graph.parts() if keeps_watermarks(part, graph)}
        watermarks = {name: TableSpec(name, part=part) for name, part in alone.items()}
        declared = {name: table.spec for name, table in self.tables.items()}
        specs = declared | graph.tables() | watermarks
        default = self.conf.producer_partitioner
        for name, by in partitioners(self.agents, graph, self.topology(), self.declared, default).items():
            specs[name].partitioner = by
        for name, topics in graph.keyed_by().items():
            specs[name].keys = ", ".join(sorted(set(map(self._keys_in, topics))))
        if self._keeps_tables:
            self._tables_found = self._declared_so_far(), specs
        return specs

    def _declared_so_far(self) -> tuple[int, ...]:
        """How many tables, agents, topics and steps. None of them is taken away, or replaced by another one."""
        return len(self.tables), len(self.agents), len(self.declared), len(self.pipeline.graph.nodes)

    def _keys_in(self, topic: str) -> str:
        """As what pipelines read the keys of a topic, for people."""
        if topic not in self.declared:
            return self.serializers.key_coder().reads
        serialization = self.declared[topic].serialization
        own = serialization.schema
        return serialization.key.reads if own is None else f"those of {type(own).__name__}"

    def topology(self) -> Topology:
        """What belongs together. A table that no agent was seen to use belongs to the only sub-topology, if there is
        one alone."""
        readers = [Reader(agent.name, agent.reads.names, agent.tables) for agent in self.all_agents()]
        behind = {agent.node: agent.tables for agent in self.agents if agent.node is not None}
        for part in self.pipeline.graph.parts():
            used = [table for node in part for table in behind.get(node.name, ())]
            kept = [watermarks_of(part)] if keeps_watermarks(part, self.pipeline.graph) else []
            readers.append(self.pipeline.graph.reader(part, (*used, *kept)))
        declared = [name for name, table in self.tables.items() if not table.spec.is_global]
        unseen = tuple(table for table in declared if not any(table in reader.tables for reader in readers))
        if unseen:
            if len(Topology(self.id, readers).subtopologies) > 1:
                raise AppError(
                    f"app {self.id}: which agents use table {unseen[0]} is not to be seen in their code. Name it at "
                    "each "
                    f"that does: @app.agent(topic, tables=[{unseen[0]}])"
                )
            readers = [Reader(each.name, each.topics, each.tables + unseen) for each in readers]
        return Topology(self.id, readers)
