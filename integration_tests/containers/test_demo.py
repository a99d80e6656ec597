"""`isthmus demo --compose` as a person runs it: exact though containers are killed, and nothing is left of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from integration_tests.console.commands import environment, isthmus, said
from isthmus.deploy.project import ComposeProject

PORT_BASE = 19_592
LEFT = ComposeProject(Path("/"), f"isthmus-demo-{PORT_BASE}").left
FLIGHTS = 20_000
ISTHMUS = [sys.executable, "-u", "-m", "isthmus.console.main"]
DEMO = ["demo", "--compose", "--no-spark", "--port-base", str(PORT_BASE)]
TIMEOUT_S = 400.0
TAKES_DOWN = f"project isthmus-demo-{PORT_BASE} is of a demo that was killed"


def demo(folder: Path, *options: str, **env: str) -> str:
    """What it printed; it succeeded."""
    done = subprocess.run(
        [*ISTHMUS, *DEMO, *options], cwd=folder, env=environment(env), capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def demo_at(moment: str, folder: Path, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A demo that has come so far, so that there is something to end, and what it printed."""
    command = [*ISTHMUS, *DEMO, "--flights", "2000", "--calm"]
    with subprocess.Popen(
        command, cwd=folder, env=environment(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        printed = ""
        for line in process.stdout:
            printed += line
            if moment in line:
                break
        else:
            raise AssertionError(f"it ended without '{moment}': {process.stderr and process.stderr.read()}")
        if moment == "brings up":
            while not LEFT():
                assert process.poll() is None
        assert LEFT()  # the control: there is something to end
        yield process, printed


def test_exact_though_containers_are_killed_and_kept_for_who_wants_to_look(isthmus_image: str, tmp_path: Path) -> None:
    """The demo itself fails when a container it killed was not restarted, or was killed before or after its records."""
    victims = ["jfk-aggregate-mirror", "ewr-broker", "aggregate-broker", "delays-worker"]
    text = demo(tmp_path, "--keep", "--flights", str(FLIGHTS), *(f"--kill={victim}" for victim in victims))
    try:
        for victim in victims:
            assert f"kill -9 {victim} (container " in text
            assert f"{victim} works again" in text
        lines = text.splitlines()
        for place in ("aggregate", "stream table"):
            [line] = [line for line in lines if line.startswith(f"{place} ") and " of " in line[-20:]]
            assert line.endswith(f"{FLIGHTS:,} of {FLIGHTS:,}"), line
        rows = said(isthmus("mirror", "status", "-b", "aggregate", folder=tmp_path)).splitlines()
        assert len(rows) == 1 + 3 * 4
        again = isthmus(*DEMO, "--flights", "10", folder=tmp_path)
        assert again.returncode == 1 and "of another run, such as " in again.stderr  # and it was left alone
        end = lines[-1].strip()
        assert " down -v && rm -r " in end
        kinds = [each.split()[0] for each in LEFT()]  # the control
        assert (kinds.count("container"), kinds.count("network")) == (12, 5) and kinds.count("volume") >= 4
        subprocess.run(end, shell=True, cwd=tmp_path, check=True, capture_output=True)
    finally:
        if LEFT():
            ComposeProject(tmp_path / ".isthmus/flights-compose/compose.yaml", f"isthmus-demo-{PORT_BASE}").down()
    assert not (tmp_path / ".isthmus/flights-compose").exists()


def test_nothing_is_left_of_it(isthmus_image: str, tmp_path: Path) -> None:
    text = demo(tmp_path, "--flights", "2000", "--calm")
    assert "2,000 of 2,000" in text
    assert LEFT() == []
    assert sorted(each.name for each in tmp_path.iterdir()) == ["flights-report"]


@pytest.mark.parametrize("moment", ["brings up", "up: ewr", "replaying"])
def test_ctrl_c_leaves_nothing(isthmus_image: str, tmp_path: Path, moment: str) -> None:
    """SIGINT while compose is at work, right after it is up, and while records flow."""
    with demo_at(moment, tmp_path) as (process, _):
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130 and "Traceback" not in err, err
    assert LEFT() == []


def test_what_a_kill_leaves_the_next_takes_down(isthmus_image: str, tmp_path: Path) -> None:
    """kill -9 while compose is at work; of the next, while records flow; the one after it is exact."""
    folders = tmp_path / "tmp"
    folders.mkdir()
    try:
        for moment, is_first in (("brings up", True), ("replaying", False)):
            with demo_at(moment, tmp_path, TMPDIR=str(folders)) as (process, printed):
                assert (TAKES_DOWN in printed) != is_first
                process.kill()
            assert process.returncode == -signal.SIGKILL
            [folder] = folders.glob("isthmus-demo-*")  # none of the one before
            assert LEFT() and str(process.pid) in folder.name
        text = demo(tmp_path, "--flights", "2000", "--calm", TMPDIR=str(folders))
        assert TAKES_DOWN in text and "2,000 of 2,000" in text
        assert LEFT() == []
        assert list(folders.glob("isthmus-demo-*")) == []
    finally:
        for folder in folders.glob("isthmus-demo-*/compose.yaml"):
            ComposeProject(folder, f"isthmus-demo-{PORT_BASE}").down()
