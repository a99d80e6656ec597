"""Runs of pytest on small suites, in processes of their own, all of whose descendants can be found."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

from integration_tests.brokers import ROOT

SHOPS = """\
name: shops
datacenters: {north: {}, south: {}, office: {}}
mirrors:
  - {name: north-office, source: north, target: office, topics: ["orders.*"]}
  - {name: south-office, source: south, target: office, topics: ["orders.*"]}
"""
MARK = "ISTHMUS_TESTS_MARK"
RUN_TIMEOUT_S = 240.0
GONE_TIMEOUT_S = 30.0


class Suite:
    """A folder of tests. temporary: where its runs put their temporary files, and nothing else does."""

    def __init__(self, folder: Path, temporary: Path, backend: str = "local") -> None:
        self.folder = folder
        self.temporary = temporary
        self.mark = uuid.uuid4().hex
        temporary.mkdir(parents=True, exist_ok=True)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "ISTHMUS"))}
        own = {MARK: self.mark, "TMPDIR": str(temporary), "ISTHMUS_TESTING": backend, "PYTHONUNBUFFERED": "1"}
        self.environment = {**clean, **own, "PYTHONPATH": str(ROOT / "src")}

    def write(self, name: str, text: str) -> Suite:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)
        return self

    def run(self, *arguments: str) -> tuple[int, str]:
        """Exit code, and what pytest said."""
        with self.start(*arguments) as process:
            said, _ = process.communicate(timeout=RUN_TIMEOUT_S)
        return process.returncode, said

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(self.folder)]
        return subprocess.Popen(
            [*command, *arguments, str(self.folder)], cwd=self.folder, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def processes(self) -> dict[int, str]:
        """Every process that any run of this suite has started: pid to command line."""
        found = {}
        mark = f"{MARK}={self.mark}".encode()
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:  # gone meanwhile, or another user's
                continue
        return found

    def await_nothing_left(self) -> None:
        """No process, and no file in its folder for temporary files but pytest's own."""
        deadline = time.monotonic() + GONE_TIMEOUT_S
        while left := [
            *self.processes().items(),
            *(path for path in self.temporary.iterdir() if "pytest" not in path.name),
        ]:
            assert time.monotonic() < deadline, f"left behind: {left}"
            time.sleep(0.05)


def children(pid: int) -> dict[int, str]:
    """The processes that one has started: pid to command line."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found[child] = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found
