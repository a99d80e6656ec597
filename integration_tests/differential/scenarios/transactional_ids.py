"""InitProducerId (22) for transactional ids: epochs, fencing, and ids that producers tell."""

from __future__ import annotations

from isthmus.protocol.messages import init_producer_id as m

from ..peer import Case, Scenarios
from ..transactional import (
    CONCURRENT_TRANSACTIONS,
    DONE,
    ONGOING,
    PREPARED,
    STATES,
    UNKNOWN_ID,
    Producer,
    describe_request,
    one_order,
)

SCENARIOS = Scenarios()
MAX_TIMEOUT_MS = 900_000  # transaction.max.timeout.ms
TELLS = 3  # the version from which on a producer tells its id and epoch


def ask(case: Case, producer: Producer, request: m.Request) -> None:
    """Compare the answer, and what has become of the transaction by it."""
    producer.given(case.compare(request))
    case.see(describe_request(producer.id), only=one_order)


@SCENARIOS.success(22)
def a_transactional_id_is_given_a_producer_id(case: Case) -> None:
    producer = Producer(case)
    ask(case, producer, producer.init_request())


@SCENARIOS.success(22, each=DONE)
def the_next_epoch(case: Case, state: str) -> None:
    producer = Producer(case).bring(state)
    for _ in range(2):
        ask(case, producer, producer.init_request())
    producer.write()


@SCENARIOS.success(22, ends=True, each=DONE)
def the_next_epoch_by_the_old_protocol(case: Case, state: str) -> None:
    producer = Producer(case, old=True).bring(state)
    ask(case, producer, producer.init_request())
    producer.write()
    producer.end()


@SCENARIOS.error(22)
def what_is_under_way_is_ended_first(case: Case) -> None:
    producer = Producer(case).bring(ONGOING)
    case.compare(producer.init_request())
    producer.settle()
    ask(case, producer, producer.init_request())


@SCENARIOS.error(22, ends=True)
def what_is_under_way_by_the_old_protocol_is_ended_first(case: Case) -> None:
    producer = Producer(case, old=True).bring(ONGOING)
    case.compare(producer.init_request())
    producer.settle()
    ask(case, producer, producer.init_request())


@SCENARIOS.error(22, each=PREPARED)
def an_epoch_while_markers_are_written(case: Case, state: str) -> None:
    producer = Producer(case).bring(state)
    for _ in range(2):
        ask(case, producer, producer.init_request())
    if case.version >= TELLS:
        ask(case, producer, producer.bump_request())
        ask(case, producer, producer.bump_request(producer_id=UNKNOWN_ID))


@SCENARIOS.success(22, since=TELLS, each=STATES)
def a_producer_tells_its_id_and_epoch(case: Case, state: str) -> None:
    producer = Producer(case).bring(state)
    case.compare(producer.bump_request())
    if state == ONGOING:
        producer.settle()
    ask(case, producer, producer.bump_request())


@SCENARIOS.success(22, since=TELLS, each=DONE)
def a_producer_asks_again_with_the_epoch_before(case: Case, state: str) -> None:
    producer = Producer(case).bring(state)
    request = producer.bump_request()
    for _ in range(3):
        ask(case, producer, request)


@SCENARIOS.error(22, since=TELLS, each=STATES)
def ids_and_epochs_that_a_producer_has_not(case: Case, state: str) -> None:
    producer = Producer(case).bring(state)
    for request in (
        producer.bump_request(producer_id=UNKNOWN_ID),
        producer.bump_request(-1),
        producer.bump_request(-7),
        producer.bump_request(7),
        producer.bump_request(producer_epoch=32_767),
        producer.bump_request(producer_id=-1),
        producer.bump_request(producer_epoch=-1),
        producer.bump_request(producer_id=-2),
        producer.bump_request(producer_epoch=-2),
    ):
        case.compare(request)
        producer.settle() if state == ONGOING else None
    case.see(describe_request(producer.id), only=one_order)


@SCENARIOS.success(22, since=TELLS)
def an_id_and_epoch_told_for_an_unknown_transactional_id(case: Case) -> None:
    producer = Producer(case)
    ask(case, producer, producer.bump_request(producer_id=UNKNOWN_ID, producer_epoch=5))
    ask(case, producer, producer.bump_request(producer_id=UNKNOWN_ID, producer_epoch=5))


@SCENARIOS.error(22)
def timeouts_of_transactions_out_of_bounds(case: Case) -> None:
    producer = Producer(case)
    for timeout_ms in (0, -1, MAX_TIMEOUT_MS + 1, 2**31 - 1, -(2**31)):
        case.compare(producer.init_request(transaction_timeout_ms=timeout_ms))
    for timeout_ms in (1, MAX_TIMEOUT_MS):
        ask(case, producer, producer.init_request(transaction_timeout_ms=timeout_ms))
    case.compare(producer.init_request(transaction_timeout_ms=0))


@SCENARIOS.success(22, ends=True)
def a_new_timeout_comes_with_the_next_epoch(case: Case) -> None:
    producer = Producer(case).begin()
    for timeout_ms in (1_000, 2_000):
        ask(case, producer, producer.init_request(transaction_timeout_ms=timeout_ms))


@SCENARIOS.success(22, ends=True)
def transactional_ids_of_any_kind(case: Case) -> None:
    for suffix in (" with spaces", "-Ünïcode 🙂", "/a\\b", "-" + "x" * 2_000, "\n"):
        producer = Producer(case, suffix)
        ask(case, producer, producer.init_request())


@SCENARIOS.error(22, ends=True)
def two_producers_with_one_transactional_id(case: Case) -> None:
    """The newer one fences the older one, which goes on all the same."""
    older = Producer(case).bring(ONGOING)
    newer = Producer(case).begin()
    newer.write(1)
    case.see(older.produce_request(older.batch(1)))
    case.see(older.add_offsets_request())
    case.see(older.end_request())
    case.see(older.end_request(committed=False))
    case.compare(older.bump_request() if case.version >= TELLS else older.init_request())
    newer.settle()  # what was under way is ended even by the one that is fenced
    case.see(describe_request(newer.id), only=one_order)


@SCENARIOS.success(22, ends=True)
def idempotent_and_transactional_ids_are_not_the_same(case: Case) -> None:
    first, second = Producer(case, "-a").begin(), Producer(case, "-b").begin()
    assert first.producer_id != second.producer_id
    case.compare(m.Request(transactional_id=None, transaction_timeout_ms=0))
    ask(case, first, first.init_request())
    ask(case, second, second.init_request())


@SCENARIOS.error(22, ends=True)
def an_epoch_is_asked_for_until_there_is_one(case: Case) -> None:
    """How often CONCURRENT_TRANSACTIONS is told is not compared, what comes then is."""
    producer = Producer(case).bring(ONGOING)
    producer.commit_offset(5)
    case.compare(producer.init_request())
    case.wait_until(
        lambda: case.prepare(producer.init_request()).error_code != CONCURRENT_TRANSACTIONS, "the next epoch"
    )  # fmt: skip
    ask(case, producer, producer.init_request())
