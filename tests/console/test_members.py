"""What `isthmus quorum add` refuses, which voters `isthmus quorum remove` leaves where they are, and which brokers
`isthmus broker unregister`.
"""

from __future__ import annotations

import pytest

from isthmus.console.clusters import quorum_told
from isthmus.console.members import (
    KEEPS_UP_MS,
    parsed_endpoint,
    why_not_added,
    why_not_removed,
    why_not_unregistered,
)
from isthmus.deploy.errors import DeployError
from isthmus.protocol.messages.describe_cluster import DescribeClusterBroker
from isthmus.protocol.messages.describe_quorum import Listener, Node, PartitionData, ReplicaState
from isthmus.protocol.primitives import uuid_to_str

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


NEW, OLD = bytes(15) + b"\1", bytes(15) + b"\2"


def why_not(node: int, *observers: ReplicaState, address: str = "h:4", directory: str = "") -> str:
    """Voter 1 leads, and is at h:1."""
    leader = ReplicaState(replica_id=LEADER, log_end_offset=50, last_caught_up_timestamp=NOW_MS)
    said = PartitionData(leader_id=LEADER, current_voters=[leader], observers=list(observers))
    nodes = [Node(node_id=LEADER, listeners=[Listener(name="CONTROLLER", host="h", port=1)])]
    return why_not_added(quorum_told(said, nodes), node, address, directory)


def follows(node: int, end: int, ago_ms: int | None, directory: bytes = NEW) -> ReplicaState:
    at_ms = -1 if ago_ms is None else NOW_MS - ago_ms
    return ReplicaState(
        replica_id=node, replica_directory_id=directory, log_end_offset=end, last_caught_up_timestamp=at_ms
    )


def test_observer_that_keeps_up_may_vote() -> None:
    assert why_not(4, follows(4, 50, 400), directory=uuid_to_str(NEW)) == ""
    assert why_not(4, follows(4, 20, None, OLD), follows(4, 50, 400), directory=uuid_to_str(NEW)) == ""


def test_what_is_to_vote_must_follow_and_have_all() -> None:
    assert "node 4 is 30 records behind the leader, and was caught up never" in why_not(4, follows(4, 20, None))
    assert why_not(4, follows(4, 50, KEEPS_UP_MS)) == ""
    assert "was caught up 10.0 s ago" in why_not(4, follows(4, 40, KEEPS_UP_MS + 1))
    assert "node 4 does not follow the metadata quorum, none does" in why_not(4)
    assert "node 4 does not follow the metadata quorum, those that do are 5" in why_not(4, follows(5, 50, 0))
    assert f"has the directory {uuid_to_str(NEW)}, not x" in why_not(4, follows(4, 50, 0), directory="x")


def test_what_votes_is_not_added_again() -> None:
    assert "node 1 is a voter already" in why_not(1) and "`isthmus quorum remove 1`" in why_not(1)
    assert "h:1 is where node 1 is reached" in why_not(4, follows(4, 50, 0), address="h:1")


def test_endpoint_is_an_address_with_or_without_its_listener() -> None:
    assert parsed_endpoint("controller://h:9093") == ("CONTROLLER", "h", 9093)
    assert parsed_endpoint("[::1]:9093") == ("", "[::1]", 9093)
    for text in ("h", "h:", ":9093", "h:x", "h:70000", "://h:1"):
        with pytest.raises(DeployError, match="expected"):
            parsed_endpoint(text)


def test_broker_that_lives_is_not_unregistered() -> None:
    brokers = [DescribeClusterBroker(broker_id=1), DescribeClusterBroker(broker_id=2, is_fenced=True)]
    said = why_not_unregistered(brokers, 1)
    assert "broker 1 runs" in said and "`isthmus broker drain 1`" in said
    assert why_not_unregistered(brokers, 2) == why_not_unregistered(brokers, 9) == ""  # 9: the cluster says so
