"""The partitions that a group's consumer holds, on their way to those that it shall hold. Pure.

What must go is given up before anything is taken (KIP-429), and a step counts only when the consumer has done it, since
the user's callbacks may take their time, fail, or be cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .types import TopicPartition


class Give(NamedTuple):
    """Call on_revoked, or on_lost if the member was put out, then give these up."""

    tps: list[TopicPartition]
    is_lost: bool = False


class Take(NamedTuple):
    """Begin to read these, then call on_assigned; perhaps with none."""

    tps: list[TopicPartition]


Step = Give | Take
Target = Mapping[TopicPartition, bytes]  # with topic ids, where the group names topics by them


class Holdings:
    """given_up: how often partitions were given up, so that a commit can tell whether they may be another's since."""

    def __init__(self) -> None:
        self.held: dict[TopicPartition, bytes] = {}
        self.given_up = 0
        self.is_lost = False
        self._target: Target | None = None  # None: as it is
        self._must_tell = False  # on_assigned is to be called even if nothing is new
        self._untold: dict[TopicPartition, None] = {}  # held, but on_assigned has not returned

    def shall_hold(self, target: Target, must_tell: bool = False) -> None:
        """must_tell: on_assigned is called even if nothing is new, as after a join."""
        self._target = target
        self._must_tell = must_tell or self._must_tell

    def lose(self) -> None:
        """The group has removed the member: others may have its partitions by now."""
        self.is_lost = bool(self.held)
        self._target = None
        self._must_tell = False

    def step(self) -> Step | None:
        """What the consumer is to do next; None: it holds what it shall."""
        if self.is_lost:
            return Give(sorted(self.held), is_lost=True)
        if self._target is None:
            return None
        if gone := [tp for tp, topic_id in self.held.items() if self._target.get(tp) != topic_id]:
            return Give(sorted(gone))
        new = [tp for tp in self._target if tp not in self.held or tp in self._untold]
        return Take(sorted(new)) if new or self._must_tell else None

    @property
    def kept(self) -> Target:
        """What it holds and shall hold on."""
        if self._target is None:
            return dict(self.held)
        return {tp: topic_id for tp, topic_id in self.held.items() if self._target.get(tp) == topic_id}

    @property
    def claims(self) -> frozenset[tuple[bytes, TopicPartition]]:
        """All that it holds, or may begin to hold at any time: by topic ids."""
        return frozenset((topic_id, tp) for each in (self.held, self._target or {}) for tp, topic_id in each.items())

    def all(self) -> Give:
        """To give up everything, as a consumer that is closed does."""
        return Give(sorted(self.held), self.is_lost)

    def begun(self, step: Take) -> None:
        """These are read from now on; on_assigned is about to be called."""
        assert self._target is not None
        for tp in step.tps:
            self.held[tp] = self._target[tp]
            self._untold[tp] = None

    def done(self, step: Step) -> None:
        """The callback has returned."""
        for tp in step.tps:
            self._untold.pop(tp, None)
        if isinstance(step, Take):
            self._must_tell = False
            return
        for tp in step.tps:
            self.held.pop(tp, None)
        self.given_up += 1
        if not self.held:
            self.is_lost = False
