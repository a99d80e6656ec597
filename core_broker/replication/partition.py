"""One partition that this broker leads or follows: its state, leader epoch, high watermark, and waiting requests.

A `Partition` is one leadership: under another leader, or after this broker has followed, another one takes its log. So
whoever waits for an append is told when its leader is none any more, whatever comes later.

The high watermark decides what clients see. On a leader it is what all in-sync replicas have (`leadership.py`); a sole
replica has only itself to ask. On a follower it is the leader's, as far as the log goes. With `durability=page_cache`
this broker's part of it is the log's end. With `fsync` it moves only after a sync, and all appends that arrive while
one sync runs share the next (group commit). The states are in `states.py`. What every request uses is in the core
(`_core.py`), which alone moves the high watermark.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...protocol.errors import ErrorCode, KafkaError
from ..config import MAX_LONG
from ..storage.disk.errors import fresh_copy
from ..storage.log.append import Origin
from ..storage.log.transactions import end_marker
from ._core import IN_LINE, MIRRORED, NO_APPENDS, NOT_SERVED, TOO_FEW_IN_SYNC, PartitionCore, Traffic
from .leadership import IsrChange, Leadership
from .states import MEANING, REFUSING, Event, State, next_state
from .traffic import NOT_FAILED_APPENDS

if TYPE_CHECKING:
    from ..storage.log._producers import VerificationGuard
    from ..storage.log.inspection import Inspection
    from ..storage.log.log import AppendInfo, Log, LogSlice

log = logging.getLogger(__name__)

Cancel = Callable[[], None]
ALL = -1  # acks: of all in-sync replicas


class Partition:
    """See the module. Created by the ReplicaManager; `log` is open."""

    __slots__ = (
        "_line",
        "_low_waiters",
        "_on_refusal",
        "_sync_task",
        "configs",
        "core",
        "fsync",
        "index",
        "isr",
        "leader",
        "leadership",
        "least_in_sync",
        "log",
        "min_insync_replicas",
        "mirror_link",
        "reason",
        "replicas",
        "state",
        "throttled_follower",
        "throttled_leader",
        "topic",
        "topic_id",
        "traffic",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        *,
        leadership: Leadership | None = None,
        traffic: Traffic | None = None,
        on_refusal: Callable[[Partition, KafkaError, int], None] = lambda partition, error, size_bytes: None,
    ) -> None:
        """leadership: if this broker leads; None if it follows. traffic: of this partition before. on_refusal: called
        with (partition, error, size in bytes) when the disk refuses an append."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.traffic = traffic or Traffic()
        self.core = PartitionCore(self, log, self.traffic)
        self.leadership = leadership
        self.leader = -1  # the broker that leads
        self.state = State.OPENING
        self.reason: KafkaError | None = None  # why the state is not LEADING or FOLLOWING
        self.isr: list[int] = []
        self.replicas: list[int] = []
        self.configs: Mapping[str, Any] = {}  # the topic's options, parsed
        self.min_insync_replicas = 1
        self.least_in_sync = 0  # for acks=all: min.insync.replicas, at most the number of replicas
        self.mirror_link = ""  # the link that owns this topic
        self.fsync = False
        self.throttled_leader = False  # this replica is served to followers under the broker's throttle
        self.throttled_follower = False  # it is fetched under the broker's throttle
        self._line: asyncio.Future[None] | None = None
        self._low_waiters: list[tuple[int, Callable[[], None]]] = []
        self._on_refusal = on_refusal
        self._sync_task: asyncio.Task[None] | None = None
        self.enter(Event.OPENED_TO_FOLLOW if leadership is None else Event.OPENED_TO_LEAD)

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    # --- state --------------------------------------------------------------------------------------------------------

    def enter(self, event: Event, reason: KafkaError | None = None) -> None:
        """Take the next state after an event. If it serves no clients any more, all waiting callbacks are called.

        reason: why the state is not LEADING or FOLLOWING. Once it is not served, the first reason is kept.
        """
        was_served = MEANING[self.state].serves_reads
        self.state = next_state(self.state, event)
        meaning = MEANING[self.state]
        if was_served or self.reason is None:
            self.reason = reason
        self.core.set_obstacle(NOT_SERVED, not meaning.serves_reads)
        self.core.set_obstacle(NO_APPENDS, not meaning.takes_appends)
        if not meaning.serves_reads:
            self.core.wake_all()
            self._wake_low_waiters()

    @property
    def failure(self) -> KafkaError | None:
        """Why the partition is not served; None if it is."""
        return None if MEANING[self.state].serves_reads else self.reason

    def check_online(self) -> None:
        """Raise the failure if the partition is not served."""
        failure = self.failure
        if failure is not None:
            raise fresh_copy(failure)

    def close(self, error: KafkaError) -> None:
        """The partition is deleted, led under another epoch, or the broker stops: call all that wait.

        The log manager closes the log.
        """
        self.enter(Event.CLOSE, error)

    @property
    def leads(self) -> bool:
        """Whether this broker leads it."""
        return self.leadership is not None

    def check_leads(self) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER if this broker follows."""
        if self.leadership is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self} is led by broker {self.leader}")

    # --- changes of metadata ------------------------------------------------------------------------------------------

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take the topic's options, parsed; the mapping is shared by its partitions."""
        self.configs = options
        self.min_insync_replicas = options["min.insync.replicas"]
        self.mirror_link = options["mirror.link"] or ""
        self.fsync = options["durability"] == "fsync"
        self.core.set_obstacle(MIRRORED, bool(self.mirror_link))
        self.core.awaits_sync = self.fsync or options["flush.messages"] < MAX_LONG
        self._count_replicas()

    def place(self, leader: int, replicas: Sequence[int], isr: Sequence[int], partition_epoch: int = 0) -> None:
        """Take the broker that leads, those that have a replica, and those that are in sync.

        partition_epoch: of this metadata. An older one is ignored: the controller has told this leader more.
        """
        self.leader = leader
        if self.leadership is not None and not self.leadership.place(replicas, isr, partition_epoch):
            return
        before, self.replicas, self.isr = self.isr, list(replicas), list(isr)
        if self.isr != before:
            self.core.wake_followers()  # one that is not in sync any more may get in by its next fetch
        self._count_replicas()
        self.advance()
        if self._low_waiters:
            self._wake_low_waiters()

    def _count_replicas(self) -> None:
        self.least_in_sync = min(self.min_insync_replicas, len(self.replicas))
        self.core.set_obstacle(TOO_FEW_IN_SYNC, len(self.isr) < self.least_in_sync)
        self.core.lags = self.core.awaits_sync or len(self.replicas) > 1

    def begin_epoch(self, leader_epoch: int) -> None:
        """Lead or follow under an epoch. The batches of a mirrored log have only its source's epochs."""
        self.core.leader_epoch = leader_epoch
        if self.leadership is not None and not self.mirror_link:
            self.log.assign_epoch(leader_epoch)

    @property
    def leader_epoch(self) -> int:
        return self.core.leader_epoch

    # --- offsets ------------------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """All before it is committed: consumers may see it. Only `PartitionCore.advance` moves it."""
        return self.core.high_watermark

    @property
    def is_behind_epoch(self) -> bool:
        """Whether this leader does not know yet that all before its epoch is committed (KIP-207)."""
        return self.leadership is not None and self.high_watermark < self.leadership.epoch_start

    @property
    def last_stable_offset(self) -> int:
        """Before it all transactions have ended: what readers of committed transactions see."""
        return self.core.stable_offset()

    @property
    def low_watermark(self) -> int:
        """Before it no replica has anything, of those whose brokers live, as far as their leader knows."""
        start: int = self.log.log_start_offset
        return start if self.leadership is None else self.leadership.low_watermark(start)

    def recover(self, high_watermark: int) -> None:
        """Take the high watermark that was known before: of an earlier leadership, or from its checkpoint.

        A sole replica commits all that is in its log, and on disk if it has to be. The last leadership may have left
        something to sync.
        """
        kept = end = self.log.log_end_offset
        if self.core.awaits_sync:
            kept = min(end, self.log.recovery_point)
        self.core.keep(kept)
        if len(self.replicas) <= 1:
            high_watermark = kept
        self.core.advance_high_watermark(min(high_watermark, end))
        if kept < end:
            self.sync_or_advance()
        else:
            self.advance()

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of an offset; -1 if unknown."""
        return self.log.epoch_at(offset)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client that has another leader epoch (KIP-320); -1 skips the check."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{self}: leader epoch is {self.leader_epoch}")
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self}: leader epoch is {self.leader_epoch}")

    # --- appends ------------------------------------------------------------------------------------------------------

    @property
    def line(self) -> asyncio.Future[None] | None:
        """Done with the last append that is being prepared; later ones wait for it. None if there is none."""
        return self._line

    @line.setter
    def line(self, end: asyncio.Future[None] | None) -> None:
        self._line = end
        self.core.set_obstacle(IN_LINE, end is not None)

    def check_clients_append(self, acks: int) -> None:
        """Raise KafkaError if clients may not append to this leader now: POLICY_VIOLATION, NOT_ENOUGH_REPLICAS."""
        if self.mirror_link:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.topic} is written by mirror link {self.mirror_link}; produce to its source",
            )
        if acks == -1:
            self.check_in_sync()

    def check_in_sync(self) -> None:
        """Raise NOT_ENOUGH_REPLICAS while what is appended here would not be committed."""
        if len(self.isr) < self.least_in_sync:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self}: {len(self.isr)} in sync, min.insync.replicas is {self.least_in_sync}",
            )

    def append(
        self,
        records: Any,
        origin: Origin,
        wall_ms: int,
        expected_next_offset: int | None = None,
        inspection: Inspection | None = None,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append batches to the log. Raises KafkaError; then nothing was appended. inspection, guard: see
        `Log.append`."""
        if self.core.obstacles & NOT_SERVED:
            self.check_online()
        traffic = self.traffic
        traffic.appends += origin != Origin.REPLICATION
        epoch = self.core.leader_epoch
        try:
            info = self.log.append(records, origin, epoch, wall_ms, expected_next_offset, inspection, guard)
        except KafkaError as error:
            self.append_failed(error, len(records))
            raise
        if origin == Origin.REPLICATION:
            traffic.replication_bytes_in += info.size_bytes
        else:
            traffic.bytes_in += info.size_bytes
            traffic.messages_in += info.records_count
        if self.state in REFUSING:
            self.takes_appends()
        self.core.appended(info.next_offset)
        return info

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, bumps_epochs: bool, wall_ms: int
    ) -> VerificationGuard | None:
        """What `append` must be given with a transactional batch; None if its transaction is open in this log. See
        `Log.begin_verification`. Raises KafkaError: NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH."""
        self.check_online()
        self.check_leads()
        return self.log.begin_verification(producer_id, producer_epoch, sequence, bumps_epochs, wall_ms)

    def write_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int,
        wall_ms: int,
    ) -> AppendInfo:
        """End a producer's transaction in this log, for its coordinator or an administrator (KIP-664).

        It has ended for readers once the high watermark has passed the marker. transaction_version: from 2 on the
        marker has the producer's next epoch (KIP-890), and one that was written already may come again (KIP-1228).

        Raises KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, NOT_LEADER_OR_FOLLOWER,
        NOT_ENOUGH_REPLICAS, POLICY_VIOLATION where a mirror writes the log, KAFKA_STORAGE_ERROR.
        """
        self.check_online()
        self.check_leads()
        self.check_clients_append(ALL)
        self.log.producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        marker = end_marker(producer_id, producer_epoch, committed, coordinator_epoch, wall_ms)
        return self.append(marker, Origin.COORDINATOR, wall_ms)

    def append_failed(self, error: KafkaError, size_bytes: int) -> None:
        """Count an append that failed, and take the state that follows."""
        if error.code not in NOT_FAILED_APPENDS:
            self.traffic.failed_appends += 1
        if error.code == ErrorCode.MESSAGE_TOO_LARGE:
            self.traffic.bytes_refused += size_bytes
        if error.code != ErrorCode.KAFKA_STORAGE_ERROR or not MEANING[self.state].serves_reads:
            return
        if self.log.failure is not None:
            self.enter(Event.LOG_FAILED, fresh_copy(self.log.failure))
        else:
            if self.state not in REFUSING:
                log.error("%s takes no appends while this lasts: %s", self, error.message)
            self.enter(Event.APPEND_REFUSED, fresh_copy(error))  # the original is raised
            self._on_refusal(self, error, size_bytes)

    def takes_appends(self) -> None:
        """The reason for which appends were refused is gone."""
        self.enter(Event.APPENDS_AGAIN)
        log.info("%s takes appends again", self)

    # --- reads --------------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        read_committed: bool = False,
        min_one: bool = True,
        may_wait: bool = True,
    ) -> LogSlice:
        """Batches from the one with `offset` up to the high watermark, or the last stable offset.

        may_wait: the read may wait for the disk; if not, NotCached may be raised.
        """
        upper = self.last_stable_offset if read_committed else self.high_watermark
        return self.log.read(offset, max_bytes, upper, min_one, may_wait)

    def aborted_transactions(self, offset: int, upper_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that overlap offsets before `upper_offset`."""
        return self.log.aborted_transactions(offset, upper_offset)

    def delete_records(self, offset: int) -> int:
        """Stop serving offsets before `offset`; -1 is the high watermark. Returns the offset used.

        Raises KafkaError: POLICY_VIOLATION for a topic that is only compacted, OFFSET_OUT_OF_RANGE,
        KAFKA_STORAGE_ERROR. The log start moves in memory; `LogManager.save_log_starts` makes it durable.
        """
        self.check_online()
        policy = self.configs["cleanup.policy"]
        if "compact" in policy and "delete" not in policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{self}: cleanup.policy does not include delete")
        before = self.high_watermark if offset == -1 else offset
        if not 0 <= before <= self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self}: offset {offset} is past {self.high_watermark}")
        self.log.advance_start(before)
        self.core.wake_followers()
        self.core.wake_stable_waiters()  # what is deleted belongs to no open transaction any more
        return before

    async def begin_at(self, offset: int) -> None:
        """Let a log that never had a record begin at `offset`, as the mirror's source does.

        Raises OffsetMismatch if it has records by then, StorageError.
        """
        await self.log.reset_to(offset, expected_next_offset=0)
        self.core.keep(offset)
        self.advance()

    # --- the high watermark -------------------------------------------------------------------------------------------

    def sync_or_advance(self) -> None:
        """After an append, where the core `lags`: begin the sync that comes first, and move what can be moved."""
        if not self.fsync and not self.log.needs_flush:
            self.core.keep(self.log.log_end_offset)
            self.advance()
        elif self._sync_task is None:
            self._sync_task = asyncio.get_running_loop().create_task(self._sync(), name=f"sync {self}")

    def advance(self) -> None:
        """Move the high watermark of a leader to what all in-sync replicas have.

        Not while there are fewer of them than min.insync.replicas: what is committed must outlive their loss (KIP-966).
        """
        leadership, core = self.leadership, self.core
        if leadership is None or core.obstacles & TOO_FEW_IN_SYNC:
            return
        end = self.log.log_end_offset
        kept = core.kept_end if core.awaits_sync else end
        if len(self.replicas) > 1:
            kept = leadership.committed_end(kept, end)
        core.advance_high_watermark(kept)

    def follower_fetched(
        self, broker_id: int, offset: int, log_start_offset: int, broker_epoch: int
    ) -> IsrChange | None:
        """A follower has the log up to an offset. Returns a change of the in-sync replicas to be asked for."""
        leadership = self.leadership
        if leadership is None:
            return None
        if leadership.fetched(broker_id, offset, log_start_offset, self.log.log_end_offset, broker_epoch):
            self.advance()
        if self._low_waiters:
            self._wake_low_waiters()
        if broker_id in self.isr:
            return None
        return leadership.joins(broker_id, self.high_watermark, self.log.log_start_offset, self.leader_epoch)

    def lagging(self) -> IsrChange | None:
        """A change that takes out followers that lag; None if there are none, or this broker does not lead."""
        if self.leadership is None or len(self.isr) <= 1:
            return None
        return self.leadership.leave(self.log.log_end_offset, self.leader_epoch)

    async def truncate_to(self, offset: int) -> None:
        """Cut off what this follower has and its leader has not. Raises StorageError, and KafkaError if there is
        another leader by the time that the disk allows it: this broker, or one that has all that was to be cut off.

        A log that begins later than that, as what was before was deleted, has nothing in common with the leader's.
        """
        if offset < self.log.log_start_offset:
            await self.begin_again_at(offset)
            return
        await self.log.truncate_to(offset, self.check_online)
        self._was_cut()

    async def begin_again_at(self, offset: int) -> None:
        """Drop the whole log of this follower, which begins at `offset` then. Raises as `truncate_to`."""
        await self.log.reset_to(offset, last_check=self.check_online)
        self._was_cut()
        self.core.keep(offset)  # there is nothing that a sync could wait for

    def _was_cut(self) -> None:
        end = self.log.log_end_offset
        if end < self.high_watermark:
            log.warning("%s: cut off at offset %d, below the high watermark %d", self, end, self.high_watermark)
        self.core.cut(end)

    @property
    def copied_end(self) -> int:
        """Up to where this follower's leader may take it to have the log."""
        return self.core.kept_end if self.core.awaits_sync else self.log.log_end_offset

    def followed(self, high_watermark: int) -> None:
        """The leader has told its high watermark: so much of this follower's log is committed."""
        self.core.advance_high_watermark(min(high_watermark, self.log.log_end_offset))

    # --- waiting ------------------------------------------------------------------------------------------------------

    def wait_for_high_watermark(self, offset: int, callback: Callable[[], None]) -> Cancel:
        """Call `callback()` once when the high watermark reaches `offset`, or the partition is not served any more."""
        return self.core.wait_for_acknowledgement(offset, -1, callback)

    def wait_for_acknowledgement(self, offset: int, acks: int, callback: Callable[[], None]) -> Cancel:
        """The same for what these acks stand for: all in-sync replicas, or this broker alone."""
        return self.core.wait_for_acknowledgement(offset, acks, callback)

    def wait_for_data(self, callback: Callable[[], None]) -> Cancel:
        """Call `callback()` once when consumers have more to read, or the partition is not served any more."""
        return self.core.wait_for_data(callback)

    def wait_for_stable(self, callback: Callable[[], None]) -> Cancel:
        """The same for those that read what transactions have committed."""
        return self.core.wait_for_stable(callback)

    def wait_for_append(self, callback: Callable[[], None]) -> Cancel:
        """Call `callback()` once when followers have more to read, or the partition is not served any more."""
        return self.core.wait_for_append(callback)

    def wait_for_low_watermark(self, offset: int, callback: Callable[[], None]) -> Cancel:
        """Call `callback()` once when the low watermark reaches `offset`, or the partition is not served any more."""
        entry = offset, callback
        self._low_waiters.append(entry)

        def cancel() -> None:
            if entry in self._low_waiters:
                self._low_waiters.remove(entry)

        return cancel

    def _wake_low_waiters(self) -> None:
        reached = None if self.failure is not None else self.low_watermark
        waiters, self._low_waiters = self._low_waiters, []
        for offset, callback in waiters:
            if reached is None or offset <= reached:
                callback()
            else:
                self._low_waiters.append((offset, callback))

    # --- group commit -------------------------------------------------------------------------------------------------

    async def _sync(self) -> None:
        try:
            while self.core.kept_end < self.log.log_end_offset and self.failure is None:
                end = self.log.log_end_offset
                await self.log.sync()
                self.core.keep(end)
                self.advance()
        except (KafkaError, OSError) as error:
            self.fail(error)
        finally:
            self._sync_task = None

    def fail(self, error: Exception) -> None:
        """The log cannot be trusted any more. No effect if the partition has failed already."""
        if self.failure is None:
            reason = KafkaError.reason(error)
            log.error("%s is offline until the broker starts again: %s", self, reason)
            self.enter(Event.LOG_FAILED, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: {reason}"))

    async def settle(self) -> None:
        """Wait until all that was appended is on disk, if anything waits for that."""
        if self._sync_task is not None:
            await asyncio.wait([self._sync_task])
