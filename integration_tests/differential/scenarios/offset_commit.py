"""OffsetCommit (8): who may commit, in each state of a group; what is read back afterwards."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import delete_groups, offset_fetch
from isthmus.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    Request,
)

from ..crew import COMPLETING, EMPTY, FOLLOWER, LEADER, NEWCOMER, PREPARING, STABLE, STATIC, Crew
from ..peer import NO_SUCH_ID, Case, Scenarios

SCENARIOS = Scenarios()


def row(partition: int, offset: int, metadata: str | None = "note", epoch: int = 0) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        committed_metadata=metadata,
    )


def topic(name: str, topic_id: bytes, *rows: OffsetCommitRequestPartition) -> OffsetCommitRequestTopic:
    return OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=list(rows))


def request(case: Case, topic_id: bytes, *rows: OffsetCommitRequestPartition, **fields: Any) -> Request:
    return Request(**{"group_id": case.name, "topics": [topic(case.name, topic_id, *rows)], **fields})


def see_offsets(case: Case, group: str | None = None) -> None:
    """Keep all offsets of the group, as the newest version that names topics tells them."""
    wanted = offset_fetch.OffsetFetchRequestGroup(group_id=case.name if group is None else group, topics=None)
    answer = case.prepare(offset_fetch.Request(groups=[wanted]), 9)
    topics = [
        (each.name, sorted((row.partition_index, row.committed_offset, row.metadata) for row in each.partitions))
        for each in answer.groups[0].topics
    ]
    case.answers.append([list(map(str, each)) for each in sorted(topics)])


@SCENARIOS.success(8)
def commits_without_a_member(case: Case) -> None:
    topic_id = case.topic(partitions=2)
    case.coordinator()
    case.compare(request(case, topic_id, row(0, 40), row(1, 41)))
    see_offsets(case)
    case.compare(request(case, topic_id, row(0, 7)))  # back again
    see_offsets(case)


@SCENARIOS.success(8, ends=True)
def commits_as_a_member(case: Case) -> None:
    topic_id = case.topic()
    with Crew(case).bring(STABLE) as crew:
        crew.ask(FOLLOWER, crew.commit_request(FOLLOWER, topic_id))
        crew.ask(LEADER, crew.commit_request(LEADER, topic_id, 43))
        see_offsets(case)


@SCENARIOS.success(8, since=7, ends=True)
def commits_as_a_static_member(case: Case) -> None:
    topic_id = case.topic()
    with Crew(case).bring(STABLE) as crew:
        crew.ask(STATIC, crew.commit_request(STATIC, topic_id))
        see_offsets(case)


@SCENARIOS.success(8, ends=True)
def commits_while_others_join(case: Case) -> None:
    topic_id = case.topic()
    with Crew(case).bring(PREPARING) as crew:
        crew.ask(FOLLOWER, crew.commit_request(FOLLOWER, topic_id))
        see_offsets(case)


@SCENARIOS.success(8, ends=True)
def commits_to_an_empty_group(case: Case) -> None:
    topic_id = case.topic()
    with Crew(case).bring(EMPTY) as crew:
        crew.ask("administrator", crew.commit_request(None, topic_id))
        crew.ask("administrator", crew.commit_request(None, topic_id, member_id="nobody"))
        see_offsets(case)
        crew.see()


@SCENARIOS.success(8, ends=True)
def commits_with_what_can_be_said_of_an_offset(case: Case) -> None:
    topic_id = case.topic(partitions=6)
    case.coordinator()
    rows = [
        row(0, 0, ""),
        row(1, 1, None),
        row(2, (1 << 63) - 1, "x" * 4096),
        row(3, -5),
        row(4, 4, "ü" * 4096, epoch=-1),
        row(5, 5, "two of Java's characters each \U0001f642", epoch=99),
    ]
    case.compare(request(case, topic_id, *rows))
    see_offsets(case)


@SCENARIOS.success(8, until=4, ends=True)
def commits_for_some_time(case: Case) -> None:
    topic_id = case.topic()
    case.coordinator()
    case.compare(request(case, topic_id, row(0, 1), retention_time_ms=3_600_000))
    see_offsets(case)


@SCENARIOS.success(8, ends=True)
def commits_nothing(case: Case) -> None:
    topic_id = case.topic()
    case.coordinator()
    case.compare(Request(group_id=case.name, topics=[]))
    case.compare(Request(group_id=case.name, topics=[topic(case.name, topic_id)]))


@SCENARIOS.success(8, ends=True)
def commits_to_the_group_without_a_name(case: Case) -> None:
    topic_id = case.topic()
    case.coordinator("")
    case.compare(request(case, topic_id, row(0, 3), group_id=""))
    see_offsets(case, "")
    case.prepare(delete_groups.Request(groups_names=[""]))


@SCENARIOS.error(8, each=(EMPTY, PREPARING, COMPLETING, STABLE))
def commit_by_who_may_not(case: Case, state: str) -> None:
    topic_id = case.topic()
    with Crew(case).bring(state) as crew:
        stranger = crew.commit_request("stranger", topic_id, member_id="nobody", generation_id_or_member_epoch=3)
        crew.ask("stranger", stranger)
        if state == EMPTY:
            return
        crew.ask("stranger", crew.commit_request(None, topic_id))  # by no member, while there are some
        crew.ask("stranger", crew.commit_request(None, topic_id, member_id="nobody"))
        crew.ask(FOLLOWER, crew.commit_request(FOLLOWER, topic_id, generation_id_or_member_epoch=-1))
        crew.ask(FOLLOWER, crew.commit_request(FOLLOWER, topic_id, generation_id_or_member_epoch=1))
        crew.ask(FOLLOWER, crew.commit_request(FOLLOWER, topic_id, generation_id_or_member_epoch=9))
        see_offsets(case, crew.group)


@SCENARIOS.error(8, ends=True)
def commit_while_assignments_are_awaited(case: Case) -> None:
    topic_id = case.topic()
    with Crew(case).bring(COMPLETING) as crew:
        crew.ask(FOLLOWER, crew.commit_request(FOLLOWER, topic_id))
        see_offsets(case)


@SCENARIOS.error(8, ends=True)
def commit_for_a_generation_of_no_group(case: Case) -> None:
    topic_id = case.topic()
    case.coordinator()
    case.compare(request(case, topic_id, row(0, 1), member_id="nobody", generation_id_or_member_epoch=0))
    case.compare(request(case, topic_id, row(0, 1), member_id="", generation_id_or_member_epoch=5))


@SCENARIOS.error(8, since=7, ends=True, each=(PREPARING, COMPLETING, STABLE))
def commit_by_a_fenced_member(case: Case, state: str) -> None:
    topic_id = case.topic()
    with Crew(case).bring(state) as crew:
        crew.ask(STATIC, crew.commit_request(STATIC, topic_id, member_id="nobody"))
        crew.ask(STATIC, crew.commit_request(STATIC, topic_id, group_instance_id="stranger"))
        crew.ask(FOLLOWER, crew.commit_request(FOLLOWER, topic_id, group_instance_id=STATIC))
        nobody: dict[str, Any] = {"member_id": "", "generation_id_or_member_epoch": -1}
        crew.ask(STATIC, crew.commit_request(STATIC, topic_id, **nobody))


@SCENARIOS.error(8, ends=True)
def commit_by_one_who_only_has_an_id(case: Case) -> None:
    topic_id = case.topic()
    with Crew(case).bring(STABLE) as crew:
        waiting = case.prepare(crew.join_request(NEWCOMER)).member_id
        generation = crew[LEADER].generation
        commit = crew.commit_request(None, topic_id, member_id=waiting, generation_id_or_member_epoch=generation)
        crew.ask(NEWCOMER, commit)


@SCENARIOS.error(8)
def commit_for_unknown_topics(case: Case) -> None:
    topic_id = case.topic()
    case.coordinator()
    case.compare(Request(group_id=case.name, topics=[topic("unknown", NO_SUCH_ID, row(0, 1), row(1, 1))]))
    mixed = [
        topic(case.name, topic_id, row(7, 1), row(0, 2)),
        topic("unknown", NO_SUCH_ID, row(0, 1)),
    ]
    case.compare(Request(group_id=case.name, topics=mixed))
    see_offsets(case)


@SCENARIOS.error(8, since=10, ends=True)
def commit_for_a_topic_without_id(case: Case) -> None:
    case.topic()
    case.coordinator()
    case.compare(request(case, bytes(16), row(0, 1)))


@SCENARIOS.error(8, ends=True)
def commit_with_too_much_metadata(case: Case) -> None:
    topic_id = case.topic(partitions=4)
    case.coordinator()
    rows = [row(0, 1, "x" * 4097), row(1, 1), row(2, 1, "\U0001f642" * 2049), row(3, 1, "x" * 30_000)]
    case.compare(request(case, topic_id, *rows))
    see_offsets(case)


@SCENARIOS.error(8, ends=True)
def commit_of_nothing_that_can_be_kept(case: Case) -> None:
    topic_id = case.topic()
    case.coordinator()
    case.compare(request(case, topic_id, row(0, 1, "x" * 4097)))
    case.see(delete_groups.Request(groups_names=[case.name]))


@SCENARIOS.success(8, ends=True)
def commits_for_no_partitions_of_topics_that_are_and_are_not_there(case: Case) -> None:
    case.coordinator()
    topic_id = case.topic()
    none = topic(case.name + "-no", NO_SUCH_ID)
    case.compare(Request(group_id=case.name, topics=[topic(case.name, topic_id), none]))
    case.compare(Request(group_id=case.name, topics=[none, topic(case.name, topic_id, row(0, 1)), none]))
    see_offsets(case)


@SCENARIOS.success(8, ends=True)
def commits_for_a_topic_named_twice(case: Case) -> None:
    case.coordinator()
    topic_id = case.topic(partitions=2)
    for wrong in ([], [row(7, 1)]):
        rows = [[row(0, 1)], [row(1, 2), *wrong], [row(0, 3)]]
        topics = [topic(case.name, topic_id, *each) for each in rows]
        case.compare(Request(group_id=case.name, topics=topics))
    see_offsets(case)


@SCENARIOS.error(8, ends=True)
def commit_larger_than_a_batch_may_be(case: Case) -> None:
    """What would not fit into the topic of groups."""
    topic_id = case.topic(partitions=300)
    case.coordinator()
    case.compare(request(case, topic_id, *(row(index, 1, "x" * 4096) for index in range(300))))
    see_offsets(case)
