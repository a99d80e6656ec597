"""Scenarios for consumer groups: coordinator, membership, offsets, listing and deleting."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_fetch,
    sync_group,
)

from .data import NO_SUCH_ID
from .peer import Case, Scenarios

SCENARIOS = Scenarios()
PROTOCOLS = [
    join_group.JoinGroupRequestProtocol(name="range", metadata=b"\0\1range"),
    join_group.JoinGroupRequestProtocol(name="sticky", metadata=b"\0\1sticky"),
]


def join_request(group: str, member_id: str = "", **fields: Any) -> join_group.Request:
    settings = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer"}
    return join_group.Request(
        **{"group_id": group, "member_id": member_id, "protocols": PROTOCOLS, **settings, **fields}
    )


def joined(case: Case, group: str | None = None, **fields: Any) -> join_group.Response:
    """The one member of a new group, which is its leader, between join and sync."""
    group = group or case.name
    case.coordinator(group)
    given = case.prepare(join_request(group, **fields))
    if given.error_code == 79:  # MEMBER_ID_REQUIRED
        given = case.prepare(join_request(group, given.member_id, **fields))
    assert given.error_code == 0, given
    return given


def sync_request(case: Case, member: join_group.Response, **fields: Any) -> sync_group.Request:
    share = sync_group.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"all of it")
    return sync_group.Request(
        **{
            "group_id": case.name,
            "generation_id": member.generation_id,
            "member_id": member.member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [share],
            **fields,
        }
    )


def stable(case: Case, **fields: Any) -> join_group.Response:
    member = joined(case, **fields)
    answer = case.prepare(sync_request(case, member))
    assert answer.error_code == 0, answer
    return member


def commit_request(
    case: Case, topic_id: bytes, partitions: tuple[int, ...] = (0,), **fields: Any
) -> offset_commit.Request:
    rows = [
        offset_commit.OffsetCommitRequestPartition(
            partition_index=each, committed_offset=40 + each, committed_leader_epoch=0, committed_metadata="note"
        )
        for each in partitions
    ]
    topic = offset_commit.OffsetCommitRequestTopic(name=case.name, topic_id=topic_id, partitions=rows)
    return offset_commit.Request(**{"group_id": case.name, "topics": [topic], **fields})


def committed(case: Case) -> bytes:
    """Topic and group of the case's name, an offset committed by no member."""
    topic_id = case.topic()
    case.coordinator()
    answer = case.prepare(commit_request(case, topic_id))
    assert answer.topics[0].partitions[0].error_code == 0, answer
    return topic_id


# --- OffsetCommit, OffsetFetch --------------------------------------------------------------------------------------


@SCENARIOS.success(8)
def commits_without_a_member(case: Case) -> None:
    topic_id = case.topic(partitions=2)
    case.coordinator()
    case.compare(commit_request(case, topic_id, (0, 1)))


@SCENARIOS.success(8)
def commits_as_a_member(case: Case) -> None:
    topic_id = case.topic()
    member = stable(case)
    case.compare(
        commit_request(
            case, topic_id, generation_id_or_member_epoch=member.generation_id, member_id=member.member_id
        )
    )  # fmt: skip


@SCENARIOS.error(8)
def commit_by_an_unknown_member(case: Case) -> None:
    topic_id = case.topic()
    case.coordinator()
    case.compare(commit_request(case, topic_id, generation_id_or_member_epoch=5, member_id="nobody"))
    member = stable(case)
    case.compare(commit_request(case, topic_id, generation_id_or_member_epoch=member.generation_id, member_id="nobody"))
    case.compare(commit_request(case, topic_id, generation_id_or_member_epoch=9, member_id=member.member_id))
    case.compare(commit_request(case, topic_id))  # by no member, while there are some


@SCENARIOS.error(8)
def commit_for_an_unknown_topic(case: Case) -> None:
    case.coordinator()
    case.compare(commit_request(case, NO_SUCH_ID))


@SCENARIOS.error(8)
def commit_with_too_much_metadata(case: Case) -> None:
    request = commit_request(case, case.topic())
    case.coordinator()
    request.topics[0].partitions[0].committed_metadata = "x" * 5000
    case.compare(request)


def fetch_offsets(case: Case, topic_id: bytes, partitions: list[int], **group: Any) -> offset_fetch.Request:
    if case.version < 8:
        old = offset_fetch.OffsetFetchRequestTopic(name=case.name, partition_indexes=partitions)
        return offset_fetch.Request(group_id=case.name, topics=[old])
    topic = offset_fetch.OffsetFetchRequestTopics(name=case.name, topic_id=topic_id, partition_indexes=partitions)
    wanted = offset_fetch.OffsetFetchRequestGroup(**{"group_id": case.name, "topics": [topic], **group})
    return offset_fetch.Request(groups=[wanted])


@SCENARIOS.success(9)
def reads_committed_offsets(case: Case) -> None:
    topic_id = committed(case)
    case.compare(fetch_offsets(case, topic_id, [0, 1]))  # 1 has none


@SCENARIOS.success(9, since=2)
def reads_all_offsets_of_a_group(case: Case) -> None:
    committed(case)
    if case.version < 8:
        case.compare(offset_fetch.Request(group_id=case.name, topics=None))
    else:
        groups = [offset_fetch.OffsetFetchRequestGroup(group_id=case.name, topics=None)]
        case.compare(offset_fetch.Request(groups=groups))


@SCENARIOS.success(9, since=7)
def reads_stable_offsets(case: Case) -> None:
    request = fetch_offsets(case, committed(case), [0])
    request.require_stable = True
    case.compare(request)


@SCENARIOS.error(9)
def offsets_of_an_unknown_group(case: Case) -> None:
    topic_id = case.topic()
    case.coordinator()
    case.compare(fetch_offsets(case, topic_id, [0]))


@SCENARIOS.error(9)
def offsets_for_an_unknown_topic(case: Case) -> None:
    case.coordinator()
    case.compare(fetch_offsets(case, NO_SUCH_ID, [0]))


@SCENARIOS.error(9, since=9)
def offsets_asked_by_an_unknown_member(case: Case) -> None:
    topic_id = committed(case)
    case.compare(fetch_offsets(case, topic_id, [0], member_id="nobody", member_epoch=3))


# --- FindCoordinator ------------------------------------------------------------------------------------------------


def find_request(case: Case, key: str, key_type: int = 0) -> find_coordinator.Request:
    if case.version < 4:
        return find_coordinator.Request(key=key, key_type=key_type)
    return find_coordinator.Request(coordinator_keys=[key], key_type=key_type)


@SCENARIOS.success(10)
def finds_a_groups_coordinator(case: Case) -> None:
    case.coordinator()
    case.compare(find_request(case, case.name))


@SCENARIOS.success(10, since=4)
def finds_many(case: Case) -> None:
    case.coordinator()
    case.compare(find_coordinator.Request(coordinator_keys=["a", "b", ""]))
    case.compare(find_coordinator.Request(coordinator_keys=[]))


@SCENARIOS.success(10, until=0)
def finds_for_an_empty_name(case: Case) -> None:
    case.coordinator()
    case.compare(find_request(case, ""))


@SCENARIOS.error(10, since=1)
def unknown_kind_of_coordinator(case: Case) -> None:
    case.compare(find_request(case, case.name, 9))


# --- JoinGroup, SyncGroup, Heartbeat, LeaveGroup --------------------------------------------------------------------


@SCENARIOS.success(11)
def joins_alone(case: Case) -> None:
    case.coordinator()
    first = case.compare(join_request(case.name))
    if first.error_code == 79:
        case.compare(join_request(case.name, first.member_id, reason="the second step"))


@SCENARIOS.success(11, since=5)
def joins_as_a_static_member(case: Case) -> None:
    case.coordinator()
    case.compare(join_request(case.name, group_instance_id="one"))


@SCENARIOS.success(11, since=5)
def joins_again_as_a_static_member(case: Case) -> None:
    stable(case, group_instance_id="one")
    case.compare(join_request(case.name, group_instance_id="one"))


@SCENARIOS.error(11)
def joins_with_what_is_refused(case: Case) -> None:
    case.coordinator()
    case.compare(join_request(case.name, session_timeout_ms=1))
    case.compare(join_request(case.name, session_timeout_ms=1 << 30))
    case.compare(join_request(case.name, "nobody"))
    case.compare(join_request(""))
    case.compare(join_request(case.name, protocol_type=""))
    case.compare(join_request(case.name, protocols=[]))


@SCENARIOS.error(11)
def joins_with_another_protocol(case: Case) -> None:
    stable(case)
    case.compare(join_request(case.name, protocol_type="connect"))
    other = [join_group.JoinGroupRequestProtocol(name="other", metadata=b"")]
    case.compare(join_request(case.name, protocols=other))


@SCENARIOS.success(14)
def gives_and_takes_the_assignment(case: Case) -> None:
    member = joined(case)
    case.compare(sync_request(case, member))
    case.compare(sync_request(case, member, assignments=[]))


@SCENARIOS.error(14)
def sync_is_refused(case: Case) -> None:
    case.coordinator()
    case.compare(sync_group.Request(group_id=case.name, generation_id=1, member_id="nobody"))
    member = joined(case)
    case.compare(sync_request(case, member, member_id="nobody"))
    case.compare(sync_request(case, member, generation_id=9))
    case.compare(sync_request(case, member, group_id=""))


@SCENARIOS.error(14, since=5)
def sync_with_another_protocol(case: Case) -> None:
    member = joined(case)
    case.compare(sync_request(case, member, protocol_type="connect"))
    case.compare(sync_request(case, member, protocol_name="sticky"))


@SCENARIOS.success(12)
def is_alive(case: Case) -> None:
    member = stable(case)
    case.compare(
        heartbeat.Request(group_id=case.name, generation_id=member.generation_id, member_id=member.member_id)
    )  # fmt: skip


@SCENARIOS.error(12)
def heartbeat_is_refused(case: Case) -> None:
    case.coordinator()
    case.compare(heartbeat.Request(group_id=case.name, generation_id=1, member_id="nobody"))
    member = stable(case)
    generation = member.generation_id
    case.compare(heartbeat.Request(group_id=case.name, generation_id=generation, member_id="nobody"))
    case.compare(heartbeat.Request(group_id=case.name, generation_id=9, member_id=member.member_id))
    case.compare(heartbeat.Request(group_id="", generation_id=9, member_id=member.member_id))


@SCENARIOS.error(12, since=3)
def heartbeat_of_a_static_member_under_another_id(case: Case) -> None:
    member = stable(case, group_instance_id="one")
    request = heartbeat.Request(
        group_id=case.name, generation_id=member.generation_id, member_id="nobody", group_instance_id="one"
    )  # fmt: skip
    case.compare(request)


def leave_request(case: Case, member_id: str, instance: str | None = None) -> leave_group.Request:
    if case.version < 3:
        return leave_group.Request(group_id=case.name, member_id=member_id)
    identity = leave_group.MemberIdentity(member_id=member_id, group_instance_id=instance, reason="done")
    return leave_group.Request(group_id=case.name, members=[identity])


@SCENARIOS.success(13)
def leaves(case: Case) -> None:
    member = stable(case)
    case.compare(leave_request(case, member.member_id))
    case.compare(leave_request(case, member.member_id))  # and is gone


@SCENARIOS.success(13, since=3)
def leaves_by_instance_id(case: Case) -> None:
    stable(case, group_instance_id="one")
    case.compare(leave_request(case, "", "one"))


@SCENARIOS.error(13)
def leave_is_refused(case: Case) -> None:
    case.coordinator()
    case.compare(leave_request(case, "nobody"))
    stable(case)
    case.compare(leave_request(case, "nobody"))


# --- DescribeGroups, ListGroups, DeleteGroups -----------------------------------------------------------------------


@SCENARIOS.success(15)
def describes_a_stable_group(case: Case) -> None:
    stable(case)
    case.compare(describe_groups.Request(groups=[case.name]))


@SCENARIOS.success(15)
def describes_groups_in_other_states(case: Case) -> None:
    committed(case)
    case.compare(describe_groups.Request(groups=[case.name]))  # Empty
    joined(case)
    case.compare(describe_groups.Request(groups=[case.name]))  # CompletingRebalance


@SCENARIOS.success(15, since=3)
def group_operations(case: Case) -> None:
    stable(case)
    case.compare(describe_groups.Request(groups=[case.name], include_authorized_operations=True))


@SCENARIOS.success(15, since=4)
def describes_a_static_member(case: Case) -> None:
    stable(case, group_instance_id="one")
    case.compare(describe_groups.Request(groups=[case.name]))


@SCENARIOS.error(15)
def describes_an_unknown_group(case: Case) -> None:
    case.coordinator()
    case.compare(describe_groups.Request(groups=[case.name]))
    case.compare(describe_groups.Request(groups=[""]))


def listed(case: Case, **fields: list[str]) -> None:
    """Compares what the list says of the case's own group."""

    def own(answer: dict) -> dict:
        return {**answer, "groups": [group for group in answer["groups"] if group["group_id"] == case.name]}

    case.compare(list_groups.Request(**fields), only=own)


@SCENARIOS.success(16)
def lists_groups(case: Case) -> None:
    committed(case)
    listed(case)
    stable(case)
    listed(case)


@SCENARIOS.success(16, since=4)
def lists_groups_by_state(case: Case) -> None:
    stable(case)
    for states in (["Stable"], ["stable"], ["Empty"], ["Empty", "Stable"]):
        listed(case, states_filter=states)


@SCENARIOS.success(16, since=5)
def lists_groups_by_type(case: Case) -> None:
    stable(case)
    for types in (["classic"], ["Classic"], ["consumer"]):
        listed(case, types_filter=types)


@SCENARIOS.error(16, since=4)
def lists_groups_by_what_is_no_state(case: Case) -> None:
    stable(case)
    listed(case, states_filter=["No such state"])
    if case.version >= 5:
        listed(case, types_filter=["no such type"])


@SCENARIOS.success(42)
def deletes_an_empty_group(case: Case) -> None:
    committed(case)
    case.compare(delete_groups.Request(groups_names=[case.name]))
    case.compare(delete_groups.Request(groups_names=[case.name]))  # and it is gone


@SCENARIOS.error(42)
def delete_is_refused(case: Case) -> None:
    case.coordinator()
    case.compare(delete_groups.Request(groups_names=[case.name, ""]))
    stable(case)
    case.compare(delete_groups.Request(groups_names=[case.name]))
