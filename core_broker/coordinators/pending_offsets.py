"""Offsets committed in transactions that have not ended (KIP-98, KIP-447): of a shard, by producer id.

They count once the producer's commit marker is replayed, and are forgotten with an abort marker. Until then those who
ask for stable offsets are refused, and the group is kept. Pure, as `offsets.py` is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...protocol.messages.group_records import OffsetCommitKey

MAX_PENDING_OFFSETS = 1_000_000  # of one shard; a commit that would make more of them is refused

Place = tuple[str, str, int]  # group, topic and partition


class Committed(NamedTuple):
    """An offset as it was committed, in a transaction or not."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int  # from requests before v5, which have a retention time; else NO_TIME
    topic_id: bytes  # zeros where the record has none
    record_offset: int  # where the record is in the log


class PendingOffsets:
    """The last offset of each partition in each open transaction."""

    def __init__(self) -> None:
        self._producers: dict[int, dict[Place, Committed]] = {}
        self._groups: dict[str, dict[tuple[str, int], dict[int, None]]] = {}  # whose transactions, by partition
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, producer_id: int, key: OffsetCommitKey, committed: Committed) -> None:
        own = self._producers.setdefault(producer_id, {})
        before = len(own)
        own[key.group, key.topic, key.partition] = committed
        self._count += len(own) - before
        self._groups.setdefault(key.group, {}).setdefault((key.topic, key.partition), {})[producer_id] = None

    def forget(self, key: OffsetCommitKey) -> None:
        """The partition's offsets were removed: those of open transactions never count either."""
        for producer_id in list(self._groups.get(key.group, {}).get((key.topic, key.partition), ())):
            self._drop(producer_id, (key.group, key.topic, key.partition))

    def take(self, producer_id: int) -> list[tuple[OffsetCommitKey, Committed]]:
        """The offsets of a transaction that has ended, which are not pending any more."""
        own = list(self._producers.get(producer_id, {}).items())
        for place, _ in own:
            self._drop(producer_id, place)
        return [
            (OffsetCommitKey(group=group, topic=topic, partition=partition), committed)
            for (group, topic, partition), committed in own
        ]

    def _drop(self, producer_id: int, place: Place) -> None:
        own, group = self._producers[producer_id], self._groups[place[0]]
        del own[place]
        self._count -= 1
        if not own:
            del self._producers[producer_id]
        producers = group[place[1:]]
        del producers[producer_id]
        if not producers:
            del group[place[1:]]
            if not group:
                del self._groups[place[0]]

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        return (topic, partition) in self._groups.get(group_id, ())

    def has_group(self, group_id: str) -> bool:
        return group_id in self._groups

    def groups(self) -> Iterable[str]:
        return self._groups

    def partitions(self, group_id: str) -> Iterator[tuple[str, int]]:
        """Topics and partitions of a group's pending offsets."""
        yield from self._groups.get(group_id, ())
