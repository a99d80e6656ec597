"""A scripted broker that coordinates transactions as Kafka 4.4 answers them, on one node, in either protocol.

What it decides was asked of Kafka 4.4 by hand, one request after another. `level` is its transaction.version: from 2 on
each end of a transaction bumps the epoch, and Produce and TxnOffsetCommit add what they write to.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from isthmus.client import TopicPartition
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
    txn_offset_commit,
)
from isthmus.protocol.records import BatchBuilder
from tests.client.scripted import PORT, ScriptedBroker, World

MARKERS_S = 0.003  # until the markers of a transaction are written
EPOCHS_FROM = {"produce": 12, "end_txn": 5, "txn_offset_commit": 5}  # versions that go by level 2


class Stage(Enum):
    EMPTY = auto()
    ONGOING = auto()
    PREPARE_COMMIT = auto()
    PREPARE_ABORT = auto()
    COMMITTED = auto()
    ABORTED = auto()


PREPARING = (Stage.PREPARE_COMMIT, Stage.PREPARE_ABORT)


@dataclass
class Transaction:
    """What the coordinator has of one transactional id."""

    producer_id: int
    epoch: int = -1
    last_epoch: int = -1
    timeout_s: float = 60.0
    stage: Stage = Stage.EMPTY
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None


class CoordinatingBroker(ScriptedBroker):
    """generation: of every group; -1: whatever is said."""

    def __init__(self, world: World, level: int = 2) -> None:
        super().__init__(world)
        self.level = level
        self.features = {"transaction.version": level}
        self.transactions: dict[str, Transaction] = {}
        self.opened: dict[tuple[TopicPartition, int], int] = {}  # partition, producer id -> first offset
        self.offsets: dict[tuple[str, TopicPartition], int] = {}
        self.pending: dict[tuple[str, int], dict[TopicPartition, int]] = {}  # group, producer id
        self.group_epochs: dict[tuple[str, int], int] = {}  # the same -> epoch
        self.generation = -1

    @property
    def is_writing_markers(self) -> bool:
        return any(each.stage in PREPARING for each in self.transactions.values())

    @property
    def _by_epochs(self) -> bool:
        name = self.asked[-1][0]
        return self.level >= 2 and self.version >= EPOCHS_FROM[name]

    # --- The coordinator ----------------------------------------------------------------------------

    def on_find_coordinator(self, message: Any) -> Any:
        coordinators = [
            find_coordinator.Coordinator(key=key, node_id=self.node_id, host=self.host, port=PORT)
            for key in message.coordinator_keys
        ]
        return find_coordinator.Response(coordinators=coordinators)

    def on_init_producer_id(self, message: Any) -> Any:
        if message.transactional_id is None:
            return super().on_init_producer_id(message)
        code, found = self._init(message), self.transactions[message.transactional_id]
        if code:
            return init_producer_id.Response(error_code=code, producer_id=-1, producer_epoch=-1)
        return init_producer_id.Response(producer_id=found.producer_id, producer_epoch=found.epoch)

    def _init(self, message: Any) -> int:
        found = self.transactions.get(message.transactional_id)
        if found is None:
            self.producer_ids += 1
            found = self.transactions[message.transactional_id] = Transaction(self.producer_ids)
        epoch = message.producer_epoch
        is_own = epoch >= 0 and found.epoch >= 0
        if is_own and (message.producer_id != found.producer_id or epoch not in (found.epoch, found.last_epoch)):
            return ErrorCode.PRODUCER_FENCED
        if found.stage is Stage.ONGOING:
            self._prepare(found, Stage.PREPARE_ABORT, bump=True)
            if not is_own:
                found.last_epoch = -1
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if found.stage in PREPARING:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if not is_own or epoch == found.epoch:
            found.epoch, found.last_epoch = found.epoch + 1, found.epoch if is_own else -1
        found.stage = Stage.EMPTY
        found.timeout_s = message.transaction_timeout_ms / 1000
        return 0

    def on_add_partitions_to_txn(self, message: Any) -> Any:
        found = self.transactions.get(message.v3_and_below_transactional_id)
        code = self._checked_owner(found, message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
        topics = []
        for topic in message.v3_and_below_topics:
            if not code:
                assert found is not None
                self._add(found, [TopicPartition(topic.name, p) for p in topic.partitions])
            results = [
                add_partitions_to_txn.AddPartitionsToTxnPartitionResult(partition_index=p, partition_error_code=code)
                for p in topic.partitions
            ]
            topics.append(
                add_partitions_to_txn.AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results)
            )
        return add_partitions_to_txn.Response(results_by_topic_v3_and_below=topics)

    def on_add_offsets_to_txn(self, message: Any) -> Any:
        found = self.transactions.get(message.transactional_id)
        code = self._checked_owner(found, message.producer_id, message.producer_epoch)
        if not code:
            assert found is not None
            self._add(found, [])
            found.groups[message.group_id] = None
        return add_offsets_to_txn.Response(error_code=code)

    def on_end_txn(self, message: Any) -> Any:
        found = self.transactions.get(message.transactional_id)
        code = self._end(found, message)
        if code or not self._by_epochs:
            return end_txn.Response(error_code=code)
        assert found is not None
        return end_txn.Response(producer_id=found.producer_id, producer_epoch=found.epoch)

    def _end(self, found: Transaction | None, message: Any) -> int:
        if found is None or found.producer_id != message.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        prepare = Stage.PREPARE_COMMIT if message.committed else Stage.PREPARE_ABORT
        complete = Stage.COMMITTED if message.committed else Stage.ABORTED
        is_again = self._by_epochs and message.producer_epoch == found.last_epoch
        if message.producer_epoch != found.epoch and not is_again:
            return ErrorCode.PRODUCER_FENCED
        if found.stage is Stage.ONGOING:
            self._prepare(found, prepare, bump=self._by_epochs)
            return 0
        if found.stage is prepare or (self._by_epochs and not is_again and found.stage in PREPARING):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if self._by_epochs and not is_again and not message.committed:  # nothing is open: only a new epoch
            found.epoch, found.last_epoch, found.stage = found.epoch + 1, found.epoch, Stage.ABORTED
            return 0
        is_done = found.stage is complete and (is_again or not self._by_epochs)
        return 0 if is_done else ErrorCode.INVALID_TXN_STATE

    def _checked_owner(self, found: Transaction | None, producer_id: int, epoch: int) -> int:
        if found is None or found.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if found.epoch != epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.CONCURRENT_TRANSACTIONS if found.stage in PREPARING else 0

    def _add(self, found: Transaction, tps: list[TopicPartition]) -> None:
        if found.stage is not Stage.ONGOING:
            found.stage = Stage.ONGOING
            loop = asyncio.get_running_loop()
            found.timer = loop.call_later(found.timeout_s, self._timed_out, found)
        found.partitions |= dict.fromkeys(tps)

    def _timed_out(self, found: Transaction) -> None:
        self._prepare(found, Stage.PREPARE_ABORT, bump=True)

    def _prepare(self, found: Transaction, stage: Stage, bump: bool) -> None:
        assert found.timer is not None
        found.timer.cancel()
        found.stage = stage
        if bump:
            found.epoch, found.last_epoch = found.epoch + 1, found.epoch
        asyncio.get_running_loop().call_later(MARKERS_S, self._complete, found)

    def _complete(self, found: Transaction) -> None:
        is_commit = found.stage is Stage.PREPARE_COMMIT
        for tp in found.partitions:
            self._mark(tp, found, is_commit)
        for group in found.groups:
            offsets = self.pending.pop((group, found.producer_id), {})
            self.group_epochs[group, found.producer_id] = found.epoch
            if is_commit:
                self.offsets |= {(group, tp): offset for tp, offset in offsets.items()}
        found.partitions.clear()
        found.groups.clear()
        found.stage = Stage.COMMITTED if is_commit else Stage.ABORTED

    def _mark(self, tp: TopicPartition, found: Transaction, is_commit: bool) -> None:
        log, builder = self.world.log(*tp), BatchBuilder(max_bytes=1_000, control=True, transactional=True)
        builder.producer_id, builder.producer_epoch, builder.base_offset = found.producer_id, found.epoch, log.end
        builder.append(0, b"\0\0\0\1" if is_commit else b"\0\0\0\0", b"\0\0\0\0\0\0")
        log.batches.append(builder.build())
        first = self.opened.pop((tp, found.producer_id), None)
        if first is not None and not is_commit:
            log.aborted.append((found.producer_id, first, log.end))
        log.end += 1
        epoch, expected, offsets = log.producers.get(found.producer_id, (-1, 0, {}))
        if epoch < found.epoch:
            log.producers[found.producer_id] = (found.epoch, 0, {})
        self._stabilize(tp)

    def _stabilize(self, tp: TopicPartition) -> None:
        """The last stable offset is where the first open transaction begins."""
        self.world.log(*tp).last_stable_offset = min(
            (first for (other, _), first in self.opened.items() if other == tp), default=None
        )

    # --- Partitions and groups ----------------------------------------------------------------------

    def on_produce(self, message: Any) -> Any:
        if message.transactional_id is None:
            return super().on_produce(message)
        by_epochs = self._by_epochs

        def refuse(topic: str, index: int, header: Any) -> int:
            tp, found = TopicPartition(topic, index), self.transactions[message.transactional_id]
            code = self._checked_owner(found, header.producer_id, header.producer_epoch)
            if code == ErrorCode.PRODUCER_FENCED:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            if code:
                return code
            if by_epochs:
                self._add(found, [tp])
            elif tp not in found.partitions:
                return ErrorCode.TRANSACTION_ABORTABLE
            return 0

        answer = self.produced(message, refuse)
        for topic in answer.responses:
            name = self._name(topic.topic_id) or topic.name
            for each in topic.partition_responses:
                if not each.error_code:
                    found = self.transactions[message.transactional_id]
                    tp = TopicPartition(name, each.index)
                    self.opened.setdefault((tp, found.producer_id), each.base_offset)
                    self._stabilize(tp)
        return answer

    def on_txn_offset_commit(self, message: Any) -> Any:
        found = self.transactions.get(message.transactional_id)
        code = 0
        if self.generation not in (-1, message.generation_id_or_member_epoch):
            code = ErrorCode.ILLEGAL_GENERATION
        elif self._by_epochs:
            code = self._checked_owner(found, message.producer_id, message.producer_epoch)
            if not code:
                assert found is not None
                self._add(found, [])
                found.groups[message.group_id] = None
        elif message.producer_epoch < self.group_epochs.get((message.group_id, message.producer_id), -1):
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        elif found is None or message.group_id not in found.groups or message.producer_epoch != found.epoch:
            code = ErrorCode.TRANSACTION_ABORTABLE
        topics = []
        for topic in message.topics:
            if not code:
                pending = self.pending.setdefault((message.group_id, message.producer_id), {})
                for each in topic.partitions:
                    pending[TopicPartition(topic.name, each.partition_index)] = each.committed_offset
            parts = [
                txn_offset_commit.TxnOffsetCommitResponsePartition(
                    partition_index=each.partition_index, error_code=code
                )
                for each in topic.partitions
            ]
            topics.append(txn_offset_commit.TxnOffsetCommitResponseTopic(name=topic.name, partitions=parts))
        return txn_offset_commit.Response(topics=topics)


def classic(world: World) -> CoordinatingBroker:
    """Of a cluster before transaction.version 2."""
    return CoordinatingBroker(world, level=1)
