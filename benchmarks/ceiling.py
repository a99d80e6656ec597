"""What one librdkafka producer brings to a broker that does nothing: `python -m benchmarks.ceiling`.

It produces to librdkafka's own mock broker, which is a thread of the same process, looks at nothing and keeps nothing.
A guide to how much of a case's rate is the producer's own, and no bound, for that thread shares the producer's process.
Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from contextlib import ExitStack

from .bulk import PARTITIONS
from .cases import MB, SAMPLE_BYTES, figures_of
from .librdkafka import MOCK
from .memory import GIB, Memory

CASES = {"produce-1k": (1024, "none"), "produce-1k-lz4": (1024, "lz4"), "produce-100": (100, "none"),
         "produce-100-lz4": (100, "lz4")}  # fmt: skip


def sample(value_bytes: int, codec: str, seconds: float) -> float:
    """MB/s of values. Raises RuntimeError with what the load said."""
    got = figures_of(
        "its mock broker", "benchmarks.librdkafka", "produce", MOCK, "ceiling", f"--partitions={PARTITIONS}",
        f"--value-bytes={value_bytes}", f"--codec={codec}", f"--seconds={seconds}", f"--max-bytes={SAMPLE_BYTES}",
    )  # fmt: skip
    return got["bytes"] / got["seconds"] / MB


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ceiling", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="samples of each case, in turn (default 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one sample (default 2)")
    parser.add_argument("--memory-gib", type=float, default=0.0, help="hold all other memory (default: hold none)")
    given = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in CASES}
    with ExitStack() as held:
        memory = Memory(held, int(given.memory_gib * GIB))
        for _ in range(given.rounds):
            for name, (value_bytes, codec) in CASES.items():
                memory.touch(given.seconds)
                found[name].append(sample(value_bytes, codec, given.seconds))
    print("| case | MB/s to a broker that costs nothing |\n|---|---|")
    for name, rates in found.items():
        print(f"| {name} | {statistics.median(rates):,.0f} ({min(rates):,.0f} .. {max(rates):,.0f}) |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
