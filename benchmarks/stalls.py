"""What a producer notices of a fault: `python -m benchmarks.stalls HOST:PORT,... TOPIC`.

librdkafka's producer, idempotent, acks=all, otherwise with its defaults, sends a small record every few milliseconds to
one partition until SIGTERM. Then it prints one JSON line: the longest time between two acknowledgements, how many
records it sent, and how many failed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import sys
import time
from typing import Any

from confluent_kafka import Producer

EVERY_S = 0.005
END_S = 60.0  # for the last acknowledgements
VALUE = b"x" * 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stalls", description=__doc__.splitlines()[0])
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("topic")
    given = parser.parse_args()
    is_over = False

    def end(*_: object) -> None:
        nonlocal is_over
        is_over = True

    signal.signal(signal.SIGTERM, end)
    acked: list[float] = []
    failed: list[str] = []

    def settled(error: Any, message: Any) -> None:
        if error is None:
            acked.append(time.perf_counter())
            if len(acked) == 1:
                print("ready", flush=True)
        else:
            failed.append(str(error))

    producer = Producer(
        {"bootstrap.servers": given.address, "enable.idempotence": True, "log_level": 0, "on_delivery": settled}
    )
    due = time.perf_counter()
    while not is_over:
        producer.produce(given.topic, VALUE, partition=0)
        due += EVERY_S
        while not is_over and (left := due - time.perf_counter()) > 0:
            producer.poll(left)
    if left_over := producer.flush(END_S):
        failed.append(f"{left_over} records are not acknowledged after {END_S:g} s")
    gaps = [after - before for before, after in itertools.pairwise(acked)]
    print(json.dumps({"stall": max(gaps), "records": len(acked), "failed": len(failed), "why": failed[:1]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
