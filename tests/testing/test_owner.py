"""Owners: what a name says, and who is known to be gone."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from isthmus.testing import owner
from isthmus.testing.owner import Owner, left_folders, make_folder, remove_left_folders


def test_a_name_is_read_back_wherever_it_stands() -> None:
    me = Owner.this_process()
    assert me.pid == os.getpid()
    assert Owner.parse(f"isthmus-testing-{me}-x1y2") == me
    assert Owner.parse("isthmus-testing-something") is None


def test_who_runs_is_not_gone_and_who_ended_is() -> None:
    me = Owner.this_process()
    assert not me.gone
    assert replace(me, start=me.start + 1).gone  # another process that has the pid now
    code = "from isthmus.testing.owner import Owner; print(Owner.this_process())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    other = Owner.parse(said)
    assert other
    assert other.machine == me.machine
    assert other.gone


def test_of_another_machine_or_an_earlier_boot_nothing_is_known() -> None:
    assert not replace(Owner.this_process(), machine="0" * 12, start=1).gone


def test_folders_of_who_is_gone_are_removed_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner.tempfile, "tempdir", str(tmp_path))
    mine = make_folder()
    gone = tmp_path / mine.name.replace(f"-{os.getpid()}-", "-4194999-")  # beyond any pid that there can be
    gone.mkdir()
    (gone / "data").write_text("x")
    foreign = tmp_path / f"isthmus-testing-{'0' * 12}-1-1-abc"
    foreign.mkdir()
    assert left_folders() == [gone]
    others = make_folder("isthmus-demo-")
    left, spared = (tmp_path / f"{gone.name.replace('-testing-', '-demo-')}{n}" for n in range(2))
    left.mkdir()
    spared.mkdir()
    remove_left_folders("isthmus-demo-", spare=lambda folder: folder == spared)
    assert sorted(tmp_path.iterdir()) == sorted([mine, gone, foreign, others, spared])
    remove_left_folders()
    assert sorted(tmp_path.iterdir()) == sorted([mine, foreign, others, spared])
