"""Runs `isthmus` as a person does, and looks for what it left behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ISTHMUS = [sys.executable, "-m", "isthmus.console.main"]
ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("ISTHMUS_DEBUG", "ISTHMUS_BOOTSTRAP")}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "160", **(more or {})}


def isthmus(
    *arguments: str, folder: Path, stdin: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run to the end; there is never a traceback."""
    done = subprocess.run(
        [*ISTHMUS, *arguments], cwd=folder, input=stdin, env=environment(env),
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    return done


def said(done: subprocess.CompletedProcess[str]) -> str:
    """What a command that must succeed printed."""
    assert done.returncode == 0, done.stderr
    return done.stdout


def error(done: subprocess.CompletedProcess[str], code: int = 1) -> str:
    """The error of a command that must fail, without its label."""
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr.startswith("error: "), done.stderr
    return done.stderr.removeprefix("error: ").rstrip("\n")


def left_behind(folder: Path) -> list[str]:
    """Command lines of processes that mention the folder."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit() and int(each.name) != os.getpid():
            try:
                command = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(folder) in command:
                found.append(command)
    return found


@contextlib.contextmanager
def begun(*arguments: str, **popen: Any) -> Iterator[subprocess.Popen[Any]]:
    """A command that is gone at the end, whatever happens."""
    command = [*ISTHMUS, *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), **popen
    ) as process:
        try:
            yield process
        finally:
            process.kill()
