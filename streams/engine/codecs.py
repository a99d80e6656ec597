"""Record values, table keys and table values as bytes. A codec is a pair of functions with a name; JSON is orjson's.

What a table stores is restored equal and of the same type, or it is refused. Values are written as plain JSON if that
restores them. Others are written as `!` and JSON in which an object always names a type: `{"tuple": [1, 2]}`. In the
JSON of a key, an array is a tuple and an object names a type.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from math import isfinite, isnan
from typing import Any, NamedTuple

import orjson

from ..errors import AppError, ChangelogError

TYPED = b"!"  # JSON never begins with it
VALUE_TYPES = "None, bool, int, float, str, bytes, and lists, tuples and dicts of them"
KEY_TYPES = "None, bool, int, float, str, bytes, and tuples of them"
PLAIN_KEYS = frozenset((str, bytes, int, type(None)))  # equal only to values that are written the same way
TOO_DEEP = "something nested too deeply"
_SCALARS = frozenset((int, str, bool, type(None)))  # orjson restores the values of these types that it accepts
_EXACT = 2  # a marshal format that writes equal bytes exactly for equal values of equal types


class Codec(NamedTuple):
    """`encode` gets the app's values, `decode` returns them. Both are bypassed for null, which is None."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def _raw(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"a raw topic takes bytes, not a {type(value).__name__}")


CODECS = {
    "json": Codec(orjson.dumps, orjson.loads),
    "raw": Codec(_raw, bytes),
    "str": Codec(str.encode, lambda data: bytes(data).decode()),
}


def codec(name: str) -> Codec:
    try:
        return CODECS[name]
    except KeyError:
        raise AppError(f"no codec is called '{name}'; there are {', '.join(CODECS)}") from None


def encode_key(key: Any) -> bytes | None:
    """A record's key: bytes as they are, text as UTF-8, anything else as JSON."""
    if key is None or isinstance(key, bytes):
        return key
    return key.encode() if isinstance(key, str) else orjson.dumps(key)


# --- Table keys -------------------------------------------------------------------------------------


def canonical_key(key: Any) -> Any:
    """The key under which a row is stored, for all keys equal to `key`: 1 for True and 1.0.

    Raises TypeError for a key that a changelog cannot restore.
    """
    kind = type(key)
    if kind in PLAIN_KEYS:
        return key
    if kind is tuple:
        return key if PLAIN_KEYS.issuperset(map(type, key)) else tuple(map(canonical_key, key))
    if kind is bool:
        return int(key)
    if kind is float and not isnan(key):
        return int(key) if key.is_integer() else key
    raise TypeError("NaN, which equals no key" if kind is float else f"a {kind.__name__}")


def encode_table_key(key: Any) -> bytes:
    """A canonical key as JSON."""
    return _dumped(key, _pack_key)


def decode_table_key(data: bytes) -> Any:
    return _unpack_key(orjson.loads(data))


def _pack_key(key: Any) -> Any:
    return list(map(_pack_key, key)) if type(key) is tuple else pack(key)


def _unpack_key(key: Any) -> Any:
    return tuple(map(_unpack_key, key)) if isinstance(key, list) else unpack(key)


# --- Table values -----------------------------------------------------------------------------------


def encode_table_value(value: Any) -> bytes:
    """Raises TypeError for a value that would not be restored equal and of the same type."""
    kind = type(value)
    try:
        data = orjson.dumps(value)
        if kind in _SCALARS or (kind is float and isfinite(value)) or _comes_back(value, data):
            return data
    except (TypeError, ValueError):
        pass  # `pack` names the type that plain JSON does not restore
    return TYPED + _dumped(value, pack)


def _dumped(value: Any, packed: Callable[[Any], Any]) -> bytes:
    try:
        plain = packed(value)
    except RecursionError:
        raise TypeError(TOO_DEEP) from None
    try:
        return orjson.dumps(plain)
    except TypeError:  # it accepts everything that `packed` returns, up to its depth limit
        raise TypeError(TOO_DEEP) from None


def _comes_back(value: Any, data: bytes) -> bool:
    return marshal.dumps(orjson.loads(data), _EXACT) == marshal.dumps(value, _EXACT)


def decode_table_value(data: bytes) -> Any:
    return unpack(orjson.loads(data[1:])) if data.startswith(TYPED) else orjson.loads(data)


def pack(value: Any) -> Any:
    """A value as JSON in which an object always names a type. Raises TypeError for a type without a name there."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if -(2**63) <= value < 2**64 else {"int": hex(value)}
    if kind is float:
        return value if isfinite(value) else {"float": repr(value)}
    if kind is str:
        try:
            value.encode()
        except UnicodeEncodeError:  # an unpaired surrogate
            return {"str": value.encode("utf-8", "surrogatepass").decode("latin-1")}
        return value
    if kind is bytes:
        return {"bytes": value.decode("latin-1")}
    if kind is list:
        return list(map(pack, value))
    if kind is tuple:
        return {"tuple": list(map(pack, value))}
    if kind is dict:
        return {"dict": [[pack(key), pack(each)] for key, each in value.items()]}
    raise TypeError(f"a {kind.__name__}")


def unpack(value: Any) -> Any:
    """The inverse of `pack`."""
    if isinstance(value, list):
        return list(map(unpack, value))
    if not isinstance(value, dict):
        return value
    [(kind, body)] = value.items()
    match kind:
        case "int":
            return int(body, 16)
        case "float":
            return float(body)
        case "str":
            return body.encode("latin-1").decode("utf-8", "surrogatepass")
        case "bytes":
            return body.encode("latin-1")
        case "tuple":
            return tuple(map(unpack, body))
        case "dict":
            return {unpack(key): unpack(each) for key, each in body}
    raise ChangelogError(f"a changelog row has a value of type {kind}, which this release does not know")
