"""What a follower of the quorum must never do."""

from isthmus.core_broker.cluster.raft import messages as m
from isthmus.core_broker.cluster.raft.messages import OffsetAndEpoch
from isthmus.core_broker.cluster.raft.raft import Raft, RaftOptions
from isthmus.core_broker.cluster.raft.voters import VoterHistory
from isthmus.protocol.errors import ErrorCode

from .node import LeaderChange, MemoryLog, endpoints_of, key_of, static_voters


def last_fetch(effects: list[m.Effect]) -> int:
    """The id of the last Fetch that was sent."""
    return [each.id for each in effects if isinstance(each, m.Send) and isinstance(each.request, m.Fetch)][-1]


def test_it_stops_where_its_leader_lacks_what_was_committed() -> None:
    """A majority has lost its disks: to cut the log off would lose the last copy of what was committed."""
    log = MemoryLog(records=[(1, LeaderChange(1)), (1, "a"), (1, "b")], flushed_offset=3)
    election = m.Persist(1, 1, None)
    raft = Raft(
        key_of(2),
        log,
        VoterHistory(static_voters([1, 2, 3])),
        RaftOptions(),
        lambda n: 0,
        endpoints_of(2),
        (),
        election,
    )
    effects = raft.start(0)
    fetched = m.FetchAnswer(ErrorCode.NONE, 1, 1, high_watermark=2)
    effects = raft.step(m.Answered(10, last_fetch(effects), fetched))
    assert m.Committed(2) in effects
    diverging = m.FetchAnswer(ErrorCode.NONE, 1, 1, high_watermark=1, diverging=OffsetAndEpoch(1, 1))
    effects = raft.step(m.Answered(20, last_fetch(effects), diverging))
    (fatal,) = (each for each in effects if isinstance(each, m.Fatal))
    assert "offsets up to 2 were committed" in fatal.message
    assert not [each for each in effects if isinstance(each, m.Truncate)]
