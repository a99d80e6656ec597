"""A reader of raw batches, as a mirror is: it reads on from where it is, whoever leads.

It keeps to KIP-320: it tells the leader epoch that it knows and the epoch of what it has read last. So no broker may
tell it that its offset is out of range, or that its history is another one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import fetch

from .brokers import Cluster
from .cluster_watch import Watch
from .history import batches_of
from .wire import Wire, connect

VERSION = 12  # of Fetch, the first with divergence
ANSWER_TIMEOUT_S = 8.0
FROM_A_FOLLOWER = 0.3  # of the conversations
LOOK_AGAIN = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REPLICA_NOT_AVAILABLE,
)


class RawReader:
    """position: the next offset. It runs until it is cancelled, or a check fails."""

    def __init__(self, cluster: Cluster, watch: Watch, topic: str, partition: int) -> None:
        self.position = 0
        self._sim = cluster.sim
        self._cluster = cluster
        self._watch = watch
        self._topic = topic
        self._partition = partition
        self._epoch = -1  # of the last batch
        self._known_epoch = -1  # of the leader
        self._jumped = False  # the next batch may begin before the position
        self.task = cluster.sim.machine(f"reader{partition}").start().outcome(self._run())

    async def _run(self) -> None:
        chance = self._sim.random
        while True:
            address, epoch = await self._cluster.leader(self._topic, self._partition)
            self._known_epoch = max(self._known_epoch, epoch)
            is_leader = epoch == self._known_epoch >= 0 and chance.random() >= FROM_A_FOLLOWER
            try:
                wire = await connect(address if is_leader else self._cluster.any_address())
            except OSError:
                await asyncio.sleep(chance.uniform(0.05, 0.5))
                continue
            try:
                while await self._read(wire, is_leader):
                    pass
            except (ConnectionError, TimeoutError):
                self._sim.counters["reconnects"] += 1
            finally:
                wire.transport.abort()
            await asyncio.sleep(chance.uniform(0.02, 0.2))

    async def until(self, end: int, within_s: float) -> None:
        """Wait until it has read up to there."""
        await self._sim.until(lambda: self.task.done() or self.position >= end, "all is read", within_s)
        if self.task.done():
            self.task.result()

    async def _read(self, wire: Wire, is_leader: bool) -> bool:
        """One Fetch; False when the leader is to be looked for again."""
        asked = fetch.FetchPartition(
            partition=self._partition,
            current_leader_epoch=self._known_epoch,
            fetch_offset=self.position,
            # A follower may not have cut off yet what its leader has not.
            last_fetched_epoch=self._epoch if is_leader else -1,
            partition_max_bytes=1 << 20,
        )
        topic = fetch.FetchTopic(topic=self._topic, partitions=[asked])
        request = fetch.Request(replica_id=-1, max_wait_ms=300, min_bytes=1, topics=[topic])
        answer = await asyncio.wait_for(wire.request(fetch.API, request, VERSION), ANSWER_TIMEOUT_S)
        if answer.error_code:
            return False
        row = answer.responses[0].partitions[0]
        where = f"{self._topic}-{self._partition} at offset {self.position}, epoch {self._known_epoch}"
        if row.error_code:
            to_delete = self._watch.to_delete.get((self._topic, self._partition), 0)
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.position < to_delete:
                self.position, self._epoch, self._jumped = to_delete, -1, True
                return True
            is_behind = not is_leader and row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert is_behind or row.error_code in LOOK_AGAIN, (
                f"a reader of {where} is told {ErrorCode(row.error_code).name}"
            )
            return False
        diverging = row.diverging_epoch
        assert diverging is None or diverging.epoch < 0, f"a reader of {where} is told of divergence: {diverging}"
        self._take(row, where)
        return is_leader or self._sim.random.random() < 0.8

    def _take(self, row: Any, where: str) -> None:
        for batch in batches_of(bytes(row.records or b"")):
            is_next = batch.base_offset == self.position
            is_part = self._jumped and batch.base_offset < self.position <= batch.last_offset
            assert is_next or is_part, f"a reader of {where} is given {batch.base_offset}"
            self._jumped = False
            assert batch.last_offset < row.high_watermark, (
                f"a reader of {where} is given more than {row.high_watermark}"
            )
            self._watch.committed("a reader", self._topic, self._partition, batch)
            self.position = batch.last_offset + 1
            self._epoch = batch.leader_epoch
            self._known_epoch = max(self._known_epoch, batch.leader_epoch)
            self._sim.counters["batches_read"] += 1
