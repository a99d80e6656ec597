"""The benchmarks run: each case once and short on an Isthmus broker, one case as a pair with stock Kafka."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import subprocess
import sys
import termios
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import results, warming
from benchmarks.memory import A_SECOND_BYTES, KEPT_EACH_BYTES, Memory
from benchmarks.sweeps import CONNECTIONS, VALUE_BYTES
from benchmarks.table import CASES, ISTHMUS
from integration_tests.brokers import ROOT
from integration_tests.peers.peers import cpu_seconds

TIMEOUT_S = 600


def bench(folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """The JSON line of a run, and the table it printed."""
    command = [sys.executable, "-m", "benchmarks", *arguments, "--pairs", "1", "--results", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    (line,) = (folder / "runs.jsonl").read_text().splitlines()
    return json.loads(line), done.stdout


FEW = "small-1", "produce-1k", "consume-1k", "replay-lz4", "transactions-100", "idle"


@pytest.mark.parametrize("names", [FEW, pytest.param(("all",), marks=pytest.mark.soak)], ids=["few", "all"])
def test_every_case_gives_all_its_figures(tmp_path: Path, names: tuple[str, ...]) -> None:
    run, table = bench(tmp_path, *names, "--alone", "--seconds", "0.5", "--warm", "0.1", "--cold-gb", "0.1")
    found = [(row["case"], row["unit"]) for row in run["results"]]
    chosen = [case for case in CASES if names == ("all",) or case.name in names]
    assert found == [(case.name, metric.unit) for case in chosen if ISTHMUS in case.sides for metric in case.metrics]
    assert all(row["Isthmus"]["median"] > 0 for row in run["results"] if row["case"] != "idle")
    assert {"cpu", "cores", "python", "kafka", "load_average"} <= run.keys()
    assert all(f"| {name} | {unit} |" in table for name, unit in found)


def test_a_pair_has_both_sides_their_ratio_and_how_much_of_it_was_a_compiler(tmp_path: Path) -> None:
    run, table = bench(tmp_path, "small-1", "--seconds", "1", "--warm", "0.2")
    requests = run["results"][0]
    assert requests["Isthmus"]["median"] / requests["Kafka"]["median"] == requests["ratio"]
    share = requests[results.COMPILING]
    assert 0 < share < 1  # ten rounds of 0.2 s are not enough
    assert (share >= warming.CALM) == (f"small-1 ({share:.0%})" in table)


@pytest.mark.parametrize(
    ("shares", "rounds"),
    [([0.0] * 9, 2), ([0.4, 0.2, 0.04, 0.06, 0.01, 0.0, 0.3], 6), ([0.3] * 30, 21)],
    ids=["calm", "two rounds one after the other", "never"],
)
def test_a_side_is_loaded_until_its_compilers_rest(
    monkeypatch: pytest.MonkeyPatch, shares: list[float], rounds: int
) -> None:
    left = iter(shares)
    monkeypatch.setattr(warming, "Compiling", lambda side: SimpleNamespace(share=lambda: next(left)))
    monkeypatch.setattr(warming, "compilers", lambda pids: {1: 0.0})
    now = itertools.count()
    monkeypatch.setattr(warming.time, "perf_counter", lambda: float(next(now)))
    bench: Any = SimpleNamespace(warms_by_load=True, side=SimpleNamespace(pids=[1]), warm=lambda seconds: None)
    assert warming.warm(bench, 2.0).rounds == rounds


def test_a_side_without_a_compiler_is_loaded_once() -> None:
    bench: Any = SimpleNamespace(
        warms_by_load=True,
        side=SimpleNamespace(pids=[os.getpid()], cpu_seconds=time.process_time),
        warm=lambda seconds: None,
    )
    assert warming.warm(bench, 8.0) == (1, 0.0)


@pytest.mark.soak
def test_sweeps_give_a_line_for_each_x_and_their_plots(tmp_path: Path) -> None:
    options = ["--alone", "--pairs", "1", "--seconds", "0.2", "--warm", "0.1", "--results", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks.sweeps", "connections", "sizes", *options]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=TIMEOUT_S)
    lines = [json.loads(line) for line in (tmp_path / "sweeps.jsonl").read_text().splitlines()]
    assert [line["x"] for line in lines if line["sweep"] == "connections"] == list(CONNECTIONS)
    assert [line["x"] for line in lines if line["sweep"] == "sizes"] == list(VALUE_BYTES)
    assert all(line["rate"] > 0 and line["rss"] > 0 for line in lines)
    plots = [sys.executable, "-m", "benchmarks.plots", "--results", str(tmp_path), "--to", str(tmp_path)]
    subprocess.run(plots, cwd=ROOT, check=True, capture_output=True, timeout=TIMEOUT_S)
    for sweep in "connections", "sizes":
        assert (tmp_path / f"benchmark-{sweep}.svg").read_text().rstrip().endswith("</svg>")


@pytest.fixture
def namespace() -> None:
    if subprocess.run(["unshare", "--user", "--map-root-user", "--net", "true"], capture_output=True).returncode:
        pytest.skip("network namespaces are not allowed here")


@pytest.mark.usefixtures("namespace")
def test_a_run_with_a_congestion_control_of_its_own(tmp_path: Path) -> None:
    run, table = bench(tmp_path, "small-1", "--alone", "--seconds", "0.2", "--warm", "0.1", "--congestion-control=reno")
    assert run["congestion_control"] == "reno"
    assert "with reno," in table


@pytest.mark.usefixtures("namespace")
@pytest.mark.parametrize("asked", [("benchmarks", "small-1"), ("benchmarks.sweeps", "sizes")])
def test_a_congestion_control_that_the_system_does_not_have(asked: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", *asked, "--alone", "--congestion-control=none"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2
    assert "no connections with none here" in done.stderr


def test_plots_without_a_sweep_say_what_to_run_first(tmp_path: Path) -> None:
    plots = [sys.executable, "-m", "benchmarks.plots", "--results", str(tmp_path)]
    done = subprocess.run(plots, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "run python -m benchmarks.sweeps all first" in done.stderr


def test_a_case_that_is_not_there_is_named() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks", "medium"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no case medium; there are: small-100" in done.stderr


def test_cpu_time_of_far_less_than_a_tick_is_seen() -> None:
    """A broker at rest uses no more; in ticks of 10 ms that is nothing at all."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        used = []
        for _ in range(5):
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"\n"
            used.append(cpu_seconds(process.pid))
        process.stdin.close()
    assert used == sorted(set(used))


def test_of_memory_that_was_touched_a_page_of_each_mebibyte_waits_in_a_pipe() -> None:
    def waiting_bytes() -> int:
        pipes = {os.readlink(path): int(path.name) for path in Path("/proc/self/fd").iterdir() if is_own_pipe(path)}
        waiting = [int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder) for fd in pipes.values()]
        return sum(waiting)

    def is_own_pipe(path: Path) -> bool:
        return path.is_symlink() and os.readlink(path).startswith("pipe:") and os.readlink(path) not in before

    before = {os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    size = int(A_SECOND_BYTES * 0.1)
    with ExitStack() as held:
        memory = Memory(held)
        for _ in range(2):  # the second lets go of what the first kept
            memory.touch(0.1)
            assert waiting_bytes() == -(-size // KEPT_EACH_BYTES)  # a byte of each
    assert waiting_bytes() == 0


def test_ratio_is_the_median_of_the_pairs() -> None:
    case = CASES[0]
    values = {"Isthmus": [10.0, 20.0, 90.0], "Kafka": [10.0, 40.0, 30.0]}
    samples = {
        side: [{metric.key: value for metric in case.metrics} for value in each] for side, each in values.items()
    }
    row = results.summary(case, samples)[0]
    assert row["ratio"] == 1.0
    assert row["Isthmus"] == {"median": 20.0, "min": 10.0, "max": 90.0, "each": [10.0, 20.0, 90.0]}
