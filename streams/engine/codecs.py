"""Codecs of records, by name and chained with `|`, as in Faust; and how untyped tables write keys and values.

What a table stores is restored equal and of the same type, or it is refused. Values are written as plain JSON if that
restores them. Others are written as `!` and JSON in which an object always names a type: `{"tuple": [1, 2]}`. In the
JSON of a key, an array is a tuple and an object names a type.
"""

from __future__ import annotations

import io
import marshal
import pickle as pickles
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from math import isfinite, isnan
from typing import Any, TypeAlias

import msgspec
import orjson

from ..errors import AppError, ChangelogError

TYPED = b"!"  # JSON never begins with it
VALUE_TYPES = "None, bool, int, float, str, bytes, and lists, tuples and dicts of them"
KEY_TYPES = "None, bool, int, float, str, bytes, and tuples of them"
EXACTLY = "and no subclasses of these"
PLAIN_KEYS = frozenset((str, bytes, int, type(None)))  # equal only to values that are written the same way
TOO_DEEP = "something nested too deeply"
SCALARS = frozenset((int, str, bool, type(None)))  # orjson restores the values of these types that it accepts
_DIRECT = frozenset((int, str, type(None)))  # as parts of keys: JSON restores those that orjson accepts
_EXACT = 2  # a marshal format that writes equal bytes exactly for equal values of equal types


# --- Codecs of records ------------------------------------------------------------------------------


class Codec:
    """A step, or a chain of steps, between an object and bytes.

    A codec of your own overrides `_dumps` and `_loads`; `register` gives it a name. `a | b` writes by `a`, then by
    `b`, and reads in the opposite order. Keyword arguments of a subclass are handed to `super().__init__`, so that a
    chain can copy them.
    """

    def __init__(self, children: tuple[Codec, ...] | None = None, **kwargs: Any) -> None:
        self.children = children or ()
        self.nodes: tuple[Codec, ...] = (self, *self.children)
        self.kwargs = kwargs

    def _dumps(self, obj: Any) -> bytes:
        raise NotImplementedError(f"{type(self).__name__}._dumps")

    def _loads(self, data: bytes) -> Any:
        raise NotImplementedError(f"{type(self).__name__}._loads")

    def dumps(self, obj: Any) -> bytes:
        """Raises TypeError or ValueError for an object that the codec cannot write."""
        for node in self.nodes:
            obj = node._dumps(obj)
        return obj

    def loads(self, data: bytes) -> Any:
        """Raises what the codec's library raises for bytes that are not its format; ValueError for most."""
        for node in reversed(self.nodes):
            data = node._loads(data)
        return data

    @property
    def writer(self) -> Callable[[Any], bytes]:
        """`dumps` as the shortest callable: for what is called for each record."""
        return self.dumps if self.children else self._dumps

    @property
    def reader(self) -> Callable[[bytes], Any]:
        """`loads` as the shortest callable."""
        return self.loads if self.children else self._loads

    def clone(self, *children: Codec) -> Codec:
        return type(self)(children=self.children + children, **self.kwargs)

    def __or__(self, other: Any) -> Codec:
        return self.clone(*other.nodes) if isinstance(other, Codec) else NotImplemented

    def __repr__(self) -> str:
        return " | ".join(f"{type(node).__name__}({', '.join(map(repr, node.kwargs.values()))})" for node in self.nodes)


CodecArg: TypeAlias = Codec | str | None
# What orjson returns lies in a buffer of at least a kilobyte that was cut short. Many of them, kept until they are
# sent, cost five times what they cost to make. So they end with a newline, and all but that is copied.
_CUT = orjson.OPT_APPEND_NEWLINE
_OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_PASSTHROUGH_DATACLASS | _CUT


def json_dumps(obj: Any) -> bytes:
    """JSON as Faust writes it: `Z` for UTC, keys that are not text as text, sets as arrays, Decimal as text. Bytes are
    written as text, if they are UTF-8. Raises TypeError for what JSON cannot hold."""
    try:
        return orjson.dumps(obj, json_default, _OPTIONS)[:-1]
    except TypeError:  # keys that are not text take another path in orjson, which is slower for all others
        return orjson.dumps(obj, json_default, _OPTIONS | orjson.OPT_NON_STR_KEYS)[:-1]


def json_default(value: Any) -> Any:
    """What orjson does not know, by what it knows."""
    if (represented := getattr(value, "to_representation", None) or getattr(value, "__json__", None)) is not None:
        return represented()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (date, time)):  # of a subclass, as libraries that fake the time have
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode()
    if isinstance(value, (set, frozenset)):
        return in_order(value)
    if isinstance(value, deque):
        return list(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if (fields := getattr(type(value), "__dataclass_fields__", None)) is not None:
        return {name: getattr(value, name) for name in fields}
    if (dumped := getattr(value, "model_dump", None)) is not None:  # pydantic's models
        return dumped(mode="json")
    raise TypeError(f"JSON cannot hold a {type(value).__name__}")


def in_order(values: Iterable[Any]) -> list[Any]:
    """The members of a set in an order that is the same in every process."""
    try:
        return sorted(values)
    except TypeError:  # of several types
        return sorted(values, key=lambda each: (type(each).__name__, repr(each)))


class JsonCodec(Codec):
    """orjson's."""

    _dumps = staticmethod(json_dumps)
    _loads = staticmethod(orjson.loads)  # type: ignore[assignment]  # it takes text, too


class RawCodec(Codec):
    """Bytes as they are; text as UTF-8."""

    def _dumps(self, obj: Any) -> bytes:
        return _want_bytes(obj)

    def _loads(self, data: bytes) -> bytes:
        return bytes(data)


class TextCodec(Codec):
    """Text as UTF-8."""

    def _dumps(self, obj: Any) -> bytes:
        return str.encode(obj)

    def _loads(self, data: bytes) -> str:
        return str(data, "utf-8")


class BinaryCodec(Codec):
    """Bytes as base64."""

    def _dumps(self, obj: Any) -> bytes:
        return b64encode(_want_bytes(obj))

    def _loads(self, data: bytes) -> bytes:
        return b64decode(data, validate=True)


class PickleCodec(Codec):
    """Python's pickle. It runs what the bytes say: only for topics whose producers are all trusted."""

    def _dumps(self, obj: Any) -> bytes:
        return pickles.dumps(obj)

    def _loads(self, data: bytes) -> Any:
        return pickles.loads(data)


class MsgpackCodec(Codec):
    """msgspec's."""

    def _dumps(self, obj: Any) -> bytes:
        return msgspec.msgpack.encode(_plain(obj), enc_hook=json_default)

    def _loads(self, data: bytes) -> Any:
        return msgspec.msgpack.decode(data)


class YamlCodec(Codec):
    """YAML, if ruamel.yaml is installed (the extra `console` brings it)."""

    def _dumps(self, obj: Any) -> bytes:
        text = io.StringIO()
        _yaml().dump(orjson.loads(json_dumps(obj)), text)
        return text.getvalue().encode()

    def _loads(self, data: bytes) -> Any:
        return _yaml().load(bytes(data).decode())


def _yaml() -> Any:
    try:
        from ruamel.yaml import YAML
    except ImportError:
        raise AppError("the codec yaml needs ruamel.yaml: pip install ruamel.yaml") from None
    return YAML(typ="safe", pure=True)


def _plain(value: Any) -> Any:
    """Records have msgspec write their own representation, which it would not ask for where it knows the type."""
    if (represented := getattr(value, "to_representation", None)) is not None:
        value = represented()
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return list(map(_plain, value)) if type(value) in (list, tuple) else value


def _want_bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"the codecs raw and binary take bytes or text, not a {type(value).__name__}")


CODECS: dict[str, Codec] = {
    "json": JsonCodec(),
    "raw": RawCodec(),
    "str": TextCodec(),
    "text": TextCodec(),
    "binary": BinaryCodec(),
    "pickle": PickleCodec() | BinaryCodec(),  # as Faust writes it
    "msgpack": MsgpackCodec(),
    "yaml": YamlCodec(),
}


def register(name: str, codec: Codec) -> None:
    """Give a codec a name, for `value_serializer=` and its like, in this process."""
    CODECS[name] = codec


def get_codec(name_or_codec: Codec | str) -> Codec:
    """A codec by name (`json`, `pickle|binary`). Raises AppError for a name that nothing is registered under."""
    if isinstance(name_or_codec, Codec):
        return name_or_codec
    first, *others = (_named(name.strip()) for name in name_or_codec.split("|"))
    return first.clone(*(node for other in others for node in other.nodes)) if others else first


def _named(name: str) -> Codec:
    try:
        return CODECS[name]
    except KeyError:
        raise AppError(
            f"no codec is called '{name}'; there are {', '.join(CODECS)}; codecs.register() adds one"
        ) from None


def dumps(codec: CodecArg, obj: Any) -> bytes:
    """An object as bytes; without a codec, as it is."""
    return get_codec(codec).dumps(obj) if codec else obj


def loads(codec: CodecArg, data: bytes) -> Any:
    """The object of bytes; without a codec, the bytes."""
    return get_codec(codec).loads(data) if codec else data


def encode_key(key: Any) -> bytes | None:
    """A record's key: bytes as they are, text as UTF-8, anything else as JSON."""
    if key is None or isinstance(key, bytes):
        return key
    return key.encode() if isinstance(key, str) else json_dumps(key)


Unpack = Callable[[str, Any], Any]  # of what is of no type here: name of the type, its JSON

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
    kind = type(key)
    if kind in _DIRECT or (kind is tuple and _DIRECT.issuperset(map(type, key))):
        try:
            return orjson.dumps(key, option=_CUT)[:-1]
        except TypeError:
            pass  # an integer or a text that JSON does not have
    return dumped(key, _pack_key)


def decode_table_key(data: bytes, other: Unpack | None = None) -> Any:
    return _unpack_key(orjson.loads(data), other or unknown)


def decode_table_keys(keys: Sequence[bytes], other: Unpack | None = None) -> list[Any]:
    """As `decode_table_key` of each, in a third of the time."""
    found: list[Any] = orjson.loads(b"[%b]" % b",".join(keys))
    if PLAIN_KEYS.issuperset(map(type, found)):
        return found
    return [key if type(key) in PLAIN_KEYS else _unpack_key(key, other or unknown) for key in found]


def _pack_key(key: Any) -> Any:
    return list(map(_pack_key, key)) if type(key) is tuple else pack(key)


def _unpack_key(key: Any, other: Unpack) -> Any:
    return tuple(_unpack_key(each, other) for each in key) if isinstance(key, list) else unpack(key, other)


# --- Table values -----------------------------------------------------------------------------------


def encode_table_value(value: Any) -> bytes:
    """Raises TypeError for a value that would not be restored equal and of the same type."""
    kind = type(value)
    try:
        data = orjson.dumps(value, option=_CUT)[:-1]
        if kind in SCALARS or (kind is list and SCALARS.issuperset(map(type, value))):
            return data
        if (kind is float and isfinite(value)) or comes_back(value, data):
            return data
    except (TypeError, ValueError):
        pass  # `pack` names the type that plain JSON does not restore
    return TYPED + dumped(value, pack)


def dumped(value: Any, packed: Callable[[Any], Any]) -> bytes:
    try:
        plain = packed(value)
    except RecursionError:
        raise TypeError(TOO_DEEP) from None
    try:
        return orjson.dumps(plain, option=_CUT)[:-1]
    except TypeError:  # it accepts everything that `packed` returns, up to its depth limit
        raise TypeError(TOO_DEEP) from None


def comes_back(value: Any, data: bytes) -> bool:
    return marshal.dumps(orjson.loads(data), _EXACT) == marshal.dumps(value, _EXACT)


def decode_table_value(data: bytes, other: Unpack | None = None) -> Any:
    return unpack(orjson.loads(data[1:]), other or unknown) if data.startswith(TYPED) else orjson.loads(data)


def decode_table_values(values: Sequence[bytes], other: Unpack | None = None) -> list[Any]:
    """As `decode_table_value` of each, in a third of the time."""
    typed = [at for at, value in enumerate(values) if value[:1] == TYPED]
    untyped = values
    if typed:
        untyped = list(values)
        for at in typed:
            untyped[at] = b"0"
    plain: list[Any] = orjson.loads(b"[%b]" % b",".join(untyped))
    for at in typed:
        plain[at] = unpack(orjson.loads(values[at][1:]), other or unknown)
    return plain


def no_other(value: Any) -> Any:
    raise TypeError(f"a {type(value).__name__}")


def pack(value: Any, other: Callable[[Any], Any] = no_other) -> Any:
    """A value as JSON in which an object always names a type. other: packs what is of no type here, or raises
    TypeError."""
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
        return [pack(each, other) for each in value]
    if kind is tuple:
        return {"tuple": [pack(each, other) for each in value]}
    if kind is dict:
        return {"dict": [[pack(key, other), pack(each, other)] for key, each in value.items()]}
    return other(value)


def unknown(kind: str, body: Any) -> Any:
    raise ChangelogError(f"a changelog row has a value of type {kind}, which this release does not know")


def unpack(value: Any, other: Callable[[str, Any], Any] = unknown) -> Any:
    """The inverse of `pack`. other: unpacks (name of the type, its JSON)."""
    if isinstance(value, list):
        return [unpack(each, other) for each in value]
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
            return tuple(unpack(each, other) for each in body)
        case "dict":
            return {unpack(key, other): unpack(each, other) for key, each in body}
    return other(kind, body)
