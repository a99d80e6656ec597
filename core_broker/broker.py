"""One broker: creates all rooms, connects them, and starts and stops them in order. Only this file knows all of them.

It runs on any event loop, with the given files, clocks and random source, so that a simulation can run a whole cluster
in one process.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from .. import __version__
from ..protocol.errors import KafkaError
from ..runtime import Runtime
from .cluster.controller import BrokerHeartbeat, Controller, RegisterBroker
from .cluster.image import Delta, Endpoint, InconsistentRecord, MetadataImage
from .cluster.metadata_log import DIRECTORY as METADATA_DIRECTORY
from .cluster.metadata_log import MetadataLog
from .cluster.quorum import MetadataQuorum, alone
from .config import BROKER_OPTIONS, TOPIC_OPTIONS, BrokerConfig, ConfigError, without_effect
from .coordinators.groups import GroupCoordinator
from .loading import Loading
from .loggers import REQUESTS, Loggers
from .purgatory import Purgatory
from .replication.manager import ReplicaManager
from .server._context import Context
from .server._route import Route
from .server.cold_sends import ColdSends
from .server.dispatch import handler_modules
from .server.fetch_sessions import FetchSessions
from .server.listener import ListenError, Server, host_and_port, parse_address
from .server.preparing import Preparing
from .server.producer_ids import ProducerIds
from .server.services import Services
from .storage.disk.errors import StorageError
from .storage.disk.files import Files
from .storage.manager import LogManager, ManagerConfig
from .storage.upkeep.cleaner import CleanerConfig

if TYPE_CHECKING:
    from .metrics.monitor import Monitor
    from .metrics.scrape import Sources

log = logging.getLogger(__name__)
requests = logging.getLogger(REQUESTS)


UNWRITTEN_NAMED = 3  # errors that a failed stop prints; the broker's log has all
DRAIN_TIMEOUT_S = 3.0  # for clients to receive their answers when the broker stops


class State(IntEnum):
    """Kafka's numbers for the state of a broker, as in its metric BrokerState."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    SHUTTING_DOWN = 7


class StartError(Exception):
    """The broker cannot start. The message is one line that names the cause and the solution."""


class Broker:
    """A broker. `address` is HOST:PORT of its first listener."""

    def __init__(self, config: BrokerConfig, runtime: Runtime, files: Files) -> None:
        self.config = config
        self.runtime = runtime
        self.files = files
        self.node_id: int = config["node.id"]
        self.address = ""
        self.doing = "the broker has not started"  # why it is not ready; empty while it serves
        self._state = State.NOT_RUNNING
        self._purgatory = Purgatory(config["max.pending.requests"])
        self._server = Server(config)
        self._loading = Loading([*handler_modules(), f"{__package__}.storage.disk.real_volume"])
        self._monitor: Monitor | None = None
        self._logs: LogManager | None = None
        self._controller: Controller | None = None
        self._replicas: ReplicaManager | None = None
        self._groups: GroupCoordinator | None = None

    async def start(self) -> None:
        """When this returns, the broker serves. Raises StartError, ConfigError, after everything was released again."""
        try:
            await self._start()
        except BaseException as error:
            await self._undo()
            message = _explain(error)
            if message is None:
                raise
            raise StartError(message) from error

    async def _start(self) -> None:
        config, runtime, files = self.config, self.runtime, self.files
        if len(config["log.dirs"]) != 1:
            raise ConfigError("Invalid value for configuration log.dirs: exactly one directory")
        data_dir = config["log.dirs"][0].rstrip("/") or "/"
        self._state = State.STARTING
        self.doing = f"it opens the data directory {data_dir}"
        sources = await self._start_monitor()
        self._logs = logs = LogManager(files, data_dir, runtime, manager_config(config))
        await logs.open(self.node_id)
        await self._server.bind()
        self.doing = "it reads the cluster's metadata"
        image = MetadataImage(logs.cluster_id)
        metadata_log = await MetadataLog.open(files, data_dir, runtime)
        metadata = MetadataQuorum(metadata_log, image, runtime, alone(self.node_id))
        self._controller = controller = Controller(metadata, config, runtime)
        if metadata_log.is_new and (found := logs.found()):
            # A topic's record is synced before its partitions are created. Without records all would be set aside.
            raise StartError(
                f"{data_dir}/{METADATA_DIRECTORY} has no records, so that no topic is known, but there are "
                f"{len(found)} partitions ({found[0][0]}-{found[0][1]} …): restore it from a backup (of a Kafka with a "
                "metadata.log.dir: from there), or choose an empty directory"
            )
        await metadata.start()
        logs.removed = metadata.take_removed()
        self._take_options(image)
        self._replicas = replicas = ReplicaManager(image, logs, config, runtime, self.node_id)
        self._groups = groups = GroupCoordinator(controller, replicas, config, runtime, self._purgatory)
        self._state = State.RECOVERY
        self.doing = f"it opens the logs of {len(logs.found())} partitions"
        await replicas.apply(image.everything())
        self.doing = "it registers with the cluster"
        await logs.set_aside(lambda topic, index: image.partition(topic, index) is None)
        controller.subscribe(lambda delta: self._take_options(image) if delta.broker_options else None)
        controller.subscribe(replicas.apply)
        controller.subscribe(lambda delta: log_without_effect(delta, image))
        registered = await controller.submit_wait(
            RegisterBroker(
                self.node_id,
                runtime.uuid(),
                {
                    each.name: Endpoint(each.advertised.host, each.advertised.port)
                    for each in self._server.listeners
                },
                config["broker.rack"],
            )
        )  # fmt: skip
        if registered.error_code:
            raise StartError(registered.error_message or "the broker could not be registered")
        await controller.submit_wait(BrokerHeartbeat(self.node_id, registered.broker_epoch, image.offset))
        replicas.came_back.add(groups.host.came_back)
        replicas.went_offline.add(groups.host.went_offline)
        await groups.host.start()
        logs.start()
        services = Services(
            config=config,
            runtime=runtime,
            image=image,
            controller=controller,
            replicas=replicas,
            groups=groups,
            purgatory=self._purgatory,
            producer_ids=ProducerIds(controller, self.node_id),
            fetch_sessions=FetchSessions(
                config["max.incremental.fetch.session.cache.slots"],
                config["max.incremental.fetch.session.partitions"],
                runtime.random,
            ),
            cold_sends=ColdSends(files),
            preparing=Preparing(files, runtime, config["compression.queued.bytes"]),
            cluster_id=logs.cluster_id,
            node_id=self.node_id,
            loggers=Loggers(self._follow_levels),
        )
        if sources is not None:
            from .metrics.scrape import Rooms

            sources.rooms = Rooms(
                image=image,
                replicas=replicas,
                groups=groups,
                cleaner=logs.cleaner,
                fetch_sessions=services.fetch_sessions,
            )
        await self._server.serve(services)
        self._loading.start()
        self._state = State.RUNNING
        self.doing = ""
        first = self._server.listeners[0].address
        self.address = host_and_port(first.host or "0.0.0.0", first.port)
        log.info("broker %d of cluster %s serves %s from %s", self.node_id, logs.cluster_id, self.address, data_dir)

    async def _start_monitor(self) -> Sources | None:
        """Serve metrics and health if configured. Returns the sources of the metrics."""
        if self.config["metrics.listener"] is None:
            return None
        from .metrics.monitor import Monitor  # loaded only if configured
        from .metrics.scrape import Sources

        address = parse_address(self.config["metrics.listener"], "metrics.listener")
        sources = Sources(
            node_id=self.node_id,
            version=__version__,
            runtime=self.runtime,
            files=self.files,
            server=self._server,
            purgatory=self._purgatory,
            state=lambda: self._state,
            started_ms=self.runtime.wall_ms(),
        )
        self._monitor = Monitor(sources, lambda: self.doing)
        await self._monitor.listen(address.host, address.port)
        self._follow_levels()
        log.info("metrics and health at http://%s/metrics", self._monitor.address)
        return sources

    def _follow_levels(self) -> None:
        """Log and time requests only if the log level asks for it."""
        tells = requests.isEnabledFor(logging.DEBUG)
        shared = self._server.shared
        shared.on_answered = log_request if tells else None
        shared.clock = self.runtime.perf_ns if tells or self._monitor is not None else None

    def _take_options(self, image: MetadataImage) -> None:
        """Apply the options that were set dynamically, for all brokers or for this one."""
        options = image.broker_configs
        for error in self.config.set_dynamic(options.get("", {}), options.get(str(self.node_id), {})):
            log.error("a dynamic option is ignored: %s", error.message)
        if self._logs is not None:
            self._logs.cleaner.reconfigure(cleaner_config(self.config))
            self._logs.removals.delay_ms = self.config["log.segment.delete.delay.ms"]

    async def stop(self) -> str:
        """Stop cleanly: refuse new requests, answer waiting ones, sync the logs, write the clean-shutdown marker.

        Appends that wait for a sync get it. Long polls and rebalances are answered as if their time were over. Returns
        what could not be written, and the consequence, in one line; "" if everything is on disk.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._state = State.SHUTTING_DOWN
        self.doing = "it stops"
        self._server.stop_listening()
        self._server.begin_drain()
        if self._replicas is not None:
            await self._replicas.settle()
        self._purgatory.close()
        left = await self._server.drained(DRAIN_TIMEOUT_S)
        if left:
            log.warning("%d clients did not receive their answers within %.0f s", left, DRAIN_TIMEOUT_S)
        self._server.close_connections()
        unwritten = await self._undo()
        elapsed_s = loop.time() - began
        log.info("broker %d has stopped in %.2f s", self.node_id, elapsed_s, extra={"elapsed_s": elapsed_s})
        return _unwritten(unwritten) if unwritten else ""

    async def _undo(self) -> list[KafkaError]:
        """Release everything. Returns the errors of writes that failed."""
        unwritten: list[KafkaError] = []
        self._server.stop_listening()
        self._loading.stop()
        if self._monitor is not None:
            self._monitor.sources.rooms = None
        if self._groups is not None:
            await self._groups.host.stop()
            self._groups = None
        if self._controller is not None:
            if failure := await self._controller.close():
                unwritten.append(failure)
            self._controller = None
        if self._replicas is not None:
            await self._replicas.close()
            self._replicas = None
        if self._logs is not None:
            unwritten += await self._logs.close()
            self._logs = None
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
        self._state = State.NOT_RUNNING
        return unwritten


def _unwritten(failures: Sequence[KafkaError]) -> str:
    named = "; ".join(each.message for each in failures[:UNWRITTEN_NAMED])
    more = f"; and {len(failures) - UNWRITTEN_NAMED} more, see its log" if len(failures) > UNWRITTEN_NAMED else ""
    return (
        f"stopped, but could not write everything: {named}{more}; the next start reads each log past its recovery "
        "point and keeps the valid batches; a power cut before that may lose what is not on disk"
    )


def log_without_effect(delta: Delta, image: MetadataImage) -> None:
    """Log a line for each topic and broker that is new or changed and has options without effect."""
    changed = [
        (f"topic {name}", without_effect(TOPIC_OPTIONS, image.topics[name].configs))
        for name in (*delta.created, *delta.reconfigured)
        if name in image.topics
    ]
    changed += [
        (
            f"broker {name}" if name else "all brokers",
            without_effect(BROKER_OPTIONS, image.broker_configs.get(name, {})),
        )
        for name in delta.broker_options
    ]
    for what, rows in changed:
        if rows:
            said = "; ".join(f"{name}={text} ({why})" for name, text, why in rows)
            log.info("%s: options that have no effect here: %s", what, said)


def log_request(route: Route, correlation_id: int, context: Context, elapsed_ns: int) -> None:
    """Log a line for an answered request."""
    facts = {
        "api": route.api.name,
        "version": route.version,
        "correlation_id": correlation_id,
        "client_id": context.client_id,
        "client_host": context.client_host,
        "elapsed_ms": elapsed_ns / 1e6,
    }
    said = "%(api)s v%(version)d from %(client_host)s, client %(client_id)r: %(elapsed_ms).3f ms"
    requests.debug(said, facts, extra=facts)


def manager_config(config: BrokerConfig) -> ManagerConfig:
    """The options that concern the data directory."""
    return ManagerConfig(
        recovery_threads=config["file.pool.threads"],
        checkpoint_interval_ms=config["log.flush.offset.checkpoint.interval.ms"],
        log_start_interval_ms=config["log.flush.start.offset.checkpoint.interval.ms"],
        high_watermark_interval_ms=config["replica.high.watermark.checkpoint.interval.ms"],
        retention_interval_ms=config["log.retention.check.interval.ms"],
        file_delete_delay_ms=config["log.segment.delete.delay.ms"],
        cleaner=cleaner_config(config),
    )


def cleaner_config(config: BrokerConfig) -> CleanerConfig:
    """The options of compaction."""
    return CleanerConfig(
        threads=config["log.cleaner.threads"],
        max_bytes_per_s=config["log.cleaner.io.max.bytes.per.second"],
        map_bytes=config["log.cleaner.dedupe.buffer.size"],
        map_load_factor=config["log.cleaner.io.buffer.load.factor"],
        buffer_bytes=config["log.cleaner.io.buffer.size"],
        backoff_ms=config["log.cleaner.backoff.ms"],
    )


def _explain(error: BaseException) -> str | None:
    """One line for an error that a user can correct; None for a bug."""
    if isinstance(error, ConfigError):
        return None
    if isinstance(error, StorageError):
        return f"{error.message}; {_WAY_OUT.get(error.errno or 0, 'check the disk and the directory of --data')}"
    if isinstance(error, (KafkaError, ListenError, StartError, InconsistentRecord)):
        return KafkaError.reason(error)
    if isinstance(error, OSError):
        return f"{error.filename or 'the data directory'}: {error.strerror or error}"
    return None


_WAY_OUT = {
    errno.EACCES: "give this user write access or choose another directory with --data",
    errno.EROFS: "the file system is read-only: choose another directory with --data",
    errno.ENOSPC: "the disk is full: free some space or choose another directory with --data",
    errno.EDQUOT: "the quota is used up: free some space or choose another directory with --data",
    errno.ENOTDIR: "choose a directory with --data",
}
