"""Throughput and memory against partitions, connections and record size, on both sides: JSON lines for `plots`.

`python -m benchmarks.sweeps partitions|connections|sizes|all [--alone] [--pairs 3] [--results FOLDER]` appends to
`sweeps.jsonl`: side, sweep, x, and per x the medians of `rate`, `cpu` and `rss`. Each count of partitions has brokers
of its own, as `benchmarks.partitions` runs them; the other sweeps keep one broker a side.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from . import network, results
from .bulk import Produce
from .cases import SMALL_BYTES, Bench, Sample, load
from .frames import produce_frame, random_batch
from .memory import GIB, Memory
from .partitions import sweep as partition_sweep
from .sides import Maker, Side, isthmus, kafka
from .warming import warm

MIB = 1 << 20
CONNECTIONS = (1, 10, 100, 1000, 5000)
VALUE_BYTES = (10, 100, 1024, 10_240, 102_400, 900_000)  # with its batch header the last is below Kafka's limit of 1 MB
OUR_PARTITIONS = (10, 100, 1000, 4000, 10_000)
KAFKA_PARTITIONS = (10, 100, 1000, 4000)
RSS_POLL_S = 0.2

Line = dict[str, Any]


class Watched:
    """The most memory a broker had while the block ran."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.rss_mib = 0.0

    def _watch(self) -> None:
        while True:
            self.rss_mib = max(self.rss_mib, self._side.rss_bytes() / MIB)
            if self._over.wait(RSS_POLL_S):
                return

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()


class Connections(Bench):
    """One record of 100 bytes a request, acks=all, on so many connections at once."""

    count = 1

    def prepare(self) -> None:
        self.name = self.topic()
        self.frame = produce_frame(self.name, 0, random_batch(1, SMALL_BYTES))

    def measure(self, seconds: float) -> Sample:
        got, cpu_s = load(self.side, [self.frame], self.count, seconds)
        return {"rate": got["requests"] / got["seconds"], "cpu": cpu_s / got["requests"] * 1e6}

    def clean(self) -> None:
        self.side.delete_topic(self.name)


def connections(side: Side, seconds: float) -> Iterator[tuple[int, Bench]]:
    for count in CONNECTIONS:
        bench = Connections(side, seconds)
        bench.count = count
        yield count, bench


def sizes(side: Side, seconds: float) -> Iterator[tuple[int, Bench]]:
    for value_bytes in VALUE_BYTES:
        yield value_bytes, Produce(side, seconds, value_bytes=value_bytes)


SWEEPS: dict[str, Callable[[Side, float], Iterator[tuple[int, Bench]]]] = {
    "connections": connections,
    "sizes": sizes,
}


def run(name: str, sides: list[Side], memory: Memory, pairs: int, seconds: float, warm_s: float) -> Iterator[Line]:
    """One line a side and x: medians of `pairs` samples, the sides in turn."""
    for rows in zip(*(SWEEPS[name](side, seconds) for side in sides), strict=True):
        for _, bench in rows:
            bench.prepare()
            warm(bench, warm_s)
        found: dict[str, list[Sample]] = {side.name: [] for side in sides}
        for _ in range(pairs):
            for _, bench in rows:
                memory.touch(seconds)
                with Watched(bench.side) as watched:
                    sample = bench.measure(seconds)
                found[bench.side.name].append({**sample, "rss": watched.rss_mib})
        for x, bench in rows:
            samples = found[bench.side.name]
            medians = {key: statistics.median(each[key] for each in samples) for key in samples[0]}
            yield {"sweep": name, "side": bench.side.name, "x": x, **medians}
            bench.clean()


def partitions(with_kafka: bool, seconds: float, warm_s: float) -> Iterator[Line]:
    runs: list[tuple[Maker, int]] = [(isthmus, count) for count in OUR_PARTITIONS]
    if with_kafka:
        runs += [(kafka, count) for count in KAFKA_PARTITIONS]
    for line in partition_sweep(iter(runs), seconds, warm_s):
        yield {"sweep": "partitions", "x": line.pop("partitions"), **line}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweeps", description=__doc__)
    parser.add_argument("names", nargs="+", choices=[*SWEEPS, "partitions", "all"])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one sample (default 2)")
    parser.add_argument("--warm", type=float, default=3.0, help="seconds of load before each x (default 3)")
    parser.add_argument("--memory-gib", type=float, default=0.0, help="hold all other memory (default: hold none)")
    network.add_option(parser)
    parser.add_argument("--alone", action="store_true", help="Isthmus only, without Kafka")
    parser.add_argument("--results", type=Path, default=results.FOLDER, help="folder that keeps the runs")
    given = parser.parse_args()
    network.take(given, "benchmarks.sweeps")
    names = [*SWEEPS, "partitions"] if "all" in given.names else given.names
    facts = results.facts(given.pairs, given.seconds, given.memory_gib, with_java=not given.alone)
    given.results.mkdir(parents=True, exist_ok=True)
    with open(given.results / "sweeps.jsonl", "a") as kept, ExitStack() as whole:
        memory = Memory(whole, int(given.memory_gib * GIB))
        for name in names:
            with ExitStack() as held:
                if name == "partitions":
                    lines = partitions(not given.alone, given.seconds, given.warm)
                else:
                    makers = [isthmus] if given.alone else [isthmus, kafka]
                    folders = [held.enter_context(tempfile.TemporaryDirectory(prefix="isthmus-bench-")) for _ in makers]
                    sides = [
                        held.enter_context(make(Path(folder)))
                        for make, folder in zip(makers, folders, strict=True)
                    ]  # fmt: skip
                    lines = run(name, sides, memory, given.pairs, given.seconds, given.warm)
                for line in lines:
                    print(json.dumps(line), flush=True)
                    kept.write(json.dumps({"time": facts["time"], "isthmus": facts["isthmus"], **line}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
