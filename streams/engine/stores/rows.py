"""Rows of a store as mappings, for reading."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any

from ...errors import AppError
from ..tables import TableSpec


class Pairs(Mapping[Any, Any]):
    """A mapping that has a key and its value at once, rather than looking for the value of each key."""

    __slots__ = ()

    @abstractmethod
    def pairs(self) -> Iterator[tuple[Any, Any]]: ...

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self.pairs())

    def items(self) -> ItemsView[Any, Any]:
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        return _Values(self)


class _Items(ItemsView[Any, Any]):
    _mapping: Pairs

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping.pairs()


class _Values(ValuesView[Any]):
    _mapping: Pairs

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._mapping.pairs())


class _ByAnyKey(Pairs):
    """Rows by canonical keys, which are found by all keys that these stand for."""

    __slots__ = ("_rows", "_spec")

    def __init__(self, rows: Mapping[Any, Any], spec: TableSpec) -> None:
        self._rows = rows
        self._spec = spec

    def __getitem__(self, key: Any) -> Any:
        return self._rows[wanted_key(self._spec, key)]

    def __contains__(self, key: object) -> bool:
        try:
            return wanted_key(self._spec, key) in self._rows
        except KeyError:
            return False

    def __len__(self) -> int:
        return len(self._rows)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._rows)

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        return iter(self._rows.items())


def by_any_key(rows: Mapping[Any, Any], spec: TableSpec) -> Mapping[Any, Any]:
    """Rows by canonical keys, as the app may look for them."""
    return _ByAnyKey(rows, spec) if spec.changes_keys else rows


def wanted_key(spec: TableSpec, key: Any) -> Any:
    """The canonical key. KeyError for what cannot be a key: no row has it."""
    try:
        return spec.canonical_key(key)
    except AppError:
        raise KeyError(key) from None
