"""InitProducerId (22) without transactions."""

from __future__ import annotations

from isthmus.protocol.messages import init_producer_id as m

from ..batches import batch
from ..peer import Case, Scenarios
from ..requests import new_producer, produce_request

SCENARIOS = Scenarios()


@SCENARIOS.success(22)
def gives_a_producer_id(case: Case) -> None:
    new_producer(case)
    case.compare(m.Request(transactional_id=None, transaction_timeout_ms=60_000))


@SCENARIOS.success(22, ends=True)
def each_request_is_given_another_id(case: Case) -> None:
    topic_id = case.topic()
    for _ in range(2):
        producer = new_producer(case)
        sent = batch(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, base_sequence=0)
        case.see(produce_request(case, sent, topic_id))
    case.compare(m.Request(transactional_id=None, transaction_timeout_ms=0))


@SCENARIOS.success(22, since=3, ends=True)
def producer_that_has_an_id_is_given_another(case: Case) -> None:
    producer = new_producer(case)
    case.compare(
        m.Request(
            transactional_id=None,
            transaction_timeout_ms=60_000,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
        )
    )


@SCENARIOS.error(22)
def producer_ids_that_are_refused(case: Case) -> None:
    case.compare(m.Request(transactional_id="", transaction_timeout_ms=60_000))
    if case.version >= 3:
        case.compare(m.Request(transactional_id=None, producer_id=5, producer_epoch=-1))
        case.compare(m.Request(transactional_id=None, producer_id=-1, producer_epoch=5))
