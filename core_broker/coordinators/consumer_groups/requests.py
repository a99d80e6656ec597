"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: the requests are checked, and their groups are found.

What a heartbeat comes to is decided in `heartbeat.py` and `leaving.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages import consumer_group_describe as cgd
from ....protocol.messages import consumer_group_heartbeat as chb
from ...cluster.features import GROUP_VERSION
from ...cluster.image import MetadataImage
from ...config import BrokerConfig
from ...purgatory import Purgatory
from ...replication.waiting import ALL, when_acknowledged
from ..effects import Caller, Reply
from ..group_host import MAX_GROUPS, GroupHost
from ..group_shard import GroupShard
from ..inspection import GROUP_OPERATIONS, NOT_ASKED
from ..member_requests import slashed
from ..runtime import Shard, client_error
from .decision import Decision, Rules
from .group import ConsumerGroup
from .heartbeat import heartbeat, only_stays
from .leaving import leave
from .member import JOINING_EPOCH, LEAVING_EPOCH, PAUSED_EPOCH, Member
from .migration import upgraded
from .topics import Topics

PROTOCOLS = "group.coordinator.rebalance.protocols"
CHOSEN_IDS_SINCE = 1  # version of ConsumerGroupHeartbeat in which members choose their ids
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1  # kinds of members in ConsumerGroupDescribe


class ConsumerGroupRequests:
    """Every method takes the decoded request and its version; gives the answer, or a Pending."""

    def __init__(self, host: GroupHost, image: MetadataImage, config: BrokerConfig, purgatory: Purgatory) -> None:
        self._host = host
        self._image = image
        self._config = config
        self._purgatory = purgatory

    @property
    def _is_enabled(self) -> bool:
        """Whether the cluster has the protocol, and this broker is to speak it."""
        return self._image.features.get(GROUP_VERSION, 0) >= 1 and "consumer" in self._config[PROTOCOLS]

    # --- ConsumerGroupHeartbeat ---------------------------------------------------------------------------------------

    def heartbeat(self, request: chb.Request, version: int, client_id: str | None, client_host: str) -> Any:
        if not self._is_enabled:
            return chb.Response(error_code=ErrorCode.UNSUPPORTED_VERSION)
        consumer_groups = self._host.consumer_groups
        try:
            _check(request, version, consumer_groups.rules)
            shard = self._host.sure_shard_of(request.group_id)
            caller = Caller(version, client_id or "", slashed(client_host))
            group = shard.state.consumer_groups.get(request.group_id)
            if group is not None and only_stays(group, request, caller, consumer_groups.rules):
                # It asks by an epoch that it was told: there is nothing whose commit this answer has to wait for.
                return consumer_groups.stays(shard, group.group_id, request.member_id, request.member_epoch)
            decision = self._decide(request, caller, shard)
            self._commit(request.group_id, shard, decision)
        except KafkaError as error:
            code = client_error(error.code)
            message = error.message if code == error.code else None
            return chb.Response(error_code=code, error_message=message)

        def respond(code: ErrorCode) -> chb.Response:
            response: chb.Response = chb.Response(error_code=code) if code else decision.response
            return response

        return self._host.shards.answer(shard, respond, self._host.commit_timeout_ms)

    def _commit(self, group_id: str, shard: Shard[GroupShard], decision: Decision) -> None:
        """Raises KafkaError. Requests to a classic group that wait are answered once it is a consumer group: the next
        ones may come at once."""
        classic = shard.state.groups.get(group_id)
        if classic is None:
            self._host.consumer_groups.commit(shard, group_id, decision)
            return
        classic.refuse_waiting(ErrorCode.REBALANCE_IN_PROGRESS)
        replies = [effect for effect in classic.take_effects() if isinstance(effect, Reply)]
        try:
            self._host.consumer_groups.commit(shard, group_id, decision)
        finally:
            for reply in replies:
                reply.token.complete(reply.response)

    def _decide(self, request: chb.Request, caller: Caller, shard: Shard[GroupShard]) -> Decision:
        rules = self._host.consumer_groups.rules
        group = shard.state.consumer_groups.get(request.group_id)
        if request.member_epoch in (LEAVING_EPOCH, PAUSED_EPOCH):
            if group is None:
                raise _no_group(request.group_id, shard)
            return leave(group, request, rules)
        decision = Decision()
        if group is None:
            if request.member_epoch != JOINING_EPOCH:
                raise _no_group(request.group_id, shard, "Consumer group")
            group = self._new_group(request.group_id, shard, decision)
        heartbeat(group, request, caller, rules, decision)
        return decision

    def _new_group(self, group_id: str, shard: Shard[GroupShard], decision: Decision) -> ConsumerGroup:
        """The group that a first member makes: it is there once the decision's records are written."""
        classic = shard.state.groups.get(group_id)
        if classic is None:
            if shard.state.size >= MAX_GROUPS:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif classic.is_unused:
            decision.records.append(shard.state.tombstone(group_id))
        else:
            return upgraded(classic, self._host.consumer_groups.rules, decision)
        return ConsumerGroup(group_id)

    # --- ConsumerGroupDescribe ----------------------------------------------------------------------------------------

    def describe(self, request: cgd.Request, version: int) -> Any:
        """Answered once what is described is committed."""
        groups: list[cgd.DescribedGroup] = []
        waits: dict[int, tuple[Shard[GroupShard], list[cgd.DescribedGroup]]] = {}
        for group_id in dict.fromkeys(request.group_ids):
            described = cgd.DescribedGroup(group_id=group_id)
            groups.append(described)
            try:
                shard = self._describe(described, request.include_authorized_operations)
            except KafkaError as error:
                described.error_code = error.code
                if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
                    described.error_message = error.message
                continue
            if shard.partition.high_watermark < shard.written:
                waits.setdefault(shard.index, (shard, []))[1].append(described)
        response = cgd.Response(groups=groups)
        if not waits:
            return response
        ends = [(shard.partition, shard.written, of_shard) for shard, of_shard in waits.values()]

        def answer() -> cgd.Response:
            for partition, end, of_shard in ends:
                if partition.high_watermark < end:
                    failure = partition.failure
                    code = client_error(ErrorCode.REQUEST_TIMED_OUT if failure is None else failure.code)
                    for each in of_shard:
                        each.__init__(group_id=each.group_id, error_code=code)  # type: ignore[misc]
            return response

        return when_acknowledged(
            ((partition, end) for partition, end, _ in ends),
            ALL,
            answer,
            self._purgatory,
            self._host.commit_timeout_ms,
        )

    def _describe(self, described: cgd.DescribedGroup, with_operations: bool) -> Shard[GroupShard]:
        if not self._is_enabled:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if not described.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        shard = self._host.sure_shard_of(described.group_id)
        group = shard.state.consumer_groups.get(described.group_id)
        if group is None:
            raise _no_group(described.group_id, shard)
        rules = self._host.consumer_groups.rules
        described.group_state = group.state.value
        described.group_epoch = group.epoch
        described.assignment_epoch = group.assignment_epoch
        described.assignor_name = group.preferred_assignor() or rules.default_assignor
        described.members = [_described_member(member, group, rules.topics) for member in group.members.values()]
        described.authorized_operations = GROUP_OPERATIONS if with_operations else NOT_ASKED
        return shard


def _check(request: chb.Request, version: int, rules: Rules) -> None:
    """Raises KafkaError for what is wrong whatever the group is."""
    epoch = request.member_epoch
    if version >= CHOSEN_IDS_SINCE or epoch > 0 or epoch == LEAVING_EPOCH:
        _refuse_empty(request.member_id, "MemberId")
    _refuse_empty(request.group_id, "GroupId")
    _refuse_empty(request.instance_id, "InstanceId")
    _refuse_empty(request.rack_id, "RackId")
    wrong = ""
    if epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == -1:
            wrong = "RebalanceTimeoutMs must be provided in first request."
        elif request.topic_partitions is None or request.topic_partitions:
            wrong = "TopicPartitions must be empty when (re-)joining."
        elif request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            wrong = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif epoch == PAUSED_EPOCH and request.instance_id is None:
        wrong = "InstanceId can't be null."
    elif epoch < PAUSED_EPOCH:
        wrong = "MemberEpoch is invalid."
    if wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
    if request.server_assignor is not None and request.server_assignor not in rules.assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(rules.assignors)}.",
        )


def _refuse_empty(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")


def _no_group(group_id: str, shard: Shard[GroupShard], kind: str = "Group") -> KafkaError:
    if group_id in shard.state.groups:
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {group_id} not found.")


def _described_member(member: Member, group: ConsumerGroup, topics: Topics) -> cgd.Member:
    has: dict[bytes, list[int]] = {}
    for assigned in (member.assigned, member.pending_revocation):
        for topic_id, partitions in assigned.items():
            has.setdefault(topic_id, []).extend(partitions)
    return cgd.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_described_assignment(has, topics),
        target_assignment=_described_assignment(group.targets.get(member.member_id, {}), topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _described_assignment(partitions: Mapping[bytes, Iterable[int]], topics: Topics) -> cgd.Assignment:
    """Topics that do not exist any more are left out."""
    named = [(topic_id, topics.name_of(topic_id), indexes) for topic_id, indexes in partitions.items()]
    return cgd.Assignment(
        topic_partitions=[
            cgd.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
            for topic_id, name, indexes in named
            if name is not None
        ]
    )
