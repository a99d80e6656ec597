"""Transactions where `transaction.version` is finalized at 0 or at 1, and clients go by the old protocol or do not:
a pair of brokers for each level, and the answers are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isthmus.protocol.messages import api_versions, update_features

from .comparing import Comparison
from .pairs import pair
from .peer import Case, Peer, Scenario, Scenarios
from .scenarios.txn_offset_commit import see_offsets
from .transactional import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    OLD_END,
    ONGOING,
    STATES,
    Producer,
    describe_request,
    one_order,
)

OPTIONS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 10,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 10,
    "transaction.state.log.replication.factor": 1,
}
FEATURE = "transaction.version"
LEVELS = (0, 1)
SAFE_DOWNGRADE = 2
DONE = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
AT_BOTH, AT_1, AT_0 = Scenarios(), Scenarios(), Scenarios()


def see(case: Case, producer: Producer) -> None:
    producer.settle()
    case.see(describe_request(producer.id), only=one_order)


# --- By the old protocol --------------------------------------------------------------------------------------------


@AT_BOTH.success(26, until=OLD_END, ends=True, each=("commit", "abort"))
def ends_a_transaction_at_an_old_level(case: Case, kind: str) -> None:
    producer = Producer(case, old=True).bring(ONGOING)
    producer.write(1, 3)
    producer.commit_offset(40)
    case.compare(producer.end_request(kind == "commit"))
    see(case, producer)
    see_offsets(case)
    producer.write()
    case.compare(producer.end_request(kind != "commit"))
    see(case, producer)


@AT_BOTH.success(22, ends=True, each=DONE)
def the_next_epoch_at_an_old_level(case: Case, state: str) -> None:
    producer = Producer(case, old=True).bring(state)
    for _ in range(2):
        producer.given(case.compare(producer.init_request()))
        see(case, producer)
    producer.write()
    producer.end()


@AT_BOTH.error(22, ends=True)
def what_is_under_way_is_ended_first_at_an_old_level(case: Case) -> None:
    producer = Producer(case, old=True).bring(ONGOING)
    for _ in range(2):
        case.compare(producer.init_request())
        see(case, producer)


@AT_BOTH.success(22, since=3, ends=True, each=STATES)
def a_producer_tells_its_id_and_epoch_at_an_old_level(case: Case, state: str) -> None:
    producer = Producer(case, old=True).bring(state)
    for _ in range(2):
        case.compare(producer.bump_request())
        if state == ONGOING:
            producer.settle()
    case.see(describe_request(producer.id), only=one_order)


@AT_BOTH.error(0, since=3)
def appends_to_what_was_added_at_an_old_level(case: Case) -> None:
    """In every version; only partitions that were added by a request are in the transaction."""
    producer = Producer(case, old=True).bring(ONGOING)
    case.compare(producer.produce_request(producer.batch(1)))
    if case.version < 12:
        case.compare(producer.produce_request(producer.batch(), 1))
    see(case, producer)
    producer.end()


@AT_BOTH.error(28)
def offsets_of_a_group_that_was_added_at_an_old_level(case: Case) -> None:
    case.coordinator()
    producer = Producer(case, old=True).bring(EMPTY)
    if case.version < 5:
        case.compare(producer.offsets_request(40))
    assert case.prepare(producer.add_offsets_request()).error_code == 0
    case.compare(producer.offsets_request(40))
    see_offsets(case)
    producer.end()
    see_offsets(case)


@AT_BOTH.success(24, ends=True)
def adds_and_verifies_at_an_old_level(case: Case) -> None:
    producer = Producer(case, old=True).bring(EMPTY)
    if case.version < 4:
        case.compare(producer.any_add_request(0), only=one_order)
    else:
        producer.add(0)
    if case.version >= 4:
        case.compare(producer.any_add_request(0, 1, verify_only=True), only=one_order)
    see(case, producer)


@AT_BOTH.error(27, ends=True)
def markers_at_an_old_level(case: Case) -> None:
    producer = Producer(case, old=True).bring(ONGOING)
    case.compare(producer.marker_request(producer_epoch=producer.epoch), only=one_order)
    case.compare(producer.marker_request(producer_epoch=producer.epoch - 1), only=one_order)
    case.compare(producer.marker_request(False, producer_epoch=producer.epoch + 1), only=one_order)


@AT_BOTH.error(26, until=OLD_END, each=tuple(state for state in STATES if state != ONGOING))
def ends_what_is_not_under_way_at_an_old_level(case: Case, state: str) -> None:
    producer = Producer(case, old=True).bring(state)
    for committed in (True, False):
        case.compare(producer.end_request(committed))
    case.see(describe_request(producer.id), only=one_order)


# --- By the new protocol all the same -------------------------------------------------------------------------------


@AT_1.success(26, since=5, each=("commit", "abort"))
def ends_a_transaction_of_the_new_protocol_at_level_1(case: Case, kind: str) -> None:
    producer = Producer(case).bring(ONGOING)
    producer.commit_offset(40)
    producer.given(case.compare(producer.end_request(kind == "commit")))
    see(case, producer)
    case.compare(producer.end_request(kind == "commit", producer_epoch=producer.epoch - 1))
    producer.write()
    see(case, producer)


@AT_1.success(22, ends=True, each=(ONGOING, *DONE))
def the_next_epoch_of_the_new_protocol_at_level_1(case: Case, state: str) -> None:
    producer = Producer(case).bring(state)
    for _ in range(2):
        case.compare(producer.init_request())
        see(case, producer)


@AT_1.success(0, since=12)
def appends_by_the_new_protocol_at_level_1(case: Case) -> None:
    producer = Producer(case).bring(EMPTY)
    case.compare(producer.produce_request(producer.batch()))
    see(case, producer)
    producer.end()


@AT_1.success(28, since=5)
def offsets_by_the_new_protocol_at_level_1(case: Case) -> None:
    case.coordinator()
    producer = Producer(case).bring(EMPTY)
    case.compare(producer.offsets_request(40))
    see(case, producer)
    producer.end()
    see_offsets(case)


@AT_0.error(26, since=5, each=STATES)
def ends_a_transaction_by_the_new_protocol_at_level_0(case: Case, state: str) -> None:
    producer = Producer(case, old=True).bring(state)
    case.compare(producer.end_request(committed=True))


@AT_0.error(0, since=12)
def appends_by_the_new_protocol_at_level_0(case: Case) -> None:
    producer = Producer(case, old=True).bring(EMPTY)
    case.compare(producer.produce_request(producer.batch()))


@AT_0.error(28, since=5)
def offsets_by_the_new_protocol_at_level_0(case: Case) -> None:
    case.coordinator()
    producer = Producer(case, old=True).bring(EMPTY)
    case.compare(producer.offsets_request(40))


@AT_BOTH.success(57, since=1)
def tries_levels_of_transactions(case: Case) -> None:
    for level, kind in ((2, 1), (1, 1), (0, SAFE_DOWNGRADE), (0, 3), (3, 1), (-1, 3)):
        update = update_features.FeatureUpdate(feature=FEATURE, max_version_level=level, upgrade_type=kind)
        case.compare(update_features.Request(timeout_ms=5_000, feature_updates=[update], validate_only=True))


SCENARIOS = [*AT_BOTH, *AT_1, *AT_0]


def lower(peer: Peer, level: int) -> None:
    """Finalize a level of transactions, and wait until the broker goes by it."""
    update = update_features.FeatureUpdate(feature=FEATURE, max_version_level=level, upgrade_type=SAFE_DOWNGRADE)
    answer = peer.ask(update_features.Request(timeout_ms=10_000, feature_updates=[update]))
    assert answer.error_code == 0, answer
    case = Case(peer, 0, "features")
    case.wait_until(lambda: level_of(peer) == level, f"{FEATURE} {level}")
    case.topic()  # made after that, and served: so is what came before


def level_of(peer: Peer) -> int:
    """As the broker tells; a feature at level 0 is not finalized."""
    answer = peer.ask(api_versions.Request(client_software_name="differential", client_software_version="1"))
    return next((each.max_version_level for each in answer.finalized_features if each.name == FEATURE), 0)


@contextmanager
def lowered(folder: Path, level: int) -> Iterator[Comparison]:
    with pair(folder, OPTIONS) as made:
        for peer in (made.ours, made.stock):
            lower(peer, level)
        yield made


@pytest.fixture(scope="module")
def levels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Comparison]]:
    with lowered(tmp_path_factory.mktemp("zero"), 0) as zero, lowered(tmp_path_factory.mktemp("one"), 1) as one:
        yield {0: zero, 1: one}


def cases() -> list[tuple[Scenario, int, int]]:
    """Scenarios with their versions and levels."""
    of = [(AT_BOTH, LEVELS), (AT_1, (1,)), (AT_0, (0,))]
    return [
        (scenario, version, level)
        for scenarios, at in of
        for scenario in scenarios
        for version in scenario.versions
        for level in at
    ]


def name(case: tuple[Scenario, int, int]) -> str:
    return f"{case[0].label}-v{case[1]}-level-{case[2]}"


@pytest.mark.parametrize("case", cases(), ids=name)
def test_answers_are_equal(case: tuple[Scenario, int, int], levels: dict[int, Comparison]) -> None:
    scenario, version, level = case
    assert levels[level].differences(scenario, version) == []


@pytest.mark.parametrize("level", LEVELS)
def test_the_tables_are_what_was_told(level: int, levels: dict[int, Comparison]) -> None:
    asked = [(scenario, version) for scenario, version, at in cases() if at == level]
    assert levels[level].wrong_in_tables(asked) == []
