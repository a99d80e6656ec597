"""`__cluster_metadata-0`: the log of the cluster's metadata, one batch for each decision, with its snapshots.

The quorum (quorum/, raft/) decides what is in it. Here it is opened, written, read, cut off and replaced by
snapshots. Records are applied to an image only when they are committed.

If a sync failed for lack of disk space, the log is opened again when there is some, as a start does: then a copy of all
that was appended is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...protocol import records as batches
from ...protocol.errors import KafkaError
from ...protocol.messages import control_records
from ...runtime import Runtime
from ..storage.disk.errors import StorageError, fresh_copy
from ..storage.disk.files import Files
from ..storage.log.append import Origin
from ..storage.log.log import AppendInfo, Log
from ..storage.log.log_config import LogConfig
from ..storage.log.status import LogHooks, LogStatus
from ..storage.log.syncing import write_note
from ..storage.startup.opening import open_log
from .features import LATEST, encoded_at
from .image import Delta, InconsistentRecord, MetadataImage
from .metadata_replay import Fold, fold_snapshot
from .metadata_snapshot import encoded, framed, offset_and_epoch, remove_older, snapshot_name, snapshots
from .raft.messages import OffsetAndEpoch
from .raft.voters import ReplicaKey, Voter, VoterChange, VoterHistory, VoterSet, endpoints_of, listed
from .topic_names import CLUSTER_METADATA

DIRECTORY = f"{CLUSTER_METADATA}-0"
READ_BYTES = 1 << 20  # per read while the log is applied or scanned
MAX_BATCH_BYTES = 64 << 20
PARTIAL = "fetched.part"  # a snapshot that is being fetched; a start ignores it

LOG_CONFIG = LogConfig(cleanup_policy="compact", max_message_bytes=MAX_BATCH_BYTES)


class MetadataLog:
    """Created by `MetadataLog.open`. It is the LogView of the quorum's step function.

    in_doubt: records were written, but their sync failed. If it is false, an append that raised has changed nothing.
    on_offline: called when the log went offline; for lack of disk space, somebody must then try `open_again`.
    """

    def __init__(self, log: Log, runtime: Runtime, snapshot: OffsetAndEpoch | None) -> None:
        self.runtime = runtime
        self.snapshot = snapshot
        self.on_offline: Callable[[KafkaError], None] = lambda failure: None
        self.in_doubt = False
        self._take(log)
        self._snapshot_ms = runtime.wall_ms()  # when it was written, or the time of this start
        self._unsnapped_bytes = 0  # of records that were applied after the snapshot

    def _take(self, log: Log) -> None:
        self.log = log
        self._is_let_go = False
        log.status.hooks = LogHooks(on_failure=self._failed, on_broken=self._failed)

    def _failed(self, status: LogStatus, _: StorageError | None = None) -> None:
        if status is self.log.status and self.log.failure is not None:
            self.on_offline(fresh_copy(self.log.failure))

    @classmethod
    async def open(cls, files: Files, data_dir: str, runtime: Runtime) -> MetadataLog:
        """The log in its folder of the data directory, created if it does not exist.

        Raises InconsistentRecord if the log lacks records that no snapshot has, StorageError.
        """
        directory = f"{data_dir}/{DIRECTORY}"
        log = await open_log(files, directory, LOG_CONFIG, wall_ms=runtime.wall_ms())
        try:
            names = await files.run(snapshots, files, directory)
        except OSError as error:
            raise StorageError(error, directory, "cannot read") from error
        made = cls(log, runtime, OffsetAndEpoch(*offset_and_epoch(names[-1])) if names else None)
        await made._begin_after_snapshot()
        return made

    async def _begin_after_snapshot(self) -> None:
        """The log begins at the end of the snapshot; a crash may have come between the two."""
        log, snapshot = self.log, self.snapshot
        offset = 0 if snapshot is None else snapshot.offset
        if log.log_start_offset > offset:
            found = f"its snapshot ends at {offset}" if offset else "there is no snapshot"
            log.abandon()
            raise InconsistentRecord(
                f"{log.directory}: the log has offsets {log.log_start_offset} to {log.log_end_offset}, but {found}"
            )
        if not log.log_start_offset <= offset <= log.log_end_offset:
            await log.reset_to(offset)
        elif offset > log.log_start_offset:
            log.advance_start(offset)

    # --- How far it is: what the step function reads ------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def flushed_offset(self) -> int:
        return min(self.log.recovery_point, self.log.log_end_offset)

    @property
    def last_epoch(self) -> int:
        latest = self.log.latest_epoch
        return max(latest, 0 if self.snapshot is None else self.snapshot.epoch)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch | None:
        found, end = self.log.end_offset_for_epoch(epoch)
        return None if found < 0 else OffsetAndEpoch(end, found)

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written to it."""
        return self.end_offset == 0

    async def format(self, voters: VoterSet) -> None:
        """Note the first voters of a new quorum, as Kafka's `storage format` does: in a snapshot that ends at offset 0.

        The first leader copies them into the log (KIP-853). Raises StorageError.
        """
        assert self.is_new and self.snapshot is None
        controls = [control_records.KRaftVersionRecord(kraft_version=1), voters_record(voters)]
        data = framed([], 0, self.runtime.wall_ms(), controls)
        try:
            await self.log.files.run(self.log.files.write_atomic, f"{self.log.directory}/{snapshot_name(0, 0)}", data)
        except OSError as error:
            raise StorageError(error, self.log.directory, "cannot write a snapshot in") from error
        self.snapshot = OffsetAndEpoch(0, 0)

    # --- Writing ------------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[Any], epoch: int, metadata_version: int = LATEST) -> AppendInfo:
        """Write what a leader has decided, as one batch. metadata_version: what the members can read.

        Raises KafkaError, EncodeError; nothing was written then.
        """
        now = self.runtime.wall_ms()
        rows = [(now, None, encoded_at(record, metadata_version), ()) for record in records]
        return self.log.append(batches.build_batch(rows), Origin.COORDINATOR, epoch, now)

    def append_control(self, records: Sequence[Any], epoch: int) -> list[VoterChange]:
        """Write control records of a leader as one batch. Returns its changes of the voters. Raises KafkaError."""
        now = self.runtime.wall_ms()
        rows = [(now, *control_records.encode(record), ()) for record in records]
        info = self.log.append(batches.build_batch(rows, control=True), Origin.COORDINATOR, epoch, now)
        return list(_changes(enumerate(records, info.first_offset)))

    def append_fetched(self, data: bytes) -> list[VoterChange]:
        """Write whole batches of the leader as they are; half a one at the end is left out.

        Returns the changes of the voters in them. Raises KafkaError.
        """
        self.log.append(data, Origin.REPLICATION, -1, self.runtime.wall_ms(), self.end_offset)
        return list(_changes_in(data))

    async def sync(self) -> None:
        """Put all that was appended on disk. Raises StorageError; the log is offline then."""
        await self.log.sync()

    async def truncate_to(self, offset: int) -> None:
        """Cut off records that another leader has replaced. Raises StorageError."""
        await self.log.truncate_to(offset)

    # --- Reading ------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int = READ_BYTES, end: int | None = None) -> bytes:
        """Batches from the one with this offset on, at least one if there is one. Raises KafkaError."""
        return b"".join([part.read() for part in self.log.read(offset, max_bytes, end).ranges])

    def voters(self, configured: VoterSet) -> VoterHistory:
        """The voters that the snapshot and the log set. It reads all of the log.

        Raises KafkaError, CorruptBatch, DecodeError, OSError.
        """
        history = VoterHistory(configured)
        if self.snapshot is not None:
            path = f"{self.log.directory}/{snapshot_name(*self.snapshot)}"
            history.reset(voters_of_snapshot(self.log.files.read(path), self.snapshot.offset))
        offset = self.start_offset
        while offset < self.end_offset:
            data = self.read(offset)
            history.add(_changes_in(data, offset))
            offset = self._end_in(data, offset)
        return history

    def _end_in(self, data: bytes, offset: int) -> int:
        """Where the last whole batch ends."""
        end = offset
        for _, header in batches.walk(data):
            end = header.last_offset + 1
        if end <= offset:
            raise InconsistentRecord(
                f"{self.log.directory}: no batch at offset {offset}, but it ends at {self.end_offset}"
            )
        return end

    def fold_snapshot(self, fold: Fold) -> int:
        """Apply the snapshot to an empty image. Returns the offset at which the log continues, 0 without snapshot.

        It blocks. Raises InconsistentRecord, CorruptBatch, OSError.
        """
        return fold_snapshot(self.log.files, self.log.directory, fold)

    def fold(self, fold: Fold, offset: int, end: int) -> Iterator[tuple[int, Delta | None]]:
        """Apply the records from an offset on up to `end`. Yields (the offset after it, what has changed) for each
        batch, None for a control batch. Raises InconsistentRecord, CorruptBatch, KafkaError.
        """
        while offset < end:
            data = self.read(offset, READ_BYTES, end)
            start = offset
            for position, header in batches.walk(data):
                if header.last_offset < offset:
                    continue
                offset = header.last_offset + 1
                self.applied(header.size_bytes)
                if header.is_control:
                    yield offset, None
                else:
                    records = batches.decode_batch(data, position)
                    yield offset, fold.apply(records, header.partition_leader_epoch)
            if offset == start:
                raise InconsistentRecord(f"{self.log.directory}: no batch at offset {offset}, but it ends at {end}")

    async def replay(self, image: MetadataImage) -> dict[bytes, None]:
        """Apply everything in the log to an empty image, committed or not: for tools, while no quorum runs.

        Returns the ids of the topics that the log says were deleted. Raises InconsistentRecord, CorruptBatch,
        StorageError.
        """
        fold = Fold(image)
        directory = self.log.directory
        try:
            offset = await self.log.files.run(self.fold_snapshot, fold)
        except OSError as error:
            raise StorageError(error, directory, "cannot read the snapshot in") from error
        for _ in self.fold(fold, offset, self.end_offset):
            pass
        return fold.removed or {}

    # --- Disk space that was short ------------------------------------------------------------------------------------

    async def open_again(self) -> None:
        """Open the log again after it went offline for lack of disk space. A copy of all that was appended is on disk
        then.

        Raises StorageError, KafkaError; as long as disk space is short, it may be tried again.
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
        await self._begin_after_snapshot()
        await self.log.sync()

    # --- Snapshots ----------------------------------------------------------------------------------------------------

    def applied(self, size_bytes: int) -> None:
        """So many bytes of records were applied that are not in a snapshot."""
        self._unsnapped_bytes += size_bytes

    def wants_snapshot(self, bytes_between: int, interval_ms: int) -> bool:
        """Whether there are this many bytes of records since the last snapshot, or any and it is this old."""
        if self._unsnapped_bytes >= bytes_between:
            return True
        return 0 < interval_ms <= self.runtime.wall_ms() - self._snapshot_ms and self._unsnapped_bytes > 0

    async def take_snapshot(self, image: MetadataImage, voters: VoterHistory) -> None:
        """Write a snapshot of an image, which must not change meanwhile, and drop the log before it. Raises KafkaError.

        The dropped records have been applied here; a quorum member that is behind gets the snapshot.
        """
        files, directory, end = self.log.files, self.log.directory, image.offset + 1
        self._snapshot_ms, self._unsnapped_bytes = self.runtime.wall_ms(), 0
        if self.snapshot is not None and end <= self.snapshot.offset:
            return
        path = f"{directory}/{snapshot_name(end, image.epoch)}"
        controls = snapshot_controls(voters, end)
        try:
            data = await files.compute(encoded, image, self._snapshot_ms, controls)
            await files.run(files.write_atomic, path, data)
            self.snapshot = OffsetAndEpoch(end, image.epoch)
            self.log.advance_start(end)
            await self.log.enforce_retention(end, self._snapshot_ms)
            await files.run(remove_older, files, directory)
        except OSError as error:
            raise StorageError(error, directory, "cannot write a snapshot in") from error

    def read_snapshot(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes]:
        """(its size, its bytes at a position). It blocks. Raises OSError; FileNotFoundError if a newer one has taken
        its place."""
        file = self.log.files.open(f"{self.log.directory}/{snapshot_name(*snapshot)}", create=False)
        try:
            return file.size, file.pread(min(max_bytes, max(0, file.size - position)), position)
        finally:
            file.close()

    def write_part(self, position: int, data: bytes) -> None:
        """Write a part of a snapshot that is fetched; position 0 begins one. It blocks. Raises OSError."""
        file = self.log.files.open(f"{self.log.directory}/{PARTIAL}")
        try:
            file.truncate(position)
            file.append([data])
        finally:
            file.close()

    async def take_fetched(self, snapshot: OffsetAndEpoch) -> list[VoterChange]:
        """All parts are written: the snapshot replaces the log. Returns the voters that it sets.

        Raises StorageError, KafkaError.
        """
        files, directory = self.log.files, self.log.directory
        try:
            changes = await files.run(self._keep_fetched, snapshot)
            self.snapshot = snapshot
            await self.log.reset_to(snapshot.offset)
            await files.run(remove_older, files, directory)
        except OSError as error:
            raise StorageError(error, directory, "cannot write a snapshot in") from error
        self._snapshot_ms, self._unsnapped_bytes = self.runtime.wall_ms(), 0
        return changes

    def _keep_fetched(self, snapshot: OffsetAndEpoch) -> list[VoterChange]:
        files, directory = self.log.files, self.log.directory
        partial = f"{directory}/{PARTIAL}"
        data = files.read(partial)
        changes = voters_of_snapshot(data, snapshot.offset)
        files.write_atomic(f"{directory}/{snapshot_name(*snapshot)}", data)
        files.unlink(partial)
        return changes

    async def close(self) -> None:
        await self.log.close()


# --- The voters in control records ------------------------------------------------------------------------------------


def snapshot_controls(voters: VoterHistory, end: int) -> list[Any]:
    """What the header of a snapshot that ends there says of the voters; nothing if they are configured."""
    version = voters.kraft_version_at(end)
    if not version:
        return []
    return [control_records.KRaftVersionRecord(kraft_version=version), voters_record(voters.at(end))]


def voters_record(voters: VoterSet) -> control_records.VotersRecord:
    return control_records.VotersRecord(
        voters=[
            control_records.Voter(
                voter_id=voter.key.id,
                voter_directory_id=voter.key.directory_id,
                endpoints=listed(voter.endpoints, control_records.VoterEndpoint),
                kraft_version_feature=control_records.KRaftVersionFeature(
                    min_supported_version=voter.kraft_versions[0], max_supported_version=voter.kraft_versions[1]
                ),
            )
            for voter in voters.voters
        ]
    )


def _voter_set(record: control_records.VotersRecord) -> VoterSet:
    return VoterSet.of(
        Voter(
            ReplicaKey(each.voter_id, each.voter_directory_id),
            endpoints_of(each.endpoints),
            (each.kraft_version_feature.min_supported_version, each.kraft_version_feature.max_supported_version),
        )
        for each in record.voters
    )


def _changes(records: Any) -> Iterator[VoterChange]:
    """Of (offset, control record)."""
    for offset, record in records:
        if isinstance(record, control_records.VotersRecord):
            yield VoterChange(offset, voters=_voter_set(record))
        elif isinstance(record, control_records.KRaftVersionRecord):
            yield VoterChange(offset, kraft_version=record.kraft_version)


def _changes_in(data: bytes, offset: int = 0) -> Iterator[VoterChange]:
    """Of whole batches, from an offset on. Raises CorruptBatch, DecodeError."""
    for position, header in batches.walk(data):
        if header.is_control and header.last_offset >= offset:
            found = batches.decode_batch(data, position)
            yield from _changes((each.offset, control_records.decode(each.key, each.value)) for each in found)


def voters_of_snapshot(data: bytes, end: int) -> list[VoterChange]:
    """The voters that the header of a snapshot sets."""
    return [VoterChange(end - 1, each.voters, each.kraft_version) for each in _changes_in(data)]
