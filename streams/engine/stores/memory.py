"""Rows in a dict. Fast, and filled from the changelog at each start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from ...errors import ChangelogError
from ..steps import in_steps
from ..tables import TableSpec
from ..versions import settled
from .rows import by_any_key
from .store import Change, taken_as_they_are


class MemoryStore:
    """A `Store`. `rows` may be read freely; writes go through `set` and `delete`."""

    __slots__ = (
        "_dirty",
        "_immutable",
        "_plain_keys",
        "_restored",
        "_rewritten",
        "_rows",
        "changelog_offset",
        "marker",
        "rows",
        "spec",
    )

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self._rows: dict[Any, Any] = {}
        self.rows = by_any_key(self._rows, spec)
        self._plain_keys, self._immutable = taken_as_they_are(spec)
        self.changelog_offset = 0
        self.marker: bytes | None = None
        # In the order of their first change. A value that the app could change in place is encoded when it is set.
        # None: `take_changes` encodes the row's value then, or the row is gone: it was deleted.
        self._dirty: dict[Any, bytes | None] = {}
        # As the changelog has them, until it is known of which version they are: all since the first that must be.
        self._restored: dict[bytes, bytes | None] = {}
        self._rewritten: list[Change] = []  # by a migration, since the last `take_changes`

    def get(self, key: Any) -> Any:
        try:
            return self.rows[key]
        except KeyError:
            if self.spec.default is None:
                raise
            return self.spec.default()

    def set(self, key: Any, value: Any) -> None:
        kind, plain = type(key), self._plain_keys
        if kind not in plain and not (kind is tuple and key and plain.issuperset(map(type, key))):
            key = self.spec.canonical_key(key)
        self._dirty[key] = None if type(value) in self._immutable else self.spec.encode_value(key, value)
        self._rows[key] = value

    def delete(self, key: Any) -> None:
        key = self.spec.canonical_key(key)
        del self._rows[key]
        self._dirty[key] = None

    @property
    def has_changes(self) -> bool:
        return bool(self._dirty or self._rewritten)

    def take_changes(self) -> list[Change]:
        dirty, self._dirty = self._dirty, {}
        rewritten, self._rewritten = self._rewritten, []
        spec, rows = self.spec, self._rows
        return rewritten + [
            (spec.encode_key(key), spec.encode_value(key, rows[key]) if value is None and key in rows else value)
            for key, value in dirty.items()
        ]

    def confirm(self, changelog_offset: int, marker: bytes) -> None:
        self.changelog_offset, self.marker = changelog_offset, marker

    def restore(self, changes: Iterable[Change], changelog_offset: int, marker: bytes | None = None) -> None:
        self.changelog_offset, self.marker = changelog_offset, marker or self.marker
        changes = list(changes)
        if self._restored or self.spec.may_migrate or not self._takes(changes):
            self._restored.update(changes)

    def _takes(self, changes: list[Change]) -> bool:
        """Decode what was restored, and make it rows. False where the code cannot read one of them, which is told of
        when it is known of which version it is, if it is still there then."""
        try:
            self._take(changes)
        except Exception:  # a class of the app may raise anything
            if not self.spec.may_change:
                raise
            return False
        return True

    def _take(self, changes: list[Change]) -> None:
        written: Any = [change for change in changes if change[1] is not None]
        self._rows.update(self.spec.decode_rows(written))
        if len(written) < len(changes):
            deleted = {key for key, value in changes if value is None}
            for key, value in {key: value for key, value in changes if key in deleted}.items():
                if value is None:  # and was not set again
                    self._rows.pop(self.spec.decode_key(key), None)

    def count(self) -> Iterator[None]:
        return iter(())

    def look(self, key: Any) -> Any:
        if self._restored:
            written = self.spec.encode_key(key)
            if written in self._restored:
                data = self._restored[written]
                if data is None:
                    raise KeyError(key)
                return self.spec.decode_value(data)
        return self.rows[key]

    def settle(self) -> Iterator[None]:
        restored = self._restored  # `look` finds rows there until all are among the others
        for deleted in in_steps(key for key, value in restored.items() if value is None):
            for key in deleted:
                with suppress(ValueError, TypeError, ChangelogError):  # of a version in which keys were something else
                    self._rows.pop(self.spec.decode_key(key), None)
            yield
        written = ((key, value) for key, value in restored.items() if value is not None)
        for some in in_steps(written):
            self._rows.update(settled(self, some))
            yield
        self._restored = {}

    def encoded(self) -> Iterable[tuple[bytes, bytes]]:
        encode_key, encode_value = self.spec.encode_key, self.spec.encode_value
        for key, value in self._rows.items():
            if (written := encode_key(key)) not in self._restored:
                yield written, encode_value(key, value)
        for written, data in self._restored.items():
            if data is not None:
                yield written, data

    def migrate(self, changes: Sequence[Change]) -> Iterator[None]:
        rows: dict[bytes, bytes | None] = {}
        for some in in_steps(chain(self.encoded(), changes)):
            rows.update(some)
            yield
        self._restored = rows  # `look` finds them there
        self._rewritten = list(changes)
        self._rows.clear()
        yield from self.settle()

    def roll_back(self) -> bool:
        return False  # it does not keep what rows were before

    def close(self) -> None:
        self._rows.clear()
        self._dirty.clear()
        self._restored.clear()
        self._rewritten.clear()
