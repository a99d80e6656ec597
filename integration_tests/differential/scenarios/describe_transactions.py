"""DescribeTransactions (65), in each state, and ListTransactions (66) with its filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isthmus.protocol.messages import list_transactions as m

from ..peer import Case, Scenarios
from ..transactional import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARED,
    STATES,
    UNKNOWN_ID,
    Producer,
    describe_request,
    one_order,
)

SCENARIOS = Scenarios()
DURATIONS, PATTERNS = 1, 2  # versions of ListTransactions


@SCENARIOS.success(65, each=STATES)
def describes_a_transaction(case: Case, state: str) -> None:
    producer = Producer(case).bring(state)
    case.compare(describe_request(producer.id), only=one_order)


@SCENARIOS.success(65, each=STATES)
def describes_a_transaction_of_the_old_protocol(case: Case, state: str) -> None:
    producer = Producer(case, old=True).bring(state)
    case.compare(describe_request(producer.id), only=one_order)


@SCENARIOS.success(65)
def describes_a_transaction_with_much_in_it(case: Case) -> None:
    case.topic("-other", partitions=3)
    producer = Producer(case, timeout_ms=12_345).bring(ONGOING)
    producer.write(1)
    for partition in (2, 0):
        producer.write(partition, topic=case.name + "-other")
    producer.commit_offset(40)
    case.compare(describe_request(producer.id), only=one_order)


@SCENARIOS.success(65)
def describes_several_transactions(case: Case) -> None:
    first, second = Producer(case, "-a").bring(ONGOING), Producer(case, "-b").bring(COMPLETE_ABORT)
    case.compare(describe_request(second.id, case.name, first.id, "", second.id), only=one_order)
    case.compare(describe_request())


@SCENARIOS.error(65)
def describes_transactions_that_are_not_there(case: Case) -> None:
    Producer(case)
    case.compare(describe_request(case.name))
    case.compare(describe_request("", case.name + "\n"))


# --- Lists ----------------------------------------------------------------------------------------------------------


def listed(case: Case, *producers: Producer, **fields: Any) -> None:
    """Compares what the list says of the case's own transactions."""

    def own(answer: dict[str, Any]) -> dict[str, Any]:
        rows = [row for row in answer["transaction_states"] if row["transactional_id"].startswith(case.name)]
        rows.sort(key=lambda row: str(row["transactional_id"]))
        return {**answer, "transaction_states": rows, "unknown_state_filters": sorted(answer["unknown_state_filters"])}

    case.compare(m.Request(**fields), only=own)


def one_of_each(case: Case, states: Sequence[str] = STATES) -> dict[str, Producer]:
    return {state: Producer(case, f"-{state}").bring(state) for state in states}


@SCENARIOS.success(66)
def lists_transactions(case: Case) -> None:
    one_of_each(case)
    listed(case)


@SCENARIOS.success(66)
def lists_transactions_by_state(case: Case) -> None:
    one_of_each(case)
    for states in (*([state] for state in STATES), [EMPTY, ONGOING], [ONGOING, ONGOING], ["Dead"], [*STATES]):
        listed(case, state_filters=states)


@SCENARIOS.success(66)
def lists_transactions_by_what_is_no_state(case: Case) -> None:
    one_of_each(case)
    wrong = ["ongoing"], ["No such state", ONGOING], [""], ["PrepareEpochFence"], [" Ongoing "], ["x", "y", "x"]
    for states in wrong:
        listed(case, state_filters=states)


@SCENARIOS.success(66)
def lists_transactions_by_producer(case: Case) -> None:
    found = one_of_each(case, (EMPTY, ONGOING))
    empty, ongoing = (found[state].producer_id for state in (EMPTY, ONGOING))
    for ids in ([empty], [empty, ongoing], [UNKNOWN_ID], [-1], [ongoing, UNKNOWN_ID, ongoing]):
        listed(case, producer_id_filters=ids)
        listed(case, producer_id_filters=ids, state_filters=[ONGOING])


@SCENARIOS.success(66, since=DURATIONS)
def lists_transactions_by_how_long_they_last(case: Case) -> None:
    one_of_each(case)
    for duration_ms in (-1, 0, -5, 3_600_000, 2**63 - 1, -(2**63)):
        listed(case, duration_filter=duration_ms)


@SCENARIOS.success(66, since=PATTERNS)
def lists_transactions_by_pattern(case: Case) -> None:
    one_of_each(case)
    name = case.name
    for pattern in (None, "", ".*", name, f"{name}-.*", f"{name}-(Ongoing|Empty)", f"(?i){name}-ongoing", "^.*-Empty$"):
        listed(case, transactional_id_pattern=pattern)
    listed(case, transactional_id_pattern=f"{name}-.*", state_filters=[*PREPARED, COMPLETE_COMMIT])


@SCENARIOS.error(66, since=PATTERNS)
def patterns_that_are_none(case: Case) -> None:
    one_of_each(case, (ONGOING,))
    for pattern in ("(", "[a", "*", "(?<name", "(?=a)", r"(a)\1", "a{1001}", "\\"):
        listed(case, transactional_id_pattern=pattern)
