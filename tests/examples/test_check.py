"""The self-check finds what is wrong: each control plants one fault and the row must be named."""

import pytest

from isthmus.examples.flights import check
from isthmus.examples.flights.events import Flight, events_of, read_flights

FLIGHTS = read_flights(2000)
EVENTS = events_of(FLIGHTS)
EXPECTED = check.expected_events(EVENTS)
FOUND = [((event.row, event.kind), check.digest(event.value)) for event in EVENTS]


def test_what_is_whole_is_right():
    verdict = check.check_events("aggregate", EXPECTED, FOUND)
    assert verdict.right
    assert verdict.lines() == ["2,000 of 2,000"]


def test_one_withheld_is_named():
    verdict = check.check_events("aggregate", EXPECTED, FOUND[:700] + FOUND[701:])
    assert verdict.missing == [check.name(FOUND[700][0])]
    assert verdict.flights == 1999


def test_one_doubled_is_named():
    verdict = check.check_events("aggregate", EXPECTED, [*FOUND, FOUND[700]])
    assert verdict.doubled == [f"{check.name(FOUND[700][0])} (2 times)"]
    assert not verdict.right


def test_one_altered_is_named():
    found = [*FOUND[:700], (FOUND[700][0], b"otherwise"), *FOUND[701:]]
    verdict = check.check_events("aggregate", EXPECTED, found)
    assert verdict.altered == [check.name(FOUND[700][0])]


def test_one_withheld_and_one_doubled_are_both_named_though_the_count_agrees():
    found = [*FOUND[:700], *FOUND[701:], FOUND[0]]
    assert len(found) == len(FOUND)
    verdict = check.check_events("aggregate", EXPECTED, found)
    assert verdict.missing and verdict.doubled
    assert verdict.flights == 1998


def test_what_is_no_event_is_told():
    verdict = check.check_events("aggregate", EXPECTED, [*FOUND, check.found_event(b"garbage")])
    assert "unreadable" in verdict.altered[0]
    assert not verdict.right


@pytest.mark.parametrize("field", ["scheduled", "departed", "cancelled", "delay_sum"])
def test_each_cell_of_the_hours_counts(field):
    expected = check.expected_hours(FLIGHTS)
    found = {where: dict(cell) for where, cell in expected.items()}
    assert check.check_hours(expected, found).right
    where = next(iter(found))
    found[where][field] += 1
    verdict = check.check_hours(expected, found)
    assert len(verdict.altered) == 1
    assert str(where[1]) in verdict.altered[0]


def test_carried_by_hand():
    def flight(row: int, origin: str, minute: int, delay: int | None, tail: str | None = "N1") -> Flight:
        return Flight(row, origin, "X", "C", 1, tail, minute * 60_000, delay)

    flights = [
        flight(1, "EWR", 0, 20),
        flight(2, "JFK", 100, 15),  # carried from 1
        flight(3, "JFK", 200, 90),  # the same airport
        flight(4, "LGA", 300, 14),  # not late
        flight(5, "EWR", 400, None),  # never left
        flight(6, "EWR", 500, 30),  # before it: 4, not late
        flight(7, "LGA", 505, 25),  # left at 530 with 6: the row decides; carried from 6
        flight(8, "LGA", 600, 60, None),  # nobody knows the plane
    ]
    assert {row: each["previous_row"] for row, each in check.expected_carried(flights).items()} == {2: 1, 7: 6}


def test_the_numbers_of_the_published_data():
    flights = read_flights()
    assert len(flights) == 336_776
    assert sum(flight.dep_delay is None for flight in flights) == 8_255
    assert sum(flight.tailnum is None for flight in flights) == 2_512
    by_origin = {origin: sum(flight.origin == origin for flight in flights) for origin in ("EWR", "JFK", "LGA")}
    assert by_origin == {"EWR": 120_835, "JFK": 111_279, "LGA": 104_662}
