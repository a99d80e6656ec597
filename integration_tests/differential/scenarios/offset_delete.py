"""OffsetDelete (47): offsets deleted by hand, in each state of a group."""

from __future__ import annotations

from isthmus.protocol.messages.offset_delete import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic, Request

from ..crew import COMPLETING, EMPTY, FOLLOWER, NEWCOMER, PREPARING, STABLE, Crew
from ..peer import Case, Scenarios
from . import offset_commit as commit
from .offset_commit import see_offsets
from .offset_fetch import committed

SCENARIOS = Scenarios()


def request(group: str, *rows: tuple[str, list[int]]) -> Request:
    """rows: (topic, partitions)."""
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
        )
        for name, partitions in rows
    ]
    return Request(group_id=group, topics=topics)


@SCENARIOS.success(47)
def deletes_offsets(case: Case) -> None:
    committed(case, 40, 41, 42)
    case.compare(request(case.name, (case.name, [1])))
    see_offsets(case)
    case.compare(request(case.name, (case.name, [1, 2])))  # one of them is gone
    see_offsets(case)


@SCENARIOS.success(47)
def deletes_the_last_offset(case: Case) -> None:
    committed(case, 40)
    case.compare(request(case.name, (case.name, [0])))
    see_offsets(case)
    with Crew(case) as crew:
        crew.see()


@SCENARIOS.success(47)
def deletes_nothing(case: Case) -> None:
    committed(case, 40)
    case.compare(request(case.name))
    case.compare(request(case.name, (case.name, [])))
    case.compare(request(case.name, (case.name + "-no", []), (case.name, [])))
    case.compare(request(case.name + "-unknown"))
    see_offsets(case)


@SCENARIOS.success(47, each=(EMPTY, PREPARING, COMPLETING, STABLE))
def deletes_offsets_of_a_topic_that_nobody_reads(case: Case, state: str) -> None:
    read, other = case.topic(), case.topic("-other")
    with Crew(case) as crew:
        committed(case, 40, group=crew.group, topic_id=read)
        topics = [commit.topic(case.name + "-other", other, commit.row(0, 7))]
        case.prepare(commit.Request(group_id=crew.group, topics=topics))
        crew.bring(state)
        crew.ask("administrator", request(crew.group, (case.name + "-other", [0])))
        see_offsets(case, crew.group)


@SCENARIOS.error(47, each=(PREPARING, COMPLETING, STABLE))
def offsets_of_a_topic_that_members_read(case: Case, state: str) -> None:
    topic_id = case.topic()
    with Crew(case) as crew:
        committed(case, 40, group=crew.group, topic_id=topic_id)
        crew.bring(state)
        crew.ask("administrator", request(crew.group, (case.name, [0, 5])))
        see_offsets(case, crew.group)


@SCENARIOS.error(47)
def offsets_while_the_first_members_join(case: Case) -> None:
    """Nobody knows yet what will be read."""
    committed(case, 40)
    with Crew(case) as crew:
        waiting = case.prepare(crew.join_request(NEWCOMER))
        crew.names[waiting.member_id] = NEWCOMER
        crew.ask("administrator", request(crew.group, (case.name, [0])))
        see_offsets(case)


@SCENARIOS.error(47)
def offsets_of_subscriptions_that_change(case: Case) -> None:
    """What counts is the subscription that the generation began with."""
    read, other = case.topic(), case.topic("-other")
    with Crew(case) as crew:
        committed(case, 40, topic_id=read)
        topics = [commit.topic(case.name + "-other", other, commit.row(0, 7))]
        case.prepare(commit.Request(group_id=crew.group, topics=topics))
        crew.bring(STABLE)
        changed = crew.protocols(FOLLOWER, topics=(case.name + "-other",))
        crew[FOLLOWER].connection.send(crew.join_request(FOLLOWER, protocols=changed), 9)
        crew.await_group(PREPARING, 3)
        crew.ask("administrator", request(crew.group, (case.name + "-other", [0]), (case.name, [0])))
        see_offsets(case)


@SCENARIOS.error(47)
def offsets_of_members_that_are_no_consumers(case: Case) -> None:
    committed(case, 40)
    with Crew(case) as crew:
        for version in (9, 9):
            answer = case.prepare(crew.join_request(NEWCOMER, protocol_type="connect"), version)
            crew[NEWCOMER].member_id = answer.member_id
        crew.ask("administrator", request(crew.group, (case.name, [0])))
        case.prepare(crew.leave_request(NEWCOMER))
        crew.await_group(EMPTY)
        crew.ask("administrator", request(crew.group, (case.name, [0])))
        see_offsets(case)


@SCENARIOS.error(47)
def offsets_of_members_whose_subscriptions_are_no_such_thing(case: Case) -> None:
    committed(case, 40)
    with Crew(case) as crew:
        broken = crew.protocols(NEWCOMER)
        for each in broken:
            each.metadata = b"\0\0\0\0"
        for version in (9, 9):
            answer = case.prepare(crew.join_request(NEWCOMER, protocols=broken), version)
            crew[NEWCOMER].member_id = answer.member_id
        crew.ask("administrator", request(crew.group, (case.name, [0])))
        see_offsets(case)


@SCENARIOS.error(47)
def offsets_of_unknown_topics(case: Case) -> None:
    committed(case, 40)
    case.compare(request(case.name, ("unknown", [0, 1]), (case.name, [7, 0])))
    case.compare(request(case.name, ("unknown", [0])))
    case.compare(request(case.name + "-unknown", ("unknown", [0])))
    see_offsets(case)


@SCENARIOS.error(47)
def offsets_to_delete_of_an_unknown_group(case: Case) -> None:
    case.topic()
    case.coordinator()
    case.compare(request(case.name, (case.name, [0])))
    case.compare(request("", (case.name, [0])))
