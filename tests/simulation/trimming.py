"""An administrator who deletes the oldest records of a topic, now and then, while all else happens to the cluster.

Only what every producer of the partition is past: a replica that begins after a batch knows nothing of it, so that a
producer which sends it again would write it twice, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import delete_records

from .brokers import Cluster
from .cluster_watch import Watch
from .wire import ask
from .workload import Workload

PAUSE_S = (0.2, 3.0)
TIMEOUT_MS = 3_000
UP_TO_HIGH_WATERMARK = -1
REFUSALS = (
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_OUT_OF_RANGE,  # a new leader does not know yet what is committed
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class Trimmer:
    """workloads: by partition, those that write to it. loose: a topic that may lose records, of which all that is
    committed is deleted at times. It runs until `stop`."""

    def __init__(
        self, cluster: Cluster, watch: Watch, topic: str, workloads: Sequence[Sequence[Workload]], loose: str | None
    ) -> None:
        self._sim = cluster.sim
        self._cluster = cluster
        self._watch = watch
        self._topic = topic
        self._workloads = workloads
        self._loose = loose
        self._process = cluster.sim.machine("trimmer").start()
        self._task = self._process.outcome(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._sim.random.uniform(*PAUSE_S))
            if self._loose is not None and self._sim.random.random() < 0.3:
                await self._ask(self._loose, 0, UP_TO_HIGH_WATERMARK)
            else:
                await self._delete(self._sim.random.randrange(len(self._workloads)))

    async def stop(self, within_s: float) -> None:
        """The faults are over: records of each partition can be deleted, within a bound."""
        if self._task.done():
            self._task.result()
        self._task.cancel()
        for partition in range(len(self._workloads)):
            deleting = self._process.outcome(self._until_deleted(partition))
            await self._sim.within(within_s, f"records of {self._topic}-{partition} are deleted", deleting)

    async def _until_deleted(self, partition: int) -> None:
        while not await self._delete(partition):
            await asyncio.sleep(0.5)

    async def _delete(self, partition: int) -> bool:
        """Delete records before an offset; whether that was done."""
        key = self._topic, partition
        offset = self._sim.random.randint(self._watch.to_delete.get(key, 0), max(self._end(partition), 0))
        self._watch.to_delete[key] = max(self._watch.to_delete.get(key, 0), offset)
        told = await self._ask(*key, offset)
        if told is None:
            return False
        low_watermark, address = told
        assert low_watermark >= offset, f"{key} begins at {low_watermark}, {offset} was asked for"
        self._watch.deletion_told(*key, offset, address)
        self._sim.counters["deletions"] += 1
        return True

    async def _ask(self, name: str, partition: int, offset: int) -> tuple[int, str] | None:
        """The low watermark, and the leader that has told it; None if it was not done, or nobody knows."""
        address, _ = await self._cluster.leader(name, partition)
        row = delete_records.DeleteRecordsPartition(partition_index=partition, offset=offset)
        topic = delete_records.DeleteRecordsTopic(name=name, partitions=[row])
        request = delete_records.Request(topics=[topic], timeout_ms=TIMEOUT_MS)
        answer = await ask(address, delete_records.API, request, attempts=1)
        if answer is None:
            return None
        result = answer.topics[0].partitions[0]
        if result.error_code:
            assert result.error_code in REFUSALS, f"DeleteRecords answers {ErrorCode(result.error_code).name}"
            return None
        return result.low_watermark, address

    def _end(self, partition: int) -> int:
        """Before which no producer has anything that it may send again, and all was seen committed."""
        end = self._watch.ends.get((self._topic, partition), 0)
        for workload in self._workloads[partition]:
            if not workload.done:
                end = min(end, max((sent.acked[1] + 1 for sent in workload.acked if sent.acked is not None), default=0))
        return max(end, self._watch.to_delete.get((self._topic, partition), 0))
