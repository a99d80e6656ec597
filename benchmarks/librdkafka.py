"""librdkafka as a load, by confluent-kafka: `python -m benchmarks.librdkafka produce|fetch|drain HOST:PORT TOPIC`.

librdkafka's defaults but for what the options say. Prints one JSON line: records, bytes, seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

QUEUED_BYTES = 128 << 20
DISTINCT_BYTES = 20 << 20  # of values that are sent again and again
CALL_RECORDS = 500  # of them at a time to one partition
SMALL_QUEUED = 20_000  # records that wait in a producer of small batches
CALLS_QUEUED = 4  # so many at least wait in the producer
LETTERS = bytes(ord("A") + each % 26 for each in range(256))
FLUSH_S = 30.0
POLL_RECORDS = 10_000
# By default the consumer stops fetching for a second whenever 100,000 records wait in it, which is 10 MB of small ones:
# what is measured then is that second. librdkafka's own performance tool raises the first, too.
READ_AHEAD = {
    "queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 65_536, "fetch.queue.backoff.ms": 5,
}  # fmt: skip
POLL_S = 0.05  # a call waits for so many records, at the end of a partition too


def produce(
    address: str, topic: str, partitions: int, seconds: float, max_bytes: int, value_bytes: int, codec: str,
    batch_records: int,
) -> tuple[int, float]:  # fmt: skip
    """acks=all; the time includes the last answer. batch_records: most in a batch, without linger; 0: the defaults."""
    failed: list[object] = []
    queued = min(SMALL_QUEUED if batch_records else 500_000, QUEUED_BYTES // value_bytes)
    batching = {"linger.ms": 0, "batch.num.messages": batch_records} if batch_records else {}
    producer = Producer({
        "bootstrap.servers": address, "acks": "all", "delivery.report.only.error": True, "compression.type": codec,
        "on_delivery": lambda error, message: failed.append(error), "queue.buffering.max.kbytes": 1_048_576,
        "queue.buffering.max.messages": queued, **batching,
    })  # fmt: skip
    producer.list_topics(topic, timeout=FLUSH_S)
    letters = os.urandom(max(DISTINCT_BYTES // value_bytes, 1) * value_bytes).translate(LETTERS)
    values = [letters[at : at + value_bytes] for at in range(0, len(letters), value_bytes)]
    most = min(CALL_RECORDS, queued // CALLS_QUEUED)
    calls = [[{"value": value} for value in values[at : at + most]] for at in range(0, len(values), most)]
    sent = call = 0
    start = time.perf_counter()
    end = start + seconds
    enough = max_bytes // value_bytes
    while time.perf_counter() < end and sent < enough and not failed:
        while queued - len(producer) < most:
            producer.poll(0.005)
        sent += producer.produce_batch(topic, calls[call % len(calls)], partition=call % partitions)
        call += 1
    if producer.flush(FLUSH_S) or failed:
        raise RuntimeError(f"not all of {sent} records were taken: {failed[:1]}")
    return sent, time.perf_counter() - start


def fetch(address: str, topic: str, partitions: int, seconds: float) -> tuple[int, float]:
    """From the beginning, and again when all is read; each time the clock runs from the first records on."""
    consumer, all_of_it, count = _consumer(address, topic, partitions)
    if count <= POLL_RECORDS:  # the first call may have them all, and then there is nothing to time
        raise RuntimeError(f"{count} records in {topic}: too few to see how fast they are read")
    got = 0
    left = seconds
    while left > 0:
        consumer.assign(all_of_it)
        first = read = len(_records(consumer, FLUSH_S))
        start = time.perf_counter()
        while read < count and (waits := left - (time.perf_counter() - start)) > 0:
            read += len(_records(consumer, min(waits, POLL_S)))
        got += read - first
        left -= time.perf_counter() - start
    consumer.close()
    return got, seconds - left


def drain(address: str, topic: str, partitions: int, seconds: float) -> tuple[int, float]:
    """All there is, once; the time begins with the first fetch."""
    consumer, all_of_it, count = _consumer(address, topic, partitions)
    consumer.assign(all_of_it)
    start = time.perf_counter()
    got = 0
    while got < count:
        if time.perf_counter() - start > seconds:
            raise RuntimeError(f"{got} of {count} records within {seconds} s")
        got += len(_records(consumer, POLL_S))
    spent = time.perf_counter() - start
    consumer.close()
    return got, spent


def _consumer(address: str, topic: str, partitions: int) -> tuple[Consumer, list[TopicPartition], int]:
    """A consumer, what to assign to it, and how many records that is.

    An end that librdkafka tells of is one that an empty answer has shown, which the broker gives half a second later.
    """
    consumer = Consumer({
        "bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False, **READ_AHEAD,
    })  # fmt: skip
    all_of_it = [TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)]
    bounds = [consumer.get_watermark_offsets(each, FLUSH_S) for each in all_of_it]
    return consumer, all_of_it, sum(high - low for low, high in bounds)


def _records(consumer: Consumer, wait_s: float) -> list[Message]:
    messages = consumer.consume(POLL_RECORDS, wait_s)
    for message in messages:
        if (error := message.error()) is not None:
            raise KafkaException(error)
    return messages


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.librdkafka", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["produce", "fetch", "drain"])
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("topic")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--batch-records", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--max-bytes", type=int, default=1 << 30)
    parser.add_argument("--value-bytes", type=int, default=1024)
    parser.add_argument("--codec", default="none")
    given = parser.parse_args()
    if given.what == "produce":
        count, seconds = produce(
            given.address, given.topic, given.partitions, given.seconds, given.max_bytes, given.value_bytes,
            given.codec, given.batch_records,
        )  # fmt: skip
    else:
        read = fetch if given.what == "fetch" else drain
        count, seconds = read(given.address, given.topic, given.partitions, given.seconds)
    print(json.dumps({"records": count, "bytes": count * given.value_bytes, "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
