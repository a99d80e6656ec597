"""Control of the scenarios of transactions and consumer groups: each fault turns one of them red. By `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from .mutants import Mutant, source_of
from .peer import Peer
from .test_mutants import MutatedBroker, first_difference
from .transaction_mutants import TRANSACTION_MUTANTS

LEAST = 20  # mutants


def test_each_mutant_still_fits_the_product() -> None:
    assert len({mutant.name for mutant in TRANSACTION_MUTANTS}) == len(TRANSACTION_MUTANTS) >= LEAST
    for mutant in TRANSACTION_MUTANTS:
        compile(source_of(mutant), mutant.module, "exec")


@pytest.mark.soak
@pytest.mark.parametrize("mutant", TRANSACTION_MUTANTS, ids=lambda mutant: mutant.name)
def test_the_scenarios_see_a_fault(mutant: Mutant, stock: Peer, tmp_path: Path) -> None:
    broker = MutatedBroker(tmp_path, mutant.name).start()
    try:
        assert first_difference(mutant, broker, stock, f"{mutant.name}-"), "nothing differs"
    finally:
        broker.kill()
