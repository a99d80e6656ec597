"""The workloads as dataflows of Bytewax, which end with their input. State has no changelog.

Prints a line of JSON when BENCH_FROM events were taken, and one at the end with what came out.
"""

import json
import os
import resource
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.operators import windowing
from bytewax.operators.windowing import EventClock, TumblingWindower
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main

WORKLOAD = os.environ["BENCH_WORKLOAD"]
FROM = int(os.environ["BENCH_FROM"])
BROKERS = [os.environ["BENCH_BROKER"]]
PARTITIONS = 4
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Order:
    id: int
    user: str
    amount: float
    kind: str
    currency: str


taken = 0


def say(**more) -> None:
    print(json.dumps({"taken": taken, "cpu_s": time.process_time(), "wall_s": time.perf_counter(), **more}), flush=True)


def mark(batch):
    """Of each batch of a partition that is read."""
    global taken
    before = taken
    taken += len(batch)
    if before < FROM <= taken:
        say()
    return batch


class Kept(DynamicSink, StatelessSinkPartition):
    """How often each value was the last of its key."""

    def __init__(self):
        self.values = Counter()

    def build(self, step_id, worker_index, worker_count):
        return self

    def write_batch(self, items):
        self.values.update(value for _, value in items)


def decoded(message):
    return message.key.decode(), orjson.loads(message.value), message.timestamp[1]


def typed(message):
    return message.key.decode(), Order(**orjson.loads(message.value))


def windowed(pair):
    _, (_, count) = pair
    return "", count


flow = Dataflow("bench")
source = KafkaSource(BROKERS, [os.environ["BENCH_TOPIC"]], tail=False, batch_size=5000)
stream = op.flat_map_batch("mark", op.input("in", flow, source), mark)
kept = Kept()
if WORKLOAD == "map":

    def change(message):
        value = orjson.loads(message.value)
        value["n"] = 1
        return KafkaSinkMessage(message.key, orjson.dumps(value))

    sink = KafkaSink(BROKERS, os.environ["BENCH_OUT"], {"compression.type": "lz4", "linger.ms": "5"})
    op.output("out", op.map("change", stream, change), sink)
else:
    if WORKLOAD == "typed":
        stream = op.filter("sound", op.map("decoded", stream, typed), lambda taken: taken[1].amount >= 0)
    else:
        stream = op.map("decoded", stream, decoded)
    if WORKLOAD == "windows":
        clock = EventClock(
            ts_getter=lambda taken: EPOCH + timedelta(milliseconds=taken[2]),
            wait_for_system_duration=timedelta(seconds=600),
        )
        windows = TumblingWindower(length=timedelta(seconds=10), align_to=EPOCH)
        counted = windowing.count_window("count", stream, clock, windows, lambda taken: taken[0]).down
        counted = op.map("values", counted, windowed)
    else:
        counted = op.count_final("count", stream, lambda taken: taken[0])
    op.output("out", counted, kept)

print("ready", flush=True)
cluster_main(flow, [], 0, epoch_interval=timedelta(seconds=10))
say(counts=sorted(kept.values.items()), rss=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
