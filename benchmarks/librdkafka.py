"""librdkafka as a load: `python -m benchmarks.librdkafka produce|fetch|drain HOST:PORT TOPIC`.

librdkafka's defaults but for what the options say, by its C functions, with `--python` by confluent-kafka's calls.
Prints one JSON line: records, bytes, seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

from . import confluent, rdkafka

QUEUED_BYTES = 128 << 20
QUEUED_RECORDS = 500_000
DISTINCT_BYTES = 20 << 20  # of values that are sent again and again
CALL_RECORDS = 500  # of them at a time to one partition
SMALL_QUEUED = 20_000  # records that wait in a producer of small batches
CALLS_QUEUED = 4  # so many at least wait in the producer
LETTERS = bytes(ord("A") + each % 26 for each in range(256))
FIRST_S = 30.0
FEW_RECORDS = 10_000
# By default the consumer stops fetching for a second whenever 100,000 records wait in it, which is 10 MB of small ones:
# what is measured then is that second. librdkafka's own performance tool raises the first, too.
# And who begins anew waits for the answer to what was asked for at the end before: by default half a second, in which
# nothing is read.
READ_AHEAD = {
    "queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 65_536, "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 5,
}  # fmt: skip
POLL_S = 0.05  # a call waits for so long, at the end of a partition too
ROOM_MS = 5  # and for room in the queue

TRANSACTIONAL = "transactional"
KINDS: dict[str, dict[str, object]] = {
    "plain": {},
    "idempotent": {"enable.idempotence": True},
    TRANSACTIONAL: {"transactional.id": f"bench-{os.getpid()}"},
}
TRANSACTION_RECORDS = 10_000  # in each, where a producer in bulk is transactional

Make = type[rdkafka.Client] | type[confluent.Client]


def produce(
    make: Make, address: str, topic: str, partitions: int, seconds: float, max_bytes: int, value_bytes: int,
    codec: str, batch_records: int, kind: str,
) -> tuple[int, float]:  # fmt: skip
    """acks=all; the time includes the last answer. batch_records: most in a batch, without linger; 0: the defaults.
    kind: plain, idempotent, or transactional with a commit after every TRANSACTION_RECORDS."""
    queued = min(SMALL_QUEUED if batch_records else QUEUED_RECORDS, QUEUED_BYTES // value_bytes)
    batching = {"linger.ms": 0, "batch.num.messages": batch_records} if batch_records else {}
    options = {
        "acks": "all", "delivery.report.only.error": True, "compression.type": codec,
        "queue.buffering.max.kbytes": 1_048_576, "queue.buffering.max.messages": queued, **batching, **KINDS[kind],
    }  # fmt: skip
    with make(rdkafka.PRODUCER, address, topic, options) as producer:
        letters = os.urandom(max(DISTINCT_BYTES // value_bytes, 1) * value_bytes).translate(LETTERS)
        values = [letters[at : at + value_bytes] for at in range(0, len(letters), value_bytes)]
        most = min(CALL_RECORDS, queued // CALLS_QUEUED)
        calls: list[Any] = [producer.records(values[at : at + most]) for at in range(0, len(values), most)]
        transactional = producer if kind == TRANSACTIONAL and isinstance(producer, rdkafka.Client) else None
        if transactional:
            transactional.init_transactions()
            transactional.begin_transaction()
        sent = call = 0
        commit_at = TRANSACTION_RECORDS
        start = time.perf_counter()
        end = start + seconds
        enough = max_bytes // value_bytes
        while time.perf_counter() < end and sent < enough and not producer.failed:
            while queued - producer.waiting() < most:
                producer.poll(ROOM_MS)
            records = calls[call % len(calls)]
            producer.produce(call % partitions, records)
            sent += len(records)
            call += 1
            if transactional and sent >= commit_at:
                commit_at += TRANSACTION_RECORDS
                transactional.commit_transaction()
                transactional.begin_transaction()
        if transactional:
            transactional.commit_transaction()
        producer.flush()
        if producer.failed:
            raise RuntimeError(f"not all of {sent} records were taken: {producer.failed[0]}")
        return sent, time.perf_counter() - start


def fetch(
    make: Make, address: str, topic: str, partitions: int, seconds: float, isolation: str
) -> tuple[int, float]:  # fmt: skip
    """From the beginning, and again when all is read; each time the clock runs from the first records on."""
    with make(rdkafka.CONSUMER, address, topic, {**READ_AHEAD, "isolation.level": isolation}) as consumer:
        count = consumer.count(partitions)
        if count <= FEW_RECORDS:  # the first call may have them all, and then there is nothing to time
            raise RuntimeError(f"{count} records in {topic}: too few to see how fast they are read")
        got = 0
        left = seconds
        while left > 0:
            consumer.start(partitions)
            first = read = _first_records(consumer)
            start = time.perf_counter()
            while read < count and (waits := left - (time.perf_counter() - start)) > 0:
                read += _records(consumer, min(waits, POLL_S))
            got += read - first
            left -= time.perf_counter() - start
            consumer.stop(partitions)
        return got, seconds - left


def drain(
    make: Make, address: str, topic: str, partitions: int, seconds: float, isolation: str
) -> tuple[int, float]:  # fmt: skip
    """All there is, once; the time begins with the first fetch."""
    with make(rdkafka.CONSUMER, address, topic, {**READ_AHEAD, "isolation.level": isolation}) as consumer:
        count = consumer.count(partitions)
        start = time.perf_counter()
        consumer.start(partitions)
        got = 0
        while got < count:
            if time.perf_counter() - start > seconds:
                raise RuntimeError(f"{got} of {count} records within {seconds} s")
            got += _records(consumer, POLL_S)
        spent = time.perf_counter() - start
        consumer.stop(partitions)
        return got, spent


def _first_records(consumer: rdkafka.Client | confluent.Client) -> int:
    """A call may end without a record before there are any."""
    end = time.perf_counter() + FIRST_S
    while not (came := _records(consumer, POLL_S)):
        if time.perf_counter() > end:
            raise RuntimeError(f"no records within {FIRST_S} s")
    return came


def _records(consumer: rdkafka.Client | confluent.Client, wait_s: float) -> int:
    came = consumer.consume(wait_s)
    if consumer.failed:
        raise RuntimeError(consumer.failed[0])
    return came


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
    parser.add_argument("--kind", choices=KINDS, default="plain", help="of the producer")
    parser.add_argument("--isolation", default="read_committed", help="of the consumer (default read_committed)")
    parser.add_argument("--python", action="store_true", help="confluent-kafka's Python calls")
    given = parser.parse_args()
    make = confluent.Client if given.python else rdkafka.Client
    if given.what == "produce":
        count, seconds = produce(
            make, given.address, given.topic, given.partitions, given.seconds, given.max_bytes, given.value_bytes,
            given.codec, given.batch_records, given.kind,
        )  # fmt: skip
    else:
        read = fetch if given.what == "fetch" else drain
        count, seconds = read(make, given.address, given.topic, given.partitions, given.seconds, given.isolation)
    print(json.dumps({"records": count, "bytes": count * given.value_bytes, "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
