"""What follows when all epochs of a producer id are used up: another id. A minute away, and so run by `make soak`."""

from __future__ import annotations

import pytest

from .comparing import Comparison
from .peer import Case, Scenario, Scenarios
from .transactional import ONGOING, Producer, describe_request, one_order

LAST = 32_766  # the last epoch that a producer is given
SCENARIOS = Scenarios()


def used_up(case: Case, left: int = 0) -> Producer:
    """A producer that has so many epochs left."""
    producer = Producer(case).bring(ONGOING)
    producer.end()
    while producer.epoch < LAST - left:
        producer.given(case.prepare(producer.init_request()))
    return producer


def see(case: Case, producer: Producer) -> None:
    case.see(describe_request(producer.id), only=one_order)


@SCENARIOS.success(22)
def another_id_when_a_producer_starts(case: Case) -> None:
    producer = used_up(case, 1)
    for _ in range(3):
        producer.given(case.compare(producer.init_request()))
        see(case, producer)
    producer.write()
    producer.end()


@SCENARIOS.success(22, since=3)
def another_id_when_a_producer_tells_its_last_epoch(case: Case) -> None:
    producer = used_up(case)
    request = producer.bump_request()
    for _ in range(2):  # the second one as after an answer that was lost
        producer.given(case.compare(request))
        see(case, producer)
    case.compare(producer.bump_request(producer_id=request.producer_id, producer_epoch=LAST - 1))


@SCENARIOS.success(22)
def another_id_after_what_was_under_way_was_ended(case: Case) -> None:
    producer = used_up(case)
    producer.write()
    case.compare(producer.init_request())
    producer.settle()
    see(case, producer)
    producer.given(case.compare(producer.init_request()))
    see(case, producer)
    producer.write()
    producer.end()


@SCENARIOS.success(26, since=5)
def another_id_when_a_transaction_ends(case: Case) -> None:
    producer = used_up(case)
    producer.write()
    request = producer.end_request()
    for _ in range(2):
        producer.given(case.compare(request))
        producer.settle()
        see(case, producer)
    case.compare(producer.end_request(committed=False, producer_id=request.producer_id, producer_epoch=LAST))
    producer.write()
    producer.end()


@SCENARIOS.success(26, until=4)
def the_last_epoch_lasts_by_the_old_protocol(case: Case) -> None:
    producer = used_up(case)
    producer.old = True
    for committed in (True, False):
        producer.write()
        case.compare(producer.end_request(committed))
        producer.settle()
        see(case, producer)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.label)
def test_answers_are_equal(scenario: Scenario, comparison: Comparison) -> None:
    assert comparison.differences(scenario, scenario.versions[-1]) == []
