"""`__cluster_metadata-0`: the log of the cluster's metadata, one batch for each decision.

There is one voter for now. It leads from its start, each time under a new epoch. An append is synced before anyone acts
on it, so a decision that was answered is never lost. A start reads the newest snapshot and the log after it.

If a sync failed for lack of disk space, the log is opened again when there is some, as a start does: then a copy of all
that was appended is on disk. Records in it that the image lacks, which nobody has seen yet, are then applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...protocol import records as batches
from ...protocol.messages import metadata_records
from ...runtime import Runtime
from ..storage.disk.errors import StorageError
from ..storage.disk.files import Files
from ..storage.log.append import Origin
from ..storage.log.log import Log
from ..storage.log.log_config import LogConfig
from ..storage.log.status import LogHooks, LogStatus
from ..storage.log.syncing import write_note
from ..storage.startup.opening import open_log
from .image import Delta, InconsistentRecord, MetadataImage
from .metadata_replay import Fold, fold_snapshot
from .metadata_snapshot import encoded, remove_older, snapshot_name
from .topic_names import CLUSTER_METADATA

DIRECTORY = f"{CLUSTER_METADATA}-0"
READ_BYTES = 1 << 20  # per read while the log is replayed
MAX_BATCH_BYTES = 64 << 20

LOG_CONFIG = LogConfig(cleanup_policy="compact", max_message_bytes=MAX_BATCH_BYTES)


class MetadataLog:
    """Created by `MetadataLog.open`. `epoch`: the leader epoch under which this voter writes.

    in_doubt: records were written, but their sync failed. If it is false, an append that raised has changed nothing.
    on_shortage: called when the log went offline for lack of disk space; somebody must then try `open_again`.
    """

    def __init__(self, log: Log, runtime: Runtime) -> None:
        self._take(log)
        self.runtime = runtime
        self.on_shortage: Callable[[], None] = lambda: None
        self.epoch = log.latest_epoch + 1
        self.in_doubt = False
        self._snapshot_end = 0  # where the newest snapshot ends
        self._snapshot_ms = runtime.wall_ms()  # when it was written, or the time of this start
        self._unsnapped_bytes = 0  # of records after the snapshot

    @classmethod
    async def open(cls, files: Files, data_dir: str, runtime: Runtime) -> MetadataLog:
        """The log in its folder of the data directory, created if it does not exist. Raises StorageError."""
        log = await open_log(files, f"{data_dir}/{DIRECTORY}", LOG_CONFIG, wall_ms=runtime.wall_ms())
        return cls(log, runtime)

    def _take(self, log: Log) -> None:
        self.log = log
        self._is_let_go = False
        log.status.hooks = LogHooks(on_failure=self._failed)

    def _failed(self, status: LogStatus, failure: StorageError) -> None:
        if status is self.log.status:
            self.on_shortage()

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written to it."""
        return self.next_offset == 0

    @property
    def next_offset(self) -> int:
        return self.log.log_end_offset

    async def replay(self, image: MetadataImage) -> dict[bytes, None]:
        """Apply everything in the log to an empty image. Returns the ids of the topics that the log says were deleted.

        Raises InconsistentRecord, CorruptBatch, StorageError.
        """
        fold = Fold(image)
        files, directory = self.log.files, self.log.directory
        try:
            offset = await files.run(fold_snapshot, files, directory, fold)
        except OSError as error:
            raise StorageError(error, directory, "cannot read the snapshot in") from error
        start, end = self.log.log_start_offset, self.next_offset
        if not start <= offset <= end:
            snapshot = f"its snapshot ends at {offset}" if offset else "there is no snapshot"
            raise InconsistentRecord(f"{directory}: the log has offsets {start} to {end}, but {snapshot}")
        self._snapshot_end = offset
        for _ in self._fold(fold, offset):
            pass
        self.epoch = max(self.epoch, image.epoch + 1)  # if the log is empty, the snapshot has the epoch
        return fold.removed

    def _fold(self, fold: Fold, offset: int) -> Iterator[Delta]:
        """Apply batch after batch, from an offset on."""
        end = self.next_offset
        while offset < end:
            data = b"".join([part.read() for part in self.log.read(offset, READ_BYTES, end).ranges])
            start = offset
            for position, header in batches.walk(data):
                if header.last_offset < offset:
                    continue
                offset = header.last_offset + 1
                self._unsnapped_bytes += header.size_bytes
                if not header.is_control:
                    yield fold.apply(batches.decode_batch(data, position), header.partition_leader_epoch)
            if offset == start:
                raise InconsistentRecord(f"{self.log.directory}: no batch at offset {offset}, but it ends at {end}")

    async def append(self, records: Sequence[Any]) -> int:
        """Write records as one batch and sync it. Returns the offset of the last. Raises KafkaError.

        If the sync fails, it is unknown what the disk has: the log must not be written any more.
        """
        now = self.runtime.wall_ms()
        batch = batches.build_batch([(now, None, metadata_records.encode(record), ()) for record in records])
        info = self.log.append(batch, Origin.COORDINATOR, self.epoch, now)
        self.in_doubt = True
        await self.log.sync()
        self.in_doubt = False
        self._unsnapped_bytes += info.size_bytes
        return info.last_offset

    async def open_again(self) -> None:
        """Open the log again after it went offline for lack of disk space. A copy of all that was appended is on disk
        then.

        `catch_up` applies what the image may lack. Raises StorageError, KafkaError; as long as disk space is short, it
        may be tried again.
        """
        log, files = self.log, self.log.files
        assert log.failure is not None
        try:
            await files.run(write_note, files, log.directory, log.failure.message)
        except OSError as error:
            raise StorageError(error, log.directory, "cannot write in") from error
        if not self._is_let_go:
            self._is_let_go = True
            await log.leave()
        self._take(await open_log(files, log.directory, log.config, wall_ms=self.runtime.wall_ms()))
        await self.log.sync()

    def catch_up(self, image: MetadataImage) -> Iterator[Delta]:
        """Apply records that were in doubt and are now on disk to the image. Yields each change after it is made.

        Raises InconsistentRecord, also if the disk has less than the image; CorruptBatch, StorageError.
        """
        if self.next_offset <= image.offset:
            self.log.abandon()
            raise InconsistentRecord(
                f"{self.log.directory} ends at offset {self.next_offset}, but {image.offset} was decided"
            )
        yield from self._fold(Fold(image), image.offset + 1)
        self.in_doubt = False

    def wants_snapshot(self, bytes_between: int, interval_ms: int) -> bool:
        """Whether there are this many bytes of records since the last snapshot, or any and it is this old."""
        if self._unsnapped_bytes >= bytes_between:
            return True
        return 0 < interval_ms <= self.runtime.wall_ms() - self._snapshot_ms and self._unsnapped_bytes > 0

    async def snapshot(self, image: MetadataImage) -> None:
        """Write a snapshot of an image, which must not change meanwhile, and drop the log before it. Raises KafkaError.

        The dropped records have been applied here; a quorum member that is behind gets the snapshot.
        """
        files, directory, end = self.log.files, self.log.directory, image.offset + 1
        self._snapshot_ms, self._unsnapped_bytes = self.runtime.wall_ms(), 0
        if end == self._snapshot_end:
            return
        path = f"{directory}/{snapshot_name(end, image.epoch)}"
        try:
            await files.run(files.write_atomic, path, await files.compute(encoded, image, self._snapshot_ms))
            self._snapshot_end = end
            self.log.advance_start(end)
            await self.log.enforce_retention(end, self._snapshot_ms)
            await files.run(remove_older, files, directory)
        except OSError as error:
            raise StorageError(error, directory, "cannot write a snapshot in") from error

    async def close(self) -> None:
        await self.log.close()
