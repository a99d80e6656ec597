"""The consumer: partitions assigned by hand or by a group, records or raw batches, positions that users can set."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.records import DECODE_BYTES_MAX, Record
from .assignors import Assignor
from .chunk import Chunk
from .classic_membership import ClassicMembership
from .cluster import Client
from .committed import Committed, commit_offsets, fetch_committed, not_a_member
from .errors import ClientError, ConnectionLost, LogTruncated, NoOffset, check_topic_name, no_topic
from .fetcher import PARTITION_MAX_BYTES, RECREATED, TRUNCATED, FetchedBatches, Fetcher, Position
from .joining import CLASSIC, new_membership
from .membership import Membership, Polls, Subscription
from .offsets import fetch_offsets
from .operation import API_TIMEOUT_MS, CLOSE_TIMEOUT_MS
from .raw import ISOLATIONS, READ_COMMITTED
from .subscriber import TOPICS_TIMEOUT_MS, Callback, Subscriber
from .types import ConsumedRecord, GroupMetadata, Progress, TopicPartition

log = logging.getLogger("isthmus.client")

RESETS = ("earliest", "latest", "none")


class Consumer:
    """Reads through a started `Client`. auto_offset_reset: where to begin without a committed offset, or if the offset
    is out of range: earliest, latest, or none, which raises NoOffset. Only `commit` commits offsets. decode_max_bytes:
    limit for one record of a compressed batch; a batch is decompressed in pieces, so a larger batch needs no more.
    client_rack: where the consumer is; it reads from a replica there if the cluster names one (KIP-392), else from the
    leader.

    With a group_id it can be a member of a group. group_protocol: classic, or consumer (KIP-848). group_instance_id: of
    a static member (KIP-345). rebalance_timeout_ms: for which the group waits for it, 60 s. max_poll_interval_ms: a
    member that is not polled for so long leaves until its next poll, 300 s; None: never. Of classic members only:
    session_timeout_ms, 10 s; heartbeat_interval_ms, 1 s; assignors: in the order of preference, names or objects of
    your own (`Assignor`); if all are cooperative, which cooperative-sticky is, so is the member (KIP-429). Of the
    consumer protocol only: server_assignor, such as uniform or range. An option of the other protocol raises
    ClientError.

    `poll`, `poll_batches` and `async for` may be mixed: each continues at `position`, which is after the last record
    that any of them has returned. Data that was fetched after it is kept for the next call, and dropped by a seek,
    another assignment or a rebalance."""

    def __init__(
        self,
        client: Client,
        group_id: str | None = None,
        *,
        auto_offset_reset: str = "earliest",
        isolation: str = "read_uncommitted",
        group_protocol: str = CLASSIC,
        group_instance_id: str | None = None,
        session_timeout_ms: int | None = None,
        rebalance_timeout_ms: int = 60_000,
        heartbeat_interval_ms: int | None = None,
        max_poll_interval_ms: int | None = 300_000,
        assignors: Sequence[str | Assignor] | None = None,
        server_assignor: str | None = None,
        partition_max_bytes: int = PARTITION_MAX_BYTES,
        decode_max_bytes: int = DECODE_BYTES_MAX,
        client_rack: str = "",
    ) -> None:
        if auto_offset_reset not in RESETS:
            raise ClientError(f"auto_offset_reset is '{auto_offset_reset}', but must be one of {', '.join(RESETS)}")
        if isolation not in ISOLATIONS:
            raise ClientError(f"isolation is '{isolation}', but must be one of {', '.join(ISOLATIONS)}")
        self.client = client
        self.group_id = group_id
        self.reset = auto_offset_reset
        self._decode_max_bytes = decode_max_bytes
        self._isolation = ISOLATIONS[isolation]
        self._lane = client.new_lane("fetch")
        self._fetcher = Fetcher(client, self._isolation, partition_max_bytes, self._lane, client_rack)
        self._polls = Polls(max_poll_interval_ms)
        self._subscriber: Subscriber | None = None
        if group_id:
            membership = new_membership(
                client,
                group_id,
                self._polls,
                group_protocol=group_protocol,
                group_instance_id=group_instance_id,
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                heartbeat_interval_ms=heartbeat_interval_ms,
                assignors=assignors,
                server_assignor=server_assignor,
                rack=client_rack,
            )
            self._subscriber = Subscriber(client, membership, self._hold, self._drop, self._check_open)
        self._closed = False
        self._chunks: deque[Chunk] = deque()  # taken from the fetcher by `poll`, not yet all given out
        self._aside: deque[Chunk] = deque()  # of paused partitions
        self._lookup: asyncio.Task[None] | None = None  # a look-up of positions, over many polls perhaps

    # --- What to read -------------------------------------------------------------------------------

    async def subscribe(
        self,
        topics: Iterable[str] = (),
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
        *,
        pattern: str | None = None,
    ) -> None:
        """Become a member of the group; partitions come with a poll. The callbacks take the partitions, may
        be async, and run inside polls; on_assigned may `seek`. Only the callbacks can make a poll exceed its time.
        Another call replaces the topics and the callbacks; partitions that stay are not revoked, if the member is
        cooperative or of the consumer protocol. One with no topics ends the reading.

        pattern: instead of topics, a regular expression for their whole names; topics that are created later are read,
        too. A classic member matches it itself, as Python does; in the consumer protocol the broker does (RE2), and a
        poll raises INVALID_REGULAR_EXPRESSION.

        on_assigned is called with the partitions that are new, after each join even if there are none. on_revoked is
        called before partitions are given up, and may commit. on_lost is called instead if the group has removed this
        member, for example after session_timeout_ms without a heartbeat: others may have the partitions, and a commit
        is refused. Without on_lost, on_revoked is called in this case, as in Kafka's consumer."""
        if self._subscriber is None:
            raise ClientError("subscribe() needs a group_id; assign() does not")
        if isinstance(topics, str):
            raise ClientError(f"subscribe() takes a list of topics: write ['{topics}']")
        wanted = list(dict.fromkeys(topics))
        if wanted and pattern is not None:
            raise ClientError("subscribe() takes topics or a pattern, not both")
        if not wanted and pattern is None and not self._subscribed:
            raise ClientError("subscribe() was given no topic to read: name at least one")
        if not self._subscribed and self._fetcher.positions:
            raise ClientError("this consumer's partitions are assigned by hand: use another one to join a group")
        for each in wanted:
            check_topic_name(each)
        self._subscriber.subscribe(Subscription(tuple(wanted), pattern), on_assigned, on_revoked, on_lost)
        try:
            await self.client.refresh_metadata([*self.client.topics, *wanted], timeout_ms=TOPICS_TIMEOUT_MS)
        except ConnectionLost as error:
            if not error.retriable:
                raise
            return  # joining asks again
        for each in wanted:
            if not self.client.partitions(each):
                log.warning("group %s waits: %s", self.group_id, no_topic(each).message)

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions from these offsets. None: the position of a partition that is assigned already, else
        the committed offset, else by auto_offset_reset."""
        if self._subscribed:
            raise ClientError("this consumer's partitions come from its group: use another one to assign by hand")
        for tp, offset in positions.items():
            if offset is not None:
                _check_offset(tp, offset)
        # Fetched records stay only where the partition stays and keeps its position.
        self._forget([each.tp for each in (*self._chunks, *self._aside) if positions.get(each.tp, -1) is not None])
        self._assign(dict(positions))

    def _assign(self, positions: dict[TopicPartition, int | None]) -> None:
        if self._lookup is not None:
            self._lookup.cancel()  # for the partitions held before
        self._fetcher.assign(positions)

    def assignment(self) -> list[TopicPartition]:
        return list(self._fetcher.positions)

    @property
    def must_poll(self) -> bool:
        """Whether the group waits for this member's next poll, as in a rebalance."""
        return self._subscribed and self._membership is not None and self._membership.must_poll

    @property
    def unheard_s(self) -> float:
        """For how long the group has not answered a heartbeat, once that is longer than the session, so that others may
        have the partitions of this member, which would not know it yet; else 0."""
        return 0.0 if self._membership is None else self._membership.unheard_s

    def request_rejoin(self) -> None:
        """Join the classic group once more with the next poll, which has it assigned anew: since there is something
        that its assignor should know, such as other user data. Raises ClientError outside a classic group."""
        membership = self._membership
        if not isinstance(membership, ClassicMembership) or not self._subscribed:
            raise ClientError(
                f"request_rejoin() is for members of classic groups: subscribe() first, with group_protocol='{CLASSIC}'"
            )
        membership.rejoin()

    @property
    def _subscribed(self) -> bool:
        return self._subscriber is not None and self._subscriber.is_active

    @property
    def _membership(self) -> Membership | None:
        return self._subscriber.membership if self._subscriber is not None else None

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Continue at an offset. leader_epoch: of the record before it, if known: then it is noticed if the log was cut
        below the offset since (KIP-320). Raises ClientError for a partition that is not assigned."""
        self._assigned([tp])
        _check_offset(tp, offset)
        self._forget([tp])
        self._fetcher.seek(tp, offset, leader_epoch)

    def pause(self, tps: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions, and fetch no more, until `resume`: nothing is lost, and polls keep the
        membership of the group. A rebalance that takes a partition away ends its pause. Raises ClientError for a
        partition that is not assigned."""
        for tp in self._assigned(tps):
            self._fetcher.pause(tp)
        self._part()

    def resume(self, tps: Iterable[TopicPartition]) -> None:
        """Go on with these partitions. Raises ClientError for a partition that is not assigned."""
        for tp in self._assigned(tps):
            self._fetcher.resume(tp)
        self._part()
        if self._chunks:
            self._fetcher.arrived.set()  # for a poll under way

    def _part(self) -> None:
        """Put what is at hand of paused partitions aside, and back what is of others."""
        at_hand = [*self._chunks, *self._aside]
        self._chunks = deque(each for each in at_hand if each.tp not in self._fetcher.paused)
        self._aside = deque(each for each in at_hand if each.tp in self._fetcher.paused)

    def paused(self) -> list[TopicPartition]:
        return list(self._fetcher.paused)

    def _assigned(self, tps: Iterable[TopicPartition]) -> list[TopicPartition]:
        wanted = list(tps)
        for tp in wanted:
            if tp not in self._fetcher.positions:
                raise ClientError(f"{tp.topic}-{tp.partition} is not assigned to this consumer")
        return wanted

    def position(self, tp: TopicPartition) -> int | None:
        """Offset after the last record that was returned; None before the first position is known."""
        return self._place(tp)[0]

    def lag(self, tp: TopicPartition) -> int | None:
        """Offsets from the position to the end of what the isolation lets one read, as the last fetch found it: with
        read_committed up to the first open transaction (KIP-695). None before it is known."""
        found = self._fetcher.positions.get(tp)
        return None if found is None else self._progress(found, self.position(tp)).lag

    def progress(self) -> dict[TopicPartition, Progress]:
        """Of each assigned partition the position, and the ends that the last fetch has told: no request is made. With
        poll_batches, too, a position goes past markers and aborted records, so one that was read to its end has a lag
        of 0. A partition that is paused, or of which data waits for the next poll, is not fetched, so its ends stay."""
        begun = {chunk.tp: chunk.position for chunk in reversed((*self._chunks, *self._aside))}
        return {tp: self._progress(found, begun.get(tp, found.offset)) for tp, found in self._fetcher.positions.items()}

    def _progress(self, found: Position, position: int | None) -> Progress:
        end = found.last_stable_offset if self._isolation == READ_COMMITTED else found.high_watermark
        return Progress(position, end, found.high_watermark, found.last_stable_offset, found.log_start_offset)

    def answered_at(self, tp: TopicPartition) -> float | None:
        """Loop time, in seconds, of the answer that has told the end of an assigned partition. None before the
        first."""
        found = self._fetcher.positions.get(tp)
        return None if found is None else found.answered_at

    def _place(self, tp: TopicPartition) -> tuple[int | None, int]:
        """The position, and the leader epoch of the record before it; -1 if that is not known."""
        for chunk in (*self._chunks, *self._aside):
            if chunk.tp == tp:
                return chunk.position, chunk.epoch
        found = self._fetcher.positions.get(tp)
        return (found.offset, found.epoch) if found else (None, -1)

    # --- Reading ------------------------------------------------------------------------------------

    async def poll_batches(self, timeout_ms: float, unless: Sequence[asyncio.Future[Any]] = ()) -> list[FetchedBatches]:
        """Raw batches that have arrived, or arrive within the time; empty if none, or as soon as one of `unless` is
        done, where nothing has arrived. Takes part in rebalances. With
        read_committed those of aborted transactions are left out; control batches, which the readers of
        `protocol.records` pass by, are not. Where nothing else came, that is all, or nothing, and `next_offset` is
        after it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        await self._prepare(deadline)
        while not self._chunks and not self._fetcher.ready:
            await self._wait(deadline, unless)
            await self._prepare(deadline)
            if loop.time() >= deadline or any(each.done() for each in unless):
                break
        return self._take()

    async def take_arrived(self, timeout_ms: float, unless: Sequence[asyncio.Future[Any]] = ()) -> list[FetchedBatches]:
        """`poll_batches` without a part in rebalances and look-ups: for a callback of `subscribe` that takes its time,
        while partitions that stay are read on."""
        self._check_open()
        fetcher = self._fetcher
        if not self._chunks and not fetcher.ready:
            fetcher.arrived.clear()
            arrived = asyncio.ensure_future(fetcher.arrived.wait())
            try:
                await asyncio.wait([arrived, *unless], timeout=timeout_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
            finally:
                arrived.cancel()
        return self._take()

    def _take(self) -> list[FetchedBatches]:
        begun, self._chunks = self._chunks, deque()
        return [each.rest() for each in begun] + self._fetcher.take()

    async def poll(self, timeout_ms: float, max_records: int = 500) -> dict[TopicPartition, list[Record]]:
        """Up to max_records records by partition; empty if none arrived within the time. Raises CorruptBatch, and
        TooLargeToDecode for a record larger than decode_max_bytes, after the records before it were returned."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        found: dict[TopicPartition, list[Record]] = {}
        await self._fill(timeout_ms)
        while max_records > 0:
            if not self._chunks:  # no records to return, for example because of an aborted transaction
                if found or loop.time() >= deadline:
                    break
                await self._fill((deadline - loop.time()) * 1000)
                continue
            chunk = self._chunks[0]
            try:
                taken = chunk.take(max_records)
            except KafkaError:
                self._chunks.rotate(-1)  # other partitions come before it is raised again
                if found:
                    break
                raise
            if taken:
                found.setdefault(chunk.tp, []).extend(taken)
                max_records -= len(taken)
            if chunk.is_empty:
                self._chunks.popleft()
        return found

    async def _fill(self, timeout_ms: float) -> None:
        """Get chunks, if data has arrived or arrives within the time."""
        if not self._chunks:
            fetched = await self.poll_batches(timeout_ms)  # which may replace _chunks
            self._chunks.extend(Chunk(each, self._decode_max_bytes) for each in fetched)
        elif self._subscribed or self._fetcher.unsettled:  # what was fetched may be of a log that was cut since
            await self._prepare(asyncio.get_running_loop().time() + timeout_ms / 1000)

    def __aiter__(self) -> Consumer:
        """Yields records for ever, each with its topic and partition. A loop continues where the last one ended."""
        return self

    async def __anext__(self) -> ConsumedRecord:
        while True:
            await self._fill(1_000)
            if not self._chunks:
                continue
            chunk = self._chunks[0]
            try:
                taken = chunk.take(1)
            except KafkaError:
                self._chunks.rotate(-1)  # other partitions come before it is raised again
                raise
            if chunk.is_empty:
                self._chunks.popleft()
            for each in taken:
                return ConsumedRecord(*chunk.tp, each.offset, each.timestamp_ms, each.key, each.value, each.headers)

    async def _wait(self, deadline: float, unless: Sequence[asyncio.Future[Any]]) -> None:
        """Wait for data, an error, the end of a look-up, a rebalance, or one of `unless`."""
        loop = asyncio.get_running_loop()
        seconds = max(0.0, deadline - loop.time())
        self._polls.seen(loop.time(), waits=True)
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._fetcher.arrived.wait())]
        if self._membership is not None and self._subscribed:
            waits.append(asyncio.ensure_future(self._membership.changed.wait()))
        try:
            lookups = [self._lookup] if self._lookup is not None else []
            await asyncio.wait([*waits, *lookups, *unless], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._polls.seen(loop.time())
            for each in waits:
                each.cancel()

    async def _prepare(self, deadline: float) -> None:
        """Rebalance, and begin to look up positions, before data may be given out."""
        self._check_open()
        self._polls.seen(asyncio.get_running_loop().time())
        if self._subscriber is not None and self._subscriber.is_active:
            await self._subscriber.polled(deadline)
        elif not self._fetcher.positions:
            raise ClientError("this consumer has nothing to read: subscribe to topics or assign partitions first")
        self._resolve_positions()

    def _resolve_positions(self) -> None:
        """Raise the errors of positions. Reset invalid ones, and look up unknown ones in a task of its own, which may
        last over many polls. Partitions without a leader wait for one, and hold up no others."""
        fetcher = self._fetcher
        fetcher.arrived.clear()
        ended = self._lookup if self._lookup is not None and self._lookup.done() else None
        if ended is not None:
            self._lookup = None
        if not fetcher.unsettled:
            return
        fetcher.raise_error()
        if ended is not None and not ended.cancelled():
            ended.result()
        for tp, position in list(fetcher.unsettled.items()):
            if position.invalid == TRUNCATED:
                self._truncated(tp, position.log_end, position.log_end_epoch)
            elif position.invalid == RECREATED:
                self._forget([tp])  # records of the topic that is no more
        led = {tp: each for tp, each in fetcher.unsettled.items() if self.client.leader(tp) is not None}
        if led and self._lookup is None:
            work = self._look_up(led)
            self._lookup = asyncio.get_running_loop().create_task(work, name=f"{self.client.client_id} looks up")
            self._lookup.add_done_callback(lambda done: done.cancelled() or done.exception())  # mark it as retrieved

    async def _look_up(self, unsettled: Mapping[TopicPartition, Position]) -> None:
        by_reason: dict[str, dict[TopicPartition, Position]] = {}
        for tp, position in unsettled.items():
            if position.invalid:
                by_reason.setdefault(position.invalid, {})[tp] = position
        for why, positions in by_reason.items():
            await self._reset_invalid(positions, why)
        if unknown := {tp: each for tp, each in unsettled.items() if each.offset is None}:
            await self._look_up_unknown(unknown)

    def _truncated(self, tp: TopicPartition, end: int, end_epoch: int) -> None:
        """The broker lost records that were fetched here. If some of them were returned, read what is now at their
        offsets, or raise; else nobody has seen them."""
        offset, epoch = self._place(tp)
        assert offset is not None
        if offset <= end and epoch <= end_epoch:
            end, end_epoch = offset, epoch
        else:
            end = min(end, offset)
            what = (
                f"{tp.topic}-{tp.partition} was read up to offset {offset}, but its log was cut at offset {end}: the "
                "broker lost records (an unclean election, or a crash with durability=page_cache?)"
            )
            if self.reset == "none":
                raise LogTruncated(f"{what}, and auto_offset_reset is none: seek to {end}, or elsewhere", tp, end)
            log.warning("%s. Continuing there", what)
        self._forget([tp])
        self._fetcher.seek(tp, end, end_epoch)

    async def _look_up_unknown(self, positions: Mapping[TopicPartition, Position]) -> None:
        """First positions: committed offsets, then the reset policy."""
        group = self._membership
        try:
            committed = await fetch_committed(group.coordinator, list(positions), API_TIMEOUT_MS) if group else {}
        except (ClientError, KafkaError) as error:
            if not error.retriable:
                raise
            return  # such as no coordinator for long, which the membership says: the next poll asks again
        for tp, each in committed.items():
            self._fetcher.settle(tp, positions[tp], each.offset, each.leader_epoch)
        without = {tp: each for tp, each in positions.items() if tp not in committed}
        await self._reset(without, "has no committed offset")

    async def _reset_invalid(self, positions: Mapping[TopicPartition, Position], why: str) -> None:
        """Logged, because records may be skipped."""
        before = {tp: self.position(tp) for tp in positions}
        for tp, offset in (await self._reset(positions, why)).items():
            onward = f"continuing at the {self.reset} offset, {offset}"
            log.warning("%s-%d %s (position %s): %s", tp.topic, tp.partition, why, before[tp], onward)

    async def _reset(self, positions: Mapping[TopicPartition, Position], why: str) -> dict[TopicPartition, int]:
        """Seek by the reset policy. Returns the offsets of the positions that were not moved meanwhile."""
        # The user may have called `seek` for a position during the look-up.
        positions = {tp: each for tp, each in positions.items() if self._fetcher.positions.get(tp) is each}
        if not positions:
            return {}
        if self.reset == "none":
            first = next(iter(positions))
            raise NoOffset(f"{first.topic}-{first.partition} {why}, and auto_offset_reset is none")
        wanted = dict.fromkeys(positions, self.reset)
        found = await fetch_offsets(self.client, wanted, self._isolation, API_TIMEOUT_MS)
        return {tp: offset for tp, (offset, *_) in found.items() if self._fetcher.settle(tp, positions[tp], offset)}

    # --- The group ----------------------------------------------------------------------------------

    def _hold(self, tps: Iterable[TopicPartition]) -> None:
        self._assign(dict.fromkeys([*self._fetcher.positions, *tps]))

    def _drop(self, tps: Iterable[TopicPartition]) -> None:
        gone = dict.fromkeys(tps)
        self._forget(gone)
        self._assign({tp: None for tp in self._fetcher.positions if tp not in gone})

    def _check_open(self) -> None:
        self.client.check_open()
        if self._closed:
            raise ClientError("this consumer is closed: make another one")

    def _forget(self, tps: Iterable[TopicPartition]) -> None:
        gone = dict.fromkeys(tps)
        self._chunks = deque(each for each in self._chunks if each.tp not in gone)
        self._aside = deque(each for each in self._aside if each.tp not in gone)

    async def commit(
        self, offsets: Mapping[TopicPartition, int] | None = None, timeout_ms: float = API_TIMEOUT_MS
    ) -> None:
        """Commit these offsets, or all positions. Raises KafkaError: ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID if the
        group has removed this member, REBALANCE_IN_PROGRESS if it waits for the next poll; ClientError if no
        coordinator answers within the time."""
        membership = self._membership
        if membership is None:
            raise ClientError("commit() needs a group_id")
        self._check_open()
        if offsets is None:
            offsets = {
                tp: at
                for tp, each in self._fetcher.positions.items()
                if not each.invalid and (at := self.position(tp)) is not None
            }
        places: dict[TopicPartition, Committed] = {}
        for tp, offset in offsets.items():
            _check_offset(tp, offset)
            at, epoch = self._place(tp)
            places[tp] = Committed(offset, epoch if offset == at else -1)
        await commit_offsets(membership, places, self._subscribed, timeout_ms)

    @property
    def member_id(self) -> str:
        """As its group knows it: in a group of KIP-848 from the beginning, in a classic one once it has joined. Else
        empty."""
        return "" if self._membership is None else self._membership.member_id

    def group_metadata(self) -> GroupMetadata:
        """This consumer as its group knows it now, for a producer that commits its offsets in a transaction. Raises
        ClientError without a group_id, and KafkaError UNKNOWN_MEMBER_ID, as `commit`, if the group has removed it."""
        membership = self._membership
        if membership is None:
            raise ClientError("group_metadata() needs a group_id")
        if not self._subscribed:
            return GroupMetadata(membership.group_id)
        if membership.generation < 0:
            raise not_a_member(membership.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        return GroupMetadata(membership.group_id, membership.generation, membership.member_id, membership.instance_id)

    async def committed(
        self, tps: Iterable[TopicPartition], timeout_ms: float = API_TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        """Committed offsets of those of the partitions that have one."""
        if self._membership is None:
            raise ClientError("committed() needs a group_id")
        found = await fetch_committed(self._membership.coordinator, list(tps), timeout_ms)
        return {tp: each.offset for tp, each in found.items()}

    async def close(self, timeout_ms: float = CLOSE_TIMEOUT_MS) -> None:
        """Call on_revoked, or on_lost, for the present partitions, leave the group, release everything: all within the
        time, including the callback. Raises the callback's error, or an error if the time is over; everything is
        released in either case. A poll in progress ends with ClientError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        membership = self._membership
        try:
            if self._subscriber is not None and self._subscriber.is_active:
                await self._subscriber.end(timeout_ms)
        finally:
            self._closed = True
            self._forget(self._fetcher.positions)
            self._assign({})
            if self._lookup is not None:
                self._lookup.cancel()
            try:
                await asyncio.gather(*([self._lookup] if self._lookup is not None else []), return_exceptions=True)
                await self._fetcher.close()
                if membership is not None:
                    await membership.leave((deadline - loop.time()) * 1000)
                    membership.changed.set()  # for a poll under way, which raises that
            finally:
                await self.client.close_lane(self._lane)


def _check_offset(tp: TopicPartition, offset: int) -> None:
    if offset < 0:
        raise ClientError(f"{tp.topic}-{tp.partition} has no offset {offset}: offsets begin at 0")
