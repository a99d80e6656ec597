"""Checks and repairs a whole data directory: its partitions, their checkpoints, and the cluster's metadata.

The metadata says which directories should exist and which topics may have holes in their offsets. A directory written
by Kafka is checked without it. The directory's lock is held all the time.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...protocol.batch_layout import CONTROL, LENGTH_OVERHEAD
from ...protocol.errors import KafkaError
from ...protocol.records import CorruptBatch, decode_batch
from ...runtime import Runtime
from ..cluster.image import InconsistentRecord, MetadataImage
from ..cluster.metadata_log import LOG_CONFIG
from ..cluster.metadata_replay import Fold, fold_snapshot
from ..cluster.topic_names import CLUSTER_METADATA
from ..config import BrokerConfig, topic_config
from ..replication.manager import log_config
from ..storage.check.findings import STAYS, Finding, Kind, Known, PartitionReport, file_of, unread, unreadable
from ..storage.check.partition_check import check_partition
from ..storage.check.repair import repair_partition
from ..storage.disk.files import DirectoryLocked, Files, Held
from ..storage.disk.small_files import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    FORMAT,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK_FILE,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    CheckpointError,
    Offsets,
    parse_meta_properties,
    parse_offsets,
    partition_of,
    render_offsets,
)
from ..storage.log.file_names import LOG_SUFFIX, offset_of
from ..storage.log.log_config import LogConfig
from ..storage.log.scanning import headers
from ..storage.startup.checkpoints import CHECKPOINTS
from ..storage.startup.directories import DELETE_SUFFIX, STRAY_SUFFIX
from ..storage.startup.last_process import clean_marker

METADATA = (CLUSTER_METADATA, 0)
# A check takes the lock and opens logs as a broker does, so it must be able to write.
WAYS_OUT = {
    errno.EACCES: "; run this as the owner of the directory",
    errno.EPERM: "; run this as the owner of the directory",
    errno.EROFS: "; check a copy of it, or make the file system writable",
}

Key = tuple[str, int]  # topic, partition


class CannotCheck(Exception):
    """The directory cannot be checked. The message is one line that names the cause and the solution."""


@dataclass(slots=True)
class Checked:
    """One partition: what was found and, after a repair, what was done and what is still wrong."""

    report: PartitionReport
    known: Known
    stray: bool = False  # belongs to no topic of the cluster: it is never repaired
    late: list[Finding] = field(default_factory=list)  # found after the cluster's metadata was repaired
    done: list[str] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)

    @property
    def stays(self) -> bool:
        """Whether a repair leaves the partition as it is."""
        return self.stray or self.report.has(Kind.UNREADABLE) or self.report.has(Kind.FOREIGN)


class DirectoryCheck:
    """Call `begin`, then exhaust `partitions`, then call `repair` if wanted, and finally `end`."""

    def __init__(self, files: Files, data_dir: str, runtime: Runtime) -> None:
        self.files = files
        self.data_dir = data_dir.rstrip("/") or "/"
        self.runtime = runtime
        self.identity: dict[str, str] = {}
        self.clean = False  # after a clean shutdown
        self.problems: list[Finding] = []  # of the directory itself
        self.notes: list[str] = []
        self.done: list[str] = []  # what a repair did to the directory itself
        self.left: list[Finding] = []
        self.checked: dict[Key, Checked] = {}
        self._saved: dict[str, Offsets] = {}
        self._broken: dict[str, None] = {}  # damaged checkpoints
        self._image: MetadataImage | None = None
        self._lock: Held | None = None

    def _path(self, name: str) -> str:
        return f"{self.data_dir}/{name}"

    def begin(self) -> None:
        """Lock the directory. Raises CannotCheck: not a data directory, unknown format, or in use."""
        path = self._path(META_PROPERTIES)
        try:
            self.files.listdir(self.data_dir)  # without permission it would look as if the directory did not exist
            if not self.files.exists(path):
                raise CannotCheck(f"{self.data_dir} is not a data directory: it has no {META_PROPERTIES}")
            self.identity = parse_meta_properties(self.files.read(path), path)
            self._lock = self.files.lock(self._path(LOCK_FILE))
        except CheckpointError as error:
            raise CannotCheck(str(error)) from None
        except DirectoryLocked as error:
            raise CannotCheck(f"{error}; stop the broker first") from None
        except OSError as error:
            way_out = WAYS_OUT.get(error.errno or 0, "")
            raise CannotCheck(f"{error.filename or path}: {error.strerror}{way_out}") from None
        self.clean = self.files.exists(self._path(CLEAN_SHUTDOWN))
        for name in CHECKPOINTS:
            self._load(name)

    def end(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _load(self, name: str) -> None:
        path = self._path(name)
        self._saved[name] = {}
        try:
            if self.files.exists(path):
                self._saved[name] = parse_offsets(self.files.read(path), path)
        except CheckpointError as error:
            self._broken[name] = None
            self.problems.append(Finding(Kind.CHECKPOINT, name, str(error).partition(": ")[2]))
        except OSError as error:
            self._broken[name] = None
            self.problems.append(unreadable(name, error))

    # --- Check --------------------------------------------------------------------------------------------------------

    def partitions(self) -> Iterator[Checked]:
        """Check one partition after the other, the metadata first; then look for what is missing."""
        names = self.files.listdir(self.data_dir)
        for name in names:
            if name.endswith(DELETE_SUFFIX):
                self.notes.append(f"{name} belongs to a deleted topic; the next start removes it")
            elif name.endswith(STRAY_SUFFIX):
                self.notes.append(f"{name} belongs to no topic; it is kept until you remove it")
        found = {key: None for name in names if (key := partition_of(name)) is not None}
        has_metadata = False
        if METADATA in found:
            checked = self._check(METADATA)
            has_metadata = checked.report.log_end_offset > 0 or checked.stays
            if has_metadata and checked.report.problems and FORMAT in self.identity:
                self.notes.append("the metadata log is damaged or unreadable: the topics of the cluster are unknown")
            elif has_metadata:
                self._read_metadata()
            yield checked
        if not has_metadata and FORMAT in self.identity and found:
            text = "it has no records, so no topic is known: restore it from a backup; no broker starts without it"
            self.problems.append(Finding(Kind.MISSING, f"{METADATA[0]}-{METADATA[1]}", text))
        for key in sorted(found):
            if key != METADATA:
                yield self._check(key)
        self._look_for_missing()
        for name, offsets in self._saved.items():
            for topic, index in sorted(offsets):
                if (topic, index) not in found:
                    self.notes.append(f"{name} names {topic}-{index}, which does not exist; the next start drops it")

    def _check(self, key: Key) -> Checked:
        name = f"{key[0]}-{key[1]}"
        known = self._known(key)
        report = check_partition(self.files, self._path(name), known)
        checked = self.checked[key] = Checked(report, known)
        if key == METADATA:
            return checked
        if self._image is not None and self._image.partition(*key) is None:
            checked.stray = True
            text = "it belongs to no topic of the cluster's metadata; the next start sets it aside"
            if self.clean:
                report.add(Kind.STRAY, "", text)
            else:
                report.notes.append(text)
        elif self.clean and known.recovery_point is None and RECOVERY_POINT_CHECKPOINT not in self._broken:
            report.add(Kind.CHECKPOINT, RECOVERY_POINT_CHECKPOINT, "it has no entry for this partition")
        return checked

    def _known(self, key: Key) -> Known:
        known = Known(
            clean=self.clean,
            recovery_point=self._saved[RECOVERY_POINT_CHECKPOINT].get(key),
            log_start_offset=self._saved[LOG_START_CHECKPOINT].get(key),
            high_watermark=self._saved[HIGH_WATERMARK_CHECKPOINT].get(key),
            first_dirty_offset=self._saved[CLEANER_CHECKPOINT].get(key),
        )
        topic = None if self._image is None else self._image.topics.get(key[0])
        if key == METADATA:
            known.dense, known.compacted = (True, False) if FORMAT in self.identity else (None, None)
        elif topic is not None and key[1] in topic.partitions:
            is_mirror = bool(topic.configs.get("mirror.link"))
            known.compacted = "compact" in topic.configs.get("cleanup.policy", "")
            known.dense = not is_mirror and not known.compacted
            known.topic_id = topic.id
            known.leader_epoch = None if is_mirror else topic.partitions[key[1]].leader_epoch
        return known

    def _read_metadata(self) -> None:
        """Build the image from the metadata log, which must be sound, unless it is Kafka's."""
        if FORMAT not in self.identity:
            self.notes.append("Kafka wrote the directory: its metadata is not read, holes in offsets are accepted")
            return
        directory = self._path(f"{METADATA[0]}-{METADATA[1]}")
        image = MetadataImage(self.identity.get("cluster.id", ""))
        fold = Fold(image)
        try:
            start = fold_snapshot(self.files, directory, fold)
            for name in self.files.listdir(directory):
                if name.endswith(LOG_SUFFIX) and offset_of(name) is not None:
                    file = self.files.open(f"{directory}/{name}", create=False)
                    for position, header in headers(file, 0, False):
                        if header[5] & CONTROL or header[0] < start:
                            continue
                        data = file.pread(header[1] + LENGTH_OVERHEAD, position)
                        fold.apply(decode_batch(data), header[2])
        except (InconsistentRecord, CorruptBatch) as error:
            self.checked[METADATA].report.add(Kind.METADATA, "", f"it cannot be decoded: {error}")
        except OSError as error:
            self.checked[METADATA].report.refused(file_of(error, directory), error)
        else:
            self._image = image

    def _look_for_missing(self) -> None:
        if self._image is None:
            return
        node = int(self.identity.get("node.id", "-1"))
        for name, topic in sorted(self._image.topics.items()):
            for index, partition in topic.partitions.items():
                if (name, index) not in self.checked and node in partition.replicas:
                    text = "the cluster's metadata has this partition, but it has no directory"
                    if self.clean:
                        self.problems.append(Finding(Kind.MISSING, f"{name}-{index}", text))
                    else:
                        self.notes.append(f"{name}-{index}: {text}; the next start creates it")

    # --- Repair -------------------------------------------------------------------------------------------------------

    @property
    def wrong(self) -> int:
        """The number of problems found."""
        return len(self.problems) + sum(len(each.report.problems) for each in self.checked.values())

    @property
    def still_wrong(self) -> int:
        """The number of problems left after a repair."""
        return len(self.left) + sum(len(each.left) for each in self.checked.values())

    async def repair(self) -> Iterator[Checked]:
        """Repair what can be repaired and check it again. Returns the partitions that were changed."""
        touched = []
        marker = self._path(CLEAN_SHUTDOWN)
        if self.clean:
            self.files.unlink(marker)  # until the repair is complete, a start must not trust the files
            self.files.sync_directory(self.data_dir)
        for key in list(self.checked):
            checked = self.checked[key]
            problems = checked.report.problems
            checked.left = list(problems)
            if not checked.stays and any(each.kind not in STAYS for each in problems):
                touched.append(checked)
                await self._repair(key, checked)
                if key == METADATA:
                    self._check_by_mended_metadata()
        self.left = [each for each in self.problems if each.kind in STAYS]
        self._save_checkpoints()
        for key, checked in self.checked.items():
            if checked in touched:
                checked.known = self._known(key)
                again = check_partition(self.files, self._path(f"{key[0]}-{key[1]}"), checked.known)
                checked.left = again.problems + [each for each in checked.report.problems if each.kind is Kind.METADATA]
        if self.clean:
            self.files.write_atomic(marker, clean_marker())
        return iter(touched)

    def _check_by_mended_metadata(self) -> None:
        """Now the topics are known: find the problems that depend on them."""
        mended = self.checked[METADATA]
        if check_partition(self.files, self._path(f"{METADATA[0]}-{METADATA[1]}"), mended.known).problems:
            return
        self._read_metadata()
        if self._image is None:
            return
        for key, before in list(self.checked.items()):
            if key != METADATA:
                checked = self._check(key)
                checked.late = [each for each in checked.report.problems if each not in before.report.problems]
        self._look_for_missing()

    async def _repair(self, key: Key, checked: Checked) -> None:
        directory = self._path(f"{key[0]}-{key[1]}")
        wall_ms = self.runtime.wall_ms()
        try:
            repair = await repair_partition(
                self.files, directory, checked.report, checked.known, self._log_config(key), wall_ms
            )
        except KafkaError as error:
            checked.done.append(f"gave up: {error.message}")
            return
        except OSError as error:
            checked.done.append(f"gave up: {error.filename or directory}: {error.strerror or error}")
            return
        checked.done += repair.done
        if key == METADATA:
            return
        end = repair.log_end_offset
        saved = self._saved
        values = {
            RECOVERY_POINT_CHECKPOINT: end,
            LOG_START_CHECKPOINT: repair.log_start_offset,
            HIGH_WATERMARK_CHECKPOINT: min(saved[HIGH_WATERMARK_CHECKPOINT].get(key, end), end),
            CLEANER_CHECKPOINT: min(saved[CLEANER_CHECKPOINT].get(key, 0), end),
        }
        stay = unread(self.problems)
        for name, offset in values.items():
            if name not in stay and saved[name].get(key, 0 if name == CLEANER_CHECKPOINT else None) != offset:
                before = saved[name].get(key, "nothing")
                checked.done.append(f"{name}: {offset} instead of {before}")
                saved[name][key] = offset

    def _save_checkpoints(self) -> None:
        """Write the checkpoints. A damaged one is rebuilt from the logs, which were read to their ends."""
        stay = unread(self.problems)
        for name in [each for each in CHECKPOINTS if each not in stay]:
            if name in self._broken:
                if self.clean and name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
                    for key, checked in self.checked.items():
                        if key != METADATA:
                            self._saved[name].setdefault(key, checked.report.log_end_offset)
                price = "; records deleted by DeleteRecords may be served again" if name == LOG_START_CHECKPOINT else ""
                self.done.append(f"wrote {name} from the logs{price}")
            if self._saved[name] or name in self._broken:
                self.files.write_atomic(self._path(name), render_offsets(self._saved[name]))

    def _log_config(self, key: Key) -> LogConfig:
        topic = None if self._image is None else self._image.topics.get(key[0])
        if key == METADATA:
            return LOG_CONFIG
        config = BrokerConfig()
        return log_config(topic_config({} if topic is None else topic.configs, config), config)
