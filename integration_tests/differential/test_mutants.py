"""Control of the scenarios: a broker with one fault in it must turn one of them red. `make soak` runs all mutants."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.brokers import BrokerProcess

from .comparing import Comparison
from .conftest import SETTINGS
from .group_mutants import GROUP_MUTANTS
from .mutants import MUTANTS, Mutant, source_of
from .peer import Peer, Scenario
from .scenarios import SCENARIOS
from .transaction_mutants import TRANSACTION_MUTANTS

MUTATED = Path(__file__).with_name("mutated.py")
LEAST = 20  # mutants
MAY_BE_UNSEEN = 2


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


def scenario_of(mutant: Mutant) -> Scenario:
    [found] = [scenario for scenario in SCENARIOS if scenario.label == mutant.scenario]
    return found


def first_difference(mutant: Mutant, broker: BrokerProcess, stock: Peer, prefix: str) -> list[str]:
    """What the mutant's scenario sees in its newest version or its oldest; nothing when all is equal."""
    ours = Peer("isthmus", broker.bootstrap)
    comparison = Comparison(ours, stock, prefix)
    scenario = scenario_of(mutant)
    try:
        for version in (scenario.versions[-1], scenario.versions[0]):
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
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= LEAST
    for mutant in MUTANTS:
        compile(source_of(mutant), mutant.module, "exec")


@pytest.mark.soak
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_scenarios_see_a_fault(mutant: Mutant, stock: Peer, tmp_path: Path, seen: dict[str, list[str]]) -> None:
    broker = MutatedBroker(tmp_path, mutant.name).start()
    try:
        seen[mutant.name] = first_difference(mutant, broker, stock, f"{mutant.name}-")
        print(f"{mutant.name}: {seen[mutant.name][:2] or 'not seen'}")
    finally:
        broker.kill()


@pytest.mark.soak
def test_all_faults_but_two_at_the_most_are_seen(seen: dict[str, list[str]]) -> None:
    if len(seen) < len(MUTANTS):
        pytest.skip("only some of the mutants ran")
    unseen = [name for name, differences in seen.items() if not differences]
    print(f"{len(MUTANTS) - len(unseen)} of {len(MUTANTS)} faults are seen; not seen: {', '.join(unseen) or 'none'}")
    assert len(unseen) <= MAY_BE_UNSEEN, unseen


@pytest.mark.soak
def test_control_without_a_fault_all_is_equal(ours: Peer, stock: Peer) -> None:
    comparison = Comparison(ours, stock, "control-")
    try:
        for mutant in (*MUTANTS, *GROUP_MUTANTS, *TRANSACTION_MUTANTS):
            scenario = scenario_of(mutant)
            for version in {scenario.versions[-1], scenario.versions[0]}:
                assert comparison.differences(scenario, version) == [], scenario.label
    finally:
        comparison.close()
