"""AddPartitionsToTxn (24): by clients up to version 3, by brokers from version 4 on, which may only ask."""

from __future__ import annotations

from typing import Any

from ..peer import Case, Scenarios
from ..transactional import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    FOR_BROKERS,
    ONGOING,
    PREPARED,
    STATES,
    Producer,
    brokers_request,
    describe_request,
    one_order,
    strangers,
    transaction_coordinator,
)

SCENARIOS = Scenarios()
OPEN = (EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT)  # states that take partitions


def ask(case: Case, request: Any, *producers: Producer) -> None:
    """Compare the answer, and what is in the transactions then."""
    case.compare(request, only=one_order)
    case.see(describe_request(*(each.id for each in producers)), only=one_order)


@SCENARIOS.success(24, each=OPEN)
def adds_partitions(case: Case, state: str) -> None:
    producer = Producer(case).bring(state)
    ask(case, producer.any_add_request(0, 1), producer)


@SCENARIOS.success(24, ends=True, each=OPEN)
def adds_partitions_by_the_old_protocol(case: Case, state: str) -> None:
    producer = Producer(case, old=True).bring(state)
    ask(case, producer.any_add_request(1), producer)
    producer.end()


@SCENARIOS.error(24, each=PREPARED)
def adds_partitions_while_markers_are_written(case: Case, state: str) -> None:
    producer = Producer(case).bring(state)
    ask(case, producer.any_add_request(0, 1), producer)


@SCENARIOS.error(24, ends=True, each=PREPARED)
def adds_partitions_by_the_old_protocol_while_markers_are_written(case: Case, state: str) -> None:
    producer = Producer(case, old=True).bring(state)
    ask(case, producer.any_add_request(0, 1), producer)


@SCENARIOS.success(24)
def adds_what_is_there(case: Case) -> None:
    producer = Producer(case).bring(ONGOING)
    ask(case, producer.any_add_request(0), producer)
    ask(case, producer.any_add_request(0, 0, 1, 1), producer)
    ask(case, producer.any_add_request(1, 0), producer)


@SCENARIOS.success(24, ends=True, each=OPEN)
def adds_nothing(case: Case, state: str) -> None:
    producer = Producer(case).bring(state)
    ask(case, producer.any_add_request(topics={}), producer)
    ask(case, producer.any_add_request(topics={case.name: []}), producer)


@SCENARIOS.success(24, ends=True)
def adds_partitions_of_internal_topics(case: Case) -> None:
    producer = Producer(case).bring(EMPTY)
    case.coordinator()
    topics = {"__consumer_offsets": [1], "__transaction_state": [1], case.name: [0]}
    case.wait_until(lambda: bool(case.id_of("__transaction_state")), "the topic of transactions")
    ask(case, producer.any_add_request(topics=topics), producer)


@SCENARIOS.error(24)
def adds_partitions_that_are_not_there(case: Case) -> None:
    producer = Producer(case).bring(EMPTY)
    for topics in (
        {case.name: [0, 7]},
        {case.name: [-1]},
        {case.name: [0], case.name + "-unknown": [0, 1]},
        {"": [0]},
        {"no/name": [0], case.name: [1]},
    ):
        ask(case, producer.any_add_request(topics=topics), producer)


@SCENARIOS.error(24, each=STATES)
def adds_partitions_as_another_producer(case: Case, state: str) -> None:
    producer = Producer(case).bring(state)
    for fields in strangers(producer):
        ask(case, producer.any_add_request(1, **fields), producer)


@SCENARIOS.error(24)
def adds_partitions_to_no_transaction(case: Case) -> None:
    producer = Producer(case).bring(EMPTY)
    transaction_coordinator(case, case.name + "-unknown")
    ask(case, producer.any_add_request(0, transactional_id=case.name + "-unknown"), producer)
    ask(case, producer.any_add_request(0, transactional_id=""), producer)
    ask(case, producer.any_add_request(7, transactional_id=""), producer)


@SCENARIOS.error(24, ends=True)
def a_fenced_producer_adds_partitions(case: Case) -> None:
    older = Producer(case).bring(ONGOING)
    newer = Producer(case).begin()
    ask(case, older.any_add_request(1), newer)


# --- Brokers --------------------------------------------------------------------------------------------------------


@SCENARIOS.success(24, since=FOR_BROKERS)
def adds_to_several_transactions(case: Case) -> None:
    first, second, third = (Producer(case, f"-{n}").bring(EMPTY) for n in range(3))
    request = brokers_request(
        first.added_row(0),
        second.added_row(0, 7),
        third.added_row(0, 1, producer_epoch=9),
        third.added_row(0, transactional_id=""),
    )
    ask(case, request, first, second, third)


@SCENARIOS.success(24, since=FOR_BROKERS)
def a_transaction_named_twice(case: Case) -> None:
    first, second = (Producer(case, f"-{n}").bring(EMPTY) for n in range(2))
    ask(case, brokers_request(first.added_row(0), second.added_row(0), first.added_row(1)), first, second)


@SCENARIOS.success(24, since=FOR_BROKERS, each=STATES)
def asks_whether_partitions_are_in_a_transaction(case: Case, state: str) -> None:
    producer = Producer(case).bring(state)
    ask(case, producer.any_add_request(0, verify_only=True), producer)
    ask(case, producer.any_add_request(0, 1, verify_only=True), producer)


@SCENARIOS.error(24, since=FOR_BROKERS, each=STATES)
def asks_as_another_producer(case: Case, state: str) -> None:
    producer = Producer(case).bring(state)
    wrong: list[dict[str, Any]] = [
        {"transactional_id": ""},
        {"topics": {case.name: [0, 9]}},
        {"topics": {case.name + "-unknown": [0], case.name: [0]}},
        {"topics": {}},
    ]
    for fields in [*strangers(producer), *wrong]:
        ask(case, producer.any_add_request(0, verify_only=True, **fields), producer)


@SCENARIOS.error(24, since=FOR_BROKERS)
def asks_about_a_transaction_that_is_not_there(case: Case) -> None:
    producer = Producer(case).bring(EMPTY)
    transaction_coordinator(case, case.name + "-unknown")
    ask(case, producer.any_add_request(0, verify_only=True, transactional_id=case.name + "-unknown"), producer)
