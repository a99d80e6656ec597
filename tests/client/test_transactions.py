"""The table of a transactional producer's states, and what each error means."""

from __future__ import annotations

import pytest

from isthmus.client.errors import (
    ClientError,
    ConnectionLost,
    DataLost,
    DeliveryTimeout,
    ProducerFailed,
    ProducerFenced,
    TransactionAborted,
    UnsupportedVersion,
)
from isthmus.client.transactions import TABLE, Event, Progress, State, Step, Verdict, is_time_over, verdict
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.errors import KafkaError

FINAL = (State.FENCED, State.FAILED)
OF_USERS = (Event.START, Event.BEGIN, Event.COMMIT, Event.ABORT)


@pytest.mark.parametrize(
    ("state", "allowed"),
    [
        (State.NEW, {Event.START}),
        (State.READY, {Event.BEGIN}),
        (State.OPEN, {Event.COMMIT, Event.ABORT}),
        (State.FLUSHING, set()),
        (State.COMMITTING, set()),
        (State.DOOMED, {Event.ABORT}),
        (State.ABORTING, {Event.ABORT}),
        (State.FENCED, set()),
        (State.FAILED, set()),
    ],
)
def test_what_a_user_may_ask_for_in_each_state(state: State, allowed: set[Event]) -> None:
    assert {event for event in OF_USERS if (state, event) in TABLE} == allowed


def test_every_state_that_refuses_says_what_to_do() -> None:
    for state in State:
        for event in OF_USERS:
            progress = Progress("mine")
            progress.state = state
            progress.error = ProducerFenced("over") if state in (*FINAL, State.DOOMED) else None
            if (state, event) not in TABLE:
                with pytest.raises(ClientError, match=r"transactional id mine: |over"):
                    progress.move(event)
                assert progress.state is state


def test_nothing_leads_out_of_a_final_state() -> None:
    assert {after for (state, _), after in TABLE.items() if state is State.FENCED} == {State.FENCED}
    assert {after for (state, _), after in TABLE.items() if state is State.FAILED} == {State.FAILED}


def test_any_state_but_a_final_one_can_be_fenced_or_fail() -> None:
    for state in State:
        if state not in FINAL:
            assert TABLE[state, Event.FENCE] is State.FENCED
            assert TABLE[state, Event.FAIL] is State.FAILED


CODES = [
    (Step.INIT, E.PRODUCER_FENCED, Verdict.FENCE),
    (Step.INIT, E.INVALID_PRODUCER_EPOCH, Verdict.FENCE),
    (Step.INIT, E.INVALID_TRANSACTION_TIMEOUT, Verdict.FAIL),
    (Step.INIT, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Verdict.FAIL),
    (Step.ADD_PARTITIONS, E.PRODUCER_FENCED, Verdict.RENEW),
    (Step.ADD_PARTITIONS, E.INVALID_TXN_STATE, Verdict.RENEW),
    (Step.ADD_PARTITIONS, E.TOPIC_AUTHORIZATION_FAILED, Verdict.DOOM),
    (Step.ADD_PARTITIONS, E.COORDINATOR_NOT_AVAILABLE, Verdict.DOOM),  # when its time is over
    (Step.ADD_OFFSETS, E.GROUP_AUTHORIZATION_FAILED, Verdict.DOOM),
    (Step.COMMIT_OFFSETS, E.ILLEGAL_GENERATION, Verdict.DOOM),
    (Step.COMMIT_OFFSETS, E.INVALID_PRODUCER_EPOCH, Verdict.RENEW),
    (Step.COMMIT_OFFSETS, E.UNSUPPORTED_FOR_MESSAGE_FORMAT, Verdict.FAIL),
    (Step.WRITE, E.INVALID_PRODUCER_EPOCH, Verdict.RENEW),
    (Step.WRITE, E.OUT_OF_ORDER_SEQUENCE_NUMBER, Verdict.DOOM),
    (Step.WRITE, E.MESSAGE_TOO_LARGE, Verdict.DOOM),
    (Step.WRITE, E.TRANSACTION_ABORTABLE, Verdict.DOOM),
    (Step.WRITE, E.CLUSTER_AUTHORIZATION_FAILED, Verdict.FAIL),
    (Step.COMMIT, E.TRANSACTION_ABORTABLE, Verdict.DOOM),
    (Step.COMMIT, E.INVALID_TXN_STATE, Verdict.RENEW),
    (Step.COMMIT, E.UNKNOWN_SERVER_ERROR, Verdict.FAIL),  # it may have been done
    (Step.ABORT, E.TRANSACTION_ABORTABLE, Verdict.RENEW),
    (Step.ABORT, E.INVALID_PRODUCER_ID_MAPPING, Verdict.RENEW),
    (Step.ABORT, E.UNKNOWN_SERVER_ERROR, Verdict.FAIL),
]


@pytest.mark.parametrize(("step", "code", "meaning"), CODES)
def test_what_a_code_means(step: Step, code: E, meaning: Verdict) -> None:
    assert verdict(step, KafkaError.of(code)) is meaning


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (DeliveryTimeout("late"), Verdict.DOOM),
        (ConnectionLost("gone"), Verdict.DOOM),
        (DataLost("lost"), Verdict.FAIL),
        (UnsupportedVersion("old"), Verdict.FAIL),
        (TypeError("not bytes"), Verdict.DOOM),
    ],
)
def test_what_an_error_without_a_code_means(error: Exception, meaning: Verdict) -> None:
    assert verdict(Step.WRITE, error) is meaning


def test_time_is_over_where_another_attempt_could_have_helped() -> None:
    assert is_time_over(ConnectionLost("x")) and is_time_over(KafkaError.of(E.NOT_COORDINATOR))
    assert not is_time_over(UnsupportedVersion("x")) and not is_time_over(KafkaError.of(E.PRODUCER_FENCED))


def open_one() -> Progress:
    progress = Progress("mine")
    progress.move(Event.START)
    progress.move(Event.BEGIN)
    return progress


def test_the_first_error_is_the_one_that_is_told() -> None:
    progress = open_one()
    first = progress.failed(Step.WRITE, KafkaError.of(E.MESSAGE_TOO_LARGE, "t-0: too large"))[1]
    progress.failed(Step.WRITE, KafkaError.of(E.INVALID_RECORD))
    with pytest.raises(TransactionAborted, match="mine, writing: t-0: too large") as caught:
        progress.move(Event.COMMIT)
    assert caught.value is first and not first.retriable
    progress.move(Event.ABORT)
    progress.move(Event.ABORTED)
    assert progress.error is None


@pytest.mark.parametrize(
    ("code", "is_worth_it"),
    [
        (E.INVALID_PRODUCER_EPOCH, True),
        (E.OUT_OF_ORDER_SEQUENCE_NUMBER, True),
        (E.COORDINATOR_NOT_AVAILABLE, True),
        (E.ILLEGAL_GENERATION, True),
        (E.TOPIC_AUTHORIZATION_FAILED, False),
        (E.FENCED_INSTANCE_ID, False),
    ],
)
def test_an_aborted_transaction_says_whether_it_is_worth_another_attempt(code: E, is_worth_it: bool) -> None:
    assert open_one().failed(Step.COMMIT_OFFSETS, KafkaError.of(code))[1].retriable == is_worth_it


def test_a_late_word_of_a_transaction_that_has_ended_changes_nothing() -> None:
    progress = open_one()
    progress.move(Event.ABORT)
    progress.failed(Step.WRITE, KafkaError.of(E.INVALID_PRODUCER_EPOCH))
    assert progress.state is State.ABORTING
    progress.move(Event.ABORTED)
    progress.failed(Step.WRITE, KafkaError.of(E.INVALID_PRODUCER_EPOCH))
    assert progress.state is State.READY
    progress.move(Event.BEGIN)


def test_a_producer_that_is_fenced_while_it_commits_does_not_say_that_nothing_counts() -> None:
    progress = open_one()
    assert "What it had open is aborted" in str(progress.failed(Step.INIT, KafkaError.of(E.PRODUCER_FENCED))[1])
    progress = open_one()
    progress.move(Event.COMMIT)
    progress.move(Event.FLUSHED)
    error = progress.failed(Step.INIT, KafkaError.of(E.PRODUCER_FENCED))[1]
    assert isinstance(error, ProducerFenced) and "Whether its commit came first is not known" in str(error)


def test_a_failed_producer_stays_failed_when_it_is_fenced_too() -> None:
    progress = open_one()
    first = progress.failed(Step.WRITE, KafkaError.of(E.CLUSTER_AUTHORIZATION_FAILED))[1]
    progress.failed(Step.INIT, KafkaError.of(E.PRODUCER_FENCED))
    assert isinstance(first, ProducerFailed)
    with pytest.raises(ProducerFailed):
        progress.move(Event.BEGIN)
