"""The end of transactions that are decided: a marker in each of their partitions, written by the partition's leader.

There is one WriteTxnMarkers request under way to each broker; what comes meanwhile goes into the next. A marker that
could not be written is sent again, to whoever leads by then, for as long as this broker coordinates the transaction:
until then its readers wait. A partition that exists no more needs none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages import write_txn_markers as wtm
from ...cluster.image import Delta, MetadataImage
from ...pauses import RetryDelay
from ..runtime import Shard
from .shard import TransactionShard
from .states import State
from .transaction import Place, Transaction

MAX_MARKERS = 2_000  # in one request
RETRY_FIRST_S, RETRY_MOST_S = 0.02, 1.0

# What a leader answers where the partition needs no marker any more: it has one, or later ones of this producer.
WRITTEN = (
    ErrorCode.NONE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.UNSUPPORTED_VERSION,
)

log = logging.getLogger(__name__)


class Peers(Protocol):
    """The way to other brokers, and to this one."""

    async def request(self, broker_id: int, message: Any, timeout_ms: float, *, least_version: int = 0) -> Any:
        """Raises KafkaError."""


class Marking:
    """A transaction that is decided, and the partitions that have no marker yet."""

    __slots__ = ("is_over", "left", "shard", "transaction")

    def __init__(self, shard: Shard[TransactionShard], transaction: Transaction) -> None:
        self.shard = shard
        self.transaction = transaction
        self.left = dict.fromkeys(sorted(transaction.partitions))
        self.is_over = False

    def __str__(self) -> str:
        transaction = self.transaction
        return f"{transaction.transactional_id} (producer {transaction.producer_id}, epoch {transaction.epoch})"

    def written(self, places: Iterable[Place]) -> None:
        for place in places:
            self.left.pop(place, None)


Batch = dict[Marking, list[Place]]


class _Line:
    """What waits for a broker, and what is in the request under way."""

    def __init__(self) -> None:
        self.waiting: Batch = {}
        self.under_way: Batch = {}
        self.task: asyncio.Task[None] | None = None


class Markers:
    """completed: called with markings of one shard that have all markers; gives those that it could not take now."""

    def __init__(
        self,
        image: MetadataImage,
        peers: Peers,
        timeout_ms: int,
        completed: Callable[[Shard[TransactionShard], list[Marking]], list[Marking]],
    ) -> None:
        self._image = image
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._completed = completed
        self._markings: dict[Marking, None] = {}
        self._by_id: dict[str, Marking] = {}
        self._lines: dict[int, _Line] = {}
        self._parked: Batch = {}  # to be sent again
        self._retry: asyncio.TimerHandle | None = None
        self._retry_delay = RetryDelay(RETRY_FIRST_S, RETRY_MOST_S)
        self._is_closed = False

    def __len__(self) -> int:
        """Transactions that are decided and not over."""
        return len(self._markings)

    # --- From outside -------------------------------------------------------------------------------------------------

    def send(self, shard: Shard[TransactionShard], transactions: Iterable[Transaction]) -> None:
        """Have the markers of decided transactions written."""
        markings = [Marking(shard, transaction) for transaction in transactions]
        self._markings |= dict.fromkeys(markings)
        self._by_id |= {marking.transaction.transactional_id: marking for marking in markings}
        self._dispatch({marking: list(marking.left) for marking in markings})

    def left(self, transactional_id: str) -> Collection[Place]:
        """The partitions of a decided transaction that have no marker yet."""
        marking = self._by_id.get(transactional_id)
        return () if marking is None else marking.left

    def drop(self, state: TransactionShard) -> None:
        """Another broker coordinates the transactions of a shard: it writes their markers."""
        for marking in [each for each in self._markings if each.shard.state is state]:
            self._end(marking)

    def on_change(self, delta: Delta) -> None:
        """Follow a change of the metadata image: a new leader may be asked at once."""
        if delta.deleted:
            for marking in self._markings:
                marking.written([place for place in marking.left if place[0] in delta.deleted])
            self._dispatch({marking: [] for marking in self._markings if not marking.left})
        for broker_id in delta.brokers:
            line = self._lines.get(broker_id)
            if line is not None and line.task is not None and not self._is_alive(broker_id):
                line.task.cancel()  # it does not answer, and others lead what it led
        if self._parked and (delta.deleted or delta.changed or delta.brokers):
            self._send_parked()

    async def close(self) -> None:
        self._is_closed = True
        for marking in list(self._markings):
            self._end(marking)
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        tasks = [line.task for line in self._lines.values() if line.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- Ways to the leaders ------------------------------------------------------------------------------------------

    def _end(self, marking: Marking) -> None:
        marking.is_over = True
        del self._markings[marking]
        if self._by_id.get(marking.transaction.transactional_id) is marking:
            del self._by_id[marking.transaction.transactional_id]

    def _is_alive(self, broker_id: int) -> bool:
        broker = self._image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def _dispatch(self, batch: Batch) -> None:
        """Put markers where their leaders are now, and end the markings that need none."""
        over: dict[Shard[TransactionShard], list[Marking]] = {}
        for marking, places in batch.items():
            if marking.is_over:
                continue
            for place in places:
                if place in marking.left:
                    self._place(marking, place)
            if not marking.left:
                over.setdefault(marking.shard, []).append(marking)
        for shard, markings in over.items():
            self._complete(shard, markings)

    def _place(self, marking: Marking, place: Place) -> None:
        partition = self._image.partition(*place)
        if partition is None:
            marking.written([place])
        elif self._is_alive(partition.leader):
            line = self._lines.get(partition.leader)
            if line is None:
                line = self._lines[partition.leader] = self._line(partition.leader)
            line.waiting.setdefault(marking, []).append(place)
        else:
            self._park(marking, [place])

    def _complete(self, shard: Shard[TransactionShard], markings: list[Marking]) -> None:
        refused = set(self._completed(shard, markings))
        for marking in markings:
            if marking in refused:
                self._park(marking, [])
            elif not marking.is_over:
                self._end(marking)

    # --- Another try --------------------------------------------------------------------------------------------------

    def _park(self, marking: Marking, places: Sequence[Place]) -> None:
        self._parked.setdefault(marking, []).extend(places)
        if self._retry is None and not self._is_closed:
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(self._retry_delay.next_s(), self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._send_parked()

    def _send_parked(self) -> None:
        parked, self._parked = self._parked, {}
        self._dispatch(parked)

    # --- Requests -----------------------------------------------------------------------------------------------------

    def _line(self, broker_id: int) -> _Line:
        line = _Line()
        loop = asyncio.get_running_loop()
        line.task = loop.create_task(self._run(broker_id, line), name=f"markers for broker {broker_id}")
        line.task.add_done_callback(lambda task: self._ended(broker_id, line, task))
        return line

    async def _run(self, broker_id: int, line: _Line) -> None:
        while line.waiting:
            line.under_way = _take(line.waiting)
            if line.under_way:
                await self._write(broker_id, line.under_way)
            line.under_way = {}
        del self._lines[broker_id]  # what comes from now on has a line of its own, and waits for nothing

    def _ended(self, broker_id: int, line: _Line, task: asyncio.Task[None]) -> None:
        """Nothing waited any more, or the task was cancelled."""
        if not task.cancelled() and task.exception() is None:
            return
        del self._lines[broker_id]
        if not task.cancelled():
            log.error("%s failed", task.get_name(), exc_info=task.exception())
        if not self._is_closed:
            self._park_all(line.under_way)
            self._park_all(line.waiting)

    def _park_all(self, batch: Batch) -> None:
        for marking, places in batch.items():
            if not marking.is_over:
                self._park(marking, places)

    async def _write(self, broker_id: int, batch: Batch) -> None:
        by_producer = {marking.transaction.producer_id: marking for marking in batch}
        request = wtm.Request(markers=[_marker(marking, places) for marking, places in batch.items()])
        try:
            answer = await self._peers.request(broker_id, request, self._timeout_ms, least_version=1)
        except KafkaError as error:
            log.info("broker %d wrote no markers of %d transactions: %s", broker_id, len(batch), error.message)
            self._park_all(batch)
            return
        codes: dict[Marking, dict[Place, int]] = {}
        for result in answer.markers:
            marking = by_producer.get(result.producer_id)
            if marking is not None:
                codes[marking] = {
                    (topic.name, each.partition_index): each.error_code
                    for topic in result.topics
                    for each in topic.partitions
                }
        done: Batch = {}
        for marking, places in batch.items():
            if not marking.is_over and self._take_in(marking, places, codes.get(marking, {})):
                done[marking] = []
        self._dispatch(done)

    def _take_in(self, marking: Marking, places: Sequence[Place], codes: dict[Place, int]) -> bool:
        """Follow what a leader answered. Returns whether the marking has no marker left to write."""
        again: dict[Place, int] = {}
        for place in places:
            code = codes.get(place, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in WRITTEN:
                marking.written([place])
            else:
                again[place] = code
        if again:
            (topic, index), code = next(iter(again.items()))
            others = f" and {len(again) - 1} others" if len(again) > 1 else ""
            log.info("%s-%d%s: no marker of %s yet: %s", topic, index, others, marking, KafkaError(code).name)
            self._park(marking, list(again))
        else:
            self._retry_delay.reset()
        return not marking.left


def _take(waiting: Batch) -> Batch:
    """What goes into one request. Each marking is in it at most once."""
    batch: Batch = {}
    room = MAX_MARKERS
    while waiting and room > 0:
        marking, places = next(iter(waiting.items()))
        if marking.is_over:
            del waiting[marking]
            continue
        taken = batch[marking] = places[:room]
        room -= len(taken)
        if len(taken) == len(places):
            del waiting[marking]
        else:
            waiting[marking] = places[len(taken) :]
    return batch


def _marker(marking: Marking, places: Sequence[Place]) -> wtm.WritableTxnMarker:
    by_topic: dict[str, list[int]] = {}
    for topic, index in places:
        by_topic.setdefault(topic, []).append(index)
    transaction = marking.transaction
    return wtm.WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_result=transaction.state is State.PREPARE_COMMIT,
        topics=[wtm.WritableTxnMarkerTopic(name=topic, partition_indexes=ids) for topic, ids in by_topic.items()],
        coordinator_epoch=marking.shard.partition.leader_epoch,
        transaction_version=transaction.client_version,
    )
