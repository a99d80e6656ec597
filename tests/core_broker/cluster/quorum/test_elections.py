"""An election is measured from the first vote that a node wants until a leader is known."""

from isthmus.core_broker.cluster.quorum.elections import WINDOW_MS, Elections
from isthmus.core_broker.cluster.raft.roles import Candidate, Follower, Prospective, Unattached, Votes


def test_latency_is_that_of_a_nodes_own_candidacy() -> None:
    elections = Elections()
    elections.look(Unattached(5), 1000)
    elections.look(Prospective(9, Votes({}), 1), 1100)
    elections.look(Candidate(9, Votes({}), 1), 1200)
    elections.look(Unattached(5), 1300)  # nobody won; it goes on
    elections.look(Prospective(9, Votes({}), 2), 1400)
    assert elections.latencies_ms(1400) == []
    elections.look(Follower(9, 9), 1600)
    elections.look(Follower(9, 9), 1700)
    assert elections.latencies_ms(1700) == [500]
    elections.look(Unattached(5), 1800)
    elections.look(Follower(9, 9), 1900)  # another node's election
    assert elections.latencies_ms(1600 + WINDOW_MS) == [500]
    assert elections.latencies_ms(1601 + WINDOW_MS) == []
