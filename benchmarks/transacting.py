"""Transactions by librdkafka as a load: `python -m benchmarks.transacting HOST:PORT TOPIC`.

Producers of one process, a thread each: begin, so many records to one partition, commit, and again. Prints one JSON
line: commits, seconds, and p50_ms and p99_ms of a transaction from its begin to the end of its commit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from . import rdkafka

START_S = 60.0  # until all producers are ready


def transact(
    address: str, topic: str, partition: int, number: int, records: int, value_bytes: int, seconds: float,
    max_commits: int, ready: Barrier,
) -> tuple[list[float], float]:  # fmt: skip
    """How long each transaction took, and all of them together, in seconds."""
    options = {"transactional.id": f"bench-{os.getpid()}-{number}", "delivery.report.only.error": True}
    with rdkafka.Client(rdkafka.PRODUCER, address, topic, options) as producer:
        producer.init_transactions()
        values = producer.records([os.urandom(value_bytes) for _ in range(records)])
        took_s: list[float] = []
        ready.wait(START_S)
        start = now = time.perf_counter()
        while now - start < seconds and len(took_s) < max_commits and not producer.failed:
            producer.begin_transaction()
            producer.produce(partition, values)
            producer.commit_transaction()
            begun, now = now, time.perf_counter()
            took_s.append(now - begun)
        if producer.failed:
            raise RuntimeError(f"not all records were taken: {producer.failed[0]}")
        return took_s, now - start


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transacting", description=__doc__.splitlines()[0])
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("topic")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--records", type=int, default=100)
    parser.add_argument("--value-bytes", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--max-commits", type=int, default=1 << 30, help="of all producers together")
    given = parser.parse_args()
    ready = Barrier(given.producers)
    with ThreadPoolExecutor(given.producers) as pool:
        futures = [
            pool.submit(
                transact, given.address, given.topic, number % given.partitions, number, given.records,
                given.value_bytes, given.seconds, given.max_commits // given.producers, ready,
            )
            for number in range(given.producers)
        ]  # fmt: skip
        done = [future.result() for future in futures]
    took_s = [each for taken, _ in done for each in taken]
    hundredths = statistics.quantiles(took_s, n=100)
    figures = {
        "commits": len(took_s),
        "seconds": max(seconds for _, seconds in done),
        "p50_ms": hundredths[49] * 1000,
        "p99_ms": hundredths[98] * 1000,
    }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
