"""The replay by hand, as the tutorial has it: `python -m isthmus.examples.flights.replay`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from integration_tests.conftest import BrokerMaker
from integration_tests.console.commands import environment, isthmus, said


def replay(bootstrap: str) -> subprocess.CompletedProcess[str]:
    options = ("--origin", "EWR", "--bootstrap", bootstrap, "--flights", "200")
    command = [sys.executable, "-m", "isthmus.examples.flights.replay", *options]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)


def test_topics_that_are_not_there_are_named_and_a_second_replay_adds_nothing(tmp_path: Path, make_broker: BrokerMaker):
    bootstrap = make_broker().bootstrap
    done = replay(bootstrap)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: replay of EWR: ") and "there is no topic weather" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    for topic in ("weather", "flights"):
        said(isthmus("topic", "create", topic, "--set", "retention.ms=-1", "-b", bootstrap, folder=tmp_path))
    first, second = replay(bootstrap), replay(bootstrap)
    assert said(first).splitlines()[-1].startswith("done ") and not said(first).endswith("done 0 events of flights\n")
    assert said(second) == "ready 0 hours of weather\ndone 0 events of flights\n"
