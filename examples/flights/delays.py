"""The stream app of the flights: what each hour was like at each airport, and which delays planes carried along.

It reads the three airports' topics as they arrive in the aggregate. Partition n of the three holds the same planes
(one key, one partitioner), so each task sees all a plane did. Nothing is dropped for being late: the airports' events
arrive in any order between each other, so a plane's departures are kept in the order they happened, and a pair that a
late event turns out to have parted is taken back.

    isthmus worker examples/flights/delays.py:app --bootstrap aggregate
"""

from __future__ import annotations

from bisect import insort
from typing import Any

from isthmus.streams import App

HOUR_S = 3600
LATE_MINUTES = 15

app = App("delays")
flights = app.topic("ewr.flights", "jfk.flights", "lga.flights", value="json")
carried = app.topic("delays.carried", value="json")

# (origin, start of the hour in ms) -> counts; each task keeps its partial, readers add them up
hours = app.Table("hours", default=lambda: [0, 0, 0, 0]).tumbling(HOUR_S)
SCHEDULED, DEPARTED, CANCELLED, DELAY_SUM = range(4)

# tail number -> its departures as [left_ms, row, origin, dep_delay], by time; the last is the last
planes = app.Table("planes", default=list)


@app.agent(flights)
async def delays(stream: Any) -> None:
    async for event in stream.events():
        flight = event.value
        cell = hours[flight["origin"]].current()
        match flight["kind"]:
            case "scheduled":
                cell[SCHEDULED] += 1
            case "cancelled":
                cell[CANCELLED] += 1
            case "departed":
                cell[DEPARTED] += 1
                cell[DELAY_SUM] += flight["dep_delay"]
                if flight["tailnum"]:
                    await departed(event.timestamp_ms, flight)
        hours[flight["origin"]] = cell


async def departed(left_ms: int, flight: dict[str, Any]) -> None:
    """Put a departure where it belongs, and say anew what it and the one after it carry."""
    departures = planes[flight["tailnum"]]
    this = [left_ms, flight["row"], flight["origin"], flight["dep_delay"]]
    insort(departures, this)
    planes[flight["tailnum"]] = departures
    at = len(departures) - 1
    while departures[at] is not this:
        at -= 1
    await say(flight["tailnum"], departures[at - 1] if at else None, this)
    if at + 1 < len(departures):
        await say(flight["tailnum"], this, departures[at + 1])


async def say(tail: str, before: list[Any] | None, after: list[Any]) -> None:
    """Write what a late `after` carries from `before`, or that it carries nothing.

    The nothing is said too: a worker that died may have said otherwise, before it knew of a flight in between.
    """
    if after[3] < LATE_MINUTES:
        return
    value = None
    if before and before[2] != after[2] and before[3] >= LATE_MINUTES:
        value = {
            "row": after[1],
            "tailnum": tail,
            "origin": after[2],
            "dep_delay": after[3],
            "previous_row": before[1],
            "previous_origin": before[2],
            "previous_dep_delay": before[3],
        }
    await carried.send(key=str(after[1]), value=value)
