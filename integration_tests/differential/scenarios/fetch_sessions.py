"""Fetch sessions (KIP-227, Fetch 7 and later): what is left out of answers, and epochs."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import fetch as m
from isthmus.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from isthmus.protocol.messages.delete_records import Request as DeleteRecords

from ..peer import NO_SUCH_ID, Case, Scenarios
from ..requests import WAIT_MS, fetch_partition, fill

SCENARIOS = Scenarios()
SINCE = 7
IDS_SINCE = 13
NEW, CLOSE = 0, -1  # epochs

Rows = dict[int, int]  # fetch offsets by partition


def topic_of(case: Case, topic_id: bytes, rows: Rows, name: str = "") -> m.FetchTopic:
    partitions = [fetch_partition(offset, index) for index, offset in rows.items()]
    return m.FetchTopic(topic=name or case.name, topic_id=topic_id, partitions=partitions)


def ask(case: Case, session_id: int, epoch: int, *topics: m.FetchTopic, **fields: Any) -> Any:
    return case.compare(
        m.Request(
            max_wait_ms=WAIT_MS,
            max_bytes=1 << 20,
            session_id=session_id,
            session_epoch=epoch,
            topics=list(topics),
            **fields,
        )
    )


def opened(case: Case, topic_id: bytes, rows: Rows) -> int:
    """The id of a new session; a broker whose cache is full would give 0."""
    answer = ask(case, 0, NEW, topic_of(case, topic_id, rows))
    assert answer.session_id, f"{case.peer.name} gave no session"
    return int(answer.session_id)


@SCENARIOS.success(1, since=SINCE)
def session_tells_what_has_changed(case: Case) -> None:
    topic_id = case.topic(partitions=3)
    fill(case, topic_id)
    session = opened(case, topic_id, {0: 0, 1: 0, 2: 0})
    ask(case, session, 1, topic_of(case, topic_id, {0: 3}))  # nothing has
    fill(case, topic_id, partition=2)
    ask(case, session, 2)
    ask(case, session, 3)  # it has not moved on: the same again
    ask(case, session, 4, topic_of(case, topic_id, {2: 3}))


@SCENARIOS.success(1, since=SINCE, ends=True)
def partitions_with_records_go_to_the_end_of_the_session(case: Case) -> None:
    topic_id = case.topic(partitions=3)
    for index in (0, 1, 2):
        fill(case, topic_id, partition=index)
    session = opened(case, topic_id, {0: 3, 1: 0, 2: 0})
    ask(case, session, 1)
    fill(case, topic_id)
    ask(case, session, 2)
    ask(case, session, 3)


@SCENARIOS.success(1, since=SINCE, ends=True)
def limit_is_used_by_another_partition_each_time(case: Case) -> None:
    topic_id = case.topic(partitions=3)
    for index in (0, 1, 2):
        fill(case, topic_id, partition=index)
    session = opened(case, topic_id, {0: 3, 1: 3, 2: 3})
    everything = topic_of(case, topic_id, {0: 0, 1: 0, 2: 0})
    ask(case, session, 1, everything, min_bytes=0)
    for epoch in (2, 3, 4, 5):
        case.compare(
            m.Request(max_wait_ms=WAIT_MS, max_bytes=1, session_id=session, session_epoch=epoch, topics=[])
        )  # fmt: skip


@SCENARIOS.success(1, since=SINCE, ends=True)
def session_is_given_more_partitions_and_forgets_some(case: Case) -> None:
    topic_id = case.topic(partitions=3)
    for index in (0, 1, 2):
        fill(case, topic_id, partition=index)
    session = opened(case, topic_id, {0: 3})
    ask(case, session, 1, topic_of(case, topic_id, {1: 0}))
    gone = m.ForgottenTopic(topic=case.name, topic_id=topic_id, partitions=[0, 2])
    ask(case, session, 2, topic_of(case, topic_id, {1: 3}), forgotten_topics_data=[gone])
    fill(case, topic_id)
    fill(case, topic_id, partition=1)
    ask(case, session, 3)


@SCENARIOS.success(1, since=SINCE, ends=True)
def session_that_forgets_all_ends(case: Case) -> None:
    topic_id = case.topic()
    session = opened(case, topic_id, {0: 0})
    gone = m.ForgottenTopic(topic=case.name, topic_id=topic_id, partitions=[0])
    ask(case, session, 1, forgotten_topics_data=[gone])
    ask(case, session, 2)


@SCENARIOS.success(1, since=SINCE, ends=True)
def session_is_closed(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    session = opened(case, topic_id, {0: 0})
    ask(case, session, CLOSE, topic_of(case, topic_id, {0: 0}))
    ask(case, session, 1)


@SCENARIOS.success(1, since=SINCE, ends=True)
def session_is_closed_for_a_new_one(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    session = opened(case, topic_id, {0: 0})
    answer = ask(case, session, NEW, topic_of(case, topic_id, {0: 0}))
    assert answer.session_id not in (0, session)
    ask(case, session, 1)
    ask(case, answer.session_id, 1)


@SCENARIOS.success(1, since=SINCE, ends=True)
def no_session_is_wanted(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    ask(case, 0, CLOSE, topic_of(case, topic_id, {0: 0}))
    ask(case, 4711, CLOSE, topic_of(case, topic_id, {0: 0}))


@SCENARIOS.success(1, since=SINCE, ends=True)
def session_of_nothing(case: Case) -> None:
    answer = ask(case, 0, NEW)
    ask(case, answer.session_id, 1)


@SCENARIOS.success(1, since=SINCE, ends=True)
def errors_are_told_each_time(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    session = opened(case, topic_id, {0: 100, 7: 0})
    ask(case, session, 1)
    ask(case, session, 2, topic_of(case, topic_id, {0: 3}))  # no error any more: told once without
    ask(case, session, 3)


@SCENARIOS.success(1, since=SINCE, ends=True)
def new_log_start_is_told(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id, 2)
    session = opened(case, topic_id, {0: 6})
    row = DeleteRecordsPartition(partition_index=0, offset=4)
    case.prepare(DeleteRecords(topics=[DeleteRecordsTopic(name=case.name, partitions=[row])], timeout_ms=5_000))
    ask(case, session, 1)
    ask(case, session, 2)


@SCENARIOS.success(1, since=SINCE, ends=True)
def topic_of_a_session_is_deleted_and_made_again(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    session = opened(case, topic_id, {0: 3})
    case.delete_topic()
    ask(case, session, 1)
    case.topic()
    ask(case, session, 2)


@SCENARIOS.error(1, since=IDS_SINCE, ends=True)
def session_with_an_unknown_topic_id(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    session = opened(case, topic_id, {0: 0})
    ask(case, session, 1, topic_of(case, NO_SUCH_ID, {0: 0}))
    ask(case, session, 2)


@SCENARIOS.error(1, since=SINCE)
def unknown_session(case: Case) -> None:
    topic_id = case.topic()
    ask(case, 123456, 5, topic_of(case, topic_id, {0: 0}))
    ask(case, 0, 5, topic_of(case, topic_id, {0: 0}))
    ask(case, -1, 5, topic_of(case, topic_id, {0: 0}))


@SCENARIOS.error(1, since=SINCE, ends=True)
def wrong_session_epochs(case: Case) -> None:
    topic_id = case.topic()
    session = opened(case, topic_id, {0: 0})
    for epoch in (2, 5, -2):
        ask(case, session, epoch)
    ask(case, session, 1)
    ask(case, session, 1)
    ask(case, session, 2)


@SCENARIOS.error(1, since=IDS_SINCE - 1, until=IDS_SINCE)
def session_by_names_is_used_by_ids_and_the_other_way_round(case: Case) -> None:
    topic_id = case.topic()
    session = opened(case, topic_id, {0: 0})
    other = IDS_SINCE if case.version < IDS_SINCE else IDS_SINCE - 1
    case.version, kept = other, case.version
    ask(case, session, 1, topic_of(case, topic_id, {0: 0}))
    case.version = kept
    ask(case, session, 1)
