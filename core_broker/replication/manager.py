"""The partitions that this broker leads or follows: opened, changed and closed as the metadata image says.

The controller awaits `apply(delta)` before it answers a command, so a topic that was just created can be written to.
Leader epochs, replicas and options reach the partitions only here; in-sync replicas by the controller's answers, too.

If a partition's log went offline for lack of disk space (for example, a thin volume refused a sync), it comes back
without a restart: its log is opened again, what the disk may not have is written as a copy, and another Partition
serves it. An exception: if it has less than was served before, or than its leader was told, it waits until it is not in
sync any more, or for a restart of the broker, which raises its leader epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Generic, TypeVarTuple, Unpack

from ...protocol.errors import ErrorCode, KafkaError
from ...runtime import Runtime
from ..cluster.image import NO_EPOCH, Delta, MetadataImage, TopicImage
from ..cluster.partition_image import LOST
from ..config import BrokerConfig, topic_config
from ..storage.disk.errors import StorageError, fresh_copy, is_shortage
from ..storage.disk.files import Volume
from ..storage.log.log import Log
from ..storage.log.log_config import LogConfig
from ..storage.manager import LogManager
from ..storage.startup.opening import LogToOpen
from ..storage.upkeep.at_once import sync_logs
from ._core import Traffic
from .leadership import IsrChange, Leadership
from .partition import Partition
from .shortage import Key, Shortage
from .states import MEANING, REFUSING, Event, State, next_state
from .throttle import Throttle

log = logging.getLogger(__name__)

Told = TypeVarTuple("Told")

_LOG_OPTIONS = tuple(field.name for field in fields(LogConfig))


def log_config(options: Mapping[str, Any], config: BrokerConfig) -> LogConfig:
    """The options of a topic that its log needs."""
    given = {name: options[option] for name in _LOG_OPTIONS if (option := name.replace("_", ".")) in options}
    given["cleanup_policy"] = ",".join(options["cleanup.policy"])
    for option in ("producer.id.expiration.ms", "transaction.partition.verification.enable"):
        given[option.replace(".", "_")] = config[option]
    return LogConfig(**given)


class Unopened:
    """A partition of this broker whose log is not open. served_end: its high watermark when it was served last, 0 if it
    was not. told_end: up to where others took it to be here then: clients, or the leader that it followed."""

    __slots__ = ("reason", "served_end", "state", "told_end")

    def __init__(self) -> None:
        self.state = State.OPENING
        self.reason = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        self.served_end = self.told_end = 0


class Hearers(Generic[*Told]):
    """Those who are told of a partition, in the order in which they came."""

    def __init__(self) -> None:
        self._hearers: list[Callable[[Unpack[Told]], None]] = []

    def add(self, hearer: Callable[[Unpack[Told]], None]) -> None:
        self._hearers.append(hearer)

    def __call__(self, *told: *Told) -> None:
        for hearer in self._hearers:
            hearer(*told)


class ReplicaManager:
    """See the module.

    For handlers to read: `partitions[topic][index]`, whose logs are open or were open when they failed, and
    `leaderless[topic]`, which clients see without a leader.
    """

    def __init__(
        self, image: MetadataImage, logs: LogManager, config: BrokerConfig, runtime: Runtime, node_id: int
    ) -> None:
        self.partitions: dict[str, dict[int, Partition]] = {}
        self._dead: dict[str, set[int]] = {}  # partitions that this broker has, but cannot serve
        self.gone = Traffic()  # of partitions that were deleted
        self.came_back: Hearers[str, int] = Hearers()  # (topic, index) when one is served again
        self.went_offline: Hearers[str, int] = Hearers()  # the same when one is not served any more
        self.begun: Hearers[Partition] = Hearers()  # when this broker begins to lead or follow
        self.ended: Callable[[str, int], None] = lambda topic, index: None  # when it does neither any more
        self.isr_changes: Callable[[Partition, IsrChange], None] = lambda partition, change: None  # asks the controller
        self._checkpointed = logs.checkpoints.high_watermarks  # of the last stop
        self._unopened: dict[Key, Unopened] = {}
        self.space_changed: Hearers[str, int] = Hearers()  # `space` of a partition may be another one
        self._shortage = Shortage(self._open_again, self._find, self.space_changed)
        self.space = self._shortage.space
        self._on_refusal = self._shortage.refuses  # one object for all partitions
        self.throttle = Throttle(node_id, config, _loop_time)
        self._image = image
        self._logs = logs
        self._config = config
        self._runtime = runtime
        self._node_id = node_id
        logs.high_watermark_of = self._high_watermark
        logs.on_shortage = self._log_without_space
        logs.is_broken = self._log_failed

    def _high_watermark(self, topic: str, index: int) -> int:
        partition = self.partitions.get(topic, {}).get(index)
        if partition is not None:
            return partition.high_watermark
        unopened = self._unopened.get((topic, index))
        known = self._checkpointed[topic, index]  # more may be in the log, but is it committed?
        return known if unopened is None else max(known, unopened.served_end)

    @property
    def leaderless(self) -> dict[str, set[int]]:
        """By topic, the partitions that this broker should lead, but cannot serve."""
        found = {}
        for name, indexes in self._dead.items():
            topic = self._image.topics.get(name)
            if topic is not None:
                led = {each for each in indexes if topic.partitions[each].leader == self._node_id}
                if led:
                    found[name] = led
        return found

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether this broker has a partition that it can neither lead nor follow."""
        return index in self._dead.get(topic, ())

    def _find(self, topic: str, index: int) -> Partition | None:
        return self.partitions.get(topic, {}).get(index)

    def held(self, topic: str, index: int) -> Partition:
        """The partition, led or followed by this broker. Raises KafkaError."""
        partition = self._find(topic, index)
        if partition is not None:
            return partition
        raise self.why_missing(topic, index)

    def get(self, topic: str, index: int) -> Partition:
        """The partition, led by this broker. Raises KafkaError."""
        partition = self.held(topic, index)
        partition.check_leads()
        return partition

    def least_in_sync(self, topic: str, index: int) -> int:
        """How many replicas must be in sync for acks=all; 0 of a partition that is not open here."""
        partition = self._find(topic, index)
        return 0 if partition is None else partition.least_in_sync

    def why_missing(self, topic: str, index: int) -> KafkaError:
        """Why a partition is not in `partitions`."""
        image = self._image.partition(topic, index)
        if image is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index}")
        unopened = self._unopened.get((topic, index))
        if unopened is not None:
            return fresh_copy(unopened.reason)
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is led by broker {image.leader}")

    partition = get  # as coordinators call it

    def offline(self) -> dict[tuple[str, int], str]:
        """Why partitions of this broker cannot be used, by topic and index: not opened, failed since, or read-only for
        lack of disk space."""
        reasons = {key: unopened.reason.message for key, unopened in self._unopened.items()}
        for indexes in self.partitions.values():
            for partition in indexes.values():
                if partition.reason is not None:
                    refuses = "it takes no appends: " if partition.state in REFUSING else ""
                    reasons[partition.topic, partition.index] = f"{refuses}{partition.reason.message}"
        return dict(sorted(reasons.items()))

    async def save_log_starts(self) -> None:
        """Save the log start offsets, so that deleted records stay deleted. Raises StorageError."""
        await self._logs.checkpoints.save_log_starts()

    def saved_log_start(self, partition: Partition) -> int:
        """A partition's log start offset as it is on disk for certain: 0 if the last one is not saved yet."""
        start: int = partition.log.log_start_offset
        key = partition.topic, partition.index
        return start if self._logs.checkpoints.log_starts.is_saved(key, start) else 0

    async def volume(self) -> Volume:
        """The data directory and its volume. Raises StorageError."""
        try:
            return await self._logs.files.run(self._logs.files.volume, self._logs.data_dir)
        except OSError as error:
            raise StorageError(error, self._logs.data_dir, "cannot look at") from error

    @property
    def data_dir(self) -> str:
        return self._logs.data_dir

    async def apply(self, delta: Delta) -> None:
        """Apply a change of the image."""
        await self._shortage.leave(_touched(delta))
        if delta.deleted:
            await self._delete(delta.deleted.values())
        for name in delta.deleted:
            if name in delta.changed:
                log.info("topic %s was deleted and created again", name)
        opening: list[LogToOpen] = []
        leaving: list[Key] = []
        for name, indexes in delta.changed.items():
            topic = self._image.topics[name]
            present = self.partitions.get(name, {})
            config: LogConfig | None = None  # one for all partitions of a topic
            for index in indexes:
                partition = present.get(index)
                if self._node_id not in topic.partitions[index].replicas:
                    leaving.append((name, index))
                elif partition is None:
                    config = config or self._log_config(topic)
                    opening.append(LogToOpen(name, index, topic.id, config))
                else:
                    self._follow(partition, topic, index)
        for name in self._image.topics if self._options_changed(delta) else delta.reconfigured:
            self._reconfigure(self._image.topics[name])
        if leaving:
            await self._leave(leaving)
        if opening:
            await self._open(opening)

    def _follow(self, partition: Partition, topic: TopicImage, index: int) -> None:
        """Take a change of the metadata of a partition whose log is open."""
        image = topic.partitions[index]
        leads = image.leader == self._node_id
        epochs = image.leader_epoch - partition.leader_epoch
        # Its log is this leader's as long as no other can have led in between. A mirror's epochs are its source's.
        goes_on = epochs == 0 or (epochs == 1 and leads) or (leads and bool(partition.mirror_link))
        if goes_on and partition.leads == leads:
            partition.begin_epoch(image.leader_epoch)
            partition.place(image.leader, image.replicas, image.isr, image.partition_epoch)
            return
        reason = KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} is led by broker {image.leader} since a change of leader"
        )
        partition.close(reason)
        self._begin(topic, index, partition.log, partition.configs, partition)

    def _begin(
        self, topic: TopicImage, index: int, opened: Log, options: Mapping[str, Any], before: Partition | None
    ) -> None:
        """Lead or follow from now on, as the metadata says. before: the partition until now."""
        image = topic.partitions[index]
        leadership: Leadership | None = None
        if image.leader == self._node_id:
            lag_max_ms = self._config["replica.lag.time.max.ms"]
            time = asyncio.get_running_loop().time
            may_join = partial(self._may_join, topic.name, index)
            leadership = Leadership(self._node_id, opened.log_end_offset, lag_max_ms, may_join, time)
        partition = Partition(
            topic.name,
            topic.id,
            index,
            opened,
            leadership=leadership,
            traffic=None if before is None else before.traffic,
            on_refusal=self._on_refusal,
        )
        self._configure(partition, options)
        partition.begin_epoch(image.leader_epoch)
        partition.place(image.leader, image.replicas, image.isr, image.partition_epoch)
        partition.recover(self._high_watermark(topic.name, index) if before is None else before.high_watermark)
        self._shortage.continues(partition)
        self.partitions.setdefault(topic.name, {})[index] = partition
        if opened.failure is None:
            self.begun(partition)
        else:  # it failed under an earlier leader
            self._take_out(partition, opened.failure)

    def _may_join(self, topic: str, index: int, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker's replica may be in sync: the broker is registered under this epoch, neither fenced nor
        stopping (KIP-903), and has not told that its log is offline."""
        image = self._image
        if not image.is_active(broker_id) or broker_epoch not in (NO_EPOCH, image.broker_epoch(broker_id)):
            return False
        partition = image.partition(topic, index)
        return partition is None or broker_id not in partition.replicas or partition.directory_of(broker_id) != LOST

    async def _leave(self, keys: Iterable[Key]) -> None:
        """Delete partitions that other brokers hold now."""
        gone = []
        for name, index in keys:
            partition = self.partitions.get(name, {}).pop(index, None)
            if partition is not None:
                partition.close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} has left this broker"))
                self.gone.add(partition.traffic)
                self.ended(name, index)
            if self._unopened.pop((name, index), None) is not None or partition is not None:
                self._serves(name, index)
                gone.append((name, index))
        await self._delete_logs(gone)

    def _log_config(self, topic: TopicImage) -> LogConfig:
        return log_config(topic_config(topic.configs, self._config), self._config)

    def _log_failed(self, name: str, index: int) -> None:
        """A log went offline until the next start; requests that wait get the reason."""
        partition = self.partitions.get(name, {}).get(index)
        if partition is not None and partition.log.failure is not None:
            self._take_out(partition, partition.log.failure)

    def _take_out(self, partition: Partition, failure: KafkaError) -> None:
        """The partition's log has failed: it is neither served nor copied any more."""
        partition.enter(Event.LOG_FAILED, fresh_copy(failure))
        self.ended(partition.topic, partition.index)
        self._serves_no_more(partition.topic, partition.index, partition.state)

    def _log_without_space(self, name: str, index: int, failure: StorageError) -> None:
        """A log went offline; it is opened again when there is disk space."""
        partition = self.partitions.get(name, {}).pop(index, None)
        if partition is None:
            return
        error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition}: {failure.message}")
        partition.enter(Event.LOG_WITHOUT_SPACE, error)
        self.gone.add(partition.traffic)
        self.ended(name, index)
        unopened = self._cannot_open((name, index), Event.LOG_WITHOUT_SPACE, failure.message)
        unopened.served_end = unopened.told_end = partition.high_watermark
        if not partition.leads:
            unopened.told_end = max(partition.high_watermark, partition.copied_end)
        self._shortage.waits((name, index))

    def _cannot_open(self, key: Key, event: Event, reason: str) -> Unopened:
        unopened = self._unopened.setdefault(key, Unopened())
        unopened.state = next_state(unopened.state, event)
        unopened.reason = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
        self._serves_no_more(*key, unopened.state)
        return unopened

    def _serves_no_more(self, name: str, index: int, state: State) -> None:
        if not MEANING[state].has_leader:
            self._dead.setdefault(name, set()).add(index)
        self.went_offline(name, index)

    def _serves(self, name: str, index: int) -> None:
        known = self._dead.get(name)
        if known is not None:
            known.discard(index)
            if not known:
                del self._dead[name]

    async def _let_go(self, wanted: list[LogToOpen]) -> list[LogToOpen]:
        """Close logs that went offline for lack of disk space. Returns those that can be opened now."""
        ready = []
        for each in wanted:
            known = self._logs.get(each.topic, each.partition)
            if known is not None and known.failure is not None and is_shortage(known.failure):
                try:
                    await self._logs.let_go(each.topic, each.partition)
                except KafkaError as error:
                    self._take_offline(each, error)
                    continue
            ready.append(each)
        return ready

    async def _open(self, wanted: list[LogToOpen]) -> None:
        wanted = await self._let_go(wanted)
        options: dict[str, dict[str, Any]] = {}  # one for all partitions of a topic
        behind: dict[Log, LogToOpen] = {}  # logs that a killed process left in the page cache only

        def opened(each: LogToOpen, found: Log | KafkaError) -> None:
            if isinstance(found, KafkaError):
                self._take_offline(each, found)
                return
            if found.failure is not None:  # it was open already, but not served
                self._take_offline(each, fresh_copy(found.failure))
                return
            topic = self._wanting(each)
            if topic is None:  # it was deleted or moved meanwhile; that change follows
                return
            unopened = self._unopened.get((each.topic, each.partition))
            told, image = 0 if unopened is None else unopened.told_end, topic.partitions[each.partition]
            if found.log_end_offset < told and self._node_id in (*image.isr, *image.elr):
                # A follower may be here again before the controller knows that it was not.
                self._logs.last_process.lost()
                what = f"offsets {found.log_end_offset} to {told - 1} were here, but are not on disk"
                self._take_offline(each, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what))
                return
            if each.topic not in options:
                options[each.topic] = topic_config(topic.configs, self._config)
            if found.recovery_point < found.log_end_offset:
                if options[each.topic]["durability"] == "fsync" or found.needs_flush:
                    behind[found] = each
                    return
            self._serve(topic, each.partition, found, options[each.topic])

        def synced(found: Log, error: KafkaError | None) -> None:
            each = behind[found]
            topic = self._wanting(each)
            if error is not None:
                self._take_offline(each, error)
            elif topic is not None:
                self._serve(topic, each.partition, found, options[each.topic])

        await self._logs.open_logs(wanted, opened)
        # Sync before they are served: a producer that repeats such records is answered at once.
        if behind:
            await sync_logs(behind, self._config["file.pool.threads"], synced)

    def _wanting(self, each: LogToOpen) -> TopicImage | None:
        """The topic of a partition that is to be served here; None if it is not any more."""
        topic = self._image.topics.get(each.topic)
        if topic is None or topic.id != each.topic_id:
            return None
        image = topic.partitions.get(each.partition)
        return topic if image is not None and self._node_id in image.replicas else None

    def _take_offline(self, wanted: LogToOpen, error: KafkaError) -> None:
        """A log could not be opened, or could not be synced afterwards."""
        key = wanted.topic, wanted.partition
        comes_back = is_shortage(error)
        known = self._unopened.get(key)
        if known is None or known.reason.message != error.message:
            until = "the shortage is over" if comes_back else "the broker starts again"
            log.error("%s-%d is offline until %s: %s", *key, until, error.message)
        self._cannot_open(key, Event.LOG_WITHOUT_SPACE if comes_back else Event.LOG_FAILED, error.message)
        if comes_back:
            self._shortage.waits(key)

    async def _open_again(self, keys: Sequence[Key]) -> None:
        """Open the logs that went offline for lack of disk space, if there is some now."""
        wanted = []
        for name, index in keys:
            topic = self._image.topics.get(name)
            if topic is not None:
                each = LogToOpen(name, index, topic.id, self._log_config(topic))
                if self._wanting(each) is not None:
                    wanted.append(each)
        try:
            await self._open(wanted)
        except KafkaError as error:
            log.error("%s", error.message)
            # The error is of a file that all logs share: some logs may be open, but neither served nor waiting.
            for each in wanted:
                if self.partitions.get(each.topic, {}).get(each.partition) is None:
                    self._take_offline(each, error)
        for name, index in keys:
            partition, topic = self.partitions.get(name, {}).get(index), self._image.topics.get(name)
            if partition is not None and topic is not None:
                partition.log.configure(self._log_config(topic))  # options may have changed
                self._configure(partition, topic_config(topic.configs, self._config))
                self.came_back(name, index)

    def _serve(self, topic: TopicImage, index: int, opened: Log, options: dict[str, Any]) -> None:
        self._serves(topic.name, index)
        self._begin(topic, index, opened, options, None)
        if self._unopened.pop((topic.name, index), None) is not None:
            log.info("%s-%d is online again", topic.name, index)

    def _options_changed(self, delta: Delta) -> bool:
        """Whether broker options that topics inherit have changed."""
        return "" in delta.broker_options or str(self._node_id) in delta.broker_options

    def _reconfigure(self, topic: TopicImage) -> None:
        options, config = topic_config(topic.configs, self._config), self._log_config(topic)
        for partition in self.partitions.get(topic.name, {}).values():
            self._configure(partition, options)
            partition.log.configure(config)

    def _configure(self, partition: Partition, options: Mapping[str, Any]) -> None:
        partition.configure(options)
        self.throttle.mark(partition)

    async def _delete(self, topics: Iterable[TopicImage]) -> None:
        keys = []
        for topic in topics:
            gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} was deleted")
            self._dead.pop(topic.name, None)
            for index in topic.partitions:
                if self._unopened.pop((topic.name, index), None) is not None:
                    keys.append((topic.name, index))
            for index, partition in self.partitions.pop(topic.name, {}).items():
                partition.close(gone)
                self.ended(topic.name, index)
                self.gone.add(partition.traffic)
                keys.append((topic.name, index))
        await self._delete_logs(keys)

    async def _delete_logs(self, keys: Sequence[Key]) -> None:
        try:
            await self._logs.delete_logs(keys)
        except KafkaError as error:
            log.error("%s; the next start deletes it", error.message)

    async def settle(self) -> None:
        """Wait until all that was appended is on disk, if the option durability asks for that."""
        for indexes in list(self.partitions.values()):
            for partition in list(indexes.values()):
                await partition.settle()

    async def close(self) -> None:
        """Answer all who wait; the log manager closes the logs."""
        await self._shortage.stop()
        stopping = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")
        for indexes in self.partitions.values():
            for partition in indexes.values():
                partition.close(stopping)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _touched(delta: Delta) -> Iterator[Key]:
    for topic in delta.deleted.values():
        for index in topic.partitions:
            yield topic.name, index
    for name, indexes in delta.changed.items():
        for index in indexes:
            yield name, index
