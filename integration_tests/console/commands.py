"""Runs `isthmus` as a person does, and looks for what it left behind.

A command that is run to its end is a fork of a process that has imported it, in which only the interpreter's start and
those imports are saved: most of what a short command costs. `begun` starts the interpreter, too.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ISTHMUS = [sys.executable, "-m", "isthmus.console.main"]
ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["isthmus.console.main", "isthmus.deploy.topology"])


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("ISTHMUS_DEBUG", "ISTHMUS_BOOTSTRAP")}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "160", **(more or {})}


def isthmus(
    *arguments: str, folder: Path, stdin: str | bytes = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run to the end; there is never a traceback."""
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(tempfile.NamedTemporaryFile()) for _ in range(3)]
        files[0].write(stdin if isinstance(stdin, bytes) else stdin.encode())
        files[0].flush()
        process = FORKS.Process(
            target=_command, args=(arguments, str(folder), environment(env), [file.name for file in files])
        )
        process.start()
        process.join(TIMEOUT_S)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(["isthmus", *arguments], TIMEOUT_S)
        stdout, stderr = (Path(file.name).read_text() for file in files[1:])
    assert "Traceback" not in stderr + stdout, stderr
    return subprocess.CompletedProcess(["isthmus", *arguments], process.exitcode, stdout, stderr)


def _command(arguments: tuple[str, ...], folder: str, env: dict[str, str], files: list[str]) -> None:
    """In the fork: what a shell does before it runs a command, and the command."""
    for number, (name, flags) in enumerate(zip(files, (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)):
        descriptor = os.open(name, flags)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = os.fdopen(0)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    sys.argv = ["isthmus", *arguments]
    from isthmus.console.main import main

    sys.exit(main())


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
