"""Appends whose batches must be checked record by record or recompressed: off the loop, in the order of arrival.

A partition with such an append under way has a line. All later appends of clients wait in it, even those that need no
work, so that the log keeps the order of arrival. Other partitions and connections do not wait.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ...protocol.errors import ErrorCode, KafkaError
from ..storage.log.append import Origin
from ..storage.log.inspection import inspect_batch, is_large

if TYPE_CHECKING:
    from ...runtime import Runtime
    from ..replication.partition import Partition
    from ..storage.disk.files import Files
    from ..storage.log._producers import VerificationGuard
    from ..storage.log.log import AppendInfo


class Preparing:
    """One for a broker."""

    def __init__(self, files: Files, runtime: Runtime, max_bytes: int) -> None:
        self._files = files
        self._runtime = runtime
        self._max_bytes = max_bytes  # of all batches that are under way or wait
        self._bytes = 0

    def begin(self, partition: Partition, batch: Any, guard: VerificationGuard | None = None) -> Work | None:
        """Take a place in the partition's line; None when the append can be made at once. guard: see `Log.append`.

        The batch is copied. Raises KafkaError REQUEST_TIMED_OUT when too much is under way.
        """
        large = is_large(batch, partition.log.config)
        if not large and partition.line is None:
            return None
        size = len(batch)
        if self._bytes + size > self._max_bytes:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{partition}: {self._bytes} bytes of batches wait (compression.queued.bytes={self._max_bytes})",
            )
        self._bytes += size
        work = Work(partition, bytes(batch), guard, large, asyncio.get_running_loop().create_future())
        partition.line = work.done
        return work

    async def append(self, work: Work) -> AppendInfo:
        """Make an append in its turn. Raises KafkaError; nothing was appended then."""
        partition = work.partition
        inspection = None
        try:
            if work.is_large:
                inspection = await self._files.compute(inspect_batch, work.batch, partition.log.config)
            if work.before is not None:
                await asyncio.wait([work.before])
            wall_ms = self._runtime.wall_ms()
            return partition.append(work.batch, Origin.CLIENT, wall_ms, inspection=inspection, guard=work.guard)
        finally:
            self._bytes -= len(work.batch)
            work.done.set_result(None)
            if partition.line is work.done:
                partition.line = None


class Work:
    """One append in a partition's line."""

    __slots__ = ("batch", "before", "done", "guard", "is_large", "partition")

    def __init__(
        self,
        partition: Partition,
        batch: bytes,
        guard: VerificationGuard | None,
        is_large: bool,
        done: asyncio.Future[None],
    ) -> None:
        self.partition = partition
        self.batch = batch
        self.guard = guard
        self.is_large = is_large
        self.before = partition.line  # the append before it, if any
        self.done = done
