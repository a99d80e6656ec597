"""The workloads as apps of Isthmus, by agents or by pipelines: `python -m isthmus.streams FILE:app`."""

from __future__ import annotations

import os
from typing import Any

from isthmus.streams import App, Record

WORKLOAD, STYLE = os.environ["BENCH_WORKLOAD"], os.environ["BENCH_STYLE"]
WINDOW_S, KEPT_S = 10, 600


class Order(Record):
    id: int
    user: str
    amount: float
    kind: str
    currency: str


app = App(
    os.environ["BENCH_APP"],
    store=os.environ["BENCH_STORE"],
    processing_guarantee=os.environ["BENCH_GUARANTEE"],
    broker_commit_interval=float(os.environ["BENCH_COMMIT_S"]),
    datadir=os.environ["BENCH_FOLDER"],
    topic_partitions=4,
)
if WORKLOAD == "typed":
    events = app.topic(os.environ["BENCH_TOPIC"], value_type=Order)
elif WORKLOAD == "copy":
    events = app.topic(os.environ["BENCH_TOPIC"], value_serializer="raw")
else:
    events = app.topic(os.environ["BENCH_TOPIC"])
out = app.topic(os.environ["BENCH_OUT"], value_serializer="raw" if WORKLOAD == "copy" else None)


def agents() -> None:
    if WORKLOAD == "map":

        @app.agent(events)
        async def change(stream: Any) -> None:
            async for event in stream.events():
                value = event.value
                value["n"] = 1
                await out.send(key=event.key, value=value)

        return
    if WORKLOAD == "copy":

        @app.agent(events)
        async def copy(stream: Any) -> None:
            async for event in stream.events():
                await out.send(key=event.key, value=event.value)

        return
    table: Any = app.Table("counts", default=int)
    if WORKLOAD == "windows":
        table = table.tumbling(WINDOW_S, expires=KEPT_S)

    @app.agent(events)
    async def count(stream: Any) -> None:
        if WORKLOAD == "typed":
            async for event in stream.events():
                if event.value.amount >= 0:
                    table[event.key] += 1
        else:
            async for event in stream.events():
                table[event.key] += 1


def pipelines() -> None:
    stream: Any = app.stream(events)
    if WORKLOAD == "map":
        stream.map(lambda value: {**value, "n": 1}).to(out)
    elif WORKLOAD == "copy":
        stream.map(lambda value: value).to(out)
    elif WORKLOAD == "windows":
        stream.tumbling(WINDOW_S, grace=KEPT_S).count(name="counts").current()
    elif WORKLOAD == "typed":
        stream.filter(lambda order: order.amount >= 0).group_by_key().count(name="counts")
    else:
        stream.group_by_key().count(name="counts")


if STYLE == "agent":
    agents()
else:
    pipelines()
