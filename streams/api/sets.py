"""`SetTable`: a table whose values are sets. A row has all members of its set: each change writes all of them."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, MutableSet, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from ..engine.stores.global_store import GlobalStore
from ..engine.stores.store import Store
from ..engine.tables import TableSpec
from ..errors import AppError
from .host import Hosted
from .table_options import Recovered
from .tables import Table
from .topics import Topic
from .union import UnionStore

if TYPE_CHECKING:
    from .streams import Stream

MANAGER_SUFFIX = "-setmanager"


class StoredSet(MutableSet[Any]):
    """The set of one key. An empty one has no row. Members are what a table's values may have in them."""

    def __init__(self, store: Store | GlobalStore | UnionStore, key: Any) -> None:
        self._store = store
        self._key = key

    def _members(self) -> dict[Any, None]:
        return dict.fromkeys(self._store.rows.get(self._key, ()))

    def _write(self, members: Iterable[Any]) -> None:
        kept = list(members)
        if kept:
            self._store.set(self._key, kept)
        elif self._key in self._store.rows:
            self._store.delete(self._key)

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> set[Any]:  # of `a | b`
        return set(it)

    def __contains__(self, member: object) -> bool:
        return member in self._members()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members())

    def __len__(self) -> int:
        return len(self._members())

    def __repr__(self) -> str:
        return repr(set(self._members()))

    def add(self, value: Any) -> None:
        self.update((value,))

    def discard(self, value: Any) -> None:
        self.difference_update((value,))

    def clear(self) -> None:
        self._write(())

    def update(self, *others: Iterable[Any]) -> None:
        members = self._members()
        more = members | {member: None for other in others for member in other}
        if len(more) > len(members):
            self._write(more)

    def difference_update(self, *others: Iterable[Any]) -> None:
        self._keep({member for other in others for member in other}, without=True)

    def intersection_update(self, *others: Iterable[Any]) -> None:
        for other in others:
            self._keep(set(other), without=False)

    def symmetric_difference_update(self, other: Iterable[Any]) -> None:
        members, given = self._members(), dict.fromkeys(other)
        self._write([each for each in members if each not in given] + [each for each in given if each not in members])

    def _keep(self, given: set[Any], without: bool) -> None:
        """Those that are in `given`, or those that are not."""
        members = self._members()
        kept = [each for each in members if (each in given) is not without]
        if len(kept) < len(members):
            self._write(kept)


class SetTable(Table):
    """Made by `App.SetTable`. `table[key]` is a set, whose changes are stored."""

    manager: SetTableManager

    def __init__(self, spec: TableSpec, app: Hosted | None = None, on_recover: Sequence[Recovered] = ()) -> None:
        spec.default = list
        super().__init__(spec, app, on_recover)

    def __getitem__(self, key: Any) -> StoredSet:
        return StoredSet(self._state, key)

    def __setitem__(self, key: Any, value: Iterable[Any]) -> None:
        self[key]._write(dict.fromkeys(value))

    def get(self, key: Any, default: Any = None) -> Any:
        """The set of a key that has one, else `default`."""
        if key not in self:
            return default
        return self[key]

    def setdefault(self, key: Any, default: Any = ()) -> StoredSet:
        """The set of a key; an empty one becomes `default`."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: Any, *default: Any) -> Any:
        """Remove a key; its members, else `default`. KeyError if there is neither."""
        return set(super().pop(key)) if key in self or not default else default[0]

    def values(self) -> ValuesView[Any]:
        return ValuesView(self)

    def items(self) -> ItemsView[Any, Any]:
        return ItemsView(self)

    def copy(self) -> dict[Any, Any]:
        """The sets as plain sets in a dict."""
        return {key: set(members) for key, members in self.items()}

    __copy__ = copy

    def using_window(self, window: Any, *, key_index: bool = False) -> NoReturn:
        """Raises AppError: sets have no windows."""
        raise AppError(f"table {self.spec.name} has sets, which have no windows: use app.Table(…, default=list)")


class Declaring(Protocol):
    """The app, as the manager of a table needs it."""

    def topic(self, *topics: str, key_type: Any = None, internal: bool = False) -> Topic: ...

    def agent(self, channel: Topic, *, name: str, tables: Any) -> Callable[[Any], Any]: ...


class SetTableManager:
    """Changes sets from anywhere, such as a page or a timer: by a topic, which an agent of the table's reads. Its
    records are those of faust-streaming."""

    def __init__(self, table: SetTable, app: Declaring | None, topic: str | None = None) -> None:
        self._table = table
        self._topic: Topic | None = None
        if app is not None:
            name = topic or table.spec.name + MANAGER_SUFFIX
            self._topic = app.topic(name, key_type=str, internal=True)
            app.agent(self._topic, name=f"{table.spec.name}.manager", tables=[table])(self._change)

    async def add(self, key: str, member: Any) -> None:
        await self._send("ADD", key, [member])

    async def discard(self, key: str, member: Any) -> None:
        await self._send("DISCARD", key, [member])

    async def clear(self, key: str) -> None:
        await self._send("CLEAR", key, [])

    async def difference_update(self, key: str, members: Iterable[Any]) -> None:
        await self._send("DISCARD", key, members)

    async def intersection_update(self, key: str, members: Iterable[Any]) -> None:
        await self._send("INTERSECTION", key, members)

    async def symmetric_difference_update(self, key: str, members: Iterable[Any]) -> None:
        await self._send("SYMDIFF", key, members)

    async def _send(self, action: str, key: str, members: Iterable[Any]) -> None:
        if self._topic is None:
            raise AppError(f"table {self._table.spec.name} has no manager: declare it with start_manager=True")
        kind = {"ns": "@SetManagerOperation"}
        await self._topic.send(key=key, value={"action": action, "members": list(members), "__faust": kind})

    async def _change(self, stream: Stream) -> None:
        async for key, value in stream.items():
            members: AbstractSet[Any] = dict.fromkeys(value["members"]).keys()
            found = self._table[key]
            match value["action"]:
                case "ADD":
                    found.update(members)
                case "DISCARD":
                    found.difference_update(members)
                case "CLEAR":
                    found.clear()
                case "INTERSECTION":
                    found.intersection_update(members)
                case "SYMDIFF":
                    found.symmetric_difference_update(members)
                case other:
                    raise AppError(f"the manager of table {self._table.spec.name} knows no action {other!r}")
