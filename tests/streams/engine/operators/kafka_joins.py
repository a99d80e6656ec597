"""The inputs of Kafka's AbstractJoinIntegrationTest: (port, value, timestamp), and the key where it is not KEY."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from isthmus.streams.engine.event import Event
from isthmus.streams.engine.operators.operator import Operator
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.stores.store import Store
from isthmus.streams.engine.stores.versioned import VersionedRows
from isthmus.streams.engine.time import Watermarks
from tests.streams.engine.operators.running import Running

LEFT, RIGHT = 0, 1
KEY = 0

Input = tuple[Any, ...]  # port, value, timestamp, and maybe the key
INPUT: list[Input] = [
    (LEFT, None, 1),
    (RIGHT, None, 2),
    (LEFT, "A", 3),
    (RIGHT, "a", 4),
    (LEFT, "B", 5),
    (RIGHT, "b", 6),
    (LEFT, None, 7),
    (RIGHT, None, 8),
    (LEFT, "C", 9),
    (RIGHT, "c", 10),
    (RIGHT, None, 11),
    (LEFT, None, 12),
    (RIGHT, None, 13),
    (RIGHT, "d", 7),
    (LEFT, "D", 6),
    (LEFT, None, 2),
    (RIGHT, None, 3),
    (RIGHT, "e", 14),
    (LEFT, "E", 15),
    (LEFT, None, 10),
    (RIGHT, None, 9),
    (LEFT, "F", 4),
    (RIGHT, "f", 3),
]
IN_ORDER: list[Input] = [*INPUT[:13], (RIGHT, "d", 14), (LEFT, "D", 15), (LEFT, "E", 16, None), (RIGHT, "e", 17, None)]
OF_ITSELF: list[Input] = [
    (LEFT, None, 1),
    (LEFT, "A", 2),
    (LEFT, "B", 3),
    (LEFT, None, 4),
    (LEFT, "C", 5),
    (LEFT, None, 6),
    (LEFT, "D", 7),
]


def dashed(left: Any, right: Any) -> str:
    """Kafka's value joiner; a missing value is written as Java does."""
    return f"{left or 'null'}-{right or 'null'}"


def plus(left: Any, right: Any) -> str:
    return f"{'null' if left is None else left}+{'null' if right is None else right}"


def stream_time(bound_ms: int = 0) -> Watermarks:
    """Kafka's notion of time: the greatest timestamp of all inputs."""
    return Watermarks(["all"], bound_ms, lambda event: "all")


def with_tables(
    sources: Iterable[tuple[int, Callable[[], Operator]]], make: Callable[[], Operator], ports: tuple[int, ...]
) -> Callable[[list[Any]], list[list[Event]]]:
    """A function that feeds a join behind tables, and returns what each input gave.

    sources: which port's events go to which table. ports: those of which the events, or the changes if there is a
    table, go on to the join.
    """

    def feed(inputs: list[Any]) -> list[list[Event]]:
        stores: dict[str, Store] = {}
        versions: dict[str, VersionedRows] = {}
        before = {port: made() for port, made in sources}
        join = make()
        for operator in [*before.values(), join]:
            stores.update({spec.name: MemoryStore(spec) for spec in operator.specs})
        time = stream_time()
        upstream = {port: _running(operator, stores, time, versions) for port, operator in before.items()}
        run = _running(join, stores, time, versions)
        given = []
        for port, value, at, *key in inputs:
            events = [run.event(key[0] if key else KEY, value, at, port)]
            if port in upstream:
                events = upstream[port].batch(events, 0)
            found = run.batch(events, ports.index(port)) if port in ports else []
            given.append(found + run.advance(time.watermark_ms))
        return given

    return feed


def _running(
    operator: Operator, stores: dict[str, Store], time: Watermarks, versions: dict[str, VersionedRows]
) -> Running:
    return Running(lambda: operator, stores=stores, watermarks=time, versions=versions)


def texts(given: list[list[Event]]) -> list[list[Any]]:
    """The values that each input gave; of changes, the new ones."""
    return [[getattr(event.value, "new", event.value) for event in events] for events in given]
