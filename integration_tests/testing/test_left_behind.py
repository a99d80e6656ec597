"""Nothing outlives a test run: not one that ends well, is interrupted, is killed -9, or loses its keeper."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from .suites import SHOPS, Suite

STARTED_TIMEOUT_S = 60.0
WAITS = f"""
import os, pathlib, sys, time
import pytest

@pytest.mark.isthmus_topology({SHOPS!r})
def test_waits(isthmus_topology, isthmus_container):
    isthmus_topology.pause("south")
    MORE
    pathlib.Path("started").touch()
    while pathlib.Path("started").exists():
        time.sleep(0.05)
    isthmus_topology.unpause("south")
"""


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path / "suite", tmp_path / "temporary").write("pytest.ini", "[pytest]\n")


def started(suite: Suite, more: str = "") -> subprocess.Popen[str]:
    """A run in the middle of its test: three brokers, one of them paused, two mirrors, and a broker alone."""
    process = suite.write("test_x.py", WAITS.replace("MORE", more)).start()
    deadline = time.monotonic() + STARTED_TIMEOUT_S
    while not (suite.folder / "started").exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    commands = list(suite.processes().values())
    assert sum("isthmus.core_broker" in each for each in commands) == 4
    assert sum("isthmus.mirror" in each for each in commands) == 2
    assert len(list(suite.temporary.iterdir())) == 2
    return process


def end(process: subprocess.Popen[str], number: int) -> str:
    process.send_signal(number)
    return process.communicate(timeout=60)[0]


def keepers(suite: Suite) -> list[int]:
    return [pid for pid, command in suite.processes().items() if "isthmus.testing.keeper" in command]


def test_a_run_that_ends_leaves_nothing(suite: Suite) -> None:
    process = started(suite)
    (suite.folder / "started").unlink()
    said, _ = process.communicate(timeout=60)
    assert "1 passed" in said
    suite.await_nothing_left()


def test_ctrl_c_leaves_nothing(suite: Suite) -> None:
    assert "KeyboardInterrupt" in end(started(suite), signal.SIGINT)
    suite.await_nothing_left()


def test_a_run_that_is_killed_leaves_nothing_even_where_a_fork_of_it_lives_on(suite: Suite) -> None:
    """The fork has the other end of the keepers' stdin, too."""
    fork = "if not (pid := os.fork()): time.sleep(600)\n    pathlib.Path('fork').write_text(str(pid))"
    process = started(suite, fork)
    process.send_signal(signal.SIGKILL)
    process.wait()
    pid = int((suite.folder / "fork").read_text())
    try:
        deadline = time.monotonic() + 30
        while list(suite.processes()) != [pid]:
            assert time.monotonic() < deadline, suite.processes()
            time.sleep(0.05)
    finally:
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    suite.await_nothing_left()


def test_what_a_killed_keeper_left_on_disk_is_removed_by_the_next_run(suite: Suite) -> None:
    process = started(suite)
    killed = keepers(suite)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while set(suite.processes()) & set(killed) or len(suite.processes()) > 1:  # brokers and mirrors die with them
        assert time.monotonic() < deadline, suite.processes()
        time.sleep(0.05)
    (suite.folder / "started").unlink()
    said, _ = process.communicate(timeout=60)
    assert re.search(r"unpause: the keeper \(process \d+\) is gone, exit code -9, and all that it kept", said), said
    assert len(list(suite.temporary.iterdir())) == 2  # the control: it does stay

    _, said = suite.write("test_x.py", "def test_a(isthmus_container): pass\n").run()
    assert "1 passed" in said
    suite.await_nothing_left()


def test_what_does_not_start_leaves_nothing(suite: Suite) -> None:
    suite.write(
        "test_x.py",
        "import pytest\n"
        "@pytest.mark.isthmus_container(options={'no.such.option': 1})\n"
        "def test_a(isthmus_container): pass\n",
    )
    _, said = suite.run()
    assert "1 error" in said
    assert "no.such.option" in said
    suite.await_nothing_left()
