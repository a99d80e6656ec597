"""How a topic's keys and values become bytes: a type and a codec, bound once to functions.

A null is None on both sides. Bytes are sent as they are, whatever the codec, as in Faust. Where a topic names no codec,
a record of a class with a codec of its own is written by that one. What cannot be decoded raises DecodeError.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Protocol, get_args, get_origin
from uuid import UUID

import msgspec
import orjson

from ..errors import AppError
from ..models import wire
from ..models.namespaces import BLESSED_KEY
from ..models.record import Model, Record
from ..models.types import PLAIN, Rules, bare, conversion, is_model, is_optional, remove_optional, to_datetime
from .codecs import Codec, CodecArg, JsonCodec, RawCodec, TextCodec, encode_key, get_codec, json_dumps

Read = Callable[[bytes], Any]
Write = Callable[[Any], bytes]
Headers = Any  # what a message has: pairs of name and bytes, or a mapping


class DecodeError(ValueError):
    """Bytes are no key or value of the type. position: of the bytes in the column that was decoded, else None."""

    position: int | None = None


class Message(Protocol):
    """A record as it was fetched."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


@dataclass(frozen=True, slots=True)
class Coder:
    """The functions of keys, or of values. `decode` and `decode_column` raise DecodeError; `encode` raises TypeError or
    ValueError for what the codec cannot write. reads: as what bytes are read, for people."""

    encode: Callable[[Any], bytes | None]
    decode: Callable[[bytes | None], Any]
    decode_column: Callable[[Sequence[bytes | None]], list[Any]]
    reads: str = ""


@dataclass(frozen=True, slots=True)
class Serialization:
    """All that a topic needs. schema: one that reads and writes whole messages, whose methods count instead of the
    functions here; else None."""

    key: Coder
    value: Coder
    schema: Any = None

    @property
    def encode_key(self) -> Callable[[Any], bytes | None]:
        return self.key.encode

    @property
    def decode_key(self) -> Callable[[bytes | None], Any]:
        return self.key.decode

    @property
    def encode_value(self) -> Callable[[Any], bytes | None]:
        return self.value.encode

    @property
    def decode_value(self) -> Callable[[bytes | None], Any]:
        return self.value.decode

    def read(self, app: Any, message: Message) -> tuple[Any, Any]:
        """Key and value of a message. Raises DecodeError."""
        if self.schema is None:
            return self.key.decode(message.key), self.value.decode(message.value)
        key = _decoded(lambda _: self.schema.loads_key(app, message), message.key)
        return key, _decoded(lambda _: self.schema.loads_value(app, message), message.value)

    def write(self, app: Any, key: Any, value: Any, headers: Headers) -> tuple[bytes | None, bytes | None, Headers]:
        """Bytes of key and value, and the headers that the schema makes of those given."""
        if self.schema is None:
            return self.key.encode(key), self.value.encode(value), headers
        key_bytes, headers = self.schema.dumps_key(app, key, headers=headers)
        value_bytes, headers = self.schema.dumps_value(app, value, headers=headers)
        return key_bytes, value_bytes, headers


class Serializers:
    """The codecs of an app where a topic names none, and Faust's functions by type and codec."""

    def __init__(self, key_serializer: CodecArg = "raw", value_serializer: CodecArg = "json") -> None:
        self.key_serializer = key_serializer or "raw"
        self.value_serializer = value_serializer or "json"
        self._bound: dict[tuple[bool, Any, Any], Coder] = {}  # one for each type and codec that the app's code names

    def key_coder(self, type_: Any = None, serializer: CodecArg = None) -> Coder:
        return self._coder(True, type_, serializer)

    def value_coder(self, type_: Any = None, serializer: CodecArg = None) -> Coder:
        return self._coder(False, type_, serializer)

    def _coder(self, is_key: bool, type_: Any, serializer: CodecArg) -> Coder:
        at = (is_key, type_, serializer)
        if (known := self._bound.get(at)) is None:
            default = self.key_serializer if is_key else self.value_serializer
            known = self._bound[at] = coder(type_, serializer, default=default, is_key=is_key)
        return known

    def loads_key(self, typ: Any, key: bytes | None, *, serializer: CodecArg = None) -> Any:
        return self.key_coder(typ, serializer).decode(key)

    def loads_value(self, typ: Any, value: bytes | None, *, serializer: CodecArg = None) -> Any:
        return self.value_coder(typ, serializer).decode(value)

    def dumps_key(self, typ: Any, key: Any, *, serializer: CodecArg = None) -> bytes | None:
        return self.key_coder(typ, serializer).encode(key)

    def dumps_value(self, typ: Any, value: Any, *, serializer: CodecArg = None) -> bytes | None:
        return self.value_coder(typ, serializer).encode(value)


def coder(type_: Any, serializer: CodecArg, *, default: Codec | str, is_key: bool = False) -> Coder:
    """Bind a type and a codec; without one, the type's own or the default.

    Where the default is `raw`, what is no text is JSON. Raises AppError for a type and a codec that do not fit, or a
    type that nothing here can decode.
    """
    codec = _codec_for(type_, serializer, default)
    reader, write = _functions(bare(type_), codec, is_key)
    read = reader.one
    writers: dict[Any, Any] = {type(None): _as_it_is, bytes: _as_it_is}  # by class of value: as many as the app has

    def encode(value: Any) -> bytes | None:
        kind = type(value)
        if (found := writers.get(kind)) is None:
            found = write
            if isinstance(value, Model):
                own = None if serializer else value._options.serializer
                found = _record_writer(kind, get_codec(own or codec), is_key)
            writers[kind] = found
        return found(value)

    def decode(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return read(data)
        except Exception as error:  # a codec's library, or a class of the app, may raise anything
            raise _decode_error(error) from error

    return Coder(encode, decode, _column(decode, reader.column), _read_as(type_, codec))


def _as_it_is(value: Any) -> Any:
    return value


def _decoded(read: Callable[[Any], Any], data: bytes | None) -> Any:
    try:
        return None if data is None else read(data)
    except Exception as error:
        raise _decode_error(error) from error


def _decode_error(error: Exception) -> DecodeError:
    """Raises what says nothing of the data."""
    if isinstance(error, (DecodeError, MemoryError, RecursionError)):
        raise error
    return DecodeError(f"{error or type(error).__name__}")


def _column(decode: Callable[[Any], Any], whole: Callable[[wire.Column], list[Any]]) -> Callable[[Any], list[Any]]:
    def decode_column(column: wire.Column) -> list[Any]:
        try:
            return whole(column)
        except Exception:  # said again below, with the place
            pass
        found: list[Any] = []
        for position, data in enumerate(column):
            try:
                found.append(decode(data))
            except DecodeError as error:
                error.position = position
                raise
        return found

    return decode_column


def refuse_empty(coder: Coder) -> Coder:
    """The same, where a null is no value: Schema(allow_empty=False)."""

    def decode(data: bytes | None) -> Any:
        if data is None:
            raise DecodeError("it is null, and the topic's schema has allow_empty=False")
        return coder.decode(data)

    def decode_column(column: Sequence[bytes | None]) -> list[Any]:
        if None in column:
            error = DecodeError("it is null, and the topic's schema has allow_empty=False")
            error.position = column.index(None)
            raise error
        return coder.decode_column(column)

    return Coder(coder.encode, decode, decode_column)


# --- A type and a codec -----------------------------------------------------------------------------


def _codec_for(type_: Any, serializer: CodecArg, default: Codec | str) -> Codec:
    if serializer:
        codec = get_codec(serializer)
        if _is_text(codec) and _is_structured(type_):
            raise AppError(
                f"the codec {serializer!r} gives bytes or text, no {_name(type_)}: take another, such as 'json'"
            )
        return codec
    if is_model(type_) and type_._options.serializer:
        return get_codec(type_._options.serializer)
    if bare(type_) is bytes:
        return get_codec("raw")
    codec = get_codec(default)
    return get_codec("json") if _is_text(codec) and _is_structured(type_) else codec


def _read_as(type_: Any, codec: Codec) -> str:
    """What one and the same bytes are read as. Types that need another form of them are not told apart from others."""
    if _is_text(codec):
        return "bytes" if isinstance(codec, RawCodec) and (_is_untyped(type_) or bare(type_) is bytes) else "text"
    return "JSON" if _is_json(codec) else repr(codec)


def _is_text(codec: Codec) -> bool:
    return isinstance(codec, (RawCodec, TextCodec)) and not codec.children


def _is_json(codec: Codec) -> bool:
    return isinstance(codec, JsonCodec) and not codec.children


def _is_untyped(type_: Any) -> bool:
    return type_ is None or type_ is type(None) or type_ is Any or type_ is object


def _is_structured(type_: Any) -> bool:
    return not _is_untyped(type_) and bare(type_) not in _SCALARS


def _name(type_: Any) -> str:
    return getattr(type_, "__name__", None) or repr(type_)


def _record_writer(model: Any, codec: Codec, is_key: bool) -> Write:
    if is_key and _is_text(codec):
        codec = get_codec("json")
    if _is_text(codec):
        raise AppError(f"the codec {codec!r} cannot write a {model.__name__} record: take another, such as 'json'")
    return wire.writer(model) if _is_json(codec) else lambda record: codec.dumps(record.to_representation())


def _functions(type_: Any, codec: Codec, is_key: bool) -> tuple[wire.Reader, Write]:
    """The functions for what is neither null nor, to be written, bytes or a record."""
    if is_model(type_):
        return _of_model(type_, codec), codec.writer
    if _is_untyped(type_):
        return _untyped(codec, is_key)
    read, write = _of_type(type_, codec)
    return wire.Reader(read, _one_by_one(read)), write


def _one_by_one(read: Read) -> Callable[[wire.Column], list[Any]]:
    def column_way(column: wire.Column) -> list[Any]:
        try:
            return list(map(read, column))  # type: ignore[arg-type]
        except Exception:  # it may be a null's
            return [None if data is None else read(data) for data in column]

    return column_way


def _of_type(type_: Any, codec: Codec) -> tuple[Read, Write]:
    if type_ in _SCALARS:
        return _of_scalar(type_, codec)
    if _is_pydantic(type_):
        return _of_pydantic(type_, codec)
    if any(map(is_model, _within(type_))):
        return _of_models_within(type_, codec)
    return _of_msgspec(type_, codec)


def named(value: Any) -> Any:
    """The record that a mapping names; what is given, if it names no class that is known."""
    try:
        model = Model._namespaces.models.get(value[BLESSED_KEY]["ns"])
    except (KeyError, TypeError):
        return value
    return value if model is None else model.from_data(value)


def _untyped(codec: Codec, is_key: bool) -> tuple[wire.Reader, Write]:
    load = codec.reader
    write: Any = encode_key if is_key and _is_text(codec) else codec.writer
    if _is_text(codec):
        return wire.Reader(load, _one_by_one(load)), write

    def one(data: bytes) -> Any:
        value = load(data)
        return named(value) if type(value) is dict and BLESSED_KEY in value else value

    def column_way(column: wire.Column) -> list[Any]:
        return [
            None
            if data is None
            else value
            if type(value := load(data)) is not dict or BLESSED_KEY not in value
            else named(value)
            for data in column
        ]

    return wire.Reader(one, column_way), write


def _of_model(model: Any, codec: Codec) -> wire.Reader:
    if _is_json(codec) and not model.__is_abstract__:
        return wire.readers(model)
    load, preferred = codec.reader, None if model in (Model, Record) else model

    def one(data: bytes) -> Any:
        return model.from_data(load(data), preferred_type=preferred)

    return wire.Reader(one, _one_by_one(one))


# --- Scalars ----------------------------------------------------------------------------------------


def _int(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value} is no whole number")
    return int(_text(value))


def _float(value: Any) -> float:
    return value if type(value) is float else float(_text(value))


def _str(value: Any) -> str:
    value = _text(value)
    if not isinstance(value, str):
        raise ValueError(f"a {type(value).__name__} is no text")
    return value


def _bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return _str(value).encode()


def _bool(value: Any) -> bool:
    value = {"true": True, "false": False}.get(text, text) if isinstance(text := _text(value), str) else text
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _decimal(value: Any) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(repr(value) if isinstance(value, float) else _text(value))


def _datetime(value: Any) -> datetime:
    return value if isinstance(value, datetime) else to_datetime(_str(value))


def _by_msgspec(type_: Any) -> Callable[[Any], Any]:
    return lambda value: value if type(value) is type_ else msgspec.convert(_text(value), type_, strict=False)


def _text(value: Any) -> Any:
    return bytes(value).decode() if isinstance(value, (bytes, bytearray, memoryview)) else value


_SCALARS: Mapping[Any, Callable[[Any], Any]] = {
    int: _int,
    float: _float,
    str: _str,
    bytes: _bytes,
    bool: _bool,
    Decimal: _decimal,
    datetime: _datetime,
    date: _by_msgspec(date),
    time: _by_msgspec(time),
    timedelta: _by_msgspec(timedelta),
    UUID: _by_msgspec(UUID),
}


def _of_scalar(type_: Any, codec: Codec) -> tuple[Read, Write]:
    make, load = _SCALARS[type_], codec.reader
    if type_ is Decimal and _is_json(codec):  # a number of JSON, digit by digit
        return msgspec.json.Decoder(Decimal).decode, codec.writer
    if type_ is timedelta and not _is_text(codec):
        return lambda data: make(load(data)), lambda value: codec.dumps(msgspec.to_builtins(value))
    if not _is_text(codec):
        return lambda data: make(load(data)), codec.writer
    if type_ in (str, bytes):
        return lambda data: make(data), codec.writer
    return lambda data: make(data), _as_text


def _as_text(value: Any) -> bytes:
    text = value if isinstance(value, str) else msgspec.to_builtins(value)
    return str(text).encode() if not isinstance(text, bool) else str(text).lower().encode()


# --- Classes of other libraries ---------------------------------------------------------------------


def _is_pydantic(type_: Any) -> bool:
    """Only if the app has imported pydantic can its class be one of pydantic's."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(type_, type) and issubclass(type_, pydantic.BaseModel)


def _of_pydantic(type_: Any, codec: Codec) -> tuple[Read, Write]:
    if _is_json(codec):

        def write(value: Any) -> bytes:
            return value.__pydantic_serializer__.to_json(value) if isinstance(value, type_) else json_dumps(value)

        return type_.model_validate_json, write
    load = codec.reader
    return lambda data: type_.model_validate(load(data)), lambda value: codec.dumps(
        value.model_dump(mode="json") if isinstance(value, type_) else value
    )


def _of_msgspec(type_: Any, codec: Codec) -> tuple[Read, Write]:
    try:
        decoder = msgspec.json.Decoder(type_)
        if strange := [each for each in _within(type_) if _is_strange(each)]:
            raise TypeError(f"nothing says how a {_name(strange[0])} is made")
    except (TypeError, NameError) as error:
        raise AppError(
            f"type {_name(type_)} cannot be decoded: {error}; take a Record, dataclass, TypedDict, msgspec.Struct or "
            "pydantic model"
        ) from None
    if _is_json(codec):
        native = msgspec.json.Encoder(enc_hook=_by_codec).encode
        return decoder.decode, native
    load = codec.reader
    return (
        lambda data: msgspec.convert(load(data), type_),
        lambda value: codec.dumps(msgspec.to_builtins(value, enc_hook=_by_codec)),
    )


def _is_strange(type_: Any) -> bool:
    return isinstance(msgspec.inspect.type_info(type_), msgspec.inspect.CustomType)


def _by_codec(value: Any) -> Any:
    return orjson.loads(json_dumps(value))


def _of_models_within(type_: Any, codec: Codec) -> tuple[Read, Write]:
    """`list[Order]` and its like."""
    made = conversion(type_, Rules(Model._namespaces, {}))
    if made is PLAIN or made.convert is None:
        raise AppError(f"type {_name(type_)} cannot be decoded: name one Record class, or a list or dict of one")
    convert, load, nullable = made.convert, codec.reader, is_optional(type_)

    def read(data: bytes) -> Any:
        value = load(data)
        return None if value is None and nullable else convert(value)

    return read, codec.writer


def _within(type_: Any) -> list[Any]:
    """The classes that a type names."""
    plain = remove_optional(type_)
    found = [get_origin(plain) or plain]
    for each in get_args(plain):
        found += _within(each)
    return found
