"""What holds descriptors and refers to itself (logs, loops) lets go of them when it is collected, at any later time."""

from __future__ import annotations

import gc

import pytest

COUNTING = ("test_sending",)  # modules whose tests count descriptors


@pytest.fixture(autouse=True)
def nothing_open_of_other_tests(request: pytest.FixtureRequest) -> None:
    if request.module.__name__.rpartition(".")[2] in COUNTING:
        gc.collect()
