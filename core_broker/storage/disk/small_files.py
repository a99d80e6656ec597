"""The small text files of a data directory, in Kafka's formats: checkpoints, meta.properties, partition.metadata."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ....protocol.primitives import uuid_from_str, uuid_to_str

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
BROKER_EPOCH = "broker-epoch"  # ours: the epoch of the last process, the boot of its machine, who is next
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"

CHECKPOINT_VERSION = "0"
# meta.properties has two versions. Kafka's describes the names and layout of files; Kafka refuses other values, so ours
# changes with Kafka's. Our own describes what the files contain beyond Kafka (metadata record types from 10,000 on,
# producer snapshots of five batches). Kafka ignores it. A directory without it was written by Kafka.
META_VERSION = "1"
FORMAT = "isthmus.format"
FORMAT_VERSION = "1"

Offsets = dict[tuple[str, int], int]  # by topic and partition

_LARGEST = (2**31 - 1, 2**63 - 1)  # of the last two fields, in Kafka's types: partition or epoch; offset


class CheckpointError(Exception):
    """A small file is damaged or has an unknown format; the text names the file and the problem."""


def render_checkpoint(lines: Iterable[str]) -> bytes:
    """Version, number of entries, one line an entry."""
    entries = list(lines)
    return "\n".join((CHECKPOINT_VERSION, str(len(entries)), *entries, "")).encode()


def parse_checkpoint(data: bytes, path: str, fields: int) -> Iterator[list[str]]:
    """The entries of a checkpoint. Each has `fields` words; all but a topic's name are numbers.

    Raises CheckpointError.
    """
    try:
        lines = data.decode().split("\n")
        if lines[0] != CHECKPOINT_VERSION:
            raise CheckpointError(f"{path}: version {lines[0]!r} is not {CHECKPOINT_VERSION}")
        count = int(lines[1])
        entries = [line.split() for line in lines[2:] if line]
        if len(entries) != count or any(len(entry) != fields for entry in entries):
            raise CheckpointError(f"{path}: {len(entries)} entries, some perhaps damaged, but its header says {count}")
        for entry in entries:
            for number, largest in zip(entry[-2:], _LARGEST, strict=True):
                if not 0 <= int(number) <= largest:
                    raise CheckpointError(f"{path}: {number} is not between 0 and {largest}")
    except (IndexError, ValueError) as error:
        raise CheckpointError(f"{path}: not a checkpoint: {error}") from None
    return iter(entries)


def render_offsets(offsets: Offsets) -> bytes:
    return render_checkpoint(f"{topic} {index} {offset}" for (topic, index), offset in sorted(offsets.items()))


def parse_offsets(data: bytes, path: str) -> Offsets:
    return {(topic, int(index)): int(offset) for topic, index, offset in parse_checkpoint(data, path, 3)}


def render_properties(values: dict[str, str]) -> bytes:
    return ("#\n" + "".join(f"{name}={value}\n" for name, value in values.items())).encode()


def parse_properties(data: bytes) -> dict[str, str]:
    """name=value lines; as much of Java's format as the files of a data directory need."""
    values = {}
    for line in data.decode("utf-8", "replace").splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            name, _, value = line.partition("=")
            values[name.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
    return values


def parse_meta_properties(data: bytes, path: str) -> dict[str, str]:
    """The identity of a data directory. Raises CheckpointError if its format is unknown, or if it is damaged."""
    values = parse_properties(data)
    for name, known in (("version", META_VERSION), (FORMAT, FORMAT_VERSION)):
        found = values.get(name, known)
        if found != known:
            raise CheckpointError(
                f"{path}: {name} is {found}, but this release knows only {known}: "
                "use the release that wrote the directory, or another directory"
            )
    missing = [name for name in ("version", "cluster.id", "node.id") if not values.get(name)]
    wrong = f"{', '.join(missing)} missing" if missing else ""
    if not wrong and not re.fullmatch("[0-9]{1,10}", values["node.id"]):
        wrong = f"node.id is {values['node.id']!r}"
    if wrong:  # as in Kafka: a directory without a known owner must not join another cluster
        raise CheckpointError(f"{path} is damaged: {wrong}: restore it from a backup, or choose another directory")
    return values


def render_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_str(topic_id)}".encode()


def parse_partition_metadata(data: bytes, path: str) -> bytes:
    """The topic id that a partition's directory belongs to."""
    values = dict(line.split(": ", 1) for line in data.decode("utf-8", "replace").splitlines() if ": " in line)
    try:
        if values["version"] != "0":
            raise CheckpointError(f"{path}: version {values['version']} is not 0")
        return uuid_from_str(values["topic_id"])
    except KeyError as error:  # a full disk leaves an empty file
        raise CheckpointError(f"{path}: not a partition.metadata file: it has no {error.args[0]}") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: not a partition.metadata file: topic_id: {error}") from None


def partition_of(directory_name: str) -> tuple[str, int] | None:
    """Topic and partition of a directory named `<topic>-<n>`; None for other names."""
    topic, dash, index = directory_name.rpartition("-")
    if not topic or not dash or not index.isascii() or not index.isdigit():
        return None
    return topic, int(index)
