"""Tells the controller where this broker's replicas are, where the metadata has it otherwise (KIP-858).

A broker that comes back with an empty disk has a directory of a new id, in which all its replicas are made again. There
is one directory of logs, but a disk error takes its own partition offline and no other. So a partition whose log
failed is told as one in a lost directory: the controller then has another replica lead it. One that is served again,
or from a new disk, is told as one in this broker's directory, without which it could not lead. A partition that has no
other replica stays with this broker: nobody could lead it meanwhile.

A partition that refuses appends because the disk is full is told in the same way, as long as others are in sync.
Otherwise this broker goes on to serve its reads. One that has space again is told at once where the others are too few
for acks=all, and after a while otherwise (`shortage.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import assign_replicas_to_dirs as m
from ..cluster.image import Delta, MetadataImage
from ..cluster.partition_image import LOST, MIGRATING, NO_LEADER, PartitionImage
from ..pauses import Pauses, RetryDelay
from .shortage import Key, Space

log = logging.getLogger(__name__)

ANSWER_TIMEOUT_MS = 30_000  # for the controller; then it is asked again
RETRY_FIRST_S, RETRY_MOST_S = 0.1, 10.0
MAX_AT_ONCE = 2_000  # partitions in one request, as in Kafka

Ask = Callable[[Any, float], Awaitable[Any]]  # (request, timeout in ms) -> the controller's answer; raises KafkaError


class Assignments:
    """directory: of this broker's logs, 16 bytes. is_offline: whether a partition of this broker cannot be used here.
    space: what one that can be used has for its next append. least_in_sync: how many must be in sync for acks=all.

    What is to be told follows from the metadata and the state of a partition at the moment of each request.
    """

    def __init__(
        self,
        node_id: int,
        directory: bytes,
        image: MetadataImage,
        ask: Ask,
        broker_epoch: Callable[[], int],
        is_offline: Callable[[str, int], bool],
        space: Callable[[str, int], Space],
        least_in_sync: Callable[[str, int], int],
    ) -> None:
        self._node_id = node_id
        self._directory = directory
        self._image = image
        self._ask = ask
        self._broker_epoch = broker_epoch
        self._is_offline = is_offline
        self._space = space
        self._least_in_sync = least_in_sync
        self._looked_at: dict[Key, None] = {}
        self._pauses = Pauses()
        self._sender: asyncio.Task[None] | None = None

    def look(self, topic: str, index: int) -> None:
        """The state of a partition has changed: tell the controller if it does not know."""
        if self._pauses.is_stopping or self._to_be_told((topic, index)) is None:
            return
        self._looked_at[topic, index] = None
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_all(), name="directories of replicas")

    def metadata_changed(self, delta: Delta) -> None:
        """What was told may have come true only after the partition's state had changed again."""
        for topic, indexes in delta.changed.items():
            for index in indexes:
                self.look(topic, index)

    async def settled(self) -> None:
        """Wait until the controller knows all that was to be told by now.

        A broker does so before it is unfenced: then those partitions are given leaders that have none.
        """
        while self._sender is not None:
            await asyncio.wait([self._sender])

    async def close(self) -> None:
        self._pauses.stop()
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)

    def _to_be_told(self, key: Key) -> bytes | None:
        """The directory that the controller is to know; None if it does."""
        topic, index = key
        partition = self._image.partition(topic, index)
        if partition is None or self._node_id not in partition.replicas or not self._image.has_directories:
            return None
        known = partition.directory_of(self._node_id)
        if self._is_offline(topic, index):
            return LOST if known != LOST and len(partition.replicas) > 1 else None
        match self._space(topic, index):
            case Space.NONE if known != LOST and self._others_serve(partition):
                return LOST
            case Space.UNSURE if known == LOST and len(partition.isr) < self._least_in_sync(topic, index):
                return self._directory
            case Space.NONE | Space.UNSURE if known == LOST and not self._is_needed(partition):
                return None
        return None if known in (self._directory, MIGRATING) else self._directory

    def _others_serve(self, partition: PartitionImage) -> bool:
        """Whether another replica can lead, or does, and is in sync."""
        return any(
            each != self._node_id and self._image.is_active(each) and partition.directory_of(each) != LOST
            for each in partition.isr
        )

    def _is_needed(self, partition: PartitionImage) -> bool:
        """Whether nobody leads and this replica has all that is committed: the others gave theirs up, too."""
        return partition.leader == NO_LEADER and self._node_id in (*partition.isr, *partition.elr)

    async def _send_all(self) -> None:
        delay = RetryDelay(RETRY_FIRST_S, RETRY_MOST_S)
        try:
            while self._looked_at and not self._pauses.is_stopping:
                await asyncio.sleep(0)  # what other partitions come to in this turn goes along
                keys = list(self._looked_at)[:MAX_AT_ONCE]
                for key in keys:
                    del self._looked_at[key]
                told = {key: directory for key in keys if (directory := self._to_be_told(key)) is not None}
                if not told or await self._send(told):
                    delay.reset()
                    continue
                self._looked_at.update(dict.fromkeys(told))
                await self._pauses.pause(delay.next_s())
        finally:
            self._sender = None

    async def _send(self, told: dict[Key, bytes]) -> bool:
        """False if it is to be sent again."""
        directories: dict[bytes, m.DirectoryData] = {}
        topics: dict[tuple[bytes, str], m.TopicData] = {}
        for (topic, index), directory in told.items():
            if (row := topics.get((directory, topic))) is None:
                row = topics[directory, topic] = m.TopicData(topic_id=self._image.topics[topic].id)
                directories.setdefault(directory, m.DirectoryData(id=directory)).topics.append(row)
            row.partitions.append(m.PartitionData(partition_index=index))
        request = m.Request(
            broker_id=self._node_id, broker_epoch=self._broker_epoch(), directories=list(directories.values())
        )
        try:
            answer = await self._ask(request, ANSWER_TIMEOUT_MS)
            code = answer.error_code
        except KafkaError as error:
            code = error.code
        if code:
            log.warning("the controller does not take where replicas are: %s", ErrorCode(code).name)
            return code == ErrorCode.UNSUPPORTED_VERSION  # it will never know of directories
        for (topic, index), directory in told.items():
            if directory == LOST:
                log.warning("%s-%d: the controller was told that its log cannot be used here", topic, index)
        return True
