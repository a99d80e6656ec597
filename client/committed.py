"""The committed offsets of a group, for its consumers and for an Admin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import offset_commit, offset_delete, offset_fetch
from .coordinator import Coordinator
from .errors import ClientError
from .membership import Membership
from .types import TopicPartition

NOT_THIS_MEMBER = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
NAMES_UP_TO = 9  # versions of OffsetFetch and OffsetCommit that name topics


class Committed(NamedTuple):
    """A committed offset. leader_epoch: of the record before it; -1 if it was not committed."""

    offset: int
    leader_epoch: int


async def fetch_committed(
    coordinator: Coordinator, tps: Sequence[TopicPartition] | None, timeout_ms: float, *, require_stable: bool = True
) -> dict[TopicPartition, Committed]:
    """Committed offsets of a group; of all partitions that have one when `tps` is None.

    require_stable: while a transaction with an offset of one of them is open, wait for its end (KIP-447), as whoever is
    to read on from there must. Raises KafkaError UNSTABLE_OFFSET_COMMIT if that takes longer than `timeout_ms`.
    """
    topics: dict[str, list[int]] = {}
    for tp in tps or ():
        topics.setdefault(tp.topic, []).append(tp.partition)
    asked = (
        None
        if tps is None
        else [offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in topics.items()]
    )
    request = offset_fetch.Request(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id=coordinator.key, topics=asked)],
        require_stable=require_stable,
    )
    what = f"committed offsets of {coordinator.name}"
    async with coordinator.client.operation(what, timeout_ms) as operation:
        while True:
            error: KafkaError | ClientError
            try:
                [group] = (await coordinator.ask(request, most_version=NAMES_UP_TO)).groups
                codes = [group.error_code, *(p.error_code for topic in group.topics for p in topic.partitions)]
                code = next((each for each in codes if each), 0)
                coordinator.heard(code)
                if not code:
                    return {
                        TopicPartition(topic.name, p.partition_index): Committed(
                            p.committed_offset, p.committed_leader_epoch
                        )
                        for topic in group.topics
                        for p in topic.partitions
                        if p.committed_offset >= 0
                    }
                error = KafkaError.of(code, what)
            except (ClientError, KafkaError) as failed:
                error = failed
            await operation.again(error)


async def commit_offsets(
    membership: Membership, offsets: Mapping[TopicPartition, Committed], as_member: bool, timeout_ms: float
) -> None:
    """Commit as the group's member, or as a consumer that assigns its own partitions. Raises KafkaError:
    ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH if the group has removed this member or partitions went
    to others, REBALANCE_IN_PROGRESS if it waits for the next poll."""
    if not offsets:
        return
    group = membership.group_id
    if as_member and membership.generation < 0:
        # With generation -1 an empty group takes a commit, as of a consumer that assigns its own partitions.
        raise not_a_member(group, ErrorCode.UNKNOWN_MEMBER_ID)
    generation, given_up = membership.generation, membership.holdings.given_up
    request = offset_commit.Request(
        group_id=group,
        generation_id_or_member_epoch=generation if as_member else -1,
        member_id=membership.member_id if as_member else "",
        group_instance_id=membership.instance_id if as_member else None,
        topics=_named(offsets),
    )
    async with membership.coordinator.client.operation(f"commit of group {group}", timeout_ms) as operation:
        while True:
            try:
                code, where = await _commit_once(membership.coordinator, request)
            except (ClientError, KafkaError) as failed:
                await operation.again(failed)
                continue
            if not code:
                return
            error = KafkaError.of(code, f"group {group}, commit of {where}")
            if not as_member or code not in NOT_THIS_MEMBER:
                await operation.again(error)
                continue
            is_late = code == ErrorCode.STALE_MEMBER_EPOCH or generation != membership.generation
            membership.told_of_loss(code, generation)
            if not is_late:
                raise not_a_member(group, code)
            await operation.pause(error)  # a heartbeat brings the present epoch
            if membership.generation < 0 or membership.holdings.given_up != given_up:
                raise error  # a partition of it may be another member's since
            request.generation_id_or_member_epoch = generation = membership.generation
            request.member_id = membership.member_id


async def set_committed(coordinator: Coordinator, offsets: Mapping[TopicPartition, int], timeout_ms: float) -> None:
    """Commit for a group without members, from outside. Raises KafkaError UNKNOWN_MEMBER_ID if it has members."""
    request = offset_commit.Request(
        group_id=coordinator.key,
        generation_id_or_member_epoch=-1,
        topics=_named({tp: Committed(offset, -1) for tp, offset in offsets.items()}),
    )
    async with coordinator.client.operation(f"offsets of {coordinator.name}", timeout_ms) as operation:
        while True:
            try:
                code, where = await _commit_once(coordinator, request)
                if not code:
                    return
                error: KafkaError | ClientError = KafkaError.of(code, f"{coordinator.name}, offset of {where}")
            except (ClientError, KafkaError) as failed:
                error = failed
            await operation.again(error)


async def delete_committed(coordinator: Coordinator, tps: Iterable[TopicPartition], timeout_ms: float) -> None:
    """Delete committed offsets of topics that no member reads. Raises KafkaError GROUP_SUBSCRIBED_TO_TOPIC,
    GROUP_ID_NOT_FOUND."""
    topics: dict[str, Any] = {}
    for tp in tps:
        topic = topics.setdefault(tp.topic, offset_delete.OffsetDeleteRequestTopic(name=tp.topic, partitions=[]))
        topic.partitions.append(offset_delete.OffsetDeleteRequestPartition(partition_index=tp.partition))
    request = offset_delete.Request(group_id=coordinator.key, topics=list(topics.values()))
    async with coordinator.client.operation(f"deletion of offsets of {coordinator.name}", timeout_ms) as operation:
        while True:
            try:
                answer = await coordinator.ask(request)
                codes = [answer.error_code, *(p.error_code for topic in answer.topics for p in topic.partitions)]
                code = next((each for each in codes if each), 0)
                coordinator.heard(code)
                if not code:
                    return
                error: KafkaError | ClientError = KafkaError.of(code, coordinator.name)
            except ClientError as failed:
                error = failed
            await operation.again(error)


def _named(offsets: Mapping[TopicPartition, Committed]) -> list[Any]:
    topics: dict[str, Any] = {}
    for tp, each in offsets.items():
        topic = topics.setdefault(tp.topic, offset_commit.OffsetCommitRequestTopic(name=tp.topic, partitions=[]))
        topic.partitions.append(
            offset_commit.OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=each.offset,
                committed_leader_epoch=each.leader_epoch,
                committed_metadata="",
            )
        )
    return list(topics.values())


async def _commit_once(coordinator: Coordinator, request: Any) -> tuple[int, str]:
    """The first error's code and partition; 0 if there is none."""
    answer = await coordinator.ask(request, most_version=NAMES_UP_TO)
    refused = [
        (each.error_code, f"{topic.name}-{each.partition_index}")
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code
    ]
    code, where = refused[0] if refused else (0, "")
    coordinator.heard(code)
    return code, where


def not_a_member(group: str, code: int) -> KafkaError:
    """What a commit of a consumer that has lost its membership raises."""
    return KafkaError.of(
        code,
        f"group {group}: this consumer is not a member now, so nothing is committed: what was read "
        "since the last commit is read again by the next owner of its partitions; the next poll joins",
    )
