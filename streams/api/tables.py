"""`Table` as an app sees it: a mapping with the rows of the task that the agent runs in."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, MutableMapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any, TypeVar

from ..engine.lengths import Seconds
from ..engine.migration import Migration
from ..engine.plain_functions import refuse_async
from ..engine.stores.global_store import GlobalStore
from ..engine.stores.store import Store
from ..engine.table_codec import TableCodec
from ..engine.tables import TableSpec
from ..errors import AppError
from . import absent
from .ansitable import drawn
from .generics import KeyT, ValueT
from .host import Hosted
from .rows import TableLike, changelog_topic_name, global_rows, rows_at_hand
from .table_options import Recovered
from .union import UnionStore
from .windows import HoppingWindow, WindowedTable
from .work import current_work

Migrate = TypeVar("Migrate", bound=Callable[[Any, Any], Any])


def add_migration(
    spec: TableSpec,
    function: Callable[[Any, Any], Any],
    from_version: int,
    to_version: int | None = None,
    keys: bool = False,
    merge: Callable[[Any, Any], Any] | None = None,
    key_type: Any = None,
    value_type: Any = None,
) -> None:
    """function(key, value) is called with each row of from_version, and returns its value in to_version, the next one
    by default; with keys, a pair of key and value; or `DROP`. It must depend on the row alone. merge: returns one value
    for two rows that come to have one key. key_type, value_type: what rows of from_version were; without them,
    attributes of an object come as a dict. A key of a table with windows is (key, start in ms). Raises AppError for a
    version that cannot be, a second migration between the same two, and an async function."""
    to = from_version + 1 if to_version is None else to_version
    for version in (from_version, to):
        if not isinstance(version, int) or version < 1:
            raise AppError(f"table {spec.name}: a version is a whole number from 1, and not {version!r}")
    if from_version == to:
        raise AppError(f"table {spec.name}: a migration leads to another version than {to}")
    if any((each.from_version, each.to_version) == (from_version, to) for each in spec.migrations):
        raise AppError(f"table {spec.name} has two migrations from version {from_version} to {to}")
    refuse_async(f"a migration of table {spec.name}", function, merge)
    codec = None if key_type is None and value_type is None else TableCodec(key_type, value_type)
    spec.migrations.append(Migration(from_version, to, function, keys, merge, codec))


class Table(TableLike, MutableMapping[KeyT, ValueT]):
    """A dict with the rows of the task that the agent runs in; made by `App.Table`. A missing key returns the default,
    which becomes a row only when it is set.

    Keys are None, bool, int, float, str, bytes, records, and tuples of them. Equal keys are one row; True and 1.0 are
    stored as 1. Values are the same types, and lists, tuples and dicts of them; with a key_type or value_type also what
    that names. Other types raise AppError, because the changelog could not restore them unchanged. A value that was
    changed in place must be set again, or the change is lost, as in Faust: in memory it is seen until the worker ends,
    on disk not at all.
    """

    def __init__(self, spec: TableSpec, app: Hosted | None = None, on_recover: Sequence[Recovered] = ()) -> None:
        self.spec = spec
        self.recover_callbacks = list(on_recover)
        self._app = app
        self._has_windows = False

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(absent.said("Table", name, dir(type(self))))

    def migration(
        self,
        *,
        from_version: int,
        to_version: int | None = None,
        keys: bool = False,
        merge: Callable[[Any, Any], Any] | None = None,
        key_type: Any = None,
        value_type: Any = None,
    ) -> Callable[[Migrate], Migrate]:
        """Decorates what makes rows of one version those of another; see `add_migration`."""

        def declare(function: Migrate) -> Migrate:
            add_migration(self.spec, function, from_version, to_version, keys, merge, key_type, value_type)
            return function

        return declare

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

    @property
    def is_global(self) -> bool:
        """Whether each worker has all rows."""
        return self.spec.is_global

    @property
    def _state(self) -> Store | GlobalStore | UnionStore:
        if self.spec.is_global:
            return global_rows(self.spec, self._app)
        if self._has_windows:
            raise AppError(f"table {self.spec.name} has windows: use what its tumbling() or hopping() returned")
        try:
            return current_work.get().task.stores[self.spec.name]
        except LookupError:
            return rows_at_hand(self.spec, self._app)

    def tumbling(self, size: Seconds, expires: Seconds | None = None, key_index: bool = False) -> WindowedTable:
        """Make this a table with windows of `size` seconds, one after the other, aligned to the epoch. expires: so many
        seconds after its end a window closes, and is removed; None: never. key_index: as if it were true."""
        return self.hopping(size, size, expires)

    def hopping(
        self, size: Seconds, step: Seconds, expires: Seconds | None = None, key_index: bool = False
    ) -> WindowedTable:
        """Make this a table with windows of `size` seconds, which begin every `step` seconds."""
        return self.using_window(HoppingWindow(size, step, expires))

    def using_window(self, window: HoppingWindow, *, key_index: bool = False) -> WindowedTable:
        """Make this a table with these windows: a `TumblingWindow` or `HoppingWindow`."""
        if not isinstance(window, HoppingWindow):
            raise AppError(
                f"table {self.spec.name}: using_window({window!r}) needs a TumblingWindow or a HoppingWindow; windows "
                "that begin with each event, and sessions, are in pipelines: app.pipeline"
            )
        if self._has_windows:
            raise AppError(f"table {self.spec.name} has windows already")
        if self.spec.is_global:
            raise AppError(
                f"table {self.spec.name} is global, and has no windows: let an agent with a windowed app.Table send "
                "what closes to a topic, and make a GlobalTable of that, topic=…"
            )
        self._has_windows = True
        windows = window.as_table_windows()
        self.spec.use_windows(windows)
        made = WindowedTable(self.spec, windows, self._app, self.recover_callbacks)
        if self._app is not None:
            self._app.tables[self.name] = made
        return made

    def __repr__(self) -> str:
        return f"<Table {self.spec.name}>"

    def __getitem__(self, key: KeyT) -> ValueT:
        value: ValueT = self._state.get(key)
        return value

    def __setitem__(self, key: KeyT, value: ValueT) -> None:
        self._state.set(key, value)

    def __delitem__(self, key: KeyT) -> None:
        self._state.delete(key)

    def __contains__(self, key: Any) -> bool:
        return key in self._state.rows

    def __iter__(self) -> Iterator[KeyT]:
        return iter(self._state.rows)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._state.rows)

    def __len__(self) -> int:
        return len(self._state.rows)

    # The mixins of MutableMapping use `table[key]` to look for a row; with a default every key would seem to exist.

    def keys(self) -> KeysView[KeyT]:
        return self._state.rows.keys()

    def values(self) -> ValuesView[ValueT]:
        return self._state.rows.values()

    def items(self) -> ItemsView[KeyT, ValueT]:
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

    def clear(self) -> None:
        """Remove all rows of the task that the agent runs in."""
        state = self._state
        for key in list(state.rows):
            state.delete(key)

    def copy(self) -> dict[Any, Any]:
        """The rows as a plain dict."""
        return dict(self._state.rows)

    __copy__ = copy

    def as_ansitable(
        self, *, key: str = "Key", value: str = "Value", sort: bool = False, title: str = "{table.name}"
    ) -> str:
        """The rows as a table for a terminal. key, value: what stands above them. sort: by key."""
        rows = list(self.items())
        if sort:
            rows.sort(key=lambda row: (str(type(row[0])), row[0]))
        return drawn(rows, (key, value), title.format(table=self))

    def __or__(self, other: Mapping[Any, Any]) -> dict[Any, Any]:
        return {**self, **other} if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Mapping[Any, Any]) -> dict[Any, Any]:
        return {**other, **self} if isinstance(other, Mapping) else NotImplemented

    def __ior__(self, other: Any) -> Table:  # type: ignore[misc]  # as dict's: `|` makes a new dict, `|=` does not
        self.update(other)
        return self
