"""EndTxn (26): commits and aborts, once and again, in each state; version 5 gives the next epoch."""

from __future__ import annotations

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
GIVES_EPOCHS = 5
COMMIT, ABORT = "commit", "abort"
KINDS = (COMMIT, ABORT)


def see(case: Case, producer: Producer) -> None:
    """What has become of the transaction, once its markers are written."""
    producer.settle()
    case.see(describe_request(producer.id), only=one_order)


@SCENARIOS.success(26, each=KINDS)
def ends_a_transaction(case: Case, kind: str) -> None:
    producer = Producer(case, old=case.version < GIVES_EPOCHS).bring(ONGOING)
    producer.write(1, 3)
    producer.commit_offset(40)
    producer.given(case.compare(producer.end_request(kind == COMMIT)))
    see(case, producer)


@SCENARIOS.success(26, each=KINDS)
def ends_a_transaction_of_the_other_protocol(case: Case, kind: str) -> None:
    """Partitions added by the new one, and the end of the old one, or the other way round."""
    producer = Producer(case, old=case.version >= GIVES_EPOCHS).bring(ONGOING)
    producer.commit_offset(40)
    producer.given(case.compare(producer.end_request(kind == COMMIT)))
    see(case, producer)
    producer.write()
    see(case, producer)


@SCENARIOS.success(26, each=KINDS)
def one_transaction_after_another(case: Case, kind: str) -> None:
    producer = Producer(case, old=case.version < GIVES_EPOCHS).bring(EMPTY)
    for number in range(3):
        producer.write(number % 2)
        producer.given(case.compare(producer.end_request((kind == COMMIT) is (number != 1))))
        producer.settle()
    see(case, producer)


@SCENARIOS.error(26, each=tuple(state for state in STATES if state != ONGOING))
def ends_what_is_not_under_way(case: Case, state: str) -> None:
    producer = Producer(case, old=case.version < GIVES_EPOCHS).bring(state)
    for committed in (True, False):
        case.compare(producer.end_request(committed))
        if state not in PREPARED:
            producer.settle()
        case.see(describe_request(producer.id), only=one_order)


@SCENARIOS.success(26, each=KINDS)
def ends_a_transaction_again_with_the_epoch_it_had(case: Case, kind: str) -> None:
    producer = Producer(case, old=case.version < GIVES_EPOCHS).bring(ONGOING)
    request = producer.end_request(kind == COMMIT)
    case.compare(request)
    see(case, producer)
    for _ in range(2):
        case.compare(request)
    see(case, producer)


@SCENARIOS.error(26, each=KINDS)
def ends_a_transaction_the_other_way_with_the_epoch_it_had(case: Case, kind: str) -> None:
    producer = Producer(case, old=case.version < GIVES_EPOCHS).bring(ONGOING)
    first, second = (producer.end_request(committed) for committed in (kind == COMMIT, kind != COMMIT))
    case.compare(first)
    see(case, producer)
    case.compare(second)
    see(case, producer)


@SCENARIOS.error(26, each=PREPARED)
def ends_a_transaction_again_while_markers_are_written(case: Case, state: str) -> None:
    producer = Producer(case, old=case.version < GIVES_EPOCHS).bring(state)
    before = producer.epoch - (case.version >= GIVES_EPOCHS)
    for committed in (True, False):
        case.compare(producer.end_request(committed, producer_epoch=before))


@SCENARIOS.error(26, each=STATES)
def ends_a_transaction_as_another_producer(case: Case, state: str) -> None:
    producer = Producer(case, old=case.version < GIVES_EPOCHS).bring(state)
    for fields in strangers(producer):
        for committed in (True, False):
            case.compare(producer.end_request(committed, **fields))
    case.see(describe_request(producer.id), only=one_order)


@SCENARIOS.error(26)
def ends_no_transaction(case: Case) -> None:
    producer = Producer(case).begin()
    transaction_coordinator(case, case.name + "-unknown")
    for transactional_id in (case.name + "-unknown", ""):
        case.compare(producer.end_request(transactional_id=transactional_id))
    case.see(describe_request(producer.id), only=one_order)


@SCENARIOS.error(26, ends=True, each=KINDS)
def a_fenced_producer_ends_its_transaction(case: Case, kind: str) -> None:
    older = Producer(case, old=case.version < GIVES_EPOCHS).bring(ONGOING)
    newer = Producer(case, old=older.old).begin()
    newer.write()
    case.compare(older.end_request(kind == COMMIT))
    case.see(describe_request(newer.id), only=one_order)
    newer.end()


@SCENARIOS.success(26, ends=True, each=KINDS)
def ends_a_transaction_without_records(case: Case, kind: str) -> None:
    """Partitions were added, and nothing was sent to them."""
    producer = Producer(case, old=case.version < GIVES_EPOCHS).bring(EMPTY)
    producer.add(0, 1)
    producer.given(case.compare(producer.end_request(kind == COMMIT)))
    see(case, producer)


@SCENARIOS.success(26, ends=True, each=(COMPLETE_COMMIT, COMPLETE_ABORT))
def ends_the_next_transaction_without_anything_in_it(case: Case, state: str) -> None:
    """Twice, each time with the epoch that it has then."""
    producer = Producer(case, old=case.version < GIVES_EPOCHS).bring(state)
    for _ in range(2):
        producer.given(case.compare(producer.end_request(committed=False)))
        see(case, producer)


@SCENARIOS.success(26, ends=True, each=KINDS)
def ends_a_transaction_whose_topic_is_gone(case: Case, kind: str) -> None:
    producer = Producer(case, old=case.version < GIVES_EPOCHS).bring(ONGOING)
    case.delete_topic()
    producer.given(case.compare(producer.end_request(kind == COMMIT)))
    see(case, producer)
