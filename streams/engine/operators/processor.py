"""Steps that an app writes itself: with tables, and with timers of event time and of the wall clock.

Timers are rows, too, so they survive a restart. A timer of event time fires once the watermark has come to its time:
before the event that moved it there. One of the wall clock fires at the first tick after its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import Any, Protocol

from ..event import NO_WATERMARK, Event
from ..migration import by_version
from ..placement import BY_KEY, BY_TIMER
from ..steps import in_steps
from ..stores.store import Store
from ..tables import TableSpec
from .operator import Context, Failed, Outputs, derived, raise_failed

EVENT_TIME, WALL_CLOCK = 0, 1
Timer = tuple[int, int, Any, str]  # clock, time in ms, key, name


class Rows(MutableMapping[Any, Any]):
    """A table's rows of the task, as a dict. A value that was changed in place must be set again."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getitem__(self, key: Any) -> Any:
        return self._store.get(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._store.set(key, value)

    def __delitem__(self, key: Any) -> None:
        self._store.delete(key)

    def __contains__(self, key: Any) -> bool:
        return key in self._store.rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self._store.rows)

    def __len__(self) -> int:
        return len(self._store.rows)

    def get(self, key: Any, default: Any = None) -> Any:
        return self._store.rows.get(key, default)


class Processor(Protocol):
    """What an app writes. One is made for each task. It keeps nothing in itself that a restart may not lose."""

    def process(self, event: Event, context: ProcessorContext) -> None:
        """Called with each event, in order."""
        ...

    def on_timer(self, timer: Timer, context: ProcessorContext) -> None:
        """Called when a timer fires; it is gone then. A processor that sets none need not have this."""
        ...


class ProcessorContext:
    """What a processor may use while it is called. state: the rows of the operator's own table; `table` has others that
    it was declared with."""

    def __init__(self, context: Context, operator: ProcessorOperator) -> None:
        self._context = context
        self._operator = operator
        self.state = Rows(context.store(operator.name))

    @property
    def watermark_ms(self) -> int:
        """Event time up to which input is complete, by the event in hand."""
        return self._operator.watermark_ms

    @property
    def stream_time_ms(self) -> int:
        """The greatest timestamp that the task has seen."""
        return self._context.stream_time_ms

    @property
    def wall_ms(self) -> int:
        """The wall clock at the present batch or tick."""
        return self._context.wall_ms

    def table(self, name: str) -> Rows:
        return Rows(self._context.store(name))

    def forward(self, value: Any, *, key: Any = None, timestamp_ms: int | None = None) -> None:
        """Give a result. key and timestamp_ms: None for those of the event in hand, or of the timer's key and its time;
        for a timer of the wall clock the time is the stream time."""
        self._operator.forward(value, key, timestamp_ms)

    def set_timer(self, at_ms: int, key: Any = None, name: str = "", *, wall_clock: bool = False) -> None:
        """Call `on_timer` at this time. Nothing happens if there is the same timer."""
        self._operator.set_timer((WALL_CLOCK if wall_clock else EVENT_TIME, at_ms, key, name))

    def cancel_timer(self, at_ms: int, key: Any = None, name: str = "", *, wall_clock: bool = False) -> None:
        """Remove a timer. Nothing happens if there is none."""
        self._operator.cancel_timer((WALL_CLOCK if wall_clock else EVENT_TIME, at_ms, key, name))


class ProcessorOperator:
    """make: returns the processor, when the task is opened. tables: names of other tables that it uses. hold_ms: how
    far the timestamps of what its timers give are behind the watermark at most. version, migrate: of its rows, see
    `Aggregation`."""

    outputs = 1

    def __init__(
        self,
        name: str,
        make: Callable[[], Processor],
        tables: Sequence[str] = (),
        hold_ms: int = 0,
        *,
        version: int = 1,
        migrate: Mapping[int, Callable[[Any, Any], Any]] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self.make = make
        self.tables = tuple(tables)
        self.hold_ms = hold_ms
        rows = TableSpec(name, placement=BY_KEY, version=version, migrations=by_version(migrate))
        self.specs = (rows, TableSpec(f"{name}-timers", placement=BY_TIMER))
        self.counts: dict[str, int] = {}
        self.watermark_ms = NO_WATERMARK
        self._timers: tuple[list[tuple[int, int, Timer]], ...] = ([], [])  # heaps, by clock: time, number, timer
        self._number = 0
        self._partition = 0
        self._failed: Failed = raise_failed
        self._found: list[Event] = []
        self._in_hand: Event | None = None
        self._firing: tuple[int, int] | None = None  # clock and time of the timer that fires
        self._postponed: list[Timer] = []  # set meanwhile for no later time: they fire next time, or it might never end

    def open(self, context: Context) -> None:
        self._context = context
        self._partition, self._failed = context.partition, context.failed
        self._timer_rows = context.store(self.specs[1].name)
        self._processor = self.make()
        self._given = ProcessorContext(context, self)

    def read(self) -> Iterator[None]:
        for some in in_steps(self._timer_rows.rows):
            for timer in some:
                self._schedule(timer)
            yield
        for heap in self._timers:
            heapify(heap)

    def process(self, port: int, events: list[Event]) -> Outputs:
        for event in events:
            if event.watermark_ms > self.watermark_ms:
                self._move(event.watermark_ms)
            self._call(event, self._processor.process, event)
            self._fire(EVENT_TIME, self.watermark_ms)  # what it set for a time that has come
        return self._taken()

    def advance(self, watermark_ms: int) -> Outputs:
        if watermark_ms > self.watermark_ms:
            self._move(watermark_ms)
        return self._taken()

    def tick(self, wall_ms: int) -> Outputs:
        self._fire(WALL_CLOCK, wall_ms)
        return self._taken()

    def forward(self, value: Any, key: Any, timestamp_ms: int | None) -> None:
        assert self._in_hand is not None, "only a processor that is being called has its context"
        result = derived(self._in_hand, value, timestamp_ms, self.hold_ms)
        if key is not None:
            result.key = key
        self._found.append(result)

    def set_timer(self, timer: Timer) -> None:
        if timer not in self._timer_rows.rows:
            self._timer_rows.set(timer, 1)
            if self._firing is not None and timer[:2] <= self._firing:
                self._postponed.append(timer)
            else:
                self._schedule(timer)

    def cancel_timer(self, timer: Timer) -> None:
        if timer in self._timer_rows.rows:
            self._timer_rows.delete(timer)

    def _schedule(self, timer: Timer) -> None:
        self._number += 1
        heappush(self._timers[timer[0]], (timer[1], self._number, timer))

    def _move(self, watermark_ms: int) -> None:
        self.watermark_ms = watermark_ms
        self._fire(EVENT_TIME, watermark_ms)

    def _fire(self, clock: int, now_ms: int) -> None:
        heap = self._timers[clock]
        while heap and heap[0][0] <= now_ms:
            at_ms, _, timer = heappop(heap)
            if timer not in self._timer_rows.rows:
                continue  # cancelled
            self._timer_rows.delete(timer)
            time = at_ms if clock == EVENT_TIME else self._context.stream_time_ms
            stamp = min(at_ms, self.watermark_ms) if clock == EVENT_TIME else self.watermark_ms
            event = Event(timer[2], None, time, self.name, self._partition, -1, (), stamp)
            self._firing = clock, at_ms
            self._call(event, self._processor.on_timer, timer)
        self._firing = None
        while self._postponed:
            self._schedule(self._postponed.pop())

    def _call(self, event: Event, function: Callable[[Any, ProcessorContext], None], given: Any) -> None:
        """What a call gave before it failed is left out; what it set in tables is not."""
        before = len(self._found)
        self._in_hand = event
        try:
            function(given, self._given)
        except Exception as error:
            del self._found[before:]
            self._failed(self.name, event, error)
        finally:
            self._in_hand = None

    def _taken(self) -> Outputs:
        found, self._found = self._found, []
        return (found,)
