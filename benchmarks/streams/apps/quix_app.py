"""The workloads as apps of Quix Streams."""

import os
from dataclasses import dataclass

from quixstreams import Application

WORKLOAD = os.environ["BENCH_WORKLOAD"]
WINDOW_MS, KEPT_MS = 10_000, 600_000


@dataclass(slots=True)
class Order:
    id: int
    user: str
    amount: float
    kind: str
    currency: str


app = Application(
    broker_address=os.environ["BENCH_BROKER"],
    consumer_group=os.environ["BENCH_APP"],
    auto_offset_reset="earliest",
    commit_interval=float(os.environ["BENCH_COMMIT_S"]),
    state_dir=os.environ["BENCH_FOLDER"],
    producer_extra_config={"compression.type": "lz4"},
    loglevel="WARNING",
)
events = app.topic(os.environ["BENCH_TOPIC"], key_deserializer="bytes", value_deserializer="json")
stream = app.dataframe(events)


def count(value, state):
    state.set("count", state.get("count", 0) + 1)


if WORKLOAD == "map":

    def change(value):
        value["n"] = 1
        return value

    out = app.topic(os.environ["BENCH_OUT"], key_serializer="bytes", value_serializer="json")
    stream = stream.apply(change).to_topic(out)
elif WORKLOAD == "windows":
    stream = stream.tumbling_window(duration_ms=WINDOW_MS, grace_ms=KEPT_MS).count().final()
elif WORKLOAD == "typed":
    stream = stream.apply(lambda value: Order(**value)).filter(lambda order: order.amount >= 0)
    stream = stream.apply(count, stateful=True)
else:
    stream = stream.apply(count, stateful=True)

print("ready", flush=True)
app.run()
