"""The directories of partitions: where each is, which topic it names, and its new name when it belongs to no topic.

`t-0` is a partition's directory. `t-0.<unique>-delete` is being deleted (removals.py). `t-0.<unique>-stray` is kept for
a person to look at, because the metadata that does not list it may be what is wrong.
"""

from __future__ import annotations

import logging

from ....protocol.errors import ErrorCode, KafkaError
from ....runtime import Runtime
from ..disk.errors import StorageError
from ..disk.files import Files
from ..disk.small_files import PARTITION_METADATA, CheckpointError, parse_partition_metadata

logger = logging.getLogger(__name__)

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
MAX_NAME = 255  # of a directory

Key = tuple[str, int]  # topic, partition


class PartitionDirectories:
    """The directories of partitions in one data directory."""

    def __init__(self, files: Files, data_dir: str, runtime: Runtime) -> None:
        self._files = files
        self._data_dir = data_dir
        self._runtime = runtime

    def path(self, key: Key) -> str:
        """The path of a partition's directory."""
        return f"{self._data_dir}/{key[0]}-{key[1]}"

    def topic_id(self, key: Key) -> bytes | None:
        """The id of the topic that the directory names; None if it names none. Raises StorageError, KafkaError."""
        path = f"{self.path(key)}/{PARTITION_METADATA}"
        try:
            return parse_partition_metadata(self._files.read(path), path) if self._files.exists(path) else None
        except OSError as error:
            raise StorageError(error, path, "cannot read") from error
        except CheckpointError as error:
            raise KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def readable_id(self, key: Key) -> bytes:
        """The same, but empty if there is no id or it cannot be read."""
        try:
            return self.topic_id(key) or b""
        except KafkaError:
            return b""

    def path_to_delete(self, key: Key) -> str:
        """The new path of the directory once its partition is deleted."""
        return f"{self._data_dir}/{self._aside(key, DELETE_SUFFIX)}"

    def keep_aside(self, key: Key, why: str) -> str:
        """Rename a directory that is not open, and log why. Returns its new name. Raises StorageError."""
        directory = self.path(key)
        name = self._aside(key, STRAY_SUFFIX)
        try:
            self._files.rename(directory, f"{self._data_dir}/{name}")
        except OSError as error:
            raise StorageError(error, directory, "cannot rename") from error
        logger.warning("%s-%d %s; kept as %s", *key, why, name)
        return name

    def _aside(self, key: Key, suffix: str) -> str:
        """A unique name that is no partition's and not too long."""
        unique = f".{self._runtime.uuid().hex()}{suffix}"
        return f"{key[0]}-{key[1]}"[: MAX_NAME - len(unique)] + unique
