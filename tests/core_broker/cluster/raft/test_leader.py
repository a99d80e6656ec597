"""Who follows a leader of the quorum, as far as it knows."""

from isthmus.core_broker.cluster.raft.leader import Leader
from isthmus.core_broker.cluster.raft.voters import ReplicaKey, Voter, VoterSet


def test_a_majority_is_heard_since_the_earliest_fetch_of_those_that_fetched_last() -> None:
    """Not when the last of them fetched: the others may have voted for another leader since they did."""
    keys = [ReplicaKey(each, bytes([each]) * 16) for each in range(1, 6)]
    leader = Leader(keys[0], 0, 3_000, 3_000, 0)
    leader.take_voters(VoterSet.of([Voter(each, ()) for each in keys]))
    heard = []
    for key, now_ms in zip((keys[1], keys[2], keys[2], keys[3], keys[1]), range(100, 600, 100), strict=True):
        leader.progress_of(key).fetched(0, 0, now_ms)
        heard.append(leader.majority_heard_ms)
    assert heard == [-1, 100, 100, 300, 400]
