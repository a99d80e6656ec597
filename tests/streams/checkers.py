"""What type checkers say of a program of a user's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from mypy import api

ROOT = Path(__file__).resolve().parents[2]
Problems = list[tuple[int, str]]  # line, from 1 on, and message


def by_mypy(program: Path) -> Problems:
    said, errors, _ = api.run([
        "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache"), "--no-error-summary",
        str(program),
    ])  # fmt: skip
    assert not errors
    found = [line.split(":", 2)[1:] for line in said.splitlines() if ": error:" in line]
    return [(int(line), text) for line, text in found]


def by_pyright(program: Path) -> Problems:
    (program.parent / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard", "pythonVersion": "3.11"}')
    command = ["-m", "basedpyright", "--project", str(program.parent), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [(each["range"]["start"]["line"] + 1, each["message"]) for each in found if each["severity"] == "error"]


CHECKERS = [by_mypy, by_pyright]


def check(by: Callable[[Path], Problems], folder: Path, right: str, wrong: Mapping[str, tuple[str, str]]) -> None:
    """wrong: lines that a checker must not take, each with what mypy and pyright say of it."""
    program = folder / "program.py"
    program.write_text(right + "\n".join(wrong))
    first = len(right.splitlines()) + 1
    problems = by(program)
    assert [line for line, _ in problems] == list(range(first, first + len(wrong))), problems
    words = [each[CHECKERS.index(by)] for each in wrong.values()]
    assert all(what in text for what, (_, text) in zip(words, problems, strict=True)), problems
