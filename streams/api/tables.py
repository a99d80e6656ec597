"""`Table` as an app sees it: a mapping with the rows of the task that the agent runs in."""

from __future__ import annotations

import operator
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from contextvars import ContextVar
from typing import Any, NoReturn

from ..engine.tables import TableSpec, TableState
from ..engine.task import Event, Task
from ..errors import AppError

current_task: ContextVar[Task] = ContextVar("isthmus.streams.task")  # set in each agent's own asyncio task


def task_in_hand(what: str) -> Task:
    try:
        return current_task.get()
    except LookupError:
        raise AppError(
            f"{what} is used outside of an agent: its rows belong to the partition an agent works on"
        ) from None


class Table(MutableMapping[Any, Any]):
    """A dict with the rows of the task that the agent runs in; made by `App.Table`. A missing key returns the default,
    which becomes a row only when it is set.

    Keys are None, bool, int, float, str, bytes and tuples of them. Equal keys are one row; True and 1.0 are stored as
    1. Values are the same types, and lists, tuples and dicts of them. Other types raise AppError, because the changelog
    could not restore them unchanged. A value that was changed in place must be set again, or the change is lost.
    """

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec

    @property
    def _state(self) -> TableState:
        if self.spec.size_ms:
            raise AppError(f"table {self.spec.name} has windows: use what its tumbling() returned")
        return task_in_hand(f"table {self.spec.name}").tables[self.spec.name]

    def tumbling(self, size_s: float) -> WindowedTable:
        """Make this a table with tumbling windows of `size_s` seconds of event time, aligned to the epoch."""
        if size_s * 1000 < 1 or self.spec.size_ms:
            raise AppError(f"table {self.spec.name}: tumbling({size_s}) needs at least 0.001 s, and can be called once")
        self.spec.size_ms = round(size_s * 1000)
        return WindowedTable(self.spec)

    def __repr__(self) -> str:
        return f"<Table {self.spec.name}>"

    def __getitem__(self, key: Any) -> Any:
        return self._state.get(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._state.set(key, value)

    def __delitem__(self, key: Any) -> None:
        self._state.delete(key)

    def __contains__(self, key: Any) -> bool:
        return key in self._state.rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self._state.rows)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._state.rows)

    def __len__(self) -> int:
        return len(self._state.rows)

    # The mixins of MutableMapping use `table[key]` to look for a row; with a default every key would seem to exist.

    def keys(self) -> KeysView[Any]:
        return self._state.rows.keys()

    def values(self) -> ValuesView[Any]:
        return self._state.rows.values()

    def items(self) -> ItemsView[Any, Any]:
        return self._state.rows.items()

    def get(self, key: Any, default: Any = None) -> Any:
        return self._state.rows.get(key, default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value of a row; if there is none, it is created with the value `default`."""
        state = self._state
        if key not in state.rows:
            state.set(key, default)
        return state.rows[key]

    def pop(self, key: Any, *default: Any) -> Any:
        """Remove a row and return its value, else `default`; KeyError if there is neither."""
        rows = self._state.rows
        if key not in rows and default:
            return default[0]
        value = rows[key]
        self._state.delete(key)
        return value

    def popitem(self) -> tuple[Any, Any]:
        """Remove the row that was added last, as a dict does; KeyError if there is none."""
        for key in reversed(self._state.rows):
            return key, self.pop(key)
        raise KeyError(f"table {self.spec.name} has no rows")

    def copy(self) -> dict[Any, Any]:
        """The rows as a plain dict."""
        return dict(self._state.rows)

    __copy__ = copy

    def __or__(self, other: Mapping[Any, Any]) -> dict[Any, Any]:
        return {**self, **other} if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Mapping[Any, Any]) -> dict[Any, Any]:
        return {**other, **self} if isinstance(other, Mapping) else NotImplemented

    def __ior__(self, other: Any) -> Table:  # type: ignore[misc]  # as dict's: `|` makes a new dict, `|=` does not
        self.update(other)
        return self


class WindowedTable:
    """`table[key]` is a `Window`. Reading, setting, deleting and `key in table` apply to the window of the current
    event, so `table[key] += 1` counts. `items` returns the rows of all windows. Keys and values are those of `Table`.
    In this release windows are never deleted."""

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec

    def __repr__(self) -> str:
        return f"<WindowedTable {self.spec.name}>"

    def __getitem__(self, key: Any) -> Window:
        task = task_in_hand(f"table {self.spec.name}")
        return Window(task.tables[self.spec.name], key, task)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, Window):
            if value._has_set(self.spec, key):
                return  # the last step of `table[key] += …`
            value = value.current()
        window = self[key]
        window._state.set_window(key, window._start_ms(), value)

    def __delitem__(self, key: Any) -> None:
        window = self[key]
        window._state.delete((key, window._start_ms()))

    def __contains__(self, key: Any) -> bool:
        window = self[key]
        return (key, window._start_ms()) in window._state.rows

    def items(self) -> ItemsView[tuple[Any, int], Any]:
        """((key, start of the window in ms), value) of all rows of the task."""
        return task_in_hand(f"table {self.spec.name}").tables[self.spec.name].rows.items()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (WindowedTable, Mapping)):
            return self is other or dict(self.items()) == dict(other.items())
        return NotImplemented

    def _no_mapping(self, *_: Any) -> NoReturn:
        raise AppError(self._what_there_is())

    # Without these, Python would iterate with `table[0]`, `table[1]` and so on, without end.
    __iter__ = __reversed__ = __len__ = __or__ = __ror__ = __ior__ = _no_mapping

    def __getattr__(self, name: str) -> NoReturn:
        way_out = f": {self._what_there_is()}" if hasattr(dict, name) else ""
        raise AttributeError(f"WindowedTable has no {name}{way_out}")

    def _what_there_is(self) -> str:
        return (
            f"table {self.spec.name} has windows and is not a dict: table[key].current() is the value in the "
            "window of the current event, items() returns ((key, start of the window in ms), value) of all rows"
        )


class Window:
    """The windows of one key. Comparisons and truth value use its value in the window of the current event."""

    __slots__ = ("_key", "_set_for", "_state", "_task")

    def __init__(self, state: TableState, key: Any, task: Task) -> None:
        self._state = state
        self._key = key
        self._task = task
        self._set_for: Event | None = None  # the event for which `+=` has set the value

    def __repr__(self) -> str:
        return f"<Window of {self._key!r} in table {self._state.spec.name}>"

    def _start_ms(self) -> int:
        event, spec = self._task.current, self._state.spec
        if event is None:
            raise AppError(f"table {spec.name} is used before the agent has an event, whose time selects the window")
        return spec.window_start_ms(event.timestamp_ms)

    def current(self) -> Any:
        """Value of the window of the current event."""
        return self._state.get((self._key, self._start_ms()))

    value = current

    def at(self, timestamp_ms: int) -> Any:
        """Value of the window that contains a time."""
        return self._state.get((self._key, self._state.spec.window_start_ms(timestamp_ms)))

    def __iadd__(self, other: Any) -> Window:
        return self._apply(operator.add, other)

    def __isub__(self, other: Any) -> Window:
        return self._apply(operator.sub, other)

    def _apply(self, operation: Callable[[Any, Any], Any], other: Any) -> Window:
        start_ms = self._start_ms()
        value = operation(self._state.get((self._key, start_ms)), _value(other))
        self._state.set_window(self._key, start_ms, value)
        self._set_for = self._task.current
        return self

    def _has_set(self, spec: TableSpec, key: Any) -> bool:
        """Whether `+=` has set the value of this key for the current event."""
        return self._set_for is self._task.current and self._state.spec is spec and bool(self._key == key)

    def __bool__(self) -> bool:
        return bool(self.current())

    def __eq__(self, other: object) -> bool:
        return bool(self.current() == _value(other))

    def __lt__(self, other: Any) -> bool:
        return bool(self.current() < _value(other))

    def __le__(self, other: Any) -> bool:
        return bool(self.current() <= _value(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self.current() > _value(other))

    def __ge__(self, other: Any) -> bool:
        return bool(self.current() >= _value(other))


def _value(of: Any) -> Any:
    return of.current() if isinstance(of, Window) else of


def make(name: str, default: Callable[[], Any] | None) -> Table:
    return Table(TableSpec(name, default))
