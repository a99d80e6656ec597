"""The controls of the histories: stock Kafka keeps all it acknowledged, and a broker that acknowledges before
replication is found out."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.histories.running import histories
from integration_tests.histories.test_histories import LONG_S, SHORT_S, assert_exact

CUT_FROM_BROKERS = 1  # seeds that begin with this fault, which lets an old leader acknowledge to its clients
PLANT = "committed-without-followers"


def test_stock_kafka_keeps_all(tmp_path: Path) -> None:
    [found] = histories(tmp_path, "kafka", CUT_FROM_BROKERS, 1, SHORT_S)
    assert_exact(found)


def test_what_was_acknowledged_before_replication_is_missed(tmp_path: Path) -> None:
    [found] = histories(tmp_path, PLANT, CUT_FROM_BROKERS, 1, SHORT_S)
    assert found["anomalies"].get("lost write", 0) > 0, found
    assert found["anomalies"].get("inconsistent offset", 0) > 0, found


@pytest.mark.soak
def test_stock_kafka_keeps_all_for_long(tmp_path: Path) -> None:
    for found in histories(tmp_path, "kafka", 1000, 10, LONG_S):
        assert_exact(found)


@pytest.mark.soak
def test_it_is_missed_in_most_long_histories(tmp_path: Path) -> None:
    told = histories(tmp_path, PLANT, 1000, 10, LONG_S)
    assert sum("lost write" in found["anomalies"] for found in told) >= 8, told
