"""Rows of a table with serializers: keys or values are written by a codec, as a topic's are, and read by their type.

What comes back is what the codec makes of it, which need not be equal: JSON without types has no tuples, YAML no bytes.
So that a key finds its row before and after a restart, the canonical key is what the codec reads of what it writes.
Of a table with windows, the codec's bytes of a key are within a row's key of this package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ..errors import ChangelogError
from .codecs import decode_table_key, encode_table_key
from .serialization import Coder, DecodeError
from .table_codec import TableCodec


@dataclass(frozen=True)
class SerializedCodec:
    """A `RowCodec`. key, value: functions of a type and a codec; None: `typed` writes that side."""

    typed: TableCodec
    key: Coder | None = None
    value: Coder | None = None
    has_windows: bool = False

    def windowed(self) -> SerializedCodec:
        return replace(self, has_windows=True)

    @property
    def accepts(self) -> tuple[str, str]:
        keys, values = self.typed.accepts
        theirs = "what its serializer writes, but for None"
        return keys if self.key is None else theirs, values if self.value is None else theirs

    @property
    def takes_scalars(self) -> tuple[bool, bool]:
        return self.key is None, self.value is None

    @property
    def changes_keys(self) -> bool:
        return self.key is not None

    def canonical_key(self, key: Any) -> Any:
        if self.key is None:
            return self.typed.canonical_key(key)
        try:
            canonical = self.decode_key(self.encode_key(key))
        except ChangelogError as error:
            raise TypeError(f"what its serializer cannot read again ({error})") from error
        try:
            hash(canonical)
        except TypeError as error:
            raise TypeError(f"what its serializer reads as no key ({error})") from error
        return canonical

    def encode_key(self, key: Any) -> bytes:
        if self.key is None:
            return self.typed.encode_key(key)
        if self.has_windows:
            return encode_table_key((self._written_key(self.key, key[0]), key[1]))
        return self._written_key(self.key, key)

    def _written_key(self, coder: Coder, key: Any) -> bytes:
        """Equal keys are written alike, True as 1."""
        with suppress(TypeError):  # the codec may write it all the same
            key = self.typed.canonical_key(key)
        return _written(coder, key)

    def decode_key(self, data: bytes) -> Any:
        if self.key is None:
            return self.typed.decode_key(data)
        if self.has_windows:
            written, start_ms = decode_table_key(data)
            return _read(self.key, written), start_ms
        return _read(self.key, data)

    def encode_value(self, value: Any) -> bytes:
        return self.typed.encode_value(value) if self.value is None else _written(self.value, value)

    def decode_value(self, data: bytes) -> Any:
        return self.typed.decode_value(data) if self.value is None else _read(self.value, data)

    def decode_rows(self, rows: Sequence[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        """Keys and values of rows, of many at once."""
        return ((self.decode_key(key), self.decode_value(value)) for key, value in rows)


def _written(coder: Coder, value: Any) -> bytes:
    try:
        data = coder.encode(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"what its serializer refuses ({error})") from error
    if data is None:
        raise TypeError("None, which would delete the row")
    if isinstance(value, bytes) and not _comes_back(coder, value):
        raise TypeError("bytes, which are written as they are whatever the serializer")
    return data


def _comes_back(coder: Coder, value: bytes) -> bool:
    try:
        return bool(coder.decode(value) == value)
    except DecodeError:
        return False


def _read(coder: Coder, data: bytes) -> Any:
    try:
        return coder.decode(data)
    except DecodeError as error:
        raise ChangelogError(f"a changelog row is not what the table's type and serializer say: {error}") from error
