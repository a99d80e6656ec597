"""OffsetFetch (9), OffsetCommit (8), OffsetDelete (47) and DeleteGroups (42) of groups with transactional offsets."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import delete_groups, offset_delete
from isthmus.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    Request,
)

from ..peer import Case, Scenarios
from ..transactional import EMPTY, Producer
from . import offset_commit as commit
from .offset_fetch import committed, one_order
from .txn_offset_commit import see_offsets

SCENARIOS = Scenarios()
STABLE_SINCE = 7  # version of OffsetFetch from which on offsets are asked to be stable
ENDS = ("open", "commit", "abort")


def fetch_requests(case: Case, *groups: str) -> list[Request]:
    """Of named partitions and of all, stable or as they are, as the version can ask."""
    topic_id = case.id_of(case.name)
    stables = (False, True) if case.version >= STABLE_SINCE else (False,)
    if case.version < 8:
        topics: list[Any] = [[OffsetFetchRequestTopic(name=case.name, partition_indexes=[0, 1])]]
        if case.version >= 2:
            topics.append(None)
        return [
            Request(group_id=group, topics=each, require_stable=stable)
            for group in groups
            for each in topics
            for stable in stables
        ]
    named = [OffsetFetchRequestTopics(name=case.name, topic_id=topic_id, partition_indexes=[0, 1])]
    return [
        Request(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=each) for group in groups], require_stable=stable
        )
        for each in (named, None)
        for stable in stables
    ]


def ask(case: Case, *groups: str) -> None:
    for request in fetch_requests(case, *(groups or (case.name,))):
        case.compare(request, only=one_order)


def pending(case: Case, end: str, *partitions: int, group: str = "") -> Producer:
    """A transaction with an offset for each partition, open or ended."""
    producer = Producer(case).bring(EMPTY)
    for partition in partitions or (0,):
        producer.commit_offset(40 + partition, group, partition)
    if end != "open":
        producer.end(end == "commit")
    return producer


@SCENARIOS.success(9, each=ENDS)
def reads_offsets_of_a_transaction(case: Case, end: str) -> None:
    pending(case, end)
    ask(case)


@SCENARIOS.error(9, since=STABLE_SINCE, each=ENDS)
def reads_offsets_that_a_transaction_changes(case: Case, end: str) -> None:
    topic_id = case.topic(partitions=2)
    committed(case, 7, 8, topic_id=topic_id)
    pending(case, end)
    ask(case)


@SCENARIOS.success(9, ends=True)
def reads_offsets_of_several_groups_with_transactions(case: Case) -> None:
    topic_id = case.topic(partitions=2)
    other = case.name + "-other"
    committed(case, 7, 8, topic_id=topic_id, group=other)
    pending(case, "open")
    ask(case, case.name, other, case.name + "-unknown")


@SCENARIOS.success(9, ends=True)
def offsets_are_unstable_until_all_transactions_end(case: Case) -> None:
    producers = [Producer(case, f"-{number}").bring(EMPTY) for number in range(2)]
    for number, producer in enumerate(producers):
        producer.commit_offset(40 + number)
    ask(case)
    for number, producer in enumerate(producers):
        producer.end(number == 0)
        ask(case)


@SCENARIOS.success(8, ends=True, each=ENDS)
def commits_what_a_transaction_commits_too(case: Case, end: str) -> None:
    producer = pending(case, "open")
    topic_id = case.id_of(case.name)
    case.compare(commit.request(case, topic_id, commit.row(0, 90)))
    see_offsets(case)
    if end != "open":
        producer.end(end == "commit")
    see_offsets(case)


@SCENARIOS.success(47, each=ENDS)
def deletes_offsets_that_a_transaction_commits(case: Case, end: str) -> None:
    topic_id = case.topic(partitions=2)
    committed(case, 7, 8, topic_id=topic_id)
    producer = pending(case, "open")
    rows = [offset_delete.OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1)]
    topic = offset_delete.OffsetDeleteRequestTopic(name=case.name, partitions=rows)
    case.compare(offset_delete.Request(group_id=case.name, topics=[topic]))
    see_offsets(case)
    if end != "open":
        producer.end(end == "commit")
    see_offsets(case)


@SCENARIOS.success(42, each=ENDS)
def deletes_a_group_that_a_transaction_commits_to(case: Case, end: str) -> None:
    topic_id = case.topic(partitions=2)
    committed(case, 7, 8, topic_id=topic_id)
    producer = pending(case, "open")
    case.compare(delete_groups.Request(groups_names=[case.name]))
    see_offsets(case)
    if end != "open":
        producer.end(end == "commit")
    see_offsets(case)


@SCENARIOS.success(42, ends=True, each=ENDS)
def deletes_a_group_that_only_a_transaction_knows(case: Case, end: str) -> None:
    producer = pending(case, "open")
    case.compare(delete_groups.Request(groups_names=[case.name]))
    see_offsets(case)
    if end != "open":
        producer.end(end == "commit")
    see_offsets(case)
