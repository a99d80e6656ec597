"""Fetch (1) and ListOffsets (2) of committed records: the last stable offset, and what was aborted before it."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import fetch as m

from ..batches import BASE_TIMESTAMP_MS, batch, split
from ..peer import Case, Scenarios
from ..requests import EARLIEST, LATEST, LONG_MS, MAX_TIMESTAMP, fetch_request, fill, offsets_request, produce_request
from ..transactional import COMPLETE_ABORT, COMPLETE_COMMIT, NEVER_MS, ONGOING, PREPARED, STATES, Producer

SCENARIOS = Scenarios()
COMMITTED = 1  # isolation level
LEVELS = (0, COMMITTED)
OFFSETS_SINCE = 2  # version of ListOffsets that has isolation levels
ABORTED = ("commit", "abort")


def headers(answer: Any) -> Any:
    """An answer with the batches' headers instead of their bytes: markers have the time of now."""
    for topic in answer["responses"]:
        for row in topic["partitions"]:
            row["records"] = split(row["records"] or b"")
    return answer


def ask(case: Case, offset: int = 0, **fields: Any) -> None:
    for level in LEVELS:
        request = fetch_request(case, offset, case.id_of(case.name), isolation_level=level, **fields)
        case.compare(request, only=headers)


def ask_offsets(case: Case, *timestamps: int) -> None:
    for timestamp in timestamps or (LATEST, EARLIEST, MAX_TIMESTAMP, 0, BASE_TIMESTAMP_MS + 1):
        for level in LEVELS:
            if timestamp != MAX_TIMESTAMP or case.version >= 7:
                case.compare(offsets_request(case.name, timestamp, isolation_level=level))


@SCENARIOS.success(1, each=STATES)
def reads_a_transaction_in_each_state(case: Case, state: str) -> None:
    Producer(case).bring(state)
    ask(case)


@SCENARIOS.success(1, ends=True, each=STATES)
def reads_what_comes_after_a_transaction(case: Case, state: str) -> None:
    Producer(case).bring(state)
    fill(case, case.id_of(case.name))
    for offset in (0, 1, 2):
        ask(case, offset)


@SCENARIOS.success(1, ends=True, each=ABORTED)
def reads_a_transaction_of_the_old_protocol(case: Case, kind: str) -> None:
    producer = Producer(case, old=True).bring(ONGOING)
    producer.write(0, 3)
    producer.end(kind == "commit")
    producer.write(0, 2)
    producer.end(kind != "commit")
    ask(case)


def interleaved(case: Case) -> tuple[Producer, Producer]:
    """Three transactions of each of two producers in one partition, which end in turn; the last ones are open."""
    first, second = Producer(case, "-a").bring(ONGOING), Producer(case, "-b").bring(ONGOING)
    for number in range(2):
        for producer in (second, first):
            producer.write(0, 2)
            producer.end((number == 0) is (producer is first))
            producer.write()
    return first, second


@SCENARIOS.success(1, ends=True)
def reads_transactions_that_lie_in_each_other(case: Case) -> None:
    interleaved(case)
    fill(case, case.id_of(case.name))
    for offset in range(0, 16, 3):
        ask(case, offset)


@SCENARIOS.success(1, ends=True)
def reads_a_little_of_many_transactions(case: Case) -> None:
    """Only what was aborted within the bytes that are given is told."""
    first, _ = interleaved(case)
    first.end()
    for offset in (0, 2, 7):
        for size in (1, 200, 400):
            ask(case, offset, partition_max_bytes=size)
    ask(case, max_bytes=1)


@SCENARIOS.success(1, ends=True)
def the_stable_offset_goes_on_with_each_end(case: Case) -> None:
    first, second = Producer(case, "-a").bring(ONGOING), Producer(case, "-b").bring(ONGOING)
    fill(case, case.id_of(case.name))
    ask(case)
    second.end()
    ask(case)
    first.end(committed=False)
    ask(case)


@SCENARIOS.success(1, ends=True)
def reads_committed_at_and_after_the_stable_offset(case: Case) -> None:
    Producer(case).bring(ONGOING)
    topic_id = case.id_of(case.name)
    fill(case, topic_id)
    for offset in (0, 1, 4):
        ask(case, offset)


@SCENARIOS.error(1, ends=True)
def reads_committed_beyond_the_end(case: Case) -> None:
    Producer(case).bring(ONGOING)
    for offset in (2, 5):
        ask(case, offset)


@SCENARIOS.success(1, ends=True, each=ABORTED)
def a_reader_is_woken_by_the_end_of_a_transaction(case: Case, kind: str) -> None:
    """It waits for stable records, of which there are none before."""
    producer = Producer(case).bring(ONGOING)
    request = fetch_request(
        case, 0, case.id_of(case.name), isolation_level=COMMITTED, max_wait_ms=LONG_MS, min_bytes=1
    )  # fmt: skip
    answer = case.compare_waiting(request, lambda: producer.end(kind == "commit"))
    case.answers[-1] = headers(case.answers[-1])
    assert answer.responses[0].partitions[0].records


@SCENARIOS.success(1, ends=True)
def a_reader_that_waits_is_not_woken_by_an_open_transaction(case: Case) -> None:
    producer = Producer(case).bring(ONGOING)
    topic_id = case.id_of(case.name)
    request = fetch_request(case, 0, topic_id, isolation_level=COMMITTED, max_wait_ms=500, min_bytes=1)

    def write() -> None:
        producer.write()
        fill(case, topic_id)

    case.compare_waiting(request, write)
    case.answers[-1] = headers(case.answers[-1])


@SCENARIOS.success(1, since=7, ends=True)
def a_session_of_committed_records(case: Case) -> None:
    producer = Producer(case).bring(ONGOING)
    topic_id = case.id_of(case.name)
    begun = case.compare(
        fetch_request(case, 0, topic_id, isolation_level=COMMITTED, session_epoch=0, max_wait_ms=0), only=headers
    )
    settings = {"session_id": begun.session_id, "isolation_level": COMMITTED, "max_wait_ms": 0}
    case.compare(m.Request(session_epoch=1, **settings), only=headers)
    fill(case, topic_id)
    case.compare(m.Request(session_epoch=2, **settings), only=headers)
    producer.end(committed=False)
    case.compare(m.Request(session_epoch=3, **settings), only=headers)
    case.compare(m.Request(session_epoch=4, **settings), only=headers)


@SCENARIOS.success(1, ends=True)
def what_was_aborted_before_the_log_starts(case: Case) -> None:
    producer = Producer(case).bring(COMPLETE_ABORT)
    producer.write()
    producer.end(committed=False)
    producer.write()
    producer.end()
    for before in (1, 2, 3):
        case.delete_records(before)
        ask(case, before)


@SCENARIOS.success(1, ends=True)
def records_of_an_open_transaction_are_deleted(case: Case) -> None:
    producer = Producer(case).bring(ONGOING)
    topic_id = case.id_of(case.name)
    fill(case, topic_id)
    case.delete_records(2)
    ask(case, 2)
    producer.end(committed=False)
    ask(case, 2)
    ask(case, 4)


@SCENARIOS.success(1, ends=True)
def reads_transactions_of_several_segments(case: Case) -> None:
    case.topic(segment_bytes=str(1 << 20), segment_ms=NEVER_MS)
    producer = Producer(case).begin()
    value = b"x" * 300_000
    for number in range(4):
        producer.write(0, value=value)
        fill(case, case.id_of(case.name))
        if number % 2:
            producer.end(number == 1)
    for offset in range(0, 20, 3):
        ask(case, offset, max_bytes=1)  # one batch, since Kafka gives those of one segment at a time


@SCENARIOS.error(1, ends=True)
def isolation_levels_that_there_are_not(case: Case) -> None:
    Producer(case).bring(ONGOING)
    for level in (2, -1, 127):
        request = fetch_request(case, 0, case.id_of(case.name), isolation_level=level)
        case.compare(request, only=headers)


@SCENARIOS.success(1, ends=True)
def markers_of_transactions_without_records(case: Case) -> None:
    producer = Producer(case).bring(COMPLETE_COMMIT)
    producer.add(0, 1)
    producer.end(committed=False)
    ask(case)
    ask(case, 0, partition=1)


# --- Offsets --------------------------------------------------------------------------------------------------------


@SCENARIOS.success(2, since=OFFSETS_SINCE, each=STATES)
def offsets_of_a_transaction_in_each_state(case: Case, state: str) -> None:
    Producer(case).bring(state)
    ask_offsets(case)


@SCENARIOS.success(2, since=OFFSETS_SINCE, ends=True)
def offsets_of_committed_records_by_time(case: Case) -> None:
    """What comes later than the last stable offset is not told of."""
    topic_id = case.topic(segment_ms=NEVER_MS)
    fill(case, topic_id)
    producer = Producer(case).begin()
    producer.write(0, 3, base_timestamp_ms=BASE_TIMESTAMP_MS + 1_000)
    case.prepare(produce_request(case, batch(base_timestamp_ms=BASE_TIMESTAMP_MS + 2_000), topic_id))
    times = [BASE_TIMESTAMP_MS + later for later in (0, 20, 21, 1_000, 1_021, 2_000, 2_021)]
    ask_offsets(case, *times, LATEST, EARLIEST)
    producer.end(committed=False)
    ask_offsets(case, *times, LATEST)


@SCENARIOS.success(2, since=OFFSETS_SINCE, ends=True)
def offsets_while_transactions_lie_in_each_other(case: Case) -> None:
    for producer in interleaved(case):
        ask_offsets(case, LATEST)
        producer.end()
        ask_offsets(case, LATEST)


@SCENARIOS.success(2, since=OFFSETS_SINCE, ends=True, each=PREPARED)
def offsets_while_markers_are_written(case: Case, state: str) -> None:
    producer = Producer(case).bring(state)
    fill(case, case.id_of(case.name), partition=1)
    assert producer.state() == state
    ask_offsets(case, LATEST)
