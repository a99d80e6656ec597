"""Control of the scenarios of groups and of transactions: each fault turns one of them red. By `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from .group_mutants import GROUP_MUTANTS
from .mutants import Mutant, source_of
from .peer import Peer
from .test_mutants import MutatedBroker, first_difference
from .transaction_mutants import TRANSACTION_MUTANTS

LEAST = 20  # mutants of transactions


@pytest.mark.parametrize("mutants", [GROUP_MUTANTS, TRANSACTION_MUTANTS], ids=["groups", "transactions"])
def test_each_mutant_still_fits_the_product(mutants: tuple[Mutant, ...]) -> None:
    assert len({mutant.name for mutant in mutants}) == len(mutants)
    for mutant in mutants:
        compile(source_of(mutant), mutant.module, "exec")


def test_control_there_are_enough() -> None:
    assert len(TRANSACTION_MUTANTS) >= LEAST


@pytest.mark.soak
@pytest.mark.parametrize("mutant", (*GROUP_MUTANTS, *TRANSACTION_MUTANTS), ids=lambda mutant: mutant.name)
def test_the_scenarios_see_a_fault(mutant: Mutant, stock: Peer, tmp_path: Path) -> None:
    broker = MutatedBroker(tmp_path, mutant.name).start()
    try:
        assert first_difference(mutant, broker, stock, f"{mutant.name}-"), "nothing differs"
    finally:
        broker.kill()
