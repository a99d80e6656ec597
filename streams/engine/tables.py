"""Tables: the state of an app. The app declares a `TableSpec` once. Each task has a store of it (`stores/`), with the
rows of that task's partition.

Rows of windowed tables are stored by (key, start of the window in ms). Pure: no loop, no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import AppError
from . import topic_names
from .codecs import (
    EXACTLY,
    KEY_TYPES,
    VALUE_TYPES,
    canonical_key,
    decode_table_key,
    decode_table_keys,
    decode_table_value,
    decode_table_values,
    encode_table_key,
    encode_table_value,
)
from .described import GIVEN_BY, KEYS, PARTITIONER, ROWS_OF, VALUE_TYPE
from .feeding import FEEDS
from .migration import Migration
from .placement import BY_FIRST, BY_KEY, Placement
from .windows import TableWindows

MEMORY, DISK = "memory", "disk"


class RowCodec(Protocol):
    """How rows of a table with types or serializers are written. What cannot be written raises TypeError, which names
    it; what cannot be read raises ChangelogError."""

    @property
    def accepts(self) -> tuple[str, str]:
        """What keys and what values a table may have, for people."""
        ...

    @property
    def takes_scalars(self) -> tuple[bool, bool]:
        """Whether any None, bool, int, float, str and bytes can be a key, and a value."""
        ...

    @property
    def changes_keys(self) -> bool:
        """Whether the canonical key need not equal the keys that it stands for, as b"k" does not equal "k"."""
        ...

    def canonical_key(self, key: Any) -> Any:
        """What decoding the encoded key gives."""
        ...

    def encode_key(self, key: Any) -> bytes: ...

    def decode_key(self, data: bytes) -> Any: ...

    def encode_value(self, value: Any) -> bytes: ...

    def decode_value(self, data: bytes) -> Any: ...

    def decode_rows(self, rows: Sequence[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]: ...

    def windowed(self) -> RowCodec:
        """Of rows whose keys are (key, start of the window in ms)."""
        ...


@dataclass(frozen=True)
class Derived:
    """What a table's rows are made of: those of another table of the task, by `made`."""

    of: str
    made: Callable[[Any], Any]


@dataclass
class TableSpec:
    """name: unique in the app. default: returns a missing key's value. store: where its rows are. help: what it is,
    for people. windows: None: it has none. on_window_close: called with (key, (start, end)), in seconds, and the value
    of each window that closes. partitions: of its changelog, where that is not there yet; None: as many as its inputs
    have. changelog_options: of that topic, beside those that it needs. codec: of a table with types; None: rows are
    what `codecs` restores. key_type: what its keys are. is_global: all workers have all rows. source: the topic that a
    global table is a view of; None: its own, which the app writes. placement: which task a row is of, without windows.
    version: of what its rows are, from 1; migrations: from other versions. is_untyped: its codec has no type.
    part: of a step of a pipeline, the topics that it and all that it hangs together with read. made_by: what else its
    rows depend on, see `engine/described.py`. adopt: instead of migrations, from what rows of another version were made
    by: what makes one of this version of a key and a value. derived: rows of another version are made anew. takes_out:
    values that were put into rows are taken out again, so that none of their columns can begin anew. partitioner: by
    which the app itself brings records to it, as text; none where others do. keys: as what the keys of its records are
    read; value_type: what values are, as text. feeds: steps that need all its rows, and the tables behind them
    (`engine/feeding.py`); rows_of: tables of whose rows its own are made by such a step. given_by: the step that gives
    its rows later, which are events."""

    name: str
    default: Callable[[], Any] | None = None
    store: str = MEMORY
    help: str = ""
    windows: TableWindows | None = None
    on_window_close: Callable[[Any, Any], Any] | None = None
    partitions: int | None = None
    changelog_options: Mapping[str, str] = field(default_factory=dict)
    codec: RowCodec | None = None
    key_type: Any = None
    is_global: bool = False
    source: str | None = None
    placement: Placement = BY_KEY
    version: int = 1
    migrations: list[Migration] = field(default_factory=list)
    part: str = ""
    is_untyped: bool = False
    made_by: Mapping[str, Any] = field(default_factory=dict)
    adopt: Callable[[Mapping[str, Any]], Callable[[Any, Any], Any]] | None = None
    derived: Derived | None = None
    takes_out: bool = False
    partitioner: str = ""
    value_type: str | None = None
    feeds: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rows_of: Sequence[str] = ()
    given_by: str = ""
    keys: str = ""

    def __post_init__(self) -> None:
        topic_names.check("table name", self.name)

    def use_windows(self, windows: TableWindows) -> None:
        self.windows = windows
        if self.codec is not None:
            self.codec = self.codec.windowed()

    @property
    def placed(self) -> Placement:
        return BY_FIRST if self.windows is not None else self.placement

    @property
    def may_change(self) -> bool:
        """Whether there may be rows that it cannot read: of other versions, or of another type."""
        is_typed = self.codec is not None and not self.is_untyped
        return self.may_migrate or (is_typed and not self.is_global)

    @property
    def may_migrate(self) -> bool:
        """Whether its rows may have to be made of those of other versions."""
        return not self.is_global and (self.version > 1 or bool(self.migrations))

    @property
    def description(self) -> dict[str, Any]:
        """What its rows are, as JSON, to be compared with what they were (`engine/changes.py`)."""
        said: dict[str, Any] = {"version": self.version, VALUE_TYPE: self.value_type, **self.made_by}
        if self.windows is not None:
            said |= {"size_ms": self.windows.size_ms, "step_ms": self.windows.step_ms}
        if self.part:
            said |= {"part": self.part, FEEDS: dict(self.feeds), ROWS_OF: list(self.rows_of)}
        if self.keys:
            said[KEYS] = self.keys
        if self.given_by:
            said[GIVEN_BY] = self.given_by
        if self.partitioner:
            said[PARTITIONER] = self.partitioner
        return said

    def canonical_key(self, key: Any) -> Any:
        """The key under which a row is stored, and comes back: 1 for True and 1.0, b"k" for "k" if the serializer reads
        bytes. Raises AppError for a key that could not be restored."""
        try:
            if self.codec is not None:
                canonical = self.codec.canonical_key(key)
                if canonical is not key:
                    self.codec.encode_key(canonical)
                return canonical
            canonical = canonical_key(key)
            if canonical is not key:
                encode_table_key(canonical)  # a tuple of tuples may be nested too deeply
            return canonical
        except TypeError as error:
            accepted = f"{KEY_TYPES}, {EXACTLY}" if self.codec is None else self.codec.accepts[0]
            raise self._refused(f"key {key!r}", error, accepted) from error

    @property
    def changes_keys(self) -> bool:
        """Whether a dict of rows by canonical keys does not find them by all keys that these stand for."""
        return self.codec is not None and self.codec.changes_keys

    def encode_key(self, key: Any) -> bytes:
        """The changelog key of a row; `key` is canonical."""
        return encode_table_key(key) if self.codec is None else self.codec.encode_key(key)

    def decode_key(self, data: bytes) -> Any:
        return decode_table_key(data) if self.codec is None else self.codec.decode_key(data)

    def encode_value(self, key: Any, value: Any) -> bytes:
        """Raises AppError for a value that would not be restored equal and of the same type."""
        try:
            return encode_table_value(value) if self.codec is None else self.codec.encode_value(value)
        except TypeError as error:
            accepted = f"{VALUE_TYPES}, {EXACTLY}" if self.codec is None else self.codec.accepts[1]
            raise self._refused(f"the value of key {key!r}", error, accepted) from error

    def decode_value(self, data: bytes) -> Any:
        return decode_table_value(data) if self.codec is None else self.codec.decode_value(data)

    def decode_rows(self, rows: Sequence[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        """Keys and values of rows, of many at once."""
        if self.codec is not None:
            return self.codec.decode_rows(rows)
        return zip(
            decode_table_keys([key for key, _ in rows]), decode_table_values([row for _, row in rows]), strict=True
        )

    def _refused(self, what: str, error: Exception, accepted: str) -> AppError:
        return AppError(
            f"table {self.name}: {what} cannot be stored: it is or has {error}, which cannot be restored unchanged; a "
            f"table accepts {accepted}"
        )
