"""What the leader of a partition knows of its followers, and what follows from it.

The rules are those of Kafka's `Partition`: which offset all in-sync replicas have (KIP-101, KIP-966), when a follower
counts as caught up, and which in-sync replicas the leader asks the controller for (KIP-497). Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..cluster.image import NO_EPOCH

NEVER_MS = float("-inf")
UNKNOWN = -1  # end offset of a follower that has not fetched since this broker leads
READ_MS = (
    600_000.0  # since consumers were sent to it, a follower is taken to be read; they ask again after half of that
)


class Follower:
    """A follower as the leader sees it. Times are of the event loop, in milliseconds.

    end_offset: up to where it has the log. caught_up_ms: when it last had all that the leader had. broker_epoch: of the
    broker that fetches, -1 if it does not tell. named_ms: when a consumer was last sent to it.
    """

    __slots__ = (
        "_fetched_ms",
        "_leader_end",
        "broker_epoch",
        "caught_up_ms",
        "end_offset",
        "log_start_offset",
        "named_ms",
    )

    def __init__(self, caught_up_ms: float) -> None:
        self.end_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.caught_up_ms = caught_up_ms
        self.broker_epoch = -1
        self.named_ms = NEVER_MS
        self._fetched_ms = NEVER_MS
        self._leader_end = 0  # at its last fetch

    def fetched(self, offset: int, log_start_offset: int, leader_end: int, broker_epoch: int, now_ms: float) -> None:
        """It asks for what begins at an offset: it has all before."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self._leader_end:  # it has by now what there was at its last fetch
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_ms)
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self._leader_end = leader_end
        self._fetched_ms = now_ms

    def kept_up(self, now_ms: float) -> None:
        self.caught_up_ms = max(self.caught_up_ms, now_ms)
        self._fetched_ms = max(self._fetched_ms, now_ms)


@dataclass(slots=True, frozen=True)
class IsrChange:
    """In-sync replicas that the leader asks the controller for, under the epochs that it knows."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class Leadership:
    """One partition that this broker leads, under one leader epoch.

    may_join(broker id, broker epoch): whether a follower may be in sync as far as metadata knows: its broker is not
    fenced nor stopping, and the epoch is the one under which it is registered. time: of the event loop.
    """

    __slots__ = (
        "_change",
        "_lag_max_ms",
        "_may_join",
        "_node_id",
        "_time",
        "epoch_start",
        "followers",
        "isr",
        "partition_epoch",
    )

    def __init__(
        self,
        node_id: int,
        epoch_start: int,
        lag_max_ms: float,
        may_join: Callable[[int, int], bool],
        time: Callable[[], float],
    ) -> None:
        self.epoch_start = epoch_start  # the log's end when this broker became leader
        self.followers: dict[int, Follower] = {}
        self.isr: tuple[int, ...] = ()  # as committed by the controller
        self.partition_epoch = -1
        self._node_id = node_id
        self._lag_max_ms = lag_max_ms
        self._may_join = may_join
        self._time = time
        self._change: IsrChange | None = None  # asked for, not answered

    def place(self, replicas: Sequence[int], isr: Sequence[int], partition_epoch: int) -> bool:
        """Take a partition's metadata. False if it is older than what is known."""
        if partition_epoch < self.partition_epoch:
            return False
        if partition_epoch > self.partition_epoch:
            self._change = None
        self.partition_epoch = partition_epoch
        self.isr = tuple(isr)
        known, now_ms = self.followers, self._time() * 1000
        self.followers = {
            each: known.get(each) or Follower(now_ms if each in isr else NEVER_MS)
            for each in replicas
            if each != self._node_id
        }
        return True

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Those that are in sync whatever becomes of the change that is asked for. None may lack what is committed."""
        if self._change is None:
            return self.isr
        return tuple(dict.fromkeys([*self.isr, *self._change.isr]))

    def fetched(self, broker_id: int, offset: int, log_start_offset: int, leader_end: int, broker_epoch: int) -> bool:
        """A follower asks for what begins at an offset. Returns whether it has more than it had."""
        follower = self.followers.get(broker_id)
        if follower is None:
            return False
        had = follower.end_offset
        follower.fetched(offset, log_start_offset, leader_end, broker_epoch, self._time() * 1000)
        return offset != had

    def kept_up(self, broker_id: int, now_ms: float) -> None:
        """A follower whose fetches did not name the partition had all that there was at that time."""
        follower = self.followers.get(broker_id)
        if follower is not None:
            follower.kept_up(now_ms)

    def committed_end(self, kept_end: int, leader_end: int) -> int:
        """Up to where all in-sync replicas have the log. kept_end, leader_end: of this broker's log.

        A follower that keeps up is waited for though it is not in sync yet, so that it can get in.
        """
        end, now_ms = kept_end, self._time() * 1000
        in_sync = self.maximal_isr
        for broker_id, follower in self.followers.items():
            if follower.end_offset < end and (
                broker_id in in_sync
                or (
                    self._is_caught_up(follower, leader_end, now_ms)
                    and self._may_join(broker_id, follower.broker_epoch)
                )
            ):
                end = follower.end_offset
        return end

    def low_watermark(self, own_start: int) -> int:
        """Before it no replica has anything, of those whose brokers live. own_start: of this broker's log."""
        alive = [each for broker_id, each in self.followers.items() if self._may_join(broker_id, NO_EPOCH)]
        return min([own_start, *(each.log_start_offset for each in alive)])

    def _is_caught_up(self, follower: Follower, leader_end: int, now_ms: float) -> bool:
        return follower.end_offset == leader_end or now_ms - follower.caught_up_ms <= self._lag_max_ms

    # --- Reads from followers -----------------------------------------------------------------------------------------

    def readable(self, offset: int) -> list[tuple[int, float, int]]:
        """(end offset, when it was last caught up, id) of the in-sync followers that have an offset."""
        return [
            (found.end_offset, found.caught_up_ms, broker_id)
            for broker_id, found in self.followers.items()
            if broker_id in self.isr and found.log_start_offset <= offset <= found.end_offset
        ]

    def sends_to(self, broker_id: int) -> None:
        """A consumer is told to read from a follower."""
        self.followers[broker_id].named_ms = self._time() * 1000

    def is_read(self, broker_id: int) -> bool:
        """Whether consumers may read from a follower, which is then told of a new high watermark at once."""
        follower = self.followers.get(broker_id)
        return follower is not None and self._time() * 1000 - follower.named_ms < READ_MS

    # --- Changes of the in-sync replicas ------------------------------------------------------------------------------

    def joins(self, broker_id: int, high_watermark: int, own_start: int, leader_epoch: int) -> IsrChange | None:
        """The change that takes a follower in; None if it is in, or a change is under way; if it lacks something, or
        begins before own_start, where this broker's log does: it may lead next, and would bring back what was deleted
        while its own broker was dead."""
        follower = self.followers.get(broker_id)
        if self._change is not None or follower is None or broker_id in self.isr:
            return None
        if follower.end_offset < max(high_watermark, self.epoch_start) or follower.log_start_offset < own_start:
            return None
        if not self._may_join(broker_id, follower.broker_epoch):
            return None
        return self._ask((*self.isr, broker_id), leader_epoch)

    def leave(self, leader_end: int, leader_epoch: int) -> IsrChange | None:
        """The change that takes out followers that have lagged for replica.lag.time.max.ms; None if there is none."""
        if self._change is not None:
            return None
        now_ms = self._time() * 1000
        left = tuple(
            each
            for each in self.isr
            if each == self._node_id
            or ((found := self.followers.get(each)) is not None and self._is_caught_up(found, leader_end, now_ms))
        )
        return None if left == self.isr else self._ask(left, leader_epoch)

    def _ask(self, isr: tuple[int, ...], leader_epoch: int) -> IsrChange:
        self._change = IsrChange(isr, leader_epoch, self.partition_epoch)
        return self._change

    def is_asked_for(self, change: IsrChange) -> bool:
        """Whether no newer metadata has come since a change was asked for."""
        return self._change is change

    def refused(self, change: IsrChange) -> None:
        """The controller has certainly not made a change, or will not: another may be asked for."""
        if self._change is change:
            self._change = None
