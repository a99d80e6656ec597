"""Answers to DescribeGroups and ListGroups, and the counts of groups by state. Nothing is changed here.

DescribeGroups is of classic groups; `consumer_groups/requests.py` has ConsumerGroupDescribe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import describe_groups as dsg
from ...protocol.messages import list_groups as lsg
from .consumer_groups.group import GroupState
from .group import Group
from .group_shard import GroupShard
from .group_states import State
from .runtime import Shard

GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11  # read, delete, describe, describe and alter configs
NOT_ASKED = -0x80000000
CLASSIC, CONSUMER = "classic", "consumer"  # types of groups


def describe(request: dsg.Request, version: int, shard_of: Callable[[str], GroupShard]) -> dsg.Response:
    """shard_of: gives the shard of a group id, or raises KafkaError."""
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    described = []
    for group_id in dict.fromkeys(request.groups):
        answer = dsg.DescribedGroup(group_id=group_id, authorized_operations=operations)
        described.append(answer)
        try:
            shard = shard_of(group_id)
        except KafkaError as error:
            answer.error_code, answer.authorized_operations = error.code, NOT_ASKED
            continue
        group = shard.groups.get(group_id)
        if group is not None:
            _describe(group, answer)
            continue
        answer.group_state = State.DEAD.value
        if version >= 6:
            answer.error_code, answer.authorized_operations = ErrorCode.GROUP_ID_NOT_FOUND, NOT_ASKED
            is_other = group_id in shard.consumer_groups
            answer.error_message = f"Group {group_id} {'is not a classic group' if is_other else 'not found'}."
    return dsg.Response(groups=described)


def _describe(group: Group, answer: dsg.DescribedGroup) -> None:
    is_stable = group.state is State.STABLE
    answer.group_state = group.state.value
    answer.protocol_type = group.generation.protocol_type or ""
    answer.protocol_data = (group.generation.protocol_name or "") if is_stable else ""
    answer.members = [
        dsg.DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.generation.protocol_name) if is_stable else b"",
            member_assignment=member.assignment,
        )
        for member in group.members
    ]


def counts(shards: Sequence[Shard[GroupShard]]) -> dict[State, int]:
    """How many classic groups are in each state."""
    found = dict.fromkeys(State, 0)
    for shard in shards:
        for group in shard.state.groups.values():
            found[group.state] += 1
    return found


def consumer_counts(shards: Sequence[Shard[GroupShard]]) -> dict[GroupState, int]:
    """How many consumer groups are in each state."""
    found = dict.fromkeys(GroupState, 0)
    for shard in shards:
        for group in shard.state.consumer_groups.values():
            found[group.state] += 1
    return found


def listed(request: lsg.Request, shards: Sequence[Shard[GroupShard]]) -> lsg.Response:
    """The groups of all shards that pass the filters; an error while any shard cannot be used."""
    states = [state.strip().lower() for state in request.states_filter]
    types = [kind.strip().lower() for kind in request.types_filter]
    found = []
    for shard in shards:
        if shard.failure is not None:
            return lsg.Response(error_code=shard.failure.code)
        for each in _each(shard.state):
            if (not states or each.group_state.lower() in states) and (not types or each.group_type in types):
                found.append(each)
    return lsg.Response(groups=found)


def _each(shard: GroupShard) -> Iterator[lsg.ListedGroup]:
    for classic in shard.groups.values():
        yield lsg.ListedGroup(
            group_id=classic.group_id,
            protocol_type=classic.generation.protocol_type or "",
            group_state=classic.state.value,
            group_type=CLASSIC,
        )
    for group in shard.consumer_groups.values():
        yield lsg.ListedGroup(
            group_id=group.group_id, protocol_type=CONSUMER, group_state=group.state.value, group_type=CONSUMER
        )
