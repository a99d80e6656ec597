"""All logs of one data directory, and the small files beside them.

A directory belongs to one node of one cluster (meta.properties) and to one process at a time (.lock). The checkpoints
record how far each log is on disk, where it starts, and its high watermark (startup/checkpoints.py). After a clean
shutdown a marker file tells the next start to trust what it finds. Periodic work is in upkeep/.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.primitives import uuid_to_str
from ...runtime import Runtime
from .disk.errors import StorageError
from .disk.files import DirectoryLocked, Files, Held, make_directory
from .disk.small_files import LOCK_FILE, META_PROPERTIES, partition_of
from .log.aborted_indexes import AbortedIndexes
from .log.closing import VOLUME_LOGS_MIN, close_logs
from .log.index_window import IndexWindows
from .log.log import Log
from .log.log_config import LogConfig
from .log.status import LogHooks, LogStatus
from .log.syncing import write_note
from .startup.checkpoints import Checkpoints
from .startup.directories import DELETE_SUFFIX, PartitionDirectories
from .startup.identity import identify
from .startup.last_process import LastProcess
from .startup.opening import LogToOpen, OfOtherTopic, Points, open_or_make
from .upkeep.at_once import together
from .upkeep.cleaner import Cleaner, CleanerConfig
from .upkeep.duties import Duties, Job
from .upkeep.removals import Removals, rename_all

logger = logging.getLogger(__name__)

METADATA_TOPIC = "__cluster_metadata"  # its log is in this directory too, but is not a partition's
OPEN_AT_ONCE = 32  # logs that one thread opens in one call
PARTS_A_THREAD = 64  # the least number, when logs are opened after a crash
DELETE_AT_ONCE = 128  # logs that are closed in one turn of the loop, and renamed by one call of the pool

Key = tuple[str, int]  # topic, partition
Opened = Callable[[LogToOpen, Log | KafkaError], None]  # called for each log, with the error if it cannot be opened


@dataclass(slots=True, frozen=True, kw_only=True)
class ManagerConfig:
    """The broker options of a data directory."""

    recovery_threads: int = 2  # threads that open logs at once
    checkpoint_interval_ms: int = 60_000  # log.flush.offset.checkpoint.interval.ms
    log_start_interval_ms: int = 60_000  # log.flush.start.offset.checkpoint.interval.ms
    high_watermark_interval_ms: int = 5_000
    retention_interval_ms: int = 300_000
    file_delete_delay_ms: int = 60_000  # log.segment.delete.delay.ms
    volume_logs_min: int = VOLUME_LOGS_MIN  # with this many logs or more, a stop syncs the whole volume at once
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)


class LogManager:
    """Call `open`, then `open_logs` or `create` for the logs that are needed, then `start`; `close` at the end.

    A log reports its changes by `on_change`. The periodic work looks only at logs that have changed.

    logs: all open ones by (topic, partition). cluster_id, node_id, directory_id: from meta.properties.
    last_process: what it left for this one, and what this one leaves.
    high_watermark_of: set by the owner of the partitions; returns a partition's high watermark, None if unknown.
    is_broken: set by the owner; called for a log that is offline until the next start.
    on_shortage: set by the owner; called for a log that is offline for lack of disk space, descriptors or memory. The
    owner calls `let_go`, and opens the log again when the resource is available.
    removed: set before logs are opened; ids of topics that are known to be deleted.
    """

    def __init__(self, files: Files, data_dir: str, runtime: Runtime, config: ManagerConfig | None = None) -> None:
        self.files = files
        self.data_dir = data_dir
        self.runtime = runtime
        self.config = config or ManagerConfig()
        self.logs: dict[Key, Log] = {}
        self.cluster_id = ""
        self.directory_id = ""
        self.was_clean = False
        self.last_process = LastProcess(files, data_dir)
        self.high_watermark_of: Callable[[str, int], int | None] = lambda topic, index: None
        self.on_shortage: Callable[[str, int, StorageError], None] | None = None
        self.is_broken: Callable[[str, int], None] = lambda topic, index: None
        self.removed: Container[bytes] = ()
        self._directories = PartitionDirectories(files, data_dir, runtime)
        self._windows = IndexWindows()  # of all logs
        self._aborted_indexes = AbortedIndexes()
        self._lock: Held | None = None
        self.checkpoints = Checkpoints(files, data_dir, self._high_watermark)
        self._is_open = False
        self._unopened: dict[Key, None] = {}  # directories found at the start and not opened yet
        self._half_made: dict[Key, None] = {}  # failed to open; a directory may exist that is not on disk yet
        self._doubtful: dict[Key, KafkaError] = {}  # closed after this error, to be opened again
        self._compacted: dict[Key, Log] = {}
        self.duties = Duties(
            self.logs,
            runtime,
            self._high_watermark,
            [
                Job("recovery points", self.config.checkpoint_interval_ms, self.checkpoints.save_recovery_points),
                Job("log starts", self.config.log_start_interval_ms, self.checkpoints.save_log_starts),
                Job("high watermarks", self.config.high_watermark_interval_ms, self.checkpoints.save_high_watermarks),
            ],
            self.config.retention_interval_ms,
        )
        self.removals = Removals(files, self.config.file_delete_delay_ms)
        self._started = False
        # One object for all logs.
        self._hooks = LogHooks(
            save_points=self.checkpoints.save_points,
            on_roll=self._rolled,
            on_change=self._changed,
            on_broken=self._broken,
        )
        self.cleaner = Cleaner(
            self._compacted,
            self.config.cleaner,
            runtime,
            self._last_stable_offset,
            self.checkpoints.save_first_dirty_offsets,
        )

    # --- The directory ------------------------------------------------------------------------------------------------

    async def open(self, node_id: int, cluster_id: str | None = None, new_directory_id: str | None = None) -> None:
        """Take the data directory; create it if it does not exist. cluster_id: the expected id; None accepts any.
        new_directory_id: what a new one gets, see `identify`.

        Raises KafkaError: the directory is in use, belongs to another node or cluster, or cannot be read.
        """
        try:
            await self.files.run(make_directory, self.files, self.data_dir)
            self._lock = self.files.lock(self._path(LOCK_FILE))
            path = self._path(META_PROPERTIES)
            self.cluster_id, self.directory_id = identify(
                self.files, path, node_id, cluster_id, self.runtime, new_directory_id
            )
            for directory in await self.files.run(self._tidy):
                self.removals.add(directory)
            self.was_clean &= self.checkpoints.load()
            # Old entries must not be applied to a later log of the same name. The marker must not come back after a
            # crash, when logs were not closed. A partition that a killed process created may be in the page cache
            # only. Writing a file also syncs the directory, which makes all three changes durable.
            has_written = await self.checkpoints.keep_only(self._unopened)
            if not has_written:
                await self.files.run(self.files.sync_directory, self.data_dir)
            self._is_open = True
        except DirectoryLocked as error:
            raise KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except OSError as error:
            self._release()
            raise StorageError(error, self.data_dir, "cannot use the data directory") from error
        except KafkaError:
            self._release()
            raise

    def _path(self, name: str) -> str:
        return f"{self.data_dir}/{name}"

    def _tidy(self) -> list[str]:
        """Look at what is in the directory. Returns the directories that are still to be removed."""
        doomed = []
        for name in self.files.listdir(self.data_dir):
            if name.endswith(DELETE_SUFFIX):
                doomed.append(self._path(name))
            elif name.endswith(".tmp"):
                try:
                    self.files.unlink(self._path(name))
                except OSError as error:  # it only costs disk space, so opening goes on
                    logger.error("%s", StorageError(error, self._path(name), "cannot remove").message)
            elif (key := partition_of(name)) is not None and key[0] != METADATA_TOPIC:
                self._unopened[key] = None
        self.last_process.take()
        self.was_clean = self.last_process.was_clean
        return doomed

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # --- Logs ---------------------------------------------------------------------------------------------------------

    def found(self) -> list[Key]:
        """Partitions that have a directory here, open or not, sorted."""
        return sorted([*self._unopened, *self.logs])

    def topic_id(self, topic: str, index: int) -> bytes | None:
        """The topic id in a partition's directory; None if there is none. Raises StorageError, KafkaError."""
        return self._directories.topic_id((topic, index))

    def get(self, topic: str, index: int) -> Log | None:
        return self.logs.get((topic, index))

    async def open_logs(self, wanted: Sequence[LogToOpen], opened: Opened = lambda each, log: None) -> None:
        """Open logs; create those that do not exist. `opened` is called for each with the log or with the error.

        A directory of another topic is renamed first, see `set_aside`.
        """
        threads = asyncio.Semaphore(self.config.recovery_threads)
        at_once = OPEN_AT_ONCE
        if self._unopened and not self.was_clean:
            # Each log may have gigabytes to read. The pool's threads share the logs in parts of similar length.
            at_once = max(1, min(at_once, len(wanted) // (self.config.recovery_threads * PARTS_A_THREAD)))

        async def open_some(some: Sequence[LogToOpen]) -> None:
            async with threads:
                await self._open_some(some, opened)

        await together(open_some(wanted[start : start + at_once]) for start in range(0, len(wanted), at_once))

    async def _open_some(self, wanted: Sequence[LogToOpen], opened: Opened) -> None:
        jobs = []
        for each in wanted:
            key = each.topic, each.partition
            if key in self.logs:
                try:
                    is_same = self.topic_id(*key) in (None, each.topic_id)
                except KafkaError as error:
                    opened(each, error)
                    continue
                if is_same:
                    self.logs[key].configure(each.config)  # the options may have changed since
                    opened(each, self.logs[key])
                    continue
            is_clean = self.was_clean and key in self._unopened
            is_named = key not in self._half_made
            said = self.checkpoints
            offsets = said.recovery_points[key], said.log_starts[key], said.first_dirty_offsets[key]
            points = Points(*offsets, is_clean, is_named)
            jobs.append((self._directories.path(key), each, points))
        wall_ms = self.runtime.wall_ms()
        found = await self.files.run(open_or_make, self.files, self.data_dir, jobs, wall_ms)
        is_cut = False
        for (directory, each, points), loaded in zip(jobs, found, strict=True):
            key = each.topic, each.partition
            result: Log | KafkaError
            if isinstance(loaded, OfOtherTopic):
                try:
                    await self._give_way(key)
                    result = await self.create(*each)
                except KafkaError as error:
                    result = error
            elif isinstance(loaded, KafkaError):
                result = loaded
                self._half_made[key] = None
            else:
                result = self._take(key, Log(self.files, directory, each.config, loaded, wall_ms))
                is_cut |= result.recovery_point < points.recovery_point
            opened(each, result)
        if is_cut:
            # The old recovery points would cover offsets that are lost and will be written again.
            await self.checkpoints.save_recovery_points()

    def _take(self, key: Key, log: Log) -> Log:
        """Add a log that was opened to those of this directory."""
        self._hooks.on_failure = self._failed if self.on_shortage is not None else None
        log.status.hooks = self._hooks
        log.ranges.windows = self._windows
        log.ranges.aborted_indexes = self._aborted_indexes
        self.logs[key] = log
        self._unopened.pop(key, None)
        self._half_made.pop(key, None)
        self._doubtful.pop(key, None)
        self._note(key, log)
        return log

    async def create(self, topic: str, index: int, topic_id: bytes, config: LogConfig) -> Log:
        """The open log of a partition, created if it does not exist. Raises KafkaError."""
        results: list[Log | KafkaError] = []
        await self.open_logs([LogToOpen(topic, index, topic_id, config)], lambda each, log: results.append(log))
        (result,) = results
        if isinstance(result, KafkaError):
            raise result
        return result

    async def let_go(self, topic: str, index: int) -> None:
        """Close a log that went offline, so that the next `open_logs` recovers it as a start would.

        The recovery reads from the recovery point on, and writes a copy of that to disk, because after a failed sync
        it is unknown what the disk has. The old log must not be used any more. Raises StorageError if there is no disk
        space for the file that records the failed sync.
        """
        key = topic, index
        log = self.logs[key]
        assert log.failure is not None
        try:
            await self.files.run(write_note, self.files, log.directory, log.failure.message)
        except OSError as error:
            raise StorageError(error, log.directory, "cannot write in") from error
        if self.logs.get(key) is log:
            del self.logs[key]
            self.checkpoints.leave(key)
            self.duties.forget(key)
            self._compacted.pop(key, None)
            self._doubtful[key] = log.failure
            self._half_made[key] = None  # the file with its topic id may not be on disk either
            await log.leave()

    async def delete(self, topic: str, index: int) -> None:
        """Delete a partition's log, open or not. Raises StorageError."""
        await self.delete_logs([(topic, index)])

    async def delete_logs(self, keys: Sequence[Key]) -> None:
        """Delete logs, open or not. When this returns, no start will find them, even after a crash.

        Their files are removed later, see removals.py. If some logs cannot be deleted, the others are deleted first;
        then the StorageError of the first is raised.
        """
        failures: list[KafkaError] = []
        doomed: list[str] = []
        for start in range(0, len(keys), DELETE_AT_ONCE):
            names = []
            for key in keys[start : start + DELETE_AT_ONCE]:
                log = self.logs.pop(key, None)
                self._forget(key)
                if log is not None:
                    await log.leave()  # a new topic of this name may soon use the same paths
                names.append((self._directories.path(key), self._directories.path_to_delete(key)))
            renamed, failed = await self.files.run(rename_all, self.files, names)
            doomed += renamed
            failures += failed
        if doomed:
            try:
                await self._settle_names()
            except KafkaError as error:
                failures.append(error)  # the old names may come back after a crash: the files stay
            else:
                for directory in doomed:
                    self.removals.add(directory)
        if failures:
            raise failures[0]

    async def _settle_names(self) -> None:
        """Sync the directory, so that the logs stay deleted and no checkpoint applies to later logs of their names."""
        await self.checkpoints.save()
        try:
            await self.files.run(self.files.sync_directory, self.data_dir)
        except OSError as error:
            raise StorageError(error, self.data_dir, "cannot sync") from error

    async def set_aside(self, is_stray: Callable[[str, int], bool]) -> list[str]:
        """Rename the directories that are not open and for which `is_stray` is true. Returns their new names.

        Their data is kept, because it may be the metadata that is wrong. If the topic's id is in `removed`, the topic
        was deleted and a crash came before its directory was: that directory is deleted. A directory that cannot be
        renamed stays; it has another topic's id, so it is renamed when a topic needs its name.
        """
        doomed = [
            key for key in self._unopened if is_stray(*key) and self._directories.readable_id(key) in self.removed
        ]
        if doomed:
            try:
                await self.delete_logs(doomed)
            except KafkaError as error:
                logger.error("%s", error.message)
        renamed = []
        for key in [key for key in self._unopened if is_stray(*key)]:
            try:
                renamed.append(self._keep_aside(key, "belongs to no topic"))
            except StorageError as error:
                logger.error("%s", error.message)
        return renamed

    async def _give_way(self, key: Key) -> None:
        """Rename the directory of another topic that has the name of this partition. Raises StorageError."""
        if (other := self._directories.readable_id(key)) in self.removed:
            await self.delete(*key)
        else:
            if (log := self.logs.pop(key, None)) is not None:
                await log.leave()
            self._keep_aside(key, f"names another topic, {uuid_to_str(other)}")
            await self._settle_names()

    def _keep_aside(self, key: Key, why: str) -> str:
        """Rename a directory that is not opened, and return its new name. Raises StorageError."""
        name = self._directories.keep_aside(key, why)
        self._forget(key)
        return name

    def _forget(self, key: Key) -> None:
        self._unopened.pop(key, None)
        self._half_made.pop(key, None)
        self._doubtful.pop(key, None)
        self.checkpoints.forget(key)
        self._compacted.pop(key, None)
        self.duties.forget(key)

    def _ours(self, status: LogStatus) -> tuple[Key, Log] | None:
        """The partition and the log that a status belongs to; None if the log is not open here."""
        key = partition_of(status.name)
        if key is not None and (found := self.logs.get(key)) is not None and found.status is status:
            return key, found
        return None

    def _changed(self, status: LogStatus) -> None:
        if ours := self._ours(status):
            self._note(*ours)

    def _note(self, key: Key, log: Log) -> None:
        """A log has changed: the periodic work is to look at it."""
        self.checkpoints.note(key, log)
        self.duties.note(key, log)
        if log.config.compacts:
            self._compacted[key] = log
        else:
            self._compacted.pop(key, None)

    def _failed(self, status: LogStatus, failure: StorageError) -> None:
        self.last_process.doubt()
        if self.on_shortage is not None and (ours := self._ours(status)):
            self.on_shortage(*ours[0], failure)

    def _broken(self, status: LogStatus) -> None:
        self.last_process.doubt()
        if ours := self._ours(status):
            self.is_broken(*ours[0])

    def _rolled(self, status: LogStatus) -> None:
        if ours := self._ours(status):
            self.duties.rolled(*ours)

    def _high_watermark(self, key: Key, log: Log) -> int:
        known = self.high_watermark_of(*key)
        return log.log_end_offset if known is None else known

    def _last_stable_offset(self, key: Key, log: Log) -> int:
        return log.stable_offset(self._high_watermark(key, log))

    # --- Periodic work ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the periodic work; `close` ends it."""
        if not self._started:
            self._started = True
            self.duties.start(self.data_dir)
            self.removals.start(self.data_dir)
            self.cleaner.start()

    async def enforce_retention(self) -> None:
        """Delete old segments of all logs. If that fails for a log, the error is logged and the others go on."""
        await self.duties.enforce_retention()

    # --- Shutdown -----------------------------------------------------------------------------------------------------

    async def close(self) -> list[KafkaError]:
        """A clean shutdown: sync and close all logs, save the checkpoints, and write the marker if all succeeded.

        Returns the errors, including those of logs that went offline before.
        """
        if self._started:
            await self.duties.stop()
            await self.removals.stop()
            await self.cleaner.stop()
        if self._lock is None:
            return []
        if not self._is_open:  # `open` did not finish
            self._release()
            return []
        logs = list(self.logs.values())
        clean = all(log.failure is None for log in logs) and not self._doubtful
        clean = clean and (self.was_clean or not self._unopened)
        unwritten = [log.failure for log in logs if log.failure is not None and not log.is_on_disk]
        unwritten += self._doubtful.values()
        failures = await close_logs(self.files, logs, self._lock.sync_volume, self.config.volume_logs_min)
        clean &= not failures
        try:
            await self.checkpoints.save()
            if clean:
                await self.last_process.mark_clean()
        except KafkaError as error:
            failures.append(error)
        for failure in failures:
            logger.error("closing: %s", failure.message)
        self.logs.clear()
        self._release()
        return unwritten + failures
