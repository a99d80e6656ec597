"""A table outside of agents: the rows of all tasks that this worker has, for reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from ..engine.tables import TableSpec
from ..errors import AppError


class HasRows(Protocol):
    @property
    def rows(self) -> Mapping[Any, Any]: ...


class Rows(Mapping[Any, Any]):
    """Those of several stores; a key is in one of them."""

    def __init__(self, stores: Sequence[HasRows]) -> None:
        self._all = [store.rows for store in stores]

    def __getitem__(self, key: Any) -> Any:
        for rows in self._all:
            if key in rows:
                return rows[key]
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return any(key in rows for rows in self._all)

    def __iter__(self) -> Iterator[Any]:
        for rows in self._all:
            yield from rows

    def __reversed__(self) -> Iterator[Any]:
        for rows in reversed(self._all):
            yield from reversed(list(rows))

    def __len__(self) -> int:
        return sum(len(rows) for rows in self._all)


class UnionStore:
    """What `Table` reads where no agent runs. Writing raises AppError: which task would own the row, and which
    checkpoint would cover it?"""

    def __init__(self, spec: TableSpec, stores: Sequence[HasRows]) -> None:
        self.spec = spec
        self.rows = Rows(stores)

    def get(self, key: Any) -> Any:
        """The value, else a new default; KeyError if the table has no default."""
        try:
            return self.rows[key]
        except KeyError:
            if self.spec.default is None:
                raise
            return self.spec.default()

    def set(self, key: Any, value: Any) -> NoReturn:
        raise AppError(
            f"table {self.spec.name} is changed outside of an agent, where it can only be read: a row belongs to the "
            "task whose agent writes it. Send the change to a topic whose agent makes it"
        )

    def delete(self, key: Any) -> NoReturn:
        self.set(key, None)
