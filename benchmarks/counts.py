"""The app of the case `streams`: counts events by key. Its names come from the environment, anew for each sample."""

from __future__ import annotations

import os
from typing import Any

from isthmus.streams import App

app = App(os.environ.get("BENCH_APP", "bench-counts"))
events = app.topic(os.environ.get("BENCH_TOPIC", "events"))
counts = app.Table("counts", default=int)


@app.agent(events)
async def count(stream: Any) -> None:
    async for event in stream.events():
        counts[event.key] += 1
