"""What transactions do when a limit or a time is reached: a pair of brokers with small ones, and the answers are equal.

Nothing here measures time: what is to come is waited for, and what is told afterwards is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from isthmus.protocol.messages import describe_producers, list_transactions

from .comparing import Comparison
from .pairs import pair
from .peer import Case, Scenario, Scenarios
from .requests import new_producer
from .scenarios.read_committed import ask as read
from .scenarios.txn_offset_commit import see_offsets
from .transactional import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TIMEOUT_MS,
    TRANSACTIONAL_ID_NOT_FOUND,
    Producer,
    describe_request,
    one_order,
)

LIMITS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 10,
    "offsets.topic.replication.factor": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 20,
    "transaction.max.timeout.ms": TIMEOUT_MS,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 10,
    "transaction.state.log.replication.factor": 1,
}
EXPIRY = {
    **LIMITS,
    "log.retention.check.interval.ms": 50,  # when ours looks for producers that are silent
    "producer.id.expiration.ms": 500,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 50,
    "transactional.id.expiration.ms": 3_000,
}
EXPIRY_OF_KAFKA = {"producer.id.expiration.check.interval.ms": 50}  # an internal option
SOON_MS = 700
OF_LIMITS, OF_EXPIRY = Scenarios(), Scenarios()


def see(case: Case, producer: Producer) -> None:
    case.see(describe_request(producer.id), only=one_order)


def overdue(case: Case, *, old: bool = False) -> Producer:
    """A transaction with a record and an offset that was aborted since it lasted too long."""
    case.coordinator()
    producer = Producer(case, old=old, timeout_ms=SOON_MS).bring(ONGOING)
    producer.commit_offset(5)
    case.wait_until(lambda: producer.state() == COMPLETE_ABORT, "the transaction is aborted")
    return producer


# --- Timeouts -------------------------------------------------------------------------------------------------------


@OF_LIMITS.error(22)
def timeouts_above_the_brokers_limit(case: Case) -> None:
    producer = Producer(case)
    for timeout_ms in (TIMEOUT_MS + 1, TIMEOUT_MS):
        case.compare(producer.init_request(transaction_timeout_ms=timeout_ms))


@OF_LIMITS.success(22)
def a_transaction_that_lasts_too_long_is_aborted(case: Case) -> None:
    producer = overdue(case)
    see(case, producer)
    see_offsets(case)
    case.compare(producer.init_request())
    see(case, producer)


@OF_LIMITS.success(22)
def a_transaction_of_the_old_protocol_that_lasts_too_long_is_aborted(case: Case) -> None:
    producer = overdue(case, old=True)
    see(case, producer)
    case.compare(producer.init_request())
    see(case, producer)


@OF_LIMITS.error(22, since=3)
def a_producer_tells_the_epoch_of_a_transaction_that_lasted_too_long(case: Case) -> None:
    producer = overdue(case)
    for _ in range(2):
        case.compare(producer.bump_request())
    see(case, producer)


@OF_LIMITS.error(26)
def ends_a_transaction_that_lasted_too_long(case: Case) -> None:
    producer = overdue(case, old=case.version < 5)
    for committed in (True, False):
        case.compare(producer.end_request(committed))
    for committed in (True, False):
        case.compare(producer.end_request(committed, producer_epoch=producer.epoch + 1))
    producer.settle()
    see(case, producer)


@OF_LIMITS.error(0, since=3)
def appends_to_a_transaction_that_lasted_too_long(case: Case) -> None:
    producer = overdue(case, old=case.version < 12)
    for partition in (0, 1):
        case.compare(producer.produce_request(producer.batch(1), partition))
    see(case, producer)


@OF_LIMITS.error(24)
def adds_to_a_transaction_that_lasted_too_long(case: Case) -> None:
    producer = overdue(case, old=case.version < 4)
    case.compare(producer.any_add_request(0, 1), only=one_order)
    if case.version >= 4:
        case.compare(producer.any_add_request(0, verify_only=True), only=one_order)
    see(case, producer)


@OF_LIMITS.error(28)
def offsets_in_a_transaction_that_lasted_too_long(case: Case) -> None:
    producer = overdue(case, old=case.version < 5)
    case.compare(producer.offsets_request(6), only=one_order)
    see_offsets(case)


@OF_LIMITS.success(1)
def records_of_a_transaction_that_lasted_too_long(case: Case) -> None:
    overdue(case)
    read(case)


@OF_LIMITS.success(22, each=(EMPTY, COMPLETE_COMMIT, PREPARE_COMMIT, PREPARE_ABORT))
def what_is_not_under_way_lasts(case: Case, state: str) -> None:
    """Only what is under way is aborted: another transaction that is tells when its time would be over."""
    producer = Producer(case, timeout_ms=SOON_MS).bring(state)
    later = Producer(case, "-later", timeout_ms=SOON_MS).bring(ONGOING)
    case.wait_until(lambda: later.state() == COMPLETE_ABORT, "the other one is aborted")
    see(case, producer)
    case.compare(producer.init_request())


@OF_LIMITS.success(66)
def lists_transactions_that_have_lasted(case: Case) -> None:
    """Of those that are under way, and have been for longer than that."""
    producer = Producer(case).bring(ONGOING)
    Producer(case, "-empty").begin()

    def own(answer: dict[str, Any]) -> dict[str, Any]:
        rows = [row for row in answer["transaction_states"] if row["transactional_id"].startswith(case.name)]
        return {**answer, "transaction_states": sorted(rows, key=lambda row: row["transactional_id"])}

    if case.version >= 1:
        wanted = list_transactions.Request(duration_filter=50)

        def listed() -> bool:
            states = case.prepare(wanted).transaction_states
            return producer.id in [each.transactional_id for each in states]

        case.wait_until(listed, "it has lasted")
        case.compare(wanted, only=own)
        case.compare(list_transactions.Request(duration_filter=3_600_000), only=own)
    else:
        case.compare(list_transactions.Request(), only=own)


# --- Expiry ---------------------------------------------------------------------------------------------------------


@OF_EXPIRY.error(65, each=(EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT))
def a_transactional_id_that_is_not_used_is_forgotten(case: Case, state: str) -> None:
    producer = Producer(case).bring(state)

    def gone() -> bool:
        [found] = case.prepare(describe_request(producer.id)).transaction_states
        return bool(found.error_code == TRANSACTIONAL_ID_NOT_FOUND)

    case.wait_until(gone, "the id is forgotten")
    case.compare(describe_request(producer.id))
    case.see(producer.end_request(committed=False))
    case.see(producer.bump_request())


@OF_EXPIRY.success(65)
def a_transactional_id_in_use_is_not_forgotten(case: Case) -> None:
    """As another one that is not used tells, which is forgotten meanwhile."""
    producer = Producer(case).bring(ONGOING)
    other = Producer(case, "-other").begin()

    def gone() -> bool:
        [found] = case.prepare(describe_request(other.id)).transaction_states
        return bool(found.error_code == TRANSACTIONAL_ID_NOT_FOUND)

    case.wait_until(gone, "the other id is forgotten")
    case.compare(describe_request(producer.id), only=one_order)


@OF_EXPIRY.success(61)
def producers_that_are_silent_are_forgotten(case: Case) -> None:
    """But for one whose transaction is open."""
    producer = Producer(case).bring(ONGOING)
    idle = new_producer(case)
    producer.case.prepare(
        producer.produce_request(
            producer.batch(producer_id=idle.producer_id, producer_epoch=0, attributes=0), transactional_id=None
        )
    )
    topic = describe_producers.TopicRequest(name=case.name, partition_indexes=[0])
    wanted = describe_producers.Request(topics=[topic])

    def alone() -> bool:
        return len(case.prepare(wanted).topics[0].partitions[0].active_producers) == 1

    case.wait_until(alone, "the idle producer is forgotten")
    case.compare(wanted)
    producer.end()


@OF_EXPIRY.success(0, since=12)
def a_producer_goes_on_when_its_partition_has_forgotten_it(case: Case) -> None:
    producer = Producer(case).bring(COMPLETE_COMMIT)
    topic = describe_producers.TopicRequest(name=case.name, partition_indexes=[0])
    wanted = describe_producers.Request(topics=[topic])
    producer.write(1)  # so that its transactional id is in use

    def gone() -> bool:
        return not case.prepare(wanted).topics[0].partitions[0].active_producers

    case.wait_until(gone, "the producer is forgotten")
    case.compare(producer.produce_request(producer.batch(5)))
    case.compare(producer.produce_request(producer.batch(0)))
    producer.end()


SCENARIOS = [*OF_LIMITS, *OF_EXPIRY]


@pytest.fixture(scope="module")
def limits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    with pair(tmp_path_factory.mktemp("limits"), LIMITS) as made:
        yield made


@pytest.fixture(scope="module")
def expiry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    with pair(tmp_path_factory.mktemp("expiry"), EXPIRY, EXPIRY_OF_KAFKA) as made:
        yield made


def cases(scenarios: Scenarios) -> list[tuple[Scenario, int]]:
    return [(scenario, version) for scenario in scenarios for version in scenario.versions]


def name(case: tuple[Scenario, int]) -> str:
    return f"{case[0].label}-v{case[1]}"


@pytest.mark.parametrize("case", cases(OF_LIMITS), ids=name)
def test_answers_with_small_limits_are_equal(case: tuple[Scenario, int], limits: Comparison) -> None:
    assert limits.differences(*case) == []


@pytest.mark.parametrize("case", cases(OF_EXPIRY), ids=name)
def test_answers_after_what_expires_are_equal(case: tuple[Scenario, int], expiry: Comparison) -> None:
    assert expiry.differences(*case) == []


def test_the_tables_are_what_was_told(limits: Comparison, expiry: Comparison) -> None:
    assert limits.wrong_in_tables(cases(OF_LIMITS)) == []
    assert expiry.wrong_in_tables(cases(OF_EXPIRY)) == []
