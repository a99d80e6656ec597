"""Queries of Arroyo's SQL tests with windows, joins of windows and watermarks, and their golden outputs.

Two inputs: an impulse, which is a counter from 0 to 99 every 200 ms, and rides of cars, of which `arroyo_cars.csv` has
those up to the first one after 18:01, in their order: time of day, driver, type. They are up to 23 s out of order, but
none across an hour. Expected are the results of windows that end by 18:00.

Arroyo's sessions end when their gap is over, ours with their last event.
"""

import csv
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from isthmus.streams import App
from isthmus.streams.api.pipeline import Source
from isthmus.streams.engine.operators.windows import WindowResult
from tests.running import in_loop, run_by
from tests.streams.published.running import Given, Run, app_of, in_time_order

Row = list[Any]

IMPULSE = datetime(2023, 10, 9, 17, 13, 20, tzinfo=UTC)
RIDES = datetime(2023, 9, 18, tzinfo=UTC)
HOUR_S, GAP_S = 60 * 60, 20
TO_6_PM = timedelta(hours=18)


def ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def impulse(topic: str = "impulse") -> list[Given]:
    return [Given(topic, counter, counter, ms(IMPULSE) + 200 * counter) for counter in range(100)]


def rides() -> list[Given]:
    found = []
    with Path(__file__).with_name("arroyo_cars.csv").open() as file:
        for clock, driver, type in csv.reader(file):
            at = datetime.combine(RIDES, datetime.strptime(clock, "%H:%M:%S").time(), UTC)
            found.append(Given("cars", int(driver), {"driver": int(driver), "type": type}, ms(at)))
    return found


def all_in_one(app: App, topic: str = "impulse") -> Source[str, Any]:
    return app.stream(topic).group_by(lambda value: "all", name=f"all-{topic}")


def after(at_ms: int, begin: datetime) -> float:
    """Seconds."""
    return (at_ms - ms(begin)) / 1000


def global_session_window(app: App) -> None:
    sessions = all_in_one(app).session(GAP_S).count().final()
    sessions.map(lambda each: [after(each.start_ms, IMPULSE), after(each.end_ms, IMPULSE) + GAP_S, each.value]).to(
        "out"
    )


def session_window(app: App) -> None:
    users = app.stream("impulse").group_by(lambda counter: counter if counter % 10 else 0, name="by-user")
    sessions = users.session(GAP_S).count().final()
    sessions.map(
        lambda each: [each.key, after(each.start_ms, IMPULSE), after(each.end_ms, IMPULSE) + GAP_S, each.value]
    ).to("out")


def sliding_window_end(app: App) -> None:
    def added(total: Row, counter: int) -> Row:
        count, least, greatest = total
        return [count + 1, min(least, counter), max(greatest, counter)]

    windows = all_in_one(app).hopping(10, 2).aggregate(lambda: [0, 100, -1], added, name="totals").final()
    windows.map(lambda each: [*each.value, after(each.start_ms, IMPULSE), after(each.end_ms, IMPULSE)]).to("out")


def offset_impulse_join(app: App) -> None:
    """Of windows whose inputs are complete at different times."""
    topics = app.topic("impulse"), app.topic("delayed", watermark_delay=timedelta(minutes=10))
    ours, others = (app.stream(topic).tumbling(1).count().final() for topic in topics)
    both = ours.join(others, within=0, value=lambda each, _: [each.key, after(each.start_ms, IMPULSE)])
    both.to("out")


def grouped_aggregates(app: App) -> None:
    def added(total: Row, counter: int) -> Row:
        least, greatest, sum, count = total
        return [min(least, counter), max(greatest, counter), sum + counter, count + 1]

    groups = app.stream("impulse").group_by(lambda counter: counter % 5, name="by-rest").tumbling(24 * HOUR_S)
    totals = groups.aggregate(lambda: [100, -1, 0, 0], added, name="totals").final()
    totals.map(lambda each: [each.key, *each.value, each.value[2] / each.value[3]]).to("out")


def updating_inner_join(app: App) -> None:
    source = app.stream("impulse")
    every, odd = source.table("every"), source.filter(lambda counter: counter % 2 == 1).table("odd")
    both = every.join(odd, value=lambda left, right: [left, right], name="both")
    # one event changes both tables, and so the join twice, the second time to what it was
    both.changes().filter(lambda change: change.old != change.new).to("out")


def tight_watermark(app: App) -> None:
    hours = all_in_one(app, "cars").tumbling(HOUR_S).count().final()
    hours.map(lambda each: [after(each.end_ms, RIDES) / HOUR_S, each.value]).to("out")


def hourly_by_event_type(app: App) -> None:
    types = app.stream("cars").group_by(lambda ride: ride["type"], name="by-type").tumbling(HOUR_S).count().final()
    types.map(lambda each: [each.key, after(each.start_ms, RIDES) / HOUR_S, each.value]).to("out")


def drivers(app: App, type: str) -> Source[int, WindowResult[str, dict[int, int]]]:
    """Those that have had rides of this type, by hour."""

    def added(seen: dict[int, int], ride: Any) -> dict[int, int]:
        return seen | {ride["driver"]: 1}

    some = app.stream("cars").filter(lambda ride: ride["type"] == type)
    hours = some.group_by(lambda ride: "all", name=f"all-{type}").tumbling(HOUR_S).aggregate(dict, added, name=type)
    return hours.final().group_by(lambda each: each.start_ms, name=f"hour-{type}")


def windowed_inner_join(app: App) -> None:
    drivers(app, "dropoff").join(
        drivers(app, "pickup"),
        within=0,
        value=lambda left, right: [after(left.start_ms, RIDES) / HOUR_S, len(left.value), len(right.value)],
    ).to("out")


def windowed_outer_join(app: App) -> None:
    drivers(app, "dropoff").outer_join(
        drivers(app, "pickup"),
        within=0,
        value=lambda left, right: [
            after((left or right).start_ms, RIDES) / HOUR_S,
            *(len(each.value) if each else None for each in (left, right)),
        ],
    ).to("out")


def reinvoke_window_function(app: App) -> None:
    """Windows of windows of the same time."""
    pickups = app.stream("cars").filter(lambda ride: ride["type"] == "pickup").tumbling(HOUR_S).count().final()
    busy = pickups.filter(lambda each: each.value > 2).group_by(lambda each: "all", name="all").tumbling(HOUR_S)
    busy.count(name="busy").final().map(lambda each: [after(each.start_ms, RIDES) / HOUR_S, each.value]).to("out")


def most_active_driver_last_hour_unaligned(app: App) -> None:
    """Windows whose size is no multiple of their step; of drivers with as many rides, that with the greatest number."""
    rides = app.stream("cars").hopping(timedelta(hours=1), timedelta(minutes=40)).count(name="rides").final()
    rows = rides.map(lambda each: [each.value, each.key, after(each.start_ms, RIDES) / 60])
    windows = rows.group_by(lambda row: row[2], name="by-window").tumbling(timedelta(minutes=40))
    best = windows.reduce(max, name="best").final()
    best.map(lambda each: [each.value[1], each.value[0], each.value[2]]).to("out")


LATER = [[counter, counter / 5, counter / 5 + GAP_S, 1] for counter in range(100) if counter % 10]
SLIDING = [  # counters from start to end; begin and end of the window
    (0, 9, -8), (0, 19, -6), (0, 29, -4), (0, 39, -2), (0, 49, 0), (10, 59, 2), (20, 69, 4), (30, 79, 6), (40, 89, 8),
    (50, 99, 10), (60, 99, 12), (70, 99, 14), (80, 99, 16), (90, 99, 18),
]  # fmt: skip

OF_IMPULSE: list[tuple[Callable[[App], None], list[Row]]] = [
    (global_session_window, [[0, 39.8, 100]]),
    (session_window, [[0, 0, 38, 10], *LATER]),
    (sliding_window_end, [[high - low + 1, low, high, start, start + 10] for low, high, start in SLIDING]),
    (offset_impulse_join, [[counter, counter // 5] for counter in range(100)]),
    (grouped_aggregates, [[n, n, 95 + n, 950 + 20 * n, 20, 47.5 + n] for n in range(5)]),
    (updating_inner_join, [[None, [counter, counter]] for counter in range(1, 100, 2)]),
]

DRIVERS = [[14, 59, 101], [15, 100, 101], [16, 99, 101], [17, 99, 101]]

OF_RIDES: list[tuple[Callable[[App], None], list[Row]]] = [
    (tight_watermark, [[15, 214], [16, 326], [17, 312], [18, 312]]),
    (
        hourly_by_event_type,
        [
            ["dropoff", 14, 66],
            ["pickup", 14, 148],
            ["pickup", 15, 167],
            ["dropoff", 15, 159],
            ["pickup", 16, 157],
            ["dropoff", 16, 155],
            ["dropoff", 17, 156],
            ["pickup", 17, 156],
        ],
    ),
    (windowed_inner_join, DRIVERS),
    (windowed_outer_join, DRIVERS),
    (reinvoke_window_function, [[14, 1], [15, 9], [16, 10], [17, 11]]),
    (
        most_active_driver_last_hour_unaligned,
        [[101, 5, 14 * 60], [192, 6, 880], [192, 6, 920], [195, 6, 960], [126, 7, 1000]],
    ),
]

BATCHES = pytest.mark.parametrize("batch", [1, 13, 1_000])


@BATCHES
@pytest.mark.parametrize(("query", "expected"), OF_IMPULSE)
@run_by(in_loop)
async def test_the_impulse_gives_the_golden_output(
    query: Callable[[App], None], expected: list[Row], batch: int
) -> None:
    app = app_of(query.__name__)
    query(app)
    run = Run(app)
    topics = [topic for topic in ("impulse", "delayed") if topic in app.input_topics()]
    await run.give(in_time_order(*map(impulse, topics)), batches=(batch,))
    await run.end()
    assert sorted(run.values("out"), key=str) == sorted(expected, key=str)
    await run.close()


@BATCHES
@pytest.mark.parametrize(("query", "expected"), OF_RIDES)
@run_by(in_loop)
async def test_the_rides_give_the_golden_output(query: Callable[[App], None], expected: list[Row], batch: int) -> None:
    app = app_of(query.__name__)
    query(app)
    run = Run(app)
    await run.give(rides(), batches=(batch,))
    run.driver.advance_event_time(ms(RIDES + TO_6_PM))
    assert sorted(run.values("out")) == sorted(expected)
    await run.close()
