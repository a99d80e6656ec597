"""Asks the controller for changes of in-sync replicas: of all partitions together, one AlterPartition at a time.

A follower that has caught up is to join, one that has lagged for replica.lag.time.max.ms is to leave. What the answer
says of a partition decides what comes next, as in Kafka's AlterPartitionManager: it is taken, it is given up, or it is
left open until newer metadata tells what has become of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import alter_partition
from ..cluster.image import NO_EPOCH
from ..pauses import Pauses
from .leadership import IsrChange
from .partition import Partition

log = logging.getLogger(__name__)

ANSWER_TIMEOUT_MS = 30_000  # for the controller; then it is asked again
RETRY_S = 0.1  # before a change that was refused, or that the answer does not tell of, is asked for again
GIVEN_UP = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)  # it has certainly not been made
LEFT_OPEN = (  # newer metadata says what is
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)

Ask = Callable[[Any, float], Awaitable[Any]]  # (request, timeout in ms) -> the controller's answer; raises KafkaError
BrokerEpochs = Callable[[int], int]  # by broker id; -1 if it is not known


class IsrChanges:
    """ask: sends to the active controller. partitions: those that this broker holds.

    At most one change of each partition waits here. shrinks, expands, failures: of changes that the controller made, or
    refused.
    """

    def __init__(
        self,
        node_id: int,
        ask: Ask,
        broker_epoch_of: BrokerEpochs,
        partitions: Mapping[str, Mapping[int, Partition]],
        lag_max_ms: float,
    ) -> None:
        self.shrinks = self.expands = self.failures = 0
        self._node_id = node_id
        self._ask = ask
        self._broker_epoch_of = broker_epoch_of
        self._partitions = partitions
        self._interval_s = lag_max_ms / 2000
        self._wanted: dict[Partition, IsrChange] = {}
        self._pauses = Pauses()
        self._sender: asyncio.Task[None] | None = None
        self._lags: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look for followers that lag."""
        self._lags = asyncio.get_running_loop().create_task(self._look_for_lags(), name="followers that lag")

    def want(self, partition: Partition, change: IsrChange) -> None:
        """Ask the controller for a change."""
        self._wanted[partition] = change
        if self._sender is None and not self._pauses.is_stopping:
            self._sender = asyncio.get_running_loop().create_task(self._send_all(), name="changes of in-sync replicas")

    async def close(self) -> None:
        self._pauses.stop()
        self._wanted.clear()
        for task in (self._sender, self._lags):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _look_for_lags(self) -> None:
        while not self._pauses.is_stopping:
            await self._pauses.pause(self._interval_s)
            for indexes in list(self._partitions.values()):
                for partition in list(indexes.values()):
                    change = partition.lagging()
                    if change is not None:
                        left = [each for each in partition.isr if each not in change.isr]
                        log.info("%s: brokers %s lag and are to leave the in-sync replicas", partition, left)
                        self.want(partition, change)

    async def _send_all(self) -> None:
        try:
            while self._wanted and not self._pauses.is_stopping:
                await asyncio.sleep(0)  # what other partitions want in this turn goes along
                asked, self._wanted = self._wanted, {}
                await self._send(asked)
        finally:
            self._sender = None

    async def _send(self, asked: dict[Partition, IsrChange]) -> None:
        topics: dict[bytes, alter_partition.TopicData] = {}
        for partition, change in asked.items():
            topic_id = partition.topic_id
            topic = topics.setdefault(topic_id, alter_partition.TopicData(topic_id=topic_id))
            topic.partitions.append(
                alter_partition.PartitionData(
                    partition_index=partition.index,
                    leader_epoch=change.leader_epoch,
                    new_isr_with_epochs=[
                        alter_partition.BrokerState(broker_id=each, broker_epoch=self._epoch_of(partition, each))
                        for each in change.isr
                    ],
                    partition_epoch=change.partition_epoch,
                )
            )
        before = {partition: len(partition.isr) for partition in asked}  # the metadata may tell the change first
        own_epoch = self._broker_epoch_of(self._node_id)
        request = alter_partition.Request(broker_id=self._node_id, broker_epoch=own_epoch, topics=list(topics.values()))
        try:
            answer = await self._ask(request, ANSWER_TIMEOUT_MS)
            code = answer.error_code
        except KafkaError as error:
            answer, code = None, error.code
        if answer is None or code:
            log.info("the controller does not change in-sync replicas: %s", ErrorCode(code).name)
            self.failures += len(asked)
            await self._pauses.pause(RETRY_S)
            self._again(asked)
            return
        rows = {(topic.topic_id, row.partition_index): row for topic in answer.topics for row in topic.partitions}
        unanswered: dict[Partition, IsrChange] = {}
        given_up = []
        for partition, change in asked.items():
            row = rows.get((partition.topic_id, partition.index))
            self.failures += row is None or bool(row.error_code)
            if row is None or (row.error_code and row.error_code not in (*GIVEN_UP, *LEFT_OPEN)):
                unanswered[partition] = change
            elif row.error_code in GIVEN_UP:
                given_up.append((partition, change))
            elif not row.error_code and partition.leader_epoch == row.leader_epoch and partition.failure is None:
                log.info("%s: in-sync replicas are %s now", partition, row.isr)
                self.shrinks += len(row.isr) < before[partition]
                self.expands += len(row.isr) > before[partition]
                partition.place(row.leader_id, partition.replicas, row.isr, row.partition_epoch)
        if unanswered or given_up:
            await self._pauses.pause(RETRY_S)
            self._again(unanswered)
            for partition, change in given_up:
                if partition.leadership is not None:
                    partition.leadership.refused(change)

    def _again(self, asked: Mapping[Partition, IsrChange]) -> None:
        """Ask once more for what may have been made, or not, unless its partition is another one by now."""
        for partition, change in asked.items():
            if partition.failure is None and partition.leadership is not None:
                if partition.leadership.is_asked_for(change):
                    self._wanted.setdefault(partition, change)

    def _epoch_of(self, partition: Partition, broker_id: int) -> int:
        """The broker epoch under which a replica has fetched, as it told itself (KIP-903)."""
        leadership = partition.leadership
        follower = None if leadership is None else leadership.followers.get(broker_id)
        if follower is not None and follower.broker_epoch != NO_EPOCH:
            return follower.broker_epoch
        return self._broker_epoch_of(broker_id)
