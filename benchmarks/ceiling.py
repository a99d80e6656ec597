"""What librdkafka's producers bring to a broker that only stores, see `storing.py`: `python -m benchmarks.ceiling`.

Beside Isthmus and Kafka, in turn. Where even such a broker has not the ratio to Kafka that is aimed at, most of what is
missing is the load's. A guide and no bound: ours has been some percent above it. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from integration_tests.brokers import ROOT, BrokerProcess
from integration_tests.peers.peers import free_ports

from .__main__ import WARM_S, run
from .cases import Sample
from .memory import GIB, Memory
from .results import number
from .sides import SETTINGS, IsthmusNode, Side, isthmus, kafka
from .table import CASES, Metric

NAMES = ("produce-1k-lz4", "produce-1k-lz4-by-2", "produce-100", "produce-100-by-2", "produce-100-lz4",
         "produce-100-lz4-by-2")  # fmt: skip


class Storing(IsthmusNode):
    """A broker that only stores, and the one behind it, which answers all else."""

    def __init__(self, folder: Path, behind: BrokerProcess, port: int, process: subprocess.Popen[str]) -> None:
        super().__init__(behind)
        self.folder = folder
        self.port = port
        self.storing = process

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.storing.pid

    @property
    def data_folder(self) -> Path:
        return self.folder / "stored"


@contextlib.contextmanager
def storing(folder: Path) -> Iterator[Side]:
    [port] = free_ports(1)
    behind = BrokerProcess(folder, {**SETTINGS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    with contextlib.ExitStack() as held:
        held.callback(behind.kill)
        behind.start()
        (folder / "stored").mkdir()
        command = [sys.executable, "-m", "benchmarks.storing", str(port), behind.address, str(folder / "stored")]
        process = held.enter_context(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        held.callback(process.kill)
        assert process.stdout
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{' '.join(command)} did not get ready")
        yield Side("only stores", {1: Storing(folder, behind, port, process)}, {})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ceiling", description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, help=f"cases (default: {' '.join(NAMES)})")
    parser.add_argument("--rounds", type=int, default=5, help="samples of each case, in turn (default 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one sample (default 2)")
    parser.add_argument("--memory-gib", type=float, default=0.0, help="hold all other memory (default: hold none)")
    given = parser.parse_args()
    cases = {case.name: case for case in CASES}
    print("| case | figure | only stores | Isthmus | Kafka | only stores / Kafka | Isthmus / Kafka |")
    print("|---|---|---|---|---|---|---|")
    with ExitStack() as held:
        memory = Memory(held, int(given.memory_gib * GIB))
        folders = [Path(held.enter_context(tempfile.TemporaryDirectory(prefix="isthmus-bench-"))) for _ in range(3)]
        sides = [held.enter_context(make(at)) for make, at in zip((storing, isthmus, kafka), folders, strict=True)]
        for name in given.names:
            case = cases[name]
            samples = run(case, sides, memory, given.rounds, given.seconds, WARM_S, 0)
            for metric in case.metrics:
                print(_row(name, metric, list(samples.values())), flush=True)
    return 0


def _row(name: str, metric: Metric, sides: list[list[Sample]]) -> str:
    """sides: the samples of each, Kafka's last."""
    values = [[sample[metric.key] for sample in each] for each in sides]
    columns = [f"{number(statistics.median(each))} ({number(min(each))} .. {number(max(each))})" for each in values]
    *others, kafkas = values
    ratios = [f"{statistics.median(a / b for a, b in zip(each, kafkas, strict=True)):.2f}" for each in others]
    return f"| {name} | {metric.unit} | {' | '.join(columns)} | {' | '.join(ratios)} |"


if __name__ == "__main__":
    sys.exit(main())
