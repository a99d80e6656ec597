"""Chooses the brokers of new partitions' replicas, as Kafka's StripedReplicaPlacer does.

Replicas of a partition go to different racks first, by turns, and in a rack to its brokers by turns. Each partition
begins one rack and one broker further on. Where machines have several brokers, which name no racks, a machine is one:
Kafka's placer does not know of machines. Fenced brokers get replicas only where there are not enough others, and never
lead. After as many partitions as there are live brokers all is shuffled, so that the same sets do not repeat.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata_records import PartitionRecord
from ..image import BrokerInfo, MetadataImage

NONE_LEFT = -1


class _Brokers:
    """Brokers by turns. A new round, told by its number, begins one broker further on."""

    def __init__(self, ids: list[int], chance: random.Random) -> None:
        self.ids = sorted(ids)
        self._start = chance.randrange(len(ids)) if ids else 0
        self._taken = 0
        self._round = 0

    def next(self, round_: int) -> int:
        """NONE_LEFT when all were taken in this round."""
        if not self.ids:
            return NONE_LEFT
        if round_ != self._round:
            self._round = round_
            self._taken = 0
            self._start = (self._start + 1) % len(self.ids)
        if self._taken >= len(self.ids):
            return NONE_LEFT
        self._taken += 1
        return self.ids[(self._start + self._taken - 1) % len(self.ids)]


class _Rack:
    def __init__(self, live: list[int], fenced: list[int], chance: random.Random) -> None:
        self.fenced = _Brokers(fenced, chance)
        self.live = _Brokers(live, chance)

    def next(self, round_: int) -> int:
        found = self.live.next(round_)
        return self.fenced.next(round_) if found == NONE_LEFT else found

    def shuffle(self, chance: random.Random) -> None:
        chance.shuffle(self.fenced.ids)
        chance.shuffle(self.live.ids)


class _Racks:
    """All racks by turns, see `racks_of`. live: how many brokers are not fenced."""

    def __init__(self, image: MetadataImage, chance: random.Random) -> None:
        usable = [
            each for each in image.brokers.values() if not each.in_controlled_shutdown and each.takes_partitions
        ]  # fmt: skip
        self.total = len(usable)
        self.live = sum(not each.fenced for each in usable)
        racks = racks_of(usable)
        names = sorted(dict.fromkeys(racks.values()))
        self._racks = [
            _Rack(
                [each.id for each in usable if racks[each.id] == name and not each.fenced],
                [each.id for each in usable if racks[each.id] == name and each.fenced],
                chance,
            )
            for name in names
        ]
        self._chance = chance
        self._round = 0
        self._start = chance.randrange(len(names)) if names else 0

    def place(self, replication_factor: int) -> list[int]:
        """The replicas of one more partition. There must be enough brokers, one of them live."""
        racks = self._racks
        if self._round == self.live > 1:
            self._chance.shuffle(racks)
            for rack in racks:
                rack.shuffle(self._chance)
            self._round = 0
        self._start %= len(racks)
        first = self._start
        leader = racks[first].live.next(self._round)
        while leader == NONE_LEFT:
            first = (first + 1) % len(racks)
            leader = racks[first].live.next(self._round)
        placed = [leader]
        turn = self._start
        skips_first = True
        while len(placed) < replication_factor:
            if turn == first and skips_first:
                skips_first = False  # the leader is from there
            else:
                found = racks[turn].next(self._round)
                placed += [] if found == NONE_LEFT else [found]
            turn = (turn + 1) % len(racks)
        self._round += 1
        self._start += 1
        return placed


def racks_of(brokers: Sequence[BrokerInfo]) -> dict[int, str]:
    """By id. Brokers without a rack are one, unless some of them share a host and others do not: then a host is one."""
    hosts = {each.id: next((end.host for end in each.endpoints.values()), "") for each in brokers if not each.rack}
    most = max(Counter(hosts.values()).values(), default=0)
    if most in (1, len(hosts)):
        hosts = dict.fromkeys(hosts, "")
    return {each.id: each.rack or hosts[each.id] for each in brokers}


def place(image: MetadataImage, partitions: int, replication_factor: int, chance: random.Random) -> list[list[int]]:
    """Replicas for each of several new partitions; the first is the preferred leader.

    Raises KafkaError(INVALID_REPLICATION_FACTOR) if there are too few brokers.
    """
    racks = _Racks(image, chance)
    if not racks.live:
        raise _too_few("All brokers are currently fenced, or have all their log directories cordoned.")
    if replication_factor > racks.total:
        raise _too_few(
            f"The target replication factor of {replication_factor} cannot be reached because only {racks.total} "
            "broker(s) are registered or some brokers have all their log directories cordoned.",
        )
    return [racks.place(replication_factor) for _ in range(partitions)]


def check_assignment(image: MetadataImage, replicas: Sequence[int], replication_factor: int | None) -> None:
    """Raises KafkaError(INVALID_REPLICA_ASSIGNMENT) if a manual assignment is not possible."""
    if not replicas:
        raise _wrong("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise _wrong(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
        if not image.brokers[broker_id].takes_partitions:
            raise _wrong(
                f"The manual partition assignment includes broker {broker_id}, but all its log directories are "
                "cordoned."
            )
        if broker_id == previous:
            raise _wrong(f"The manual partition assignment includes the broker {broker_id} more than once.")
        previous = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _wrong(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def in_sync(image: MetadataImage, replicas: list[int]) -> list[int]:
    """The replicas that can be in sync now."""
    return [broker_id for broker_id in replicas if image.is_active(broker_id)]


def new_partition(image: MetadataImage, topic_id: bytes, index: int, replicas: list[int]) -> PartitionRecord:
    """The record of a partition of which a replica can be in sync."""
    isr = in_sync(image, replicas)
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[image.brokers[each].default_directory for each in replicas],
    )


def _too_few(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def _wrong(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
