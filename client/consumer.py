"""The consumer: partitions by hand or by group, records or raw batches, positions the user can see and set."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..protocol import records
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import offset_commit, offset_fetch
from ..protocol.records import DECODE_BYTES_MAX, CorruptBatch, Record, TooLargeToDecode
from .admin import Admin
from .cluster import Client
from .errors import ClientError, ConnectionLost, LogTruncated, NoOffset, check_topic_name
from .fetcher import PARTITION_MAX_BYTES, FetchedBatches, Fetcher
from .membership import Membership
from .raw import READ_COMMITTED, READ_UNCOMMITTED
from .types import ConsumedRecord, TopicPartition

log = logging.getLogger("isthmus.client")

NAMES_UP_TO = 9  # versions of OffsetFetch and OffsetCommit that name topics
COMMIT_ATTEMPTS = 20
ISOLATIONS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
RESETS = ("earliest", "latest", "none")

Callback = Callable[[list[TopicPartition]], Any]


class _Chunk:
    """One partition's fetched batches on their way to the user, decoded a piece at a time when their turn comes."""

    __slots__ = ("_at", "_batches", "_decode_max_bytes", "_piece", "_pieces", "is_empty", "position", "tp")

    def __init__(self, batches: FetchedBatches, decode_max_bytes: int) -> None:
        self.tp = batches.tp
        self.position = batches.from_offset
        self.is_empty = False
        self._batches = batches
        self._decode_max_bytes = decode_max_bytes
        self._pieces: Iterator[list[Record]] | None = None
        self._piece: list[Record] = []
        self._at = 0  # in the piece

    def take(self, most: int) -> list[Record]:
        """The next records; none where the batches hold no more. Raises CorruptBatch, again for each call."""
        if self._at >= len(self._piece):
            self._decode()
        taken = self._piece[self._at : self._at + most]
        if taken:
            self._at += len(taken)
            self.position = taken[-1].offset + 1
        if self._at >= len(self._piece):
            try:
                self._decode()
            except CorruptBatch:
                pass  # the next call raises it: what was taken comes first
        return taken

    def _decode(self) -> None:
        """The next piece that holds records."""
        self._piece, self._at = [], 0
        if self._pieces is None:
            self._pieces = records.record_pieces(
                self._batches.records, from_offset=self.position, max_bytes=self._decode_max_bytes
            )
        try:
            while not self._piece and not self.is_empty:
                piece = next(self._pieces, None)
                if piece is None:
                    self.is_empty = True
                    self.position = self._batches.next_offset
                else:
                    self._piece = piece
        except CorruptBatch as error:
            self._pieces = None
            way = "; a larger decode_max_bytes takes it" if isinstance(error, TooLargeToDecode) else ""
            raise type(error)(f"{self.tp.topic}-{self.tp.partition}: {error.message}{way}") from error


class Consumer:
    """Reads through a started `Client`. auto_offset_reset: where to begin without a committed offset, or out of range:
    earliest, latest, or none, which raises NoOffset. Offsets are committed by `commit` alone. decode_max_bytes: most
    bytes of one record of a compressed batch, which is decompressed in pieces, so that a larger batch needs no more."""

    def __init__(
        self,
        client: Client,
        group_id: str | None = None,
        *,
        auto_offset_reset: str = "earliest",
        isolation: str = "read_uncommitted",
        group_instance_id: str | None = None,
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        heartbeat_interval_ms: int = 1_000,
        assignors: Sequence[str] = ("range", "roundrobin"),
        partition_max_bytes: int = PARTITION_MAX_BYTES,
        decode_max_bytes: int = DECODE_BYTES_MAX,
    ) -> None:
        if auto_offset_reset not in RESETS:
            raise ClientError(f"auto_offset_reset is '{auto_offset_reset}', but can be {', '.join(RESETS)}")
        if isolation not in ISOLATIONS:
            raise ClientError(f"isolation is '{isolation}', but can be {', '.join(ISOLATIONS)}")
        self.client = client
        self.group_id = group_id
        self.reset = auto_offset_reset
        self._decode_max_bytes = decode_max_bytes
        self._isolation = ISOLATIONS[isolation]
        self._lane = client.new_lane("fetch")
        self._fetcher = Fetcher(client, self._isolation, partition_max_bytes, self._lane)
        self._membership = (
            Membership(
                client,
                group_id,
                group_instance_id,
                session_timeout_ms,
                rebalance_timeout_ms,
                heartbeat_interval_ms,
                assignors,
            )
            if group_id
            else None
        )
        self._subscribed = False
        self._on_assigned: Callback | None = None
        self._on_revoked: Callback | None = None
        self._chunks: deque[_Chunk] = deque()  # taken from the fetcher by `poll`, not yet all given out
        self._joining: asyncio.Task[None] | None = None  # a rebalance under way, over many polls perhaps
        self._joined: list[TopicPartition] | None = None  # an assignment that is not yet in force

    # --- What to read -------------------------------------------------------------------------------

    async def subscribe(
        self, topics: Iterable[str], on_assigned: Callback | None = None, on_revoked: Callback | None = None
    ) -> None:
        """Become a member of the group; partitions come with a poll. The callbacks take the partitions, may
        be async, and run inside polls; on_assigned may `seek`. A poll lasts longer than its time only by them."""
        if self._membership is None:
            raise ClientError("subscribe() needs a group_id; assign() does not")
        wanted = list(topics)
        for each in wanted:
            check_topic_name(each)
        self._membership.topics = wanted
        self._membership.must_join = True
        self._subscribed = True
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        try:
            await self.client.refresh_metadata([*self.client.topics, *self._membership.topics])
        except ConnectionLost:
            pass  # joining asks again

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions from these offsets; None: the committed offset, else by auto_offset_reset."""
        if self._subscribed:
            raise ClientError("this consumer's partitions come from its group: use another one to assign by hand")
        self._chunks.clear()
        self._fetcher.assign(dict(positions))

    def assignment(self) -> list[TopicPartition]:
        return list(self._fetcher.positions)

    @property
    def must_poll(self) -> bool:
        """Whether the group waits for this member's next poll, as in a rebalance."""
        return self._subscribed and self._membership is not None and self._membership.must_join

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Go on at an offset. Raises ClientError for a partition that is not assigned."""
        if tp not in self._fetcher.positions:
            raise ClientError(f"{tp.topic}-{tp.partition} is not assigned to this consumer")
        self._forget([tp])
        self._fetcher.seek(tp, offset)

    def position(self, tp: TopicPartition) -> int | None:
        """Offset of the next record; None before it is known."""
        for chunk in self._chunks:
            if chunk.tp == tp:
                return chunk.position
        found = self._fetcher.positions.get(tp)
        return found.offset if found else None

    # --- Reading ------------------------------------------------------------------------------------

    async def poll_batches(self, timeout_ms: float) -> list[FetchedBatches]:
        """Raw batches that have come, or come within the time; empty when none. Takes part in rebalances."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        await self._prepare(deadline)
        if not self._fetcher.ready:
            await self._wait(deadline)
            await self._prepare(deadline)
        return self._fetcher.take()

    async def poll(self, timeout_ms: float, max_records: int = 500) -> dict[TopicPartition, list[Record]]:
        """Up to max_records records by partition; empty when none came within the time. Raises CorruptBatch, and
        TooLargeToDecode for a record larger than decode_max_bytes, once those before it were given."""
        if not self._chunks:
            fetched = await self.poll_batches(timeout_ms)  # which may replace _chunks
            self._chunks.extend(_Chunk(each, self._decode_max_bytes) for each in fetched)
        elif self._subscribed:
            await self._prepare(asyncio.get_running_loop().time() + timeout_ms / 1000)
        found: dict[TopicPartition, list[Record]] = {}
        while self._chunks and max_records > 0:
            chunk = self._chunks[0]
            try:
                taken = chunk.take(max_records)
            except CorruptBatch:
                self._chunks.rotate(-1)  # other partitions come before it is told again
                if found:
                    break
                raise
            if taken:
                found.setdefault(chunk.tp, []).extend(taken)
                max_records -= len(taken)
            if chunk.is_empty:
                self._chunks.popleft()
        return found

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Records for ever, one by one, each with its topic and partition."""
        while True:
            for (topic, partition), found in (await self.poll(1_000)).items():
                for each in found:
                    yield ConsumedRecord(
                        topic, partition, each.offset, each.timestamp_ms, each.key, each.value, each.headers
                    )

    async def _wait(self, deadline: float) -> None:
        """For data, an error, or a rebalance."""
        seconds = max(0.0, deadline - asyncio.get_running_loop().time())
        waits = [asyncio.ensure_future(self._fetcher.arrived.wait())]
        if self._membership is not None and self._subscribed:
            waits.append(asyncio.ensure_future(self._membership.changed.wait()))
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def _prepare(self, deadline: float) -> None:
        """Whatever must happen before data may be given out."""
        if self._subscribed:
            await self._rebalance(deadline)
        fetcher = self._fetcher
        if fetcher.error is not None:
            error, fetcher.error = fetcher.error, None
            raise error
        if fetcher.out_of_range:
            tps, fetcher.out_of_range = list(fetcher.out_of_range), {}
            await self._reset_lost(tps, "is out of range")
        if fetcher.made_anew:
            tps, fetcher.made_anew = list(fetcher.made_anew), {}
            self._forget(tps)  # offsets of what is no more, which must not be committed
            await self._reset_lost(tps, "was deleted and made anew")
        for tp, end in list(fetcher.truncated.items()):
            self._truncated(tp, end)
        unknown = [tp for tp, each in fetcher.positions.items() if each.offset is None]
        if unknown:
            await self._look_up(unknown)

    def _truncated(self, tp: TopicPartition, end: int) -> None:
        """The broker lost records that were read here: what is now at their offsets is read, or the user is told."""
        what = (
            f"{tp.topic}-{tp.partition} was read up to offset {self.position(tp)}, but its log was cut at offset "
            f"{end}: the broker lost records (an unclean election, or a crash with durability=page_cache?)"
        )
        if self.reset == "none":
            raise LogTruncated(f"{what}, and auto_offset_reset is none: seek to {end}, or elsewhere", end)
        log.warning("%s. Reading on from there", what)
        self._forget([tp])
        self._fetcher.seek(tp, end)

    async def _look_up(self, tps: Sequence[TopicPartition]) -> None:
        """First positions: committed offsets, then the reset policy."""
        try:
            committed = await self.committed(tps) if self.group_id else {}
        except KafkaError as error:
            if not error.retriable:
                raise
            return  # such as no coordinator for long: the next poll asks again
        for tp, offset in committed.items():
            self._fetcher.seek(tp, offset)
        await self._reset([tp for tp in tps if tp not in committed], "has no committed offset")

    async def _reset_lost(self, tps: Sequence[TopicPartition], why: str) -> None:
        """Records may be missed by that, so that it is told."""
        before = {tp: self.position(tp) for tp in tps if tp in self._fetcher.positions}
        await self._reset(list(before), why)
        for tp, offset in before.items():
            onward = f"reading on from the {self.reset} offset, {self.position(tp)}"
            log.warning("%s-%d %s (position %s): %s", tp.topic, tp.partition, why, offset, onward)

    async def _reset(self, tps: Sequence[TopicPartition], why: str) -> None:
        if not tps:
            return
        if self.reset == "none":
            raise NoOffset(f"{tps[0].topic}-{tps[0].partition} {why}, and auto_offset_reset is none")
        found = await Admin(self.client).list_offsets(dict.fromkeys(tps, self.reset))
        for tp, (offset, *_) in found.items():
            self._fetcher.seek(tp, offset)

    # --- The group ----------------------------------------------------------------------------------

    async def _rebalance(self, deadline: float) -> None:
        """Join, when that is to be done, as far as the time goes; the next poll goes on where this one stopped, be it
        by the time or by its caller's cancelling it."""
        membership = self._membership
        assert membership is not None
        loop = asyncio.get_running_loop()
        if membership.error is not None:
            error, membership.error = membership.error, None
            raise error
        while membership.must_join or self._joining is not None or self._joined is not None:
            if self._joining is None and membership.must_join:
                if held := list(self._fetcher.positions):
                    await self._call(self._on_revoked, held)
                    self._forget(held)
                    self._fetcher.assign({})
                membership.changed.clear()
                self._joined = None
                name = f"{self.client.client_id} joins {self.group_id}"
                self._joining = loop.create_task(membership.join(), name=name)
            if self._joining is not None:
                await asyncio.wait([self._joining], timeout=max(0.0, deadline - loop.time()))
                if not self._joining.done():
                    return
                joined, self._joining = self._joining, None
                joined.result()
                self._joined = membership.assigned
            assert self._joined is not None
            unknown = dict.fromkeys(tp.topic for tp in self._joined if self.client.leader(tp) is None)
            if unknown:
                await self.client.wait_for_topics(list(unknown), 1_000)
            self._fetcher.assign(dict.fromkeys(self._joined))
            await self._call(self._on_assigned, self._joined)
            self._joined = None

    async def _call(self, callback: Callback | None, tps: list[TopicPartition]) -> None:
        if callback is not None:
            result = callback(tps)
            if inspect.isawaitable(result):
                await result

    def _forget(self, tps: Iterable[TopicPartition]) -> None:
        gone = dict.fromkeys(tps)
        self._chunks = deque(each for each in self._chunks if each.tp not in gone)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit these offsets, or all positions. Raises KafkaError, such as ILLEGAL_GENERATION after a rebalance."""
        membership = self._membership
        if membership is None:
            raise ClientError("commit() needs a group_id")
        if offsets is None:
            offsets = {tp: at for tp in self._fetcher.positions if (at := self.position(tp)) is not None}
        topics: dict[str, Any] = {}
        for tp, offset in offsets.items():
            topic = topics.setdefault(tp.topic, offset_commit.OffsetCommitRequestTopic(name=tp.topic, partitions=[]))
            topic.partitions.append(
                offset_commit.OffsetCommitRequestPartition(
                    partition_index=tp.partition, committed_offset=offset, committed_metadata=""
                )
            )
        if not topics:
            return
        for attempt in range(COMMIT_ATTEMPTS):
            request = offset_commit.Request(
                group_id=membership.group_id,
                generation_id_or_member_epoch=membership.generation if self._subscribed else -1,
                member_id=membership.member_id if self._subscribed else "",
                group_instance_id=membership.instance_id if self._subscribed else None,
                topics=list(topics.values()),
            )
            error: Exception
            try:
                answer = await membership.ask(request, most_version=NAMES_UP_TO)
                codes = {
                    p.error_code: (topic.name, p.partition_index) for topic in answer.topics for p in topic.partitions
                }
                codes.pop(0, None)
                code, (name, index) = next(iter(codes.items()), (0, ("", 0)))
                membership.heard(code)
                if not code:
                    return
                error = KafkaError.of(code, f"group {self.group_id}, commit of {name}-{index}")
                if not error.retriable or code == ErrorCode.REBALANCE_IN_PROGRESS:
                    raise error
            except ClientError as failed:
                error = failed
            await self.client.back_off(attempt)
        raise error

    async def committed(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Committed offsets of those partitions that have one."""
        if self._membership is None:
            raise ClientError("committed() needs a group_id")
        return await fetch_committed(self._membership, list(tps))

    async def close(self) -> None:
        """Call on_revoked for what is held, leave the group, release everything."""
        try:
            if self._subscribed and self._fetcher.positions:
                await self._call(self._on_revoked, list(self._fetcher.positions))
        finally:
            self._subscribed = False
            if self._joining is not None:
                self._joining.cancel()
                await asyncio.gather(self._joining, return_exceptions=True)
            await self._fetcher.close()
            if self._membership is not None:
                await self._membership.leave()
            await self.client.close_lane(self._lane)


async def fetch_committed(membership: Membership, tps: Sequence[TopicPartition] | None) -> dict[TopicPartition, int]:
    """Committed offsets of a group; of all partitions that have one when `tps` is None."""
    topics: dict[str, list[int]] = {}
    for tp in tps or ():
        topics.setdefault(tp.topic, []).append(tp.partition)
    asked = (
        None
        if tps is None
        else [offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in topics.items()]
    )
    request = offset_fetch.Request(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id=membership.group_id, topics=asked)], require_stable=True
    )
    error: Exception
    for attempt in range(COMMIT_ATTEMPTS):
        try:
            [group] = (await membership.ask(request, most_version=NAMES_UP_TO)).groups
            codes = [group.error_code, *(p.error_code for topic in group.topics for p in topic.partitions)]
            code = next((each for each in codes if each), 0)
            membership.heard(code)
            if not code:
                return {
                    TopicPartition(topic.name, p.partition_index): p.committed_offset
                    for topic in group.topics
                    for p in topic.partitions
                    if p.committed_offset >= 0
                }
            error = KafkaError.of(code, f"group {membership.group_id}, committed offsets: {KafkaError.of(code).name}")
            if not error.retriable:
                raise error
        except ClientError as failed:
            error = failed
        await membership.client.back_off(attempt)
    raise error
