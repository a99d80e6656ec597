"""The short way between JSON and records: msgspec makes and writes them as dataclasses.

It is taken for what it does exactly as `from_data` and `to_representation` do; where it refuses, those decide. A class
that it cannot do (an `__init__` of its own, other names in JSON, a representation of its own) goes the long way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, get_args, get_origin
from uuid import UUID

import msgspec
import orjson

from ..engine.codecs import json_dumps
from .compiled import MUTABLE
from .fields import load_value
from .namespaces import BLESSED_KEY
from .options import ModelOptions
from .types import is_model, remove_optional

_NOT_NULL = bool | int | float | str | list | dict  # what JSON has but null, which stands for a default
_ABSENT = object()
_WRITTEN_ALIKE = (str, int, float, bool, datetime, date, Decimal, UUID)
_CACHE = "__msgspec_cache__"  # where msgspec keeps on a class what it knows of it


def has_own_init(model: Any) -> bool:
    return not hasattr(model.__init__, "is_generated") and model.__init__ is not object.__init__


def dataclass_fields(options: ModelOptions) -> dict[str, Any]:
    """The fields as a dataclass has them. By these msgspec and others write a record without asking it."""
    fields = []
    for name, tp in options.fields.items():
        if name not in options.defaults:
            fields.append((name, tp, dataclasses.field()))
        elif type(value := options.defaults[name]).__hash__ is None:
            copied = isinstance(value, MUTABLE)
            made = lambda value=value, copied=copied: copy(value) if copied else value  # noqa: E731
            fields.append((name, tp, dataclasses.field(default_factory=made)))
        else:
            fields.append((name, tp, dataclasses.field(default=value)))
    holder: Any = dataclasses.make_dataclass("Fields", fields, init=False, repr=False, eq=False, match_args=False)
    return holder.__dataclass_fields__


# --- Reading ----------------------------------------------------------------------------------------


Column = Sequence[bytes | None]


class Reader(NamedTuple):
    """From JSON to a record, or to those of a column, where null is None."""

    one: Callable[[bytes], Any]
    column: Callable[[Column], list[Any]]


def plain(data: bytes) -> Any:
    """JSON without a type, with integers of any size as the short way has them. Raises ValueError."""
    try:
        return msgspec.json.decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(f"no JSON: {error}") from None


def reader(model: Any) -> Callable[[bytes], Any]:
    """From JSON to a record, of the class `model` unless the JSON names one that asks to be taken."""
    return readers(model).one


def readers(model: Any) -> Reader:
    if (known := vars(model).get("_reads")) is None:
        known = model._reads = _reader(model)
    return known


def _reader(model: Any) -> Reader:
    def long_way(data: bytes) -> Any:
        return model.from_data(plain(data), preferred_type=model)

    native = _decoder(model) if _is_read_alike(model, set()) else None
    if native is None:
        return Reader(long_way, lambda column: [None if data is None else long_way(data) for data in column])
    chosen_by_name = model._namespaces.chosen_by_name
    own = _metadata(model)

    def short_way(data: bytes) -> Any:
        if chosen_by_name and _names_others(data if type(data) is bytes else _as_bytes(data), own):
            return long_way(data)
        try:
            return native(data)
        except (msgspec.MsgspecError, TypeError):  # the latter: of a set's members
            return long_way(data)

    def column_way(column: Column) -> list[Any]:
        if not chosen_by_name:
            try:
                return list(map(native, column))  # type: ignore[arg-type]
            except (msgspec.MsgspecError, TypeError):  # the latter: a null
                pass
        return [None if data is None else short_way(data) for data in column]

    return Reader(short_way, column_way)


def _names_others(data: bytes, own: bytes) -> bool:
    """Whether JSON names a class other than the one it is read as."""
    names = data.count(b'"__faust"')
    return names > 1 or (names == 1 and own not in data)


def _as_bytes(data: Any) -> bytes:
    return data.encode() if isinstance(data, str) else bytes(data)


def _is_read_alike(model: Any, seen: set[Any]) -> bool:
    """Whether msgspec may make records of a class, and those within them."""
    if model in seen:
        return True
    seen.add(model)
    if model.__is_abstract__ or "from_data" in overridden(model) or has_own_init(model):
        return False
    model.make_final()
    for name, descriptor in model._options.descriptors.items():
        if descriptor.input_name != name or not all(_is_read_alike(each, seen) for each in _models_in(descriptor)):
            return False
    return True


def _models_in(descriptor: Any) -> Iterator[Any]:
    return _models_of(descriptor.wire_type())


def _models_of(wire: Any) -> Iterator[Any]:
    if is_model(wire):
        yield wire
    for each in get_args(wire):
        yield from _models_of(each)


def _decoder(model: Any) -> Callable[[bytes], Any] | None:
    """None for a type that msgspec does not know.

    It reads a class's annotations, defaults and `__post_init__` when a decoder is made: for so long, all classes
    concerned have those of their JSON.
    """
    concerned: dict[Any, None] = {}
    _collect(model, concerned)
    kept = [(each, name, vars(each).get(name, _ABSENT)) for each in concerned for name in _LENT]
    try:
        for each in concerned:
            for name, value in _as_wired(each).items():
                setattr(each, name, value)
            _forget(each)
        return msgspec.json.Decoder(model).decode
    except (TypeError, NameError):
        return None
    finally:
        for each, name, value in kept:
            if value is not _ABSENT:
                setattr(each, name, value)
            elif name in vars(each):
                delattr(each, name)
        for each in concerned:
            _forget(each)


_LENT = ("__annotations__", "__dataclass_fields__", "__post_init__")


def _collect(model: Any, concerned: dict[Any, None]) -> None:
    if model not in concerned:
        concerned[model] = None
        for descriptor in model._options.descriptors.values():
            for each in _models_in(descriptor):
                _collect(each, concerned)


def _forget(model: Any) -> None:
    if _CACHE in vars(model):
        delattr(model, _CACHE)


def _as_wired(model: Any) -> dict[str, Any]:
    options: ModelOptions = model._options
    annotations: dict[str, Any] = {}
    left: dict[str, Any] = {}  # fields that Python converts, by descriptor
    for name, descriptor in options.descriptors.items():
        wire = descriptor.wire_type()
        if wire is None:
            left[name] = descriptor
            annotations[name] = Any
        elif name in options.defaults and options.defaults[name] is not None:
            annotations[name] = _NOT_NULL if wire is Any else wire
        elif wire is not Any and not (descriptor.required and descriptor.coerce):
            annotations[name] = wire | None
        else:
            annotations[name] = wire
    fields = dict(model.__dataclass_fields__)
    if left:
        marked = ModelOptions(  # a mark stands for a default, which is not converted
            fields=options.fields,
            defaults={name: _ABSENT if name in left else value for name, value in options.defaults.items()},
        )
        fields = dataclass_fields(marked)
    post_init = _ending(model, left)
    return {
        "__annotations__": annotations,
        "__dataclass_fields__": fields,
        **({} if post_init is None else {"__post_init__": post_init}),
    }


def _ending(model: Any, left: Mapping[str, Any]) -> Callable[[Any], None] | None:
    """What ends the making of a record: conversions, then the methods of the class."""
    methods = [getattr(model, name) for name in model._finishing()]
    defaults = model._options.defaults
    if not left:
        return methods[0] if len(methods) == 1 else None if not methods else _all_of(methods)

    def end(record: Any) -> None:
        values = record.__dict__
        for name, descriptor in left.items():
            value = values[name]
            if name in defaults and (value is _ABSENT or value is None):
                default = defaults[name]
                values[name] = copy(default) if isinstance(default, MUTABLE) else default
            else:
                values[name] = load_value(descriptor, value)
        for method in methods:
            method(record)

    return end


def _all_of(methods: list[Callable[[Any], None]]) -> Callable[[Any], None]:
    def end(record: Any) -> None:
        for method in methods:
            method(record)

    return end


# --- Writing ----------------------------------------------------------------------------------------


def writer(model: Any) -> Callable[[Any], bytes]:
    """From a record of exactly the class `model` to JSON."""
    if (known := vars(model).get("_writes")) is None:
        known = model._writes = staticmethod(_writer(model))
    return known.__func__


def _writer(model: Any) -> Callable[[Any], bytes]:
    def long_way(record: Any) -> bytes:
        return json_dumps(record.to_representation())

    model.make_final()
    if not _is_written_alike(model):
        return long_way
    native = msgspec.json.Encoder().encode
    ending = b"," + _metadata(model) + b"}"

    def with_metadata(record: Any) -> bytes:
        try:
            return native(record)[:-1] + ending
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):  # not what the annotations say
            return long_way(record)

    def without(record: Any) -> bytes:
        try:
            return native(record)
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
            return long_way(record)

    return with_metadata if model._options.include_metadata else without


def _metadata(model: Any) -> bytes:
    return f'"{BLESSED_KEY}":'.encode() + orjson.dumps({"ns": model._options.namespace})


def _is_written_alike(model: Any) -> bool:
    if not model._options.fields or overridden(model) & {"to_representation", "_prepare_dict"}:
        return False
    return all(
        not each.exclude and each.output_name == name and _is_type_written_alike(each.type)
        for name, each in model._options.descriptors.items()
    )


def _is_type_written_alike(tp: Any) -> bool:
    """Not records, which have metadata; nor bytes and sets, which msgspec writes in other ways."""
    tp = remove_optional(tp)
    origin = get_origin(tp) or tp
    if origin in (list, dict, tuple):
        return bool(get_args(tp)) and all(each is Ellipsis or _is_type_written_alike(each) for each in get_args(tp))
    return origin in _WRITTEN_ALIKE or (isinstance(origin, type) and issubclass(origin, Enum))


def overridden(model: Any) -> set[str]:
    """Methods that a class, or a base of it, has instead of those of this package."""
    names = ("from_data", "to_representation", "_prepare_dict", "_made_of", "validate", "_itervalidate")
    return {name for name in names if not getattr(model, name).__module__.startswith(f"{__package__}.")}
