"""The folder of a savepoint.

    manifest.json                  what is in it; written last, so that a folder without it is no savepoint
    tables/<table>/<n>.batches     rows of partition n of a table's changelog, the last of a key counts
    topics/<topic>/<n>.batches     records of a topic between two steps that no step has read yet

A `.batches` file has record batches as Kafka's segments have them (format v2, lz4), with offsets from 0. The manifest
has the number of records, the bytes and the SHA-256 of each.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from ...protocol import records
from ...protocol.records import CorruptBatch
from ..errors import AppError

FORMAT = 1
MANIFEST = "manifest.json"
CODEC = "lz4"
BATCH_BYTES_MAX = 1 << 20  # before compression
READ_BYTES = 4 << 20  # of a file at a time

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Part:
    """A file: the records of one partition. marker: of a table, the marker of its last checkpoint as it was written;
    None where the partition had none."""

    partition: int
    file: str
    records: int
    bytes: int
    sha256: str
    marker: str | None = None


@dataclass(frozen=True)
class Topic:
    """A topic of the app, by the name that it had. options: those that were set for it."""

    name: str
    partitions: int
    options: Mapping[str, str]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Reached:
    """Up to where an input partition is in the state. timestamp_ms: of the first record that is not, or where there
    was none, later than all that are; -1 if that is not known."""

    offset: int
    leader_epoch: int = -1
    timestamp_ms: int = -1


@dataclass(frozen=True)
class Input:
    """A topic that the app reads. topic_id: as text; empty where the cluster has none. unread: partitions that have
    records that are not in the state, or of which that could not be found out; None: nobody has looked."""

    topic_id: str
    partitions: int
    reached: Mapping[int, Reached]
    unread: Sequence[int] | None = None


@dataclass(frozen=True)
class Manifest:
    """app: its id. cluster_id: of the cluster that it was taken from. tables, inputs: by name; between: topics between
    steps, by name. Positions of inputs are those of the tables, and of the group where a step has none."""

    app: str
    cluster_id: str
    taken_ms: int
    tables: Mapping[str, Topic] = field(default_factory=dict)
    between: Mapping[str, Topic] = field(default_factory=dict)
    inputs: Mapping[str, Input] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(part.records for table in self.tables.values() for part in table.parts)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for each in self.topics for part in each.parts)

    @property
    def topics(self) -> list[Topic]:
        return [*self.tables.values(), *self.between.values()]


class Snapshot(NamedTuple):
    """A place in a file that is being written, to which it can be cut."""

    bytes: int
    records: int
    digest: Any


class PartWriter:
    """Writes one `.batches` file."""

    def __init__(self, folder: Path, file: str) -> None:
        self.file = file
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        self._out = open(path, "wb")  # noqa: SIM115  (closed by `close` or `abandon`)
        self._at = Snapshot(0, 0, hashlib.sha256())

    def write(
        self,
        timestamps: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[Headers] | None = None,
    ) -> None:
        """Append records, as columns of one length. Timestamps in ms. headers: None where no record has any."""
        if headers is None:
            for data in records.build_columns(
                timestamps, keys, values, CODEC, max_bytes=BATCH_BYTES_MAX, base_offset=self._at.records
            ):
                self._append(data)
            self._at = self._at._replace(records=self._at.records + len(keys))
            return
        builder = self._new_builder()
        for record in zip(timestamps, keys, values, headers, strict=True):
            if not builder.append(*record):
                self._append(builder.build())
                builder = self._new_builder()
                builder.append(*record)  # the first one of a batch fits, whatever its size
            self._at = self._at._replace(records=self._at.records + 1)
        if builder.count:
            self._append(builder.build())

    def _new_builder(self) -> records.BatchBuilder:
        return records.BatchBuilder(CODEC, max_bytes=BATCH_BYTES_MAX, base_offset=self._at.records)

    def _append(self, data: bytes) -> None:
        self._out.write(data)
        self._at.digest.update(data)
        self._at = self._at._replace(bytes=self._at.bytes + len(data))

    def snapshot(self) -> Snapshot:
        return self._at._replace(digest=self._at.digest.copy())

    def cut(self, to: Snapshot) -> None:
        """Take back what was written since."""
        self._out.seek(to.bytes)
        self._out.truncate()
        self._at = to._replace(digest=to.digest.copy())

    def close(self, partition: int, marker: bytes | None = None) -> Part:
        """Everything is on the disk afterwards."""
        self._out.flush()
        os.fsync(self._out.fileno())
        self._out.close()
        said = None if marker is None else marker.decode()
        return Part(partition, self.file, self._at.records, self._at.bytes, self._at.digest.hexdigest(), said)

    def abandon(self) -> None:
        self._out.close()


class Savepoint:
    """A folder that has a savepoint."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    @classmethod
    def open(cls, folder: Path) -> Savepoint:
        """Raises AppError for a folder that has none, or one that this release does not read."""
        try:
            said = orjson.loads((folder / MANIFEST).read_bytes())
            if said["format"] != FORMAT:
                raise AppError(f"{folder} is a savepoint of format {said['format']}; this release reads {FORMAT}")
            return cls(folder, _manifest(said))
        except (FileNotFoundError, NotADirectoryError):
            raise AppError(
                f"{folder} is no savepoint: it has no {MANIFEST}. If one was begun there, it was not finished: take it "
                "again"
            ) from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise AppError(f"{folder / MANIFEST} cannot be read: {type(error).__name__}: {error}") from error

    def batches(self, part: Part) -> Iterator[memoryview]:
        """Whole batches, some at a time."""
        rest = b""
        try:
            with open(self.folder / part.file, "rb") as file:
                while data := file.read(READ_BYTES):
                    rest += data
                    whole = 0
                    for position, header in records.walk(rest):
                        whole = position + header.size_bytes
                    if whole:
                        yield memoryview(rest)[:whole]
                        rest = rest[whole:]
        except FileNotFoundError:
            raise AppError(f"savepoint {self.folder} lacks {part.file}: copy it again as a whole") from None
        except CorruptBatch as error:
            raise AppError(f"{self.folder / part.file} is damaged: {error}") from error
        if rest:
            raise AppError(f"{self.folder / part.file} is damaged: it ends within a batch")

    def read(self, part: Part) -> Iterator[records.ListsWithHeaders]:
        """Its records in order, some batches at a time. Raises AppError for a damaged file."""
        for data in self.batches(part):
            try:
                yield records.decode_lists_with_headers(data)
            except CorruptBatch as error:
                raise AppError(f"{self.folder / part.file} is damaged: {error}") from error

    def check(self) -> None:
        """Read everything once. Raises AppError for a file that is not what the manifest says."""
        for topic in self.manifest.topics:
            for part in topic.parts:
                digest, path = hashlib.sha256(), self.folder / part.file
                try:
                    with open(path, "rb") as file:
                        while data := file.read(READ_BYTES):
                            digest.update(data)
                except FileNotFoundError:
                    raise AppError(f"savepoint {self.folder} lacks {part.file}: copy it again as a whole") from None
                if digest.hexdigest() != part.sha256:
                    raise AppError(f"{path} is not the file that was saved: its SHA-256 is another one")


def begin(folder: Path) -> None:
    """Make the folder for a new savepoint. Raises AppError where there is something in it, or it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        said = "there is a file of this name" if isinstance(error, FileExistsError) else error.strerror
        raise AppError(f"{folder} cannot be made: {said}") from error
    if any(folder.iterdir()):
        raise AppError(f"{folder} is not empty: name another folder, or remove it")


def finish(folder: Path, manifest: Manifest) -> Savepoint:
    """Write the manifest: from now on the folder is a savepoint."""
    data = orjson.dumps({"format": FORMAT, **asdict(manifest)}, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
    new = folder / f"{MANIFEST}.new"
    with open(new, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, folder / MANIFEST)
    for directory in (folder, *(each for each in folder.rglob("*") if each.is_dir())):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return Savepoint(folder, manifest)


def file_of(kind: str, name: str, partition: int) -> str:
    """kind: `tables` or `topics`."""
    return f"{kind}/{name}/{partition}.batches"


def _manifest(said: Mapping[str, Any]) -> Manifest:
    return Manifest(
        said["app"],
        said["cluster_id"],
        said["taken_ms"],
        {name: _topic(each) for name, each in said["tables"].items()},
        {name: _topic(each) for name, each in said["between"].items()},
        {name: _input(each) for name, each in said["inputs"].items()},
    )


def _topic(said: Mapping[str, Any]) -> Topic:
    parts: Sequence[Part] = [Part(**each) for each in said["parts"]]
    return Topic(said["name"], said["partitions"], said["options"], tuple(parts))


def _input(said: Mapping[str, Any]) -> Input:
    reached = {int(partition): Reached(**each) for partition, each in said["reached"].items()}
    return Input(said["topic_id"], said["partitions"], reached, said.get("unread"))
