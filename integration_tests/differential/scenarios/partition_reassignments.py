"""AlterPartitionReassignments (45) and ListPartitionReassignments (46): with one node a partition can but stay."""

from __future__ import annotations

from isthmus.protocol.messages import alter_partition_reassignments as alter
from isthmus.protocol.messages import list_partition_reassignments as listing

from ..peer import Case, Scenarios

SCENARIOS = Scenarios()
NO_BROKER = 77


def request(case: Case, replicas: list[int] | None, index: int = 0, may_change: bool = True) -> alter.Request:
    row = alter.ReassignablePartition(partition_index=index, replicas=replicas)
    topic = alter.ReassignableTopic(name=case.name, partitions=[row])
    if case.version < 1:
        return alter.Request(topics=[topic], timeout_ms=10_000)
    return alter.Request(topics=[topic], timeout_ms=10_000, allow_replication_factor_change=may_change)


@SCENARIOS.success(45)
def stays_where_it_is(case: Case) -> None:
    case.topic()
    case.compare(request(case, [case.peer.node_id]))
    case.compare(request(case, [case.peer.node_id], may_change=False))
    case.compare(alter.Request(topics=[]))
    if case.version >= 1:
        case.compare(alter.Request(topics=[], allow_replication_factor_change=False))


@SCENARIOS.error(45)
def nothing_to_cancel(case: Case) -> None:
    case.topic()
    case.compare(request(case, None))


@SCENARIOS.error(45)
def brokers_that_cannot_hold_it(case: Case) -> None:
    case.topic()
    for replicas in ([], [NO_BROKER], [case.peer.node_id, NO_BROKER], [case.peer.node_id] * 2):
        case.compare(request(case, replicas))


@SCENARIOS.error(45)
def a_move_of_what_is_not_there(case: Case) -> None:
    case.compare(request(case, [case.peer.node_id]))
    case.topic()
    case.compare(request(case, [case.peer.node_id], index=7))


@SCENARIOS.error(45)
def a_move_within_no_time(case: Case) -> None:
    case.topic()
    for timeout_ms in (0, -1):
        for replicas in ([case.peer.node_id], None, [NO_BROKER]):
            wanted = request(case, replicas, may_change=False)
            wanted.topics.append(alter.ReassignableTopic(name=case.name + "-no", partitions=[]))
            wanted.timeout_ms = timeout_ms
            case.compare(wanted)
        case.compare(alter.Request(topics=[], timeout_ms=timeout_ms))


@SCENARIOS.success(46)
def nothing_moves_within_no_time(case: Case) -> None:
    case.topic()
    case.compare(listing.Request(timeout_ms=0))


@SCENARIOS.success(46)
def nothing_moves(case: Case) -> None:
    case.topic()
    case.compare(listing.Request())
    rows = [listing.ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 7]) for name in (case.name, "no")]
    case.compare(listing.Request(topics=rows))
    case.compare(listing.Request(topics=[]))
