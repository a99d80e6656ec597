"""Control of the scenarios: a broker with one fault in it must turn one of them red. `make soak` runs all mutants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.brokers import BrokerProcess

from .comparing import Comparison
from .conftest import SETTINGS
from .mutants import MUTANTS, Mutant, source_of
from .peer import Peer, Scenario
from .scenarios import SCENARIOS

MUTATED = Path(__file__).with_name("mutated.py")
MUST_BE_SEEN = 18


class MutatedBroker(BrokerProcess):
    """A broker with one fault."""

    def __init__(self, folder: Path, mutant: str) -> None:
        super().__init__(folder, SETTINGS)
        self.mutant = mutant

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        return [python, str(MUTATED), self.mutant, *arguments]


@pytest.fixture(scope="module")
def seen() -> dict[str, list[str]]:
    """What the scenarios said of each mutant that ran."""
    return {}


def scenarios_of(mutant: Mutant) -> Iterator[tuple[Scenario, int]]:
    for scenario in SCENARIOS:
        if scenario.key in mutant.keys:
            yield scenario, scenario.versions[-1]
            if len(scenario.versions) > 1:
                yield scenario, scenario.versions[0]


def first_difference(mutant: Mutant, broker: BrokerProcess, stock: Peer, prefix: str) -> list[str]:
    """Of the first scenario that the two do not answer alike; none when all are equal."""
    ours = Peer("isthmus", broker.bootstrap)
    comparison = Comparison(ours, stock, prefix)
    try:
        for scenario, version in scenarios_of(mutant):
            try:
                found = comparison.differences(scenario, version)
            except AssertionError as error:  # what the scenario waits for never comes
                if stock.name in str(error):
                    raise
                found = [str(error)]
            if found:
                return [f"{scenario.label} in version {version}", *found]
        return []
    finally:
        comparison.close()
        ours.close()


def test_each_mutant_still_fits_the_product() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) == 20
    for mutant in MUTANTS:
        compile(source_of(mutant), mutant.module, "exec")


@pytest.mark.soak
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_scenarios_see_a_fault(mutant: Mutant, stock: Peer, tmp_path: Path, seen: dict[str, list[str]]) -> None:
    broker = MutatedBroker(tmp_path, mutant.name).start()
    try:
        seen[mutant.name] = first_difference(mutant, broker, stock, f"{mutant.name}-")
    finally:
        broker.kill()


@pytest.mark.soak
def test_eighteen_of_twenty_faults_are_seen(seen: dict[str, list[str]]) -> None:
    if len(seen) < len(MUTANTS):
        pytest.skip("only some of the mutants ran")
    unseen = [name for name, differences in seen.items() if not differences]
    print(f"{len(MUTANTS) - len(unseen)} of {len(MUTANTS)} faults are seen; not seen: {', '.join(unseen) or 'none'}")
    assert len(MUTANTS) - len(unseen) >= MUST_BE_SEEN, unseen


@pytest.mark.soak
def test_control_without_a_fault_all_is_equal(ours: Peer, stock: Peer) -> None:
    comparison = Comparison(ours, stock, "control-")
    try:
        for mutant in MUTANTS:
            for scenario, version in scenarios_of(mutant):
                if (scenario.label, version) not in comparison.done:
                    assert comparison.differences(scenario, version) == [], scenario.label
    finally:
        comparison.close()
