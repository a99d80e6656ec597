"""Stores on disk whose process is killed, or whose disk is full: rows and offset never part, and nothing is lost."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from integration_tests.brokers import ROOT
from integration_tests.streams.dying_store import SPEC, confirm, opened, restore, rows_at
from isthmus.streams.engine.stores.layout import read_summary
from isthmus.streams.errors import StoreError

KILLS = 12
FILE_BYTES = 40_000  # the largest file of a disk that is full: less than the rows, so that it is soon reached


def started(how: str, directory: Path, before: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "integration_tests.streams.dying_store", how, str(directory)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=before,
    )  # fmt: skip


def test_control_the_model_gains_rows_loses_some_and_overwrites_others() -> None:
    before, after = rows_at(5), rows_at(10)
    assert after.keys() - before.keys() and before.keys() - after.keys()
    assert any(before[key] != after[key] for key in before.keys() & after.keys())


@pytest.mark.parametrize("how", ["confirm", "restore"])
def test_after_kill_9_the_rows_are_those_of_the_last_checkpoint(tmp_path: Path, how: str) -> None:
    chance = random.Random(how)
    reached = 0
    for _ in range(KILLS):
        process = started(how, tmp_path)
        assert process.stdout and process.stderr
        assert int(process.stdout.readline()) == reached
        for _ in range(chance.randrange(1, 60)):
            reached = int(process.stdout.readline())
        process.kill()
        reached = max([reached, *map(int, process.stdout.read().split())])
        process.communicate()
        if (summary := read_summary(tmp_path)) is not None:
            assert summary.changelog_offset <= reached
        store = opened(tmp_path)
        assert reached <= store.changelog_offset <= reached + 1  # it may die before it says so
        reached = store.changelog_offset
        assert int(store.marker or b"0") == reached
        assert dict(store.rows) == rows_at(reached) and len(store.rows) == len(rows_at(reached))
        store.close()


@pytest.mark.parametrize("how", ["confirm", "restore"])
def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path, how: str) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))

    said, errors = started(how, tmp_path, limit).communicate(timeout=120)
    *offsets, last = said.splitlines()
    assert last.startswith("refused: ") and "make room and start the worker again" in last, errors
    store = opened(tmp_path)
    reached = store.changelog_offset
    assert int(offsets[-1]) <= reached <= int(offsets[-1]) + 1
    assert dict(store.rows) == rows_at(reached)
    step = {"restore": restore, "confirm": confirm}[how]
    for _ in range(3):
        step(store, store.changelog_offset + 1)
    assert dict(store.rows) == rows_at(reached + 3)
    store.close()


def test_what_failed_to_be_written_is_still_under_way(tmp_path: Path) -> None:
    """Rows that the changelog has and the disk does not are seen until the worker ends."""
    store = opened(tmp_path)
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        store.set("k", "v" * 4096)
        changes = store.take_changes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        try:
            with pytest.raises(StoreError, match="make room"):
                store.confirm(1, b"1")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert store.get("k") == "v" * 4096 and store.changelog_offset == 0 and len(store.rows) == 1
    finally:
        store.close()
    store = opened(tmp_path)
    assert store.changelog_offset == 0 and not store.rows
    store.restore(changes, 1)
    assert store.get("k") == SPEC.decode_value(changes[0][1] or b"")
    store.close()
