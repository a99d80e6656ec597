"""The broker that only stores: it keeps all that producers send, and does without the one behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cases import librdkafka
from benchmarks.ceiling import NAMES, storing
from benchmarks.table import CASES

PARTITIONS = 3
VALUE_BYTES = 1000


@pytest.mark.parametrize("clients", [1, 2])
def test_what_is_produced_is_stored_and_goes_with_its_topic(tmp_path: Path, clients: int) -> None:
    topic = "bench-1"
    with storing(tmp_path) as side:
        side.create_topic(topic, PARTITIONS)
        got, cpu_s = librdkafka("produce", side, topic, 0.5, PARTITIONS, VALUE_BYTES, clients=clients)
        stored = b"".join(path.read_bytes() for path in side.log_files(topic))
        assert len(side.log_files(topic)) == PARTITIONS
        assert got["records"] * VALUE_BYTES < len(stored) < got["records"] * VALUE_BYTES * 1.1
        behind = sum(path.stat().st_size for path in (tmp_path / "data").glob(f"{topic}-*/*.log"))
        assert 0 < behind < len(stored) / 2  # the first batches alone
        assert cpu_s > 0
        side.delete_topic(topic)
        assert not side.log_files(topic)


def test_the_cases_are_those_of_the_table() -> None:
    assert set(NAMES) <= {case.name for case in CASES}
