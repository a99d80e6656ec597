"""The planted bugs still fit the product. `python -m tests.mutants` plants them; `make soak` does so, too."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mutants.__main__ import ROOT, kinds, problems

LEAST = 5  # of a kind


def test_every_mutant_fits_the_product() -> None:
    for kind, mutants in kinds().items():
        assert len({mutant.name for mutant in mutants}) == len(mutants) >= LEAST, kind
        assert not list(problems(mutants)), kind


@pytest.mark.soak
def test_every_mutant_is_caught() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.mutants"], cwd=ROOT, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
