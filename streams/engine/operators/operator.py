"""What an operator is, and what it knows of the task that it is part of.

Every operator is a function of its ordered input and of nothing else: how input is divided into batches changes no
result. The one exception is said where it is made: `current` results are at most one a key and batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, runtime_checkable

from ...errors import AppError, RecordError
from ..event import NO_WATERMARK, Event
from ..stores.store import Store
from ..stores.versioned import VersionedRows
from ..tables import TableSpec

Outputs = tuple[list[Event], ...]  # one list for each output of an operator: the main one is the first
LATE, SKIPPED = "late", "skipped"  # names of counts
Failed = Callable[[str, Event, Exception], None]
LEFT_OUT: Final = object()  # in place of a result


def raise_failed(name: str, event: Event, error: Exception) -> None:
    """Raises RecordError for an event that a function of the app refused in operator `name`."""
    raise RecordError(f"operator {name}: {type(error).__name__}: {error}, {place_of(event)}") from error


def place_of(event: Event) -> str:
    """Where the record of an event is, for people; of what time has caused, its key and time."""
    if event.offset < 0:
        return f"for key {event.key!r} at {event.timestamp_ms} ms"
    return f"at {event.topic}-{event.partition} offset {event.offset}"


def resulting(name: str, result: Callable[[Any], Any], accumulator: Any, event: Event, failed: Failed) -> Any:
    """What is given of an accumulator. If that raises, `failed` is told of it; the result is LEFT_OUT if it returns.
    event: the last one that it includes, or one without a position for a window that time closes."""
    try:
        return result(accumulator)
    except Exception as error:
        failed(name, event, error)
        return LEFT_OUT


class Context:
    """What the operators of a task share. The task sets the fields before each call. tasks: how many of its kind.

    watermark_ms: up to this event time, exclusive, input is complete; -1 at first, and after a restart what it was.
    stream_time_ms: the greatest timestamp seen. wall_ms: of the present batch or tick. lacking: sources that are not
    waited for, and up to when each is complete all the same. on_failed: gets what a function of the app raised for an
    event: the event is left out if it returns. It raises unless the app has another policy.
    """

    def __init__(
        self, stores: Mapping[str, Store], partition: int = 0, failed: Failed = raise_failed, tasks: int = 1
    ) -> None:
        self.stores = stores
        self.partition = partition
        self.tasks = tasks
        self.on_failed = failed
        self.watermark_ms = NO_WATERMARK
        self.stream_time_ms = NO_WATERMARK
        self.wall_ms = 0
        self.lacking: tuple[tuple[str, int], ...] = ()
        self.versions: dict[str, VersionedRows] = {}  # of versioned tables, set when their operators are opened

    def failed(self, name: str, event: Event, error: Exception) -> None:
        """A function of the app has failed for an event, in this operator."""
        self.on_failed(name, event, error)

    @property
    def missing(self) -> tuple[str, ...]:
        """Sources that results may lack."""
        return tuple(dict.fromkeys(name for name, _ in self.lacking))

    def missing_before(self, end_ms: int) -> tuple[str, ...]:
        """Sources of which events with timestamps below this one may still come."""
        return tuple(dict.fromkeys(name for name, at_ms in self.lacking if at_ms < end_ms))

    def store(self, name: str) -> Store:
        try:
            return self.stores[name]
        except KeyError:
            raise AppError(f"this task has no table {name}; it has {', '.join(self.stores) or 'none'}") from None


@runtime_checkable
class ReadsRows(Protocol):
    """An operator that knows more of its rows than that they are there."""

    def read(self) -> Iterator[None]:
        """Look at all that were restored, in steps of some: once, after `open` and before anything else."""
        ...


class Operator(Protocol):
    @property
    def name(self) -> str:
        """Unique in the app."""
        ...

    @property
    def specs(self) -> tuple[TableSpec, ...]:
        """Its tables, which are named after it."""
        ...

    @property
    def outputs(self) -> int:
        """How many lists its calls give."""
        ...

    @property
    def hold_ms(self) -> int:
        """How far the watermark of its outputs is behind that of its inputs: what it gives for event time t comes at
        the latest when its own watermark is t + hold_ms."""
        ...

    @property
    def counts(self) -> dict[str, int]:
        """Events by what befell them, since the task was opened; for metrics."""
        ...

    def open(self, context: Context) -> None:
        """Called once, when the stores have been restored; rows are not looked at yet (`ReadsRows`)."""
        ...

    def process(self, port: int, events: list[Event]) -> Outputs:
        """Events of one input, in order. port: which input. Raises what `Context.failed` raises."""
        ...

    def advance(self, watermark_ms: int) -> Outputs:
        """The watermark has moved. Called after the batch that moved it, and where time alone moves it."""
        ...

    def tick(self, wall_ms: int) -> Outputs:
        """The wall clock has moved; called some times a second."""
        ...


def derived(event: Event, value: Any, timestamp_ms: int | None = None, hold_ms: int = 0) -> Event:
    """A result that `event` caused, with its key."""
    return Event(
        event.key,
        value,
        event.timestamp_ms if timestamp_ms is None else timestamp_ms,
        event.topic,
        event.partition,
        event.offset,
        event.raw_headers,
        event.watermark_ms - hold_ms,
    )


def unusable_key(event: Event) -> TypeError:
    """The error for a key that cannot be a table's, which `failed` is told of."""
    return TypeError(
        f"key {event.key!r} cannot be a table's key: give the events another with group_by(), such as a str or a tuple"
    )


class KeyKind:
    """Notices that keys which the app makes for a table are text where its own are bytes, or the other way round: no
    row would ever be found. It looks until the first row is."""

    def __init__(self) -> None:
        self._is_known = False

    def look(self, key: Any, row: Any, find: Callable[[Any], Any]) -> None:
        """key: has this row; None: none. find: gives the row of another key. Raises TypeError."""
        if self._is_known:
            return
        if row is not None:
            self._is_known = True
            return
        kind = type(key)
        if kind is not bytes and kind is not str:
            return
        other = key.decode("utf-8", "replace") if kind is bytes else key.encode("utf-8", "replace")
        if find(other) is not None:
            raise TypeError(f"key= gave {key!r}, and the table has {other!r}: return {type(other).__name__}")
