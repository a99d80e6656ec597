"""One partition as this broker leads it: leader epoch, in-sync replicas, high watermark, and who waits on them.

All that clients see goes through the high watermark. With `durability=page_cache` it follows the log's end at once;
with `fsync` it moves only after a sync, and all appends that arrive while one sync runs share the next (group commit).
A partition whose file failed stays failed until the broker starts again: its waiters are told, nothing is appended. One
that could not take an append for want of room has a `refusal` until there is some (`room.py`), and is read as ever.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...protocol.errors import ErrorCode, KafkaError
from ..config import MAX_LONG
from ..storage.disk.errors import fresh_copy
from ._leading import Leading
from .traffic import OF_APPENDS, Traffic

if TYPE_CHECKING:
    from ..storage.log.append import Origin
    from ..storage.log.inspection import Inspection
    from ..storage.log.log import AppendInfo, Log, LogSlice

log = logging.getLogger(__name__)

Cancel = Callable[[], None]


class Partition(Leading):
    """See the module. Made by the ReplicaManager; `log` is open."""

    __slots__ = (
        "_sequence",
        "_sync_task",
        "_tell_refusal",
        "configs",
        "fsync",
        "index",
        "min_insync_replicas",
        "replicas",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        tell_refusal: Callable[[Partition, KafkaError, int], None] = lambda partition, error, size_bytes: None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.tail = log.tail
        self.ranges = log.ranges
        self.leader_epoch = 0
        self.isr = []
        self.replicas: list[int] = []
        self.configs: Mapping[str, Any] = {}  # the topic's options, parsed
        self.min_insync_replicas = 1
        self.least_in_sync = 0  # for acks=all: min.insync.replicas, but no more than there are replicas
        self.mirror_link = ""  # the link that owns this topic
        self.fsync = False
        self._holds_back = False  # an append may have to wait for a sync
        self.high_watermark = log.log_start_offset
        self.failure = None
        self.traffic = Traffic()
        self.line = None  # the last append that is being prepared; what comes later waits
        self._end_waiters = []  # heap: offset, sequence, callback (None once it is called)
        self._data_waiters = {}
        self.refusal = ""  # why appends are refused for now, though all else goes on: mostly a full disk
        self._tell_refusal = tell_refusal
        self._sequence = 0
        self._sync_task: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def last_stable_offset(self) -> int:
        """The first offset of a transaction not decided yet, or the high watermark."""
        undecided = self.log.first_unstable_offset
        return self.high_watermark if undecided is None else min(undecided, self.high_watermark)

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take the topic's options, parsed; the mapping is shared by its partitions."""
        self.configs = options
        self.min_insync_replicas = options["min.insync.replicas"]
        self._count_replicas()
        self.mirror_link = options["mirror.link"] or ""
        self.fsync = options["durability"] == "fsync"
        self._holds_back = self.fsync or options["flush.messages"] < MAX_LONG

    def place(self, replicas: Sequence[int], isr: Sequence[int]) -> None:
        """Take the brokers that hold it, and those of them that are in sync."""
        self.replicas, self.isr = list(replicas), list(isr)
        self._count_replicas()

    def _count_replicas(self) -> None:
        self.least_in_sync = min(self.min_insync_replicas, len(self.replicas))

    def become_leader(self, leader_epoch: int) -> None:
        """Lead under an epoch. A mirrored log holds its source's epochs and none of ours."""
        self.leader_epoch = leader_epoch
        if not self.mirror_link:
            self.log.assign_epoch(leader_epoch)

    def recover(self) -> None:
        """A leader alone has seen all that is in its log: the high watermark is its end."""
        self.high_watermark = self.log.log_end_offset

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of an offset; -1 when none is known."""
        return self.log.epoch_at(offset)

    def aborted_transactions(self, offset: int, upper_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that touch offsets up to before `upper_offset`."""
        return [(each.producer_id, each.first_offset) for each in self.log.aborted_transactions(offset, upper_offset)]

    def append(
        self,
        records: Any,
        origin: Origin,
        wall_ms: int,
        expected_next_offset: int | None = None,
        inspection: Inspection | None = None,
    ) -> AppendInfo:
        """Append batches to the log. Raises KafkaError; then nothing was appended. inspection: see `Log.append`."""
        if self.failure is not None:
            raise fresh_copy(self.failure)
        traffic = self.traffic
        traffic.appends += 1
        try:
            info = self.log.append(records, origin, self.leader_epoch, wall_ms, expected_next_offset, inspection)
        except KafkaError as error:
            self._append_failed(error, len(records))
            raise
        traffic.bytes_in += info.size_bytes
        traffic.messages_in += info.records_count
        if self.refusal:
            self.takes_appends()
        if self._holds_back and (self.fsync or self.log.needs_flush):
            self._sync_soon()
            return info
        end = self.log.log_end_offset
        if end > self.high_watermark:
            self.high_watermark = end
            if self._end_waiters:
                self._wake_end_waiters()
            if self._data_waiters:
                self.wake_data_waiters()
        return info

    def _append_failed(self, error: KafkaError, size_bytes: int) -> None:
        if error.code not in OF_APPENDS:
            self.traffic.failed_appends += 1
        if error.code == ErrorCode.MESSAGE_TOO_LARGE:
            self.traffic.bytes_refused += size_bytes
        if error.code == ErrorCode.KAFKA_STORAGE_ERROR and self.log.failure is None:
            self._refuse(error, size_bytes)

    def _refuse(self, error: KafkaError, size_bytes: int) -> None:
        if not self.refusal:
            log.error("%s is offline for appends while this lasts: %s", self, error.message)
        self.refusal = error.message
        self._tell_refusal(self, error, size_bytes)

    def takes_appends(self) -> None:
        """What it refused appends for is over."""
        self.refusal = ""
        log.info("%s is online again for appends", self)

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        read_committed: bool = False,
        min_one: bool = True,
        may_wait: bool = True,
    ) -> LogSlice:
        """Batches from the one that holds `offset` up to the high watermark, or the last stable offset.

        may_wait: for the disk; else NotCached may be raised.
        """
        upper = self.last_stable_offset if read_committed else self.high_watermark
        return self.log.read(offset, max_bytes, upper, min_one, may_wait)

    @property
    def is_offline(self) -> bool:
        return self.failure is not None or self.log.failure is not None

    def check_online(self) -> None:
        """Raise why the partition, or its log, has failed: what memory knows of its files may not be what they hold."""
        failure = self.failure or self.log.failure
        if failure is not None:
            raise fresh_copy(failure)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client that knows another leader epoch (KIP-320); -1 does not ask."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{self}: leader epoch is {self.leader_epoch}")
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self}: leader epoch is {self.leader_epoch}")

    @property
    def low_watermark(self) -> int:
        """The first offset that all replicas still hold: this one's, as long as this broker holds the only replica."""
        start: int = self.log.log_start_offset
        return start

    def delete_records(self, offset: int) -> int:
        """Serve nothing before `offset` any more, -1 being the high watermark; gives the offset meant.

        Raises KafkaError: POLICY_VIOLATION for a topic that is compacted only, OFFSET_OUT_OF_RANGE,
        KAFKA_STORAGE_ERROR. The log's start moves in memory; `LogManager.save_log_starts` makes it last.
        """
        self.check_online()
        policy = self.configs["cleanup.policy"]
        if "compact" in policy and "delete" not in policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{self}: cleanup.policy does not have delete")
        before = self.high_watermark if offset == -1 else offset
        if not 0 <= before <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self}: offset {offset} is not up to {self.high_watermark}"
            )
        self.log.advance_start(before)
        return before

    # --- who waits ----------------------------------------------------------------------------------------------------

    def wait_for_high_watermark(self, offset: int, callback: Callable[[], None]) -> Cancel:
        """Call `callback()` once when the high watermark is at `offset` or past it, or the partition has failed."""
        if self.high_watermark >= offset or self.failure is not None:
            callback()
            return _nothing
        self._sequence += 1
        entry = [offset, self._sequence, callback]
        heapq.heappush(self._end_waiters, entry)

        def cancel() -> None:
            if entry[2] is not None:  # else it is out already: a thousand that are woken must not search the heap each
                entry[2] = None
                self._end_waiters.remove(entry)
                heapq.heapify(self._end_waiters)

        return cancel

    def wait_for_data(self, callback: Callable[[], None]) -> Cancel:
        """Call `callback()` once when there is more to read, or when the partition fails or goes away."""
        self._sequence += 1
        sequence = self._sequence
        self._data_waiters[sequence] = callback

        def cancel() -> None:
            self._data_waiters.pop(sequence, None)

        return cancel

    def _advance(self, offset: int) -> None:
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        if self._end_waiters:
            self._wake_end_waiters()
        if self._data_waiters:
            self.wake_data_waiters()

    def _wake_end_waiters(self) -> None:
        waiters = self._end_waiters
        while waiters and (waiters[0][0] <= self.high_watermark or self.failure is not None):
            entry = heapq.heappop(waiters)
            callback, entry[2] = entry[2], None
            callback()

    def wake_data_waiters(self) -> None:
        """Whoever waits for data is to look: there is some, or there will be none."""
        waiters, self._data_waiters = self._data_waiters, {}
        for callback in waiters.values():
            callback()

    # --- group commit -------------------------------------------------------------------------------------------------

    def _sync_soon(self) -> None:
        if self._sync_task is None:
            self._sync_task = asyncio.get_running_loop().create_task(self._sync(), name=f"sync {self}")

    async def _sync(self) -> None:
        try:
            while self.high_watermark < self.log.log_end_offset and self.failure is None:
                end = self.log.log_end_offset
                await self.log.sync()
                self._advance(end)
        except (KafkaError, OSError) as error:
            self.fail(error)
        finally:
            self._sync_task = None

    async def settle(self) -> None:
        """Wait until what was appended is on disk, if anybody waits for that."""
        if self._sync_task is not None:
            await asyncio.wait([self._sync_task])

    def fail(self, error: Exception) -> None:
        """The log cannot be trusted any more: all waiters are told, and every use from now on is refused."""
        if self.failure is not None:
            return
        reason = KafkaError.reason(error)
        self.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: {reason}")
        log.error("%s is offline until the broker starts again: %s", self, reason)
        self._wake_end_waiters()
        self.wake_data_waiters()

    def close(self, error: KafkaError) -> None:
        """The partition is deleted or the broker stops: let go of those who wait. The log is closed by its manager."""
        if self.failure is None:
            self.failure = error
        self._wake_end_waiters()
        self.wake_data_waiters()


def _nothing() -> None:
    return None
