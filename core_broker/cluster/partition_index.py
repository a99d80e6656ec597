"""Which partitions concern a broker: so that a broker's end costs its own partitions, not all of the cluster's.

A part of the metadata image, which alone writes it, with each change of a partition. Every map keeps insertion order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .partition_image import NO_LEADER, PartitionImage

Key = tuple[bytes, int]  # a topic's id and a partition's index
Keys = dict[Key, None]

ABSENT = PartitionImage(NO_LEADER, -1, (), (), -1)


@dataclass(slots=True)
class PartitionIndex:
    """in_isr, in_elr: partitions by a broker in their ISR or ELR. led: how many each broker leads.

    imbalanced: partitions that the preferred replica does not lead. moving: those under reassignment.
    """

    in_isr: dict[int, Keys] = field(default_factory=dict)
    in_elr: dict[int, Keys] = field(default_factory=dict)
    led: dict[int, int] = field(default_factory=dict)
    leaderless: Keys = field(default_factory=dict)
    imbalanced: Keys = field(default_factory=dict)
    moving: Keys = field(default_factory=dict)

    def replace(self, key: Key, old: PartitionImage | None, new: PartitionImage | None) -> None:
        """A partition changed. old: None if it is new; new: None if it was removed."""
        old, new = old or ABSENT, new or ABSENT
        if old.isr is not new.isr:
            _move(self.in_isr, key, old.isr, new.isr)
        if old.elr is not new.elr:
            _move(self.in_elr, key, old.elr, new.elr)
        if old.leader != new.leader:
            self._count(old.leader, -1)
            self._count(new.leader, 1)
        elif (
            old.replicas is new.replicas
            and old.adding_replicas is new.adding_replicas
            and old.removing_replicas is new.removing_replicas
        ):
            return  # only epochs were raised
        leader, exists = new.leader, new is not ABSENT
        _mark(self.leaderless, key, leader == NO_LEADER and exists)
        _mark(self.imbalanced, key, leader != new.preferred and exists)
        _mark(self.moving, key, new.is_moving)

    def _count(self, leader: int, step: int) -> None:
        if leader != NO_LEADER:
            count = self.led.get(leader, 0) + step
            if count:
                self.led[leader] = count
            else:
                del self.led[leader]


def _move(map_: dict[int, Keys], key: Key, old: tuple[int, ...], new: tuple[int, ...]) -> None:
    for broker_id in old:
        if broker_id not in new:
            keys = map_[broker_id]
            del keys[key]
            if not keys:
                del map_[broker_id]
    for broker_id in new:
        if broker_id not in old:
            map_.setdefault(broker_id, {})[key] = None


def _mark(keys: Keys, key: Key, holds: bool) -> None:
    if holds:
        keys[key] = None
    elif keys:
        keys.pop(key, None)
