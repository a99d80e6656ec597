"""`python -m benchmarks list|NAME...|all [--pairs 5] [--seconds 3]`: runs cases, keeps the table in results/."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import KafkaException

from integration_tests.peers.peers import PeerError

from . import network, results
from .cases import GB, Bench
from .memory import GIB, Memory
from .sides import ISTHMUS, KAFKA, OTHER_CHECKOUT, Side, checkout, isthmus, kafka_with
from .table import CASES, Case
from .warming import Compiling, warm

COLD_GB = 4.0  # fits small disks; more than the memory is what tells most
WARM_S = 8.0  # a round; Kafka has as many as its compiler wants, see `warming.py`


class Sides:
    """The brokers of a run: started when the first case asks, Isthmus first; gone at the end."""

    def __init__(self, held: ExitStack, alone: bool, against: Path | None, settings: Mapping[str, str]) -> None:
        self.held = held
        self.alone = alone
        self.makers = {ISTHMUS: isthmus, KAFKA: kafka_with(settings) if against is None else checkout(against)}
        self.shared: dict[tuple[str, int], Side] = {}

    def of(self, case: Case, held: ExitStack) -> list[Side]:
        """The sides a case runs on; those that are its own end with `held`."""
        names = [name for name in case.sides if name == ISTHMUS or not self.alone]
        if case.fresh:
            return [held.enter_context(self.makers[name](_folder(held), case.size)) for name in names]
        for key in ((name, case.size) for name in names):
            if key not in self.shared:
                self.shared[key] = self.held.enter_context(self.makers[key[0]](_folder(self.held), case.size))
        return [self.shared[name, case.size] for name in names]


def _folder(held: ExitStack) -> Path:
    return Path(held.enter_context(tempfile.TemporaryDirectory(prefix="isthmus-bench-")))


def run(
    case: Case, sides: list[Side], memory: Memory, pairs: int, seconds: float, warm_s: float, cold_bytes: int
) -> results.Samples:
    """A, B, A, B. The side that does not run is idle meanwhile."""
    benches: list[Bench] = []
    samples: results.Samples = {side.name: [] for side in sides}
    try:
        for side in sides:
            bench = case.bench(side, seconds, **case.options)
            bench.cold_bytes = cold_bytes
            bench.prepare()
            benches.append(bench)
            warmed = warm(bench, warm_s)
            said = f"  {bench.side.name}: {warmed.rounds} rounds to warm up, its compilers' share is {warmed.share:.2f}"
            print(said, file=sys.stderr, flush=True)
        for _ in range(pairs):
            for bench in benches:
                bench.prepare_sample()
                memory.touch(seconds)
                compiling = Compiling(bench.side)
                sample = bench.measure(seconds)
                samples[bench.side.name].append({**sample, results.COMPILING: compiling.share()})
    finally:
        for bench in benches:
            bench.clean()
    return samples


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", default=["list"], help="list, all, or names of cases")
    parser.add_argument("--pairs", type=int, default=5, help="how often each side runs (default 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of one sample (default 3)")
    parser.add_argument(
        "--warm",
        type=float,
        default=WARM_S,
        help=f"seconds of load first, again while a JVM compiles (default {WARM_S:g})",
    )
    parser.add_argument("--cold-gb", type=float, default=COLD_GB, help=f"what cold* read (default {COLD_GB:g} GB)")
    parser.add_argument("--memory-gib", type=float, default=0.0, help="hold all other memory (default: hold none)")
    network.add_option(parser)
    parser.add_argument("--alone", action="store_true", help="Isthmus only, without Kafka")
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout of Isthmus in place of Kafka")
    parser.add_argument("--kafka-set", action="append", default=[], metavar="NAME=VALUE", help="a setting of Kafka's")
    parser.add_argument("--results", type=Path, default=results.FOLDER, help="folder that keeps the runs")
    given = parser.parse_args()
    if given.names == ["list"]:
        for case in CASES:
            print(f"{case.name:22} {case.what}")
        return 0
    known = {case.name: case for case in CASES}
    if unknown := [name for name in given.names if name != "all" and name not in known]:
        print(f"benchmarks: no case {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    chosen = CASES if "all" in given.names else [known[name] for name in given.names]
    if given.alone:
        chosen = [case for case in chosen if ISTHMUS in case.sides]
    network.take(given, "benchmarks")
    facts = results.facts(given.pairs, given.seconds, given.memory_gib, not given.alone and not given.against)
    facts["kafka_set"] = given.kafka_set
    if given.against:
        facts["other"], facts["kafka"] = OTHER_CHECKOUT, f"none, but Isthmus {results.commit(given.against)}"
    cold_bytes = int(given.cold_gb * GB)
    rows = []
    failed = False
    with ExitStack() as held:
        memory = Memory(held, int(given.memory_gib * GIB))
        sides = Sides(held, given.alone, given.against, dict(each.split("=", 1) for each in given.kafka_set))
        for case in chosen:
            print(f"{case.name}: {case.what}", file=sys.stderr, flush=True)
            pairs = min(given.pairs, case.pairs_max)
            try:
                with ExitStack() as own:
                    samples = run(case, sides.of(case, own), memory, pairs, given.seconds, given.warm, cold_bytes)
                    rows += results.summary(case, samples)
            except (RuntimeError, OSError, subprocess.TimeoutExpired, KafkaException) as error:
                print(f"{case.name} failed: {error}", file=sys.stderr)
                failed = True
            except KeyboardInterrupt:  # what is finished by now is worth keeping
                print(f"{case.name}: interrupted", file=sys.stderr)
                failed = True
                break
    print(results.markdown(facts, rows))
    results.write(given.results, facts, rows)
    print(f"\nkept in {given.results}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # all that was started is stopped then, too
    try:
        sys.exit(main())
    except PeerError as error:
        sys.exit(f"benchmarks: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
