"""An open-loop load: records leave on a schedule, whatever the broker does, and a tailing consumer says how late.

`python -m benchmarks.openloop tail|produce HOST:PORT TOPIC`, each a process of its own, both librdkafka by
confluent-kafka without linger. A record holds the time at which it was due, not the one at which it left: a stall of
the broker counts for every record that it held up (no coordinated omission). The clock is CLOCK_MONOTONIC, which
processes share. The last record of a run says how many came before it; the tail ends with it and prints one JSON line.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import signal
import struct
import sys
import time
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, Producer, TopicPartition

VALUE_BYTES = 100
VALUE = struct.Struct(">qq")  # when it was due (ns; -1 for the last record), how many came before
LAST = -1
LEAD_NS = 200_000_000  # from the start of the process to the first record
TIMEOUT_S = 30.0
TIMER_SLACK_NS = 1000  # the system's default of 50 µs would be part of every latency
PR_SET_TIMERSLACK = 29
POLL_EVERY = 64


def produce(address: str, topic: str, rate: float, seconds: float) -> dict[str, float]:
    """`rate` records a second for `seconds`, or until SIGTERM."""
    failed: list[object] = []
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    producer = Producer({
        "bootstrap.servers": address, "acks": "all", "linger.ms": 0, "delivery.report.only.error": True,
        "on_delivery": lambda error, message: failed.append(error),
    })  # fmt: skip
    producer.list_topics(topic, timeout=TIMEOUT_S)
    pad = bytes(VALUE_BYTES - VALUE.size)
    clock = time.monotonic_ns
    start = clock() + LEAD_NS
    step = 1e9 / rate
    total = int(rate * seconds)
    sent = 0
    while sent < total and not stopped and not failed:
        due = start + int(sent * step)
        early = due - clock()
        if early > 0:
            time.sleep(early / 1e9)
            continue
        try:
            producer.produce(topic, VALUE.pack(due, sent) + pad, partition=0)
            sent += 1
        except BufferError:
            producer.poll(0.001)
        if not sent % POLL_EVERY:
            producer.poll(0)
    producer.produce(topic, VALUE.pack(LAST, sent) + pad, partition=0)
    if producer.flush(TIMEOUT_S) or failed:
        raise RuntimeError(f"not all of {sent} records were taken: {failed[:1]}")
    return {"records": sent, "seconds": (clock() - start) / 1e9}


def tail(address: str, topic: str, skip_s: float) -> dict[str, float]:
    """Latencies of what comes from now on, but of the first `skip_s` seconds."""
    consumer = Consumer({
        "bootstrap.servers": address, "group.id": "bench-tail", "enable.auto.commit": False,
        "enable.partition.eof": True,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    while True:
        first: Any = consumer.poll(TIMEOUT_S)
        if first is None:
            raise RuntimeError(f"the end of {topic} was not found within {TIMEOUT_S} s")
        if first.error() is not None and first.error().code() == KafkaError._PARTITION_EOF:
            break
    print("ready", flush=True)
    late: list[int] = []
    clock = time.monotonic_ns
    unpack = VALUE.unpack_from
    since = got = 0
    while True:
        message: Any = consumer.poll(TIMEOUT_S)
        now = clock()
        if message is None:
            raise RuntimeError(f"nothing for {TIMEOUT_S} s after {got} records")
        if message.error() is not None:
            continue
        due, before = unpack(message.value())
        if before != got:
            raise RuntimeError(f"record {before} came as number {got}")
        if due == LAST:
            break
        got += 1
        if not since:
            since = due + int(skip_s * 1e9)
        if due >= since:
            late.append(now - due)
    consumer.close()
    late.sort()
    return {
        "records": len(late),
        "p50_ms": _quantile(late, 0.5),
        "p99_ms": _quantile(late, 0.99),
        "p999_ms": _quantile(late, 0.999),
        "max_ms": late[-1] / 1e6,
    }


def _quantile(late: list[int], share: float) -> float:
    return late[min(len(late) - 1, int(len(late) * share))] / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.openloop", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["tail", "produce"])
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("topic")
    parser.add_argument("--rate", type=float, default=1000.0, help="records a second")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to produce, if no SIGTERM ends it")
    parser.add_argument("--skip", type=float, default=1.0, help="seconds that the tail does not count")
    given = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS)
    gc.freeze()
    gc.disable()  # its pauses would be counted as the broker's
    if given.what == "tail":
        got = tail(given.address, given.topic, given.skip)
    else:
        got = produce(given.address, given.topic, given.rate, given.seconds)
    print(json.dumps(got))
    return 0


if __name__ == "__main__":
    sys.exit(main())
