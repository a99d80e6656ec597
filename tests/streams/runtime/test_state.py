"""Where a worker has its tables."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.runtime import system
from isthmus.streams.engine.tables import DISK, TableSpec
from isthmus.streams.runtime.state import CLEANUP_DELAY_MS, State, partition_for_ever


def test_rows_of_a_topic_that_was_made_anew_are_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spec = TableSpec("t", store=DISK)
    aside = tmp_path / "one" / "app" / "t" / "0.aside"
    for number in range(3):

        def topic_id(topic: str, partition: int, number: int = number) -> str:
            return f"id{number}-{partition}"

        state = State("app", tmp_path, "one", [spec], system(), topic_id)
        store = state.open(spec, "app-t-changelog", 0)
        assert store.changelog_offset == 0
        assert aside.exists() == (number > 0)
        store.restore([(b'"k"', b"1")], 7 + number, b"marker")
        store.close()
        store = state.open(spec, "app-t-changelog", 0)
        assert store.changelog_offset == 7 + number
        store.close()
        state.close()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "0 has the rows of another changelog: id1-0, and the table's is id2-0. So the rows" in said[1]
    assert f"what was here is in {aside}" in said[1]


def test_a_partition_of_a_topic_that_was_made_anew_has_another_name() -> None:
    def named(topic_id: bytes | None, partition: int = 0) -> str:
        client: Any = SimpleNamespace(topic_id=lambda topic: topic_id)
        return partition_for_ever(client, "app-t-changelog", partition)

    assert len({named(b"\1" * 16), named(b"\2" * 16), named(b"\2" * 16, 1)}) == 3
    assert named(None) == "app-t-changelog-0", "of a cluster without ids"


def test_rows_on_disk_that_nobody_followed_for_long_are_read_anew(tmp_path: Path) -> None:
    """The changelog may have lost the tombstones that they have missed."""
    spec, now_ms = TableSpec("t", store=DISK), 10 * CLEANUP_DELAY_MS
    for away_ms, offset in ((0, 0), (CLEANUP_DELAY_MS - 1_000, 7), (CLEANUP_DELAY_MS + 1_000, 0)):
        now_ms += away_ms
        runtime: Any = SimpleNamespace(wall_ms=lambda now_ms=now_ms: now_ms)
        state = State("app", tmp_path, "one", [spec], runtime, "{}-{}".format)
        store = state.open(spec, "app-t-changelog", 0)
        assert store.changelog_offset == offset
        store.restore([(b'"k"', b"1")], 7, b"marker")
        store.close()
        state.close()
