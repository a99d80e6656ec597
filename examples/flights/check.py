"""The demo's self-check: what the clusters, the stream tables and the Delta table hold, against the CSV, row by row.

The expectations are made from the CSV by plain Python that shares nothing with the stream engine or Spark. Every
comparison gives a `Verdict` that names what is missing, doubled or altered.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import orjson

from .events import AIRPORTS, LATE_MINUTES, Event, Flight

HOUR_MS = 3_600_000
SPELL_GAP_MS = 24 * HOUR_MS
SHOWN = 10  # differences of a kind that are named; the rest is counted

RowKind = tuple[int, str]


@dataclass
class Verdict:
    """How one place compares with the CSV. flights: those of which all is right; expected: those of the CSV."""

    place: str
    expected: int
    flights: int = 0
    missing: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        return self.flights == self.expected and not (self.missing or self.doubled or self.altered)

    def lines(self) -> list[str]:
        """One line with the count, then the differences by name."""
        said = [f"{self.flights:,} of {self.expected:,}"]
        for what in ("missing", "doubled", "altered"):
            found = getattr(self, what)
            if found:
                more = f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
                said.append(f"{len(found):,} {what}: {'; '.join(found[:SHOWN])}{more}")
        return said


def digest(value: bytes | memoryview) -> bytes:
    return blake2b(value, digest_size=8).digest()


def expected_events(events: Iterable[Event]) -> dict[RowKind, bytes]:
    return {(event.row, event.kind): digest(event.value) for event in events}


def found_event(value: bytes | memoryview) -> tuple[RowKind, bytes]:
    """(row, kind) and digest of a record's value; row -1 when it is no event at all."""
    try:
        body = orjson.loads(value)
        return (body["row"], body["kind"]), digest(value)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return (-1, f"unreadable {bytes(value)[:60]!r}"), digest(value)


def check_events(place: str, expected: Mapping[RowKind, bytes], found: Iterable[tuple[RowKind, bytes]]) -> Verdict:
    """Compare as a set of (row, kind, digest of value): each event once, and as it was written."""
    seen: Counter[RowKind] = Counter()
    wrong: set[RowKind] = set()
    verdict = Verdict(place, len({row for row, _ in expected}))
    for what, hashed in found:
        seen[what] += 1
        if expected.get(what) != hashed and what not in wrong:
            wrong.add(what)
            text = name(what) if what in expected else f"{name(what)} (not in the CSV)"
            verdict.altered.append(text)
    verdict.missing = [name(what) for what in expected if what not in seen]
    verdict.doubled = [f"{name(what)} ({count} times)" for what, count in seen.items() if count > 1]
    bad = wrong | {what for what in expected if seen[what] != 1}
    verdict.flights = verdict.expected - len({row for row, _ in bad if row != -1} & {row for row, _ in expected})
    return verdict


def name(what: RowKind) -> str:
    return f"row {what[0]} {what[1]}"


def expected_hours(flights: Iterable[Flight]) -> dict[tuple[str, int], dict[str, int]]:
    """(origin, hour of event time in ms) -> scheduled, departed, cancelled, delay_sum; by plain counting."""
    cells: dict[tuple[str, int], dict[str, int]] = defaultdict(
        lambda: {"scheduled": 0, "departed": 0, "cancelled": 0, "delay_sum": 0}
    )
    for flight in flights:
        known = flight.sched_ms - 2 * HOUR_MS
        cells[flight.origin, known - known % HOUR_MS]["scheduled"] += 1
        if flight.dep_delay is None:
            cells[flight.origin, flight.sched_ms - flight.sched_ms % HOUR_MS]["cancelled"] += 1
        else:
            left = flight.sched_ms + flight.dep_delay * 60_000
            cell = cells[flight.origin, left - left % HOUR_MS]
            cell["departed"] += 1
            cell["delay_sum"] += flight.dep_delay
    return dict(cells)


def check_hours(
    expected: Mapping[tuple[str, int], Mapping[str, int]], found: Mapping[tuple[str, int], Mapping[str, int]]
) -> Verdict:
    """Each cell of the table of hours; a flight counts as right when the cell it was scheduled in is."""
    verdict = Verdict("stream table", sum(cell["scheduled"] for cell in expected.values()))
    for where, cell in expected.items():
        if where not in found:
            verdict.missing.append(f"{where[0]} hour {where[1]}")
        elif dict(found[where]) != dict(cell):
            verdict.altered.append(f"{where[0]} hour {where[1]}: {dict(found[where])} for {dict(cell)}")
        else:
            verdict.flights += cell["scheduled"]
    verdict.altered += [
        f"{origin} hour {hour} (not in the CSV)" for origin, hour in found if (origin, hour) not in expected
    ]
    return verdict


def departures_by_plane(flights: Iterable[Flight]) -> dict[str, list[Flight]]:
    """tail number -> its departures from New York, in the order they left."""
    planes: dict[str, list[Flight]] = defaultdict(list)
    for flight in flights:
        if flight.tailnum and flight.dep_delay is not None:
            planes[flight.tailnum].append(flight)
    for departures in planes.values():
        departures.sort(key=lambda flight: (flight.departed_ms, flight.row))
    return dict(planes)


def expected_last(flights: Iterable[Flight]) -> dict[str, int]:
    """tail number -> row of its last departure at any airport."""
    return {tail: departures[-1].row for tail, departures in departures_by_plane(flights).items()}


def expected_carried(flights: Iterable[Flight]) -> dict[int, dict[str, Any]]:
    """Row of a late flight -> what it has to do with the late flight the plane left another airport on before it."""
    carried = {}
    for tail, departures in departures_by_plane(flights).items():
        for before, after in itertools.pairwise(departures):
            if before.origin != after.origin and min(before.dep_delay or 0, after.dep_delay or 0) >= LATE_MINUTES:
                carried[after.row] = {
                    "row": after.row,
                    "tailnum": tail,
                    "origin": after.origin,
                    "dep_delay": after.dep_delay,
                    "previous_row": before.row,
                    "previous_origin": before.origin,
                    "previous_dep_delay": before.dep_delay,
                }
    return carried


def watermarks(events: Iterable[Event], partition_of: Callable[[Event], int]) -> dict[int, int]:
    """Partition -> the time in ms up to which each airport has told all there is; not of one that lacks an airport."""
    latest: dict[int, dict[object, int]] = defaultdict(dict)
    for event in events:
        of = latest[partition_of(event)]
        of[event.body["origin"]] = max(event.timestamp_ms, of.get(event.body["origin"], 0))
    return {partition: min(of.values()) for partition, of in latest.items() if len(of) == len(AIRPORTS)}


def late_departures(flights: Iterable[Flight]) -> dict[str, list[Flight]]:
    """tail number -> its late departures, in the order they left."""
    return {
        tail: [flight for flight in departures if (flight.dep_delay or 0) >= LATE_MINUTES]
        for tail, departures in departures_by_plane(flights).items()
    }


def expected_late(
    flights: Iterable[Flight], fleet: Mapping[str, Mapping[str, object]], complete_ms: Callable[[str], int]
) -> dict[int, dict[str, Any]]:
    """Row of a late flight -> itself with its plane. fleet: by tail number; complete_ms: the watermark of a plane's
    partition, up to which flights are joined."""
    nothing = {"manufacturer": None, "model": None, "seats": None}
    return {
        flight.row: {
            "row": flight.row,
            "origin": flight.origin,
            "dest": flight.dest,
            "dep_delay": flight.dep_delay,
            **fleet.get(tail, nothing),
        }
        for tail, departures in late_departures(flights).items()
        for flight in departures
        if flight.departed_ms <= complete_ms(tail)
    }


def expected_spells(
    flights: Iterable[Flight], fleet: Mapping[str, Mapping[str, Any]], complete_ms: Callable[[str], int]
) -> dict[tuple[str, int], dict[str, Any]]:
    """(tail number, start in ms) -> a run of late departures, each at most a day after the one before; those that
    are over. Arguments as of `expected_late`."""
    spells = {}
    for tail, departures in late_departures(flights).items():
        runs: list[list[Flight]] = []
        for flight in departures:
            if runs and flight.departed_ms - runs[-1][-1].departed_ms <= SPELL_GAP_MS:
                runs[-1].append(flight)
            else:
                runs.append([flight])
        plane = fleet.get(tail, {"model": None, "seats": 0})
        for run in runs:
            if run[-1].departed_ms + SPELL_GAP_MS < complete_ms(tail):
                spells[tail, run[0].departed_ms] = {
                    "end_ms": run[-1].departed_ms,
                    "departures": len(run),
                    "airports": len({flight.origin for flight in run}),
                    "minutes": sum(flight.dep_delay or 0 for flight in run),
                    "worst": max(flight.dep_delay or 0 for flight in run),
                    "model": plane["model"],
                    "seats": plane["seats"] * len(run),
                }
    return spells


def check_rows(place: str, expected: Mapping[Any, Any], found: Mapping[Any, Any]) -> Verdict:
    """One row a key, equal values."""
    verdict = Verdict(place, len(expected))
    verdict.missing = [f"{key}" for key in expected if key not in found]
    verdict.altered = [
        f"{key}: {found[key]} for {expected[key]}" for key in expected if key in found and found[key] != expected[key]
    ]
    verdict.altered += [f"{key} (not in the CSV)" for key in found if key not in expected]
    verdict.flights = (
        len(expected)
        - len(verdict.missing)
        - sum(1 for key in expected if key in found and found[key] != expected[key])
    )
    return verdict


def merge_hours(partials: Iterable[tuple[Any, Mapping[str, int]]]) -> dict[tuple[str, int], dict[str, int]]:
    """Sum the partial cells that each task partition keeps of the table of hours."""
    cells: dict[tuple[str, int], dict[str, int]] = {}
    for where, partial in partials:
        cell = cells.setdefault(where, {"scheduled": 0, "departed": 0, "cancelled": 0, "delay_sum": 0})
        for what, count in partial.items():
            cell[what] += count
    return cells


def all_right(verdicts: Sequence[Verdict]) -> bool:
    return all(verdict.right for verdict in verdicts)
