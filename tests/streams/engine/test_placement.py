"""Which task a row is of, when there are other tasks."""

from __future__ import annotations

import ast
from pathlib import Path

from isthmus.streams.engine import operators


def test_each_table_of_a_step_says_where_its_rows_belong() -> None:
    """A table of one partition gives no sign that its rows are placed wrongly: it is said, and not left to a default.
    `engine/placement.py` has the kinds; `tests/streams/savepoints/test_rescaling.py` has steps that go on."""
    silent = []
    for path in sorted(Path(operators.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "TableSpec":
                if not any(each.arg == "placement" for each in node.keywords):
                    silent.append(f"{path.name}:{node.lineno}")
    assert not silent
