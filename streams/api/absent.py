"""What Faust has and this package does not, with what to use instead: one table, for the errors of attributes that are
not there. Another table has what Kafka Streams calls otherwise than pipelines do.

A name that is not in the table either gets the nearest one that there is.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import MetaPathFinder
from types import FrameType
from typing import NoReturn

from ..near import or_near

_METRICS = "metrics of a worker are at /metrics, for Prometheus, and on its page"
_ENGINE = "the engine has no such part; "
_DJANGO = "Django is set up by itself where DJANGO_SETTINGS_MODULE names its settings"
_CREDENTIALS = "the client has neither TLS nor SASL: use a listener without, or a proxy"
_TRACING = "open spans of your tracing library in the agent; headers of an event are event.headers"
_JOINS = "joins are in pipelines: app.stream(topic).join(…)"
_CACHE = "keep what is dear in a variable, or in a table; HTTP caches take headers of your answers"

_JOB = "declare a service with @app.service, or a task with @app.task"
_STOPPING = "app.should_stop says that the worker ends, and app.sleep() ends then"
_LOG = "take a logger of the module logging"
_CRASH = "raise an error; on_error and on_task_error say what it does"
_STATE = "the worker's state is on its page, at /health and in /metrics"
_HANGS = "`isthmus status` shows the line in which a worker hangs"
_WAIT = "asyncio.wait, or asyncio.wait_for"

# What each class of Faust has from mode's Service, and none has here.
OF_SERVICES: dict[str, str] = {
    **dict.fromkeys(["Diag", "diag", "SCAN_CATEGORIES"], "the page of the worker shows what it does"),
    **dict.fromkeys(
        ["add_context", "add_async_context", "exit_stack", "async_exit_stack"], "use `async with` in a task"
    ),
    **dict.fromkeys(
        [
            "add_dependency",
            "add_runtime_dependency",
            "remove_dependency",
            "join_services",
            "from_awaitable",
            "on_init_dependencies",
        ],
        _JOB,
    ),
    **dict.fromkeys(["add_future"], "asyncio.create_task in a task of yours, or @app.task"),
    **dict.fromkeys(["crash", "crashed", "crash_reason", "supervisor"], _CRASH),
    **dict.fromkeys(["log", "logger", "mundane_level"], _LOG),
    **dict.fromkeys(["state", "started", "restart_count", "transition_with", "transitions_to"], _STATE),
    **dict.fromkeys(["tracebacks", "human_tracebacks"], _HANGS),
    **dict.fromkeys(["itertimer", "timer", "crontab", "task"], "@app.timer(interval), @app.crontab(…), @app.task"),
    **dict.fromkeys(["wait", "wait_first", "wait_many"], _WAIT),
    **dict.fromkeys(["should_stop", "sleep", "set_shutdown", "shutdown_timeout"], _STOPPING),
    **dict.fromkeys(["wait_for_stopped", "wait_for_shutdown", "wait_until_stopped"], "await app.stop()"),
    **dict.fromkeys(
        ["on_init", "on_start", "on_started", "on_first_start", "on_restart", "on_stop", "on_shutdown"],
        "app.on_started and app.on_before_shutdown, or the methods of a Service",
    ),
    **dict.fromkeys(
        ["start", "stop", "maybe_start", "restart", "service_reset"], "app.start() and app.stop(), or app.main()"
    ),
    **dict.fromkeys(["label", "shortlabel"], "str() of the object, or its name"),
    "abstract": "classes of services need not say so",
    "beacon": _ENGINE + "services need none",
    "loop": "asyncio.get_running_loop() in async code",
}
_REBALANCE = "app.on_partitions_assigned, on_partitions_revoked and on_rebalance_complete"
_SEND = "await topic.send(…)"
_DECODE = "on_error of the topic says what is done with a record that cannot be decoded"
_READ = "an agent reads a topic: @app.agent(topic)"

ABSENT: dict[str, dict[str, str]] = {
    "package": {
        "livecheck": "test an app with TestDriver, and a cluster by the worker's /health",
        "sensors": _METRICS,
        "Sensor": _METRICS,
        "Monitor": _METRICS,
        "fixups": _DJANGO,
        "GSSAPICredentials": _CREDENTIALS,
        "OAuthCredentials": _CREDENTIALS,
        "SASLCredentials": _CREDENTIALS,
        "SSLCredentials": _CREDENTIALS,
        "assignor": _ENGINE + "tasks stay where they are as far as can be",
        "transport": _ENGINE + "broker='kafka://HOST:PORT' is what it speaks",
        "SlidingWindow": "app.stream(topic).sliding(size), a step of pipelines",
        "Window": "HoppingWindow, or TumblingWindow",
        "exceptions": "errors are in the package: StreamsError, AppError, RecordError",
        **{
            module: f"its names are in the package: from isthmus.streams import {name}"
            for module, name in (
                ("agents", "Agent"),
                ("app", "App"),
                ("channels", "Channel"),
                ("events", "Event"),
                ("streams", "Stream"),
                ("tables", "Table"),
                ("topics", "Topic"),
                ("windows", "TumblingWindow"),
                ("worker", "Worker"),
            )
        },
        "auth": _CREDENTIALS,
        "joins": _JOINS,
        "stores": "name one by store='memory://' or 'rocksdb://', of the app or a table",
    },
    "App": {
        "LiveCheck": "test an app with TestDriver, and a cluster by the worker's /health",
        "FlowControlQueue": "use an asyncio.Queue with a maxsize",
        "cache": _CACHE,
        "monitor": _METRICS,
        "sensors": _METRICS,
        "tracer": _TRACING,
        "trace": _TRACING,
        "traced": _TRACING,
        "producer": "await topic.send(…), or app.send(name, …)",
        "consumer": "use Consumer of isthmus.client for topics that no agent reads",
        "transport": _ENGINE + "use Client of isthmus.client",
        "producer_transport": _ENGINE + "use Client of isthmus.client",
        "flow_control": _ENGINE + "agents that are behind hold back their partitions by themselves",
        "http_client": "make an aiohttp.ClientSession in a task or a service",
        "assignor": _ENGINE + "app.router finds the owner of a key, app.is_leader() says who leads",
        "topics": "app.input_topics() has those that agents read",
        "commit": "a worker commits what agents have done, every broker_commit_interval seconds",
        "in_transaction": "app.conf.processing_guarantee says it",
        "create_event": "an event is made from a record; send one, or give one to TestDriver",
        "fixups": _DJANGO,
        "boot_strategy": "settings say what runs: web_enabled, and no agents means no group",
        "BootStrategy": "settings say what runs: web_enabled, and no agents means no group",
        "loop": "asyncio.get_running_loop() in async code",
        "beacon": _ENGINE + "services need none",
        "add_runtime_dependency": "declare a service with @app.service",
        "web_server": "serve_asgi(app, …) of isthmus.streams.contrib.asgi, or a service of yours: @app.service",
        "on_produce_message": "wrap topic.send in a function of yours",
        "itertimer": "@app.timer(interval)",
        "Settings": "Settings of the package; app.conf has them",
        "actor": "app.agent",
        **dict.fromkeys(
            ["configured", "finalized", "worker_init", "worker_init_post_autodiscover"],
            "app.finalize() does it; app.on_configured and app.on_after_configured tell of it",
        ),
        **dict.fromkeys(["on_rebalance_start", "on_rebalance_end", "on_rebalance_return"], _REBALANCE),
        **dict.fromkeys(
            ["in_recovery", "unassigned", "rebalancing_count", "consumer_generation_id"], "app.rebalancing"
        ),
        **dict.fromkeys(["in_worker", "producer_only"], "app.worker is None where none runs; app.client_only"),
        **dict.fromkeys(
            ["on_init_extra_service", "on_started_init_extra_services", "on_started_init_extra_tasks"], _JOB
        ),
        **dict.fromkeys(
            ["on_started_init_web_server", "on_webserver_init", "web_server_driver_version"],
            "the server is aiohttp; web_application_options= configures it",
        ),
        "web_server_url": "app.conf.canonical_url",
    },
    "Agent": {
        "supervisor": "on_error says what an error does: fail, skip, or to a dead-letter topic",
        "isolated_partitions": "each task has an agent of its own",
        "supervisor_strategy": "on_error says what an error does: fail, skip, or to a dead-letter topic",
        "actor_from_stream": "use TestDriver",
        "stream": "the function of the agent is given its stream",
        "channel_iterator": "the function of the agent is given its stream",
        "cancel": "an agent runs as long as its task is here",
        "actor_tracebacks": _HANGS,
        "clone": "declare another agent",
        "info": "its attributes: name, topic, concurrency, help",
        "get_topic_names": "agent.topic.names",
        **dict.fromkeys(
            [
                "on_partitions_assigned",
                "on_partitions_revoked",
                "on_isolated_partitions_assigned",
                "on_isolated_partitions_revoked",
                "on_shared_partitions_assigned",
                "on_shared_partitions_revoked",
            ],
            _REBALANCE,
        ),
    },
    "Stream": {
        "combine": "declare one topic of several: app.topic('a', 'b')",
        "join": _JOINS,
        "left_join": _JOINS,
        "inner_join": _JOINS,
        "outer_join": _JOINS,
        "contribute_to_stream": "write a function that takes the stream",
        "channel": "the agent's topic: agent.topic",
        **dict.fromkeys(["ack", "enable_acks"], "an event is done when the agent asks for the next one"),
        **dict.fromkeys(
            ["clone", "get_root_stream", "remove_from_stream", "outbox", "prefix"],
            _ENGINE + "streams have no ancestors",
        ),
        "derive_topic": "stream.through(topic), or app.topic(…)",
        "events_total": "isthmus_streams_processed_total, at /metrics",
        "info": "the agent's attributes: name, topic",
        **dict.fromkeys(["join_strategy", "on_merge"], _JOINS),
        "task_owner": "asyncio.current_task()",
        "throw": _CRASH,
        "concurrency_index": "the runs of an agent share each batch, and have no number",
    },
    "Table": {
        "changelog_topic": "a worker alone writes a changelog, in transactions; app.changelog_topic(name) is its name",
        "on_key_get": "wrap the table in a class of yours",
        "on_key_set": "wrap the table in a class of yours",
        "on_key_del": "wrap the table in a class of yours",
        "reset_state": "`python app.py reset` deletes tables on this disk",
        "partition_for_key": "app.router.key_store(table, key) is the worker that has it",
        "use_partitioner": "rows are in the task of the event that wrote them",
        "clone": "declare another table",
        "info": "vars(table.spec)",
        "WindowWrapper": "table.tumbling(…) and table.hopping(…) give one",
        **dict.fromkeys(["combine", "contribute_to_stream", "remove_from_stream"], "use the table in the agent"),
        **dict.fromkeys(
            ["join", "left_join", "inner_join", "outer_join"],
            "joins of tables are in pipelines: app.stream(topic).table(…)",
        ),
        "data": "the table is a mapping; app.router and the pages find rows of others",
        "fromkeys": "table.update(dict.fromkeys(…)) in an agent",
        "on_clear": "wrap the table in a class of yours",
        "on_window_close": "Table(…, on_window_close=function)",
        **dict.fromkeys(["Manager", "manager_topic_suffix"], "SetTable(…, start_manager=True) has table.manager"),
        "raw_update": "table.update(…) in an agent",
        **dict.fromkeys(
            [
                "apply_changelog_batch",
                "on_changelog_event",
                "send_changelog",
                "persisted_offset",
                "call_recover_callbacks",
                "need_active_standby_for",
                "on_recovery_completed",
                "on_rebalance",
            ],
            _ENGINE + "a worker writes and restores changelogs by itself",
        ),
    },
    "Topic": {
        **dict.fromkeys(["as_future_message", "publish_message", "deliver", "put"], _SEND),
        **dict.fromkeys(["prepare_key", "prepare_value", "prepare_headers"], "topic.encode_key and topic.encode_value"),
        **dict.fromkeys(["decode", "on_decode_error", "on_key_decode_error", "on_value_decode_error"], _DECODE),
        **dict.fromkeys(
            ["stream", "get", "empty", "queue", "throw", "subscriber_count", "on_stop_iteration", "clone_using_queue"],
            _READ + "; a program of yours takes Consumer of isthmus.client",
        ),
        **dict.fromkeys(["clone", "derive_topic"], "declare another one: app.topic(…)"),
        **dict.fromkeys(["has_prefix", "pattern"], "name the topics: app.topic('a', 'b')"),
        "label": "str() of the topic, or its name",
    },
    "Service": {},
    "View": {
        **dict.fromkeys(
            ["head", "get", "post", "patch", "delete", "put", "options", "search"],
            "a view has the methods that it answers; others are a 405",
        ),
        **dict.fromkeys(["bytes_to_response", "response_to_bytes"], _CACHE),
        "route": "@app.page(path), or app.web.route(path, function)",
    },
    "Blueprint": {
        "cache": _CACHE,
        **dict.fromkeys(["init_webserver", "on_webserver_init"], "the server is aiohttp; web_application_options="),
        "view_name_separator": "a colon: path_for('BLUEPRINT:VIEW')",
    },
    "Router": dict.fromkeys(["route_req", "route_topic_req"], "@app.table_route and @app.topic_route"),
    "Channel": {
        **dict.fromkeys(["as_future_message", "publish_message", "deliver", "send_soon"], "await channel.send(…)"),
        **dict.fromkeys(
            ["prepare_headers", "prepare_key", "prepare_value", "decode"], "what is sent comes as it is: no codecs"
        ),
        **dict.fromkeys(["on_decode_error", "on_key_decode_error", "on_value_decode_error"], "nothing is decoded"),
        **dict.fromkeys(["clone", "clone_using_queue", "derive"], "declare another one: app.channel()"),
        **dict.fromkeys(["declare", "maybe_declare"], "a channel is in memory: no broker has it"),
        **dict.fromkeys(
            ["queue", "stream", "subscriber_count", "throw", "on_stop_iteration"],
            "an agent reads it, `async for` or get()",
        ),
        "label": "str() of the channel",
    },
    "Schema": {
        "compile": "a topic binds its schema to the app's codecs",
        "decode": "loads_key and loads_value",
    },
    "contrib": {
        "fastapi": "isthmus.streams.contrib.asgi, as it is called now",
        "opentelemetry": _TRACING,
        "sentry": "sentry_sdk.init(…) in your program: what fails is logged with its traceback",
    },
    "contrib.asgi": {
        "AsgiService": "serve_asgi(app, asgi_app, …) declares one",
        **dict.fromkeys(["LoopMismatch", "bind_to_running_loop"], "an app takes the loop that it is started in"),
    },
    "web": {"ResourceOptions": "set the headers of CORS in your views"},
    "cli": {"call_command": "TestDriver(app).command(…)"},
    "serializers": {"Registry": "codecs.register(name, codec)"},
    "models": {
        "maybe_model": "MODEL.from_data(data)",
        "registry": "`python app.py models` lists the records of a program",
    },
    "types": {
        **dict.fromkeys(
            [
                "AgentManagerT",
                "ConsumerCallback",
                "ConsumerT",
                "FixupT",
                "JoinT",
                "MessageSentCallback",
                "ProducerT",
                "RegistryT",
                "SensorT",
                "StoreT",
                "TransactionManagerT",
                "TransportT",
            ],
            _ENGINE + "typing.Any",
        ),
        "JoinableT": "StreamT or TableT",
        "PendingMessage": "FutureMessage, which send() returns",
        "ProcessingGuarantee": "text: processing_guarantee='exactly_once'",
    },
    "AppCommand": {
        **dict.fromkeys(["as_click_command", "as_service", "parse", "from_handler"], "@app.command(…)"),
        **dict.fromkeys(["execute", "run_using_worker", "worker_for_service", "on_worker_created"], "@app.command(…)"),
        **dict.fromkeys(["daemon", "on_stop"], "a command ends when its function returns: wait in it"),
        **dict.fromkeys(["redirect_stdouts", "redirect_stdouts_level"], "worker_redirect_stdouts, a setting"),
        **dict.fromkeys(["blocking_timeout", "console_port"], _HANGS),
        **dict.fromkeys(["to_key", "to_value", "to_model"], "MODEL.loads(data, serializer='json')"),
        "to_topic": "command.app.topic(name)",
        "import_relative_to_app": "importlib.import_module(…)",
        "abbreviate_fqdn": "name.removeprefix(…)",
        "table": "command.tabulate(…)",
        "abstract": "a class without `run` is no command",
        "run": "the function that @app.command decorates",
        "require_app": "a command always has its app",
        "builtin_options": "options of all commands are those of the script, before the command",
        "args": "kwargs has arguments and options, by name",
        "state": "its attributes: json, quiet, debug, workdir, datadir, loglevel, logfile",
        "ctx": "click.get_current_context()",
        **dict.fromkeys(["key_serializer", "value_serializer"], "command.app.conf has them"),
    },
    "Worker": {
        **dict.fromkeys(
            ["BLOCK_DETECTOR", "blocking_detector", "maybe_start_blockdetection"],
            "`isthmus status` shows a worker that hangs",
        ),
        **dict.fromkeys(["autodiscover"], "app.discover(…), or the setting autodiscover"),
        **dict.fromkeys(["carp", "say", "on_setup_root_logger"], _LOG),
        "change_workdir": "os.chdir, or -W on the command line",
        **dict.fromkeys(
            [
                "install_signal_handlers",
                "on_execute",
                "on_worker_shutdown",
                "stop_and_shutdown",
                "default_on_first_start",
            ],
            "worker.execute_from_commandline() does it; app.on_before_shutdown tells of the end",
        ),
        "on_startup_finished": "app.on_startup_finished",
    },
}

# Of the command line.
COMMANDS = {
    "clean-versions": "state of old versions is removed by the worker; `reset` deletes what is on this disk",
    "completion": "click's own: `_SCRIPT_PY_COMPLETE=bash_source script.py`",
    "livecheck": "test an app with TestDriver, and a cluster by the worker's /health",
}

_WINDOWS = "tumbling(60), hopping(60, 10), sliding(60) or session(30) of a source, without group_by_key()"
_PROCESS = "process(make)"
_ENDS = "final() or current() of the windows' aggregate"
_CHANGES = "stream() gives the changes: table.stream()"

# Names of Kafka Streams, as its DSL has them, for steps of pipelines.
OF_KAFKA_STREAMS: dict[str, dict[str, str]] = {
    "Source": {
        "mapValues": "map(function), which keeps the key",
        "flatMapValues": "flat_map(function), which keeps the key",
        "selectKey": "group_by(key, name=…), which brings the events of a key together",
        "repartition": "group_by(key, name=…), which brings the events of a key together",
        "through": "to(topic), and app.stream(topic)",
        "filterNot": "filter(lambda value: not …)",
        "foreach": "peek(function), or an agent: @app.agent(topic)",
        "print": "peek(print)",
        "toTable": "table(name)",
        "split": "branch(…)",
        "windowedBy": _WINDOWS,
        "cogroup": "merge(other), and aggregate(…) with several columns",
        "count": "group_by_key().count(), or windows: tumbling(60).count()",
        "reduce": "group_by_key().reduce(…), or windows: tumbling(60).reduce(…)",
        "aggregate": "group_by_key().aggregate(…), or windows: tumbling(60).aggregate(…)",
        **dict.fromkeys(
            ["transform", "transformValues", "flatTransform", "flatTransformValues", "processValues"], _PROCESS
        ),
    },
    "Keyed": {"windowedBy": _WINDOWS, "cogroup": "merge the sources before, and aggregate(…) with several columns"},
    "Windowed": {"windowedBy": "only one kind of windows", "emitStrategy": _ENDS},
    "Aggregated": {
        "suppress": "final() gives the one result of a window that has closed",
        "toStream": "current() gives each update, final() one result",
        "emitStrategy": _ENDS,
        "to": "final().to(topic), or current().to(topic)",
        "table": "current().table(name), or final().table(name)",
    },
    "TableView": {
        "toStream": _CHANGES,
        "mapValues": _CHANGES,
        "filter": _CHANGES,
        "filterNot": _CHANGES,
        "transformValues": _CHANGES + ".process(make)",
        "foreignKeyJoin": "join(other, key=…)",
        "queryableStoreName": "the table's name: `isthmus table get APP TABLE KEY`, or get(key) in an agent",
    },
    "GroupedTable": {"reduce": "aggregate(initial, add, subtract)"},
}

_FROM = dis.opmap["IMPORT_FROM"]
MODULES = ("contrib", "contrib.asgi", "web", "cli", "serializers", "models", "types")
FLAT = ("cli", "contrib", "models", "serializers", "types", "utils", "web")  # have modules below them in Faust
SERVICES = ("App", "Agent", "Stream", "Table", "Service", "Worker")  # which are services in Faust


def said(of: str, name: str, known: Iterable[str] = ()) -> str:
    """The message for an attribute that is not there. of: as in the table. known: names that are."""
    instead = ABSENT[of].get(name) or (OF_SERVICES.get(name) if of in SERVICES else None)
    what = "isthmus.streams" if of == "package" else f"isthmus.streams.{of}" if of in MODULES else of
    if instead is not None:
        return f"{what} has no {name}, which Faust has: {instead}"
    return f"{what} has no {name}" + or_near(name, [each for each in known if not each.startswith("_")])


def of_module(of: str, known: Sequence[str]) -> Callable[[str], NoReturn]:
    """`__getattr__` of a module that Faust has, too."""

    def missing(name: str) -> NoReturn:
        message = said(of, name, known)
        asks: FrameType | None = sys._getframe(1)
        if asks is not None and asks.f_code.co_name == "__getattr__":  # of a module that has more
            asks = asks.f_back
        if name in ABSENT[of] and asks is not None and asks.f_code.co_code[asks.f_lasti] == _FROM:
            raise ImportError(message)  # `from MODULE import` would tell nothing of an AttributeError
        raise AttributeError(message)

    return missing


class Modules(MetaPathFinder):
    """Asked last, so for modules that are not there. One that Faust has, too, says what to use instead: as names do."""

    package = "isthmus.streams"

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raises ModuleNotFoundError."""
        if not name.startswith(f"{self.package}."):
            return
        module, _, below = name.removeprefix(f"{self.package}.").partition(".")
        if module in ABSENT["package"]:
            raise ModuleNotFoundError(said("package", module), name=name)
        if below and module in FLAT:
            told = f"there is no module {name}: what there is of Faust's names is in {self.package}.{module}"
            raise ModuleNotFoundError(told, name=name)


def missing_of_step(step: object, name: str) -> NoReturn:
    """`__getattr__` of steps of pipelines. Raises AttributeError, which says what to use instead of what Kafka Streams
    has, in its own spelling or in Python's."""
    known = [each for each in dir(type(step)) if not each.startswith("_")]
    of = next((each.__name__ for each in type(step).__mro__ if each.__name__ in OF_KAFKA_STREAMS), "")
    first, *rest = name.split("_")
    spelled = first + "".join(part.capitalize() for part in rest)
    instead = OF_KAFKA_STREAMS.get(of, {}).get(spelled) if first else None
    what = f"{type(step).__name__} has no {name}"
    if instead is not None:
        raise AttributeError(f"{what}, which Kafka Streams has: {instead}")
    raise AttributeError(what + (or_near(_in_python(name), known) or f"; it has {', '.join(known)}"))


def _in_python(name: str) -> str:
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name)
