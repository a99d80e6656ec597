"""Chooses the brokers of new partitions' replicas: evenly spread, in different racks, with leaders distributed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata_records import PartitionRecord
from ..image import MetadataImage


def place(image: MetadataImage, partitions: int, replication_factor: int, chance: random.Random) -> list[list[int]]:
    """Replicas for each of several new partitions; the first is the preferred leader.

    Raises KafkaError(INVALID_REPLICATION_FACTOR) if there are too few brokers.
    """
    alive = [broker.id for broker in image.brokers.values() if not broker.fenced]
    if not alive:
        raise _refused(replication_factor, "All brokers are currently fenced.")
    if replication_factor > len(image.brokers):
        raise _refused(
            replication_factor,
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(image.brokers)} broker(s) are registered.",
        )
    ring = _by_turns(image)
    start = chance.randrange(len(ring))
    placed = []
    for number in range(partitions):
        turned = [ring[(start + number + i) % len(ring)] for i in range(len(ring))]
        # A fenced broker never leads, but gets a replica if there are not enough others.
        turned.sort(key=lambda broker_id: image.brokers[broker_id].fenced)
        placed.append(turned[:replication_factor])
    return placed


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


def _by_turns(image: MetadataImage) -> list[int]:
    """Brokers in an order in which neighbours are in different racks, as far as possible."""
    racks: dict[str, list[int]] = {}
    for broker_id in sorted(image.brokers):
        racks.setdefault(image.brokers[broker_id].rack or "", []).append(broker_id)
    columns = [racks[rack] for rack in sorted(racks)]
    return [column[row] for row in range(max(map(len, columns))) for column in columns if row < len(column)]


def _refused(replication_factor: int, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Unable to replicate the partition {replication_factor} time(s): {reason}",
    )


def _wrong(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
