"""librdkafka as a load, by confluent-kafka: `python -m benchmarks.librdkafka produce|fetch HOST:PORT TOPIC`.

Values of 1 KB without compression, librdkafka's defaults otherwise. Prints one JSON line: records, bytes, seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

VALUE_BYTES = 1024
FLUSH_S = 30.0
POLL_RECORDS = 10_000


def produce(address: str, topic: str, partitions: int, seconds: float, max_bytes: int) -> tuple[int, float]:
    """acks=all; the time includes the last answer."""
    failed: list[object] = []
    producer = Producer({
        "bootstrap.servers": address, "acks": "all", "delivery.report.only.error": True,
        "on_delivery": lambda error, message: failed.append(error), "queue.buffering.max.kbytes": 262_144,
    })  # fmt: skip
    producer.list_topics(topic, timeout=FLUSH_S)
    value = os.urandom(VALUE_BYTES)
    sent = 0
    start = time.perf_counter()
    end = start + seconds
    most = max_bytes // VALUE_BYTES
    while time.perf_counter() < end and sent < most and not failed:
        try:
            for _ in range(1000):
                producer.produce(topic, value, partition=sent % partitions)
                sent += 1
        except BufferError:
            producer.poll(0.005)
    if producer.flush(FLUSH_S) or failed:
        raise RuntimeError(f"not all of {sent} records were taken: {failed[:1]}")
    return sent, time.perf_counter() - start


def fetch(address: str, topic: str, partitions: int, seconds: float) -> tuple[int, float]:
    """From the beginning, and again when a partition is read to its end; the time begins with the first records."""
    consumer = Consumer({
        "bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False, "enable.partition.eof": True,
        "queued.max.messages.kbytes": 65_536,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)])
    got = len(consumer.consume(POLL_RECORDS, FLUSH_S))
    start = time.perf_counter()
    end = start + seconds
    got = 0
    ended: set[int] = set()
    while (now := time.perf_counter()) < end:
        for message in consumer.consume(POLL_RECORDS, min(end - now, 1.0)):
            if message.error() is None:
                got += 1
            else:
                ended.add(message.partition() or 0)
        if len(ended) == partitions:
            ended.clear()
            for each in range(partitions):
                consumer.seek(TopicPartition(topic, each, 0))
    seconds = time.perf_counter() - start
    consumer.close()
    return got, seconds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.librdkafka", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["produce", "fetch"])
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("topic")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--max-bytes", type=int, default=1 << 30)
    given = parser.parse_args()
    if given.what == "produce":
        count, seconds = produce(given.address, given.topic, given.partitions, given.seconds, given.max_bytes)
    else:
        count, seconds = fetch(given.address, given.topic, given.partitions, given.seconds)
    print(json.dumps({"records": count, "bytes": count * VALUE_BYTES, "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
