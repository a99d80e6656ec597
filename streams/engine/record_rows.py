"""Rows of a table without types, the app's or a step's: what `codecs` restores, and records of any class, as keys,
values and within them; as values also datetime, Decimal, sets and their like. A row names the class of a record by its
namespace, as Faust's JSON does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..models.types import is_model
from .codecs import (
    EXACTLY,
    KEY_TYPES,
    TYPED,
    VALUE_TYPES,
    canonical_key,
    decode_table_key,
    decode_table_keys,
    decode_table_value,
    decode_table_values,
    dumped,
    encode_table_key,
    encode_table_value,
)
from .row_classes import SELF_EVIDENT, Classes


class RecordCodec:
    """A `RowCodec`."""

    accepts = (f"{KEY_TYPES}, records, {EXACTLY}", f"{VALUE_TYPES}, {SELF_EVIDENT}, records, {EXACTLY}")
    takes_scalars = (True, True)
    changes_keys = False

    def __init__(self) -> None:
        self._classes = Classes(takes_records=True)

    def windowed(self) -> RecordCodec:
        return self

    def canonical_key(self, key: Any) -> Any:
        try:
            return canonical_key(key)
        except TypeError:
            if not _has_record(key):
                raise
            return self._classes.canonical(key)

    def encode_key(self, key: Any) -> bytes:
        try:
            return encode_table_key(key)
        except TypeError:
            if not _has_record(key):
                raise
            return dumped(key, self._classes.pack_key)

    def decode_key(self, data: bytes) -> Any:
        return decode_table_key(data, self._classes.unpack)

    def encode_value(self, value: Any) -> bytes:
        try:
            return encode_table_value(value)
        except TypeError:
            return TYPED + dumped(value, self._classes.pack_value)

    def decode_value(self, data: bytes) -> Any:
        return decode_table_value(data, self._classes.unpack)

    def decode_keys(self, keys: Sequence[bytes]) -> list[Any]:
        return decode_table_keys(keys, self._classes.unpack)

    def decode_values(self, values: Sequence[bytes]) -> list[Any]:
        return decode_table_values(values, self._classes.unpack)

    def decode_rows(self, rows: Sequence[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        """Keys and values of rows, of many at once."""
        keys, values = [key for key, _ in rows], [value for _, value in rows]
        return zip(self.decode_keys(keys), self.decode_values(values), strict=True)


def _has_record(key: Any) -> bool:
    return any(map(_has_record, key)) if type(key) is tuple else is_model(type(key))
