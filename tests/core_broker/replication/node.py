"""One broker of the model of replication: the product's own code, over a log in memory.

Real: ReplicaManager (who leads and follows, after which metadata), Partition with its core and Leadership, the handler
of Fetch, the follower's side of it (what it asks for, and what it does with an answer), IsrChanges, and the leader
epochs of a log. Stand-ins: the log's records and their disk, the connections, and the clock, which stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any, NamedTuple

from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.config import BrokerConfig
from isthmus.core_broker.replication._core import PartitionCore
from isthmus.core_broker.replication.fetching import Copy, Fetcher
from isthmus.core_broker.replication.isr_changes import IsrChanges
from isthmus.core_broker.replication.leadership import NEVER_MS, Follower, IsrChange, Leadership
from isthmus.core_broker.replication.manager import ReplicaManager
from isthmus.core_broker.replication.partition import Partition
from isthmus.core_broker.server._context import Context
from isthmus.core_broker.server.apis import fetch as fetch_api
from isthmus.core_broker.storage.log.append import Origin
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import fetch
from isthmus.runtime import system

from .memory_log import MemoryLog, packed, unpacked

TOPIC, TOPIC_ID = "t", b"\1" * 16
CONFIG = BrokerConfig()
VERSION = 15  # of Fetch: with the follower's broker epoch, without the address of a new leader
NO_EPOCH = -1  # of a broker whose last process is not known to have kept all


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run what has nothing to wait for."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    work.close()
    raise AssertionError("it waits")


class Logs:
    """What ReplicaManager asks of the logs of a broker, which has one."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.checkpoints = SimpleNamespace(high_watermarks=self)

    def __getitem__(self, key: Any) -> int:
        return self.node.checkpoint

    def get(self, topic: str, index: int) -> None:
        return None

    async def open_logs(self, wanted: list[Any], opened: Callable[[Any, Any], None]) -> None:
        for each in wanted:
            opened(each, self.node.log)

    async def delete_logs(self, keys: list[Any]) -> None:
        if keys:
            self.node.log, self.node.checkpoint = MemoryLog(), 0


class Asked(NamedTuple):
    """A Fetch of a follower."""

    follower: int
    leader: int
    broker_epoch: int
    offset: int
    leader_epoch: int
    last_epoch: int

    def __str__(self) -> str:
        return f"{self.follower} fetches offset {self.offset} from {self.leader} in epoch {self.leader_epoch}"


class Told(NamedTuple):
    """The answer: of a leader to a follower. diverging: epoch and end offset."""

    code: int = 0
    high_watermark: int = -1
    data: bytes = b""
    diverging: tuple[int, int] | None = None

    def __str__(self) -> str:
        if self.code:
            return ErrorCode(self.code).name
        if self.diverging:
            return "epoch {} ends at {}".format(*self.diverging)
        return f"records {list(unpacked(self.data))}, high watermark {self.high_watermark}"


@dataclass
class Node:
    """Changed only where it is made: a step changes a copy.

    life: "up", "down", or "starting" while it has registered and has not opened its logs. image: what it knows of the
    metadata. registered: its epoch. has_kept_all: what it tells when it registers. change: of in-sync replicas, asked
    for. awaited: its Fetch that is under way. is_syncing: it fetches again when what it has is on disk."""

    id: int
    image: MetadataImage
    log: MemoryLog = field(default_factory=MemoryLog)
    checkpoint: int = 0
    life: str = "up"
    registered: int = NO_EPOCH
    has_kept_all: bool = True
    manager: ReplicaManager | None = None
    change: IsrChange | None = None
    awaited: Asked | None = None
    is_syncing: bool = False

    @property
    def partition(self) -> Partition | None:
        return None if self.manager is None else self.manager.partitions.get(TOPIC, {}).get(0)

    @property
    def leads(self) -> bool:
        partition = self.partition
        return partition is not None and partition.leads

    # --- Copies, and what makes one equal to another ------------------------------------------------------------------

    def copy(self) -> Node:
        made = replace(self, log=self.log.copy())
        if self.manager is not None:
            made._take_manager(self.manager)
        return made

    def _take_manager(self, manager: ReplicaManager) -> None:
        self.manager = made = ReplicaManager.__new__(ReplicaManager)
        made.__dict__.update(manager.__dict__)
        made._logs = Logs(self)  # type: ignore[assignment]
        made.isr_changes = self._want
        partition = manager.partitions.get(TOPIC, {}).get(0)
        made.partitions = {} if partition is None else {TOPIC: {0: self._copy_of(partition)}}

    def _copy_of(self, partition: Partition) -> Partition:
        made = Partition.__new__(Partition)
        for name in Partition.__slots__:
            setattr(made, name, getattr(partition, name))
        made._low_waiters = []
        made.log = self.log  # type: ignore[assignment]
        core = partition.core
        made.core = PartitionCore(made, made.log, made.traffic)
        made.core.leader_epoch, made.core.lags, made.core.awaits_sync = core.leader_epoch, core.lags, core.awaits_sync
        made.core.set_obstacle(core.obstacles, True)
        made.core.advance_high_watermark(core.high_watermark)
        made.core.keep(core.kept_end)
        if partition.leadership is not None:
            made.leadership = self._copy_of_leadership(partition.leadership)
        return made

    def _copy_of_leadership(self, leadership: Leadership) -> Leadership:
        made = Leadership.__new__(Leadership)
        for name in Leadership.__slots__:
            setattr(made, name, getattr(leadership, name))
        made._may_join = self._may_join
        made.followers = {}
        for broker_id, follower in leadership.followers.items():
            made.followers[broker_id] = copied = Follower.__new__(Follower)
            for name in Follower.__slots__:
                setattr(copied, name, getattr(follower, name))
        return made

    def _may_join(self, broker_id: int, broker_epoch: int) -> bool:
        assert self.manager is not None
        return self.manager._may_join(TOPIC, 0, broker_id, broker_epoch)

    @cached_property
    def key(self) -> Any:
        """But for what it knows of the metadata."""
        partition = self.partition
        return (
            self.id, self.life, self.registered, self.has_kept_all, self.log.records, tuple(self.log.epochs.entries()),
            self.log.recovery_point, self.checkpoint if self.life != "up" else 0, self.change, self.awaited,
            self.is_syncing,
            None if partition is None else partition_key(partition),
        )  # fmt: skip

    # --- Steps --------------------------------------------------------------------------------------------------------

    def step(self, what: str, given: Any) -> Any:
        """One event. Returns what it tells: an answer; of new metadata, whether this broker has led meanwhile."""
        match what:
            case "append":
                self._append(given)
            case "lag":
                self._does_not_keep_up(given)
            case "change":
                if self.change is not None:
                    self._take_change(given)
            case "ask":
                self.awaited = given
            case "answer":
                return self._answer(given)
            case "take":
                self.awaited = None
                self._take(*given)
            case "not answered":
                if self.awaited == given:
                    self.awaited = None
            case "learn":
                led = False
                for image, delta, _ in given:
                    self._learn(image, delta)
                    led |= self.leads
                return led
            case "sync":
                assert self.partition is not None
                run(self.partition._sync())
                self.is_syncing = False
            case "open":
                self.open()
            case "crash" | "cut":
                self._crash(given)
            case "start":
                (self.image, _, _), self.registered = given
                self.life = "starting"
            case _:
                raise ValueError(what)
        return None

    # --- Life ---------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take in the metadata for the first time."""
        self.life = "up"
        self.manager = ReplicaManager(self.image, Logs(self), CONFIG, system(), self.id)  # type: ignore[arg-type]
        self.manager.isr_changes = self._want
        run(self.manager.apply(self.image.everything()))

    def _crash(self, kept: int) -> None:
        """So many records are still there."""
        self.checkpoint = 0 if self.partition is None else self.partition.high_watermark
        self.has_kept_all = kept == self.log.log_end_offset
        self.log = MemoryLog(self.log.records[:kept])
        self.life, self.manager, self.change, self.awaited = "down", None, None, None
        self.is_syncing = False

    def _learn(self, image: MetadataImage, delta: Any) -> None:
        """Apply the next change of the metadata."""
        self.image = image
        if self.manager is None:
            return
        before = self.partition
        self.manager._image = image
        run(self.manager.apply(delta))
        if self.partition is not before:  # the old one is closed: nobody waits for what it has asked for
            self.change = self.awaited = None
            self.is_syncing = False

    # --- As leader ----------------------------------------------------------------------------------------------------

    def _append(self, value: int) -> bool:
        """A record of a client, with acks=all. False if it is refused."""
        assert self.partition is not None
        try:
            self.partition.check_clients_append(-1)
        except KafkaError:
            return False
        self.partition.append(packed(0, ((0, value),)), Origin.CLIENT, 0)
        return True

    def _answer(self, asked: Asked) -> Told:
        """A follower's Fetch comes."""
        row = fetch.FetchPartition(
            partition=0,
            current_leader_epoch=asked.leader_epoch,
            fetch_offset=asked.offset,
            last_fetched_epoch=asked.last_epoch,
            log_start_offset=0,
            partition_max_bytes=1 << 20,
        )
        request = fetch.Request(
            replica_state=fetch.ReplicaState(replica_id=asked.follower, replica_epoch=asked.broker_epoch),
            max_wait_ms=0,
            max_bytes=1 << 20,
            session_id=0,
            session_epoch=fetch_api.FINAL_EPOCH,
            topics=[fetch.FetchTopic(topic_id=TOPIC_ID, partitions=[row])],
        )
        services: Any = SimpleNamespace(replicas=self.manager, image=self.image, config=CONFIG, fetch_sessions=None)
        context = Context(services, "PLAINTEXT", "")
        context.version = VERSION
        data = fetch_api.handle(request, context).responses[0].partitions[0]
        diverging = data.diverging_epoch
        if diverging is None or diverging.epoch < 0:
            return Told(data.error_code, data.high_watermark, b"".join(data.records or ()))
        return Told(data.error_code, data.high_watermark, b"", (diverging.epoch, diverging.end_offset))

    def _does_not_keep_up(self, follower_id: int) -> None:
        """replica.lag.time.max.ms is over for a follower that has not all."""
        assert self.partition is not None and self.partition.leadership is not None
        follower = self.partition.leadership.followers[follower_id]
        follower.caught_up_ms = follower._fetched_ms = NEVER_MS
        change = self.partition.lagging()
        if change is not None:
            self.change = change

    def _want(self, partition: Partition, change: IsrChange) -> None:
        self.change = change

    @cached_property
    def alter(self) -> Any:
        """The AlterPartition for what is wanted."""
        asked: list[Any] = []

        async def ask(request: Any, timeout_ms: float) -> Any:
            asked.append(request)
            raise Captured

        try:
            run(self._isr_changes(ask)._send(self._wanted()))
        except Captured:
            pass
        return asked[0]

    def _take_change(self, answer: Any) -> None:
        """The controller has answered; None if its answer is lost."""

        async def ask(request: Any, timeout_ms: float) -> Any:
            if answer is None:
                raise KafkaError.of(ErrorCode.REQUEST_TIMED_OUT, "lost")
            return answer

        wanted, self.change = self._wanted(), None
        changes = self._isr_changes(ask)
        run(changes._send(wanted))
        for change in changes._wanted.values():  # to be asked for again
            self.change = change

    def _wanted(self) -> dict[Partition, IsrChange]:
        assert self.partition is not None and self.change is not None
        return {self.partition: self.change}

    def _isr_changes(self, ask: Any) -> IsrChanges:
        assert self.manager is not None
        made = IsrChanges(self.id, ask, self.image.broker_epoch, self.manager.partitions, 0)
        made._pauses = AtOnce()  # type: ignore[assignment]
        return made

    # --- As follower --------------------------------------------------------------------------------------------------

    @cached_property
    def asks(self) -> Asked | None:
        """Its next Fetch."""
        partition = self.partition
        if partition is None or partition.leads or partition.leader < 0 or partition.failure is not None:
            return None
        if self.is_syncing:
            return None
        offset, leader_epoch, last_epoch, _ = Copy(partition, 0).wanted()
        return Asked(self.id, partition.leader, self.registered, offset, leader_epoch, last_epoch)

    def _take(self, asked: Asked, told: Told) -> None:
        """The answer to its Fetch has come."""
        partition = self.partition
        assert partition is not None
        copy = Copy(partition, 0)
        copy.told = copy.wanted()
        owner = SimpleNamespace(runtime=system(), node_id=self.id, config=CONFIG)
        fetcher = Fetcher(owner, asked.leader, 0)  # type: ignore[arg-type]
        fetcher._by_key = {copy.key: copy}
        fetcher._put_off = self._put_off  # type: ignore[method-assign]
        data = fetch.PartitionData(
            partition_index=0,
            error_code=told.code,
            high_watermark=told.high_watermark,
            log_start_offset=0,
            records=told.data or None,
        )
        if told.diverging is not None:
            data.diverging_epoch = fetch.EpochEndOffset(epoch=told.diverging[0], end_offset=told.diverging[1])
        answer = fetch.Response(responses=[fetch.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])])
        taking = fetcher._take(answer, Unasked(self.id))  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()
        assert isinstance(loop, StillLoop)
        loop.waiting = 0
        try:
            taking.send(None)
        except StopIteration:
            return
        taking.close()
        self.is_syncing = loop.waiting > 0

    def _put_off(self, copy: Copy, error: KafkaError) -> None:
        """It fetches again, as ever."""
        assert error.code != ErrorCode.CORRUPT_MESSAGE, f"{self.id} cannot append what its leader has: {error.message}"


class StillLoop(asyncio.SelectorEventLoop):
    """Time does not pass, and no task runs on: a sync ends when the model says so. waiting: tasks that have begun to
    wait."""

    waiting = 0

    def time(self) -> float:
        return 0.0

    def create_task(self, work: Any, **options: Any) -> Any:
        if (options.get("name") or "").startswith("model"):
            return super().create_task(work, **options)
        task = self.create_future()
        if str(options.get("name")).startswith("sync "):
            work.close()
            return task
        try:
            work.send(None)
        except StopIteration:
            task.set_result(None)
        else:
            work.close()
            self.waiting += 1
        return task


class Captured(Exception):
    """A request is all that was wanted."""


@dataclass
class Unasked:
    """The connection to a leader: logs that begin at 0 are never out of range, so it is not asked for its offsets."""

    node_id: int

    async def request(self, *_: Any) -> Any:
        raise AssertionError(f"{self.node_id} asks for an offset that its leader does not have")


class AtOnce:
    is_stopping = False

    async def pause(self, seconds: float | None) -> None:
        pass


def partition_key(partition: Partition) -> Any:
    leadership, core = partition.leadership, partition.core
    return (
        partition.leader, core.leader_epoch, core.high_watermark, core.obstacles, core.lags, core.kept_end,
        partition._sync_task is None, tuple(partition.isr),
        tuple(partition.replicas), None if leadership is None else leadership_key(leadership),
    )  # fmt: skip


def leadership_key(leadership: Leadership) -> Any:
    followers = tuple(
        (broker_id, each.end_offset, each.caught_up_ms, each.broker_epoch, each._fetched_ms, each._leader_end)
        for broker_id, each in leadership.followers.items()
    )
    return leadership.epoch_start, leadership.partition_epoch, leadership.isr, leadership._change, followers
