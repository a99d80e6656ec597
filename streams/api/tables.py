"""`Table` as an app sees it: a mapping whose rows are those of the task the agent runs in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextvars import ContextVar
from typing import Any

from ..engine.tables import TableSpec, TableState
from ..engine.task import Task
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
    """`table[key]` reads and writes rows; a missing key gives the default, which is a row only once it is set. A value
    that is changed in place must be set again, or the change is not kept. Made by `App.Table`."""

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec

    @property
    def _state(self) -> TableState:
        return task_in_hand(f"table {self.spec.name}").tables[self.spec.name]

    def tumbling(self, size_s: float) -> WindowedTable:
        """Make this a table of windows of `size_s` seconds by event time, one after the other from the epoch."""
        if size_s * 1000 < 1 or self.spec.size_ms:
            raise AppError(f"table {self.spec.name}: tumbling({size_s}) needs at least 0.001 s, and once")
        self.spec.size_ms = round(size_s * 1000)
        return WindowedTable(self.spec)

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

    def __len__(self) -> int:
        return len(self._state.rows)

    def get(self, key: Any, default: Any = None) -> Any:
        return self._state.rows.get(key, default)

    def pop(self, key: Any, *default: Any) -> Any:
        """Remove a row and give its value, else `default`; KeyError when there is neither."""
        rows = self._state.rows
        if key not in rows and default:
            return default[0]
        value = rows[key]
        self._state.delete(key)
        return value


class WindowedTable:
    """`table[key]` is a `Window`: reading it is about the window of the event in hand, setting it sets there, so that
    `table[key] += 1` counts. Windows are kept for ever in this release."""

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec

    def __getitem__(self, key: Any) -> Window:
        task = task_in_hand(f"table {self.spec.name}")
        return Window(task.tables[self.spec.name], key, task)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, Window):
            return  # the last step of `table[key] += …`: the window has set itself
        task = task_in_hand(f"table {self.spec.name}")
        assert task.current is not None, "an agent has an event in hand"
        task.tables[self.spec.name].set((key, self.spec.window_start_ms(task.current.timestamp_ms)), value)

    def items(self) -> Iterator[tuple[tuple[Any, int], Any]]:
        """((key, start of the window in ms), value) of all rows of the task."""
        yield from task_in_hand(f"table {self.spec.name}").tables[self.spec.name].rows.items()


class Window:
    """The windows of one key."""

    __slots__ = ("_key", "_state", "_task")

    def __init__(self, state: TableState, key: Any, task: Task) -> None:
        self._state = state
        self._key = key
        self._task = task

    def current(self) -> Any:
        """Value of the window that the event in hand falls into."""
        assert self._task.current is not None, "an agent has an event in hand"
        return self.at(self._task.current.timestamp_ms)

    value = current

    def __iadd__(self, other: Any) -> Window:
        self._put(self.current() + other)
        return self

    def __isub__(self, other: Any) -> Window:
        self._put(self.current() - other)
        return self

    def _put(self, value: Any) -> None:
        assert self._task.current is not None, "an agent has an event in hand"
        self._state.set((self._key, self._state.spec.window_start_ms(self._task.current.timestamp_ms)), value)

    def at(self, timestamp_ms: int) -> Any:
        """Value of the window that a time falls into."""
        return self._state.get((self._key, self._state.spec.window_start_ms(timestamp_ms)))


def make(name: str, default: Callable[[], Any] | None) -> Table:
    return Table(TableSpec(name, default))
