"""`isthmus demo` as a person runs it: exact through kills, red for each planted fault, gone at Ctrl-C."""

import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from integration_tests.console.commands import left_behind

ISTHMUS = [sys.executable, "-u", "-m", "isthmus.console.main", "demo"]
FLIGHTS = 30_000
FEW = 2_000
ROW = 1_234  # of the planted faults; it is a flight that departed
MORE = [pytest.param(fault, marks=pytest.mark.soak) for fault in ("withheld", "doubled")]  # `swapped` is both at once
START_S = 90
TIMEOUT_S = 900
GONE_S = 30


def demo(tmp_path: Path, *options: str) -> subprocess.CompletedProcess:
    command = [*ISTHMUS, "--report", str(tmp_path / "report"), "--data", str(tmp_path / "data"), *options]
    env = {**os.environ, "COLUMNS": "160"}
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=env)


VICTIMS = ["ewr-broker", "aggregate-broker", "jfk-aggregate-mirror", "delays-worker", "replay-lga", "spark"]


def run_with_kills(tmp_path: Path, victims: list[str], *options: str, count: str) -> None:
    """Each is killed -9 with 20 to 80 % of its hop's records through, or the demo fails by itself."""
    done = demo(tmp_path, *options, *(f"--kill={victim}" for victim in victims))
    assert done.returncode == 0, done.stdout + done.stderr
    for victim in victims:
        assert f"kill -9 {victim} " in done.stdout
    for place in ("aggregate", "stream table", "Delta table"):
        [line] = [line for line in done.stdout.splitlines() if line.startswith(f"{place} ") and " of " in line[-20:]]
        assert line.endswith(f"{count} of {count}"), line


@pytest.mark.soak
@pytest.mark.parametrize("time", range(3))
@pytest.mark.parametrize("victim", VICTIMS)
def test_all_flights_are_exact_through_each_kill(tmp_path, victim, time):
    run_with_kills(tmp_path, [victim], count="336,776")


def test_exact_though_everything_is_killed_once(tmp_path):
    run_with_kills(tmp_path, VICTIMS, "--flights", str(FLIGHTS), count=f"{FLIGHTS:,}")
    for name in ("hops.png", "delays.png", "spells.png", "report.html"):
        assert (tmp_path / "report" / name).stat().st_size > 5_000
    assert left_behind(tmp_path) == []


def run_chaos(tmp_path: Path, count: str, *options: str) -> None:
    done = demo(tmp_path, "--chaos", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("ewr", "jfk", "lga", "aggregate"):
        for what in ("leader", "controller"):
            assert re.search(rf"kill -9 {name}-broker-[123] \(pid \d+, the {what}\)", done.stdout), done.stdout
    for place in ("aggregate", "stream table"):
        assert re.search(rf"^{place} +{count} of {count}$", done.stdout, re.MULTILINE), done.stdout


def test_exact_though_each_datacenter_loses_a_leader_and_its_controller(tmp_path):
    run_chaos(tmp_path, "20,000", "--flights", "20000", "--no-spark")
    assert left_behind(tmp_path) == []


@pytest.mark.soak
@pytest.mark.parametrize("time", range(3))
def test_all_flights_are_exact_through_chaos(tmp_path, time):
    run_chaos(tmp_path, "336,776")


@pytest.mark.parametrize(
    "fault", ["swapped", "altered", *(pytest.param(each, marks=pytest.mark.soak) for each in MORE)]
)
def test_the_self_check_names_the_planted_fault(tmp_path, fault):
    done = demo(tmp_path, "--flights", str(FEW), "--no-spark", "--calm", "--fault", f"{fault}:{ROW}")
    assert done.returncode == 1, done.stdout + done.stderr
    said = {"withheld": "missing", "doubled": "doubled", "altered": "altered", "swapped": "missing"}[fault]
    [line] = [line for line in done.stdout.splitlines() if f"{said}: row {ROW} " in line]
    assert "1 " in line
    if fault == "swapped":
        assert "1 doubled: row " in done.stdout


def test_the_end_of_the_terminal_leaves_nothing(tmp_path):
    """A closed window, or an ssh that breaks: SIGHUP, and whatever is printed from then on is an error."""
    command = [*ISTHMUS, "--flights", str(FEW), "--calm", "--no-spark"]
    command += ["--data", str(tmp_path / "d"), "--report", str(tmp_path / "r")]
    terminal, its_end = pty.openpty()
    with subprocess.Popen(
        command, stdin=its_end, stdout=its_end, stderr=its_end, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:  # fmt: skip
        os.close(its_end)
        with open(terminal, "rb", buffering=0) as screen:
            shown = b""
            while b"replaying" not in shown:
                try:
                    shown += screen.read(4096)
                except OSError:  # nobody has the other end any more
                    pytest.fail(f"it ended by itself:\n{shown.decode()}")
            assert left_behind(tmp_path)
        assert process.wait(60) != 0
    await_nothing_left(tmp_path)


def await_nothing_left(folder: Path) -> None:
    """A broker that was told to stop takes its time."""
    deadline = time.monotonic() + GONE_S
    while left := left_behind(folder):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_a_demo_that_is_killed_takes_its_topology_with_it_and_the_next_one_its_folder(tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [*ISTHMUS, "--report", str(tmp_path / "r"), "--no-spark"]
    env = {**os.environ, "TMPDIR": str(temporary)}

    def next_one():  # which ends at once
        done = subprocess.run([*command, "--kill", "nobody"], capture_output=True, text=True, env=env)
        assert "--kill nobody: there are ewr-broker, " in done.stderr

    more = ["--flights", str(FEW), "--calm"]
    with subprocess.Popen([*command, *more], stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout
        while "replaying" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGSTOP)  # or it may be through, and tidy up, before the next one has started
        assert left_behind(tmp_path)
        [folder] = temporary.glob("isthmus-demo-*")
        next_one()
        assert (folder / "data").exists()  # it is at work
        process.kill()
    await_nothing_left(tmp_path)
    assert folder.exists()  # the control: nobody but the next one removes it
    next_one()
    assert list(temporary.glob("isthmus-demo-*")) == []


def test_few_flights_and_unknown_faults_are_named_at_once(tmp_path):
    """The first flight of the year leaves Newark: nothing goes through the mirror of Kennedy."""
    done = demo(tmp_path, "--flights", "1", "--no-spark")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert done.stderr.startswith("error: jfk-aggregate-mirror was to be killed in mid-run, but all was over before")
    for wrong in ("lost:3", "withheld", "withheld:x"):
        done = demo(tmp_path, "--fault", wrong)
        assert done.returncode == 2
        assert f"'{wrong}' is none: write withheld, doubled, altered, swapped, a colon and a row" in done.stderr


@pytest.mark.parametrize("moment", ["up: ewr", pytest.param("replaying", marks=pytest.mark.soak), "every hop"])
def test_ctrl_c_leaves_nothing(tmp_path, moment):
    """SIGINT while it starts, right after it is up, and while Spark works."""
    command = [*ISTHMUS, "--flights", str(FEW), "--calm"]
    command += ["--data", str(tmp_path / "d"), "--report", str(tmp_path / "r")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + START_S
        assert process.stdout
        for line in process.stdout:
            if moment in line:
                break
            assert time.monotonic() < deadline
        assert left_behind(tmp_path)  # the control: there is something to stop
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
    assert left_behind(tmp_path) == []
