"""The rows of a global table in one worker: of all partitions, as they are committed, and what the app has changed.

A change of the app is seen in its worker at once, and is written in the worker's next transaction. It hides what is
committed until it has come back from the table's topic: so a read always follows the worker's own writes, and between
two workers a row is what the topic has last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import AppError
from ..tables import DISK, TableSpec
from .rows import by_any_key
from .store import Change, Store


class Written(NamedTuple):
    """A changed row on its way to the topic. value: as there; None: a tombstone."""

    key: bytes
    value: bytes | None
    partition: int


class Place(NamedTuple):
    """Where a row was written."""

    partition: int
    offset: int


class _Own:
    """A row as the app has changed it. place: once it is committed."""

    __slots__ = ("data", "is_there", "place", "value")

    def __init__(self, value: Any, data: bytes | None) -> None:
        self.value = value
        self.data = data  # None: the row was deleted
        self.is_there = data is not None
        self.place: Place | None = None


class GlobalStore:
    """committed: the stores of what is read: in memory one for all partitions, on disk one for each. partition_of: of a
    row's key, as it is written; None: the table cannot be written, since it is another topic's."""

    def __init__(
        self, spec: TableSpec, committed: Sequence[Store], partition_of: Callable[[bytes], int] | None = None
    ) -> None:
        self.spec = spec
        self._committed = list(committed)
        self._is_divided = spec.store == DISK
        self._partition_of = partition_of
        self._own: dict[Any, _Own] = {}
        self._changed: dict[Any, None] = {}  # keys, in the order of their first change since the last commit began
        self._under_way: dict[Any, _Own] = {}
        is_plain = partition_of is None and not self._is_divided
        self.rows: Mapping[Any, Any] = (
            committed[0].rows if is_plain else by_any_key(_Rows(self._committed, self._own), spec)
        )

    # --- What the app sees ----------------------------------------------------------------------------

    def get(self, key: Any) -> Any:
        """The value, else a new default; KeyError if the table has no default."""
        try:
            return self.rows[key]
        except KeyError:
            if self.spec.default is None:
                raise
            return self.spec.default()

    def set(self, key: Any, value: Any) -> None:
        """Raises AppError, with nothing changed, for a row that cannot be written."""
        self._check_writable()
        key = self.spec.canonical_key(key)
        self.spec.encode_key(key)
        self._change(key, _Own(value, self.spec.encode_value(key, value)))

    def delete(self, key: Any) -> None:
        """KeyError if there is no row."""
        self._check_writable()
        key = self.spec.canonical_key(key)
        if key not in self.rows:
            raise KeyError(key)
        self._change(key, _Own(None, None))

    def _check_writable(self) -> None:
        if self._partition_of is None:
            raise AppError(
                f"table {self.spec.name} is a view of topic {self.spec.source}, and can only be read: send to the topic"
            )

    def _change(self, key: Any, own: _Own) -> None:
        self._own[key] = own
        self._changed[key] = None

    # --- From changed to committed --------------------------------------------------------------------

    @property
    def has_changes(self) -> bool:
        """Whether rows wait for the next transaction."""
        return bool(self._changed)

    def take_changes(self) -> list[Written]:
        """What changed since this was called last. It is under way until `confirm` or `roll_back`."""
        assert self._partition_of is not None or not self._changed
        self._under_way = {key: self._own[key] for key in self._changed}
        self._changed.clear()
        found = []
        for key, own in self._under_way.items():
            data = self.spec.encode_key(key)
            assert self._partition_of is not None
            found.append(Written(data, own.data, self._partition_of(data)))
        return found

    def confirm(self, places: Sequence[Place]) -> None:
        """What was under way is committed. places: of the rows, in their order."""
        for own, place in zip(self._under_way.values(), places, strict=True):
            own.place = place
        self._under_way = {}

    def roll_back(self) -> None:
        """Forget what is not committed."""
        for key in [key for key, own in self._own.items() if own.place is None]:
            del self._own[key]
        self._changed.clear()
        self._under_way = {}

    # --- What is read -----------------------------------------------------------------------------------

    def start(self, partition: int) -> int:
        """The offset from which a partition is to be read."""
        return self._committed[partition].changelog_offset if self._is_divided else 0

    def grow(self, more: Sequence[Store]) -> None:
        """The topic has more partitions now. more: their stores, on disk."""
        self._committed += more

    def follow(self, partition: int, changes: Iterable[Change], next_offset: int) -> None:
        """Take over committed rows of a partition, which go up to this offset."""
        self._committed[partition if self._is_divided else 0].restore(changes, next_offset)
        for key in [key for key, own in self._own.items() if _is_read(own, partition, next_offset)]:
            del self._own[key]

    def count(self) -> Iterator[None]:
        """All that there is was taken over: rows are counted, in these steps."""
        for store in list(self._committed):
            yield from store.count()

    def close(self) -> None:
        for store in self._committed:
            store.close()


def _is_read(own: _Own, partition: int, next_offset: int) -> bool:
    return own.place is not None and own.place.partition == partition and own.place.offset < next_offset


class _Rows(Mapping[Any, Any]):
    """The app's changes over what is committed."""

    def __init__(self, committed: Sequence[Store], own: Mapping[Any, _Own]) -> None:
        self._committed = committed
        self._own = own

    def __getitem__(self, key: Any) -> Any:
        own = self._own.get(key)
        if own is not None:
            if own.is_there:
                return own.value
            raise KeyError(key)
        for store in self._committed:
            if key in store.rows:
                return store.rows[key]
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        own = self._own.get(key)
        if own is not None:
            return own.is_there
        return any(key in store.rows for store in self._committed)

    def __iter__(self) -> Iterator[Any]:
        own = self._own
        for store in self._committed:
            yield from store.rows if not own else (key for key in store.rows if key not in own)
        yield from [key for key, each in own.items() if each.is_there]

    def __reversed__(self) -> Iterator[Any]:
        return reversed(list(self))

    def __len__(self) -> int:
        count = sum(len(store.rows) for store in self._committed)
        for key, own in self._own.items():
            count += own.is_there - any(key in store.rows for store in self._committed)
        return count
