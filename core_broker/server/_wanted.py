# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
"""A partition that a client fetches. Each of its requests looks at all of them, by C calls when compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import cython

from ..replication._core import PartitionCore

if TYPE_CHECKING:
    from ...compiled import Public, Readonly
    from ...protocol.messages.fetch import PartitionData
    from ..replication.partition import Partition

    Name: TypeAlias = "str | None"
    Id: TypeAlias = "bytes"


@cython.cclass
class Wanted:
    """What was last asked of a partition, and in a session what was last answered.

    topic: None as long as no topic with this id is known. fetch_offset, current_leader_epoch, last_fetched_epoch,
    max_bytes: as asked. high_watermark, log_start_offset: as last answered; -1 is in the next answer whatever it is.
    follows: a follower asks, which reads up to the log's end. replica_log_start: where its log starts.
    partition: as found for the present request; size: bytes that were there at the last look. idle: the partition's
    core if there was no news at the last look, under `idle_epoch`. cancel: ends the wait for more.
    """

    topic: Public[Name]
    topic_id: Readonly[Id]
    index: Readonly[cython.longlong]
    fetch_offset: Readonly[cython.longlong]
    current_leader_epoch: Readonly[cython.longlong]
    last_fetched_epoch: Readonly[cython.longlong]
    max_bytes: Readonly[cython.longlong]
    high_watermark: Public[cython.longlong]
    log_start_offset: Public[cython.longlong]
    follows: Public[cython.bint]
    replica_log_start: Public[cython.longlong]
    partition: Public[Partition | None]
    idle: Public[PartitionCore | None]
    idle_epoch: Public[cython.longlong]
    size: Public[cython.longlong]
    cancel: Public[Callable[[], None] | None]

    def __init__(
        self,
        topic: Name,
        topic_id: Id,
        index: cython.longlong,
        fetch_offset: cython.longlong = 0,
        current_leader_epoch: cython.longlong = -1,
        last_fetched_epoch: cython.longlong = -1,
        max_bytes: cython.longlong = 0,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.ask(fetch_offset, current_leader_epoch, last_fetched_epoch, max_bytes)
        self.high_watermark = -1
        self.log_start_offset = -1
        self.follows = False
        self.replica_log_start = -1
        self.partition = None
        self.idle_epoch = -1
        self.size = 0
        self.cancel = None

    @cython.cfunc
    @cython.exceptval(check=False)
    def ask(
        self,
        fetch_offset: cython.longlong,
        current_leader_epoch: cython.longlong,
        last_fetched_epoch: cython.longlong,
        max_bytes: cython.longlong,
    ) -> cython.void:
        self.fetch_offset = fetch_offset
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.max_bytes = max_bytes
        self.idle = None

    def follow(self, later: Wanted) -> None:
        """Fetch as a later request says."""
        self.ask(later.fetch_offset, later.current_leader_epoch, later.last_fetched_epoch, later.max_bytes)
        self.replica_log_start = later.replica_log_start

    @property
    def is_idle(self) -> bool:
        """Whether there is still no news. Most partitions of a large session are passed over by this check alone."""
        return self.has_no_news()

    @cython.cfunc
    @cython.exceptval(-1)
    def has_no_news(self) -> cython.bint:
        idle: PartitionCore | None = self.idle
        return (
            idle is not None
            and idle.high_watermark == self.high_watermark
            and idle.is_served()  # not when it is deleted, either
            and idle.leader_epoch == self.idle_epoch
            and idle.tail.log_start_offset == self.log_start_offset
            and (not self.follows or idle.tail.log_end_offset == self.fetch_offset)
        )

    def tell(self, data: PartitionData) -> bool:
        """Remember what the answer would say of the partition; False when the client knows it already."""
        news = bool(data.records) or data.diverging_epoch is not None or data.preferred_read_replica >= 0
        return self.told(news, data.error_code, data.high_watermark, data.log_start_offset)

    @cython.cfunc
    @cython.exceptval(-1)
    def told(
        self,
        news: cython.bint,
        error_code: cython.int,
        high_watermark: cython.longlong,
        log_start_offset: cython.longlong,
    ) -> cython.bint:
        news = news or error_code != 0
        if self.high_watermark != high_watermark:
            news, self.high_watermark = True, high_watermark
        if self.log_start_offset != log_start_offset:
            news, self.log_start_offset = True, log_start_offset
        if error_code:
            self.high_watermark = -1  # so that the end of the error is news, too
        # A partition for which a limit left no space has no news this time, but is not idle.
        self.idle = None
        if not news and self.partition is not None and self.fetch_offset >= high_watermark:
            self.idle = self.partition.core
            self.idle_epoch = self.idle.leader_epoch
        return news
