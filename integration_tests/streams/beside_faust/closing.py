# mypy: ignore-errors
"""Windows of tables that close, and are given to `on_window_close`. Runs with both imports (see `host.py`)."""

import time
from datetime import timedelta

import faust

BEGIN = 1_700_000_000
app = faust.App("closing", topic_partitions=4, table_cleanup_interval=3600)
events = app.topic("events", key_type=str, value_type=int)


def said(table):
    async def closed(key, value):
        name, (start, end) = key
        print("closed", table, name, start, value)
        print("length", round(end - start, 3))

    return closed


def plain(key, value):
    print("plain", key[0], key[1][0], value)


def never(key, value):
    print("never")


sums = app.Table("sums", default=int, on_window_close=said("sums")).tumbling(10, expires=timedelta(hours=1))
hops = app.Table("hops", default=int, on_window_close=said("hops")).hopping(10, 5, expires=3600)
lists = app.Table("lists", default=list, on_window_close=plain).tumbling(10, expires=3600)
kept = app.Table("kept", default=int, on_window_close=never).tumbling(10)


@app.agent(events)
async def add(stream):
    async for event in stream.events():
        sums[event.key] += event.value
        if event.value < 100:
            hops[event.key] += event.value
            lists[event.key] += [event.value]
            kept[event.key] += event.value
        print("event", event.key, event.value)


async def send(partitions):
    """Events of half a minute long ago, then one of now in each partition."""
    for number in range(6):
        for key in "abcd":
            at = BEGIN + number * 7
            await events.send(key=key, value=number, timestamp=at, partition=ord(key) % partitions)
    for partition in range(partitions):
        await events.send(key=f"now{partition}", value=1, timestamp=time.time(), partition=partition)


async def late():
    await events.send(key="a", value=100, timestamp=BEGIN, partition=0)
