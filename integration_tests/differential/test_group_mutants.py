"""Control of the scenarios of groups: each fault in a broker's groups turns one of them red. By `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from .group_mutants import GROUP_MUTANTS
from .mutants import Mutant, source_of
from .peer import Peer
from .test_mutants import MutatedBroker, first_difference


def test_each_mutant_still_fits_the_product() -> None:
    assert len({mutant.name for mutant in GROUP_MUTANTS}) == len(GROUP_MUTANTS)
    for mutant in GROUP_MUTANTS:
        compile(source_of(mutant), mutant.module, "exec")


@pytest.mark.soak
@pytest.mark.parametrize("mutant", GROUP_MUTANTS, ids=lambda mutant: mutant.name)
def test_the_scenarios_see_a_fault(mutant: Mutant, stock: Peer, tmp_path: Path) -> None:
    broker = MutatedBroker(tmp_path, mutant.name).start()
    try:
        assert first_difference(mutant, broker, stock, f"{mutant.name}-"), "nothing differs"
    finally:
        broker.kill()
