"""Nothing acknowledged is lost, doubled or reordered while nodes are killed, paused, cut off and filled up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from integration_tests.histories.nemesis import FAULTS
from integration_tests.histories.running import histories

SHORT_S, LONG_S = 9.0, 60.0
AT_ONCE, SOAKED = 10, 100  # long histories on one start of a cluster, and in all


def assert_exact(found: dict[str, Any]) -> None:
    assert found["anomalies"] == {}, found
    # The controls: records were sent, read and committed all the time.
    assert found["acknowledged"] > 20 * found["seconds"], found
    assert found["read"] > 3 * found["acknowledged"], found
    assert found["final"] >= found["acknowledged"], found
    assert found["commits"] > 0 and found["committed offsets asked"] > 0, found


def test_short_histories(tmp_path: Path) -> None:
    told = histories(tmp_path, "ours", seed=0, count=5, seconds=SHORT_S)
    for found in told:
        assert_exact(found)
    assert [list(found["faults"]) for found in told] == [[kind] for kind in list(FAULTS)[:5]]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1000 + SOAKED, AT_ONCE))
def test_long_histories(seed: int, tmp_path: Path) -> None:
    for found in histories(tmp_path, "ours", seed, AT_ONCE, LONG_S):
        assert_exact(found)
        assert found["faults"], found
