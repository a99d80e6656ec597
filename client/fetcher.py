"""Keeps fetches in flight: one loop for each node, with at most one answer per partition ahead of the consumer.

This limits memory: `FETCH_MAX_BYTES` for each node's answer, and a partition is fetched again only after its last
answer was taken. As in Kafka's consumer, a partition that returned data is fetched after all others, so that partitions
beyond the size limit of an answer get their turn.

A leader may name a replica in the reader's rack (KIP-392), which is asked from then on: until it fails, there is
another leader, or METADATA_MAX_AGE_S is over. What a replica refuses the leader decides.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from ..protocol import records
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.isolation import without_aborted
from .cluster import METADATA_MAX_AGE_S, Client
from .errors import ClientClosed, ClientError
from .operation import SILENT_S
from .raw import READ_COMMITTED, RawFetch, diverging, fetch_raw
from .refresher import Refresher
from .types import TopicPartition

FETCH_MAX_WAIT_MS = 500
HELD_MAX_WAIT_MS = 20  # while another partition of the node is held back, so that it is fetched again soon
FETCH_MAX_BYTES = 32 << 20
PARTITION_MAX_BYTES = 4 << 20
PARTITION_MAX_BYTES_LIMIT = 128 << 20  # limit of growth for a batch that does not fit
REFUSED_PAUSE_S = 1.0  # for a partition whose error was raised
REPLICA_PAUSE_S = 10.0  # after a replica failed, its partition is read from the leader
IDLE_S = 0.05  # how often a node's loop looks for partitions whose pause is over
LEADERS_S = 1.0  # and, without anything to fetch, for leaders that another user of the client has found


@dataclass(frozen=True)
class FetchedBatches:
    """Raw batches of one partition. records: whole batches; the first may begin before the position; next_offset: the
    position after them. from_epoch, next_epoch: leader epochs of the batches before these offsets; -1 if not known."""

    tp: TopicPartition
    records: memoryview
    from_offset: int
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    from_epoch: int = -1
    next_epoch: int = -1


# Why a position's offset is invalid.
OUT_OF_RANGE = "is out of range"
RECREATED = "was deleted and created again"
TRUNCATED = "was truncated"  # below what was read: KIP-320


class Position:
    """The position in one assigned partition. offset None: still to be looked up. epoch: leader epoch of the batch
    before the offset; -1 if not known. topic_id: of the offset's topic, from the first fetch on; None if the cluster
    has no ids. A seek or another assignment replaces the object, so an answer or a look-up that was in progress is
    recognized as outdated and dropped."""

    __slots__ = (
        "answered_at",
        "buffered",
        "epoch",
        "error",
        "failed_node",
        "failures",
        "fetch_epoch",
        "fetch_offset",
        "high_watermark",
        "invalid",
        "is_doubted",
        "last_stable_offset",
        "leader_only_until",
        "log_end",
        "log_end_epoch",
        "log_start_offset",
        "max_bytes",
        "offset",
        "paused_until",
        "replica",
        "replica_epoch",
        "replica_until",
        "served",
        "topic_id",
        "valid_under",
    )

    def __init__(self, offset: int | None, max_bytes: int, epoch: int = -1) -> None:
        self.offset, self.epoch = offset, epoch  # of the next record for the user
        self.fetch_offset, self.fetch_epoch = offset, epoch  # of the next fetch
        self.valid_under = -1  # leader epoch whose log is known to contain the offset with its epoch
        self.is_doubted = False  # a leader said otherwise that may have been outdated itself
        self.buffered = False
        self.max_bytes = max_bytes
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1  # of the last answer; -1 before
        self.answered_at: float | None = None  # loop time of that
        self.paused_until = 0.0
        self.replica: int | None = None  # asked instead of the leader, which named it under replica_epoch
        self.replica_epoch = -1
        self.replica_until = 0.0
        self.leader_only_until = 0.0  # loop time
        self.served = 0  # when it last got data, as a counter: the one that has waited longest is fetched first
        self.failures = 0  # in a row
        self.failed_node: int | None = None  # of the last one; `paused_until` counts for it alone
        self.topic_id: bytes | None = None
        self.error: KafkaError | None = None  # what the user must be told
        self.invalid: str | None = None  # OUT_OF_RANGE, RECREATED or TRUNCATED
        self.log_end = self.log_end_epoch = -1  # of a TRUNCATED one: where the log parts from what was read

    @property
    def is_settled(self) -> bool:
        """Whether the position only needs fetching."""
        return self.offset is not None and self.invalid is None and self.error is None


class Fetcher:
    """Fetches for all positions. `ready`: what was fetched. `unsettled`: positions that the consumer must look up or
    reset, or for which it must raise an error; they stay until that is done."""

    def __init__(self, client: Client, isolation: int, partition_max_bytes: int, lane: str, rack: str = "") -> None:
        self.client = client
        self.isolation = isolation
        self.partition_max_bytes = partition_max_bytes
        self.lane = lane
        self.rack = rack
        self.positions: dict[TopicPartition, Position] = {}
        self.ready: deque[FetchedBatches] = deque()
        self.paused: dict[TopicPartition, None] = {}
        self._aside: deque[FetchedBatches] = deque()  # what was fetched of those
        self.arrived = asyncio.Event()
        self.unsettled: dict[TopicPartition, Position] = {}
        self._served = 0  # counts the times that a partition got data
        self._loops: dict[int, asyncio.Task[None]] = {}
        self._work: dict[int, asyncio.Event] = {}
        self._refresher = Refresher(client, "consumer", self._is_failing, self._refreshed)
        self._closed = False

    def assign(self, positions: dict[TopicPartition, int | None]) -> None:
        """Replace the assignment; data fetched for partitions that stay is kept."""
        before = self.positions
        self.positions = {}
        for tp, offset in positions.items():
            kept = before.get(tp)
            if kept is not None and offset is None:
                self.positions[tp] = kept
            else:
                self.positions[tp] = Position(offset, self.partition_max_bytes)
        self.paused = {tp: None for tp in self.paused if tp in self.positions}
        for queue in (self.ready, self._aside):
            for tp in dict.fromkeys(each.tp for each in queue):
                if self.positions.get(tp) is not before[tp]:
                    _take_out(queue, tp)
        self.unsettled = {tp: position for tp, position in self.positions.items() if not position.is_settled}
        self.wake()

    def seek(self, tp: TopicPartition, offset: int, epoch: int = -1) -> None:
        self.positions[tp] = Position(offset, self.partition_max_bytes, epoch)
        for queue in (self.ready, self._aside):
            _take_out(queue, tp)
        self.unsettled.pop(tp, None)
        self.wake()

    def pause(self, tp: TopicPartition) -> None:
        """Give out nothing of a partition, and fetch no more of it."""
        self.paused[tp] = None
        self._aside.extend(_take_out(self.ready, tp))

    def resume(self, tp: TopicPartition) -> None:
        """Go on, with what was fetched before."""
        self.paused.pop(tp, None)
        self.ready.extend(_take_out(self._aside, tp))
        if self.ready:
            self.arrived.set()
        self.wake()

    def settle(self, tp: TopicPartition, position: Position, offset: int, epoch: int = -1) -> bool:
        """Seek to the result of a look-up of `position`; False if it was replaced meanwhile."""
        if self.positions.get(tp) is not position:
            return False
        self.seek(tp, offset, epoch)
        return True

    def raise_error(self) -> None:
        """Raise an error that was not raised yet, once."""
        for tp, position in self.unsettled.items():
            if position.error is not None:
                error, position.error = position.error, None
                if position.is_settled:
                    del self.unsettled[tp]
                raise error

    def take(self) -> list[FetchedBatches]:
        """All that is ready; the positions advance past it."""
        taken = list(self.ready)
        self.ready.clear()
        self.arrived.clear()
        for each in taken:
            position = self.positions[each.tp]
            position.offset, position.epoch = each.next_offset, each.next_epoch
            position.buffered = False
        if taken:
            self.wake()
        return taken

    def wake(self) -> None:
        """Start a loop for each node of which a partition is read, and wake all loops."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        leaderless = []
        for tp, position in self.positions.items():
            node = self._node(tp, position)
            if node is None:
                leaderless.append(tp)
            elif node not in self._loops or self._loops[node].done():
                self._work[node] = asyncio.Event()
                name = f"{self.client.client_id} fetch {node}"
                self._loops[node] = loop.create_task(self._fetch_loop(node), name=name)
        self._refresher.need(leaderless)
        for event in self._work.values():
            event.set()

    async def close(self) -> None:
        self._closed = True
        self.arrived.set()  # for a poll under way, which raises that
        tasks = list(self._loops.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loops.clear()
        await self._refresher.close()

    def _node(self, tp: TopicPartition, position: Position) -> int | None:
        """Whom to ask for a partition: a replica, while that counts, or the leader."""
        replica = position.replica
        if replica is not None and (
            replica in self.client.nodes
            and position.replica_epoch == self.client.leader_epoch(tp)
            and asyncio.get_running_loop().time() < position.replica_until
        ):
            return replica
        return self.client.leader(tp)

    # --- One node -----------------------------------------------------------------------------------

    async def _fetch_loop(self, node: int) -> None:
        loop = asyncio.get_running_loop()
        attempt = 0
        event = self._work[node]
        while True:
            event.clear()
            now = loop.time()
            asked = {
                tp: (position, position.fetch_offset)
                for tp, position in sorted(self.positions.items(), key=lambda each: each[1].served)
                if position.fetch_offset is not None
                and not position.buffered
                and tp not in self.paused
                and (position.paused_until <= now or position.failed_node != node)
                and self._node(tp, position) == node
                and self._is_of_its_topic(tp, position)
            }
            if not asked:
                try:
                    async with asyncio.timeout(IDLE_S if self._waiting(node, now) else LEADERS_S):
                        await event.wait()
                except TimeoutError:
                    self.wake()
                continue
            try:
                answers = await self._fetch(node, asked)
            except ClientClosed:
                self.arrived.set()  # for a poll under way, which raises that
                return
            except (ClientError, KafkaError):
                for position, _ in asked.values():
                    position.failures += 1
                    self._leave(position, node)
                self._refresher.need(asked)
                self.wake()
                await self.client.back_off(attempt)
                attempt += 1
                continue
            attempt = 0
            for answer in answers:
                position, offset = asked[answer.tp]
                if self.positions.get(answer.tp) is position and position.fetch_offset == offset:
                    try:
                        self._take_in(answer, position, offset, node)
                    except KafkaError as error:  # invalid headers
                        self._tell(error, answer.tp, position, node)

    async def _fetch(self, node: int, asked: Mapping[TopicPartition, tuple[Position, int]]) -> list[RawFetch]:
        loop = asyncio.get_running_loop()
        now = loop.time()
        silent = loop.call_later(FETCH_MAX_WAIT_MS / 1000 + SILENT_S, self._is_silent, node, asked)
        try:
            return await self._diverging(node, asked) or await fetch_raw(
                self.client,
                {tp: (offset, position.fetch_epoch) for tp, (position, offset) in asked.items()},
                node_id=node,
                max_wait_ms=HELD_MAX_WAIT_MS if self._holds(node) else FETCH_MAX_WAIT_MS,
                max_bytes=FETCH_MAX_BYTES,
                partition_max_bytes=max(position.max_bytes for position, _ in asked.values()),
                isolation=self.isolation,
                rack="" if any(now < position.leader_only_until for position, _ in asked.values()) else self.rack,
                lane=self.lane,
            )
        finally:
            silent.cancel()

    def _is_of_its_topic(self, tp: TopicPartition, position: Position) -> bool:
        """False if the topic was deleted and created again: then the position's offset is meaningless."""
        topic_id = self.client.topic_id(tp.topic)
        if position.topic_id is None:
            position.topic_id = topic_id
        elif topic_id is not None and topic_id != position.topic_id:
            self._invalidate(tp, position, RECREATED)
            return False
        return True

    def _is_silent(self, node: int, asked: Mapping[TopicPartition, tuple[Position, int]]) -> None:
        """The answer is late: the metadata tells whether another node leads a partition by now, which is then asked."""
        for position, _ in asked.values():
            position.failures += 1
            self._leave(position, node)
        self._refresher.need(asked)
        self.wake()

    def _waiting(self, node: int, now: float) -> bool:
        """Whether a partition of the node waits for time to pass."""
        return any(p.paused_until > now and self._node(tp, p) == node for tp, p in self.positions.items())

    def _holds(self, node: int) -> bool:
        """Whether data of the node waits for the user."""
        return any(
            p.buffered and tp not in self.paused and self._node(tp, p) == node for tp, p in self.positions.items()
        )

    def _take_in(self, answer: RawFetch, position: Position, asked_offset: int, node: int) -> None:
        if (answer.error_code or answer.diverging_epoch is not None) and self.client.leader(answer.tp) != node:
            if self._leave(position, node):
                self._refresher.need([answer.tp])
            self.wake()  # the leader decides, whom the answer may have told
            return
        if answer.error_code:
            self._failed(answer, position, node)
            return
        position.failures = 0
        if answer.diverging_epoch is not None:
            self._parted(answer, position, node)
            return
        position.is_doubted = False
        if answer.preferred_read_replica >= 0:
            self._turn_to(answer.preferred_read_replica, answer.tp, position)
            return
        if position.replica is not None and self._node(answer.tp, position) != position.replica:
            position.replica = None
            self.wake()  # the leader is to be asked again
        position.high_watermark, position.last_stable_offset = answer.high_watermark, answer.last_stable_offset
        position.log_start_offset = answer.log_start_offset
        position.answered_at = asyncio.get_running_loop().time()
        if not answer.records:
            return
        data, next_offset, epoch = whole_batches(answer)
        if next_offset is None:
            position.max_bytes = min(2 * position.max_bytes, PARTITION_MAX_BYTES_LIMIT)
            return
        self._served += 1
        position.served = self._served
        if next_offset <= asked_offset:
            return
        if self.isolation == READ_COMMITTED:
            data = without_aborted(data, answer.aborted)
        fetched = FetchedBatches(
            answer.tp,
            data,
            asked_offset,
            next_offset,
            answer.high_watermark,
            answer.last_stable_offset,
            position.fetch_epoch,
            epoch,
        )
        position.fetch_offset, position.fetch_epoch = next_offset, epoch
        position.buffered = True
        if answer.tp in self.paused:  # since the request
            self._aside.append(fetched)
            return
        self.ready.append(fetched)
        self.arrived.set()

    def _turn_to(self, replica: int, tp: TopicPartition, position: Position) -> None:
        now = asyncio.get_running_loop().time()
        if replica in self.client.nodes:
            position.replica, position.replica_epoch = replica, self.client.leader_epoch(tp)
            position.replica_until = now + METADATA_MAX_AGE_S
        else:
            position.leader_only_until = now + REPLICA_PAUSE_S
            self._refresher.need([tp])
        self.wake()

    def _leave(self, position: Position, node: int) -> bool:
        """Read from the leader again for a while, if `node` was a replica that was read from."""
        if position.replica != node:
            return False
        position.replica = None
        position.leader_only_until = asyncio.get_running_loop().time() + REPLICA_PAUSE_S
        return True

    async def _diverging(self, node: int, asked: Mapping[TopicPartition, tuple[Position, int]]) -> list[RawFetch]:
        """What parts from the leader's log, or could not be compared with it. Only for brokers whose answers to a Fetch
        do not say that: a position is compared once under each leader epoch, as Kafka's consumer does."""
        unsure = {
            tp: (offset, position.fetch_epoch)
            for tp, (position, offset) in asked.items()
            if position.fetch_epoch >= 0 and -1 < self.client.leader_epoch(tp) != position.valid_under
        }
        if not unsure:
            return []
        epochs = {tp: self.client.leader_epoch(tp) for tp in unsure}
        found = await diverging(self.client, unsure, node_id=node, lane=self.lane)
        for tp, epoch in epochs.items():
            asked[tp][0].valid_under = epoch
        for answer in found:
            asked[answer.tp][0].valid_under = -1
        return found

    def _parted(self, answer: RawFetch, position: Position, node: int) -> None:
        """The leader's log parts from what was read, or does not have the offset. A leader whose own epoch is older
        than what was read may be outdated, so it is asked again after a refresh of the metadata. (The epochs of a
        mirror's copy are those of another cluster.)"""
        if position.fetch_epoch > self.client.leader_epoch(answer.tp) and not position.is_doubted:
            position.is_doubted = True
            self._pause_longer(answer.tp, position, node)
        elif answer.diverging_epoch is None:
            self._invalidate(answer.tp, position, OUT_OF_RANGE)
        else:
            assert position.fetch_offset is not None
            position.log_end_epoch, end_offset = answer.diverging_epoch
            position.log_end = min(end_offset, position.fetch_offset)
            self._invalidate(answer.tp, position, TRUNCATED)

    def _failed(self, answer: RawFetch, position: Position, node: int) -> None:
        code = answer.error_code
        error = KafkaError.of(code, "the broker refused the fetch")
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._parted(answer, position, node)
        elif error.retriable or code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID):
            self._pause_longer(answer.tp, position, node)
        else:
            self._tell(error, answer.tp, position, node)

    def _pause_longer(self, tp: TopicPartition, position: Position, node: int) -> None:
        """Pause after a failure, and refresh the metadata meanwhile."""
        self._pause(position, self.client.back_off_ms(position.failures) / 1000, node)
        position.failures += 1
        self._refresher.need([tp])

    def _pause(self, position: Position, seconds: float, node: int) -> None:
        """Ask this node no more for a while; another one that leads the partition by then is asked at once."""
        position.paused_until, position.failed_node = asyncio.get_running_loop().time() + seconds, node

    def _tell(self, error: KafkaError, tp: TopicPartition, position: Position, node: int) -> None:
        """The user's next poll raises the error. After a while the partition is tried again."""
        position.error = KafkaError.of(
            error.code, f"{tp.topic}-{tp.partition}, fetch at offset {position.fetch_offset}: {error.message}"
        )
        self._pause(position, REFUSED_PAUSE_S, node)
        self._unsettle(tp, position)

    def _invalidate(self, tp: TopicPartition, position: Position, why: str) -> None:
        """Stop fetching until the consumer has reset the position."""
        position.fetch_offset, position.invalid = None, why
        self._unsettle(tp, position)

    def _unsettle(self, tp: TopicPartition, position: Position) -> None:
        self.unsettled[tp] = position
        self.arrived.set()

    # --- Metadata -----------------------------------------------------------------------------------

    def _is_failing(self, tp: TopicPartition) -> bool | None:
        position = self.positions.get(tp)
        return None if position is None else position.failures > 0

    def _refreshed(self) -> None:
        self.wake()
        if self.unsettled:
            self.arrived.set()  # a partition may have a leader now


def _take_out(queue: deque[FetchedBatches], tp: TopicPartition) -> list[FetchedBatches]:
    """What a queue has of a partition, which it then has no more."""
    found = [each for each in queue if each.tp == tp]
    rest = [each for each in queue if each.tp != tp]
    queue.clear()
    queue.extend(rest)
    return found


def whole_batches(answer: RawFetch) -> tuple[memoryview, int | None, int]:
    """The answer's records without an incomplete batch at the end, the offset after them (None: there is no whole
    batch), and the leader epoch of the last one."""
    end, next_offset, epoch = 0, None, -1
    for at, header in records.walk(answer.records):
        end, next_offset, epoch = at + header.size_bytes, header.next_offset, header.partition_leader_epoch
    return answer.records[:end], next_offset, epoch
