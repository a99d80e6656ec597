"""The classes whose instances a row may have, and the types that need no class: packed as JSON and unpacked again.

In packed JSON, `{"object": [name, {…}]}` is an instance of a class, with all its attributes, whatever its options say
about JSON. A class that has got a field with a default since then makes instances of old rows with the default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from copy import copy
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Context, Decimal
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict
from uuid import UUID

import msgspec
import orjson

from ..errors import AppError, ChangelogError
from ..models.record import Model
from ..models.types import bare, is_model
from .codecs import PLAIN_KEYS, canonical_key, pack, unknown, unpack

SELF_EVIDENT = "datetime, date, time, timedelta, Decimal, UUID, sets"  # need no type that names them
FIELDS_SET = "__pydantic_fields_set__"
_ALL_SET = {"__pydantic_extra__": None, "__pydantic_private__": None}  # of an instance's state, beside its fields
MAX_EXPONENT = 1_000  # of a Decimal as a key: it is stored as the integer that it equals
_new, _set = object.__new__, object.__setattr__
_NUMBERS_AND_TEXT: Any = (int, float, str)  # members of such an Enum equal their values


class _Class:
    """One class whose instances a row may have, and its name there."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.name: str = kind._options.namespace if is_model(kind) else f"{kind.__module__}.{kind.__qualname__}"
        self._has_state = hasattr(kind, "__pydantic_fields__") or hasattr(kind, "model_fields")
        self._is_struct = issubclass(kind, msgspec.Struct)
        self._fields = dict.fromkeys(_field_names(kind)).keys()
        self._has_dict = not (self._has_state or self._is_struct) and not _slots_of(kind)

    def attributes(self, value: Any) -> dict[str, Any]:
        """All attributes of an instance by name; not to be changed."""
        if self._has_dict:
            return vars(value)
        if self._has_state:
            return dict(value.__getstate__())
        if self._is_struct:
            return msgspec.structs.asdict(value)
        slots = {name: getattr(value, name) for name in self._fields if hasattr(value, name)}
        return {**slots, **getattr(value, "__dict__", {})}

    def plain_attributes(self, value: Any) -> dict[str, Any] | None:
        """What `made` makes an equal instance of, if it is plain; not to be changed. None: `attributes` says more."""
        if self._has_dict:
            return vars(value)
        if not self._has_state:
            return self.attributes(value)
        if value.__pydantic_extra__ is not None or value.__pydantic_private__ is not None:
            return None
        fields, are_set = vars(value), value.__pydantic_fields_set__
        return fields if are_set == fields.keys() else {**fields, FIELDS_SET: sorted(are_set)}

    def made(self, attributes: Any) -> Any:
        """An instance with these attributes, without its `__init__`. Raises ChangelogError if they lack one."""
        if type(attributes) is dict and attributes.keys() == self._fields:
            if self._has_dict:
                made = _new(self.kind)
                _set(made, "__dict__", attributes)
                return made
            if self._is_struct:
                return self.kind(**attributes)
        if not isinstance(attributes, dict):
            raise ChangelogError(f"a changelog row has no attributes for an instance of {self.name}")
        if self._has_state and "__dict__" not in attributes:
            are_set = attributes.pop(FIELDS_SET, attributes)
            attributes = {"__dict__": attributes, FIELDS_SET: set(are_set), **_ALL_SET}
        if self._is_struct:
            return self._struct(attributes)
        made = self.kind.__new__(self.kind)
        if self._has_state:
            state = {**attributes, "__dict__": {**self._defaults(attributes["__dict__"]), **attributes["__dict__"]}}
            made.__setstate__(state)
            return made
        values = {**self._defaults(attributes), **attributes}
        for name in dict.fromkeys((*self._fields, *values)):
            object.__setattr__(made, name, values[name])
        return made

    def _struct(self, attributes: dict[str, Any]) -> Any:
        known = {name: value for name, value in attributes.items() if name in self.kind.__struct_fields__}
        try:
            return self.kind(**known)
        except TypeError as error:
            raise ChangelogError(f"a changelog row does not make a {self.name}: {error}") from None

    def _defaults(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Values of the fields that the class has got since the row was written."""
        lacking = [name for name in self._fields if name not in attributes]
        return {name: self._default(name) for name in lacking}

    def _default(self, name: str) -> Any:
        if is_model(self.kind) and name in self.kind._options.defaults:
            return copy(self.kind._options.defaults[name])
        if self._has_state and not self.kind.model_fields[name].is_required():
            return self.kind.model_fields[name].get_default(call_default_factory=True)
        if dataclasses.is_dataclass(self.kind):
            field = self.kind.__dataclass_fields__[name]
            if field.default is not dataclasses.MISSING:
                return field.default
            if field.default_factory is not dataclasses.MISSING:
                return field.default_factory()
        raise ChangelogError(f"a changelog row has no {name} for a {self.name}: give the field a default")


def _slots_of(kind: Any) -> list[str]:
    return [name for base in kind.__mro__ for name in vars(base).get("__slots__", ())]


def _class_in(type_: Any) -> Any:
    kind = get_origin(type_) or type_
    return kind if isinstance(kind, type) else None


def _field_names(kind: Any) -> list[str]:
    if hasattr(kind, "model_fields"):
        return list(kind.model_fields)
    return list(getattr(kind, "__struct_fields__", ()) or getattr(kind, "__dataclass_fields__", ()))


class Classes:
    """The classes that a type names, and the types that need no name of their own. takes_records: and all records."""

    def __init__(self, type_: Any = None, takes_records: bool = False) -> None:
        self._takes_records = takes_records
        self.by_kind: dict[Any, _Class] = {}
        self._enums: dict[Any, str] = {}
        self._tuples: dict[Any, str] = {}
        try:
            self._collect(type_, set())
        except NameError as error:
            raise AppError(f"the type {type_!r} of a table cannot be used: {error}") from None
        self._by_name = {each.name: each for each in self.by_kind.values()}

    def _collect(self, type_: Any, seen: set[Any]) -> None:
        type_ = bare(type_)
        for each in get_args(type_):
            self._collect(each, seen)
        kind = _class_in(type_)
        if kind is None or kind in seen:
            return
        seen.add(kind)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if issubclass(kind, Enum):
            self._enums[kind] = name
        elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
            self._tuples[kind] = name
            self._collect_fields(kind, seen)
        elif is_model(kind):
            kind.make_final()
            if not kind.__is_abstract__:
                self.by_kind[kind] = _Class(kind)
            for each in kind._options.fields.values():
                self._collect(each, seen)
        elif dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct) or hasattr(kind, "model_fields"):
            self.by_kind[kind] = _Class(kind)
            self._collect_fields(kind, seen)
        elif is_typeddict(kind):
            self._collect_fields(kind, seen)

    def _collect_fields(self, kind: Any, seen: set[Any]) -> None:
        for each in get_type_hints(kind).values():
            self._collect(each, seen)

    # --- Packing ------------------------------------------------------------------------------------

    def pack_value(self, value: Any) -> Any:
        return pack(value, self.pack)

    def pack(self, value: Any) -> Any:
        """What is of no type that `codecs.pack` knows. Raises TypeError."""
        kind = type(value)
        if kind is datetime:
            return {"datetime": _iso(value)}
        if kind in (date, time):
            return {kind.__name__: _iso(value)}
        if kind is timedelta:
            return {"timedelta": [value.days, value.seconds, value.microseconds]}
        if kind is Decimal:
            return {"decimal": str(value)}
        if kind is UUID:
            return {"uuid": value.hex}
        if kind in (set, frozenset):
            return {kind.__name__: sorted((pack(each, self.pack) for each in value), key=orjson.dumps)}
        if kind in self._enums:
            if value.name not in kind.__members__:
                raise TypeError(f"{value!r}, which has no name of its own")
            return {"enum": [self._enums[kind], value.name]}
        if kind in self._tuples:
            return {"tuple_of": [self._tuples[kind], [pack(each, self.pack) for each in value]]}
        if (known := self._class_of(kind)) is not None:
            packed = {name: pack(each, self.pack) for name, each in known.attributes(value).items()}
            return {"object": [known.name, packed]}
        raise TypeError(f"a {kind.__name__}, which the table's type does not name")

    def unpack(self, kind: str, body: Any) -> Any:
        """The inverse of `pack`."""
        match kind:
            case "set":
                return {unpack(each, self.unpack) for each in body}
            case "frozenset":
                return frozenset(unpack(each, self.unpack) for each in body)
            case "enum":
                return _member(_named(self._enums, body[0]), body[1])
            case "tuple_of":
                return _named(self._tuples, body[0])._make(unpack(each, self.unpack) for each in body[1])
            case "object":
                known = self._by_name.get(body[0])
                if known is None and (model := Model._namespaces.models.get(body[0])) is not None:
                    known = self._class_of(model)
                if known is None:
                    raise _gone(body[0])
                return known.made({name: unpack(each, self.unpack) for name, each in body[1].items()})
        return unpacked_scalar(kind, body)

    def _class_of(self, kind: Any) -> _Class | None:
        """Also a subclass of a record's class that the type names."""
        if (known := self.by_kind.get(kind)) is None and is_model(kind):
            if self._takes_records:
                self._collect(kind, set())
                self._by_name = {each.name: each for each in self.by_kind.values()}
                known = self.by_kind.get(kind)
            elif any(is_model(base) and base in self._bases() for base in kind.__mro__):
                known = self.by_kind[kind] = _Class(kind)
        return known

    def _bases(self) -> set[Any]:
        return {kind for kind in self.by_kind if is_model(kind)}

    # --- Keys ---------------------------------------------------------------------------------------

    def pack_key(self, key: Any) -> Any:
        return [self.pack_key(each) for each in key] if type(key) is tuple else pack(key, self.pack)

    def unpack_key(self, key: Any) -> Any:
        return tuple(map(self.unpack_key, key)) if isinstance(key, list) else unpack(key, self.unpack)

    def canonical(self, key: Any) -> Any:
        """The key for all keys equal to `key`. Raises TypeError for one that cannot be restored."""
        kind = type(key)
        if kind in PLAIN_KEYS:
            return key
        if isinstance(key, tuple):  # also a named one, which equals the other
            return tuple(map(self.canonical, key))
        if kind is Decimal:
            return canonical_decimal(key)
        if kind is datetime:
            _iso(key)
            return key if key.tzinfo is None else key.astimezone(UTC)
        if kind in (date, timedelta, UUID):
            return key
        if kind is frozenset:
            return frozenset(map(self.canonical, key))
        if kind in self._enums:
            return self.canonical(key.value) if isinstance(key, _NUMBERS_AND_TEXT) else key
        if (known := self._class_of(kind)) is not None:
            hash(key)
            attributes = known.attributes(key)
            canonical = {name: self.canonical(each) for name, each in attributes.items()}
            return key if all(attributes[name] is each for name, each in canonical.items()) else known.made(canonical)
        return canonical_key(key)


def unpacked_scalar(kind: str, body: Any) -> Any:
    """What needs no class of the app. Raises ChangelogError for a type that this release does not know."""
    match kind:
        case "datetime":
            return datetime.fromisoformat(body)
        case "date":
            return date.fromisoformat(body)
        case "time":
            return time.fromisoformat(body)
        case "timedelta":
            return timedelta(*body)
        case "decimal":
            return Decimal(body)
        case "uuid":
            return UUID(hex=body)
    return unknown(kind, body)


def canonical_decimal(key: Decimal) -> int | float | Decimal:
    """The integer or float that a Decimal equals, else it without zeros at its end. Raises TypeError for NaN and for
    what is larger than anyone's key."""
    if not key.is_finite() or key.adjusted() > MAX_EXPONENT:
        raise TypeError(f"the Decimal {key}")
    if key == key.to_integral_value():
        return int(key)
    if Decimal(nearest := float(key)) == key:
        return nearest
    return key.normalize(Context(prec=len(key.as_tuple().digits)))


def _iso(value: Any) -> str:
    zone = getattr(value, "tzinfo", None)
    if zone is not None and type(zone) is not timezone:
        raise TypeError(f"a {type(value).__name__} of zone {zone}: take value.astimezone(timezone.utc)")
    return value.isoformat()


def _named(known: Mapping[Any, str], name: str) -> Any:
    for kind, its in known.items():
        if its == name:
            return kind
    raise _gone(name)


def _member(kind: Any, name: str) -> Any:
    try:
        return kind[name]
    except KeyError:
        raise _gone(f"{kind.__qualname__}.{name}") from None


def _gone(name: str) -> ChangelogError:
    return ChangelogError(f"a changelog row has a {name}, which the table's type does not name now")
