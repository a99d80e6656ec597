"""The partitions that this broker holds: opened, changed and closed as the metadata image says.

`apply(delta)` is awaited by the controller before a command is answered, so a topic that was just created can be
written to. Leader epochs, in-sync replicas and options reach the partitions here and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...runtime import Runtime
from ..cluster.image import Delta, MetadataImage, PartitionImage, TopicImage
from ..config import BrokerConfig, topic_config
from ..storage.config import LogConfig
from ..storage.errors import StorageError
from ..storage.files import Volume
from ..storage.manager import LogManager
from .partition import Partition
from .traffic import Traffic

log = logging.getLogger(__name__)

OPEN_AT_ONCE = 16  # partitions of one change that are opened side by side
_LOG_OPTIONS = tuple(field.name for field in fields(LogConfig))


def log_config(options: Mapping[str, Any], config: BrokerConfig) -> LogConfig:
    """What a log needs of its topic's options."""
    given = {name: options[option] for name in _LOG_OPTIONS if (option := name.replace("_", ".")) in options}
    given["cleanup_policy"] = ",".join(options["cleanup.policy"])
    given["producer_id_expiration_ms"] = config["producer.id.expiration.ms"]
    return LogConfig(**given)


class ReplicaManager:
    """See the module. `partitions[topic][index]` is for handlers to read."""

    def __init__(
        self, image: MetadataImage, logs: LogManager, config: BrokerConfig, runtime: Runtime, node_id: int
    ) -> None:
        self.partitions: dict[str, dict[int, Partition]] = {}
        self.gone = Traffic()  # of partitions that were deleted
        self._offline: dict[tuple[str, int], KafkaError] = {}  # those whose logs could not be opened
        self._image = image
        self._logs = logs
        self._config = config
        self._runtime = runtime
        self._node_id = node_id
        logs.high_watermark_of = self._high_watermark

    def _high_watermark(self, topic: str, index: int) -> int | None:
        partition = self.partitions.get(topic, {}).get(index)
        return None if partition is None else partition.high_watermark

    def get(self, topic: str, index: int) -> Partition:
        """The partition, led by this broker. Raises KafkaError."""
        partition = self.partitions.get(topic, {}).get(index)
        if partition is not None:
            return partition
        raise self.why_missing(topic, index)

    def why_missing(self, topic: str, index: int) -> KafkaError:
        """Why a partition is not in `partitions`."""
        image = self._image.partition(topic, index)
        if image is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index}")
        failure = self._offline.get((topic, index))
        if failure is not None:
            return failure.with_traceback(None)  # that of the last raise would be added to, and hold its request
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is led by broker {image.leader}")

    partition = get  # as coordinators call it

    def offline(self) -> dict[tuple[str, int], str]:
        """Why partitions that should be here cannot be used, by topic and index: not opened, or failed since."""
        reasons = {key: error.message for key, error in self._offline.items()}
        for indexes in self.partitions.values():
            for partition in indexes.values():
                failure = partition.failure or partition.log.failure
                if failure is not None:
                    reasons[partition.topic, partition.index] = failure.message
        return dict(sorted(reasons.items()))

    async def save_log_starts(self) -> None:
        """Put on disk where logs start, so that records that were deleted stay deleted. Raises StorageError."""
        await self._logs.save_log_starts()

    async def volume(self) -> Volume:
        """The data directory and its volume. Raises StorageError."""
        try:
            return await self._logs.files.run(self._logs.files.volume, self._logs.data_dir)
        except OSError as error:
            raise StorageError(error, self._logs.data_dir, "cannot look at") from error

    @property
    def data_dir(self) -> str:
        return self._logs.data_dir

    async def apply(self, delta: Delta) -> None:
        """Follow a change of the image."""
        for name, deleted in delta.deleted.items():
            await self._delete(deleted)
            if name in delta.changed:
                log.info("topic %s was deleted and created again", name)
        opening: list[tuple[TopicImage, int]] = []
        for name, indexes in delta.changed.items():
            topic = self._image.topics[name]
            for index in indexes:
                partition = self.partitions.get(name, {}).get(index)
                if partition is None:
                    if topic.partitions[index].leader == self._node_id:
                        opening.append((topic, index))
                else:
                    _follow(partition, topic.partitions[index])
        for name in self._image.topics if self._options_changed(delta) else delta.reconfigured:
            self._reconfigure(self._image.topics[name])
        for start in range(0, len(opening), OPEN_AT_ONCE):
            await asyncio.gather(*(self._open(topic, index) for topic, index in opening[start : start + OPEN_AT_ONCE]))

    async def _open(self, topic: TopicImage, index: int) -> None:
        options = topic_config(topic.configs, self._config)
        try:
            if self._logs.topic_id(topic.name, index) not in (None, topic.id):
                await self._logs.delete(topic.name, index)  # what an earlier topic of this name left
            opened = await self._logs.create(topic.name, index, topic.id, log_config(options, self._config))
            if opened.recovery_point < opened.log_end_offset:
                if options["durability"] == "fsync" or opened.needs_flush:
                    # A kill left records in the page cache alone; whoever sends them again is answered at once.
                    await opened.sync()
        except KafkaError as error:
            log.error("%s-%d is offline until the broker starts again: %s", topic.name, index, error.message)
            self._offline[topic.name, index] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, error.message)
            return
        partition = Partition(topic.name, topic.id, index, opened)
        partition.configure(options)
        _follow(partition, topic.partitions[index])
        partition.recover()
        self.partitions.setdefault(topic.name, {})[index] = partition

    def _options_changed(self, delta: Delta) -> bool:
        """Whether the options of this broker, which topics without their own take, are others now."""
        return "" in delta.broker_options or str(self._node_id) in delta.broker_options

    def _reconfigure(self, topic: TopicImage) -> None:
        options = topic_config(topic.configs, self._config)
        for partition in self.partitions.get(topic.name, {}).values():
            partition.configure(options)
            partition.log.config = log_config(options, self._config)

    async def _delete(self, topic: TopicImage) -> None:
        gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} was deleted")
        for index in topic.partitions:
            self._offline.pop((topic.name, index), None)
        for index, partition in self.partitions.pop(topic.name, {}).items():
            partition.close(gone)
            self.gone.add(partition.traffic)
            try:
                await self._logs.delete(topic.name, index)
            except KafkaError as error:
                log.error("%s; the next start removes it or sets it aside", error.message)

    async def settle(self) -> None:
        """Wait until what was appended is on disk, where durability asks for that."""
        for indexes in list(self.partitions.values()):
            for partition in list(indexes.values()):
                await partition.settle()

    def close(self) -> None:
        """Let all who wait go; the logs are closed by their manager."""
        stopping = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")
        for indexes in self.partitions.values():
            for partition in indexes.values():
                partition.close(stopping)


def _follow(partition: Partition, image: PartitionImage) -> None:
    partition.place(image.replicas, image.isr)
    partition.become_leader(image.leader_epoch)
