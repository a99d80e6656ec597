"""OffsetFetch (9): committed offsets of one group and of many, of topics that are there and that are not."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import delete_topics
from isthmus.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    Request,
)

from ..crew import FOLLOWER, PREPARING, STABLE, Crew
from ..peer import NO_SUCH_ID, Case, Scenarios
from . import offset_commit as commit

SCENARIOS = Scenarios()


def request(case: Case, topic_id: bytes, partitions: list[int], name: str | None = None, **group: Any) -> Request:
    name = case.name if name is None else name
    if case.version < 8:
        old = OffsetFetchRequestTopic(name=name, partition_indexes=partitions)
        return Request(group_id=group.get("group_id", case.name), topics=[old])
    topic = OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=partitions)
    return Request(groups=[OffsetFetchRequestGroup(**{"group_id": case.name, "topics": [topic], **group})])


def everything(case: Case, *groups: str) -> Request:
    if case.version < 8:
        return Request(group_id=groups[0], topics=None)
    return Request(groups=[OffsetFetchRequestGroup(group_id=each, topics=None) for each in groups])


def committed(case: Case, *offsets: int, group: str | None = None, topic_id: bytes = b"") -> bytes:
    """A topic with so many partitions, and an offset of the group for each."""
    topic_id = topic_id or case.topic(partitions=max(len(offsets), 1))
    group = group or case.name
    case.coordinator(group)
    rows = [commit.row(index, offset) for index, offset in enumerate(offsets)]
    for topic in case.prepare(commit.request(case, topic_id, *rows, group_id=group)).topics:
        assert not any(row.error_code for row in topic.partitions), topic
    return topic_id


def one_order(answer: dict[str, Any]) -> dict[str, Any]:
    """Topics and partitions by name and number: Kafka's order is that of a hash table."""
    for holder in [answer, *answer.get("groups", [])]:
        for topic in holder.get("topics", []):
            topic["partitions"].sort(key=lambda row: row["partition_index"])
        if "topics" in holder:
            holder["topics"].sort(
                key=lambda topic: (str(topic.get("name")), topic["partitions"][0]["committed_offset"])
            )
    return answer


@SCENARIOS.success(9)
def reads_committed_offsets(case: Case) -> None:
    topic_id = committed(case, 40, 41)
    case.compare(request(case, topic_id, [0, 1]))
    case.compare(request(case, topic_id, [1, 2, 0, 0]))  # there is no 2, and one twice
    case.compare(request(case, topic_id, []))


@SCENARIOS.success(9, since=2)
def reads_all_offsets_of_a_group(case: Case) -> None:
    committed(case, 40, 41, 42)
    case.compare(everything(case, case.name), only=one_order)


@SCENARIOS.success(9, since=8, ends=True)
def reads_the_offsets_of_many_groups(case: Case) -> None:
    topic_id = committed(case, 40)
    committed(case, 50, group=case.name + "-other", topic_id=topic_id)
    case.compare(everything(case, case.name, case.name + "-other", case.name + "-unknown"), only=one_order)
    asked = [request(case, topic_id, [0], group_id=each).groups[0] for each in (case.name + "-other", case.name)]
    case.compare(Request(groups=asked), only=one_order)
    case.compare(Request(groups=[]))


@SCENARIOS.success(9, since=2, ends=True)
def all_offsets_of_an_unknown_group(case: Case) -> None:
    case.coordinator()
    case.compare(everything(case, case.name))


@SCENARIOS.success(9, since=7, ends=True)
def reads_stable_offsets(case: Case) -> None:
    topic_id = committed(case, 40)
    wanted = request(case, topic_id, [0])
    wanted.require_stable = True
    case.compare(wanted)
    all_of_it = everything(case, case.name)
    all_of_it.require_stable = True
    case.compare(all_of_it)


@SCENARIOS.success(9, ends=True, each=(PREPARING, STABLE))
def reads_offsets_of_a_group_with_members(case: Case, state: str) -> None:
    topic_id = case.topic()
    with Crew(case).bring(state) as crew:
        case.prepare(crew.commit_request(FOLLOWER, topic_id))
        crew.ask(FOLLOWER, request(case, topic_id, [0], group_id=crew.group))


@SCENARIOS.success(9, since=2, until=9, ends=True)
def offsets_of_a_topic_that_was_deleted(case: Case) -> None:
    committed(case, 40)
    other = case.topic("-other")
    topics = [commit.topic(case.name + "-other", other, commit.row(0, 7))]
    case.prepare(commit.Request(group_id=case.name, topics=topics))
    delete_topic(case)
    await_offsets(case, 1)
    case.compare(everything(case, case.name))
    case.compare(request(case, NO_SUCH_ID, [0]))


@SCENARIOS.success(9, ends=True)
def a_topic_of_the_same_name_begins_anew(case: Case) -> None:
    committed(case, 40)
    delete_topic(case)
    await_offsets(case, 0)
    topic_id = case.topic()
    case.compare(request(case, topic_id, [0]))
    committed(case, 3, topic_id=topic_id)
    case.compare(request(case, topic_id, [0]))


def delete_topic(case: Case) -> None:
    row = delete_topics.DeleteTopicState(name=case.name)
    [answer] = case.prepare(delete_topics.Request(topics=[row], timeout_ms=10_000)).responses
    assert answer.error_code == 0, answer
    case.await_gone(case.name)


def await_offsets(case: Case, topics: int) -> None:
    """Wait until the group has offsets of so many topics: Kafka removes them some time after the topic."""
    wanted = Request(groups=[OffsetFetchRequestGroup(group_id=case.name, topics=None)])
    case.wait_until(lambda: len(case.prepare(wanted, 9).groups[0].topics) == topics, f"offsets of {topics} topics")


@SCENARIOS.success(9, since=8)
def all_offsets_of_a_group_that_is_named_twice(case: Case) -> None:
    committed(case, 40)
    case.compare(everything(case, case.name, case.name + "-none", case.name))


@SCENARIOS.error(9)
def offsets_of_an_unknown_group(case: Case) -> None:
    topic_id = case.topic()
    case.coordinator()
    case.compare(request(case, topic_id, [0]))
    case.compare(request(case, topic_id, [0], group_id=""))


@SCENARIOS.error(9, ends=True)
def offsets_for_an_unknown_topic(case: Case) -> None:
    case.coordinator()
    case.compare(request(case, NO_SUCH_ID, [0], "unknown"))
    committed(case, 40)
    case.compare(request(case, NO_SUCH_ID, [0, 1], "unknown"))


@SCENARIOS.error(9, since=9, ends=True)
def offsets_asked_by_an_unknown_member(case: Case) -> None:
    topic_id = committed(case, 40)
    case.compare(request(case, topic_id, [0], member_id="nobody", member_epoch=3))
    case.compare(request(case, topic_id, [0], member_id=None, member_epoch=-1))
    case.compare(request(case, topic_id, [0], member_id="nobody", member_epoch=3, group_id=case.name + "-none"))
