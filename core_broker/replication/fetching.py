"""Copies the partitions that this broker follows from their leaders: one loop and one connection for each leader.

A round asks the leader for all partitions at once, in a fetch session, so that requests and answers name changes only
(KIP-227). What comes is appended as it is: no batch is decoded. Where this broker's log has left the leader's, the
answer says so by leader epoch, and the log is cut off there (KIP-101, KIP-279, KIP-595). What is to be on disk first,
by the option durability, is synced before the leader is told of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...client.connection import Connection, connect
from ...client.errors import ClientError, ConnectionLost
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import fetch, list_offsets
from ..config import BrokerConfig
from ..pauses import Pauses, RetryDelay
from ..storage.log.append import Origin
from .partition import Partition
from .states import State
from .throttle import Quota

if TYPE_CHECKING:
    from ...runtime import Runtime

log = logging.getLogger(__name__)

NO_SESSION, INITIAL_EPOCH, EPOCH_MAX = 0, 0, 2**31 - 1
RETRY_FIRST_S = 0.02  # after an error; then doubled each time, up to replica.fetch.backoff.ms
LATEST, EARLIEST = -1, -2
WAITS_FOR_METADATA = (  # errors that end when this broker or the leader has newer metadata
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)

Key = tuple[bytes, int]  # topic id, partition
Address = Callable[[int], str | None]  # by broker id; None if it is not alive


class Copy:
    """A partition that is copied. told: what its leader's session has of it; None: it is not in the session."""

    __slots__ = ("delay", "is_behind", "partition", "resumes_at", "told")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.told: tuple[int, int, int, int] | None = None
        self.delay: RetryDelay | None = None  # while it fails
        self.resumes_at = 0.0  # loop time before which it is not fetched
        self.is_behind = True  # its leader had more, as far as it has told

    def wanted(self) -> tuple[int, int, int, int]:
        """Offset, leader epoch, epoch of the batch before the offset, log start."""
        partition = self.partition
        log = partition.log
        return log.log_end_offset, partition.leader_epoch, log.latest_epoch, log.log_start_offset

    @property
    def key(self) -> Key:
        return self.partition.topic_id, self.partition.index


class Fetching:
    """All partitions that this broker follows.

    broker_epoch: the epoch under which this broker is registered; followers tell it (KIP-903). address: where a broker
    listens for other brokers. throttle: of what is fetched.
    """

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        runtime: Runtime,
        broker_epoch: Callable[[], int],
        address: Address,
        throttle: Quota,
    ) -> None:
        self.node_id = node_id
        self.config = config
        self.runtime = runtime
        self.broker_epoch = broker_epoch
        self.address = address
        self.throttle = throttle
        self._fetchers: dict[int, Fetcher] = {}  # by leader
        self._leaders: dict[tuple[str, int], int] = {}  # of the partitions that are copied

    def begun(self, partition: Partition) -> None:
        """This broker leads or follows a partition from now on: copy it from its leader, or no more."""
        key = partition.topic, partition.index
        self.ended(*key)
        if partition.leads or partition.leader < 0:
            return
        self._leaders[key] = partition.leader
        fetcher = self._fetchers.get(partition.leader)
        if fetcher is None:
            fetcher = self._fetchers[partition.leader] = Fetcher(self, partition.leader)
        fetcher.add(partition)

    def ended(self, topic: str, index: int) -> None:
        """This broker does not follow the partition any more."""
        leader = self._leaders.pop((topic, index), None)
        if leader is not None:
            fetcher = self._fetchers[leader]
            fetcher.remove(topic, index)
            if not fetcher.copies:
                del self._fetchers[leader]
                fetcher.stop()

    def metadata_changed(self) -> None:
        """Brokers have come, gone or moved: what waits for that is tried at once."""
        for fetcher in self._fetchers.values():
            fetcher.pauses.wake()

    async def close(self) -> None:
        fetchers, self._fetchers = self._fetchers, {}
        self._leaders.clear()
        for fetcher in fetchers.values():
            fetcher.stop()
        if fetchers:
            await asyncio.wait([each.task for each in fetchers.values()])


class Fetcher:
    """Copies all partitions that one broker leads."""

    def __init__(self, owner: Fetching, leader: int) -> None:
        self.leader = leader
        self.copies: dict[tuple[str, int], Copy] = {}
        self.pauses = Pauses()
        self._owner = owner
        self._by_key: dict[Key, Copy] = {}
        self._forgotten: dict[Key, None] = {}  # in the leader's session, not wanted any more
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        self._connection: Connection | None = None
        self._delay = self._new_delay()
        self._is_failing = False
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"copy from broker {leader}")

    def add(self, partition: Partition) -> None:
        copy = Copy(partition)
        self.copies[partition.topic, partition.index] = copy
        self._by_key[copy.key] = copy
        self._forgotten.pop(copy.key, None)
        self.pauses.wake()

    def remove(self, topic: str, index: int) -> None:
        copy = self.copies.pop((topic, index))
        del self._by_key[copy.key]
        if copy.told is not None:
            self._forgotten[copy.key] = None

    def stop(self) -> None:
        self.pauses.stop()
        if self._connection is not None:
            self._connection.close()

    async def _run(self) -> None:
        while not self.pauses.is_stopping:
            try:
                await self._round()
            except (ClientError, OSError) as error:
                if self.pauses.is_stopping:
                    return
                if not self._is_failing:
                    log.warning("broker %d cannot be copied from: %s", self.leader, error)
            except Exception:
                log.exception("copying from broker %d failed", self.leader)
            else:
                self._is_failing = False
                self._delay.reset()
                continue
            self._is_failing = True
            self._new_session()
            await self.pauses.pause(self._delay.next_s())

    def _new_delay(self) -> RetryDelay:
        return RetryDelay(RETRY_FIRST_S, self._owner.config["replica.fetch.backoff.ms"] / 1000)

    def _new_session(self) -> None:
        self._session_id, self._session_epoch = NO_SESSION, INITIAL_EPOCH
        self._forgotten.clear()
        for copy in self.copies.values():
            copy.told = None

    # --- A round ------------------------------------------------------------------------------------------------------

    async def _round(self) -> None:
        """One Fetch and what comes of it, or a pause where there is nothing to fetch."""
        now = asyncio.get_running_loop().time()
        self._hold_back(now)
        waiting = [copy.resumes_at for copy in self.copies.values() if copy.resumes_at > now]
        if len(waiting) == len(self.copies):
            await self.pauses.pause(min(waiting) - now if waiting else None)
            return
        connection = await self._connected()
        request = self._request(now, min(waiting, default=None))
        timeout_ms = self._owner.config["replica.socket.timeout.ms"]
        answer = await connection.request(fetch.API, request, timeout_ms)
        if answer.error_code:
            if answer.error_code not in SESSION_ERRORS:
                raise ConnectionLost(f"its answer to Fetch is error {answer.error_code}")
            self._new_session()
            return
        if not self._session_epoch:
            self._session_id = answer.session_id
        self._session_epoch = 1 if self._session_epoch == EPOCH_MAX else self._session_epoch + 1
        if not self._session_id:  # the leader has no session free
            self._new_session()
        await self._take(answer, connection)

    def _hold_back(self, now: float) -> None:
        """Put off throttled partitions that are not in sync while there was too much of them (KIP-73)."""
        if pause_s := self._owner.throttle.pause_s():
            for copy in self.copies.values():
                if copy.partition.throttled_follower and copy.is_behind:
                    copy.resumes_at = max(copy.resumes_at, now + pause_s)

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.alive:
            address = self._owner.address(self.leader)
            if address is None:
                raise ConnectionLost(f"broker {self.leader} is not alive")
            self._new_session()
            name = f"broker-{self._owner.node_id}-fetcher"
            timeout_ms = self._owner.config["replica.socket.timeout.ms"]
            made = await connect(address, name, timeout_ms)
            if self.pauses.is_stopping:
                made.close()
                raise ConnectionLost("the broker is stopping")
            self._connection = made
        return self._connection

    def _request(self, now: float, next_resume: float | None) -> fetch.Request:
        config = self._owner.config
        topics: dict[bytes, fetch.FetchTopic] = {}
        forgotten: dict[bytes, fetch.ForgottenTopic] = {}
        for topic_id, index in self._forgotten:
            forgotten.setdefault(topic_id, fetch.ForgottenTopic(topic_id=topic_id)).partitions.append(index)
        self._forgotten.clear()
        limit = config["replica.fetch.max.bytes"]
        for copy in self.copies.values():
            topic_id, index = copy.key
            if copy.resumes_at > now:
                if copy.told is not None:
                    copy.told = None
                    forgotten.setdefault(topic_id, fetch.ForgottenTopic(topic_id=topic_id)).partitions.append(index)
                continue
            wanted = copy.wanted()
            if wanted == copy.told:
                continue
            copy.told = wanted
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = fetch.FetchTopic(topic_id=topic_id)
            offset, epoch, last_epoch, log_start = wanted
            topic.partitions.append(
                fetch.FetchPartition(
                    partition=index,
                    current_leader_epoch=epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=last_epoch,
                    log_start_offset=log_start,
                    partition_max_bytes=limit,
                )
            )
        wait_ms = config["replica.fetch.wait.max.ms"]
        if next_resume is not None:
            wait_ms = min(wait_ms, max(1, round((next_resume - now) * 1000)))
        return fetch.Request(
            replica_state=fetch.ReplicaState(replica_id=self._owner.node_id, replica_epoch=self._owner.broker_epoch()),
            max_wait_ms=wait_ms,
            min_bytes=config["replica.fetch.min.bytes"],
            max_bytes=config["replica.fetch.response.max.bytes"],
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    async def _take(self, answer: fetch.Response, connection: Connection) -> None:
        wall_ms = self._owner.runtime.wall_ms()
        synced: list[Partition] = []
        for topic in answer.responses:
            for data in topic.partitions:
                copy = self._by_key.get((topic.topic_id, data.partition_index))
                # It may have been removed, or put here anew, since the request was sent.
                if copy is None or copy.told is None or copy.partition.state is not State.FOLLOWING:
                    continue
                try:
                    if copy.told[0] == copy.partition.log.log_end_offset:
                        await self._take_one(copy, data, wall_ms, connection)
                    copy.delay = None
                except KafkaError as error:
                    self._put_off(copy, error)
                core = copy.partition.core
                if core.awaits_sync and core.kept_end < copy.partition.log.log_end_offset:
                    synced.append(copy.partition)
        if synced:
            await asyncio.gather(*(_kept(partition) for partition in synced))

    def _put_off(self, copy: Copy, error: KafkaError) -> None:
        """Fetch a partition again after a pause, a longer one each time."""
        copy.delay = copy.delay or self._new_delay()
        level = logging.DEBUG if error.code in WAITS_FOR_METADATA else logging.ERROR
        log.log(level, "%s cannot be copied from broker %d: %s", copy.partition, self.leader, error)
        copy.resumes_at = asyncio.get_running_loop().time() + copy.delay.next_s()

    async def _take_one(self, copy: Copy, data: Any, wall_ms: int, connection: Connection) -> None:
        """Take what a leader tells of one partition. Raises KafkaError, ClientError."""
        partition = copy.partition
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._begin_again(partition, connection)
            return
        if data.error_code:
            raise KafkaError.of(data.error_code, f"{partition}: broker {self.leader} refuses to be copied")
        if data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0:
            await partition.truncate_to(common_end(partition.log, data.diverging_epoch))
            return
        own = partition.log
        if data.records:
            begin, first = own.log_start_offset, int.from_bytes(data.records[:8], "big")
            if first < own.log_end_offset == begin:  # the leader's log begins inside this batch
                await partition.begin_again_at(first)
            partition.append(data.records, Origin.REPLICATION, wall_ms)
            if partition.throttled_follower:
                self._owner.throttle.record(len(data.records))
            if first < begin <= own.log_end_offset:
                own.advance_start(begin)
        copy.is_behind = own.log_end_offset < data.high_watermark
        partition.followed(data.high_watermark)
        start = min(data.log_start_offset, partition.high_watermark)
        if start > own.log_start_offset:
            own.advance_start(start)

    async def _begin_again(self, partition: Partition, connection: Connection) -> None:
        """The leader does not have the offset that comes next: it begins later, or ends before it."""
        latest = await self._ask_offset(partition, LATEST, connection)
        end = partition.log.log_end_offset
        if latest < end:
            log.warning("%s ends at offset %d, its leader at %d: cut off", partition, end, latest)
            await partition.truncate_to(latest)
            return
        earliest = await self._ask_offset(partition, EARLIEST, connection)
        if earliest > end:
            log.warning("%s ends at offset %d, its leader begins at %d: all is copied anew", partition, end, earliest)
            await partition.begin_again_at(earliest)

    async def _ask_offset(self, partition: Partition, timestamp: int, connection: Connection) -> int:
        request = list_offsets.Request(
            replica_id=self._owner.node_id,
            topics=[
                list_offsets.ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        list_offsets.ListOffsetsPartition(
                            partition_index=partition.index,
                            current_leader_epoch=partition.leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )
        timeout_ms = self._owner.config["replica.socket.timeout.ms"]
        answer = await connection.request(list_offsets.API, request, timeout_ms)
        (row,) = answer.topics[0].partitions
        if row.error_code:
            raise KafkaError.of(row.error_code, f"{partition}: broker {self.leader} does not tell its offsets")
        offset: int = row.offset
        return offset


def common_end(log: Any, diverging: fetch.EpochEndOffset) -> int:
    """Up to where a follower's log may be its leader's (KIP-279). log: the follower's; diverging: the largest epoch up
    to the follower's last that the leader knows, and where it ended there."""
    end = log.log_end_offset
    epoch, epoch_end = log.end_offset_for_epoch(diverging.epoch)
    if epoch_end < 0:  # all epochs of the follower are newer
        return min(diverging.end_offset, end)
    if epoch != diverging.epoch:  # the follower does not know that epoch: the next answer says more
        return min(epoch_end, end)
    return min(epoch_end, diverging.end_offset, end)


async def _kept(partition: Partition) -> None:
    """Wait until all of a partition is on disk, or it is not served any more."""
    done = asyncio.get_running_loop().create_future()
    partition.wait_for_acknowledgement(
        partition.log.log_end_offset, 1, lambda: None if done.done() else done.set_result(None)
    )
    await done
