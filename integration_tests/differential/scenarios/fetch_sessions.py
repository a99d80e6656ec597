"""Fetch sessions (KIP-227, Fetch 7 and later): what is left out of answers, and epochs."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import fetch as m
from isthmus.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from isthmus.protocol.messages.delete_records import Request as DeleteRecords

from ..batches import split
from ..peer import NO_SUCH_ID, Case, Scenarios
from ..requests import LONG_MS, WAIT_MS, fetch_partition, fill

SCENARIOS = Scenarios()
SINCE = 7
IDS_SINCE = 13
NEW, CLOSE = 0, -1  # epochs

Rows = dict[int, int]  # fetch offsets by partition


def topic_of(case: Case, topic_id: bytes, rows: Rows, name: str = "") -> m.FetchTopic:
    partitions = [fetch_partition(offset, index) for index, offset in rows.items()]
    return m.FetchTopic(topic=name or case.name, topic_id=topic_id, partitions=partitions)


def ask(case: Case, session_id: int, epoch: int, *topics: m.FetchTopic, **fields: Any) -> Any:
    return case.compare(request(session_id, epoch, *topics, **fields))


def request(session_id: int, epoch: int, *topics: m.FetchTopic, **fields: Any) -> m.Request:
    settings: dict[str, Any] = {"max_wait_ms": WAIT_MS, "max_bytes": 1 << 20}
    return m.Request(session_id=session_id, session_epoch=epoch, topics=list(topics), **{**settings, **fields})


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
        ask(case, session, epoch, max_bytes=1)


def given(answer: m.Response) -> Rows:
    """Where a client goes on after an answer, in the partitions that it had records of."""
    ends = {}
    for topic in answer.responses:
        for row in topic.partitions:
            batches = split(bytes(row.records or b""))
            if batches:
                ends[row.partition_index] = batches[-1]["base_offset"] + batches[-1]["last_offset_delta"] + 1
    return ends


def read_on(case: Case, topic_id: bytes, session: int, answer: m.Response, epochs: range, **fields: Any) -> Rows:
    """Go on with a session as a client does, which names the partitions that it has moved on in."""
    ends: Rows = {}
    for epoch in epochs:
        moved = given(answer)
        ends.update(moved)
        answer = ask(case, session, epoch, *([topic_of(case, topic_id, moved)] if moved else []), **fields)
    return ends


@SCENARIOS.success(1, since=SINCE, ends=True)
def what_a_limit_left_out_comes_next(case: Case) -> None:
    topic_id = case.topic(partitions=4)
    for index in range(4):
        fill(case, topic_id, 2, partition=index)
    answer = ask(case, 0, NEW, topic_of(case, topic_id, dict.fromkeys(range(4), 0)), max_bytes=1)
    ends = read_on(case, topic_id, answer.session_id, answer, range(1, 12), max_bytes=1)
    assert ends == dict.fromkeys(range(4), 6), f"{case.peer.name}: read up to {ends}"


@SCENARIOS.success(1, since=SINCE, ends=True)
def what_the_limit_of_a_partition_left_out_comes_next(case: Case) -> None:
    topic_id = case.topic(partitions=2)
    for index in (0, 1):
        fill(case, topic_id, 3, partition=index)
    wanted = topic_of(case, topic_id, {0: 0, 1: 0})
    for row in wanted.partitions:
        row.partition_max_bytes = 1
    session = opened(case, topic_id, {0: 9, 1: 9})
    answer = ask(case, session, 1, wanted)
    ends: Rows = {}
    for epoch in range(2, 9):
        moved = given(answer)
        ends.update(moved)
        on = topic_of(case, topic_id, moved)
        for row in on.partitions:
            row.partition_max_bytes = 1
        answer = ask(case, session, epoch, *([on] if moved else []))
    assert ends == {0: 9, 1: 9}, f"{case.peer.name}: read up to {ends}"


@SCENARIOS.success(1, since=SINCE, ends=True)
def records_come_to_what_a_limit_left_out(case: Case) -> None:
    topic_id = case.topic(partitions=3)
    for index in range(3):
        fill(case, topic_id, partition=index)
    session = opened(case, topic_id, dict.fromkeys(range(3), 3))
    answer = ask(case, session, 1, topic_of(case, topic_id, dict.fromkeys(range(3), 0)), max_bytes=1)
    fill(case, topic_id, partition=2)
    fill(case, topic_id, partition=0)
    ends = read_on(case, topic_id, session, answer, range(2, 9), max_bytes=1)
    assert ends == {0: 6, 1: 3, 2: 6}, f"{case.peer.name}: read up to {ends}"


@SCENARIOS.success(1, since=SINCE, ends=True)
def session_is_answered_when_records_come(case: Case) -> None:
    """To a partition that the request does not name."""
    topic_id = case.topic(partitions=3)
    session = opened(case, topic_id, dict.fromkeys(range(3), 0))
    waits = request(session, 1, max_wait_ms=LONG_MS, min_bytes=1)
    answer = case.compare_waiting(waits, lambda: fill(case, topic_id, partition=1))
    assert given(answer) == {1: 3}, answer
    ask(case, session, 2, topic_of(case, topic_id, {1: 3}))


@SCENARIOS.success(1, since=SINCE, ends=True)
def session_forgets_what_it_does_not_have(case: Case) -> None:
    topic_id = case.topic(partitions=2)
    fill(case, topic_id)
    session = opened(case, topic_id, {0: 3})
    gone = m.ForgottenTopic(topic=case.name, topic_id=topic_id, partitions=[1, 7])
    unknown = m.ForgottenTopic(topic=case.name + "-no", topic_id=NO_SUCH_ID, partitions=[0])
    ask(case, session, 1, forgotten_topics_data=[gone, unknown])
    ask(case, session, 2)


@SCENARIOS.success(1, since=SINCE, ends=True)
def partition_is_forgotten_and_wanted_at_once(case: Case) -> None:
    topic_id = case.topic(partitions=2)
    for index in (0, 1):
        fill(case, topic_id, partition=index)
    session = opened(case, topic_id, {0: 3, 1: 3})
    gone = m.ForgottenTopic(topic=case.name, topic_id=topic_id, partitions=[0])
    ask(case, session, 1, topic_of(case, topic_id, {0: 0}), forgotten_topics_data=[gone])
    ask(case, session, 2)


@SCENARIOS.success(1, since=SINCE, ends=True)
def partition_goes_back_in_a_session(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id, 2)
    session = opened(case, topic_id, {0: 6})
    ask(case, session, 1, topic_of(case, topic_id, {0: 3}))
    ask(case, session, 2, topic_of(case, topic_id, {0: 0}))
    ask(case, session, 3, topic_of(case, topic_id, {0: 6}))
    ask(case, session, 4)


@SCENARIOS.error(1, since=9, ends=True)
def epoch_of_a_session_partition_is_wrong(case: Case) -> None:
    topic_id = case.topic(partitions=2)
    session = opened(case, topic_id, {0: 0, 1: 0})
    wanted = topic_of(case, topic_id, {0: 0})
    wanted.partitions[0].current_leader_epoch = 9
    ask(case, session, 1, wanted)
    ask(case, session, 2)
    ask(case, session, 3, topic_of(case, topic_id, {0: 0}))
    ask(case, session, 4)


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


@SCENARIOS.error(1, since=SINCE, ends=True)
def session_at_an_isolation_level_that_is_none(case: Case) -> None:
    """It goes on all the same, and is closed."""
    topic_id = case.topic(partitions=2)
    fill(case, topic_id)
    everything = topic_of(case, topic_id, {0: 0, 1: 0})
    ask(case, 0, NEW, everything, isolation_level=2)  # opens none
    session = opened(case, topic_id, {0: 3, 1: 0})
    ask(case, session, 1, isolation_level=2)
    ask(case, session, 1)
    ask(case, session, 2)
    ask(case, session, 3, topic_of(case, topic_id, {0: 0, 7: 0}), isolation_level=-1)
    ask(case, session, 9, isolation_level=2)
    ask(case, session, 4)
    ask(case, session, CLOSE, everything, isolation_level=2)
    ask(case, session, 5)


@SCENARIOS.error(1, since=IDS_SINCE, ends=True)
def session_of_a_topic_made_again_at_an_isolation_level_that_is_none(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    session = opened(case, topic_id, {0: 3})
    case.delete_topic()
    case.topic()
    ask(case, session, 1, isolation_level=2)
    ask(case, session, 2)


@SCENARIOS.error(1, ends=True)
def an_isolation_level_that_is_none_where_nothing_is_read(case: Case) -> None:
    topic_id = case.topic()
    known = topic_of(case, topic_id, {7: 0})
    unknown = topic_of(case, NO_SUCH_ID, {0: 0}, case.name + "-no")
    for topics in ([], [unknown], [known], [unknown, known], [topic_of(case, topic_id, {})]):
        ask(case, 0, CLOSE, *topics, isolation_level=2)
