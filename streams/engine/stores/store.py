"""What a store does: it has the rows of one table for one task partition, and knows what changed since the last commit.

Keys and values are Python's outside, and bytes in the changelog. Changes go through three states: made by the app
(`set`, `delete`), under way (`take_changes`, in a transaction that is not decided yet), and committed (`confirm`). Only
one set of changes is under way at a time; the app goes on making others meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ..codecs import PLAIN_KEYS
from ..tables import TableSpec

Change = tuple[bytes, bytes | None]  # a row as in the changelog; None: it was deleted
_IMMUTABLE: frozenset[Any] = frozenset((int, str, float, bool, type(None), bytes))


def taken_as_they_are(spec: TableSpec) -> tuple[frozenset[Any], frozenset[Any]]:
    """Types of keys that are canonical, as tuples of these are, and types of values that need not be encoded at once:
    they do not change, and are never refused."""
    keys, values = (True, True) if spec.codec is None else spec.codec.takes_scalars
    return PLAIN_KEYS if keys else frozenset(), _IMMUTABLE if values else frozenset()


class Store(Protocol):
    """rows: what the app sees, for reading only. changelog_offset: up to there the changelog is in what is committed;
    marker: the last marker before that, as it was written (`engine/checkpoint.py`)."""

    spec: TableSpec
    changelog_offset: int
    marker: bytes | None

    @property
    def rows(self) -> Mapping[Any, Any]: ...

    def get(self, key: Any) -> Any:
        """The value, else a new default; KeyError if the table has no default."""
        ...

    def set(self, key: Any, value: Any) -> None:
        """Raises AppError, with nothing changed, for a key or value that a restart could not restore."""
        ...

    def delete(self, key: Any) -> None:
        """KeyError if there is no row."""
        ...

    @property
    def has_changes(self) -> bool:
        """Whether anything changed since `take_changes` was called last."""
        ...

    def take_changes(self) -> list[Change]:
        """What changed since this was called last. It is under way until `confirm` or `roll_back`."""
        ...

    def confirm(self, changelog_offset: int, marker: bytes) -> None:
        """What is under way was committed, and the changelog up to this offset is what this store has committed."""
        ...

    def restore(self, changes: Iterable[Change], changelog_offset: int, marker: bytes | None = None) -> None:
        """Add committed rows from the changelog, which go up to this offset, and the last marker among them, if there
        is one. Only while the app has changed nothing."""
        ...

    def count(self) -> Iterator[None]:
        """All that there is was restored: once these steps are done, what follows comes few at a time."""
        ...

    def look(self, key: Any) -> Any:
        """A row as it is in a copy, which is not settled. Raises KeyError for none, and what decoding it raises."""
        ...

    def settle(self) -> Iterator[None]:
        """All was restored: `rows` may be looked at, once these steps are done. Raises ChangeRefused for a row that
        cannot be read."""
        ...

    def encoded(self) -> Iterable[tuple[bytes, bytes]]:
        """All restored rows, as the changelog has them."""
        ...

    def migrate(self, changes: Sequence[Change]) -> Iterator[None]:
        """In place of `settle`, where rows are of another version: what has become of those of `encoded`, as if the app
        had changed them, once these steps are done."""
        ...

    def roll_back(self) -> bool:
        """Forget everything that is not committed. False: this store cannot do so, and must be filled again."""
        ...

    def close(self) -> None:
        """Release what the store has open. What is not committed is lost."""
        ...
