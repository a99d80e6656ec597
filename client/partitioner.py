"""Chooses a record's partition: by key as Kafka's Java client or librdkafka do, or one for a whole batch."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from random import Random

from ..protocol.primitives import ZERO_UUID
from ._murmur2 import murmur2
from .accumulator import Accumulator
from .cluster import TopicMetadata
from .errors import ClientError

KEYS_REMEMBERED = 20_000  # cached for each topic, with their partitions
MASK = 0xFFFFFFFF
FNV_PRIME, FNV_OFFSET = 0x01000193, 0x811C9DC5
ANY = -1  # partition: whichever batch is being filled

Partitioner = Callable[[bytes | None, int], int]  # of a key and the number of partitions: a partition


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key among `partitions`, equal to that of every Java client's default partitioner."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def fnv1a(data: bytes) -> int:
    """librdkafka's and Sarama's 32-bit FNV-1a: the absolute value of the hash as a signed number."""
    h = FNV_OFFSET
    for byte in data:
        h = (h ^ byte) * FNV_PRIME & MASK
    return h if h < 1 << 31 else (1 << 32) - h


def _by_murmur2(key: bytes | None, partitions: int) -> int:
    return partition_for_key(key or b"", partitions)


def _by_crc32(key: bytes | None, partitions: int) -> int:
    return zlib.crc32(key or b"") % partitions


def _by_fnv1a(key: bytes | None, partitions: int) -> int:
    return fnv1a(key or b"") % partitions


PARTITIONERS: Mapping[str, Partitioner] = {  # librdkafka's, by its names
    "murmur2": _by_murmur2,
    "murmur2_random": lambda key, partitions: ANY if key is None else _by_murmur2(key, partitions),
    "consistent": _by_crc32,
    "consistent_random": lambda key, partitions: _by_crc32(key, partitions) if key else ANY,
    "fnv1a": _by_fnv1a,
    "fnv1a_random": lambda key, partitions: ANY if key is None else _by_fnv1a(key, partitions),
    "random": lambda key, partitions: ANY,
}
DEFAULT_PARTITIONER = "murmur2_random"  # as Java's


def check_partitioner(partitioner: str | Partitioner) -> None:
    """Raises ClientError for a name that is none."""
    if isinstance(partitioner, str) and partitioner not in PARTITIONERS:
        raise ClientError(
            f"there is no partitioner {partitioner}: choose from {', '.join(PARTITIONERS)}, or pass a function of "
            "(key, partitions)"
        )


class ProducerTopic:
    """The producer's view of a topic. `seen`: the client's metadata object from which it was made. partitioner: that of
    records that are given none. The choices of named ones are remembered."""

    __slots__ = (
        "accumulators",
        "count",
        "key_partitions",
        "name",
        "others",
        "partitioner",
        "seen",
        "sticky",
        "topic_id",
    )

    def __init__(self, name: str, partitioner: str | Partitioner = DEFAULT_PARTITIONER) -> None:
        self.name = name
        self.partitioner = partitioner
        self.seen: TopicMetadata | None = None
        self.count = 0
        self.topic_id = ZERO_UUID
        self.sticky: int | None = None
        self.accumulators: dict[int, Accumulator] = {}
        self.key_partitions: dict[bytes | None, int] = {}
        self.others: dict[str, dict[bytes | None, int]] = {}  # the same of other named ones

    def learn(self, seen: TopicMetadata | None) -> None:
        self.seen = seen
        if seen is None:
            return
        if len(seen.leaders) != self.count:
            self.count = len(seen.leaders)
            self.key_partitions.clear()
            self.others.clear()
        if seen.topic_id != self.topic_id and ZERO_UUID not in (seen.topic_id, self.topic_id):
            for each in self.accumulators.values():
                each.restart()
        self.topic_id = seen.topic_id

    def partition(self, key: bytes | None, random: Random) -> int:
        """By the partitioner; that of the batch that is being filled where it leaves the choice. Raises ClientError for
        a partition that the topic has not."""
        found = self.key_partitions.get(key)
        if found is None:
            found = self._chosen(self.partitioner, key)
        return found if found != ANY else self._any(random)

    def partition_by(self, partitioner: str | Partitioner, key: bytes | None, random: Random) -> int:
        """The same by another partitioner than the topic's. Raises ClientError also for a name that is none."""
        found = self._remembered(partitioner).get(key)
        if found is None:
            found = self._chosen(partitioner, key)
        return found if found != ANY else self._any(random)

    def _any(self, random: Random) -> int:
        if self.sticky is None or self.sticky >= self.count:
            self.sticky = random.randrange(self.count)
        return self.sticky

    def rows_by_partition(
        self, keys: Iterable[bytes | None], random: Random, by: str | Partitioner
    ) -> dict[int, list[int]]:
        """The same for many keys: their places, by partition."""
        rows: dict[int, list[int]] = {}
        remembered = self._remembered(by).get
        for row, key in enumerate(keys):
            found = remembered(key, ANY)
            if found == ANY:
                found = self.partition_by(by, key, random)
            try:
                rows[found].append(row)
            except KeyError:
                rows[found] = [row]
        return rows

    def _remembered(self, by: str | Partitioner) -> dict[bytes | None, int]:
        if by == self.partitioner:
            return self.key_partitions
        if not isinstance(by, str):
            return {}
        found = self.others.get(by)
        if found is None:
            check_partitioner(by)
            found = self.others[by] = {}
        return found

    def _chosen(self, by: str | Partitioner, key: bytes | None) -> int:
        if isinstance(by, str):
            choices = self._remembered(by)
            if len(choices) >= KEYS_REMEMBERED:
                choices.clear()
            kept = key if key is None else bytes(key)
            found = choices[kept] = PARTITIONERS[by](kept, self.count)
            return found
        return self._called(by, key)

    def _called(self, partitioner: Partitioner, key: bytes | None) -> int:
        found = partitioner(key, self.count)
        if not isinstance(found, int) or not 0 <= found < self.count:
            raise ClientError(
                f"topic {self.name} has {self.count} partitions, and the partitioner chose {found!r} for key {key!r}"
            )
        return found
