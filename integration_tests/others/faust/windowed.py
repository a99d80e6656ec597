"""The shape of faust's windowed examples: a tumbling window over a field, and each sum sent on as it changes."""

import os
from datetime import timedelta

import faust


class Reading(faust.Record):
    sensor: str
    value: int
    at: float


app = faust.App("windows", broker=os.environ["BROKER"], topic_partitions=4, version=1)
readings = app.topic("readings", key_type=str, value_type=Reading)
sums = app.topic("sums", key_type=str, value_type=int)
totals = app.Table("totals", default=int).tumbling(timedelta(seconds=60), expires=timedelta(days=36500))


@app.agent(readings)
async def add(stream):
    async for reading in stream:
        window = totals.relative_to_field(Reading.at)[reading.sensor]
        window += reading.value
        await sums.send(key=reading.sensor, value=window.value())
