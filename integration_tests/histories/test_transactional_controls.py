"""The controls of transactional histories: stock Kafka keeps its promises, a coordinator with a bug is found out."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.histories.running import histories
from integration_tests.histories.test_histories import LONG_S, SHORT_S
from integration_tests.histories.test_transactional_histories import assert_exact

PAUSE = 2  # seeds that begin with this fault
PLANTED = {"markers-disagree": "torn", "old-epochs-may-commit": "zombie"}


@pytest.mark.parametrize(("plant", "kind"), PLANTED.items(), ids=list(PLANTED))
def test_a_coordinator_with_a_bug_is_found_out(plant: str, kind: str, tmp_path: Path) -> None:
    found = histories(tmp_path, plant, PAUSE, 3, SHORT_S, "transactions")
    assert any(each["anomalies"].get(kind) for each in found), found


@pytest.mark.soak
def test_stock_kafka_keeps_its_promises_for_long(tmp_path: Path) -> None:
    for found in histories(tmp_path, "kafka", 1000, 10, LONG_S, "transactions"):
        assert_exact(found)
