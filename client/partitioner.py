"""Chooses a record's partition: by key as Kafka's Java client, or, without a key, the same for a whole batch."""

from __future__ import annotations

from random import Random

from ..protocol.primitives import ZERO_UUID
from .accumulator import Accumulator
from .cluster import TopicMetadata

KEYS_REMEMBERED = 20_000  # cached for each topic, with their partitions
MASK = 0xFFFFFFFF
M = 0x5BD1E995
SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, unsigned (org.apache.kafka.common.utils.Utils.murmur2)."""
    length = len(data)
    h = SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * M & MASK
        k ^= k >> 24
        h = (h * M & MASK) ^ (k * M & MASK)
    if rest := length & 3:
        h ^= int.from_bytes(data[whole : whole + rest], "little")
        h = h * M & MASK
    h ^= h >> 13
    h = h * M & MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key among `partitions`, equal to that of every Java client's default partitioner."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class ProducerTopic:
    """The producer's view of a topic. `seen`: the client's metadata object from which it was made."""

    __slots__ = ("accumulators", "count", "key_partitions", "name", "seen", "sticky", "topic_id")

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: TopicMetadata | None = None
        self.count = 0
        self.topic_id = ZERO_UUID
        self.sticky: int | None = None
        self.accumulators: dict[int, Accumulator] = {}
        self.key_partitions: dict[bytes, int] = {}

    def learn(self, seen: TopicMetadata | None) -> None:
        self.seen = seen
        if seen is None:
            return
        if len(seen.leaders) != self.count:
            self.count = len(seen.leaders)
            self.key_partitions.clear()
        if seen.topic_id != self.topic_id and ZERO_UUID not in (seen.topic_id, self.topic_id):
            for each in self.accumulators.values():
                each.restart()
        self.topic_id = seen.topic_id

    def of_key(self, key: bytes) -> int:
        partition = self.key_partitions.get(key)
        if partition is None:
            if len(self.key_partitions) >= KEYS_REMEMBERED:
                self.key_partitions.clear()
            partition = self.key_partitions[bytes(key)] = partition_for_key(key, self.count)
        return partition

    def partition(self, key: bytes | None, random: Random) -> int:
        """Always the same partition for a key; without a key, that of the batch that is being filled."""
        if key is not None:
            return self.of_key(key)
        if self.sticky is None or self.sticky >= self.count:
            self.sticky = random.randrange(self.count)
        return self.sticky
