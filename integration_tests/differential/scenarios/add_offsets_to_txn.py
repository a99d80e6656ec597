"""AddOffsetsToTxn (25): a transaction is to commit a group's offsets."""

from __future__ import annotations

from typing import Any

from ..peer import Case, Scenarios
from ..transactional import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARED,
    STATES,
    Producer,
    describe_request,
    one_order,
    strangers,
    transaction_coordinator,
)

SCENARIOS = Scenarios()
OPEN = (EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT)


def ask(case: Case, producer: Producer, request: Any) -> None:
    case.compare(request)
    case.see(describe_request(producer.id), only=one_order)


@SCENARIOS.success(25, each=OPEN)
def adds_a_group(case: Case, state: str) -> None:
    case.coordinator()
    producer = Producer(case).bring(state)
    for _ in range(2):
        ask(case, producer, producer.add_offsets_request())
    producer.end()


@SCENARIOS.success(25, ends=True, each=OPEN)
def adds_a_group_by_the_old_protocol(case: Case, state: str) -> None:
    case.coordinator()
    producer = Producer(case, old=True).bring(state)
    ask(case, producer, producer.add_offsets_request())
    producer.end(committed=False)


@SCENARIOS.error(25, each=PREPARED)
def adds_a_group_while_markers_are_written(case: Case, state: str) -> None:
    case.coordinator()
    producer = Producer(case).bring(state)
    ask(case, producer, producer.add_offsets_request())


@SCENARIOS.success(25)
def adds_groups_of_any_name(case: Case) -> None:
    case.coordinator()
    producer = Producer(case).begin()
    for group in ("Ünïcode 🙂", "a/b c", case.name, "x" * 1_000):
        ask(case, producer, producer.add_offsets_request(group))
    ask(case, producer, producer.add_offsets_request(group_id=""))


@SCENARIOS.error(25, each=STATES)
def adds_a_group_as_another_producer(case: Case, state: str) -> None:
    case.coordinator()
    producer = Producer(case).bring(state)
    for fields in strangers(producer):
        ask(case, producer, producer.add_offsets_request(**fields))


@SCENARIOS.error(25)
def adds_a_group_to_no_transaction(case: Case) -> None:
    case.coordinator()
    producer = Producer(case).begin()
    transaction_coordinator(case, case.name + "-unknown")
    ask(case, producer, producer.add_offsets_request(transactional_id=case.name + "-unknown"))
    ask(case, producer, producer.add_offsets_request(transactional_id=""))
