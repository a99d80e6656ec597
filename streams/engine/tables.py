"""Tables: the state of an app. The app declares a `TableSpec` once. Each task has a `TableState` of it, with the rows
of that task's partition, which records the rows that changed since the last checkpoint.

Windowed rows are stored by (key, start of the window in ms). A row's window follows from the event time, which is the
record's timestamp. Pure: no loop, no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import AppError
from .codecs import (
    KEY_TYPES,
    PLAIN_KEYS,
    VALUE_TYPES,
    canonical_key,
    decode_table_key,
    decode_table_value,
    encode_table_key,
    encode_table_value,
)

SEPARATOR = b"\0"
_IMMUTABLE = frozenset((int, str, float, bool, type(None), bytes))  # values of these types need not be encoded at once


@dataclass
class TableSpec:
    """name: unique in the app. default: returns a missing key's value. size_ms: of tumbling windows; 0: none."""

    name: str
    default: Callable[[], Any] | None = None
    size_ms: int = 0

    def __post_init__(self) -> None:
        if not self.name or "\0" in self.name:
            raise AppError(f"table name {self.name!r} is empty or has a null character")

    def canonical_key(self, key: Any) -> Any:
        """The key under which a row is stored, for all equal keys: 1 for True and 1.0. Raises AppError for a key that
        could not be restored."""
        try:
            canonical = canonical_key(key)
            if canonical is not key:
                encode_table_key(canonical)  # a tuple of tuples may be nested too deeply
            return canonical
        except TypeError as error:
            raise self._refused(f"key {key!r}", error, KEY_TYPES) from error

    def encode_key(self, key: Any) -> bytes:
        """The changelog key of a row; `key` is canonical, and (key, window start) in a windowed table."""
        return self.name.encode() + SEPARATOR + encode_table_key(key)

    def encode_value(self, key: Any, value: Any) -> bytes:
        """Raises AppError for a value that would not be restored equal and of the same type."""
        try:
            return encode_table_value(value)
        except TypeError as error:
            raise self._refused(f"the value of key {key!r}", error, VALUE_TYPES) from error

    def _refused(self, what: str, error: Exception, types: str) -> AppError:
        return AppError(
            f"table {self.name}: {what} cannot be stored: it is or has {error}, which cannot be restored unchanged; a "
            f"table accepts {types}, and no subclasses of these"
        )

    def window_start_ms(self, timestamp_ms: int) -> int:
        return timestamp_ms - timestamp_ms % self.size_ms


class TableState:
    """The rows of one task. `rows` may be read freely; writes go through `set` and `delete`."""

    __slots__ = ("dirty", "rows", "spec")

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self.rows: dict[Any, Any] = {}
        # In the order of their first change. A value that the app could change in place is encoded when it is set.
        # None: `take_changes` encodes the row's value then, or the row is gone: it was deleted.
        self.dirty: dict[Any, bytes | None] = {}

    def get(self, key: Any) -> Any:
        """The value, else a new default; KeyError if the table has no default."""
        try:
            return self.rows[key]
        except KeyError:
            if self.spec.default is None:
                raise
            return self.spec.default()

    def set(self, key: Any, value: Any) -> None:
        """Raises AppError, with nothing changed, for a key or value that a restart could not restore."""
        if type(key) not in PLAIN_KEYS:
            key = self.spec.canonical_key(key)
        self._set(key, value)

    def set_window(self, key: Any, start_ms: int, value: Any) -> None:
        """`set` for the row of a window."""
        self._set((key if type(key) in PLAIN_KEYS else self.spec.canonical_key(key), start_ms), value)

    def _set(self, key: Any, value: Any) -> None:
        self.dirty[key] = None if type(value) in _IMMUTABLE else self.spec.encode_value(key, value)
        self.rows[key] = value

    def delete(self, key: Any) -> None:
        """KeyError if there is no row. `key` is (key, window start) in a windowed table."""
        key = self.spec.canonical_key(key)
        del self.rows[key]
        self.dirty[key] = None

    def restore(self, key: Any, value: bytes) -> None:
        """Set a row from the changelog."""
        self.rows[key] = decode_table_value(value)

    def take_changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Changed rows as changelog keys and values (None: deleted). Afterwards they count as unchanged."""
        dirty, self.dirty = self.dirty, {}
        for key, value in dirty.items():
            if value is None and key in self.rows:
                value = self.spec.encode_value(key, self.rows[key])
            yield self.spec.encode_key(key), value


def split_key(data: bytes) -> tuple[str, Any]:
    """(table, row key) of a changelog key."""
    name, _, key = data.partition(SEPARATOR)
    return name.decode(), decode_table_key(key)
