"""Tables with windows: `table[key]` is a `WindowSet`, the windows of one key.

Which window is meant follows from a time: the event's timestamp, or what `relative_to…` says. A write goes to all
windows that have this time in them, a look at a value to the last of them.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn, Protocol

from ..engine.event import Event
from ..engine.lengths import Seconds, milliseconds
from ..engine.open_windows import MISSING, OpenWindows
from ..engine.tables import TableSpec
from ..engine.task import Work
from ..engine.windows import TableWindows
from ..errors import AppError
from .ansitable import drawn
from .host import Hosted
from .rows import TableLike, changelog_topic_name, rows_at_hand, work_in_hand
from .work import current_work

Span = tuple[float, float]  # start and end of a window, in seconds; the end does not belong to it
TimeOf = Callable[[Event], float | datetime | str]


# --- Kinds of windows -------------------------------------------------------------------------------


@dataclass(frozen=True)
class HoppingWindow:
    """Windows of `size` seconds that begin every `step` seconds, for `Table.using_window`. expires: so many seconds
    after its end a window closes, and is removed; None: never."""

    size: Seconds
    step: Seconds
    expires: Seconds | None = None

    def __post_init__(self) -> None:
        self.as_table_windows()

    def as_table_windows(self) -> TableWindows:
        """Raises AppError for sizes that cannot be."""
        size_ms, step_ms = milliseconds(self.size, "a window's size"), milliseconds(self.step, "a window's step")
        expires_ms = milliseconds(self.expires, "expires") if self.expires else None
        return TableWindows(size_ms, step_ms, expires_ms)

    def ranges(self, timestamp: float) -> list[Span]:
        """The windows that have a time in them, the earliest first."""
        windows = self.as_table_windows()
        return [span(start, windows) for start in windows.starts(round(timestamp * 1000))]

    def current(self, timestamp: float) -> Span:
        """The last window that has a time in it."""
        windows = self.as_table_windows()
        return span(windows.last(round(timestamp * 1000)), windows)

    def earliest(self, timestamp: float) -> Span:
        return self.ranges(timestamp)[0]

    def delta(self, timestamp: float, d: Seconds) -> Span:
        """The last window that has the time `d` seconds before in it."""
        return self.current(timestamp - milliseconds(d, "d") / 1000)

    def stale(self, timestamp: float, latest_timestamp: float) -> bool:
        """Whether a window with this end has closed at a time."""
        expires_ms = self.as_table_windows().expires_ms
        return expires_ms is not None and timestamp + expires_ms / 1000 <= latest_timestamp


class TumblingWindow(HoppingWindow):
    """Windows of `size` seconds, one after the other."""

    def __init__(self, size: Seconds, expires: Seconds | None = None) -> None:
        super().__init__(size, size, expires)


def span(start_ms: int, windows: TableWindows) -> Span:
    return start_ms / 1000, (start_ms + windows.size_ms) / 1000


# --- Which time is meant ----------------------------------------------------------------------------


class Field(Protocol):
    """A field of a model."""

    def getattr(self, obj: Any) -> Any: ...


RelativeTo = Field | TimeOf | datetime | float | int | None


def time_of(relative_to: RelativeTo, table: str) -> TimeOf | None:
    """A function that gives the time; None: it is the event's timestamp. Raises AppError for what cannot be a time."""
    if relative_to is None:
        return None
    if isinstance(relative_to, (datetime, float, int)) and not isinstance(relative_to, bool):
        return lambda event: relative_to
    if hasattr(relative_to, "getattr"):
        return lambda event: relative_to.getattr(event.value)
    if callable(relative_to):
        return relative_to
    raise AppError(f"table {table}: relative_to({relative_to!r}) is no field, time or function of the event")


def as_ms(time: Any, table: str) -> int:
    """Seconds since the epoch, a datetime or one in ISO 8601, in ms. What has no zone is UTC. Raises AppError for
    anything else."""
    try:
        if isinstance(time, str):
            time = datetime.fromisoformat(time)
        if isinstance(time, datetime):
            return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
        return round(time * 1000)
    except (TypeError, ValueError, OverflowError):
        raise AppError(
            f"table {table} has windows relative to {time!r}, which is neither seconds since the epoch nor a datetime"
        ) from None


# --- The table --------------------------------------------------------------------------------------


class WindowedTable(TableLike):
    """`table[key]` is a `WindowSet`. `table[key] = value`, `del table[key]` and `table[key] += 1` apply to all windows
    that the time of the current event is in, `key in table` to the last of them. `keys`, `values` and `items` are about
    one window, `rows` about all. Keys and values are those of `Table`."""

    def __init__(
        self,
        spec: TableSpec,
        windows: TableWindows,
        app: Hosted | None = None,
        on_recover: list[Callable[[], Any]] | None = None,
    ) -> None:
        self.spec = spec
        self.recover_callbacks = [] if on_recover is None else on_recover  # those of the table that it was made of
        self.windows = windows
        self._app = app
        self._name = spec.name
        self._time_of: TimeOf | None = None
        self._is_relative_to_now = False
        self.is_relative = False  # to something else than the event's timestamp

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def help(self) -> str:
        return self.spec.help

    @property
    def changelog_topic_name(self) -> str:
        """Where its rows are written."""
        return changelog_topic_name(self.spec, self._app)

    def on_recover(self, fun: Callable[[], Any]) -> Callable[[], Any]:
        """Decorates a function without arguments that is called when the worker has the table's rows after a
        rebalance; it may be async."""
        self.recover_callbacks.append(fun)
        return fun

    def __repr__(self) -> str:
        return f"<WindowedTable {self.spec.name}>"

    # --- Time ---------------------------------------------------------------------------------------

    def relative_to(self, ts: RelativeTo) -> WindowedTable:
        """The same table, with windows of another time: a field of the value's model, a function of the event, or a
        fixed time. Times are seconds since the epoch, datetimes, or text in ISO 8601."""
        made = copy.copy(self)
        made._time_of, made._is_relative_to_now = time_of(ts, self.name), False
        made.is_relative = ts is not None
        return made

    def relative_to_stream(self) -> WindowedTable:
        """With windows of the event's timestamp, as without this."""
        return self.relative_to(None)

    def relative_to_field(self, field: Field) -> WindowedTable:
        """With windows of a field of the value's model."""
        return self.relative_to(field)

    def relative_to_now(self) -> WindowedTable:
        """With windows of the greatest time that the table has seen in the task, the event's included: late events
        count as of now."""
        made = self.relative_to(None)
        made._is_relative_to_now = made.is_relative = True
        return made

    # --- Keys ---------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> WindowSet:
        try:
            work = current_work.get()
            return WindowSet(work.task.windows[self._name], key, work, self)
        except LookupError:
            opened, work = self._in_hand()
            return WindowSet(opened, key, work, self)

    def _in_hand(self) -> tuple[OpenWindows, Work]:
        work, _ = work_in_hand(self.spec)
        return work.task.windows_of(self.spec.name), work

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, WindowSet):
            if value._set_for is value._work.current and value._table.spec is self.spec and value._key == key:
                return  # the last step of `table[key] += …`, which has set the value for the current event
            value = value.value()
        self[key]._set(value)

    def __delitem__(self, key: Any) -> None:
        self[key]._delete()

    def __contains__(self, key: Any) -> bool:
        windows = self[key]
        return (key, self.windows.last(windows._time_ms())) in windows._opened.store.rows

    # --- Views --------------------------------------------------------------------------------------

    def keys(self) -> KeysView:
        """The keys in one window: the last with the current event's time, or what `now`, `current` or `delta` says."""
        return KeysView(self)

    def values(self, event: Event | None = None) -> ValuesView:
        return ValuesView(self, event)

    def items(self, event: Event | None = None) -> ItemsView:
        return ItemsView(self, event)

    def rows(self) -> Mapping[tuple[Any, int], Any]:
        """(key, start of the window in ms) -> value, of all windows; outside of agents, of all tasks of the worker."""
        return rows_at_hand(self.spec, self._app).rows

    def __iter__(self) -> Iterator[Any]:
        """The keys of all windows, each once."""
        return iter(dict.fromkeys(key for key, _ in self.rows()))

    def __len__(self) -> int:
        """How many keys there are in all windows together."""
        return len(dict.fromkeys(key for key, _ in self.rows()))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (WindowedTable, Mapping)):
            return self is other or dict(self.rows()) == dict(other.rows() if isinstance(other, TableLike) else other)
        return NotImplemented

    __hash__ = object.__hash__

    def as_ansitable(self, title: str = "{table.name}") -> str:
        """The rows of all windows as a table for a terminal."""
        return drawn(self.rows().items(), ("Key", "Value"), title.format(table=self))

    def _no_mapping(self, *_: Any) -> NoReturn:
        raise AppError(self._what_there_is())

    __reversed__ = __or__ = __ror__ = __ior__ = _no_mapping

    def __getattr__(self, name: str) -> NoReturn:
        way_out = f": {self._what_there_is()}" if hasattr(dict, name) else ""
        raise AttributeError(f"WindowedTable has no {name}{way_out}")

    def _what_there_is(self) -> str:
        return (
            f"table {self.spec.name} has windows and is not a dict: table[key].current() is the value in the window of "
            "the current event, items() is about one window, rows() about all"
        )


class _View:
    """What is in one window of a table. Iterating is about the window of the table's own time."""

    def __init__(self, table: WindowedTable, event: Event | None = None) -> None:
        self._table = table
        self._event = event

    def _rows(self, choose: Callable[[WindowSet], int]) -> Iterable[tuple[Any, Any]]:
        opened, work = self._table._in_hand()
        start_ms = choose(WindowSet(opened, None, work, self._table, self._event))
        return [(key, opened.get(key, start_ms)) for key in opened.keys(start_ms)]

    def _of(self, rows: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
        return iter(rows)

    def __iter__(self) -> Iterator[Any]:
        return self._of(self._rows(lambda windows: windows._last(windows._time_ms())))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def now(self) -> Iterator[Any]:
        """In the window of the greatest time that the table has seen."""
        return self._of(self._rows(lambda windows: windows._last(windows._now_ms())))

    def current(self, event: Event | None = None) -> Iterator[Any]:
        """In the window of the event's timestamp."""
        return self._of(self._rows(lambda windows: windows._last(windows._event_ms(event))))

    def delta(self, d: Seconds, event: Event | None = None) -> Iterator[Any]:
        """In the window of `d` seconds before the event's timestamp."""
        ago_ms = milliseconds(d, "d")
        return self._of(self._rows(lambda windows: windows._last(windows._event_ms(event) - ago_ms)))


class ItemsView(_View):
    """(key, value) of one window."""


class KeysView(_View):
    """Keys of one window."""

    def _of(self, rows: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
        return (key for key, _ in rows)


class ValuesView(_View):
    """Values of one window."""

    def _of(self, rows: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
        return (value for _, value in rows)


# --- The windows of one key ---------------------------------------------------------------------------


class WindowSet:
    """The windows of one key. Comparisons and truth value use `value()`."""

    __slots__ = ("_event", "_key", "_opened", "_set_for", "_table", "_work")

    def __init__(
        self, opened: OpenWindows, key: Any, work: Work, table: WindowedTable, event: Event | None = None
    ) -> None:
        self._opened = opened
        self._key = key
        self._work = work
        self._table = table
        self._event = event  # instead of the current one
        self._set_for: Event | None = None  # the event for which `+=` has set the value

    def __repr__(self) -> str:
        return f"<WindowSet of {self._key!r} in table {self._table.name}>"

    # --- Which window -------------------------------------------------------------------------------

    def _event_ms(self, event: Event | None = None) -> int:
        event = event or self._event or self._work.current
        if event is None:
            raise AppError(
                f"table {self._table.name} is used before the agent has an event, whose time selects the window"
            )
        return event.timestamp_ms

    def _now_ms(self) -> int:
        event = self._event or self._work.current
        return self._opened.time_ms if event is None else max(self._opened.time_ms, event.timestamp_ms)

    def _time_ms(self, event: Event | None = None) -> int:
        table = self._table
        if table._is_relative_to_now:
            return self._now_ms()
        if table._time_of is None:
            return self._event_ms(event)
        event = event or self._event or self._work.current
        if event is None:
            return self._event_ms()
        return as_ms(table._time_of(event), table.name)

    def _last(self, time_ms: int) -> int:
        return self._table.windows.last(time_ms)

    def _at(self, time_ms: int) -> Any:
        return self._opened.get(self._key, self._table.windows.last(time_ms))

    # --- Reading ------------------------------------------------------------------------------------

    def value(self, event: Event | None = None) -> Any:
        """In the last window of the table's own time: of the event's timestamp, unless the table is `relative_to…`
        something else."""
        return self._at(self._time_ms(event))

    def current(self, event: Event | None = None) -> Any:
        """In the last window of the event's timestamp."""
        return self._at(self._event_ms(event))

    def now(self) -> Any:
        """In the last window of the greatest time that the table has seen in the task."""
        return self._at(self._now_ms())

    def delta(self, d: Seconds, event: Event | None = None) -> Any:
        """In the last window of `d` seconds before the event's timestamp."""
        return self._at(self._event_ms(event) - milliseconds(d, "d"))

    def at(self, timestamp_ms: int) -> Any:
        """In the last window that has this time in it."""
        return self._at(timestamp_ms)

    def __getitem__(self, which: Event | Span) -> Any:
        """For an event: the windows relative to it. For (start, end) in seconds: the value in this window."""
        if isinstance(which, Event):
            return WindowSet(self._opened, self._key, self._work, self._table, which)
        return self._opened.get(self._key, self._start_of(which))

    def __setitem__(self, which: Span, value: Any) -> None:
        self._opened.set(self._key, self._start_of(which), value)

    def __delitem__(self, which: Span) -> None:
        self._opened.delete(self._key, self._start_of(which))

    def _start_of(self, which: Any) -> int:
        windows = self._table.windows
        try:
            start_ms = round(which[0] * 1000)
        except (TypeError, KeyError, IndexError):
            raise AppError(
                f"table {self._table.name}: {which!r} is no window: (start, end) in seconds is one"
            ) from None
        if start_ms % windows.step_ms:
            raise AppError(
                f"table {self._table.name}: no window begins at {which[0]} s: they begin every "
                f"{windows.step_ms / 1000} s"
            )
        return start_ms

    # --- Writing ------------------------------------------------------------------------------------

    def _set(self, value: Any) -> None:
        opened, time_ms = self._opened, self._time_ms()
        if time_ms > opened.time_ms:
            opened.time_ms = time_ms
        for start_ms in opened.windows.starts(time_ms):
            opened.set(self._key, start_ms, value)

    def _delete(self) -> None:
        opened = self._opened
        found = [
            start_ms
            for start_ms in opened.windows.starts(self._time_ms())
            if (self._key, start_ms) in opened.store.rows
        ]
        if not found:
            raise KeyError(self._key)
        for start_ms in found:
            opened.delete(self._key, start_ms)

    def apply(self, op: Callable[[Any, Any], Any], value: Any, event: Event | None = None) -> WindowSet:
        """Set the value of each window that the time is in to what `op` makes of it and `value`."""
        opened = self._opened
        event = event or self._event or self._work.current
        time_ms = self._time_ms(event) if event is None or self._table.is_relative else event.timestamp_ms
        if time_ms > opened.time_ms:
            opened.time_ms = time_ms
        if isinstance(value, WindowSet):
            value = value.value()
        self._set_for = self._work.current
        size_ms, store, key = opened.tumbling_ms, opened.store, self._key
        for start_ms in (time_ms - time_ms % size_ms,) if size_ms else opened.windows.starts(time_ms):
            if opened.expires and opened.is_closed(start_ms):
                opened.dropped += 1
                continue
            row = (key, start_ms)
            before = store.rows.get(row, MISSING)
            if before is MISSING:
                store.set(row, op(store.get(row), value))
                opened.add(key, start_ms)
            else:
                store.set(row, op(before, value))
        return self

    def __iadd__(self, other: Any) -> WindowSet:
        return self.apply(operator.add, other)

    def __isub__(self, other: Any) -> WindowSet:
        return self.apply(operator.sub, other)

    def __imul__(self, other: Any) -> WindowSet:
        return self.apply(operator.mul, other)

    def __itruediv__(self, other: Any) -> WindowSet:
        return self.apply(operator.truediv, other)

    def __ifloordiv__(self, other: Any) -> WindowSet:
        return self.apply(operator.floordiv, other)

    def __imod__(self, other: Any) -> WindowSet:
        return self.apply(operator.mod, other)

    def __ipow__(self, other: Any) -> WindowSet:
        return self.apply(operator.pow, other)

    def __ilshift__(self, other: Any) -> WindowSet:
        return self.apply(operator.lshift, other)

    def __irshift__(self, other: Any) -> WindowSet:
        return self.apply(operator.rshift, other)

    def __iand__(self, other: Any) -> WindowSet:
        return self.apply(operator.and_, other)

    def __ixor__(self, other: Any) -> WindowSet:
        return self.apply(operator.xor, other)

    def __ior__(self, other: Any) -> WindowSet:
        return self.apply(operator.or_, other)

    # --- As a value ---------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self.value())

    def __eq__(self, other: object) -> bool:
        return bool(self.value() == _value(other))

    def __lt__(self, other: Any) -> bool:
        return bool(self.value() < _value(other))

    def __le__(self, other: Any) -> bool:
        return bool(self.value() <= _value(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self.value() > _value(other))

    def __ge__(self, other: Any) -> bool:
        return bool(self.value() >= _value(other))

    __hash__ = None  # type: ignore[assignment]

    def _no_dict(self) -> NoReturn:
        raise AppError(
            f"the windows of a key of table {self._table.name} are no dict: value(), current(), now() and delta(d) "
            "give the value in one of them"
        )

    keys = values = items = __iter__ = _no_dict


def _value(of: Any) -> Any:
    return of.value() if isinstance(of, WindowSet) else of
