"""A consumer group on a table: its decisions are replayed by hand, and time passes when told."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.coordinators.consumer_groups import classic_members, leaving, matching
from isthmus.core_broker.coordinators.consumer_groups.assignors import ASSIGNORS
from isthmus.core_broker.coordinators.consumer_groups.decision import Decision, GroupOptions, Policy, Rules
from isthmus.core_broker.coordinators.consumer_groups.group import ConsumerGroup, Resolved
from isthmus.core_broker.coordinators.consumer_groups.heartbeat import heartbeat, only_stays
from isthmus.core_broker.coordinators.consumer_groups.member import Member
from isthmus.core_broker.coordinators.consumer_groups.topics import Topics
from isthmus.core_broker.coordinators.effects import Caller, Ensure, Schedule, Timer, session
from isthmus.core_broker.coordinators.members import Protocols
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import consumer_group_heartbeat as chb
from isthmus.protocol.messages import heartbeat as hb
from isthmus.protocol.messages import join_group as jg
from isthmus.protocol.messages import metadata_records as r
from isthmus.protocol.messages import sync_group as sg
from isthmus.protocol.messages.consumer_group_records import ConsumerGroupMetadataKey
from isthmus.protocol.messages.consumer_protocol import Subscription, TopicPartition, encode_subscription
from isthmus.protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue
from isthmus.protocol.messages.leave_group import MemberIdentity

SESSION_MS = 45_000
CLASSIC_SESSION_MS = 10_000
REBALANCE_MS = 60_000
OPTIONS = GroupOptions(session_timeout_ms=SESSION_MS, heartbeat_interval_ms=5_000, assignment_interval_ms=0)

Partitions = Mapping[str, Sequence[int]]  # by topic


class Cluster:
    """A metadata image whose topics are made, grow and go."""

    def __init__(self, **topics: int) -> None:
        self.image = MetadataImage("c")
        self.topics = Topics(self.image)
        self._ids = itertools.count(1)
        for name, partitions in topics.items():
            self.create(name, partitions)

    def create(self, name: str, partitions: int) -> None:
        topic_id = next(self._ids).to_bytes(16, "big")
        self._apply([r.TopicRecord(name=name, topic_id=topic_id), *self._partitions(topic_id, 0, partitions)])

    def grow(self, name: str, partitions: int) -> None:
        topic = self.image.topics[name]
        self._apply(self._partitions(topic.id, len(topic.partitions), partitions))

    def delete(self, name: str) -> None:
        self._apply([r.RemoveTopicRecord(topic_id=self.image.topics[name].id)])

    def _partitions(self, topic_id: bytes, first: int, end: int) -> list[Any]:
        return [
            r.PartitionRecord(partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1)
            for index in range(first, end)
        ]

    def _apply(self, records: list[Any]) -> None:
        self.topics.on_change(self.image.apply(records, self.image.offset + len(records), 1))


class Table:
    """`group` is what the records so far make; `patterns` those that are to be matched; a removed group is a new one.
    Each heartbeat that is told to say nothing new is checked to have said nothing.

    Members are told about partitions by names of topics.
    """

    def __init__(
        self,
        cluster: Cluster | None = None,
        *,
        max_size: int = 2**31 - 1,
        classic_max_size: int = 2**31 - 1,
        migration: Policy = Policy.BIDIRECTIONAL,
    ) -> None:
        self.cluster = cluster or Cluster(t=4, u=2)
        self.now_ms = 1_000
        self.options = OPTIONS
        self.rules = Rules(
            topics=self.cluster.topics,
            assignors=ASSIGNORS,
            options=lambda group_id: self.options,
            max_size=max_size,
            classic_max_size=classic_max_size,
            migration=migration,
            wall_ms=lambda: self.now_ms,
            new_id=lambda: "made",
        )
        self.group = ConsumerGroup("g")
        self.log: list[tuple[Any, Any]] = []
        self.timers: dict[Timer, int] = {}
        self.patterns: tuple[str, ...] = ()
        self.classic: GroupMetadataValue | None = None  # the record of the classic group that it has become
        self.converted: Mapping[str, Protocols] | None = None
        self.only_stayed = False  # of the last heartbeat

    # --- What members do ----------------------------------------------------------------------------------------------

    def join(self, member_id: str, names: Sequence[str] | None = ("t",), **fields: Any) -> chb.Response:
        fields.setdefault("rebalance_timeout_ms", REBALANCE_MS)
        return self.beat(member_id, 0, subscribed_topic_names=None if names is None else list(names), has={}, **fields)

    def beat(self, member_id: str, epoch: int, *, has: Partitions | None = None, **fields: Any) -> chb.Response:
        """has: the partitions that the member says it has; None for nothing said."""
        said = None
        if has is not None:
            said = [chb.TopicPartitions(topic_id=self.id_of(name), partitions=list(each)) for name, each in has.items()]
        request = chb.Request(group_id="g", member_id=member_id, member_epoch=epoch, topic_partitions=said, **fields)
        if epoch < 0:
            decision = leaving.leave(self.group, request, self.rules)
        else:
            decision, caller = Decision(), Caller(1, "c", "/h")
            self.only_stayed = only_stays(self.group, request, caller, self.rules)
            heartbeat(self.group, request, caller, self.rules, decision)
            if self.only_stayed:
                assert not decision.records and decision.refreshed_at is None and not decision.patterns
                assert decision.effects == [Schedule(session(member_id), self.options.session_timeout_ms)]
                assert decision.response.member_epoch == epoch and decision.response.assignment is None
        self.take(decision)
        return decision.response

    # --- What members of the classic protocol do ----------------------------------------------------------------------

    def join_classic(
        self,
        member_id: str,
        names: Sequence[str] = ("t",),
        *,
        has: Partitions | None = None,
        version: int = 9,
        protocols: Sequence[str] = ("range",),
        **fields: Any,
    ) -> jg.Response:
        """has: the partitions that its subscription says it has."""
        owned = [TopicPartition(topic=name, partitions=list(each)) for name, each in (has or {}).items()]
        metadata = encode_subscription(Subscription(topics=list(names), owned_partitions=owned))
        request = jg.Request(
            group_id="g",
            member_id=member_id,
            session_timeout_ms=CLASSIC_SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type=fields.pop("kind", "consumer"),
            protocols=[jg.JoinGroupRequestProtocol(name=each, metadata=metadata) for each in protocols],
            **fields,
        )
        decision = classic_members.join(self.group, request, Caller(version, "c", "/h"), self.rules)
        self.take(decision)
        return decision.response

    def sync_classic(self, member_id: str, generation: int, **fields: Any) -> sg.Response:
        request = sg.Request(group_id="g", member_id=member_id, generation_id=generation, **fields)
        decision = classic_members.sync(self.group, request, self.rules)
        self.take(decision)
        return decision.response

    def beat_classic(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        decision = classic_members.beat(self.group, member_id, instance_id, generation, hb.Response(), self.rules)
        self.take(decision)
        return ErrorCode(decision.response.error_code)

    def leave_classic(self, *members: MemberIdentity) -> list[ErrorCode]:
        decision, answers = classic_members.leave(self.group, members, self.rules)
        self.take(decision)
        return [ErrorCode(each.error_code) for each in answers]

    # --- What the coordinator does ------------------------------------------------------------------------------------

    def take(self, decision: Decision) -> None:
        for key, value in decision.records:
            self.log.append((key, value))
            if isinstance(key, GroupMetadataKey):
                self.classic = value
                continue
            self.group.replay(key, value)
            if value is None and isinstance(key, ConsumerGroupMetadataKey):
                self.group = ConsumerGroup("g")
        for effect in decision.effects:
            if isinstance(effect, Schedule):
                self.timers[effect.timer] = self.now_ms + effect.delay_ms
            elif isinstance(effect, Ensure):
                self.timers.setdefault(effect.timer, self.now_ms + effect.delay_ms)
            else:
                self.timers.pop(effect.timer, None)
        if decision.refreshed_at is not None:
            self.group.refreshed_at = decision.refreshed_at
        self.patterns = decision.patterns or self.patterns
        self.converted = decision.classic

    def pass_ms(self, ms: int) -> None:
        """Let time pass, firing what falls due in order."""
        until = self.now_ms + ms
        while self.timers:
            timer = min(self.timers, key=lambda each: self.timers[each])
            if self.timers[timer] > until:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(timer))
            decision = leaving.fired(self.group, timer, self.rules)
            if decision is not None:
                self.take(decision)
        self.now_ms = until

    def match(self, **found: Sequence[str]) -> None:
        """The patterns that were to be matched have been: the topics of each."""
        self.patterns = ()
        resolved = {
            text: Resolved(frozenset(names), self.cluster.topics.version, self.now_ms) for text, names in found.items()
        }
        self.take(matching.matched(self.group, resolved, self.rules))

    def restart(self, clean_to: int = 0) -> None:
        """Another coordinator reads the records; of the first ones the log's cleaner has left the last of each key."""
        last = {repr(key): at for at, (key, _) in enumerate(self.log[:clean_to])}
        self.group = ConsumerGroup("g")
        for at, (key, value) in enumerate(self.log):
            if at >= clean_to or last[repr(key)] == at:
                self.group.replay(key, value)

    def set_options(self, **options: int) -> None:
        self.options = replace(self.options, **options)

    # --- What is seen -------------------------------------------------------------------------------------------------

    def id_of(self, name: str) -> bytes:
        return self.cluster.image.topics[name].id

    def named(self, partitions: Mapping[bytes, Any]) -> dict[str, list[int]]:
        return {str(self.cluster.topics.name_of(each)): sorted(indexes) for each, indexes in partitions.items()}

    def told(self, response: chb.Response) -> dict[str, list[int]] | None:
        """The partitions in an answer; None where it has none."""
        if response.assignment is None:
            return None
        return self.named({each.topic_id: each.partitions for each in response.assignment.topic_partitions})

    def member(self, member_id: str) -> Member:
        return self.group.members[member_id]

    def has(self, member_id: str) -> dict[str, list[int]]:
        return self.named(self.member(member_id).assigned)

    def kinds(self, since: int = 0) -> list[str]:
        """The kinds of the records written, by the names of their keys, tombstones with a minus."""
        return [
            ("-" if value is None else "") + type(key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
            for key, value in self.log[since:]
        ]
