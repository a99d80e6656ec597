"""`python -m benchmarks.streams` measures what it says: each workload, by Isthmus and by a side with other packages."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.streams import measuring
from benchmarks.streams.events import events
from benchmarks.streams.sides import COUNT, SIDES, WORKLOADS
from integration_tests.brokers import ROOT, running_broker

TIMEOUT_S = 240.0


def bench(folder: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-m", "benchmarks.streams", *arguments, "--results", str(folder), "--rounds", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
    (line,) = (folder / "streams.jsonl").read_text().splitlines()
    return done.returncode, json.loads(line), done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.parametrize("side", sorted({side.name.partition(",")[0] for side in SIDES}))
def test_each_side_counts_rightly_and_has_figures(side: str, tmp_path: Path) -> None:
    code, run, said = bench(tmp_path, *WORKLOADS, "--events", "20000", "--side", side)
    assert code == 0, said
    assert {row["workload"] for row in run["rows"]} == set(WORKLOADS)


def test_a_side_that_counts_wrongly_has_no_figure(tmp_path: Path) -> None:
    [agent] = [side for side in SIDES if side.name == "Isthmus, agent"]
    right = events(100, 1000, "lz4")
    with running_broker(tmp_path, {"group.initial.rebalance.delay.ms": 0}) as broker:
        assert measuring.run(agent, COUNT, broker.address, right)["events_per_cpu_s"] > 0
        wrong = replace(right, by_key=right.by_key + Counter({1: 1}))
        with pytest.raises(measuring.WrongResult, match="rows of 1100 events, not"):
            measuring.run(agent, COUNT, broker.address, wrong)
