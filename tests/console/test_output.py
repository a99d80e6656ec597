"""Tables for people and JSON for programs; and that the command itself starts fast."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

from isthmus.client import TopicPartition
from isthmus.console import output
from isthmus.console.connect import resolve
from isthmus.console.records import positions
from isthmus.console.starts import Start
from isthmus.deploy.errors import DeployError

ROWS = [{"name": "a", "count": 1, "reason": ""}, {"name": "b", "count": 22, "reason": ""}]
COLUMNS = ("name", ("count", "how many"), "reason")


def test_a_table_leaves_out_an_empty_reason(capsys):
    output.show(ROWS, COLUMNS, False, "none")
    assert capsys.readouterr().out.splitlines() == ["name  how many", "a            1", "b           22"]


def test_a_row_is_one_line_where_there_is_no_terminal(capsys):
    output.show([{**ROWS[0], "reason": "long " * 100}], COLUMNS, False, "none")
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_terminal_folds_long_texts_only(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(output, "out", Console(file=screen, force_terminal=True, width=60, soft_wrap=True))
    output.show([{**ROWS[0], "name": "n" * 30, "reason": "long " * 10}], COLUMNS, False, "none")
    shown = screen.getvalue().splitlines()
    assert len(shown) > 3
    assert "n" * 30 in shown[1]


def test_json_has_all_of_a_row_and_empty_is_said_in_words(capsys):
    output.show(ROWS, ("name",), True, "none")
    assert json.loads(capsys.readouterr().out) == ROWS
    output.show([], ("name",), True, "none")
    assert json.loads(capsys.readouterr().out) == []
    output.show([], ("name",), False, "none")
    assert capsys.readouterr().out == "none\n"


def test_a_start_offset_holds_for_each_partition_up_to_its_end():
    short, long = TopicPartition("t", 0), TopicPartition("t", 1)
    ends = {short: 3, long: 9}
    assert positions(ends, Start(offset=5), {short: 5, long: 5}) == {short: 3, long: 5}
    assert positions(ends, Start(end="latest"), ends) == {short: None, long: None}
    assert positions(ends, Start(time_ms=5), {short: 1, long: 2}) == {short: 1, long: 2}
    with pytest.raises(DeployError, match="t-1 ends at offset 9"):
        positions(ends, Start(offset=10), {short: 10, long: 10})


def test_a_datacenter_is_known_by_what_was_started_here(tmp_path):
    (tmp_path / "flights").mkdir()
    (tmp_path / "flights/addresses.json").write_text('{"ewr": "127.0.0.1:1"}')
    assert resolve("ewr", tmp_path) == "127.0.0.1:1"
    assert resolve("host:2", tmp_path) == "host:2"
    with pytest.raises(DeployError, match="datacenters known here: ewr"):
        resolve("jfk", tmp_path)
    with pytest.raises(DeployError, match=r"nothing was started from .*; names are known where `isthmus up`"):
        resolve("jfk", tmp_path / "flights")


def test_the_command_loads_nothing_heavy_before_it_knows_what_to_do():
    heavy = ("pydantic", "pyspark", "pyarrow", "pandas", "matplotlib", "jinja2", "isthmus.core_broker")
    program = f"import sys, isthmus.console.main; print([each for each in {heavy!r} if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
