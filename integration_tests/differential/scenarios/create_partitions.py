"""CreatePartitions (37): more partitions."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import create_partitions as m

from ..peer import Case, Scenarios
from ..requests import fetch_request, fill, metadata_request, offsets_request

SCENARIOS = Scenarios()


def wanted(name: str, count: int, assigned: list[list[int]] | None = None) -> m.CreatePartitionsTopic:
    rows = None if assigned is None else [m.CreatePartitionsAssignment(broker_ids=ids) for ids in assigned]
    return m.CreatePartitionsTopic(name=name, count=count, assignments=rows)


def request(*topics: m.CreatePartitionsTopic, **fields: Any) -> m.Request:
    return m.Request(topics=list(topics), timeout_ms=10_000, **fields)


@SCENARIOS.success(37)
def adds_partitions(case: Case) -> None:
    case.topic()
    case.compare(request(wanted(case.name, 3), validate_only=True))
    case.compare(request(wanted(case.name, 3)))
    case.await_topic(case.name, 3)


@SCENARIOS.error(37, ends=True)
def partitions_within_no_time(case: Case) -> None:
    case.topic()
    for timeout_ms in (0, -1):
        for validate_only in (False, True):
            topics = [wanted(case.name, 3), wanted(case.name + "-no", 3)]
            case.compare(m.Request(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only))
    case.see(metadata_request(case.name, allow_auto_topic_creation=False))


@SCENARIOS.success(37, ends=True)
def adds_partitions_by_assignment(case: Case) -> None:
    case.topic()
    node = case.peer.node_id
    case.compare(request(wanted(case.name, 3, [[node], [node]])))
    case.await_topic(case.name, 3)


@SCENARIOS.success(37, ends=True)
def new_partitions_are_empty_and_the_old_keep_their_records(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    case.compare(request(wanted(case.name, 2)))
    case.await_topic(case.name, 2)
    fill(case, topic_id, partition=1)
    case.see(fetch_request(case, 0, topic_id))
    case.see(offsets_request(case.name, -1, partition=1))


@SCENARIOS.success(37, ends=True)
def adds_partitions_to_some_of_several_topics(case: Case) -> None:
    case.topic("-a")
    case.topic("-b")
    case.compare(request(wanted(case.name + "-b", 2), wanted(case.name + "-no", 2), wanted(case.name + "-a", 1)))
    case.await_topic(case.name + "-b", 2)


@SCENARIOS.success(37, ends=True)
def no_topics_to_grow(case: Case) -> None:
    case.compare(request())


@SCENARIOS.error(37)
def partitions_of_an_unknown_topic(case: Case) -> None:
    case.compare(request(wanted(case.name, 3)))
    case.compare(request(wanted("no/name", 3), wanted("", 3)))


@SCENARIOS.error(37, ends=True)
def numbers_of_partitions_that_are_no_increase(case: Case) -> None:
    case.topic(partitions=2)
    for count in (2, 1, 0, -1):
        case.compare(request(wanted(case.name, count)))


@SCENARIOS.error(37, ends=True)
def too_many_partitions_more(case: Case) -> None:
    case.topic()
    case.compare(request(wanted(case.name, 10_002), validate_only=True))
    case.compare(request(wanted(case.name, 2**31 - 1), validate_only=True))
    case.topic("-other")
    others = wanted(case.name + "-other", 3), wanted(case.name + "-no", 3), wanted(case.name + "-other", 0)
    for other in others:
        case.compare(request(other, wanted(case.name, 10_002), validate_only=True))
        case.compare(request(wanted(case.name, 10_002), other, validate_only=True))


@SCENARIOS.error(37, ends=True)
def assignments_of_more_partitions_that_are_refused(case: Case) -> None:
    case.topic()
    node = case.peer.node_id
    for rows in ([[node]], [[node], [node], [node]], [[node], [4711]], [[node], []], [[node], [node, node]], []):
        case.compare(request(wanted(case.name, 3, rows)))


@SCENARIOS.error(37, ends=True)
def topic_to_grow_named_twice(case: Case) -> None:
    case.topic()
    case.compare(request(wanted(case.name, 3), wanted(case.name, 4)))
    case.compare(request(wanted(case.name, 3), wanted(case.name, 3), wanted(case.name + "-no", 3)))


@SCENARIOS.error(37, ends=True)
def internal_topic_to_grow(case: Case) -> None:
    case.coordinator()
    case.compare(request(wanted("__consumer_offsets", 1), validate_only=True))
    case.compare(request(wanted("__consumer_offsets", 100), validate_only=True))
