"""The stream app of the flights: its page, records that are no flights, and spells against the demo's self-check."""

from __future__ import annotations

import json
from collections.abc import Sequence

from isthmus.client.partitioner import partition_for_key
from isthmus.examples.flights import check
from isthmus.examples.flights.delays import app
from isthmus.examples.flights.events import AIRPORTS, PARTITIONS, Event, events_of, fleet_events, read_flights
from isthmus.examples.flights.replay import partition_of
from isthmus.examples.flights.watch import said_late, said_of_spells
from isthmus.streams import TestDriver, TestRecord

BATCH = 500
RESTS_S = 6.0  # longer than topics without records are waited for


def test_a_plane_has_a_page_and_what_is_no_flight_holds_up_nobody() -> None:
    flight = {"kind": "departed", "row": 7, "origin": "EWR", "tailnum": "N1", "dep_delay": 3}
    with TestDriver(app) as driver:
        driver.send("ewr.flights", key=b"N1", value=b"no flight", timestamp_ms=1)
        driver.send("ewr.flights", key=b"N1", value=json.dumps(flight).encode(), timestamp_ms=2)
        assert [each.value for each in driver.read(app.dead_letters)] == [b"no flight"]
        left = {"left_ms": 2, "row": 7, "origin": "EWR", "dep_delay": 3}
        assert driver.page("/planes/N1/").json() == {"departures": [left], "last_spell": None}
        assert driver.page("/planes/N2/").json() == {"departures": [], "last_spell": None}


def records(events: Sequence[Event]) -> list[TestRecord]:
    return [TestRecord(event.value, key=event.key, timestamp_ms=event.timestamp_ms) for event in events]


def test_late_departures_and_spells_are_those_of_the_csv_whichever_airport_is_behind() -> None:
    flights = read_flights(6_000)
    fleet = {(event.key or b"").decode(): event.body for event in fleet_events()}
    complete = check.watermarks(events_of(flights), lambda event: partition_of(event, PARTITIONS))

    def complete_ms(tail: str) -> int:
        return complete[partition_for_key(tail.encode(), PARTITIONS)]

    with TestDriver(app, partitions=PARTITIONS) as driver:
        driver.send("fleet", *records(fleet_events()))
        for origin in reversed(AIRPORTS):  # one after the other: as far apart as can be
            driver.advance(RESTS_S)
            events = records([event for event in events_of(flights) if event.body["origin"] == origin])
            for at in range(0, len(events), BATCH):
                driver.send(f"{origin.lower()}.flights", *events[at : at + BATCH])
        driver.restart()
        late = said_late((each.key.decode(), each.value) for each in driver.read("delays.late"))
        spells = said_of_spells((each.key.decode(), each.value) for each in driver.read("delays.spells"))
        expected = check.expected_spells(flights, fleet, complete_ms)
        (tail, start_ms), last = max(expected.items(), key=lambda each: each[0][1])
        assert driver.page(f"/planes/{tail}/").json()["last_spell"] == {"start_ms": start_ms, **last}
    assert late == check.expected_late(flights, fleet, complete_ms)
    assert spells == expected
    assert max(spell["airports"] for spell in spells.values()) > 1
