"""A member of a consumer group (KIP-848): what it tells the coordinator, and what it makes of the answers. Pure.

The coordinator assigns, in steps: a member gives up what its assignment lacks and says so, then others are assigned it.
A member claims what it may yet take, too: else others could be assigned that while an older answer still lets it.
What has not changed since the last heartbeat that was answered is not sent again; after one that was not, all is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

from ..protocol.errors import ErrorCode
from ..protocol.messages import consumer_group_heartbeat as wire
from .holdings import Give, Holdings, Step
from .membership import Subscription
from .types import TopicPartition

JOIN, LEAVE, LEAVE_FOR_NOW = 0, -1, -2  # member epochs
PUT_OUT = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class Phase(Enum):
    OUT = auto()  # it joins with the next poll
    JOINING = auto()
    IN = auto()
    LOST = auto()  # not a member, and the next poll tells the user before it joins again
    LEFT = auto()


class Event(Enum):
    POLLED = auto()  # with nothing to give up
    ACCEPTED = auto()
    PUT_OUT = auto()
    REFUSED = auto()  # by an error that another attempt cannot help
    STALLED = auto()  # left, since the user does not poll
    CLOSED = auto()


_NEXT: Mapping[tuple[Phase, Event], Phase] = {
    (Phase.OUT, Event.POLLED): Phase.JOINING,
    (Phase.LOST, Event.POLLED): Phase.JOINING,
    (Phase.JOINING, Event.ACCEPTED): Phase.IN,
    (Phase.JOINING, Event.REFUSED): Phase.LOST,
    (Phase.JOINING, Event.STALLED): Phase.LOST,
    (Phase.IN, Event.PUT_OUT): Phase.LOST,
    (Phase.IN, Event.REFUSED): Phase.LOST,
    (Phase.IN, Event.STALLED): Phase.LOST,
    **{(phase, Event.CLOSED): Phase.LEFT for phase in Phase},
}  # what is not here changes nothing


class _Told(NamedTuple):
    """What the coordinator knows of a member."""

    subscription: Subscription
    claims: frozenset[tuple[bytes, TopicPartition]]
    assignment: int  # number of the last one beyond which nothing is held, -1: not known


class ConsumerMember:
    """member_id: the member's own choice (KIP-1082). epoch: -1 while it is no member."""

    def __init__(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        rack: str,
        rebalance_timeout_ms: int,
        server_assignor: str | None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.instance_id = instance_id
        self.rack = rack
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.server_assignor = server_assignor
        self.subscription = Subscription()
        self.holdings = Holdings()
        self.phase = Phase.OUT
        self.epoch = -1
        self._assigned: dict[bytes, list[int]] | None = None  # partitions by topic id; None: not known yet
        self._assignment = 0  # counts assignments, as a partition may come and go before any poll has seen it
        self._names: dict[bytes, str] = {}  # of topics assigned
        self._told: _Told | None = None  # None: all is to be sent
        self._telling: _Told | None = None  # by the heartbeat under way
        self._had_pattern = False  # since it joined, or another process in its place, which an empty one then replaces

    # --- Polls --------------------------------------------------------------------------------------

    def polled(self) -> Step | None:
        """What a poll has to do next; with nothing to do, who is out begins to join."""
        step = self.holdings.step()
        if step is None and self.phase in (Phase.OUT, Phase.LOST):
            self._on(Event.POLLED)
        return step

    # --- Heartbeats ---------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether a heartbeat is due at once: to join, for another subscription, or to acknowledge an assignment, which
        is done when nothing is left to give up."""
        if self.phase is Phase.JOINING:
            return True
        if self.phase is not Phase.IN or self._told is None:
            return False
        return self._told.subscription != self.subscription or (self._has_given() and self._is_unsaid(self._told))

    def _has_given(self) -> bool:
        return not isinstance(self.holdings.step(), Give)

    def _is_unsaid(self, told: _Told) -> bool:
        return told.claims != self.holdings.claims or told.assignment != self._fulfilled(told)

    def _fulfilled(self, told: _Told | None) -> int:
        if self._has_given():
            return self._assignment
        return -1 if told is None else told.assignment

    def heartbeat(self) -> Any:
        """The next heartbeat of one that is a member or joins; then its answer, or `failed`."""
        joins = self.phase is Phase.JOINING
        told = None if joins else self._told
        self._telling = _Told(self.subscription, self.holdings.claims, self._fulfilled(self._told))
        request = wire.Request(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=JOIN if joins else self.epoch,
            instance_id=self.instance_id,
        )
        if told is None:
            request.rack_id = self.rack or None
            request.rebalance_timeout_ms = self.rebalance_timeout_ms
            request.server_assignor = self.server_assignor
        if told is None or told.subscription != self.subscription:
            request.subscribed_topic_names = sorted(self.subscription.topics)
            inherits = self.instance_id is not None if joins else self._had_pattern
            self._had_pattern = self.subscription.pattern is not None or inherits
            if self._had_pattern:
                request.subscribed_topic_regex = self.subscription.pattern or ""
        if told is None or self._is_unsaid(told):
            request.topic_partitions = _by_topic_id(self.holdings.claims)
        return request

    def farewell(self) -> Any:
        """The heartbeat of one that leaves: a static member may come back within its session, to what it had."""
        epoch = LEAVE if self.instance_id is None else LEAVE_FOR_NOW
        return wire.Request(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )

    def failed(self) -> None:
        """No answer came, or one of a broker that does not coordinate the group: it may have been heard or not."""
        self._told = None

    def answered(self, answer: Any) -> None:
        """Take in the answer to the last heartbeat, without an error."""
        if self.phase not in (Phase.JOINING, Phase.IN):
            return
        is_first = self.phase is Phase.JOINING
        self._on(Event.ACCEPTED)
        self.epoch = answer.member_epoch
        self._told = self._telling
        if answer.assignment is not None:
            assigned = {each.topic_id: sorted(each.partitions) for each in answer.assignment.topic_partitions}
            self._assignment += assigned != (self._assigned or {})
            self._assigned = assigned
            self._names = {topic_id: name for topic_id, name in self._names.items() if topic_id in self._assigned}
        self._aim(must_tell=is_first)

    def put_out(self) -> None:
        """The coordinator does not know this member, or not in this epoch: it joins again, at once if it has nothing to
        give up."""
        if self.phase is Phase.IN:
            self._on(Event.PUT_OUT)
            if not self.holdings.is_lost:
                self._on(Event.POLLED)

    def is_unknown(self, code: int) -> bool:
        """Whether an error says no more than that the coordinator does not have this member, as one that has lost the
        group, which who joins makes anew. (To who joins the same code says that the group is of another kind.)"""
        return code in PUT_OUT or (code == ErrorCode.GROUP_ID_NOT_FOUND and self.phase is Phase.IN)

    def refused(self) -> None:
        self._on(Event.REFUSED)

    def stalled(self) -> None:
        self._on(Event.STALLED)

    def closed(self) -> None:
        self._on(Event.CLOSED)

    # --- Topics -------------------------------------------------------------------------------------

    @property
    def nameless(self) -> list[bytes]:
        """Topics assigned by ids whose names are not known: the rest of an assignment does not wait for them."""
        return [topic_id for topic_id in self._assigned or () if topic_id not in self._names]

    def learn(self, names: Mapping[bytes, str]) -> None:
        self._names |= names
        self._aim()

    def _aim(self, must_tell: bool = False) -> None:
        if self._assigned is None:
            return
        target = {
            TopicPartition(self._names[topic_id], partition): topic_id
            for topic_id, partitions in self._assigned.items()
            if topic_id in self._names
            for partition in partitions
        }
        self.holdings.shall_hold(dict(sorted(target.items())), must_tell)

    # --- Phases -------------------------------------------------------------------------------------

    def _on(self, event: Event) -> None:
        before, self.phase = self.phase, _NEXT.get((self.phase, event), self.phase)
        if self.phase is before:
            return
        self._told = None
        if self.phase is not Phase.IN:
            self.epoch, self._assigned = -1, None
            if self.phase is Phase.LOST:
                self.holdings.lose()


def _by_topic_id(claims: Iterable[tuple[bytes, TopicPartition]]) -> list[Any]:
    found: dict[bytes, list[int]] = {}
    for topic_id, tp in sorted(claims):
        found.setdefault(topic_id, []).append(tp.partition)
    return [wire.TopicPartitions(topic_id=topic_id, partitions=each) for topic_id, each in found.items()]
