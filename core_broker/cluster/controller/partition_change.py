"""What record changes a partition: who leads it, who is in sync, and what stands in for them meanwhile.

A pure function with the rules of Kafka's PartitionChangeBuilder (4.4), step for step: a reassignment that is complete
is ended, the eligible leader replicas are found (KIP-966), a leader is elected, and the leader epoch is raised where
that is due. Without the ELR feature the last replica never leaves the ISR; with it, the ISR may be empty and the
replicas that left it last are the ELR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from ....protocol.messages.metadata_records import PartitionChangeRecord
from ..partition_image import NO_LEADER, RECOVERING, PartitionImage, known_directories

MayLead = Callable[[int, PartitionImage], bool]


class ElectionPolicy(Enum):
    """How a leader is chosen where the present one cannot stay."""

    PREFERRED = "the first replica if it is in sync, even if another one leads"
    ONLINE = "the present leader or another replica that is in sync"
    UNCLEAN = "if nobody in sync is alive, any replica that is"


@dataclass(slots=True, frozen=True)
class Rules:
    """What a change depends on besides the partition, the same for all of a topic.

    may_lead: whether a replica is alive, with its directory. min_isr: min.insync.replicas, at most the replicas of the
    topic. default_directory: of a broker, for a new replica.
    """

    may_lead: MayLead
    min_isr: int
    has_elr: bool
    default_directory: Callable[[int], bytes]
    election: ElectionPolicy = ElectionPolicy.ONLINE


@dataclass(slots=True)
class Target:
    """What a partition is to become; None leaves it. unclean: replicas that may have lost the end of their logs.

    directories: where brokers say that their replicas are.
    """

    isr: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    adding: Sequence[int] | None = None
    removing: Sequence[int] | None = None
    leader_recovery_state: int | None = None
    unclean: Sequence[int] = ()
    directories: dict[int, bytes] | None = None


def changed(
    topic_id: bytes, index: int, partition: PartitionImage, target: Target, rules: Rules
) -> PartitionChangeRecord | None:
    """The record after which a partition is as wanted, with a leader if one can be had. None if nothing changes."""
    replicas = partition.replicas if target.replicas is None else tuple(target.replicas)
    adding = partition.adding_replicas if target.adding is None else tuple(target.adding)
    removing = partition.removing_replicas if target.removing is None else tuple(target.removing)
    isr = partition.isr if target.isr is None else tuple(target.isr)
    if adding or removing:
        ended = _ended_reassignment(replicas, adding, removing, isr)
        if ended is not None:
            (replicas, isr), adding, removing = ended, (), ()
    elr = partition.elr
    if rules.has_elr:
        elr = _eligible(partition, replicas, isr, target.unclean) if len(isr) < rules.min_isr else ()

    record = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    leader, is_unclean = _elect(partition, replicas, isr, elr, rules)
    is_unclean = is_unclean and leader != partition.leader
    if leader != partition.leader:
        record.leader = leader
        if leader in elr:
            isr = (leader,)
            elr = tuple(each for each in elr if each != leader)
        if is_unclean:
            record.isr = [leader]
            if partition.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING
    elif any(each not in replicas for each in partition.replicas):
        record.leader = partition.leader  # raises the epoch, so that a replica that left is not taken for one
    if is_unclean or not rules.has_elr:
        elr = ()
    if elr != partition.elr:
        record.eligible_leader_replicas = list(elr)
    if record.isr is None and isr != partition.isr and (isr or rules.has_elr):
        record.isr = list(isr)
    if rules.has_elr:
        if partition.last_known_elr:
            if record.leader >= 0 or partition.last_known_elr[0] not in replicas:
                record.last_known_elr = []
        elif record.leader == NO_LEADER and partition.leader in replicas:
            record.last_known_elr = [partition.leader]
    if replicas != partition.replicas or target.directories:
        _assign(record, partition, replicas, target.directories or {}, rules)
    if removing != partition.removing_replicas:
        record.removing_replicas = list(removing)
    if adding != partition.adding_replicas:
        record.adding_replicas = list(adding)
    if target.leader_recovery_state is not None and target.leader_recovery_state != partition.leader_recovery_state:
        record.leader_recovery_state = target.leader_recovery_state
    return None if record == PartitionChangeRecord(partition_id=index, topic_id=topic_id) else record


def _ended_reassignment(
    replicas: tuple[int, ...], adding: tuple[int, ...], removing: tuple[int, ...], isr: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Replicas and ISR without those to be removed, if the added ones are in sync; if fewer come than go, all that
    stay.

    A reassignment that takes the place of another one may remove what that one adds. Kafka 4.4 then waits for ever for
    replicas that it does not count.
    """
    adding = tuple(each for each in adding if each not in removing)
    staying = tuple(each for each in replicas if each not in removing)
    in_sync = tuple(each for each in isr if each not in removing)
    if removing and not (staying and in_sync):
        return None
    needed = (*adding, *staying) if len(adding) < len(removing) else adding
    return (staying, in_sync) if all(each in in_sync for each in needed) else None


def _eligible(
    partition: PartitionImage, replicas: tuple[int, ...], isr: tuple[int, ...], unclean: Sequence[int]
) -> tuple[int, ...]:
    """The ELR once the ISR is below its minimum: who was in either, and is not in the ISR now. Ascending.

    Kafka 4.4 leaves replicas in it that a reassignment has removed, and so in last_known_elr; its controller then fails
    where one of them might lead.
    """
    candidates = {*partition.elr, *partition.isr}
    return tuple(sorted(each for each in candidates if each in replicas and each not in isr and each not in unclean))


def _elect(
    partition: PartitionImage, replicas: tuple[int, ...], isr: tuple[int, ...], elr: tuple[int, ...], rules: Rules
) -> tuple[int, bool]:
    """The leader, and whether it may lack committed records."""
    in_sync = isr or elr
    candidates = [partition.leader, *replicas]
    if rules.election is ElectionPolicy.PREFERRED:
        candidates.insert(0, replicas[0])
    for each in candidates:
        if each in in_sync and rules.may_lead(each, partition):
            return each, False
    if rules.has_elr and not in_sync and len(partition.last_known_elr) == 1:
        last = partition.last_known_elr[0]
        if last in replicas and rules.may_lead(last, partition):
            return last, True
    if rules.election is ElectionPolicy.UNCLEAN:
        for each in replicas:
            if rules.may_lead(each, partition):
                return each, True
    return NO_LEADER, False


def _assign(
    record: PartitionChangeRecord,
    partition: PartitionImage,
    replicas: tuple[int, ...],
    told: dict[int, bytes],
    rules: Rules,
) -> None:
    known = {each: partition.directory_of(each) for each in partition.replicas} | told
    directories = [known[each] if each in known else rules.default_directory(each) for each in replicas]
    if known_directories(directories) != partition.directories:
        record.directories = directories
    if replicas != partition.replicas:
        record.replicas = list(replicas)
