"""`python -m benchmarks.stores` measures what it says, each case in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.stores import CASES
from integration_tests.brokers import ROOT

KEYS = 2_000
TIMEOUT_S = 120.0


def test_every_case_gives_figures() -> None:
    names = [name for name in CASES if name != "lmdb"]  # not installed here
    said = subprocess.run(
        [sys.executable, "-m", "benchmarks.stores", f"--keys={KEYS}"],
        cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    found = [json.loads(line) for line in said.stdout.splitlines()]
    assert [each["case"] for each in found] == names
    for each in found:
        assert each["keys"] == KEYS
        assert any(name.endswith("_per_cpu_s") and figure > 0 for name, figure in each.items())


def test_a_case_that_is_not_there_is_refused_with_those_that_are() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.stores", "floppy"],
        cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 2 and "no case floppy; there are count-memory, count-disk" in done.stderr
