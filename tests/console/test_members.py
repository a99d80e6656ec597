"""Which voters `isthmus quorum remove` leaves where they are, and which brokers `isthmus broker unregister`."""

from __future__ import annotations

import pytest

from isthmus.console.clusters import quorum_told
from isthmus.console.members import KEEPS_UP_MS, why_not_removed, why_not_unregistered
from isthmus.protocol.messages.describe_cluster import DescribeClusterBroker
from isthmus.protocol.messages.describe_quorum import PartitionData, ReplicaState

NOW_MS = 1_000_000
LEADER = 1


def why(node: int, *ago_ms: int | None) -> str:
    """ago_ms: when each voter was last caught up, the leader's first, which has id 1; None for never."""
    voters = [
        ReplicaState(replica_id=i, log_end_offset=5, last_caught_up_timestamp=-1 if ago is None else NOW_MS - ago)
        for i, ago in enumerate(ago_ms, 1)
    ]
    said = PartitionData(leader_id=LEADER, current_voters=voters, observers=[ReplicaState(replica_id=9)])
    return why_not_removed(quorum_told(said, []), node)


@pytest.mark.parametrize(
    ("node", "ago_ms"),
    [
        (3, (0, 500, None)),  # the one that is gone
        (3, (0, 500, 500)),
        (1, (0, 500, 500)),  # the leader: the others elect one
        (5, (0, 500, KEEPS_UP_MS, None, None)),
        (9, (0, None, None)),  # an observer: the cluster says so
        (7, (0,)),
    ],
)
def test_what_leaves_a_majority_is_done(node: int, ago_ms: tuple[int | None, ...]) -> None:
    assert why(node, *ago_ms) == ""


def test_what_leaves_no_majority_is_refused_with_those_that_are_away() -> None:
    assert why(2, 0, 500, None) == (
        "without node 2, 1 of 2 voters would keep up with the leader, no majority (node 3 was caught up never): "
        "start those, or remove one of them instead; --unsafe removes it nevertheless"
    )
    assert "node 2 was caught up 10.0 s ago, node 3 was caught up never" in why(4, 0, KEEPS_UP_MS + 1, None, 500)
    assert why(1, 0) == "node 1 is the only voter: without it there would be no controller; add another one first"


def test_broker_that_lives_is_not_unregistered() -> None:
    brokers = [DescribeClusterBroker(broker_id=1), DescribeClusterBroker(broker_id=2, is_fenced=True)]
    said = why_not_unregistered(brokers, 1)
    assert "broker 1 runs" in said and "`isthmus broker drain 1`" in said
    assert why_not_unregistered(brokers, 2) == why_not_unregistered(brokers, 9) == ""  # 9: the cluster says so
