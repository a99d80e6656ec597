"""What a follower does with answers that come seldom: it has left its leader's log, or its leader has dropped it."""

from __future__ import annotations

from bisect import bisect_right
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.core_broker.replication.fetching import common_end
from isthmus.core_broker.server.fetch_sessions import FetchSession, FetchSessions
from isthmus.protocol.messages.fetch import EpochEndOffset
from tests.simulation.brokers import Cluster
from tests.simulation.runner import Simulation, run_checked
from tests.simulation.workload import Workload


def follower_log(end: int, *epochs: tuple[int, int]) -> Any:
    """A log of these (epoch, first offset)."""
    numbers = [epoch for epoch, _ in epochs]
    ends = [*(first for _, first in epochs[1:]), end]

    def end_offset_for_epoch(epoch: int) -> tuple[int, int]:
        found = bisect_right(numbers, epoch)
        return (numbers[found - 1], ends[found - 1]) if found else (-1, -1)

    return SimpleNamespace(log_end_offset=end, end_offset_for_epoch=end_offset_for_epoch)


@pytest.mark.parametrize(
    ("epoch", "leader_end", "common"),
    [(3, 8, 8), (3, 12, 10), (2, 9, 6), (0, 4, 4), (0, 12, 10)],
    ids=[
        "the leader's epoch ends earlier",
        "the follower's epoch ends earlier",
        "the follower does not know the epoch: where its own before that one ends",
        "all its epochs are newer: where the leader's ends",
        "all its epochs are newer, and the leader's ends later",
    ],
)
def test_common_end_of_two_logs(epoch: int, leader_end: int, common: int) -> None:
    log = follower_log(10, (1, 0), (3, 6))
    assert common_end(log, EpochEndOffset(epoch=epoch, end_offset=leader_end)) == common


def test_followers_go_on_when_their_leader_drops_their_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has room for one session, so that one follower has none, and that of the other goes again and again."""
    asked = dropped = 0
    real = FetchSessions.resume

    def resume(self: FetchSessions, session_id: int, epoch: int, by_id: bool) -> FetchSession:
        nonlocal asked, dropped
        asked += 1
        if asked % 3 == 0:
            dropped += 1
            self.close(session_id)
        return real(self, session_id, epoch, by_id)

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, options={"max.incremental.fetch.session.cache.slots": "1"})
        await cluster.form()
        await cluster.make_topic("t", 1, {"min.insync.replicas": "3"})
        monkeypatch.setattr(FetchSessions, "resume", resume)
        producing = cluster.produce(Workload("w", "t"), count=40, partition=0)
        await sim.within(60.0, "all in-sync replicas have it", producing)
        await cluster.settled({"t": 1}, 60.0)

    run_checked(scenario)
    assert dropped > 2
