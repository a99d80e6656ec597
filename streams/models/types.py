"""The type of a field as conversions from what JSON has.

A type that JSON has itself is left alone: a field of type int keeps the text that a producer wrote, as in Faust, unless
its class coerces. Records, datetime and Decimal within containers, sets, tuples and what `coercions` names are always
made. Each conversion also names the type by which msgspec makes the same values, if it can.
"""

from __future__ import annotations

import collections.abc as abc
import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NewType, TypeVar, Union, get_args, get_origin
from uuid import UUID

import msgspec

from .namespaces import BLESSED_KEY, Namespaces

Convert = Callable[[Any], Any]
SHOWN = 80  # characters of a value in a message
LITERALS = (str, bytes, float, int)  # bool is an int
DECIMAL_CHARACTERS = 1_000  # a longer text is no number that anyone means
NONE = type(None)
LISTS = (list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable)
SETS = (set, abc.Set, abc.MutableSet)
DICTS = (dict, abc.Mapping, abc.MutableMapping)
BY_MSGSPEC = (UUID, date, time, timedelta, Enum)


@dataclass(frozen=True, slots=True)
class Rules:
    """What the class of a field says. is_known: whether its name stands for the class itself."""

    namespaces: Namespaces
    coercions: Mapping[Any, Convert]
    date_parser: Convert | None = None
    polymorphic: bool = False


@dataclass(frozen=True, slots=True)
class Conversion:
    """convert: to the type from JSON, always done; None: nothing is. wire: the type by which msgspec does the same;
    None: it cannot. strict: to the type, where a field coerces; strict_wire: as wire. model: the type, if it is a
    record's."""

    convert: Convert | None = None
    wire: Any = Any
    strict: Convert | None = None
    strict_wire: Any = None
    model: Any = None
    only_from_json: bool = False  # not for what is assigned in Python

    @property
    def is_plain(self) -> bool:
        return self.convert is None


PLAIN = Conversion()


def bare(tp: Any) -> Any:
    """A type without Annotated and NewType."""
    while True:
        if get_origin(tp) is Annotated:
            tp = get_args(tp)[0]
        elif isinstance(tp, NewType):
            tp = tp.__supertype__
        else:
            return tp


def is_union(tp: Any) -> bool:
    return get_origin(tp) in (Union, types.UnionType)


def is_optional(tp: Any) -> bool:
    tp = bare(tp)
    return is_union(tp) and NONE in get_args(tp)


def remove_optional(tp: Any) -> Any:
    """A type without its None."""
    tp = bare(tp)
    if not is_optional(tp):
        return tp
    return bare(Union[tuple(each for each in get_args(tp) if each is not NONE)])  # noqa: UP007


def is_model(tp: Any) -> bool:
    return isinstance(tp, type) and hasattr(tp, "__is_model__")


def conversion(tp: Any, rules: Rules) -> Conversion:
    """How values of a type are made. All of it is for values that are not None."""
    tp = remove_optional(tp)
    origin = get_origin(tp) or tp
    if (handler := _coercion(origin, rules.coercions)) is not None:
        return Conversion(_from_json(handler), None, only_from_json=True)
    if is_model(origin):
        return _of_model(origin, rules)
    if is_union(tp):
        members = get_args(tp)
        if all(is_model(bare(each)) for each in members if each is not NONE):
            return Conversion(_reconstructed(rules), None)
        return PLAIN  # nothing says which of them a value is
    if not isinstance(origin, type):
        return PLAIN  # Any, a TypeVar, a Literal
    arguments = tuple(each for each in get_args(tp) if not isinstance(each, TypeVar))
    if _is_named_tuple(origin):
        return _of_named_tuple(origin, rules)
    if origin in LISTS:
        return _of_list(arguments, rules)
    if origin in SETS or origin is frozenset:
        return _of_set(frozenset if origin is frozenset else set, arguments, rules)
    if origin is tuple:
        return _of_tuple(arguments, rules)
    if origin in DICTS:
        return _of_dict(arguments, rules)
    if issubclass(origin, BY_MSGSPEC) or _is_structured(origin):
        if origin is not datetime:
            return Conversion(strict=_strictly(tp), strict_wire=tp)
    return PLAIN


def item_conversion(tp: Any, rules: Rules) -> Conversion:
    """As `conversion`, of what a container has: here datetime and Decimal are always made of their text."""
    bare_type = remove_optional(tp)
    if bare_type is datetime and _coercion(datetime, rules.coercions) is None:
        parse = rules.date_parser or to_datetime
        return Conversion(
            lambda value: parse(value) if isinstance(value, str) else value,
            None if rules.date_parser else datetime | None,
        )
    if bare_type is Decimal and _coercion(Decimal, rules.coercions) is None:
        return Conversion(_finite_decimal, None)  # msgspec also takes the numbers that JSON has, and what is infinite
    found = conversion(tp, rules)
    return found if found.model is None or found.wire is None else dataclasses.replace(found, wire=found.wire | None)


# --- Scalars ----------------------------------------------------------------------------------------


def to_datetime(value: Any) -> datetime:
    """ISO 8601 as Python reads it. Raises ValueError."""
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError("a datetime is made of text in ISO 8601, such as 2026-03-02T09:00:00Z") from None


def to_decimal(value: Any) -> Decimal:
    """Of a float, the number that is written, not its nearest binary fraction."""
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, str) and len(value) > DECIMAL_CHARACTERS:
        raise ValueError(f"a number of {len(value)} characters is longer than {DECIMAL_CHARACTERS}")
    return Decimal(value)


def _finite_decimal(value: Any) -> Decimal:
    number = value if isinstance(value, Decimal) else to_decimal(value)
    if not number.is_finite():
        raise ValueError(f"{number} is not a number that JSON can have")
    return number


def _strictly(tp: Any) -> Convert:
    def convert(value: Any) -> Any:
        try:
            return value if _is_instance(value, tp) else msgspec.convert(value, tp, strict=False)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from None

    return convert


def _is_instance(value: Any, tp: Any) -> bool:
    return isinstance(tp, type) and not typing.is_typeddict(tp) and isinstance(value, tp)


def _is_structured(tp: type) -> bool:
    return dataclasses.is_dataclass(tp) or issubclass(tp, msgspec.Struct) or typing.is_typeddict(tp)


def _coercion(tp: Any, coercions: Mapping[Any, Convert]) -> Convert | None:
    if isinstance(tp, type):
        for named, handler in coercions.items():
            if isinstance(named, (type, tuple)) and issubclass(tp, named):
                return handler
    return None


def _from_json(handler: Convert) -> Convert:
    return lambda value: handler(value) if isinstance(value, (str, list, dict, int, float, Decimal)) else value


# --- Models -----------------------------------------------------------------------------------------


def _of_model(model: Any, rules: Rules) -> Conversion:
    if model.__is_abstract__:
        return Conversion(_reconstructed(rules, model), None)
    if rules.polymorphic:
        return Conversion(_named_or(model, rules), None, model=model)
    return Conversion(lambda value: model.from_data(value, preferred_type=model), model, model=model)


def _reconstructed(rules: Rules, base: Any = None) -> Convert:
    """The record that the JSON names; anything else is left alone, as in Faust."""

    def convert(value: Any) -> Any:
        model = rules.namespaces.models.get(_namespace(value))
        return value if model is None or (base and not issubclass(model, base)) else model.from_data(value)

    return convert


def _named_or(model: Any, rules: Rules) -> Convert:
    def convert(value: Any) -> Any:
        named = rules.namespaces.models.get(_namespace(value))
        chosen = named if named is not None and issubclass(named, model) else model
        return chosen.from_data(value, preferred_type=chosen)

    return convert


def _namespace(value: Any) -> Any:
    try:
        return value[BLESSED_KEY]["ns"]
    except (KeyError, TypeError, IndexError):
        return None


# --- Containers -------------------------------------------------------------------------------------


def _of_list(arguments: tuple[Any, ...], rules: Rules) -> Conversion:
    item = item_conversion(arguments[0], rules) if arguments else PLAIN
    if item.convert is None:
        return PLAIN
    each = _or_none(item.convert)
    return Conversion(lambda value: [each(member) for member in _iterated(value)], _wired(list, item))


def _of_set(kind: Any, arguments: tuple[Any, ...], rules: Rules) -> Conversion:
    item = item_conversion(arguments[0], rules) if arguments else PLAIN
    if item.convert is None:
        return Conversion(lambda value: value if isinstance(value, kind) else kind(_iterated(value)), kind[Any])
    each = _or_none(item.convert)
    return Conversion(lambda value: kind(each(member) for member in _iterated(value)), _wired(kind, item))


def _of_tuple(arguments: tuple[Any, ...], rules: Rules) -> Conversion:
    if not arguments or Ellipsis in arguments:
        item = item_conversion(arguments[0], rules) if arguments else PLAIN
        if item.convert is None:
            return Conversion(lambda value: value if isinstance(value, tuple) else tuple(_iterated(value)), tuple)
        each = _or_none(item.convert)
        wire = None if item.wire is None else tuple[item.wire, ...]  # type: ignore[name-defined]
        return Conversion(lambda value: tuple(each(member) for member in _iterated(value)), wire)
    items = [item_conversion(each, rules) for each in arguments]
    converts = [_or_none(item.convert) for item in items]
    wires = [item.wire for item in items]
    return Conversion(
        lambda value: tuple(convert(member) for convert, member in zip(converts, _iterated(value), strict=True)),
        None if None in wires else tuple[tuple(wires)],  # type: ignore[misc]
    )


def _of_dict(arguments: tuple[Any, ...], rules: Rules) -> Conversion:
    if len(arguments) != 2:
        return PLAIN
    key, item = (item_conversion(each, rules) for each in arguments)
    if key.convert is None and item.convert is None:
        return PLAIN
    of_key, of_item = _or_none(key.convert), _or_none(item.convert)
    wire = None if key.convert is not None or item.wire is None else dict[str, item.wire]  # type: ignore[name-defined]
    return Conversion(lambda value: {of_key(each): of_item(member) for each, member in value.items()}, wire)


def _of_named_tuple(kind: Any, rules: Rules) -> Conversion:
    hints = typing.get_type_hints(kind)
    converts = [_or_none(item_conversion(hints.get(name, Any), rules).convert) for name in kind._fields]
    return Conversion(
        lambda value: kind(*(convert(member) for convert, member in zip(converts, _iterated(value), strict=False))),
        None,
    )


def _is_named_tuple(tp: type) -> bool:
    return issubclass(tp, tuple) and hasattr(tp, "_fields")


def _wired(kind: Any, item: Conversion) -> Any:
    return None if item.wire is None else kind[item.wire]


def _or_none(convert: Convert | None) -> Convert:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def _iterated(value: Any) -> Any:
    """Text is no list of its characters."""
    if isinstance(value, (str, bytes, dict)):
        raise TypeError(f"a {type(value).__name__} is no array")
    return value
