"""Rows in a database on disk, for tables that are larger than memory or take long to restore.

The database has what is committed and nothing else: a checkpoint's rows are written in one batch with the offset of the
changelog that they go up to, so that they never part, whenever the process is killed. What the app changed since is
in memory, in two layers: changed, and under way. Decoded values of committed rows are cached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from ...errors import AppError, ChangelogError, ChangeRefused, OtherChangelog, StoreError
from ..steps import in_steps
from ..tables import MEMORY, TableSpec
from .database import Database, DiskMemory
from .layout import FORMAT, ROWS, UNCOUNTED, Lock, Summary, write_summary
from .rows import Pairs, by_any_key
from .store import Change, taken_as_they_are

# Keys in the database that are no rows'. A row's key that begins like them has one more zero byte in front, as in the
# changelog.
META, MARKER = b"\0store", b"\0marker"
_ESCAPE = b"\0"
CACHED_VALUE_BYTES = 1024  # a longer value is read and decoded each time
SUMMARY_INTERVAL_MS = 30_000


class _Encoded:
    """A value that the app could change in place: each `get` decodes a new one."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class _Mark:
    __slots__ = ()


_GONE = _Mark()  # there is no such row
_UNKNOWN = _Mark()  # this layer does not say


class DiskStore:
    """A `Store` whose rows are in `directory`, which it locks. `rows` has no order.

    changelog: which partition of which topic the rows are from, such as `<topic id>-<partition>`. wall_ms: ms since
    the epoch. Raises StoreError if the directory is in use, of another format or changelog, or corrupt.

    Bounds: what is cached is bounded by `memory`; what is changed and under way, by what the app changes between two
    checkpoints. `restore` holds one call's changes in memory.

    Rows are counted as they change, except while a store is filled: to look for each key whether it is there costs as
    much as all the rest of a restore, and ten times as much as to go through all keys once, when the rows are there.
    """

    __slots__ = (
        "_cached",
        "_cached_before",
        "_changed",
        "_changed_rows",
        "_changelog",
        "_changes_keys",
        "_committed_rows",
        "_database",
        "_directory",
        "_immutable",
        "_is_filled",
        "_lock",
        "_memory",
        "_pending",
        "_plain_keys",
        "_summary_ms",
        "_under_way",
        "_under_way_rows",
        "_wall_ms",
        "changelog_offset",
        "marker",
        "rows",
        "spec",
    )

    def __init__(
        self, spec: TableSpec, directory: Path, changelog: str, memory: DiskMemory, wall_ms: Callable[[], int]
    ) -> None:
        self.spec = spec
        self.rows = by_any_key(_Rows(self), spec)
        self._changes_keys = spec.changes_keys
        self.changelog_offset = 0
        self.marker: bytes | None = None
        # What the app made of a row, by key: a value, an _Encoded one, or _GONE. `changed` hides `under_way`, which
        # hides what is committed. The numbers say how many rows more a layer makes.
        self._changed: dict[Any, Any] = {}
        self._changed_rows = 0
        self._under_way: dict[Any, Any] = {}
        self._under_way_rows = 0
        self._pending: list[Change] = []  # what is under way, as it will be written
        # Of committed rows and of keys without one, in two generations: when the younger has half of what may be cached
        # the elder is dropped.
        self._cached: dict[Any, Any] = {}
        self._cached_before: dict[Any, Any] = {}
        self._committed_rows: int | None = 0  # None: not counted yet
        self._is_filled = False  # from when all rows were there that there were: others come few at a time
        self._changelog = changelog
        self._directory = directory
        self._plain_keys, self._immutable = taken_as_they_are(spec)
        self._memory = memory
        self._wall_ms = wall_ms
        self._lock = Lock(directory)
        try:
            self._database: Database | None = Database(directory / ROWS, memory)
            try:
                self._open(self._database)
            except BaseException:
                self._database.close()
                raise
        except BaseException:
            self._lock.release()
            raise
        memory.join()
        self._write_summary()

    def _open(self, database: Database) -> None:
        data = database.get(META)
        if data is None:
            if next(database.items(), None) is not None:
                raise self._refused("is not one of a store: it has rows, but nothing says up to which offset")
            database.write(self._meta(0, 0, None))
            return
        meta = orjson.loads(data)
        if meta["format"] not in (FORMAT, UNCOUNTED):
            raise self._refused(f"has format {meta['format']}; this release reads and writes format {FORMAT}")
        if meta["changelog"] != self._changelog:
            raise OtherChangelog(
                f"table {self.spec.name}: {self._directory} has the rows of another changelog: {meta['changelog']}, "
                f"and the table's is {self._changelog}"
            )
        self.changelog_offset, self._committed_rows = meta["changelog_offset"], meta["rows"]
        self.marker = database.get(MARKER)

    def _refused(self, why: str) -> StoreError:
        return StoreError(
            f"table {self.spec.name}: {self._directory} {why}. Delete it to have the rows restored from the changelog"
        )

    # --- What the app sees -------------------------------------------------------------------------------------------

    def get(self, key: Any) -> Any:
        if self._changes_keys:
            with suppress(AppError):
                key = self.spec.canonical_key(key)
        held = self._changed.get(key, _UNKNOWN)
        if held is _UNKNOWN:
            held = self._below(key)
        if held is _GONE:
            if self.spec.default is None:
                raise KeyError(key)
            return self.spec.default()
        return self.spec.decode_value(held.data) if type(held) is _Encoded else held

    def set(self, key: Any, value: Any) -> None:
        kind, plain = type(key), self._plain_keys
        if kind not in plain and not (kind is tuple and key and plain.issuperset(map(type, key))):
            key = self.spec.canonical_key(key)
        held = value if type(value) in self._immutable else _Encoded(self.spec.encode_value(key, value))
        before = self._changed.get(key, _UNKNOWN)
        if before is _UNKNOWN:
            before = self._below(key)
        if before is _GONE:
            self._changed_rows += 1
        self._changed[key] = held

    def delete(self, key: Any) -> None:
        key = self.spec.canonical_key(key)
        if self._held(key) is _GONE:
            raise KeyError(key)
        self._changed[key] = _GONE
        self._changed_rows -= 1

    def _held(self, key: Any) -> Any:
        held = self._changed.get(key, _UNKNOWN)
        return self._below(key) if held is _UNKNOWN else held

    def _below(self, key: Any) -> Any:
        """What a key has beneath the layer of changes."""
        for layer in (self._under_way, self._cached):
            held = layer.get(key, _UNKNOWN)
            if held is not _UNKNOWN:
                return held
        if type(key) not in self._plain_keys:
            try:
                key = self.spec.canonical_key(key)
            except AppError:
                return _GONE  # no row has such a key
        held = self._cached_before.get(key, _UNKNOWN)
        if held is _UNKNOWN:
            data = self._opened().get(_escaped(self.spec.encode_key(key)))
            if data is None:
                held = _GONE
            else:
                value = self.spec.decode_value(data)
                held = value if type(value) in self._immutable else _Encoded(data)
                if len(data) > CACHED_VALUE_BYTES:
                    return held
        self._cache(key, held)
        return held

    def _cache(self, key: Any, held: Any) -> None:
        self._cached[key] = held
        if len(self._cached) * 2 > self._memory.cached_rows_each:
            self._cached_before, self._cached = self._cached, {}

    # --- From changed to committed -----------------------------------------------------------------------------------

    @property
    def has_changes(self) -> bool:
        return bool(self._changed)

    def take_changes(self) -> list[Change]:
        encode_key, encode_value = self.spec.encode_key, self.spec.encode_value
        changes: list[Change] = []
        for key, held in self._changed.items():
            if held is _GONE:
                changes.append((encode_key(key), None))
            else:
                changes.append((encode_key(key), held.data if type(held) is _Encoded else encode_value(key, held)))
        self._under_way.update(self._changed)
        self._under_way_rows += self._changed_rows
        self._pending += changes
        self._changed, self._changed_rows = {}, 0
        return changes

    def confirm(self, changelog_offset: int, marker: bytes) -> None:
        """Raises StoreError, with everything under way as it was, if the rows cannot be written."""
        self._commit(self._pending, self._counted() + self._under_way_rows, changelog_offset, marker)
        under_way = self._under_way
        self._under_way, self._under_way_rows, self._pending = {}, 0, []
        for key, held in under_way.items():
            if _is_short(held):
                self._cache(key, held)
            else:
                self._forget(key)
        self._keep_summary()

    def _forget(self, key: Any) -> None:
        self._cached.pop(key, None)
        self._cached_before.pop(key, None)

    def restore(self, changes: Iterable[Change], changelog_offset: int, marker: bytes | None = None) -> None:
        """Raises StoreError, with nothing restored, if the rows cannot be written."""
        last = dict(changes)
        self._commit(last.items(), self._rows_with(last), changelog_offset, marker)
        self._cached.clear()
        self._cached_before.clear()
        self._keep_summary()

    def _rows_with(self, changes: Mapping[bytes, bytes | None]) -> int | None:
        """How many there are with these; None where `count` is to say so."""
        rows = self._committed_rows
        if rows is None or (rows < len(changes) and not self._is_filled):
            return None
        there = self._opened().get_many(list(map(_escaped, changes))) if rows else [None] * len(changes)
        for value, before in zip(changes.values(), there, strict=True):
            rows += (value is not None) - (before is not None)
        return rows

    def count(self) -> Iterator[None]:
        if self._committed_rows is None:
            rows = 0
            for keys in self._opened().key_pages():
                rows += len(keys) - sum(each in keys for each in (META, MARKER))
                yield
            self._committed_rows = rows
        self._is_filled = True

    def look(self, key: Any) -> Any:
        return self.rows[key]

    def settle(self) -> Iterator[None]:
        """Rows are read when they are asked for."""
        return iter(())

    def encoded(self) -> Iterable[tuple[bytes, bytes]]:
        return self._raw_rows()

    def migrate(self, changes: Sequence[Change]) -> Iterator[None]:
        for some in in_steps(changes):
            there = self._opened().get_many([_escaped(key) for key, _ in some])
            for (key, value), before in zip(some, there, strict=True):
                self._changed[self._known_key(key)] = _GONE if value is None else _Encoded(value)
                self._changed_rows += (value is not None) - (before is not None)
            yield

    def _known_key(self, data: bytes) -> Any:
        try:
            return self.spec.decode_key(data)
        except (ValueError, TypeError, ChangelogError) as error:
            raise ChangeRefused(
                f"table {self.spec.name}: key {data.decode(errors='replace')} is none of its keys any more, and a "
                f"table on disk cannot be migrated to keys of another type: {error}. Use store='{MEMORY}' for it, or a "
                "new name, with which it begins empty"
            ) from error

    def _commit(self, changes: Iterable[Change], rows: int | None, changelog_offset: int, marker: bytes | None) -> None:
        """All in one write, so that rows, offset and marker never part."""
        database = self._opened()
        ordered = sorted(changes, key=_key_of)  # the database takes them faster so; a later change of a key stays later
        written = [(_ESCAPE + key if key[:1] == _ESCAPE else key, value) for key, value in ordered]
        database.write(written + self._meta(changelog_offset, rows, marker))
        self.changelog_offset, self._committed_rows, self.marker = changelog_offset, rows, marker or self.marker

    def roll_back(self) -> bool:
        self._changed, self._changed_rows = {}, 0
        self._under_way, self._under_way_rows, self._pending = {}, 0, []
        return True

    def close(self) -> None:
        if self._database is None:
            return
        database, self._database = self._database, None
        try:
            database.close()
            self._write_summary()
        finally:
            self.roll_back()
            self._cached.clear()
            self._cached_before.clear()
            self._memory.leave()
            self._lock.release()

    # --- Parts -------------------------------------------------------------------------------------------------------

    def _opened(self) -> Database:
        if self._database is None:
            raise StoreError(f"table {self.spec.name}: the store in {self._directory} is closed")
        return self._database

    def _meta(self, changelog_offset: int, rows: int | None, marker: bytes | None) -> list[Change]:
        said = {
            "format": UNCOUNTED if rows is None else FORMAT,
            "changelog": self._changelog,
            "changelog_offset": changelog_offset,
            "rows": rows,
        }
        meta: list[Change] = [(META, orjson.dumps(said))]
        return meta if marker is None else [*meta, (MARKER, marker)]

    def _keep_summary(self) -> None:
        if not 0 <= self._wall_ms() - self._summary_ms < SUMMARY_INTERVAL_MS:
            self._write_summary()

    def _write_summary(self) -> None:
        self._summary_ms = self._wall_ms()
        summary = Summary(self._changelog, self.changelog_offset, self._committed_rows, self._summary_ms)
        with suppress(OSError):  # an older one does as well; the database says what is wrong with the disk
            write_summary(self._directory, summary)

    def _counted(self) -> int:
        assert self._committed_rows is not None, f"{self._directory} was not counted"
        return self._committed_rows

    def _count(self) -> int:
        """About so many, while the store is filled."""
        if self._committed_rows is None:
            return max(0, self._opened().about() - 2)  # META and MARKER are no rows
        return self._committed_rows + self._under_way_rows + self._changed_rows

    def _items(self) -> Iterator[tuple[Any, Any]]:
        """Keys and values, each key once. What is changed meanwhile may be in it or not."""
        layer = {**self._under_way, **self._changed}
        decode_key, decode_value = self.spec.decode_key, self.spec.decode_value
        for key, held in layer.items():
            if held is not _GONE:
                yield key, decode_value(held.data) if type(held) is _Encoded else held
        for data, value in self._raw_rows():
            if (key := decode_key(data)) not in layer:
                yield key, decode_value(value)

    def _raw_rows(self) -> Iterator[tuple[bytes, bytes]]:
        """What is committed, as the changelog has it."""
        for data, value in self._opened().items():
            if data[:1] == _ESCAPE:
                if data[1:2] != _ESCAPE:
                    continue  # not a row
                data = data[1:]
            yield data, value


def _escaped(key: bytes) -> bytes:
    return _ESCAPE + key if key[:1] == _ESCAPE else key


def _key_of(change: Change) -> bytes:
    return change[0]


def _is_short(held: Any) -> bool:
    kind = type(held)
    if kind is _Encoded:
        return len(held.data) <= CACHED_VALUE_BYTES
    return (kind is not str and kind is not bytes) or len(held) <= CACHED_VALUE_BYTES


class _Rows(Pairs):
    """All layers of a store as one mapping, for reading."""

    __slots__ = ("_store",)

    def __init__(self, store: DiskStore) -> None:
        self._store = store

    def __getitem__(self, key: Any) -> Any:
        store = self._store
        held = store._held(key)
        if held is _GONE:
            raise KeyError(key)
        return store.spec.decode_value(held.data) if type(held) is _Encoded else held

    def __contains__(self, key: object) -> bool:
        return self._store._held(key) is not _GONE

    def __len__(self) -> int:
        return self._store._count()

    def __reversed__(self) -> Iterator[Any]:
        name = self._store.spec.name
        raise AppError(f"the rows of table {name} are on disk, where none is the last: keep an order in keys or values")

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        return self._store._items()
