"""How a member takes part in its group by ConsumerGroupHeartbeat (KIP-848), in a few lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import consumer_group_heartbeat as chb

from .group_ledger import AGAIN, JOINING, SESSION_S, Place, ReplacedError

if TYPE_CHECKING:
    from .consuming import Life, Subscription

HEARTBEAT_VERSION = 1
LOST = 0.02  # of the answers: its connection breaks while they are on the way
LEAVING, PAUSED = -1, -2  # epochs that members send
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)  # it begins anew
NO_GROUP = ErrorCode.GROUP_ID_NOT_FOUND  # to a member that has lost its place, and whose group is a classic one by now


class ConsumerProtocolMember:
    """epoch: JOINING until it is a member. knows_leaving: the coordinator knows what it is still to give back."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self.epoch = JOINING
        self.knows_leaving = True
        self.member_id = f"{life.name}-{life.random.randrange(1 << 32):08x}"
        self._latest_epoch = JOINING
        self._heard_s = 0.0  # when the last heartbeat was sent that was answered
        self._unanswered_s: float | None = None  # when the first heartbeat was sent after it
        self._revoked_s: float | None = None  # from when it may be counted for how long it takes to give back
        self._told: set[Place] | None = None  # what the coordinator knows that it has; None: unsure
        self._subscribed: Subscription | None = None

    def is_sure_of(self, place: Place) -> bool:
        """Whether a partition that it has been given is still its own; if in doubt it is not."""
        until_s = self._heard_s + SESSION_S
        for since_s in (self._unanswered_s, self._revoked_s):
            if since_s is not None:
                until_s = min(until_s, since_s + self._life.member.rebalance_s)
        return self._life.sim.loop.time() < until_s

    async def beat(self) -> None:
        life = self._life
        subscription = life.member.subscription
        is_full = self._told is None
        request = chb.Request(
            group_id=life.ledger.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=life.member.instance,
        )
        if is_full or subscription != self._subscribed:
            request.subscribed_topic_names = list(subscription.names)
            request.subscribed_topic_regex = subscription.regex
        if is_full:
            request.rebalance_timeout_ms = int(life.member.rebalance_s * 1000)
        owned = set(life.owned)
        if is_full or owned != self._told or life.random.random() < 0.3:
            request.topic_partitions = topics_of(owned)
        sending = life.joins if self.epoch == JOINING else None
        now_s = life.sim.loop.time()
        if self._unanswered_s is None:
            self._unanswered_s = now_s
        self._told = None  # unless it is answered
        answer = await life.coordinated(chb.API, request, HEARTBEAT_VERSION, sending=sending)
        if answer is None or life.random.random() < LOST:
            return
        code = answer.error_code
        if code == ErrorCode.FENCED_INSTANCE_ID:
            raise ReplacedError
        if code in FENCED or self._has_lost_its_group(code):
            life.lost()
            self._begin_anew()
            return
        if code == ErrorCode.UNRELEASED_INSTANCE_ID and self.epoch == JOINING:
            life.sim.counters["unreleased"] += 1
            return
        if code == ErrorCode.UNKNOWN_SERVER_ERROR and life.ledger.migrates and self.epoch == JOINING:
            life.sim.counters["joined_before_any_generation"] += 1  # of a classic group
            return
        assert not code or code in AGAIN, f"{life.name} was told {ErrorCode(code).name}: {answer.error_message}"
        if not code and life.sim.loop.time() < now_s + SESSION_S:  # one that hung takes an old answer for a lost one
            self._heard_s, since_s, self._unanswered_s = now_s, self._unanswered_s, None
            self._told, self._subscribed = owned, subscription
            self._take(answer, since_s)

    def _has_lost_its_group(self, code: int) -> bool:
        return code == NO_GROUP and self._life.ledger.migrates and self.epoch != JOINING

    def _take(self, answer: chb.Response, since_s: float) -> None:
        life = self._life
        assert answer.member_epoch >= self._latest_epoch, (
            f"{life.name} of {life.ledger.group} was in epoch {self._latest_epoch}, and is in {answer.member_epoch}"
        )
        self.epoch = self._latest_epoch = answer.member_epoch
        if answer.assignment is not None:
            given = {(each.topic_id, index) for each in answer.assignment.topic_partitions for index in each.partitions}
            if life.take(given):
                self._revoked_s = since_s
        if not life.leaving:
            self._revoked_s = None

    def _begin_anew(self) -> None:
        self.epoch = JOINING
        if self._life.ledger.migrates:  # an empty group of one kind makes room for a new one of the other
            self._latest_epoch = JOINING
        self._told = self._unanswered_s = self._revoked_s = None

    async def leave(self) -> None:
        """A static member comes back, unless all is over."""
        life = self._life
        epoch = PAUSED if life.member.instance is not None and not life.member.is_over else LEAVING
        request = chb.Request(
            group_id=life.ledger.group, member_id=self.member_id, member_epoch=epoch, instance_id=life.member.instance
        )
        while self.epoch != JOINING:
            answer = await life.coordinated(chb.API, request, HEARTBEAT_VERSION)
            if answer is not None and answer.error_code not in AGAIN:
                code = ErrorCode(answer.error_code)
                known = (ErrorCode.NONE, *FENCED, ErrorCode.FENCED_INSTANCE_ID)
                assert code in known or self._has_lost_its_group(code), code.name
                return


def topics_of(places: set[Place]) -> list[chb.TopicPartitions]:
    ids = sorted({topic_id for topic_id, _ in places})
    return [
        chb.TopicPartitions(topic_id=each, partitions=sorted(index for topic_id, index in places if topic_id == each))
        for each in ids
    ]
