"""Transactions count as a whole or not at all while nodes are killed, paused, cut off and filled up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from integration_tests.histories.running import histories
from integration_tests.histories.test_histories import LONG_S, SHORT_S
from integration_tests.histories.transactional import NAMES

AT_ONCE, SOAKED = 10, 50  # long histories on one start of a cluster, and in all


def assert_exact(found: dict[str, Any]) -> None:
    assert found["anomalies"] == {}, found
    # The controls: each library committed, some transactions did not, and consumers read what was committed.
    told = found["transactions"]
    assert set(told["committed by library"]) == set(NAMES), found
    assert told["not committed"] > 0 and told["copies committed"] > 0, found
    assert found["read"] > found["acknowledged"] > found["seconds"], found
    assert found["committed offsets asked"] > 0, found


def test_short_histories(tmp_path: Path) -> None:
    for found in histories(tmp_path, "ours", seed=0, count=3, seconds=SHORT_S, workload="transactions"):
        assert_exact(found)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1000 + SOAKED, AT_ONCE))
def test_long_histories(seed: int, tmp_path: Path) -> None:
    for found in histories(tmp_path, "ours", seed, AT_ONCE, LONG_S, "transactions"):
        assert_exact(found)
        assert found["faults"] and found["transactions"]["fenced"], found
