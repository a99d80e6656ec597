# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
"""The part of a partition that every Produce and Fetch request uses: fields that are C variables when compiled.

`Partition` holds one `PartitionCore`. It has the high watermark, with the only method that moves it, the requests that
wait on it or on this broker's own disk, and the short way of an append. The conditions that rule out the short way are
one set of bits, `obstacles`: the owner of each condition sets and clears its own bit.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import cython

from ...protocol.errors import KafkaError
from ..storage.log._producers import UnstableTransactions
from ..storage.log._tail import LogTail

if TYPE_CHECKING:
    from ...compiled import Public, Readonly
    from ..storage.log._ranges import LogRanges
    from ..storage.log.log import Log


# Bits of `obstacles`, each with its owner:
_NOT_SERVED: cython.int = 1  # the state serves no reads and no appends: Partition.enter
_NO_APPENDS: cython.int = 2  # the state takes no appends of clients: Partition.enter
_MIRRORED: cython.int = 4  # only a mirror link may append: Partition.configure
_IN_LINE: cython.int = 8  # an append is being prepared, and later ones wait for it: Partition.line
_TOO_FEW_IN_SYNC: cython.int = 16  # fewer in sync than min.insync.replicas, so acks=all is refused: Partition.place
_AGAINST_ACKS_1: cython.int = _NOT_SERVED | _NO_APPENDS | _MIRRORED | _IN_LINE
_AGAINST_ACKS_ALL: cython.int = _AGAINST_ACKS_1 | _TOO_FEW_IN_SYNC

NOT_SERVED = _NOT_SERVED
NO_APPENDS = _NO_APPENDS
MIRRORED = _MIRRORED
IN_LINE = _IN_LINE
TOO_FEW_IN_SYNC = _TOO_FEW_IN_SYNC


class CoreOwner(Protocol):
    """What a core asks of the partition that holds it."""

    def check_online(self) -> None:
        """Raise the failure if the partition is not served."""

    def sync_or_advance(self) -> None:
        """After an append where the core `lags`: begin the sync that comes first, and move what can be moved."""

    def append_failed(self, error: KafkaError, size_bytes: int) -> None:
        """Count an append that failed, and take the state that follows."""


@cython.final
@cython.cclass
class Traffic:
    """What went in and out of one partition since it was opened, or of all deleted ones: counts that only increase.

    appends: requests to append, failed ones too. failed_appends, failed_fetches: without the errors that `traffic.py`
    excludes. bytes_in: as on the wire, compressed. bytes_refused: of batches that are too large. fetches: answers sent,
    failed ones too. Of clients; what was copied from a leader, or served to followers, is in the last two.
    """

    appends: Public[cython.longlong]
    failed_appends: Public[cython.longlong]
    bytes_in: Public[cython.longlong]
    bytes_refused: Public[cython.longlong]
    messages_in: Public[cython.longlong]
    fetches: Public[cython.longlong]
    failed_fetches: Public[cython.longlong]
    bytes_out: Public[cython.longlong]
    replication_bytes_in: Public[cython.longlong]
    replication_bytes_out: Public[cython.longlong]

    def __init__(self) -> None:
        self.appends = self.failed_appends = self.bytes_in = self.bytes_refused = self.messages_in = 0
        self.fetches = self.failed_fetches = self.bytes_out = 0
        self.replication_bytes_in = self.replication_bytes_out = 0

    def add(self, other: Traffic) -> None:
        """Add the counts of another."""
        self.appends += other.appends
        self.failed_appends += other.failed_appends
        self.bytes_in += other.bytes_in
        self.bytes_refused += other.bytes_refused
        self.messages_in += other.messages_in
        self.fetches += other.fetches
        self.failed_fetches += other.failed_fetches
        self.bytes_out += other.bytes_out
        self.replication_bytes_in += other.replication_bytes_in
        self.replication_bytes_out += other.replication_bytes_out


@cython.final
@cython.cclass
class PartitionCore:
    """See the module.

    partition: the owner of this core; it does what the short way does not. tail, ranges: parts of its log. obstacles:
    conditions that rule out the short way. lags: the high watermark does not follow the log's end at once, because a
    sync or other replicas come first. awaits_sync: an append counts as kept here only after a sync, that is, before
    `kept_end`; if not, all of the log counts.
    """

    partition: Readonly[CoreOwner]
    tail: Readonly[LogTail]
    ranges: Readonly[LogRanges]
    traffic: Readonly[Traffic]
    high_watermark: Readonly[cython.longlong]
    obstacles: Readonly[cython.int]
    kept_end: Readonly[cython.longlong]
    leader_epoch: Public[cython.longlong]
    lags: Public[cython.bint]
    awaits_sync: Public[cython.bint]
    _end_waiters: list[list]  # of the high watermark, a heap: [offset, sequence, callback (None once it is called)]
    _kept_waiters: list[list]  # of `kept_end`, in the same way
    _data_waiters: dict[int, Callable[[], None]]  # by sequence
    _stable_waiters: dict[int, Callable[[], None]]  # the same: of consumers that read up to the stable offset
    _append_waiters: dict[int, Callable[[], None]]  # the same: of followers, which read up to the log's end
    _sequence: cython.longlong

    def __init__(self, partition: CoreOwner, log: Log, traffic: Traffic) -> None:
        self.partition = partition
        self.tail = log.tail
        self.ranges = log.ranges
        self.traffic = traffic
        self.leader_epoch = 0
        self.high_watermark = log.log_start_offset
        self.kept_end = log.log_start_offset
        self.obstacles = 0
        self.lags = False
        self.awaits_sync = False
        self._end_waiters = []
        self._kept_waiters = []
        self._data_waiters = {}
        self._stable_waiters = {}
        self._append_waiters = {}
        self._sequence = 0

    def set_obstacle(self, bit: cython.int, is_there: cython.bint) -> None:
        """Called by the bit's owner: whether its condition rules out the short way."""
        if is_there:
            self.obstacles |= bit
        else:
            self.obstacles &= ~bit

    @cython.ccall
    @cython.exceptval(check=False)
    def is_served(self) -> cython.bint:
        """Whether clients can read it here."""
        return not self.obstacles & _NOT_SERVED

    # --- the high watermark -------------------------------------------------------------------------------------------

    def advance_high_watermark(self, offset: cython.longlong) -> None:
        """`advance` from Python."""
        self.advance(offset)

    @cython.cfunc
    @cython.exceptval(-1)
    def advance(self, offset: cython.longlong) -> cython.int:
        """Raise the high watermark to an offset, if it is lower, and wake who waits. Nothing else raises it."""
        before: cython.longlong
        moves: cython.bint
        unstable: UnstableTransactions
        if offset <= self.high_watermark:
            return 0
        before = self.stable_offset()
        self.high_watermark = offset
        unstable = self.tail.producers.unstable
        if unstable.first < offset:
            unstable.commit(offset)
        moves = self.stable_offset() > before
        if self._end_waiters:
            self.wake_end_waiters()
        if self._data_waiters:
            self.wake_data_waiters()
        if moves and self._stable_waiters:
            self.wake_stable_waiters()
        return 0

    @cython.ccall
    @cython.exceptval(-1)
    def appended(self, end: cython.longlong) -> cython.int:
        """The log ends at `end` now: move the high watermark, at once or after what it waits for."""
        if self._append_waiters:
            self.wake_append_waiters()
        if self.lags:
            self.partition.sync_or_advance()
            return 0
        return self.advance(end)

    def keep(self, offset: int) -> None:
        """All before an offset is on this broker's disk as the option durability asks: wake who waits for that."""
        if offset > self.kept_end:
            self.kept_end = offset
        self._wake(self._kept_waiters, self.kept_end)

    @cython.ccall
    @cython.exceptval(-1)
    def stable_offset(self) -> cython.longlong:
        """Before it every transaction has ended by a marker that is committed; at most the high watermark."""
        first: cython.longlong = self.tail.producers.unstable.first
        if first < self.tail.log_start_offset:
            first = self.tail.log_start_offset
        return first if first < self.high_watermark else self.high_watermark

    def cut(self, end: int) -> None:
        """The log of this follower was cut off, and ends at an offset now."""
        self.kept_end = min(self.kept_end, end)
        self.high_watermark = min(self.high_watermark, end)
        self.tail.producers.unstable.commit(self.high_watermark)

    @cython.ccall
    @cython.exceptval(-1)
    def is_acknowledged(self, next_offset: cython.longlong, acks: cython.int) -> cython.bint:
        """Whether producers with these acks may be told that what was appended before an offset is kept."""
        if acks == 1:
            return not self.awaits_sync or self.kept_end >= next_offset
        return self.high_watermark >= next_offset

    def wait_for_acknowledgement(self, offset: int, acks: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback()` once when `is_acknowledged`, or when the partition is not served any more. Gives what
        cancels the wait."""
        if self.is_acknowledged(offset, acks) or self.obstacles & _NOT_SERVED:
            callback()
            return _nothing
        waiters: list = self._kept_waiters if acks == 1 else self._end_waiters
        self._sequence += 1
        entry = [offset, self._sequence, callback]
        heapq.heappush(waiters, entry)

        def cancel() -> None:
            if entry[2] is not None:  # else it is out already: a thousand that are woken must not search the heap each
                entry[2] = None
                waiters.remove(entry)
                heapq.heapify(waiters)

        return cancel

    def wait_for_data(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback()` once when there is more to read for consumers, or when the partition fails or goes away.
        Gives what cancels the wait."""
        return self._wait_in(self._data_waiters, callback)

    def wait_for_stable(self, callback: Callable[[], None]) -> Callable[[], None]:
        """The same for consumers that read what transactions have committed: they see no more while one is open."""
        return self._wait_in(self._stable_waiters, callback)

    def wait_for_append(self, callback: Callable[[], None]) -> Callable[[], None]:
        """The same for followers, which read up to the log's end."""
        return self._wait_in(self._append_waiters, callback)

    def _wait_in(self, waiters: dict, callback: Callable[[], None]) -> Callable[[], None]:
        self._sequence += 1
        sequence = self._sequence
        waiters[sequence] = callback

        def cancel() -> None:
            waiters.pop(sequence, None)

        return cancel

    def wake_followers(self) -> None:
        """What a leader tells its followers has changed, or what it asks of them."""
        self.wake_append_waiters()

    def wake_all(self) -> None:
        """The partition is not served any more: call all that wait."""
        self.wake_end_waiters()
        self._wake(self._kept_waiters, self.kept_end)
        self.wake_data_waiters()
        self.wake_stable_waiters()
        self.wake_append_waiters()

    @cython.cfunc
    @cython.exceptval(-1)
    def wake_end_waiters(self) -> cython.int:
        self._wake(self._end_waiters, self.high_watermark)
        return 0

    def _wake(self, waiters: list, reached: int) -> None:
        """Call those whose offset is reached; all of them, where the partition is not served any more."""
        while waiters and (waiters[0][0] <= reached or self.obstacles & _NOT_SERVED):
            entry = heapq.heappop(waiters)
            callback, entry[2] = entry[2], None
            callback()

    @cython.cfunc
    @cython.exceptval(-1)
    def wake_data_waiters(self) -> cython.int:
        """Consumers that wait are to look: there is more, or there will be none."""
        return _wake(self._data_waiters)

    @cython.ccall
    @cython.exceptval(-1)
    def wake_stable_waiters(self) -> cython.int:
        """Consumers that wait for a transaction to end are to look."""
        return _wake(self._stable_waiters)

    @cython.cfunc
    @cython.exceptval(-1)
    def wake_append_waiters(self) -> cython.int:
        """Followers that wait are to look."""
        return _wake(self._append_waiters)

    # --- the short way of an append -----------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1)
    def records_plain(
        self,
        b: cython.p_const_uchar,
        size: cython.Py_ssize_t,
        acks: cython.int,
        wall_ms: cython.longlong,
    ) -> cython.longlong:
        """How many records this one batch of a client has, if the short way may take it; else -2. Changes nothing."""
        tail: LogTail = self.tail
        if self.obstacles & (_AGAINST_ACKS_ALL if acks == -1 else _AGAINST_ACKS_1):
            return -2
        return tail.records_plain(b, size, wall_ms)

    @cython.cfunc
    @cython.exceptval(-1)
    def append_plain(
        self,
        b: cython.p_const_uchar,
        size: cython.Py_ssize_t,
        records: cython.longlong,
        wall_ms: cython.longlong,
    ) -> cython.longlong:
        """Append a batch of so many records, as `records_plain` has counted; its base offset. Raises KafkaError."""
        tail: LogTail = self.tail
        traffic: Traffic = self.traffic
        base: cython.longlong
        if self.obstacles & _NOT_SERVED:  # since `records_plain`, by whoever an append to another partition has woken
            self.partition.check_online()
        traffic.appends += 1
        try:
            base = tail.append_plain(b, size, self.leader_epoch, wall_ms)
        except KafkaError as error:
            self.partition.append_failed(error, size)
            raise
        traffic.bytes_in += size
        traffic.messages_in += records
        self.appended(tail.log_end_offset)
        return base


def _nothing() -> None:
    return None


@cython.cfunc
@cython.exceptval(-1)
def _wake(waiters: dict) -> cython.int:
    """Call all that wait, none of them twice. Those that wait anew meanwhile are called next time."""
    callbacks: dict = waiters.copy()
    waiters.clear()
    for callback in callbacks.values():
        callback()
    return 0
