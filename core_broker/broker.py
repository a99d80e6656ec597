"""One broker: creates all rooms, connects them, and starts and stops them in order. Only this file knows all of them.

It runs on any event loop, with the given files, clocks and random source, so that a simulation can run a whole cluster
in one process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..client.connection import host_and_port
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.primitives import uuid_from_str
from ..runtime import Runtime
from .active_controller import ActiveController
from .auto_creation import AutoCreation
from .broker_channels import BrokerChannels
from .cluster.controller import Controller
from .cluster.features import REGISTERED
from .cluster.image import Delta, Endpoint, MetadataImage
from .cluster.metadata_log import DIRECTORY as METADATA_DIRECTORY
from .cluster.metadata_log import MetadataLog
from .cluster.partition_image import PartitionImage
from .cluster.quorum.peers import ConnectionPeers
from .cluster.quorum.quorum import MetadataQuorum
from .config import BROKER_OPTIONS, TOPIC_OPTIONS, BrokerConfig, ConfigError, without_effect
from .controller_channel import ControllerChannel
from .coordinators.groups import GroupCoordinator
from .coordinators.transactions.coordinator import TransactionCoordinator
from .lifecycle import Lifecycle
from .loading import Loading
from .loggers import REQUESTS, Loggers
from .membership import is_alone, own_directory
from .purgatory import Purgatory
from .quorum_member import first_voters_of, member_of
from .replication.assignments import Assignments
from .replication.fetching import Fetching
from .replication.isr_changes import IsrChanges
from .replication.manager import ReplicaManager
from .server._context import Context
from .server._route import Route
from .server.cold_sends import ColdSends
from .server.dispatch import Scope, handler_modules
from .server.fetch_sessions import FetchSessions
from .server.listener import Server, parse_address
from .server.local_node import LocalNode
from .server.preparing import Preparing
from .server.producer_ids import ProducerIds
from .server.services import Services
from .server.verification import Held, Here, Verification
from .start_errors import StartError, explain, unwritten
from .storage.disk.files import Files
from .storage.manager import LogManager, ManagerConfig
from .storage.upkeep.cleaner import CleanerConfig

if TYPE_CHECKING:
    from .metrics.monitor import Monitor
    from .metrics.scrape import Sources

log = logging.getLogger(__name__)
requests = logging.getLogger(REQUESTS)


LEAVE_TIMEOUT_MS = 10_000  # for other brokers to lead what this one leads, when it stops
UNLED_S = 10.0  # of a start without a controller until that is told, and until it is told again
DRAIN_TIMEOUT_S = 3.0  # for clients to receive their answers when the broker stops


class State(IntEnum):
    """Kafka's numbers for the state of a broker, as in its metric BrokerState."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    SHUTTING_DOWN = 7


class Broker:
    """A broker. `address` is HOST:PORT of its first listener.

    on_broken: called with the reason when this node cannot follow the metadata of its cluster any more, because its log
    is broken. As a Kafka that lost its last directory, it should end: others can take its place.
    """

    def __init__(self, config: BrokerConfig, runtime: Runtime, files: Files) -> None:
        self.config = config
        self.runtime = runtime
        self.files = files
        self.node_id: int = config["node.id"]
        self.address = ""
        self.doing = "the broker has not started"  # why it is not ready; empty while it serves
        self.on_broken: Callable[[str], None] = lambda reason: None
        self._state = State.NOT_RUNNING
        self._purgatory = Purgatory(config["max.pending.requests"])
        self._server = Server(config)
        self._loading = Loading([*handler_modules(), f"{__package__}.storage.disk.real_volume"])
        self._monitor: Monitor | None = None
        self._logs: LogManager | None = None
        self._controller: Controller | None = None
        self._replicas: ReplicaManager | None = None
        self._groups: GroupCoordinator | None = None
        self._transactions: TransactionCoordinator | None = None
        self._lifecycle: Lifecycle | None = None
        self._fetching: Fetching | None = None
        self._isr_changes: IsrChanges | None = None
        self._assignments: Assignments | None = None
        self._channels: list[ControllerChannel] = []
        self._peers: BrokerChannels | None = None
        self._verification: Verification | None = None
        self._active: ActiveController | None = None

    async def start(self) -> None:
        """When this returns, the broker serves. Raises StartError, ConfigError, after everything was released again."""
        try:
            await self._start()
        except BaseException as error:
            await self._undo()
            message = explain(error)
            if message is None:
                raise
            raise StartError(message) from error

    async def _start(self) -> None:
        config, files = self.config, self.files
        if len(config["log.dirs"]) != 1:
            raise ConfigError("Invalid value for configuration log.dirs: exactly one directory")
        data_dir = config["log.dirs"][0].rstrip("/") or "/"
        self._state = State.STARTING
        self.doing = f"it opens the data directory {data_dir}"
        sources = await self._start_monitor()
        self._logs = logs = LogManager(files, data_dir, self.runtime, manager_config(config))
        await logs.open(self.node_id, config["cluster.id"], own_directory(config))
        await self._server.bind()
        self.doing = "it reads the cluster's metadata"
        metadata = await self._open_metadata(logs, data_dir)
        services = self._furnish(metadata, logs)
        await self._server.serve(services, Scope.CONTROLLER)
        await metadata.start()
        active, controller, lifecycle = self._active, self._controller, self._lifecycle
        assert active is not None and controller is not None and lifecycle is not None
        active.start()
        alone = is_alone(config)
        self.doing = "it waits for the controller"
        await _caught_up(metadata)
        self.doing = "it registers with the cluster"
        await _written(controller, lifecycle.register(config["initial.broker.registration.timeout.ms"]))
        if alone:  # nobody else can see that it does not serve yet, and its partitions are opened only once
            lifecycle.ready()
            await _written(controller, lifecycle.unfenced())
        await metadata.publish(lambda: self._open_partitions(services))
        assert self._isr_changes is not None and self._fetching is not None
        self._isr_changes.start()
        logs.start()
        if sources is not None:
            from .metrics.scrape import Rooms

            sources.rooms = Rooms(
                image=services.image,
                replicas=services.replicas,
                groups=services.groups,
                transactions=services.transactions,
                cleaner=logs.cleaner,
                controller=services.controller,
                isr_changes=self._isr_changes,
                fetching=self._fetching,
                fetch_sessions=services.fetch_sessions,
            )
        await self._server.serve(services, Scope.BROKER)
        self._loading.start()
        if not alone:
            self.doing = "it waits until the controller lets it lead"
            assert self._assignments is not None  # a controller that is not told takes replicas on a new disk for lost
            await _written(controller, self._assignments.settled())
            lifecycle.ready()
            await _written(controller, lifecycle.unfenced())
        self._state = State.RUNNING
        self.doing = ""
        first = self._server.listeners[0].address
        self.address = host_and_port(first.host or "0.0.0.0", first.port)
        log.info("broker %d of cluster %s serves %s from %s", self.node_id, logs.cluster_id, self.address, data_dir)

    async def _open_metadata(self, logs: LogManager, data_dir: str) -> MetadataQuorum:
        """This node's part of the metadata quorum, not started yet."""
        image = MetadataImage(logs.cluster_id)
        metadata_log = await MetadataLog.open(self.files, data_dir, self.runtime)
        if is_alone(self.config) and metadata_log.is_new and (found := logs.found()):
            # A topic's record is synced before its partitions are created. Without records all would be set aside.
            raise StartError(
                f"{data_dir}/{METADATA_DIRECTORY} has no records, so that no topic is known, but there are "
                f"{len(found)} partitions ({found[0][0]}-{found[0][1]} …): restore it from a backup (of a Kafka with a "
                "metadata.log.dir: from there), or choose an empty directory"
            )
        member = member_of(self.config, self._server.controller_listeners, logs.cluster_id, logs.directory_id)
        first = first_voters_of(self.config)
        if metadata_log.is_new and metadata_log.snapshot is None and first.has(member.key) and not logs.found():
            await metadata_log.format(first)
        return MetadataQuorum(metadata_log, image, self.runtime, member, ConnectionPeers(f"raft-{self.node_id}"))

    def _furnish(self, metadata: MetadataQuorum, logs: LogManager) -> Services:
        """Create all that works on the image, which is empty yet."""
        config, runtime, image = self.config, self.runtime, metadata.image
        self._controller = controller = Controller(metadata, config, runtime, self._server.between_brokers)
        if not is_alone(config):  # one that is alone goes on with the topics that it knows
            controller.on_broken = lambda reason: self.on_broken(reason)
        self._replicas = replicas = ReplicaManager(image, logs, config, runtime, self.node_id)
        self._active = active = ActiveController(metadata)
        active.when_changed(lambda: controller.watch.follow(metadata.is_leader))
        local = LocalNode(Scope.CONTROLLER)
        broker_here = LocalNode(Scope.BROKER)
        self._peers = peers = BrokerChannels("brokers", self.node_id, partial(self._address_of, image), broker_here)
        self._verification = verification = Verification(
            image,
            peers.request,
            self._purgatory,
            lambda: config["request.timeout.ms"],
            Held(config["queued.max.request.bytes"]),
            Here(self.node_id, broker_here.ask),
        )
        # Heartbeats must not stand behind other requests.
        heartbeats, requests = self._channels = [
            ControllerChannel(name, self.node_id, who, local, config["controller.socket.timeout.ms"])
            for name, who in (("heartbeats", active.address), ("requests", active.who_answers))
        ]
        for each in self._channels:
            active.when_changed(each.leader_changed)
        # A node alone that others can reach may not stay so, and then another one may lead.
        channel = None if is_alone(config) and not self._server.controller_listeners else requests
        creation = AutoCreation(controller, config, channel)
        self._groups = groups = GroupCoordinator(controller, replicas, config, runtime, self._purgatory, creation)
        producer_ids = ProducerIds(controller, self.node_id, channel)
        self._transactions = transactions = TransactionCoordinator(
            controller, replicas, config, runtime, self._purgatory, producer_ids, peers, groups.finder
        )
        for elections in (groups.host.elections, transactions.host.elections):
            replicas.came_back.add(elections.came_back)
            replicas.went_offline.add(elections.went_offline)
        own_id = runtime.uuid()
        self._lifecycle = Lifecycle(
            self.node_id,
            image,
            config,
            heartbeats.request,
            metadata_changed=metadata.changed,
            incarnation_id=logs.last_process.successor_id or own_id,
            directory_id=uuid_from_str(logs.directory_id),
            endpoints={
                each.name: Endpoint(each.advertised.host, each.advertised.port) for each in self._server.listeners
            },
            features=REGISTERED,
            previous_epoch=logs.last_process.broker_epoch,
            keep_epoch=logs.last_process.note,
        )
        lifecycle = self._lifecycle
        active.when_changed(lifecycle.controller_changed)
        heartbeats.on_lost = lifecycle.controller_changed
        self._fetching = fetching = Fetching(
            self.node_id, config, runtime, lambda: lifecycle.broker_epoch, partial(self._address_of, image),
            replicas.throttle.following, replicas.saved_log_start, replicas.save_log_starts,
        )  # fmt: skip
        self._isr_changes = isr_changes = IsrChanges(
            self.node_id, requests.request, image.broker_epoch, replicas.partitions,
            config["replica.lag.time.max.ms"],
        )  # fmt: skip
        self._assignments = assignments = Assignments(
            self.node_id, uuid_from_str(logs.directory_id), image, requests.request, lambda: lifecycle.broker_epoch,
            replicas.is_offline, replicas.space, replicas.least_in_sync,
        )  # fmt: skip
        replicas.went_offline.add(assignments.look)
        replicas.space_changed.add(assignments.look)
        replicas.space_changed.add(fetching.space_changed)
        replicas.begun.add(fetching.begun)
        replicas.begun.add(lambda partition: assignments.look(partition.topic, partition.index))
        replicas.ended, replicas.isr_changes = fetching.ended, isr_changes.want

        alone = is_alone(config)

        def has_session() -> bool:
            if alone:
                return True
            # A controller heard of itself last, which proves nothing: others may have elected another one since.
            is_told = metadata.leader_id != self.node_id or metadata.is_confirmed
            return is_told and metadata.failure is None and lifecycle.has_session

        groups.host.has_session = transactions.host.has_session = has_session
        local.services = broker_here.services = services = Services(
            config=config,
            runtime=runtime,
            image=image,
            controller=controller,
            replicas=replicas,
            groups=groups,
            transactions=transactions,
            purgatory=self._purgatory,
            producer_ids=producer_ids,
            creation=creation,
            fetch_sessions=FetchSessions(
                config["max.incremental.fetch.session.cache.slots"],
                config["max.incremental.fetch.session.partitions"],
                runtime.random,
            ),
            cold_sends=ColdSends(self.files),
            preparing=Preparing(self.files, runtime, config["compression.queued.bytes"]),
            quorum=metadata,
            cluster_id=logs.cluster_id,
            node_id=self.node_id,
            peers=peers,
            verification=verification,
            channel=channel,
            has_session=has_session,
            loggers=Loggers(self._follow_levels),
        )
        return services

    async def _open_partitions(self, services: Services) -> None:
        """Take the image in for the first time, and follow its changes from now on."""
        image, replicas, controller, logs = services.image, services.replicas, services.controller, self._logs
        assert logs is not None
        self._state = State.RECOVERY
        self.doing = f"it opens the logs of {len(logs.found())} partitions"
        logs.removed = controller.metadata.take_removed()
        self._take_options(image)
        await replicas.apply(image.everything())
        await logs.set_aside(lambda topic, index: not self._is_here(image.partition(topic, index)))
        controller.subscribe(lambda delta: self._take_options(image) if delta.broker_options else None)
        controller.subscribe(replicas.apply)
        assert self._assignments is not None
        controller.subscribe(self._assignments.metadata_changed)
        controller.subscribe(self._brokers_changed)
        services.departed.metadata_changed(image.everything())
        controller.subscribe(services.departed.metadata_changed)
        controller.subscribe(lambda delta: log_without_effect(delta, image))
        await services.groups.host.start()
        await services.transactions.host.start()

    def _is_here(self, partition: PartitionImage | None) -> bool:
        return partition is not None and self.node_id in partition.replicas

    def _brokers_changed(self, delta: Delta) -> None:
        if delta.brokers and self._fetching is not None and self._peers is not None:
            self._fetching.metadata_changed()
            self._peers.metadata_changed()

    def _address_of(self, image: MetadataImage, broker_id: int) -> str | None:
        """Where a broker listens for other brokers; None if it is not alive."""
        endpoint = image.endpoint_of(broker_id, self._server.between_brokers)
        return None if endpoint is None else host_and_port(endpoint.host, endpoint.port)

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
        clock = self.runtime.perf_ns if tells or self._monitor is not None else None
        self._server.watch(clock, log_request if tells else None)

    def _take_options(self, image: MetadataImage) -> None:
        """Apply the options that were set dynamically, for all brokers or for this one."""
        options = image.broker_configs
        for error in self.config.set_dynamic(options.get("", {}), options.get(str(self.node_id), {})):
            log.error("a dynamic option is ignored: %s", error.message)
        if self._logs is not None:
            self._logs.cleaner.reconfigure(cleaner_config(self.config))
            self._logs.removals.delay_ms = self.config["log.segment.delete.delay.ms"]
        if self._lifecycle is not None:
            self._lifecycle.options_changed()

    async def stop(self) -> str:
        """Stop cleanly: refuse new requests, answer waiting ones, sync the logs, write the clean-shutdown marker.

        Appends that wait for a sync get it. Long polls and rebalances are answered as if their time were over. Returns
        what could not be written, and the consequence, in one line; "" if everything is on disk.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._state = State.SHUTTING_DOWN
        self.doing = "it stops"
        if self._lifecycle is not None and not is_alone(self.config):
            if not await self._leave(self._lifecycle):
                log.warning("broker %d stops though it may still lead partitions", self.node_id)
        self._server.stop_listening(Scope.BROKER)
        self._server.begin_drain()
        if self._replicas is not None:
            await self._replicas.settle()
        self._purgatory.close()
        left = await self._server.drained(DRAIN_TIMEOUT_S)
        if left:
            log.warning("%d clients did not receive their answers within %.0f s", left, DRAIN_TIMEOUT_S)
        self._server.close_connections()
        failures = await self._undo()
        elapsed_s = loop.time() - began
        log.info("broker %d has stopped in %.2f s", self.node_id, elapsed_s, extra={"elapsed_s": elapsed_s})
        return unwritten(failures) if failures else ""

    async def _leave(self, lifecycle: Lifecycle) -> bool:
        """Have others lead what this broker leads, unless there are not enough of them for a controller: all may be
        stopping at once."""
        assert self._controller is not None
        metadata = self._controller.metadata
        leaving = asyncio.ensure_future(lifecycle.leave(LEAVE_TIMEOUT_MS))
        await metadata.unless(lambda: metadata.is_cut_off, leaving)
        if leaving.done():
            return leaving.result()
        leaving.cancel()
        await asyncio.wait([leaving])
        return False

    async def _undo(self) -> list[KafkaError]:
        """Release everything. Returns the errors of writes that failed."""
        failures: list[KafkaError] = []
        self._server.stop_listening()
        self._loading.stop()
        if self._monitor is not None:
            self._monitor.sources.rooms = None
        if self._isr_changes is not None:
            await self._isr_changes.close()
            self._isr_changes = None
        if self._assignments is not None:
            await self._assignments.close()
            self._assignments = None
        if self._fetching is not None:
            await self._fetching.close()
            self._fetching = None
        if self._lifecycle is not None:
            await self._lifecycle.close()
            self._lifecycle = None
        if self._active is not None:
            await self._active.close()
            self._active = None
        for channel in self._channels:
            await channel.close()
        self._channels = []
        if self._transactions is not None:
            await self._transactions.stop()
            self._transactions = None
        if self._verification is not None:
            await self._verification.close()
            self._verification = None
        if self._peers is not None:
            await self._peers.close()
            self._peers = None
        if self._groups is not None:
            await self._groups.host.stop()
            self._groups = None
        if self._controller is not None:
            if failure := await self._controller.close():
                failures.append(failure)
            self._controller = None
        if self._replicas is not None:
            await self._replicas.close()
            self._replicas = None
        if self._logs is not None:
            failures += await self._logs.close()
            self._logs = None
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
        self._state = State.NOT_RUNNING
        return failures


async def _written(controller: Controller, work: Coroutine[Any, Any, None]) -> None:
    """Wait for what the active controller must write, but no longer than until the metadata log fails.

    Raises KafkaError: the reason why this node, if it is the controller, could not write it, before all others.
    """
    metadata = controller.metadata
    working = asyncio.get_running_loop().create_task(work)
    try:
        await metadata.unless(lambda: metadata.failure is not None, working)
    finally:
        working.cancel()
    (outcome,) = await asyncio.gather(working, return_exceptions=True)
    if metadata.failure is not None:
        raise metadata.failure
    if outcome is not None:
        is_unwritten = isinstance(outcome, KafkaError) and outcome.code == ErrorCode.KAFKA_STORAGE_ERROR
        raise (is_unwritten and controller.unwritten) or outcome


async def _caught_up(metadata: MetadataQuorum) -> None:
    """Wait until this node knows a leader, and what is committed as far as it has it. Raises StartError if it can be no
    member.

    Without a majority of the voters that takes for ever, as with Kafka, and is told now and then.
    """
    telling = asyncio.get_running_loop().create_task(_tell_who_is_missing(metadata), name="who is missing")
    try:
        await _has_caught_up(metadata)
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


async def _tell_who_is_missing(metadata: MetadataQuorum) -> None:
    while True:
        await asyncio.sleep(UNLED_S)
        if metadata.leader_id < 0:
            log.warning("node %d waits: %s", metadata.member.key.id, metadata.why_no_leader)


async def _has_caught_up(metadata: MetadataQuorum) -> None:
    while metadata.leader_id < 0 or metadata.high_watermark == 0 or metadata.applied_offset < metadata.high_watermark:
        if metadata.misfit:
            raise StartError(metadata.misfit)
        await metadata.changed()


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
