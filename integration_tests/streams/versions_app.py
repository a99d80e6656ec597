"""Five versions of one app; CODE_VERSION says which. CODE_BACK: with what leads back to an earlier one."""

import os
from typing import Any

from isthmus.streams import App

NAME = os.environ.get("APP_NAME", "versions")
VERSION = int(os.environ.get("CODE_VERSION", "1"))
app = App(
    NAME,
    broker_commit_interval=0.2,
    broker_session_timeout=6.0,
    processing_guarantee="exactly_once",
    consumer_group_instance_id=os.environ.get("APP_INSTANCE", "one"),
)
orders, payments = app.topic(f"{NAME}.orders"), app.topic(f"{NAME}.payments")
out = app.topic(f"{NAME}.out")

# From version 3 on a row of `counts` has the last order, too.
counts: Any = app.Table("counts", default=(int if VERSION < 3 else dict), version=1 if VERSION < 3 else 2)
if VERSION >= 3:
    counts.migration(from_version=1)(lambda key, value: {"count": value, "last": None})
elif os.environ.get("CODE_BACK"):
    counts.migration(from_version=2, to_version=1)(lambda key, value: value["count"])

if VERSION < 5:
    windows = app.Table("minutes", default=int).tumbling(60)
else:
    app.retire("minutes")
    windows = app.Table("halves", default=int).tumbling(30)


@app.agent(orders, tables=[counts, windows])
async def count(stream):
    async for event in stream.events():
        if VERSION < 3:
            counts[event.key] += 1
        else:
            counts[event.key] = {"count": counts[event.key].get("count", 0) + 1, "last": event.value["i"]}
        windows[event.key] += 1
        await out.send(key=event.key, value=event.value)


if VERSION >= 2:
    sums = app.Table("sums", default=int)

    # Until version 3 it looks at counts, so that payments belong to the tasks of orders; from 4 on to those of refunds.
    @app.agent(payments, tables=[sums, counts] if VERSION < 4 else [sums])
    async def add(stream):
        async for event in stream.events():
            sums[event.key] += event.value["i"]


if VERSION >= 4:

    @app.agent(app.topic(f"{NAME}.refunds"), tables=[sums])
    async def subtract(stream):
        async for event in stream.events():
            sums[event.key] -= event.value["i"]
