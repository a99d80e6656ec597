"""`__cluster_metadata-0`: the log of all that the cluster agrees on, one batch a decision.

One voter for now, which leads from its start, each time under a new epoch. What is appended is synced before anyone
acts on it, so a decision that was told is never lost. A start reads the newest snapshot and the log from there on.

Where a sync was refused for want of room, the log is opened again as a start does once there is some: a copy of what
was appended is on disk then. What the image lacks of it, which nobody was told of, is decided by that.
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
READ_BYTES = 1 << 20  # at a time while the log is replayed
MAX_BATCH_BYTES = 64 << 20

LOG_CONFIG = LogConfig(cleanup_policy="compact", max_message_bytes=MAX_BATCH_BYTES)


class MetadataLog:
    """Made by `MetadataLog.open`. `epoch` is the leader epoch this voter writes under.

    in_doubt: records were written whose sync failed. Until then an append that raises has left the log as it was.
    on_want_of_room: called when the log went offline until there is room, which somebody is to try by `open_again`.
    """

    def __init__(self, log: Log, runtime: Runtime) -> None:
        self._take(log)
        self.runtime = runtime
        self.on_want_of_room: Callable[[], None] = lambda: None
        self.epoch = log.latest_epoch + 1
        self.in_doubt = False
        self._snapshot_end = 0  # where the newest snapshot ends
        self._snapshot_ms = runtime.wall_ms()  # when it was made, or this start was
        self._unsnapped_bytes = 0  # of records after it

    @classmethod
    async def open(cls, files: Files, data_dir: str, runtime: Runtime) -> MetadataLog:
        """The log in its folder of the data directory, made if it is not there. Raises StorageError."""
        log = await open_log(files, f"{data_dir}/{DIRECTORY}", LOG_CONFIG, wall_ms=runtime.wall_ms())
        return cls(log, runtime)

    def _take(self, log: Log) -> None:
        self.log = log
        self._is_let_go = False
        log.status.hooks = LogHooks(on_failure=self._failed)

    def _failed(self, status: LogStatus, failure: StorageError) -> None:
        if status is self.log.status:
            self.on_want_of_room()

    @property
    def is_new(self) -> bool:
        """Nothing was ever written to it."""
        return self.next_offset == 0

    @property
    def next_offset(self) -> int:
        return self.log.log_end_offset

    async def replay(self, image: MetadataImage) -> dict[bytes, None]:
        """Fold everything that was written into an empty image; gives the ids of the topics that were deleted, as far
        as the log still tells of them.

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
            raise InconsistentRecord(f"{directory}: the log holds offsets {start} to {end}, {snapshot}")
        self._snapshot_end = offset
        for _ in self._fold(fold, offset):
            pass
        self.epoch = max(self.epoch, image.epoch + 1)  # of a log that is empty, the snapshot knows
        return fold.removed

    def _fold(self, fold: Fold, offset: int) -> Iterator[Delta]:
        """Batch after batch, from an offset on."""
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
                raise InconsistentRecord(f"{self.log.directory}: no batch at offset {offset}, though it ends at {end}")

    async def append(self, records: Sequence[Any]) -> int:
        """Write records as one batch, to the disk; the offset of the last. Raises KafkaError.

        When the sync fails nobody knows what the disk holds: the log must not be written again.
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
        """Have the log online after it went offline for want of room, with a copy on disk of all that was appended.

        What may be missing in the image is then for `catch_up`. Raises StorageError, KafkaError, and while there is no
        room: then it may be tried again.
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
        """Fold what was in doubt and is on disk now into the image; gives each change once it is made.

        Raises InconsistentRecord, also where the disk has not kept what the image holds; CorruptBatch, StorageError.
        """
        if self.next_offset <= image.offset:
            self.log.abandon()
            raise InconsistentRecord(
                f"{self.log.directory} ends at offset {self.next_offset}, though {image.offset} was decided"
            )
        yield from self._fold(Fold(image), image.offset + 1)
        self.in_doubt = False

    def wants_snapshot(self, bytes_between: int, interval_ms: int) -> bool:
        """Whether so many bytes of records came since the last, or some did and it is so old (0: however old)."""
        if self._unsnapped_bytes >= bytes_between:
            return True
        return 0 < interval_ms <= self.runtime.wall_ms() - self._snapshot_ms and self._unsnapped_bytes > 0

    async def snapshot(self, image: MetadataImage) -> None:
        """Write a snapshot of an image, which must not change meanwhile, and drop what is before it. Raises KafkaError.

        What is dropped has been applied here; a member of a quorum that is behind takes the snapshot instead.
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
            raise StorageError(error, directory, "cannot make a snapshot in") from error

    async def close(self) -> None:
        await self.log.close()
