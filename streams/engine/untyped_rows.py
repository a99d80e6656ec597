"""Rows of any table as plain data, for who reads a changelog without the app and its classes.

An instance of a class is a dict of its attributes, as a key a tuple of them; a set is a list, a member of an Enum its
name. What a serializer of the app has written is bytes, unless it is JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import orjson

from .codecs import TYPED, unpack
from .row_classes import FIELDS_SET, unpacked_scalar
from .table_codec import ITSELF


class UntypedCodec:
    """A `RowCodec` for reading only."""

    accepts = ("nothing: it is read without the app",) * 2
    takes_scalars = (False, False)
    changes_keys = False

    def windowed(self) -> UntypedCodec:
        return self

    def _refused(self, value: Any) -> NoReturn:
        raise TypeError(f"a {type(value).__name__}, and the table is read without the app")

    canonical_key = encode_key = encode_value = _refused

    def decode_key(self, data: bytes) -> Any:
        try:
            return _key(orjson.loads(data))
        except ValueError:
            return data

    def decode_value(self, data: bytes) -> Any:
        try:
            return _value(data)
        except ValueError:
            return data

    def decode_rows(self, rows: Sequence[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        return ((self.decode_key(key), self.decode_value(value)) for key, value in rows)


def _value(data: bytes) -> Any:
    if not data.startswith(ITSELF):
        return unpack(orjson.loads(data[1:]), _other) if data.startswith(TYPED) else orjson.loads(data)
    attributes = _value(data[1:])
    return _fields(attributes)


def _fields(attributes: dict[str, Any]) -> dict[str, Any]:
    """Of a pydantic model, its fields alone."""
    fields: dict[str, Any] = attributes.get("__dict__", attributes)
    return {name: value for name, value in fields.items() if name != FIELDS_SET}


def _key(key: Any) -> Any:
    if isinstance(key, list):
        return tuple(map(_key, key))
    found = unpack(key, _other)
    return _hashable(found)


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _hashable(each)) for name, each in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _other(kind: str, body: Any) -> Any:
    match kind:
        case "set" | "frozenset":
            return [unpack(each, _other) for each in body]
        case "enum":
            return body[1]
        case "tuple_of":
            return tuple(unpack(each, _other) for each in body[1])
        case "object":
            return _fields({name: unpack(each, _other) for name, each in body[1].items()})
    return unpacked_scalar(kind, body)
