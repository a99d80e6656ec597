"""The stream app of the flights: what each hour was like at each airport, which delays planes carried along, and how
long planes stayed late.

It reads the three airports' topics as they arrive in the aggregate. Partition n of the three holds the same planes
(one key, one partitioner), so each task sees all a plane did. Nothing is dropped for being late: the airports' events
arrive in any order between each other, so a plane's departures are kept in the order they happened, and a pair that a
late event turns out to have parted is taken back.

Late departures are joined with the fleet, by tail number, and put together to late spells, which are session windows.
These go by event time: each airport is waited for, however far it is behind, so that a spell has the late departures
of all three.

    isthmus worker examples/flights/delays.py:app --bootstrap aggregate
"""

from __future__ import annotations

from bisect import bisect, insort
from typing import Any

from isthmus.streams import App
from isthmus.streams.aggregates import Count, CountDistinct, First, Max, Sum

HOUR_S = 3600
PERIOD_MS = 30 * 24 * HOUR_S * 1000
LATE_MINUTES = 15
SPELL_S = 24 * HOUR_S  # a late spell is over when the plane did not leave late for so long

app = App("delays")
# What is no JSON goes to the topic delays-dead-letters, and holds up nobody.
# An airport that rests is waited for: what it sends later would be late for spells that are over.
flights = app.topic(
    "ewr.flights", "jfk.flights", "lga.flights", key_type=str, on_error="dead_letter", idle_after=float("inf")
)
carried = app.topic("delays.carried")

# (origin, start of the hour in ms) -> counts; each task keeps its partial, readers add them up
hours = app.Table("hours", default=lambda: [0, 0, 0, 0]).tumbling(HOUR_S)
SCHEDULED, DEPARTED, CANCELLED, DELAY_SUM = range(4)

# Rows are written whole with each change, so that they are kept small: a plane's departures are in periods.
# (tail number, period) -> its departures then as [left_ms, row, origin, dep_delay], by time
planes = app.Table("planes", default=list)
# tail number -> its periods, by time
periods = app.Table("periods", default=list)


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
    tail, period = flight["tailnum"], left_ms // PERIOD_MS
    known = periods[tail]
    if period not in known:
        insort(known, period)
        periods[tail] = known
    departures = planes[tail, period]
    this = [left_ms, flight["row"], flight["origin"], flight["dep_delay"]]
    at = bisect(departures, this)
    departures.insert(at, this)
    planes[tail, period] = departures
    place = known.index(period)
    before = departures[:at] or (planes[tail, known[place - 1]] if place else [])
    after = departures[at + 1 :] or (planes[tail, known[place + 1]] if place + 1 < len(known) else [])
    await say(tail, before[-1] if before else None, this)
    if after:
        await say(tail, this, after[0])


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


# --- Late departures with their planes, and late spells ---------------------------------------------

# The fleet has the flights' keys, tail numbers, and as many partitions: a plane's row is in the task of its flights.
fleet = app.stream(app.topic("fleet", key_type=str)).table("fleet", history=HOUR_S)


def is_late(flight: dict[str, Any]) -> bool:
    return flight["kind"] == "departed" and flight["dep_delay"] >= LATE_MINUTES and bool(flight["tailnum"])


def with_plane(flight: dict[str, Any], plane: dict[str, Any] | None) -> dict[str, Any]:
    """plane: None if the fleet does not have it, as with every sixth plane."""
    known = plane or {"manufacturer": None, "model": None, "seats": None}
    return {
        **{name: flight[name] for name in ("row", "origin", "dest", "dep_delay")},
        **{name: known[name] for name in ("manufacturer", "model", "seats")},
    }


# With a grace, even of 0, a departure waits until the fleet is there, and all airports have come to its time.
late = app.stream(flights).filter(is_late, name="late").left_join(fleet, value=with_plane, grace=0, name="late-planes")
late.to("delays.late")

spells = late.session(SPELL_S).aggregate(
    departures=Count(),
    airports=CountDistinct("origin"),
    minutes=Sum("dep_delay"),
    worst=Max("dep_delay"),
    model=First("model"),
    seats=Sum("seats"),  # of all its departures: so many people were late, at the most
    name="spells",
)
spells.final().to("delays.spells")
last_spells = (
    spells.final()
    .map(lambda spell: {"start_ms": spell.start_ms, "end_ms": spell.end_ms, **spell.value})
    .table("last-spells")
)


@app.page("/planes/{tailnum}/")
@app.table_route(table=periods, match_info="tailnum")
async def plane_page(web: Any, request: Any, tailnum: str) -> Any:
    """What a plane did, in order, and its last late spell that is over; from the worker that has it."""
    names = ("left_ms", "row", "origin", "dep_delay")
    rows = [planes[tailnum, period] for period in periods.get(tailnum, [])]
    departures = [dict(zip(names, each, strict=True)) for row in rows for each in row]
    return web.json({"departures": departures, "last_spell": last_spells.get(tailnum)})
