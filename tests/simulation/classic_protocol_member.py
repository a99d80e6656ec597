"""How a member takes part in its group by JoinGroup, SyncGroup and Heartbeat, in a few lines.

It keeps to cooperative rebalancing (KIP-429): it says what it has when it joins, gives back what it is not assigned any
more, and joins again then. Its group may be a classic one, in which a member leads and assigns, or a consumer group,
in which nobody does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import heartbeat as hb
from isthmus.protocol.messages import join_group as jg
from isthmus.protocol.messages import leave_group as lg
from isthmus.protocol.messages import sync_group as sg
from isthmus.protocol.messages.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

from .group_ledger import AGAIN, JOINING, SESSION_S, Place, ReplacedError

if TYPE_CHECKING:
    from .consuming import Life

JOIN_VERSION, SYNC_VERSION = 9, 5
JOIN_TIMEOUT_S = 45.0  # longer than any rebalance
NOBODY = ""
PROTOCOL = "cooperative-sticky"
Held = tuple[str, int]  # a partition by its topic's name
Topics = Mapping[str, tuple[bytes, int]]  # by name: id and number of partitions


class ClassicProtocolMember:
    """epoch: its generation; JOINING until it is a member. knows_leaving: the coordinator knows, and waits for it, that
    it still has what it is to give back."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self.epoch = JOINING
        self.member_id = NOBODY
        self._heard_s = 0.0  # when the last request was sent by whose answer all is as it was
        self._is_joining = False  # it has asked to join, and not been told what it is assigned
        self._must_join = False
        self._gives_back = False  # and joins again then
        self._is_of_consumer_group = False
        self.knows_leaving = True
        self._joined_for: tuple[str, ...] = ()  # the topics it wanted then
        self._leads_for: Topics | None = None  # what it has assigned, if it leads

    def is_sure_of(self, place: Place) -> bool:
        """Whether a partition that it has been given is still its own; if in doubt it is not.

        A classic group that becomes a consumer group knows only what was assigned: what a member is still to give back,
        or has before it is told its next assignment, may be anybody's then. A consumer group takes a member in again
        that it has removed meanwhile, and does not tell it that it had lost what it is to give back.
        """
        if self._is_joining and not self._is_of_consumer_group:
            return False
        if place in self._life.leaving and not self.knows_leaving:
            return False
        return self._is_fresh

    @property
    def _is_fresh(self) -> bool:
        """Whether it cannot have been removed, as it was heard in time."""
        life = self._life
        return life.sim.loop.time() < self._heard_s + min(SESSION_S, life.member.rebalance_s)

    async def beat(self) -> None:
        life = self._life
        image = life.member.cluster.image()
        if image is None:
            return
        self._forget_deleted(image)
        topics = self._wanted(image)
        self._must_join |= self._joined_for != tuple(topics)
        self._must_join |= self._leads_for is not None and self._leads_for != _known(self._leads_for, image)
        self._must_join |= self._gives_back and not life.leaving
        if self.epoch == JOINING or (self._must_join and not life.leaving):
            await self._join(topics, image)
        else:
            await self._heartbeat()

    def _forget_deleted(self, image: MetadataImage) -> None:
        """What it had of a topic that was made anew it asks for again: its leader may know the new topic already."""
        life = self._life
        for places in (life.owned, life.leaving):
            for place in [place for place in places if place[0] not in image.names_by_id]:
                places.discard(place)
                self._must_join = True

    def _wanted(self, image: MetadataImage) -> list[str]:
        subscription = self._life.member.subscription
        return sorted(
            name
            for name in image.topics
            if name in subscription.names or (subscription.regex and re.fullmatch(subscription.regex, name))
        )

    async def _heartbeat(self) -> None:
        life = self._life
        now_s = life.sim.loop.time()
        request = hb.Request(
            group_id=life.ledger.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=life.member.instance,
        )
        answer = await life.coordinated(hb.API, request)
        if answer is None:
            return
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_join = True
        elif self._told(answer.error_code):
            self._heard_s = now_s

    def _told(self, code: int) -> bool:
        """Take an answer's error; True when there is none."""
        if code == ErrorCode.FENCED_INSTANCE_ID:
            raise ReplacedError
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = NOBODY
            self._life.lost()
            self.epoch = JOINING
            self._gives_back = False
            self._leads_for = None
            return False
        assert not code or code in AGAIN, f"{self._life.name} was told {ErrorCode(code).name}"
        return not code

    # --- Joining ------------------------------------------------------------------------------------------------------

    async def _join(self, topics: list[str], image: MetadataImage) -> None:
        life = self._life
        owned = [TopicPartition(topic=name, partitions=indexes) for name, indexes in _by_topic(self._held(image))]
        metadata = encode_subscription(
            Subscription(topics=topics, owned_partitions=owned, generation_id=self.epoch or -1)
        )
        request = jg.Request(
            group_id=life.ledger.group,
            session_timeout_ms=int(SESSION_S * 1000),
            rebalance_timeout_ms=int(life.member.rebalance_s * 1000),
            member_id=self.member_id,
            group_instance_id=life.member.instance,
            protocol_type="consumer",
            protocols=[jg.JoinGroupRequestProtocol(name=PROTOCOL, metadata=metadata)],
        )
        sending = life.joins if self.member_id == NOBODY else None
        self._must_join = self._is_joining = True
        self._joined_for = tuple(topics)
        joined = await life.coordinated(jg.API, request, JOIN_VERSION, JOIN_TIMEOUT_S, sending)
        if joined is None:
            return
        code = joined.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return
        if code == ErrorCode.REBALANCE_IN_PROGRESS or not self._told(code):
            return
        self.member_id, self.epoch = joined.member_id, joined.generation_id
        newer = life.member.cluster.image()
        if newer is not None:
            await self._sync(joined, newer, was_fresh=self._is_fresh)

    def _held(self, image: MetadataImage) -> list[Held]:
        return [(image.names_by_id[topic_id], index) for topic_id, index in sorted(self._life.owned)]

    async def _sync(self, joined: jg.Response, image: MetadataImage, *, was_fresh: bool) -> None:
        life = self._life
        self._leads_for = None
        shares: dict[str, list[Held]] = {}
        if joined.leader == self.member_id:
            subscriptions = {each.member_id: decode_subscription(bytes(each.metadata)) for each in joined.members}
            names = sorted({name for each in subscriptions.values() for name in each.topics})
            self._leads_for = _known(names, image)
            if not joined.skip_assignment:
                shares = shared_out(subscriptions, self._leads_for)
        now_s = life.sim.loop.time()
        request = sg.Request(
            group_id=life.ledger.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=life.member.instance,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=[
                sg.SyncGroupRequestAssignment(member_id=member_id, assignment=_encoded(share))
                for member_id, share in shares.items()
            ],
        )
        answer = await life.coordinated(sg.API, request, SYNC_VERSION, JOIN_TIMEOUT_S)
        if answer is None or answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS or not self._told(answer.error_code):
            return
        if life.sim.loop.time() >= now_s + min(SESSION_S, life.member.rebalance_s):
            return  # one that hung takes an old answer for a lost one
        self._heard_s = now_s
        self._must_join = self._is_joining = False
        self._is_of_consumer_group = joined.leader == NOBODY
        self.knows_leaving = self._is_of_consumer_group and was_fresh
        life.sim.counters["synced_in_consumer_groups"] += self._is_of_consumer_group
        life.sim.counters["synced_in_classic_groups"] += not self._is_of_consumer_group
        image = life.member.cluster.image() or image
        rows = decode_assignment(bytes(answer.assignment)).assigned_partitions
        life.take(
            {
                (image.topics[row.topic].id, index)
                for row in rows
                for index in row.partitions
                if row.topic in image.topics
            }
        )
        self._gives_back = bool(life.leaving)

    async def leave(self) -> None:
        """A static member comes back, and says nothing, unless all is over."""
        life = self._life
        if life.member.instance is not None and not life.member.is_over:
            return
        row = lg.MemberIdentity(member_id=self.member_id, group_instance_id=life.member.instance)
        while self.member_id != NOBODY:
            answer = await life.coordinated(lg.API, lg.Request(group_id=life.ledger.group, members=[row]))
            if answer is not None and answer.error_code not in AGAIN:
                code = answer.error_code or answer.members[0].error_code
                known = (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
                assert code in known, ErrorCode(code).name
                return


def _known(names: Mapping[str, object] | list[str], image: MetadataImage) -> Topics:
    """What the metadata has of topics, of those that exist."""
    found = [(name, image.topics[name]) for name in names if name in image.topics]
    return {name: (topic.id, len(topic.partitions)) for name, topic in found}


def shared_out(subscriptions: Mapping[str, Subscription], topics: Topics) -> dict[str, list[Held]]:
    """What a leader assigns: a partition that another member has is nobody's until that one has joined without it."""
    owners: dict[Held, list[str]] = {}
    for member_id, each in subscriptions.items():
        for row in each.owned_partitions:
            for index in row.partitions:
                owners.setdefault((row.topic, index), []).append(member_id)
    shares: dict[str, list[Held]] = {member_id: [] for member_id in sorted(subscriptions)}
    for name, (_, count) in topics.items():
        wanting = sorted(member_id for member_id, each in subscriptions.items() if name in each.topics)
        for index in range(count):
            chosen = wanting[index % len(wanting)]
            if owners.get((name, index), [chosen]) == [chosen]:
                shares[chosen].append((name, index))
    return shares


def _by_topic(held: list[Held]) -> list[tuple[str, list[int]]]:
    names = sorted({name for name, _ in held})
    return [(each, sorted(index for name, index in held if name == each)) for each in names]


def _encoded(share: list[Held]) -> bytes:
    return encode_assignment(
        Assignment(
            assigned_partitions=[TopicPartition(topic=name, partitions=indexes) for name, indexes in _by_topic(share)]
        )
    )
