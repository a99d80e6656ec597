"""Planted bugs of the metadata quorum: each takes one rule of Raft away; `controls.py` has how they are used."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

Plant = Callable[[contextlib.ExitStack], None]


def _replace(stack: contextlib.ExitStack, target: object, attribute: str, value: object) -> None:
    stack.enter_context(mock.patch.object(target, attribute, value))


def votes_not_on_disk(stack: contextlib.ExitStack) -> None:
    """A node that comes back has forgotten for whom it voted."""
    from isthmus.core_broker.cluster.raft import messages as m
    from isthmus.core_broker.cluster.raft.raft import Raft

    real = Raft.start

    def start(self: Raft, now_ms: int) -> list[Any]:
        if self.persisted is not None:
            self.persisted = m.Persist(self.persisted.epoch, self.persisted.leader_id, None)
        return real(self, now_ms)

    _replace(stack, Raft, "start", start)


def votes_twice_in_an_epoch(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.cluster.raft.raft import Raft

    real = Raft._may_vote

    def may_vote(self: Raft, candidate: Any, has_enough: bool, pre_vote: bool) -> bool:
        voted, self.voted = self.voted, None
        try:
            return real(self, candidate, has_enough, pre_vote)
        finally:
            self.voted = voted

    _replace(stack, Raft, "_may_vote", may_vote)


def votes_for_shorter_logs(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.cluster.raft import raft

    _replace(stack, raft, "has_all_of", lambda last, log: True)


def half_of_the_votes_is_enough(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.cluster.raft.roles import Votes

    _replace(stack, Votes, "_majority", property(lambda self: (len(self.granted) + 1) // 2))


def commits_earlier_epochs(stack: contextlib.ExitStack) -> None:
    """What a majority has is committed, though no record of the leader's own epoch is (Raft, figure 8)."""
    from isthmus.core_broker.cluster.raft.leader import Leader

    def high_watermark(self: Leader) -> int | None:
        ends = sorted((each.end_offset for each in self.voters.values()), reverse=True)
        return ends[len(ends) // 2] if ends[len(ends) // 2] >= 0 else None

    _replace(stack, Leader, "high_watermark", high_watermark)


def leader_counts_what_is_not_on_disk(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.cluster.raft.leader import Leader
    from isthmus.core_broker.cluster.raft.raft import Raft

    real = Raft._advance_high_watermark

    def advance(self: Raft, role: Leader) -> None:
        role.progress_of(self.me).end_offset = self.log.end_offset
        real(self, role)

    _replace(stack, Raft, "_advance_high_watermark", advance)


def follower_fetches_before_it_has_flushed(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.cluster.raft.raft import Raft

    class Hasty:
        """A log that says that all is on disk."""

        def __init__(self, log: Any) -> None:
            self._log = log

        def __getattr__(self, name: str) -> Any:
            return getattr(self._log, "end_offset" if name == "flushed_offset" else name)

    real = Raft._poll_follower

    def poll(self: Raft, role: Any) -> None:
        log, self.log = self.log, Hasty(self.log)
        try:
            real(self, role)
        finally:
            self.log = log

    _replace(stack, Raft, "_poll_follower", poll)


def leader_goes_on_with_its_epoch(stack: contextlib.ExitStack) -> None:
    """A leader that comes back leads the epoch that it has led, though it may have lost records of it."""
    from isthmus.core_broker.cluster.raft.raft import Raft
    from isthmus.core_broker.cluster.raft.roles import Resigned

    real = Raft.start

    def start(self: Raft, now_ms: int) -> list[Any]:
        effects = real(self, now_ms)
        if isinstance(self.role, Resigned):
            from isthmus.core_broker.cluster.raft.roles import Candidate, Votes

            self.role = Candidate(now_ms, Votes({self.me.id: True}), 1)
            self._become_leader()
            effects += self._flushed_effects()
        return effects

    _replace(stack, Raft, "start", start)


def divergence_not_noticed(stack: contextlib.ExitStack) -> None:
    """A leader answers whoever fetches, whatever the end of the other log is."""
    from isthmus.core_broker.cluster.raft import raft

    real = raft.check_position

    def check(log: Any, offset: int, epoch: int) -> Any:
        diverging, snapshot = real(log, offset, epoch)
        return (None if offset <= log.end_offset else diverging), snapshot

    _replace(stack, raft, "check_position", check)


def high_watermark_past_the_log(stack: contextlib.ExitStack) -> None:
    """A follower takes the leader's, though its own log ends before it."""
    from isthmus.core_broker.cluster.raft import messages as m
    from isthmus.core_broker.cluster.raft.raft import Raft

    def follow(self: Raft, role: Any) -> None:
        if role.told_high_watermark > (self.high_watermark or -1):
            self.high_watermark = role.told_high_watermark
            self._do(m.Committed(role.told_high_watermark))

    _replace(stack, Raft, "_follow_high_watermark", follow)


def late_answers_count(stack: contextlib.ExitStack) -> None:
    """An answer to a fetch that was given up is taken, after the next one was answered."""
    from isthmus.core_broker.cluster.raft.links import Links

    real = Links.end

    def end(self: Links, request_id: int) -> Any:
        sent = self._sent.get(request_id)
        found = real(self, request_id)
        if sent is not None:
            self._sent[request_id] = sent
        return found

    _replace(stack, Links, "end", end)


def two_changes_of_the_voters_at_once(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.cluster.raft import changes

    def possible(role: Any, voters: Any, high_watermark: Any) -> None:
        role.change = None

    _replace(stack, changes, "check_possible", possible)


def directories_do_not_matter(stack: contextlib.ExitStack) -> None:
    """A node with an empty disk is still the voter that it was."""
    from isthmus.core_broker.cluster.raft.voters import ReplicaKey

    _replace(stack, ReplicaKey, "matches", lambda self, other: self.id == other.id)


def observers_count(stack: contextlib.ExitStack) -> None:
    """A majority of all that fetch has a record, not of the voters."""
    from isthmus.core_broker.cluster.raft.leader import Leader

    def high_watermark(self: Leader) -> int | None:
        everybody = [*self.voters.values(), *self.observers.values()]
        ends = sorted((each.end_offset for each in everybody), reverse=True)
        offset = ends[min(len(ends) - 1, len(self.voters) // 2)]
        return offset if offset > self.start_offset else None

    _replace(stack, Leader, "high_watermark", high_watermark)


def new_voters_bring_the_high_watermark_back(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.cluster.raft import messages as m
    from isthmus.core_broker.cluster.raft.raft import Raft

    def advance(self: Raft, role: Any) -> None:
        offset = role.high_watermark()
        if offset is not None and offset != self.high_watermark:
            self.high_watermark = offset
            self._do(m.Committed(offset))
            self._complete_change(role)
            self._release_fetches(role)

    _replace(stack, Raft, "_advance_high_watermark", advance)


def snapshot_of_the_wrong_epoch(stack: contextlib.ExitStack) -> None:
    """After a snapshot, a log says that its last record is of the epoch in which it was fetched."""
    from tests.core_broker.cluster.raft.node import MemoryLog

    real = MemoryLog.begin_after

    def begin_after(self: MemoryLog, snapshot: Any, keeps: bool) -> None:
        if not keeps:
            snapshot = snapshot._replace(id=replace_epoch(snapshot.id))
        real(self, snapshot, keeps)

    def replace_epoch(found: Any) -> Any:
        return found._replace(epoch=found.epoch + 1)

    _replace(stack, MemoryLog, "begin_after", begin_after)


PLANTS: dict[str, Plant] = {
    "commits-earlier-epochs": commits_earlier_epochs,
    "directories-do-not-matter": directories_do_not_matter,
    "divergence-not-noticed": divergence_not_noticed,
    "follower-fetches-before-it-has-flushed": follower_fetches_before_it_has_flushed,
    "half-of-the-votes-is-enough": half_of_the_votes_is_enough,
    "high-watermark-past-the-log": high_watermark_past_the_log,
    "late-answers-count": late_answers_count,
    "leader-counts-what-is-not-on-disk": leader_counts_what_is_not_on_disk,
    "leader-goes-on-with-its-epoch": leader_goes_on_with_its_epoch,
    "new-voters-bring-the-high-watermark-back": new_voters_bring_the_high_watermark_back,
    "observers-count": observers_count,
    "snapshot-of-the-wrong-epoch": snapshot_of_the_wrong_epoch,
    "two-changes-of-the-voters-at-once": two_changes_of_the_voters_at_once,
    "votes-for-shorter-logs": votes_for_shorter_logs,
    "votes-not-on-disk": votes_not_on_disk,
    "votes-twice-in-an-epoch": votes_twice_in_an_epoch,
}
