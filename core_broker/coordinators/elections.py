"""Which partitions of an internal topic this broker coordinates: its shards follow the metadata image.

Groups and transactions have a topic each. What a key hashes to is the same for both (`find.partition_for`).
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ..cluster.image import Delta, MetadataImage
from . import find
from .runtime import CoordinatorRuntime, Shard, ShardState

MAX_PLACES = 10_000  # keys whose partition is cached, as Java's hash is slow in Python

S = TypeVar("S", bound=ShardState)


class Elections(Generic[S]):
    """shards: those of one internal topic, which are elected and resign here."""

    def __init__(self, shards: CoordinatorRuntime[S], image: MetadataImage, node_id: int) -> None:
        self._shards = shards
        self._image = image
        self._node_id = node_id
        self._places: dict[str, int] = {}

    def on_change(self, delta: Delta) -> None:
        """Follow a change of the metadata image. The replicas must have: they open the partitions first."""
        topic = self._shards.topic
        if topic in delta.deleted:
            for index in list(self._shards.shards):
                self._shards.resign(index)
        if topic in delta.changed:
            self._places.clear()  # the number of partitions may have changed
        for index in delta.changed.get(topic, ()):
            partition = self._image.partition(topic, index)
            if partition is not None and partition.leader == self._node_id:
                self._shards.elect(index)
            else:
                self._shards.resign(index)

    def came_back(self, topic: str, index: int) -> None:
        """A partition that was offline is online again."""
        if topic == self._shards.topic:
            self._shards.elect(index)

    def went_offline(self, topic: str, index: int) -> None:
        """A partition has gone offline: nobody coordinates what it holds."""
        if topic == self._shards.topic:  # in the loop's next turn: the caller may be at work on what it holds
            asyncio.get_running_loop().call_soon(self._shards.resign_if_offline, index)

    def shard_of(self, key: str) -> Shard[S]:
        """The shard that a key belongs to. Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, …"""
        topic = self._image.topics.get(self._shards.topic)
        if topic is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self._shards.topic} does not exist yet")
        index = self._places.get(key)
        if index is None:
            if len(self._places) >= MAX_PLACES:
                self._places.clear()
            index = self._places[key] = find.partition_for(key, len(topic.partitions))
        return self._shards.active(index)
