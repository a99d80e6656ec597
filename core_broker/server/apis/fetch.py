"""Fetch (key 1): reads batches for consumers, mirrors and followers, waiting up to max_wait_ms for min_bytes.

Consumers read what is committed. Followers read up to the log's end, and what they ask for says what they have: the
high watermark and the in-sync replicas follow from that. A follower serves consumers, too, up to what it knows of the
high watermark; a leader may send them there (KIP-392, `read_replica.py`). A follower that is read is told of a new high
watermark at once. Kafka has it wait for the next fetch (KAFKA-9952), since it would tell all followers. Where
DeleteRecords has moved a log's start all followers are told at once, too, since it waits for them.

v4: isolation level. v7: sessions (KIP-227, `fetch_sessions.py`). v9: leader epochs are checked. v12: what the client
read last is compared with our log and a divergence told (KIP-320). v13: topics by id. v16: where the leader is
(KIP-951). The first batch of the first partition that has one is always given, even when it is larger than all limits.
Partitions that nobody knows come last in an answer, those of unknown ids first, and do not hurry it, as in Kafka.
Where a position must be looked for on disk the request waits for that, and the loop does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    ForgottenTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    Request,
    Response,
)
from ....protocol.primitives import ZERO_UUID
from ...purgatory import Pending
from ...replication.partition import Partition
from ...replication.traffic import NOT_FAILED_FETCHES
from ...storage.log._ranges import NotCached
from ...storage.log.cold_reads import bring
from .._context import Context
from .._fetch import COMPILED, FetchAtOnce
from .._route import AtOnce
from .._wanted import Wanted
from ..fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, LOOK_AT_ALL_S, FetchSession, Key, both, stop_waiting
from ..leaders import leader_of
from ..read_replica import NOBODY, foreign_rack, preferred

STORAGE_ERRORS_SINCE = 6  # older clients do not know that error
RACKS_SINCE = 11  # clients from then on may read from a follower
TOPIC_IDS_SINCE = 13
FLEXIBLE_SINCE = 12
REPLICA_STATE_SINCE = 15
LEADERS_SINCE = 16
CONSUMER = -1  # replica id
FUTURE_REPLICA = -3  # a broker's own, while it moves a log to another directory: reads whatever there is
ISOLATION_LEVELS = (0, 1)  # read_uncommitted, read_committed
BRINGS_MAX = 3  # of what a read needs from disk; what is gone from the page cache again after that is waited for
NO_PARTITIONS: Mapping[int, Partition] = MappingProxyType({})
MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

Row = tuple[Key, Wanted, PartitionData]


def handle(request: Request, context: Context) -> Any:
    sessions = context.services.fetch_sessions
    by_id = context.version >= TOPIC_IDS_SINCE
    asked = _asked(request, by_id, context)
    session: FetchSession | None = None
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id:
            sessions.close(request.session_id)
    else:
        try:
            session = sessions.resume(request.session_id, request.session_epoch, by_id)
        except KafkaError as error:
            return Response(error_code=error.code)
        _update(session, asked, request.forgotten_topics_data, by_id)
        if session.partitions:
            now_s = asyncio.get_running_loop().time()
            _look_at_all_at_times(session, request, now_s)
            try:
                sessions.used(session, now_s)
            except KafkaError as error:
                return Response(error_code=error.code)
            asked = session.news
        else:
            sessions.close(session.id)
            session = None
    if request.isolation_level not in ISOLATION_LEVELS and _knows_any(asked, context):
        return _refused(request, context.version)  # the session has gone on all the same
    fetch = _Fetch(request, context, asked, session)
    rows, enough = fetch.read(may_wait=False)
    if fetch.missing:
        return fetch.bring()
    if enough or request.max_wait_ms <= 0:
        return fetch.answer(rows)
    return fetch.wait()


def handle_controller(request: Request, context: Context) -> Any:
    """On a listener of controllers: the metadata log alone, for the members of its quorum (KIP-595)."""
    return context.services.quorum.handle(request)


def short_way(version: int) -> AtOnce | None:
    """What answers a request of this version from its bytes, where it can; see `_fetch.py`."""
    if not COMPILED or version < FLEXIBLE_SINCE:
        return None
    return FetchAtOnce(version)


def _refused(request: Request, version: int) -> Response:
    """To an isolation level that there is not, which ends in a fault of Kafka's."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    if version >= TOPIC_IDS_SINCE:
        return Response(error_code=code, session_id=request.session_id)  # says it all
    topics = [
        FetchableTopicResponse(
            topic=topic.topic,
            partitions=[
                PartitionData(
                    partition_index=each.partition,
                    error_code=code,
                    high_watermark=-1,
                    aborted_transactions=[],
                    records=[],
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return Response(error_code=code, session_id=request.session_id, responses=topics)


def _knows_any(asked: Mapping[Key, Wanted], context: Context) -> bool:
    """Whether there is anything to read in one of the partitions."""
    image = context.services.image
    for (_, index), wanted in asked.items():
        name = wanted.topic  # which a session keeps, whatever has become of the topic's id
        found = image.topic_by_id(wanted.topic_id) if name is None else image.topics.get(name)
        if found is not None and index in found.partitions:
            return True
    return False


def _asked(request: Request, by_id: bool, context: Context) -> dict[Key, Wanted]:
    """The partitions of a request; of one that is named twice the last counts, at the place of the first."""
    image = context.services.image
    asked: dict[Key, Wanted] = {}
    for topic in request.topics:
        name: str | None = topic.topic
        key: str | bytes = topic.topic
        if by_id:
            found = image.topic_by_id(topic.topic_id)
            name, key = None if found is None else found.name, topic.topic_id
        for partition in topic.partitions:
            asked[key, partition.partition] = wanted = Wanted(
                name,
                topic.topic_id if by_id else ZERO_UUID,
                partition.partition,
                partition.fetch_offset,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
                partition.partition_max_bytes,
            )
            wanted.replica_log_start = partition.log_start_offset
    return asked


def _update(session: FetchSession, asked: dict[Key, Wanted], forgotten: list[ForgottenTopic], by_id: bool) -> None:
    for key, wanted in asked.items():
        session.put(key, wanted)
    for topic in forgotten:
        for index in topic.partitions:
            session.forget((topic.topic_id if by_id else topic.topic, index))


def _look_at_all_at_times(session: FetchSession, request: Request, now_s: float) -> None:
    """Also what rests: by the clock, and when the follower is registered under another epoch, which counts for all."""
    broker_epoch = -1 if request.replica_state is None else request.replica_state.replica_epoch
    if broker_epoch != session.broker_epoch or now_s - session.looked_s >= LOOK_AT_ALL_S:
        session.broker_epoch = broker_epoch
        session.look_at_all(now_s)


class _Fetch:
    """One request while it is answered or waits."""

    __slots__ = (
        "_broker_epoch",
        "_committed",
        "_context",
        "_epoch",
        "_follows",
        "_idle",
        "_is_noted",
        "_loop",
        "_max_bytes",
        "_partitions",
        "_pending",
        "_rack",
        "_replica_id",
        "_request",
        "_session",
        "_wanted",
        "_woken",
        "missing",
    )

    def __init__(
        self, request: Request, context: Context, wanted: dict[Key, Wanted], session: FetchSession | None
    ) -> None:
        self._request = request
        self._context = context
        self._partitions: Mapping[str, Mapping[int, Partition]] = context.services.replicas.partitions
        self._wanted = wanted
        self._session = session
        self._epoch = 0 if session is None else session.epoch
        self._max_bytes = min(request.max_bytes, context.services.config["fetch.max.bytes"])
        self._replica_id: int = request.replica_id
        self._broker_epoch = -1
        if context.version >= REPLICA_STATE_SINCE:
            state = request.replica_state
            self._replica_id = CONSUMER if state is None else state.replica_id
            self._broker_epoch = -1 if state is None else state.replica_epoch
        self._follows = self._replica_id >= 0
        self._is_noted = False  # what a follower has
        self._rack = ""  # where a consumer is to be sent, if there is a replica
        if self._replica_id == CONSUMER and context.version >= RACKS_SINCE:
            self._rack = foreign_rack(request.rack_id, context.services.config)
        self._committed = request.isolation_level == 1 and self._replica_id != FUTURE_REPLICA
        self._idle: list[tuple[Key, Wanted]] = []  # those of a session that have nothing to tell
        self._woken: list[Wanted] = []
        self.missing: list[NotCached] = []  # what the last read would have had to wait for

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, may_wait: bool = True) -> tuple[list[Row], bool]:
        """What is there, and whether it should be given now. may_wait: for the disk; else see `missing`."""
        rows: list[Row] = []
        unknown_ids: list[Row] = []
        unknown: list[Row] = []
        left = self._max_bytes
        size = 0
        at_once = False
        self._idle.clear()
        self.missing.clear()
        for key, wanted in list(self._wanted.items()):  # what a follower has may be news of another partition
            wanted.size = 0
            if wanted.is_idle and not (self._rack and self._preferred(wanted) != NOBODY):
                self._idle.append((key, wanted))
                if self._follows and not self._is_noted and wanted.partition is not None:
                    self._note(wanted.partition, wanted)
                left = max(left, 0)
                continue
            data = self._read_one(wanted, left, size == 0, may_wait)
            code = data.error_code
            if code and code in UNKNOWN:
                (unknown_ids if code == ErrorCode.UNKNOWN_TOPIC_ID else unknown).append((key, wanted, data))
                continue
            rows.append((key, wanted, data))
            if self._is_news(wanted, data):
                at_once = True
            if data.records:
                wanted.size = sum(map(len, data.records))
                size += wanted.size
                if wanted.size == min(wanted.max_bytes, left) and wanted.partition is not None:
                    wanted.partition.log.ranges.end_with_batch(wanted.fetch_offset, data.records)
            left = max(left - wanted.size, 0)  # below 0 it is for the first partition alone
        self._is_noted |= not self.missing
        known = bool(rows or self._idle or self._has_resting)
        enough = at_once or not known or size >= min(self._request.min_bytes, self._max_bytes)
        return rows + unknown_ids + unknown, enough

    def _read_one(self, wanted: Wanted, left: int, min_one: bool, may_wait: bool = True) -> PartitionData:
        try:
            partition = wanted.partition = self._partitions.get(wanted.topic or "", NO_PARTITIONS).get(wanted.index)
            if partition is None or (wanted.topic_id is not ZERO_UUID and partition.topic_id != wanted.topic_id):
                wanted.partition = None
                partition = wanted.partition = self._find(wanted)
            partition.check_online()
            partition.check_epoch(wanted.current_leader_epoch)
            log = partition.log
            if self._follows:
                if self._replica_id not in partition.replicas:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} has no replica {self._replica_id}")
                partition.check_leads()
                wanted.follows = True
            elif self._context.version < RACKS_SINCE:
                partition.check_leads()
            data = PartitionData(
                partition_index=wanted.index,
                high_watermark=partition.high_watermark,
                last_stable_offset=partition.last_stable_offset,
                log_start_offset=log.log_start_offset,
                aborted_transactions=None,
                records=[],
            )
            if self._rack and (replica := self._preferred(wanted)) != NOBODY:
                data.preferred_read_replica = replica
                return data
            if wanted.last_fetched_epoch >= 0 and _diverged(partition, wanted, data):
                return data
            committed = self._committed
            limit = min(wanted.max_bytes, left)
            if self._follows:
                found = log.read(wanted.fetch_offset, max(limit, 0), None, min_one, may_wait)
                if not self._is_noted:
                    self._note(partition, wanted)
                    data.high_watermark = partition.high_watermark
                    data.last_stable_offset = partition.last_stable_offset
                if not self._is_held_back(partition):
                    data.records = found.ranges
                return data
            if wanted.fetch_offset == data.high_watermark:
                if committed:
                    data.aborted_transactions = []
                return data  # nothing to look for, as in most partitions of a fetch that has many
            found = partition.read(
                wanted.fetch_offset, max(limit, 0), read_committed=committed, min_one=min_one, may_wait=may_wait
            )
            if limit < 0:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a limit below 0")  # what Kafka makes of it
            aborted = []
            upper = data.last_stable_offset
            if committed and found.ranges:
                upper = log.ranges.end_of(found.ranges, wanted.fetch_offset, upper)
                aborted = partition.aborted_transactions(wanted.fetch_offset, upper)
        except NotCached as missing:
            self.missing.append(missing)
            return data
        except KafkaError as error:
            data = self._failed(wanted, error)
            if error.code in UNKNOWN:
                data.aborted_transactions = []  # as Kafka: null only where a partition was looked at
            return data
        data.records = found.ranges
        if committed and (found.ranges or not limit or wanted.fetch_offset >= upper):
            # Else its first batch did not fit, of which Kafka tells no more.
            data.aborted_transactions = [AbortedTransaction(producer_id=p, first_offset=o) for p, o in aborted]
        return data

    def _preferred(self, wanted: Wanted) -> int:
        """Which follower a consumer is sent to; NOBODY where it may read here."""
        partition = wanted.partition
        return NOBODY if partition is None else preferred(partition, self._rack, wanted.fetch_offset, self._context)

    def _is_news(self, wanted: Wanted, data: PartitionData) -> bool:
        """Whether an answer must not wait for records."""
        if data.error_code or data.diverging_epoch is not None or data.preferred_read_replica != NOBODY:
            return True
        if self._follows and 0 <= wanted.log_start_offset < data.log_start_offset:
            return True  # DeleteRecords waits until all replicas begin there
        return self._is_read(wanted) and data.high_watermark > wanted.high_watermark

    def _is_read(self, wanted: Wanted) -> bool:
        """Whether it is a follower that asks, which serves consumers and has been told the high watermark before."""
        if not self._follows or self._session is None or wanted.partition is None:
            return False
        leadership = wanted.partition.leadership
        return leadership is not None and leadership.is_read(self._replica_id)

    def _find(self, wanted: Wanted) -> Partition:
        """A partition that is not where it was looked for first. Raises KafkaError."""
        services = self._context.services
        if wanted.topic is None:
            topic = services.image.topic_by_id(wanted.topic_id)  # it may have come into being
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            wanted.topic = topic.name
        partition = services.replicas.held(wanted.topic, wanted.index)
        if wanted.topic_id is not ZERO_UUID and partition.topic_id != wanted.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return partition

    def _note(self, partition: Partition, wanted: Wanted) -> None:
        """A follower has the log up to what it asks for."""
        change = partition.follower_fetched(
            self._replica_id, wanted.fetch_offset, wanted.replica_log_start, self._broker_epoch
        )
        if change is not None:
            self._context.services.replicas.isr_changes(partition, change)

    def _is_held_back(self, partition: Partition) -> bool:
        """Whether a follower gets nothing for now, because it is not in sync and has had too much (KIP-73)."""
        return (
            partition.throttled_leader
            and self._replica_id not in partition.isr
            and self._context.services.replicas.throttle.leading.is_exceeded()
        )

    def _failed(self, wanted: Wanted, error: KafkaError) -> PartitionData:
        code = error.code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            code = self._out_of_range(wanted)
        if code == ErrorCode.KAFKA_STORAGE_ERROR and self._context.version < STORAGE_ERRORS_SINCE:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return PartitionData(
            partition_index=wanted.index,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=None,
            records=[],
        )

    def _out_of_range(self, wanted: Wanted) -> ErrorCode:
        """The code for an offset that is not here. A consumer begins anew for OFFSET_OUT_OF_RANGE, from the earliest
        offset or behind the latest. So it is not told that where others may have what it asks for: by a follower that
        lacks it yet, nor by a leader that has not heard of a newer one, being cut off or stopped for a while. One that
        tells its leader epoch (KIP-320) is refused for that."""
        partition = wanted.partition
        if self._follows or partition is None:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        is_there = wanted.fetch_offset <= partition.log.log_end_offset
        if is_there and wanted.last_fetched_epoch <= partition.leader_epoch:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if not partition.leads:
            return ErrorCode.OFFSET_NOT_AVAILABLE
        is_leader = self._context.services.has_session()
        return ErrorCode.OFFSET_OUT_OF_RANGE if is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # --- answering ----------------------------------------------------------------------------------------------------

    def answer(self, rows: list[Row]) -> Response:
        for _, wanted, data in rows:
            if wanted.partition is not None:
                traffic = wanted.partition.traffic
                traffic.fetches += 1
                size_bytes = sum(map(len, data.records or ()))
                if not self._follows:
                    traffic.bytes_out += size_bytes
                else:
                    traffic.replication_bytes_out += size_bytes
                    if size_bytes and wanted.partition.throttled_leader:
                        self._context.services.replicas.throttle.leading.record(size_bytes)
                if data.preferred_read_replica != NOBODY and wanted.partition.leadership is not None:
                    wanted.partition.leadership.sends_to(data.preferred_read_replica)
                if data.error_code and data.error_code not in NOT_FAILED_FETCHES:
                    traffic.failed_fetches += 1
        for _, wanted in self._idle:
            if wanted.idle is not None:
                wanted.idle.traffic.fetches += 1
        response = Response()
        session = self._session
        if session is not None:
            response.session_id = session.id
            if session.epoch != self._epoch:  # the client did not wait for this answer and asked again
                response.error_code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
                return response
            looked_at = [*self._idle, *(row[:2] for row in rows)]
            rows = [row for row in rows if row[1].tell(row[2])]
            for key, _, data in rows:
                if data.records:
                    session.moved(key)
            if self._follows:
                for key, wanted in looked_at:
                    self._let_rest(key, wanted, session)
        elif self._request.session_epoch == INITIAL_EPOCH:
            for _, wanted, data in rows:
                wanted.tell(data)
            response.session_id = self._context.services.fetch_sessions.open(
                {key: wanted for key, wanted, _ in rows},
                self._replica_id != CONSUMER,
                self._context.version >= TOPIC_IDS_SINCE,
                asyncio.get_running_loop().time(),
            )
        if self._context.version >= LEADERS_SINCE:
            self._tell_leaders(rows, response)
        _group(rows, response)
        return response

    def _let_rest(self, key: Key, wanted: Wanted, session: FetchSession) -> None:
        """Not one that is not in sync: each of its fetches may be the one by which it gets in."""
        partition = wanted.partition
        if partition is not None and wanted.is_idle and self._replica_id in partition.isr and key in session.news:
            session.rest(key, wanted, self._replica_id)

    @property
    def _has_resting(self) -> bool:
        session = self._session
        return session is not None and len(session.partitions) > len(session.news)

    def _tell_leaders(self, rows: list[Row], response: Response) -> None:
        nodes: dict[int, NodeEndpoint] = {}
        for _, wanted, data in rows:
            if data.error_code in MOVED and wanted.topic is not None:
                leader = leader_of(wanted.topic, wanted.index, self._context)
                data.current_leader = LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch)
                if leader.host is not None and self._replica_id < 0:  # followers have addresses of their own
                    nodes[leader.node_id] = NodeEndpoint(
                        node_id=leader.node_id, host=leader.host, port=leader.port, rack=leader.rack
                    )
        response.node_endpoints = list(nodes.values())

    # --- waiting ------------------------------------------------------------------------------------------------------

    def bring(self) -> Pending:
        """Answer, or wait for more, when what is missing was brought from disk."""
        self._pending = Pending(self._read_and_answer, self._stop_waiting)
        self._context.services.spawn(self._bring(), "cold fetch")
        return self._pending

    async def _bring(self) -> None:
        rows: list[Row] = []
        enough = False
        for attempt in range(BRINGS_MAX):
            await asyncio.gather(*(bring(missing) for missing in self.missing))
            if self._pending.done:
                return
            rows, enough = self.read(may_wait=attempt == BRINGS_MAX - 1)
            if not self.missing:
                break
        if enough or self._request.max_wait_ms <= 0:
            self._pending.complete(self.answer(rows))
        else:
            self._begin_to_wait()

    def wait(self) -> Pending:
        self._pending = Pending(self._read_and_answer, self._stop_waiting)
        return self._begin_to_wait()

    def _begin_to_wait(self) -> Pending:
        self._loop = asyncio.get_running_loop()
        if any(wanted.size for wanted in self._wanted.values()):  # else there was nothing at all
            known = [wanted for wanted in self._wanted.values() if wanted.partition is not None]
            if self._is_enough(known, may_wait=False):
                self._pending.complete(self._read_and_answer())
                return self._pending
        for wanted in self._wanted.values():
            self._register(wanted)
        if self._session is not None:
            self._session.stirred = self._stirred
        return self._context.services.purgatory.add(self._pending, self._request.max_wait_ms)

    def _read_and_answer(self) -> Response:
        return self.answer(self.read()[0])

    def _register(self, wanted: Wanted) -> None:
        stop_waiting(wanted)
        if wanted.partition is not None:
            partition, wake = wanted.partition, partial(self._wake, wanted)
            if not self._follows:
                wait = partition.wait_for_stable if self._committed else partition.wait_for_data
                wanted.cancel = wait(wake)
            elif self._is_read(wanted):
                wanted.cancel = both(partition.wait_for_append(wake), partition.wait_for_data(wake))
            else:
                wanted.cancel = partition.wait_for_append(wake)

    def _stirred(self, wanted: Wanted, is_news: bool) -> None:
        """A partition rests no more while this request waits. is_news: which may have to be told at once."""
        if is_news:
            self._wake(wanted)
        else:
            self._register(wanted)

    def _stop_waiting(self) -> None:
        if self._session is not None and self._session.stirred == self._stirred:
            self._session.stirred = None
        for wanted in self._wanted.values():
            stop_waiting(wanted)

    def _wake(self, wanted: Wanted) -> None:
        """Something was appended: look in the next turn, when more may have been."""
        if not self._woken:
            self._loop.call_soon(self._look_again)
        self._woken.append(wanted)

    def _look_again(self) -> None:
        """Measure the partitions that changed; answer when there is enough."""
        woken, self._woken = self._woken, []
        if self._pending.done:
            return
        if self._is_enough(woken):
            self._pending.complete(self._read_and_answer())
            return
        for wanted in woken:
            self._register(wanted)

    def _is_enough(self, changed: list[Wanted], may_wait: bool = True) -> bool:
        """Whether all partitions together have enough by now, those that have changed measured again.

        What is in each counts up to its own limit, whether or not an answer has room for it, as in Kafka.
        """
        needed = min(self._request.min_bytes, self._max_bytes)
        for wanted in changed:
            data = self._read_one(wanted, max(needed, 0), True, may_wait)
            if self._is_news(wanted, data):
                return True
            wanted.size = min(sum(map(len, data.records)), wanted.max_bytes)
        return sum(wanted.size for wanted in self._wanted.values()) >= needed


def _group(rows: list[Row], response: Response) -> None:
    """Partitions by topic, those of one topic together only where they follow each other, as in Kafka."""
    last: tuple[str | None, bytes] | None = None
    for _, wanted, data in rows:
        topic = wanted.topic, wanted.topic_id
        if topic != last:
            response.responses.append(FetchableTopicResponse(topic=wanted.topic or "", topic_id=wanted.topic_id))
            last = topic
        response.responses[-1].partitions.append(data)


def _diverged(partition: Partition, wanted: Wanted, data: PartitionData) -> bool:
    """Whether the client's log left ours before its fetch offset; then `data` says where (KIP-320, KIP-595)."""
    epoch, end_offset = partition.log.end_offset_for_epoch(wanted.last_fetched_epoch)
    if end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition}: no epoch up to {wanted.last_fetched_epoch}")
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return True
    return False
