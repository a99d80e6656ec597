"""Topics in memory, with what a cluster keeps of them for an app: records by partition, and the positions of groups.

What an app writes in a transaction is there at once, for the app itself, too, and is gone again if the transaction is
aborted: the offsets stay, as in Kafka, without records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ...client import FetchedBatches, RecordMetadata, TopicPartition
from ...client.partitioner import DEFAULT_PARTITIONER
from ...protocol import records
from ..engine.event import Headers
from ..engine.partitioning import KeyRule, partition_of
from ..errors import AppError

Partitions = int | Mapping[str, int]


@dataclass(frozen=True)
class TestRecord:
    """A record that a test sends or reads. value, key: as the app has them; bytes are sent as they are. timestamp_ms:
    None: the time on the driver's clock. partition: None: that of the key. offset: of a record that was read."""

    __test__: ClassVar[bool] = False  # pytest: not a test

    value: Any
    key: Any = None
    timestamp_ms: int | None = None
    headers: Headers | Mapping[str, bytes | None] = ()
    partition: int | None = None
    offset: int = -1


class Sent(NamedTuple):
    """A record that the app has written, as bytes."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()
    partition: int = 0
    offset: int = -1


class _Partition:
    """records: by offset; None: of a transaction that was aborted."""

    def __init__(self) -> None:
        self.records: list[Sent | None] = []


class MemoryTopics:
    """partitions: of topics by their names, or of all; topics that are not named have `default` of them."""

    def __init__(self, partitions: Partitions = 1) -> None:
        self._wanted = dict(partitions) if isinstance(partitions, Mapping) else {}
        self._default = partitions if isinstance(partitions, int) else 1
        for count in (*self._wanted.values(), self._default):
            if count < 1:
                raise AppError(f"a topic has one partition or more, not {count}")
        self._topics: dict[str, list[_Partition]] = {}
        self._open: list[Sent] = []  # of the transaction
        self._turn: dict[str, int] = {}  # by topic: where the next record without a key goes
        self.committed: dict[tuple[str, TopicPartition], int] = {}  # offsets of groups
        for name, count in self._wanted.items():
            self.create(name, count)

    def wanted(self, name: str) -> int | None:
        """How many partitions the test has said that a topic has; None: nothing."""
        return self._wanted.get(name)

    @property
    def default(self) -> int:
        return self._default

    def create(self, name: str, partitions: int) -> None:
        """Unless it is there."""
        if name not in self._topics:
            self._topics[name] = [_Partition() for _ in range(self._wanted.get(name, partitions))]

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic more partitions. Raises AppError for fewer."""
        self.create(name, partitions)
        have = self._topics[name]
        if partitions < len(have):
            raise AppError(f"topic {name} has {len(have)} partitions, and cannot have {partitions}")
        have += [_Partition() for _ in range(partitions - len(have))]

    def count(self, name: str) -> int:
        """Partitions of a topic; 0: it is not there."""
        return len(self._topics.get(name, ()))

    def names(self) -> list[str]:
        return sorted(self._topics)

    def end(self, tp: TopicPartition) -> int:
        """The offset of the next record."""
        return len(self._partition(tp).records)

    def append(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers = (),
        *,
        is_open: bool = False,
        by: KeyRule = DEFAULT_PARTITIONER,
    ) -> Sent:
        """Write a record to a partition, or to that of its key, by this partitioner. is_open: it belongs to the
        transaction."""
        self.create(topic, self._default)
        number = self._chosen(topic, key, by) if partition is None else partition
        records_of = self._partition(TopicPartition(topic, number)).records
        written = Sent(topic, key, value, timestamp_ms, tuple(headers), number, len(records_of))
        records_of.append(written)
        if is_open:
            self._open.append(written)
        return written

    def commit(self) -> None:
        self._open.clear()

    def abort(self) -> None:
        for each in self._open:
            self._topics[each.topic][each.partition].records[each.offset] = None
        self._open.clear()

    def records(self, topic: str, partition: int, from_offset: int = 0) -> list[Sent]:
        return [each for each in self._partition(TopicPartition(topic, partition)).records[from_offset:] if each]

    def fetch(self, tp: TopicPartition, from_offset: int, most: int) -> FetchedBatches:
        """At most so many records from an offset on."""
        end = min(self.end(tp), from_offset + most)
        data = bytearray()
        for run in _runs(self._partition(tp).records[from_offset:end]):
            fields = [(each.timestamp_ms, each.key, each.value, each.headers) for each in run]
            data += records.build_batch(fields, base_offset=run[0].offset)
        return FetchedBatches(tp, memoryview(bytes(data)), from_offset, end, end, end)

    def _chosen(self, topic: str, key: bytes | None, by: KeyRule) -> int:
        count = self.count(topic)
        if key is not None and (place := partition_of(key, count, by)) is not None:
            return place
        found = self._turn[topic] = (self._turn.get(topic, -1) + 1) % count
        return found

    def _partition(self, tp: TopicPartition) -> _Partition:
        try:
            return self._topics[tp.topic][tp.partition]
        except (KeyError, IndexError):
            raise AppError(
                f"there is no partition {tp.partition} of topic {tp.topic}, which has {self.count(tp.topic)}"
            ) from None


def metadata_of(written: Sent) -> RecordMetadata:
    return RecordMetadata(written.topic, written.partition, written.offset, written.timestamp_ms)


def _runs(found: Iterable[Sent | None]) -> list[list[Sent]]:
    """Records without the gaps between them."""
    runs: list[list[Sent]] = [[]]
    for each in found:
        if each is not None:
            runs[-1].append(each)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]
