"""The settings of an app: one table. A name, its type, default, meaning and environment variable stand in one place.

Names and defaults are Faust's (faust-streaming 0.15.3), except where a row says otherwise. What Faust has and this
package does not is in `IGNORED` (taken, and said once when the worker starts) and `REFUSED` (an error that says what to
use): a program is never run with a promise that nothing keeps. An environment variable counts before what the program
says, as in Faust.

Durations are seconds, as a number or a timedelta.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar, overload
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ...client.joining import CLASSIC, CONSUMER
from ...client.partitioner import DEFAULT_PARTITIONER
from ..engine import topic_names
from ..engine.datacenters import ByDatacenter
from ..engine.failures import FAIL, OnError, check
from ..engine.lengths import Seconds, seconds
from ..engine.partitioning import KeyRule, key_rule
from ..errors import AppError
from ..near import or_near

T = TypeVar("T")
Autodiscover = bool | Iterable[str] | Callable[[], Iterable[str]]

AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once"
TRANSACTION_MAX_S = 900.0  # transaction.max.timeout.ms of a cluster, by default
COMMIT_INTERVAL_S = {AT_LEAST_ONCE: 0.5, EXACTLY_ONCE: 0.1}
LOG = "log"
BROKER_PORT, WEB_PORT = 9092, 6066
BROKER_SCHEMES = ("kafka", "aiokafka", "confluent")
STORES = {"memory": "memory", "rocksdb": "disk", "disk": "disk"}


# --- What a row says --------------------------------------------------------------------------------


class Setting(Generic[T]):
    """One row. default: a value, or a function of the settings. faust: the default that Faust has, where this is
    another one. is_ours: Faust has no such setting."""

    def __init__(
        self,
        read: Callable[[Any], T],
        default: Any,
        doc: str,
        *,
        env: str | None = None,
        faust: str = "",
        is_ours: bool = False,
    ) -> None:
        self.read = read
        self.default = default
        self.doc = doc
        self.env = env
        self.faust = faust
        self.is_ours = is_ours
        self._fixed: T | None = None if default is None or callable(default) else read(default)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, settings: None, owner: type) -> Setting[T]: ...

    @overload
    def __get__(self, settings: Settings, owner: type) -> T: ...

    def __get__(self, settings: Settings | None, owner: type) -> Setting[T] | T:
        if settings is None:
            return self
        if self.name in settings.said:
            value: T = settings.said[self.name]
            return value
        if callable(self.default):
            return self.read(self.default(settings))
        fixed: Any = self._fixed  # None: a setting that may be None, which its type says
        return fixed

    def __set__(self, settings: Settings, value: Any) -> None:
        if value is None:  # as in Faust: the default
            settings.said.pop(self.name, None)
            return
        try:
            settings.said[self.name] = self.read(value)
        except (TypeError, ValueError) as error:
            shown = re.sub(r"//[^/@]*@", "//…@", repr(value))  # no password into the log
            raise AppError(f"app {settings.name}: {self.name} is {shown}, but {error}") from None


def _text(value: Any) -> str:
    return str(value)


def _integer(least: int = 0, most: int | None = None) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        try:
            number = int(value)
        except (TypeError, ValueError):
            raise ValueError("must be a whole number") from None
        if number < least or (most is not None and number > most):
            raise ValueError(f"must be {least} or more" if most is None else f"must be from {least} to {most}")
        return number

    return read


def _duration(value: Any) -> float:
    try:
        length = seconds(value)
    except (TypeError, ValueError):
        raise ValueError("must be a number of seconds, or a timedelta") from None
    if length < 0:
        raise ValueError("must not be negative")
    return length


def _boolean(value: Any) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if isinstance(value, str):
        if value.lower() not in words:
            raise ValueError("must be true or false")
        return words[value.lower()]
    return bool(value)


def _one_of(*names: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        name = str(getattr(value, "value", value))  # also a member of Faust's enum
        if name not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return name

    return read


def _brokers(value: Any) -> list[str]:
    """`kafka://a:9092;b:9092`, `a:9092,b`, or a list of such. Returns `kafka://HOST:PORT` of each."""
    if not isinstance(value, str):
        if not isinstance(value, Iterable):
            value = str(value)  # such as yarl's URL
        else:
            return [url for each in value for url in _brokers(each)]
    found = []
    for part in value.replace(",", ";").split(";"):
        scheme, separator, address = part.strip().rpartition("://")
        if separator and scheme not in BROKER_SCHEMES:
            raise ValueError(f"must begin with {'://, '.join(BROKER_SCHEMES)}:// or be HOST:PORT")
        address = address.rstrip("/") or "localhost"
        if "@" in address:
            raise ValueError("must have no user and password: the client has no SASL")
        host, colon, port = address.rpartition(":")
        if not colon or address.endswith("]"):
            host, port = address, str(BROKER_PORT)
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= 65_535:
            raise ValueError("must be HOST:PORT of each broker, such as kafka://10.0.0.1:9092;10.0.0.2:9092")
        found.append(f"kafka://{host}:{port}")
    return found


def _store(value: Any) -> str:
    scheme = str(value).partition("://")[0]
    if scheme not in STORES:
        raise ValueError("must be memory:// or rocksdb://")
    return f"{scheme}://"


def _timezone(value: Any) -> tzinfo:
    if isinstance(value, tzinfo):
        return value
    try:
        return ZoneInfo(str(value))
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError("must be a time zone, such as Europe/Berlin") from None


def _by_datacenter(value: Any) -> ByDatacenter | None:
    if value is not None and not isinstance(value, ByDatacenter):
        raise ValueError("must be a ByDatacenter(...)")
    return value


def _partitioner(value: Any) -> KeyRule:
    return key_rule(value, "the app")


def _autodiscover(value: Any) -> Autodiscover:
    return _boolean(value) if isinstance(value, str) else value


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value)


def _handlers(value: Any) -> list[logging.Handler]:
    return list(value)


def _anything(value: Any) -> Any:
    return value


# --- The table --------------------------------------------------------------------------------------


class Settings:
    """`app.conf`: each setting is an attribute, and can be set until the worker starts."""

    autodiscover = Setting[Autodiscover](
        _autodiscover,
        False,
        "Import modules when the worker or a command starts, so that their agents, tasks and pages are known: a list "
        "of modules or packages, or a function that gives one; true: the package that `origin` names, and with Django "
        "those of its `INSTALLED_APPS`.",
    )
    datadir = Setting[Path](
        Path, lambda conf: f"{conf.name}-data", "Folder of all versions' state on disk.", env="APP_DATADIR"
    )
    tabledir = Setting[Path](
        Path, "tables", "Folder of tables on disk; below `appdir` if it is relative.", env="APP_TABLEDIR"
    )
    debug = Setting[bool](_boolean, False, "Show tracebacks on error pages of the web server.", env="APP_DEBUG")
    env_prefix = Setting[str](
        _text, "", "What the names of environment variables begin with, such as MYAPP_.", env="APP_ENV_PREFIX"
    )
    id_format = Setting[str](
        _text, "{id}-v{self.version}", "The id of an app whose version is above 1.", env="APP_ID_FORMAT"
    )
    origin = Setting[str | None](_text, None, "The package that the app is in.")
    timezone = Setting[tzinfo](_timezone, UTC, "Time zone of crontabs that name none.", env="TIMEZONE")
    version = Setting[int](
        _integer(1), 1, "Another version is another app: other group, topics and state.", env="APP_VERSION"
    )
    on_error = Setting[OnError](
        lambda value: check(value, "the app"),
        FAIL,
        "What an error does where a topic, an agent or a step says nothing else: `fail`, `stop`, `skip`, "
        "`dead_letter`, or a function that says one of them.",
        is_ours=True,
    )
    on_task_error = Setting[str](
        _one_of(LOG, FAIL),
        LOG,
        "What an error in a task, timer, crontab or service does: `log` it with its traceback, `fail` ends the worker. "
        "Faust's worker ends.",
        env="APP_ON_TASK_ERROR",
        is_ours=True,
    )

    broker = Setting[list[str]](
        _brokers,
        "kafka://localhost:9092",
        "Bootstrap addresses: `kafka://a:9092;b:9092`, `a:9092,b:9092`, or a list.",
        env="BROKER_URL",
    )
    broker_client_id = Setting[str](
        _text, lambda conf: conf.id, "What brokers see of the client.", env="BROKER_CLIENT_ID", faust="faust-VERSION"
    )
    broker_commit_interval = Setting[float](
        _duration,
        lambda conf: COMMIT_INTERVAL_S[conf.processing_guarantee],
        "Between commits of tables, input positions and outputs: 0.5 s; 0.1 s with exactly_once.",
        env="BROKER_COMMIT_INTERVAL",
        faust="2.8",
    )
    broker_heartbeat_interval = Setting[float](
        _duration, 1.0, "Between heartbeats to the group.", env="BROKER_HEARTBEAT_INTERVAL", faust="3"
    )
    broker_rebalance_timeout = Setting[float](
        _duration, 60.0, "For how long a group waits for a worker in a rebalance.", env="BROKER_REBALANCE_TIMEOUT"
    )
    broker_session_timeout = Setting[float](
        _duration,
        10.0,
        "Without a heartbeat for so long, a worker loses its tasks to others.",
        env="BROKER_SESSION_TIMEOUT",
        faust="60",
    )
    broker_request_timeout = Setting[float](
        _duration, 30.0, "For the answer to a request of a producer.", env="BROKER_REQUEST_TIMEOUT", faust="90"
    )

    consumer_auto_offset_reset = Setting[str](
        _one_of("earliest", "latest"),
        "earliest",
        "Where a new app begins to read: `earliest` or `latest`.",
        env="CONSUMER_AUTO_OFFSET_RESET",
    )
    consumer_group_instance_id = Setting[str | None](
        _text, None, "Makes the worker a static member of the group (KIP-345).", env="CONSUMER_GROUP_INSTANCE_ID"
    )
    group_protocol = Setting[str](
        _one_of(CLASSIC, CONSUMER),
        CLASSIC,
        "How workers share tasks, as Kafka's `group.protocol`: `classic`, where one of them assigns whole tasks; "
        "`consumer` (KIP-848), where the cluster assigns partitions.",
        env="GROUP_PROTOCOL",
        is_ours=True,
    )
    consumer_max_fetch_size = Setting[int](
        _integer(1), 1 << 20, "Bytes of one partition in one fetch.", env="CONSUMER_MAX_FETCH_SIZE"
    )

    key_serializer = Setting[Any](_anything, "raw", "Codec of keys of topics that name none.", env="APP_KEY_SERIALIZER")
    value_serializer = Setting[Any](
        _anything, "json", "Codec of values of topics that name none.", env="APP_VALUE_SERIALIZER"
    )

    logging_config = Setting[dict[str, Any] | None](
        _mapping, None, "For `logging.config.dictConfig`, instead of the log to stderr."
    )
    loghandlers = Setting[list[logging.Handler]](_handlers, lambda conf: [], "More handlers of the root logger.")

    producer_compression_type = Setting[str](
        _one_of("none", "gzip", "snappy", "lz4", "zstd"),
        "lz4",
        "Compression of what agents send.",
        env="PRODUCER_COMPRESSION_TYPE",
        faust="none",
    )
    producer_linger = Setting[float](
        _duration, 0.005, "For how long a batch waits for more records.", env="PRODUCER_LINGER", faust="0"
    )
    producer_transaction_timeout = Setting[float](
        _duration,
        lambda conf: min(max(30.0, 2 * conf.broker_commit_interval), TRANSACTION_MAX_S),
        "After so long the cluster aborts a transaction: what a killed worker has left open, if no other one knows of "
        "that; with exactly_once also that of an event which takes longer. Must be longer than "
        "broker_commit_interval: 30 s, or twice as long as that.",
        env="PRODUCER_TRANSACTION_TIMEOUT",
        is_ours=True,
    )

    repartition_purge_interval = Setting[float](
        _duration,
        30.0,
        "Between deletions of what was read of topics between steps, and committed; 0: it stays.",
        env="REPARTITION_PURGE_INTERVAL",
        is_ours=True,
    )

    producer_partitioner = Setting[KeyRule](
        _partitioner,
        DEFAULT_PARTITIONER,
        "Which partition a key's records go to, where a topic says nothing else: `murmur2_random` as Java's clients, "
        "`consistent_random` as librdkafka's, `murmur2`, `consistent`, `fnv1a`, `fnv1a_random`, `random`, or a "
        "function of (key, number of partitions), or of (key, all, available) as in Faust.",
        env="PRODUCER_PARTITIONER",
        faust="a function",
    )

    reply_create_topic = Setting[bool](
        _boolean, False, "Create the topic of replies when a client starts.", env="APP_REPLY_CREATE_TOPIC"
    )
    reply_expires = Setting[float](
        _duration, 86_400.0, "For how long replies are kept in their topic.", env="APP_REPLY_EXPIRES"
    )
    reply_to = Setting[str | None](_text, None, "Topic of replies; by default `APP-replies`.")
    reply_to_prefix = Setting[str](_text, "f-reply-", "What topics of replies begin with.", env="APP_REPLY_TO_PREFIX")

    processing_guarantee = Setting[str](
        _one_of(AT_LEAST_ONCE, EXACTLY_ONCE),
        AT_LEAST_ONCE,
        "`at_least_once`: tables include each record once; what was sent after the last commit is sent again after a "
        "crash. `exactly_once`: outputs count once, too.",
        env="PROCESSING_GUARANTEE",
    )

    store = Setting[str](
        _store,
        "memory://",
        "Where rows of tables are: `memory://`, or `rocksdb://` on disk.",
        env="APP_STORE",
    )
    table_standby_replicas = Setting[int](
        _integer(),
        0,
        "Other workers that keep a copy of each task's tables, so that one goes on at once.",
        env="TABLE_STANDBY_REPLICAS",
        faust="1",
    )

    origins = Setting[bool](
        _boolean,
        False,
        "Events know where they came into being (`event.origin`), and what pipelines write carries it on. A step that "
        "needs it asks by itself.",
        env="ORIGINS",
        is_ours=True,
    )
    datacenter = Setting[str](
        _text, "", "The name of the app's own cluster in `event.origin`.", env="DATACENTER", is_ours=True
    )
    watermarks = Setting[ByDatacenter | None](
        _by_datacenter,
        None,
        "`ByDatacenter(…)`: what windows do while a datacenter is cut off. Each topic is waited for alike otherwise.",
        is_ours=True,
    )
    dead_letter_topic = Setting[str](
        _text,
        lambda conf: topic_names.dead_letters(conf.id),
        "Where records go by on_error='dead_letter'.",
        env="DEAD_LETTER_TOPIC",
        is_ours=True,
    )
    topic_allow_declare = Setting[bool](
        _boolean,
        True,
        "Create the app's own topics, such as changelogs, where they are not there. What else it reads is waited for.",
        env="TOPIC_ALLOW_DECLARE",
    )
    topic_partitions = Setting[int](
        _integer(1), 8, "Partitions of topics that the app creates.", env="TOPIC_PARTITIONS"
    )
    topic_replication_factor = Setting[int](
        _integer(-1),
        -1,
        "Replicas of topics that the app creates; -1: as the cluster has it.",
        env="TOPIC_REPLICATION_FACTOR",
        faust="1",
    )

    web_enabled = Setting[bool](_boolean, True, "Run a web server beside the agents.", env="APP_WEB_ENABLED")
    web_bind = Setting[str](
        _text, "localhost", "Address that the web server listens on.", env="WEB_BIND", faust="0.0.0.0"
    )
    web_port = Setting[int](
        _integer(0, 65_535), WEB_PORT, "Port of the web server; 0: any that is free.", env="WEB_PORT"
    )
    web_host = Setting[str](
        _text,
        lambda conf: conf.web_bind if conf.web_bind not in ("0.0.0.0", "::", "") else socket.gethostname(),
        "Name by which other workers reach this one.",
        env="WEB_HOST",
        faust="the host's name",
    )
    canonical_url = Setting[str](
        _text,
        lambda conf: f"http://{conf.web_host}:{conf.web_port}",
        "URL by which other workers reach this one.",
        env="NODE_CANONICAL_URL",
    )
    web_ssl_context = Setting[Any](_anything, None, "An `ssl.SSLContext`: serve HTTPS.")
    web_application_options = Setting[dict[str, Any]](
        _mapping, lambda conf: {}, "More arguments of `aiohttp.web.Application`."
    )
    web_tables_enabled = Setting[bool](
        _boolean, True, "Show rows of tables under /tables and /table.", env="APP_WEB_TABLES_ENABLED"
    )
    web_metrics_enabled = Setting[bool](
        _boolean, True, "Serve /metrics for Prometheus.", env="APP_WEB_METRICS_ENABLED", faust="false"
    )

    worker_redirect_stdouts = Setting[bool](
        _boolean,
        False,
        "Write what the app prints into the log.",
        env="WORKER_REDIRECT_STDOUTS",
        faust="true",
    )
    worker_redirect_stdouts_level = Setting[str](
        _text, "WARN", "Level of what is printed, in the log.", env="WORKER_REDIRECT_STDOUTS_LEVEL"
    )

    def __init__(self, name: str, options: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> None:
        """Raises AppError for a name or a value that cannot be."""
        topic_names.check("app id", name)
        self.name = name
        self.said: dict[str, Any] = {}
        self.ignored: dict[str, str] = {}  # settings that were given and change nothing: what is instead
        environment = os.environ if environment is None else environment
        given = _renamed({option: value for option, value in options.items() if value is not None})
        prefix = environment.get("APP_ENV_PREFIX") or given.get("env_prefix") or ""
        if prefix:
            prefix = f"{prefix.rstrip('_')}_"
        for option, setting in table().items():
            if setting.env is not None and prefix + setting.env in environment:
                given[option] = environment[prefix + setting.env]
        for option, value in given.items():
            self._give(option, value)

    def _give(self, option: str, value: Any) -> None:
        if option in table():
            setattr(self, option, value)
        elif option in IGNORED:
            self.ignored[option] = IGNORED[option]
        elif option in REFUSED:
            raise AppError(f"app {self.name}: {option} cannot be set: {REFUSED[option]}")
        else:
            raise AppError(f"app {self.name}: there is no setting {option}{or_near(option, [*table(), *IGNORED])}")

    def update(self, options: Mapping[str, Any]) -> None:
        """Change several. Raises AppError as the constructor does."""
        for option, value in _renamed(options).items():
            self._give(option, value)

    # --- What follows from them ---------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The app's name, with its version if that is above 1."""
        return self.name if self.version == 1 else self.id_format.format(id=self.name, self=self)

    @property
    def bootstrap(self) -> str:
        """`HOST:PORT` of each broker, with commas."""
        return ",".join(url.removeprefix("kafka://") for url in self.broker)

    @property
    def appdir(self) -> Path:
        """Folder of this version's state."""
        return self.datadir / f"v{self.version}"

    @property
    def tables_path(self) -> Path:
        return self.appdir / self.tabledir  # which an absolute `tabledir` replaces

    @property
    def tables_store(self) -> str:
        """The name of the store of tables that name none."""
        return STORES[self.store.partition("://")[0]]

    def __repr__(self) -> str:
        return f"<Settings of {self.id}>"


def table() -> dict[str, Setting[Any]]:
    """All settings by name, in the order of the reference page."""
    return {name: row for name, row in vars(Settings).items() if isinstance(row, Setting)}


class Options(TypedDict, total=False):
    """What `App(id, …)` takes: the settings, with what may be written for each."""

    autodiscover: Autodiscover
    datadir: str | Path
    tabledir: str | Path
    debug: bool
    env_prefix: str
    id_format: str
    origin: str
    timezone: str | tzinfo
    version: int
    on_error: OnError
    on_task_error: str
    broker: str | Iterable[str]
    broker_client_id: str
    broker_commit_interval: Seconds | None
    broker_heartbeat_interval: Seconds
    broker_rebalance_timeout: Seconds
    broker_session_timeout: Seconds
    broker_request_timeout: Seconds
    consumer_auto_offset_reset: str
    consumer_group_instance_id: str
    group_protocol: str
    consumer_max_fetch_size: int
    key_serializer: Any
    value_serializer: Any
    logging_config: Mapping[str, Any]
    loghandlers: Iterable[logging.Handler]
    producer_compression_type: str
    producer_linger: Seconds
    producer_transaction_timeout: Seconds
    repartition_purge_interval: Seconds
    producer_partitioner: str | Callable[..., int]
    reply_create_topic: bool
    reply_expires: Seconds
    reply_to: str
    reply_to_prefix: str
    processing_guarantee: str
    store: str
    table_standby_replicas: int
    origins: bool
    datacenter: str
    watermarks: ByDatacenter | None
    dead_letter_topic: str
    topic_allow_declare: bool
    topic_partitions: int
    topic_replication_factor: int
    web_enabled: bool
    web_bind: str
    web_port: int
    web_host: str
    canonical_url: str
    web_ssl_context: Any
    web_application_options: Mapping[str, Any]
    web_tables_enabled: bool
    web_metrics_enabled: bool
    worker_redirect_stdouts: bool
    worker_redirect_stdouts_level: str


# --- Faust's other settings -------------------------------------------------------------------------

_NEGOTIATED = "versions are negotiated with each broker"
_METADATA = "metadata is refreshed every five minutes, and when it is found to be old"
_IDLE = "connections stay open while the worker runs"
_NO_AEROSPIKE = "there is no Aerospike store; store='rocksdb://' keeps tables on disk"
_DEBUG_PAGES = "the worker's own pages, at /, are always served; web_enabled=False serves none"

IGNORED: dict[str, str] = {
    "agent_supervisor": "an agent that fails stops the worker, or leaves the event out with on_error='skip'; "
    "whatever runs the worker starts it again",
    "beacon": "services need none",
    "blocking_timeout": "there is no blocking detector",
    "broker_api_version": _NEGOTIATED,
    "broker_check_crcs": "checksums of what is decoded are always checked",
    "broker_commit_every": "commits go by time: broker_commit_interval",
    "broker_commit_livelock_soft_timeout": "a commit that fails ends the worker or is done again, and is logged",
    "broker_max_poll_interval": "a worker polls while its agents work, so that none is removed for being slow",
    "broker_max_poll_records": "a batch follows the speed of the agents, up to 5000 events",
    "consumer_api_version": _NEGOTIATED,
    "consumer_connections_max_idle_ms": _IDLE,
    "consumer_metadata_max_age_ms": _METADATA,
    "cython_optimizations": "compiled modules are used where they are there: isthmus --version",
    "loop": "the loop that runs is used",
    "monitor": "metrics are at /metrics, for Prometheus",
    "producer_acks": "a checkpoint covers acknowledged records alone, so that all replicas in sync must have them",
    "producer_api_version": _NEGOTIATED,
    "producer_connections_max_idle_ms": _IDLE,
    "producer_max_batch_size": "batches have up to 128 KiB",
    "producer_max_request_size": "brokers say what they take",
    "producer_metadata_max_age_ms": _METADATA,
    "producer_request_timeout": "records have two minutes to be acknowledged",
    "producer_threaded": "there is one producer, in the loop",
    "recovery_consistency_check": "what a changelog's markers say is always checked",
    "store_check_exists": "reading a missing key of a table with a default never stores it",
    "stream_ack_cancelled_tasks": "an event is done when the next one is asked for",
    "stream_ack_exceptions": "on_error of an agent says what an error does",
    "stream_buffer_maxsize": "agents are given batches, and fetching stops while they are behind",
    "stream_processing_timeout": "the log tells of an agent that holds an event for long; nothing is cancelled",
    "stream_recovery_delay": "tasks start when they are restored",
    "stream_wait_empty": "at its end a worker commits what is done and leaves the rest to the next one",
    "table_cleanup_interval": "windows that have expired are removed as event time goes on",
    "table_key_index_size": "there is no such index",
    "topic_disable_leader": "the leader is the worker with partition 0 of the app's first topic: no topic is needed",
    "web": "the server is aiohttp",
    "web_cors_options": "set the headers in your views, or give a middleware by web_application_options",
    "web_graph_enabled": _DEBUG_PAGES,
    "web_in_thread": "the web server runs in the loop",
    "web_router_enabled": "/router is served with the tables: web_tables_enabled",
    "web_stats_enabled": _DEBUG_PAGES,
    "crash_app_on_aerospike_exception": _NO_AEROSPIKE,
    "aerospike_retries_on_exception": _NO_AEROSPIKE,
    "aerospike_sleep_seconds_between_retries_on_exception": _NO_AEROSPIKE,
}

_ONE_BROKER = "an app is on one cluster, whose addresses are broker=; use a mirror to read another one"
_CLASSES = "the classes of the engine cannot be replaced; "

REFUSED: dict[str, str] = {
    "broker_consumer": _ONE_BROKER,
    "broker_producer": _ONE_BROKER,
    "broker_credentials": "the client has no SASL: use a listener without, or a proxy",
    "ssl_context": "the client has no TLS: use a listener without, or a proxy",
    "config_source": "call app.config_from_object(…)",
    "cache": "there is no cache of views: keep what is dear in a variable or a table",
    "stream_publish_on_commit": "processing_guarantee='exactly_once' sends and commits together",
    "web_transport": "the web server listens on web_bind and web_port; put a proxy before it for a Unix socket",
    "Agent": _CLASSES + "write a decorator around app.agent",
    "ConsumerScheduler": _CLASSES + "partitions take turns",
    "Event": _CLASSES + "give a value_type to the topic",
    "Schema": _CLASSES + "give schema= to the topic",
    "Stream": _CLASSES + "write functions of a stream",
    "Table": _CLASSES + "wrap a table in a class of yours",
    "SetTable": _CLASSES + "wrap a table in a class of yours",
    "GlobalTable": _CLASSES + "wrap a table in a class of yours",
    "SetGlobalTable": _CLASSES + "wrap a table in a class of yours",
    "TableManager": _CLASSES + "tables of a worker are app.tables",
    "Serializers": _CLASSES + "register a codec by its name",
    "Worker": _CLASSES + "start app.Worker() from your own program",
    "PartitionAssignor": _CLASSES + "tasks stay where they are as far as can be",
    "LeaderAssignor": _CLASSES + "the leader is the worker with partition 0 of the app's first topic",
    "Router": _CLASSES + "app.router finds the owner of a key",
    "Topic": _CLASSES + "write a function that calls app.topic",
    "HttpClient": _CLASSES + "make an aiohttp.ClientSession in a task",
    "Monitor": _CLASSES + "metrics are at /metrics, for Prometheus",
}
RENAMED = {"url": "broker", "producer_linger_ms": "producer_linger"}


def _renamed(options: Mapping[str, Any]) -> dict[str, Any]:
    """With the settings that Faust has had under other names."""
    given = dict(options)
    for old, new in RENAMED.items():
        if old in given:
            value = given.pop(old)
            given.setdefault(new, value / 1000 if old.endswith("_ms") else value)
    return given
