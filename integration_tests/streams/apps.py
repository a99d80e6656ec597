"""Apps under test; each test names its own by the environment, so that groups and topics are its own."""

import asyncio
import os

from isthmus.streams import App

NAME = os.environ.get("APP_NAME", "app")
app = App(
    NAME,
    broker_commit_interval=float(os.environ.get("APP_COMMIT_S", "0.2")),
    table_standby_replicas=int(os.environ.get("APP_STANDBYS", "0")),
    store=os.environ.get("APP_TABLE_STORE", "memory://"),
    datadir=os.environ.get("APP_FOLDER", "unused"),
    group_protocol=os.environ.get("APP_GROUP_PROTOCOL", "classic"),
    processing_guarantee=os.environ.get("APP_GUARANTEE", "at_least_once"),
)
INPUTS = os.environ.get("APP_INPUTS", "in").split(",")
words = app.topic(*(f"{NAME}.{each}" for each in INPUTS), on_error=os.environ.get("APP_ON_ERROR", "fail"))
out = app.topic(f"{NAME}.out")
counts = app.Table("counts", default=int)
minutes = app.Table("minutes", default=int).tumbling(60)
SLOW_EVERY = int(os.environ.get("APP_SLOW_EVERY", "0"))  # a pause of 1 ms after so many events


@app.agent(words)
async def count(stream):
    seen = 0
    async for event in stream.events():
        counts[event.key] += 1
        minutes[event.key] += event.value["n"]
        await out.send(key=event.key, value=event.value)
        seen += 1
        if SLOW_EVERY and seen % SLOW_EVERY == 0:
            await asyncio.sleep(0.001)
