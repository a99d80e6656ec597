"""Copies the partitions that this broker follows from their leaders: for each leader a loop, and one for newcomers.

A round asks the leader for all partitions at once, in a fetch session, so that requests and answers name changes only
(KIP-227); it costs what has changed, however many partitions there are. What comes is appended as it is: no batch is
decoded. Where this broker's log has left the leader's, the answer says so by leader epoch, and the log is cut off there
(KIP-101, KIP-279, KIP-595). What is to be on disk first, by the option durability, is synced before the leader is told
of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...client.connection import Connection, connect
from ...client.errors import ClientError, ConnectionLost
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import fetch, list_offsets
from ..config import BrokerConfig
from ..pauses import RETRY_MOST_S, Pauses, RetryDelay
from ..storage.log.append import Origin
from .partition import Partition
from .states import REFUSING, State
from .throttle import Quota

if TYPE_CHECKING:
    from ...runtime import Runtime

log = logging.getLogger(__name__)

NO_SESSION, INITIAL_EPOCH, EPOCH_MAX = 0, 0, 2**31 - 1
LOOK_AT_SYNC_S = 0.02  # until a copy that is being synced is looked at again
NEWCOMERS_WAIT_MS = 20  # how long a leader may keep a request of newcomers, in which the next ones are not yet
LOOK_AT_ALL_S = (
    30.0  # how often all is looked at: retention may have moved the start of an idle log, which tells nobody
)
RETRY_FIRST_S = 0.02  # after an error; then doubled each time, up to replica.fetch.backoff.ms
LATEST, EARLIEST = -1, -2
COPYING = (State.FOLLOWING, State.STALLED)
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
    """A partition that is copied. told: what its leader's session has of it; None: it is not in the session. start: its
    log start as it is on disk; a later one may be in memory. has_joined: the leader has answered, and found no
    difference."""

    __slots__ = ("delay", "has_joined", "is_behind", "leader_end", "partition", "resumes_at", "start", "told")

    def __init__(self, partition: Partition, start: int) -> None:
        self.partition = partition
        self.start = start
        self.has_joined = False
        self.told: tuple[int, int, int, int] | None = None
        self.delay: RetryDelay | None = None  # while it fails
        self.resumes_at = 0.0  # loop time before which it is not fetched
        self.is_behind = True  # its leader had more, as far as it has told
        self.leader_end = 0  # up to where the leader had all replicas, as it has told last

    def wanted(self) -> tuple[int, int, int, int]:
        """Offset, leader epoch, epoch of the batch before the offset, log start."""
        partition = self.partition
        log = partition.log
        return log.log_end_offset, partition.leader_epoch, log.latest_epoch, self.start

    @property
    def key(self) -> Key:
        return self.partition.topic_id, self.partition.index


class Fetching:
    """All partitions that this broker follows.

    broker_epoch: the epoch under which this broker is registered; followers tell it (KIP-903). address: where a broker
    listens for other brokers. throttle: of what is fetched. saved_log_start: as it is on disk. save_log_starts: puts
    all there; raises KafkaError.
    """

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        runtime: Runtime,
        broker_epoch: Callable[[], int],
        address: Address,
        throttle: Quota,
        saved_log_start: Callable[[Partition], int],
        save_log_starts: Callable[[], Awaitable[None]],
    ) -> None:
        self.node_id = node_id
        self.config = config
        self.runtime = runtime
        self.broker_epoch = broker_epoch
        self.address = address
        self.throttle = throttle
        self.saved_log_start = saved_log_start
        self.save_log_starts = save_log_starts
        self._sources: dict[int, Source] = {}  # by leader
        self._leaders: dict[tuple[str, int], int] = {}  # of the partitions that are copied

    def begun(self, partition: Partition) -> None:
        """This broker leads or follows a partition from now on: copy it from its leader, or no more."""
        key = partition.topic, partition.index
        self.ended(*key)
        if partition.leads or partition.leader < 0:
            return
        self._leaders[key] = partition.leader
        source = self._sources.get(partition.leader)
        if source is None:
            source = self._sources[partition.leader] = Source(self, partition.leader)
        source.add(partition)

    def ended(self, topic: str, index: int) -> None:
        """This broker does not follow the partition any more."""
        leader = self._leaders.pop((topic, index), None)
        if leader is not None:
            source = self._sources[leader]
            source.remove(topic, index)
            if source.is_empty:
                del self._sources[leader]
                source.stop()

    def space_changed(self, topic: str, index: int) -> None:
        """A partition may be appended to again: copy it at once."""
        source = self._sources.get(self._leaders.get((topic, index), -1))
        if source is not None:
            source.space_changed(topic, index)

    def metadata_changed(self) -> None:
        """Brokers have come, gone or moved: what waits for that is tried at once."""
        for source in self._sources.values():
            for fetcher in source.fetchers:
                fetcher.pauses.wake()

    def lags(self) -> dict[tuple[str, int], int]:
        """By partition that is copied: records that it lacks of what its leader's high watermark was, as told last."""
        fetchers = (fetcher for source in self._sources.values() for fetcher in source.fetchers)
        copies = (copy for fetcher in fetchers for copy in fetcher.copies.values())
        return {
            (each.partition.topic, each.partition.index): max(0, each.leader_end - each.partition.log.log_end_offset)
            for each in copies
        }

    async def close(self) -> None:
        sources, self._sources = self._sources, {}
        self._leaders.clear()
        for source in sources.values():
            source.stop()
        if sources:
            await asyncio.wait([fetcher.task for source in sources.values() for fetcher in source.fetchers])


class Source:
    """All that is copied from one broker.

    A request that waits at a leader cannot be added to: a session has one request at a time, and a broker handles those
    of a connection one by one. So what comes meanwhile is copied by the newcomers' fetcher, whose requests wait for a
    short time only, until the settled one asks again and takes it over.
    """

    def __init__(self, owner: Fetching, leader: int) -> None:
        self._saved_log_start = owner.saved_log_start
        wait_ms = owner.config["replica.fetch.wait.max.ms"]
        self._newcomers = Fetcher(owner, leader, min(wait_ms, NEWCOMERS_WAIT_MS))
        self._settled = Fetcher(owner, leader, wait_ms, self._newcomers)
        self.fetchers = (self._settled, self._newcomers)

    @property
    def is_empty(self) -> bool:
        return not self._settled.copies and not self._newcomers.copies

    def add(self, partition: Partition) -> None:
        fetcher = self._newcomers if self._settled.is_asking else self._settled
        fetcher.add(Copy(partition, self._saved_log_start(partition)))

    def remove(self, topic: str, index: int) -> None:
        for fetcher in self.fetchers:
            if (topic, index) in fetcher.copies:
                fetcher.remove(topic, index)

    def space_changed(self, topic: str, index: int) -> None:
        for fetcher in self.fetchers:
            if (copy := fetcher.copies.get((topic, index))) is not None and copy.partition.state not in REFUSING:
                copy.resumes_at = 0.0
                fetcher.pauses.wake()

    def stop(self) -> None:
        for fetcher in self.fetchers:
            fetcher.stop()


class Fetcher:
    """Copies partitions that one broker leads.

    wait_ms: how long the leader may keep a request. newcomers: whose copies are taken over with each request. copies:
    by topic and index. is_asking: the leader has a request, which is not answered yet.
    """

    def __init__(self, owner: Fetching, leader: int, wait_ms: int, newcomers: Fetcher | None = None) -> None:
        self.leader = leader
        self.copies: dict[tuple[str, int], Copy] = {}
        self.pauses = Pauses()
        self.is_asking = False
        self._owner = owner
        self._wait_ms = wait_ms
        self._newcomers = newcomers
        self._by_key: dict[Key, Copy] = {}
        self._changed: dict[Key, Copy] = {}  # of which the leader's session may not have what is wanted now
        self._resting: dict[Key, Copy] = {}  # not fetched for a while
        self._begin_later: dict[Key, Copy] = {}  # whose log start is not on disk, or was not
        self._are_starts_unsaved = False  # they could not be put there
        self._forgotten: dict[Key, None] = {}  # in the leader's session, not wanted any more
        self._is_taking = False  # an answer is being taken in
        self._look_at_all_at = 0.0
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        self._connection: Connection | None = None
        self._delay = self._new_delay()
        self._is_failing = False
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"copy from broker {leader}")

    def add(self, copy: Copy) -> None:
        self.copies[copy.partition.topic, copy.partition.index] = copy
        self._by_key[copy.key] = copy
        self._changed[copy.key] = copy
        self._forgotten.pop(copy.key, None)
        if copy.start != copy.partition.log.log_start_offset:
            self._begin_later[copy.key] = copy
        if copy.resumes_at:  # it has failed
            self._resting[copy.key] = copy
        self.pauses.wake()

    def remove(self, topic: str, index: int) -> None:
        copy = self.copies.pop((topic, index))
        del self._by_key[copy.key]
        self._changed.pop(copy.key, None)
        self._resting.pop(copy.key, None)
        self._begin_later.pop(copy.key, None)
        if copy.told is not None:
            self._forgotten[copy.key] = None

    def hand_over(self) -> list[Copy]:
        """All copies, which are another's from now on; none while an answer is being taken in. What is still answered
        of them is dropped."""
        if self._is_taking:
            return []
        copies = list(self.copies.values())
        for copy in copies:
            self.remove(copy.partition.topic, copy.partition.index)
            copy.told = None
        return copies

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
        self._changed = dict(self._by_key)

    # --- A round ------------------------------------------------------------------------------------------------------

    async def _round(self) -> None:
        """One Fetch and what comes of it, or a pause where there is nothing to fetch."""
        for copy in self._newcomers.hand_over() if self._newcomers is not None else ():
            self.add(copy)
        if self._begin_later:
            await self._save_starts()
        now = asyncio.get_running_loop().time()
        self._hold_back(now)
        self._wake_up(now)
        if len(self._resting) == len(self.copies) and not (self._forgotten and self._session_id):
            await self.pauses.pause(self._until(now))
            return
        connection = await self._connected()
        ends_session = not self.copies  # the leader drops one that is empty
        request = self._request(now)
        timeout_ms = self._owner.config["replica.socket.timeout.ms"]
        self.is_asking = True
        try:
            answer = await connection.request(fetch.API, request, timeout_ms)
        finally:
            self.is_asking = False
        if answer.error_code:
            if answer.error_code not in SESSION_ERRORS:
                raise ConnectionLost(f"its answer to Fetch is error {answer.error_code}")
            self._new_session()
            return
        if not self._session_epoch:
            self._session_id = answer.session_id
        self._session_epoch = 1 if self._session_epoch == EPOCH_MAX else self._session_epoch + 1
        if ends_session or not self._session_id:  # or the leader has no session free
            self._new_session()
        if not self.copies:
            connection.close()
        self._is_taking = True
        try:
            await self._take(answer, connection)
        finally:
            self._is_taking = False

    def _until(self, now: float) -> float | None:
        """How long there is nothing to ask for; None: until something is added."""
        times = [copy.resumes_at - now for copy in self._resting.values()]
        if self._newcomers is not None and self._newcomers.copies:  # they could not be handed over
            times.append(NEWCOMERS_WAIT_MS / 1000)
        return min(times, default=None)

    def _wake_up(self, now: float) -> None:
        """Look again at what has rested for long enough; at times, at all."""
        for key, copy in list(self._resting.items()):
            if copy.resumes_at <= now:
                self._changed[key] = self._resting.pop(key)
        if now >= self._look_at_all_at:
            self._look_at_all_at = now + LOOK_AT_ALL_S
            self._changed = dict(self._by_key)
            for key, copy in self._by_key.items():
                if copy.start != copy.partition.log.log_start_offset:
                    self._begin_later[key] = copy

    def _hold_back(self, now: float) -> None:
        """Put off throttled partitions that are not in sync while there was too much of them (KIP-73)."""
        if pause_s := self._owner.throttle.pause_s():
            for copy in self.copies.values():
                if copy.partition.throttled_follower and copy.is_behind:
                    copy.resumes_at = max(copy.resumes_at, now + pause_s)
                    self._resting[copy.key] = self._changed[copy.key] = copy

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

    def _request(self, now: float) -> fetch.Request:
        config = self._owner.config
        topics: dict[bytes, fetch.FetchTopic] = {}
        forgotten: dict[bytes, fetch.ForgottenTopic] = {}
        for topic_id, index in self._forgotten:
            forgotten.setdefault(topic_id, fetch.ForgottenTopic(topic_id=topic_id)).partitions.append(index)
        self._forgotten.clear()
        limit = config["replica.fetch.max.bytes"]
        changed, self._changed = self._changed, {}
        for (topic_id, index), copy in changed.items():
            if copy.partition.copied_end < copy.partition.log.log_end_offset:
                # Its last leadership has left something to sync, and this leader takes what it is told for kept.
                copy.resumes_at = max(copy.resumes_at, now + LOOK_AT_SYNC_S)
                self._resting[topic_id, index] = copy
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
        wait_ms = self._wait_ms
        if self._resting:
            next_resume = min(copy.resumes_at for copy in self._resting.values())
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
        taken: list[Partition] = []
        for topic in answer.responses:
            for data in topic.partitions:
                copy = self._by_key.get((topic.topic_id, data.partition_index))
                # It may have been removed, or put here anew, since the request was sent.
                if copy is None or copy.told is None or copy.partition.state not in COPYING:
                    continue
                self._changed[copy.key] = copy
                try:
                    if copy.told[0] == copy.partition.log.log_end_offset:
                        await self._take_one(copy, data, wall_ms, connection)
                    copy.delay = None
                except KafkaError as error:
                    self._put_off(copy, error)
                if self._by_key.get(copy.key) is not copy:  # it was removed, or put here anew, meanwhile
                    continue
                if copy.start != copy.partition.log.log_start_offset:
                    self._begin_later[copy.key] = copy
                taken.append(copy.partition)
        await _all_kept(taken)

    async def _save_starts(self) -> None:
        """The leader answers DeleteRecords once it is told of the new starts: what was deleted must not come back with
        a follower that leads after a crash. Kafka's followers save theirs once a minute. If it fails, the next round
        tries again."""
        starts = {key: copy.partition.log.log_start_offset for key, copy in self._begin_later.items()}
        try:
            await self._owner.save_log_starts()
        except KafkaError as error:
            if not self._are_starts_unsaved:
                log.error("broker %d is not told yet where %d logs begin: %s", self.leader, len(starts), error.message)
            self._are_starts_unsaved = True
            return
        self._are_starts_unsaved = False
        for key, start in starts.items():
            copy = self._begin_later.get(key)
            if copy is not None:  # else it was removed meanwhile
                copy.start = start
                self._changed[key] = copy
                if copy.partition.log.log_start_offset == start:  # else it moved meanwhile
                    del self._begin_later[key]

    def _put_off(self, copy: Copy, error: KafkaError) -> None:
        """Fetch a partition again after a pause, a longer one each time."""
        lacks_space = copy.partition.state in REFUSING  # as the partition has said; it is told when there is some
        if copy.delay is None:
            copy.delay = RetryDelay(RETRY_FIRST_S, RETRY_MOST_S) if lacks_space else self._new_delay()
        level = logging.DEBUG if lacks_space or error.code in WAITS_FOR_METADATA else logging.ERROR
        log.log(level, "%s cannot be copied from broker %d: %s", copy.partition, self.leader, error)
        copy.resumes_at = asyncio.get_running_loop().time() + copy.delay.next_s()
        if self._by_key.get(copy.key) is copy:  # it may have been removed meanwhile
            self._resting[copy.key] = copy

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
        if not copy.has_joined:
            # A leader that has deleted all of these records has forgotten their epochs, too, and finds no difference.
            # Some may never have been committed: as a leader, this replica would take their producers' next for known.
            if data.log_start_offset >= own.log_end_offset > own.log_start_offset and is_older(partition):
                log.warning("%s ends where its leader begins: all is copied anew", partition)
                await partition.begin_again_at(own.log_end_offset)
            copy.has_joined = True
        if data.records:
            begin, first = own.log_start_offset, int.from_bytes(data.records[:8], "big")
            if first < own.log_end_offset == begin:  # the leader's log begins inside this batch
                await partition.begin_again_at(first)
            partition.append(data.records, Origin.REPLICATION, wall_ms)
            if partition.throttled_follower:
                self._owner.throttle.record(len(data.records))
            if first < begin <= own.log_end_offset:
                own.advance_start(begin)
        copy.leader_end = data.high_watermark
        copy.is_behind = own.log_end_offset < data.high_watermark
        partition.followed(data.high_watermark)
        start = min(data.log_start_offset, partition.high_watermark)
        if start > own.log_start_offset:
            own.advance_start(start)

    async def _begin_again(self, partition: Partition, connection: Connection) -> None:
        """The leader does not have the offset that comes next: it begins later, or ends before it. Raises KafkaError
        if neither is so, or not any more."""
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
            return
        said = f"{partition}: broker {self.leader} refuses offset {end}, but has {earliest} to {latest}"
        raise KafkaError.of(ErrorCode.OFFSET_OUT_OF_RANGE, said)

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


def is_older(partition: Partition) -> bool:
    """Whether a follower has no record of its leader's epoch, which would show that they have all in common."""
    return partition.log.latest_epoch < partition.leader_epoch


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


async def _all_kept(partitions: Sequence[Partition]) -> None:
    """Wait until all of partitions that await a sync is on disk, or they are not served any more."""
    waiting = [each for each in partitions if each.copied_end < each.log.log_end_offset]
    if waiting:
        await asyncio.gather(*map(_kept, waiting))


async def _kept(partition: Partition) -> None:
    """Wait until all of a partition is on disk, or it is not served any more."""
    done = asyncio.get_running_loop().create_future()
    partition.wait_for_acknowledgement(
        partition.log.log_end_offset, 1, lambda: None if done.done() else done.set_result(None)
    )
    await done
