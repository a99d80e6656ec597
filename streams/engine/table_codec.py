"""Keys and values of a table as bytes: what is stored is restored equal and of the same type, or refused.

A side without a type has what `record_rows` restores. One with a type takes the classes that the type names, and
datetime, Decimal, UUID, sets and their like (`row_classes`).

A value of exactly the table's type is written as `@` and its attributes, as plain JSON if that restores them, else
packed behind `@!`. Plain attributes of a pydantic model that was made without all of its fields have
`__pydantic_fields_set__` beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any

import orjson

from ..errors import ChangelogError
from ..models.types import bare
from .codecs import (
    EXACTLY,
    KEY_TYPES,
    PLAIN_KEYS,
    SCALARS,
    TYPED,
    VALUE_TYPES,
    comes_back,
    dumped,
    encode_table_key,
    unpack,
)
from .record_rows import RecordCodec
from .row_classes import SELF_EVIDENT, Classes

ITSELF = b"@"  # JSON never begins with it
_ITSELF_PLAIN = b"@{"
_CUT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_APPEND_NEWLINE
TYPED_TOO = f"{SELF_EVIDENT}, and the classes that its type names"


_SCALARS_AND_FLOAT = SCALARS | {float}


class TableCodec:
    """How a table writes its rows. key_type, value_type: as of a topic; None: as in a table without types.

    `canonical_key`, `encode_key` and `encode_value` raise TypeError for what could not be restored; the message names
    its type. `decode_key` and `decode_value` raise ChangelogError for what this release, or the app's classes, do not
    have. AppError at once for a type that names what is not defined.
    """

    changes_keys = False

    def __init__(self, key_type: Any = None, value_type: Any = None) -> None:
        self._untyped = RecordCodec()
        self._keys = None if key_type is None else Classes(key_type)
        self._values = None if value_type is None else Classes(value_type)
        self._itself = None if self._values is None else self._values.by_kind.get(bare(value_type))

    @property
    def accepts(self) -> tuple[str, str]:
        """What keys and values a table may have, for people."""
        return (
            self._untyped.accepts[0] if self._keys is None else f"{KEY_TYPES}, {TYPED_TOO}, {EXACTLY}",
            self._untyped.accepts[1] if self._values is None else f"{VALUE_TYPES}, {TYPED_TOO}, {EXACTLY}",
        )

    @property
    def takes_scalars(self) -> tuple[bool, bool]:
        return True, True

    def windowed(self) -> TableCodec:
        return self

    def canonical_key(self, key: Any) -> Any:
        """The key under which a row is stored, for all keys equal to `key`."""
        return self._untyped.canonical_key(key) if self._keys is None else self._keys.canonical(key)

    def encode_key(self, key: Any) -> bytes:
        """A canonical key as JSON."""
        if type(key) in PLAIN_KEYS:
            return encode_table_key(key)
        if self._keys is None:
            return self._untyped.encode_key(key)
        return dumped(key, self._keys.pack_key)

    def decode_key(self, data: bytes) -> Any:
        return self._untyped.decode_key(data) if self._keys is None else self._keys.unpack_key(orjson.loads(data))

    def encode_value(self, value: Any) -> bytes:
        if self._values is None:
            return self._untyped.encode_value(value)
        if self._itself is not None and type(value) is self._itself.kind:
            if (plain := self._itself.plain_attributes(value)) is not None:
                try:
                    data = orjson.dumps(plain, option=_CUT)[:-1]
                    if _are_plain(plain.values()):
                        return ITSELF + data
                except (TypeError, ValueError):
                    pass  # packed, or refused by name
            return ITSELF + _encoded(self._itself.attributes(value), self._values)
        return _encoded(value, self._values)

    def decode_value(self, data: bytes) -> Any:
        if data[:2] == _ITSELF_PLAIN and self._itself is not None:
            return self._itself.made(orjson.loads(data[1:]))
        if self._values is None:
            return self._untyped.decode_value(data)
        if not data.startswith(ITSELF):
            return _decoded(data, self._values)
        if self._itself is None:
            raise ChangelogError("a changelog row has an object of the table's value_type, which is no class now")
        return self._itself.made(_decoded(data[1:], self._values))

    def decode_rows(self, rows: Sequence[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        """Keys and values of rows, of many at once."""
        keys = [key for key, _ in rows]
        values = [value for _, value in rows]
        decoded = self._untyped.decode_keys(keys) if self._keys is None else self._decoded_keys(keys, self._keys)
        return zip(
            decoded,
            self._untyped.decode_values(values) if self._values is None else self._decoded_values(values),
            strict=True,
        )

    def _decoded_keys(self, keys: Sequence[bytes], classes: Classes) -> list[Any]:
        plain = orjson.loads(b"[%b]" % b",".join(keys))
        return [key if type(key) in PLAIN_KEYS else classes.unpack_key(key) for key in plain]

    def _decoded_values(self, values: Sequence[bytes]) -> list[Any]:
        """In half of the time of one by one."""
        itself = self._itself
        if itself is None:
            return list(map(self.decode_value, values))
        plain = [value[1:] if value[:2] == _ITSELF_PLAIN else b"0" for value in values]
        found = orjson.loads(b"[%b]" % b",".join(plain))
        return [
            itself.made(attributes) if attributes != 0 else self.decode_value(value)
            for attributes, value in zip(found, values, strict=True)
        ]


def _encoded(value: Any, classes: Classes) -> bytes:
    try:
        data = orjson.dumps(value, option=_CUT)[:-1]
        if (type(value) is dict and _are_plain(value.values())) or comes_back(value, data):
            return data
    except (TypeError, ValueError):
        pass  # packed, or refused by name
    return TYPED + dumped(value, classes.pack_value)


def _decoded(data: bytes, classes: Classes) -> Any:
    return unpack(orjson.loads(data[1:]), classes.unpack) if data.startswith(TYPED) else orjson.loads(data)


def _are_plain(values: Iterable[Any]) -> bool:
    """Whether plain JSON restores these values, which are scalars or lists of scalars. False also where that is not
    known."""
    kinds = set(map(type, values))
    if list in kinds:
        kinds.discard(list)
        if not all(_are_scalars(each) for each in values if type(each) is list):
            return False
    if float in kinds:
        return kinds <= _SCALARS_AND_FLOAT and all(isfinite(each) for each in values if type(each) is float)
    return kinds <= SCALARS


def _are_scalars(values: Iterable[Any]) -> bool:
    return SCALARS.issuperset(map(type, values))
