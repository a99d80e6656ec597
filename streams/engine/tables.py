"""Tables: what an app remembers. A `TableSpec` is declared once by the app; each task has a `TableState` of it, which
holds the rows of that task's partition alone and remembers which changed since the last checkpoint.

Windowed rows are kept by (key, start of the window in ms); the window of a row is found by event time, which is the
record's timestamp. Pure: no loop, no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from ..errors import AppError
from .codecs import freeze, tag_bytes

SEPARATOR = b"\0"


@dataclass
class TableSpec:
    """name: unique in the app. default: makes a missing key's value. size_ms: of tumbling windows; 0: none."""

    name: str
    default: Callable[[], Any] | None = None
    size_ms: int = 0

    def __post_init__(self) -> None:
        if not self.name or "\0" in self.name:
            raise AppError(f"table name {self.name!r} is empty or holds a null character")

    def encode_key(self, key: Any) -> bytes:
        """The changelog's key of a row; `key` is (key, window start) in a windowed table. Raises AppError for a key
        that would not come back as it was."""
        try:
            data = orjson.dumps(key, default=tag_bytes)
            if type(key) is not str and freeze(orjson.loads(data)) != key:
                raise TypeError(f"a {type(key).__name__} would not come back as it was")
        except TypeError as error:
            raise AppError(
                f"table {self.name}: key {key!r} cannot be kept: {error}; keys are text, bytes, numbers and tuples of "
                "them"
            ) from error
        return self.name.encode() + SEPARATOR + data

    def encode_value(self, key: Any, value: Any) -> bytes:
        try:
            return orjson.dumps(value)
        except TypeError as error:
            raise AppError(f"table {self.name}: the value of key {key!r} cannot be kept as JSON: {error}") from error

    def window_start_ms(self, timestamp_ms: int) -> int:
        return timestamp_ms - timestamp_ms % self.size_ms


class TableState:
    """The rows of one task. `rows` may be read freely; writes go through `set` and `delete`."""

    __slots__ = ("dirty", "rows", "spec")

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self.rows: dict[Any, Any] = {}
        self.dirty: dict[Any, None] = {}  # in the order of their first change

    def get(self, key: Any) -> Any:
        """The value, else a new default; KeyError when the table has no default."""
        try:
            return self.rows[key]
        except KeyError:
            if self.spec.default is None:
                raise
            return self.spec.default()

    def set(self, key: Any, value: Any) -> None:
        self.rows[key] = value
        self.dirty[key] = None

    def delete(self, key: Any) -> None:
        del self.rows[key]
        self.dirty[key] = None

    def take_changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Changed rows as changelog keys and values (None: deleted), encoded now; they count as unchanged then."""
        dirty, self.dirty = self.dirty, {}
        for key in dirty:
            value = self.spec.encode_value(key, self.rows[key]) if key in self.rows else None
            yield self.spec.encode_key(key), value


def split_key(data: bytes) -> tuple[str, Any]:
    """(table, row key) of a changelog key."""
    name, _, key = data.partition(SEPARATOR)
    return name.decode(), freeze(orjson.loads(key))
