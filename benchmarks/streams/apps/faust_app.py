"""The workloads as apps of faust-streaming: `python -m faust -A faust_app worker`, rows in memory."""

import os

import faust

WORKLOAD = os.environ["BENCH_WORKLOAD"]
WINDOW_S, KEPT_S = 10, 600


class Order(faust.Record):
    id: int
    user: str
    amount: float
    kind: str
    currency: str


app = faust.App(
    os.environ["BENCH_APP"],
    broker=f"kafka://{os.environ['BENCH_BROKER']}",
    datadir=os.environ["BENCH_FOLDER"],
    broker_commit_interval=float(os.environ["BENCH_COMMIT_S"]),
    broker_commit_every=100_000,
    broker_max_poll_records=5_000,
    consumer_auto_offset_reset="earliest",
    stream_buffer_maxsize=16_384,
    stream_wait_empty=False,
    producer_linger=0.005,
    producer_max_batch_size=131_072,
    topic_partitions=4,
    topic_disable_leader=True,
    topic_allow_declare=True,
    web_enabled=False,
)
if WORKLOAD == "typed":
    events = app.topic(os.environ["BENCH_TOPIC"], key_type=str, value_type=Order)
else:
    events = app.topic(os.environ["BENCH_TOPIC"], key_type=str)
out = app.topic(os.environ["BENCH_OUT"], key_type=str)

if WORKLOAD == "map":

    @app.agent(events)
    async def change(stream):
        async for event in stream.events():
            value = event.value
            value["n"] = 1
            await out.send(key=event.key, value=value)
else:
    table = app.Table("counts", default=int)
    if WORKLOAD == "windows":
        table = table.tumbling(WINDOW_S, expires=KEPT_S)

    @app.agent(events)
    async def count(stream):
        if WORKLOAD == "typed":
            async for event in stream.events():
                if event.value.amount >= 0:
                    table[event.key] += 1
        else:
            async for event in stream.events():
                table[event.key] += 1
