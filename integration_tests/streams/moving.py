"""An app whose state moves: a table of the records' keys, windows and, where it is asked for, one of other keys."""

import os

from isthmus.streams import App

NAME = os.environ.get("APP_NAME", "app")
app = App(
    NAME,
    broker_commit_interval=0.2,
    processing_guarantee=os.environ.get("APP_GUARANTEE", "at_least_once"),
    repartition_purge_interval=0.5,
    group_protocol=os.environ.get("APP_GROUP_PROTOCOL", "classic"),
)
words = app.topic(f"{NAME}.in")
counts = app.Table("counts", default=int)
minutes = app.Table("minutes", default=int).tumbling(60)


@app.agent(words)
async def count(stream):
    async for event in stream.events():
        counts[event.key] += 1
        minutes[event.key] += event.value["n"]


if os.environ.get("APP_GROUPED"):
    app.stream(words).dedup_origin(name="once").group_by(
        lambda value: value["i"] % 11, name="elevens"
    ).group_by_key().count(name="totals")
