"""`Record`: a class whose annotated fields describe a key or a value, as in Faust.

    class Order(Record, serializer="json"):
        account_id: str
        amount: float
        note: str | None = None

    Order.loads(Order("a", 1.5).dumps()) == Order("a", 1.5)
    Order.amount  # a descriptor, which `group_by` and `relative_to_field` take

A record is a plain object with its values in `__dict__`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, dataclass_transform

from ..engine.codecs import Codec, CodecArg, JsonCodec, get_codec
from ..errors import AppError
from ..near import or_near
from . import wire
from .annotations import Later, annotated, default_of, defined, own_names
from .compiled import (
    COMPARISONS,
    MUTABLE,
    asdict_method,
    check_method,
    comparison,
    hash_method,
    init_method,
    representation_method,
)
from .fields import (
    MISSING,
    BooleanField,
    BytesField,
    CharField,
    DatetimeField,
    DecimalField,
    FieldDescriptor,
    FloatField,
    IntegerField,
    MissingValueError,
    NumberField,
    StringField,
    ValidationError,
    field_for_type,
    load_value,
    refuse_type,
    shown,
)
from .namespaces import BLESSED_KEY, Namespaces, namespace_of
from .options import ModelOptions
from .types import Rules, is_optional, remove_optional, to_datetime

if TYPE_CHECKING:
    from typing import Self

M = TypeVar("M", bound="Model")


class Model:
    """What all models have; `Record` is the one kind there is."""

    __is_model__: ClassVar[bool] = True
    __is_abstract__: ClassVar[bool] = True
    _options: ClassVar[ModelOptions] = ModelOptions()
    _namespaces: ClassVar[Namespaces] = Namespaces()
    _undefined: ClassVar[bool] = False  # whether a field's type is still to be looked up
    _reads: ClassVar[wire.Reader | None] = None  # once it was asked for
    _writes: ClassVar[Callable[[Any], bytes] | None] = None

    # --- Reading ------------------------------------------------------------------------------------

    @classmethod
    def loads(cls, s: bytes, *, serializer: CodecArg = None, default_serializer: CodecArg = None) -> Self:
        """A record of bytes, by the codec of the class, else by `serializer`, else by JSON.

        The class is the one that the bytes name, if it is known, else this one. Raises ValueError if there is no such
        record.
        """
        codec = get_codec(cls._options.serializer or serializer or default_serializer or "json")
        return cls.from_data(wire.plain(s) if _is_json(codec) else codec.loads(s))

    @classmethod
    def from_data(cls, data: Any, *, preferred_type: Any = None) -> Self:
        """A record of what a codec gave: a mapping with the names of the fields; others are left out.

        preferred_type: the class that is wanted, also where the data names another one which does not ask to be taken.
        Raises ValidationError if a value is missing or cannot be converted.
        """
        if isinstance(data, Model):
            return data  # type: ignore[return-value]
        if not isinstance(data, Mapping):
            raise ValidationError(f"a {cls.__name__} record is made of a mapping, not of {shown(data)}")
        return cls._named_by(data, preferred_type)._made_of(data)

    @classmethod
    def _named_by(cls, data: Mapping[str, Any], preferred_type: Any) -> Any:
        try:
            name = data[BLESSED_KEY]["ns"]
        except (KeyError, TypeError):
            name = None
        wants_any = preferred_type is None or preferred_type is Model
        known = cls._namespaces.models if wants_any or cls.__is_abstract__ else cls._namespaces.chosen_by_name
        chosen = known.get(name, cls) if isinstance(name, str) else cls
        if chosen.__is_abstract__:
            raise ValidationError(f"no class is defined for a record of namespace {shown(name)}")
        return chosen

    @classmethod
    def _made_of(cls, data: Mapping[str, Any]) -> Any:
        cls.make_final()
        values = {}
        for name, descriptor in cls._options.descriptors.items():
            value = data.get(descriptor.input_name, MISSING)
            if value is MISSING and descriptor.required:
                raise MissingValueError(f"{cls.__name__} record without {descriptor.input_name}", field=descriptor)
            if not descriptor.required and (value is MISSING or value is None):
                default = cls._options.defaults[name]
                values[name] = copy(default) if isinstance(default, MUTABLE) else default
            else:
                values[name] = load_value(descriptor, value)
        if wire.has_own_init(cls):
            return cls(**values)
        record: Any = cls.__new__(cls)
        record.__dict__.update(values)
        for method in cls._finishing():
            getattr(record, method)()
        return record

    # --- Writing ------------------------------------------------------------------------------------

    def dumps(self, *, serializer: CodecArg = None) -> bytes:
        """The record as bytes, by `serializer`, else by the codec of the class, else by JSON."""
        codec = get_codec(serializer or self._options.serializer or "json")
        if _is_json(codec):
            return wire.writer(type(self))(self)
        return codec.dumps(self.to_representation())

    def to_representation(self) -> Any:
        """The record as a mapping, with the name of its class if the class includes metadata."""
        payload = self.asdict()
        if self._options.include_metadata:
            payload[BLESSED_KEY] = {"ns": self._options.namespace}
        return payload

    def asdict(self) -> dict[str, Any]:
        """The values of the fields that are written, by their names in JSON. Nested records stay records."""
        raise NotImplementedError("made for each class")

    def _prepare_dict(self, payload: dict[str, Any]) -> dict[str, Any]:
        """For a subclass to change what is written."""
        return payload

    def __json__(self) -> Any:
        return self.to_representation()

    # --- Checking, copying, showing -----------------------------------------------------------------

    def is_valid(self) -> bool:
        return not self.validate()

    def validate(self) -> list[ValidationError]:
        """All that is wrong with the values."""
        return list(self._itervalidate())

    def validate_or_raise(self) -> None:
        """Raises the first of the ValidationErrors."""
        if self._is_surely_valid():
            return
        if errors := self.validate():
            raise errors[0]

    @property
    def validation_errors(self) -> list[ValidationError]:
        return self.validate()

    def _is_surely_valid(self) -> bool:
        """Made for each class: a shorter way to find nothing wrong."""
        return False

    def _itervalidate(self) -> Iterable[ValidationError]:
        for name, descriptor in self._options.descriptors.items():
            yield from descriptor.validate_all(getattr(self, name))

    def derive(self, *objects: Model, **fields: Any) -> Self:
        """A copy with other values: those of `objects`, of which the last counts, then `fields`."""
        values: dict[str, Any] = {}
        records: tuple[Model, ...] = (self, *objects)
        for each in records:
            values.update({name: getattr(each, name) for name in each._options.fields})
        return type(self)(**{**values, **fields})

    def _humanize(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("__"))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._humanize()}>"

    # --- Making a class -----------------------------------------------------------------------------

    @classmethod
    def make_final(cls) -> None:
        """Look up types that were not defined when the class was. Raises AppError if they still are not."""
        if cls._undefined:
            cls._undefined = False
            try:
                _complete(cls)
            except BaseException:
                cls._undefined = True
                raise

    @classmethod
    def _finishing(cls) -> list[str]:
        """Methods that end the making of a record."""
        methods = ["__post_init__"] if hasattr(cls, "__post_init__") else []
        return [*methods, "validate_or_raise"] if cls._options.validation else methods


def _is_json(codec: Codec) -> bool:
    return type(codec) is JsonCodec and not codec.children


def _abstract_init(self: Any, *_: Any, **__: Any) -> None:
    raise NotImplementedError(
        f"{type(self).__name__} is abstract: make records of its subclasses. If a field has this type, "
        "polymorphic_fields=True loads it as the class that the data names"
    )


_abstract_init.is_generated = True  # type: ignore[attr-defined]


@dataclass_transform(
    order_default=True,
    field_specifiers=(
        FieldDescriptor,
        BooleanField,
        NumberField,
        IntegerField,
        FloatField,
        DecimalField,
        CharField,
        StringField,
        BytesField,
        DatetimeField,
    ),
)
class Record(Model):
    """A model with named fields; in JSON, an object.

    Class options, as in `class Order(Record, coerce=True)`, are those of `ModelOptions`, and abstract=True for a class
    that only others are made of. A subclass has the fields and the options of its bases. A field that is Optional, or
    has a default, need not be given; None stands for the default. Other fields accept any value, unless the class
    coerces.

    Records are equal if they are of one class and their fields are equal; they are ordered by their fields.
    """

    def __init_subclass__(
        cls,
        *,
        serializer: CodecArg = None,
        namespace: str | None = None,
        include_metadata: bool | None = None,
        isodates: bool | None = None,
        abstract: bool = False,
        allow_blessed_key: bool | None = None,
        decimals: bool | None = None,
        coerce: bool | None = None,
        coercions: Mapping[Any, Callable[[Any], Any]] | None = None,
        polymorphic_fields: bool | None = None,
        validation: bool | None = None,
        date_parser: Callable[[Any], datetime] | None = None,
        lazy_creation: bool = False,
        **kwargs: Any,
    ) -> None:
        if kwargs and not _has_options_of_its_own(cls):
            option = next(iter(kwargs))
            near = or_near(option, inspect.signature(Record.__init_subclass__).parameters, "=")
            raise TypeError(f"record {cls.__name__}: there is no option {option}={near}")
        super().__init_subclass__(**kwargs)
        given = {
            "serializer": serializer,
            "include_metadata": include_metadata,
            "isodates": isodates,
            "allow_blessed_key": allow_blessed_key,
            "decimals": decimals,
            "coerce": coerce,
            "coercions": coercions,
            "polymorphic_fields": polymorphic_fields,
            "validation": validation,
            "date_parser": date_parser,
        }
        if (inner := vars(cls).get("Options")) is not None:
            given = {name: vars(inner).get(name) if value is None else value for name, value in given.items()}
            namespace = namespace or vars(inner).get("namespace")
            del cls.Options  # type: ignore[attr-defined]
        options = cls._options.inherited(given)
        if inner is not None:  # attributes of the app's own
            vars(options).update(
                {name: value for name, value in vars(inner).items() if name[:2] != "__" and name not in given}
            )
        options.namespace = namespace or namespace_of(cls)
        cls._options = options
        cls.__is_abstract__ = abstract
        _define_fields(cls, options)
        if abstract:
            cls.__init__ = _abstract_init  # type: ignore[method-assign]
            return
        _define_methods(cls, options)
        cls._undefined = True
        try:
            cls.make_final()
        except AppError:
            if not any(isinstance(tp, Later) for tp in options.fields.values()):
                raise
        cls._namespaces.add(cls)


Record.__init__ = _abstract_init  # type: ignore[method-assign]


def _has_options_of_its_own(cls: type) -> bool:
    """Whether a base of the app's own, behind Record, may take what Record does not."""
    behind = cls.__mro__[cls.__mro__.index(Record) + 1 :]
    return any("__init_subclass__" in vars(each) for each in behind if each not in (Generic, object))


def _define_fields(cls: Any, options: ModelOptions) -> None:
    """Types, defaults and descriptors."""
    types = annotated(cls, Record)
    _check_order(cls, types)
    descriptors: dict[str, FieldDescriptor[Any]] = {}
    for name, tp in types.items():
        descriptors[name] = _descriptor(cls, name, tp, options)
        setattr(cls, name, descriptors[name])
    options.fields = types
    options.fieldset = frozenset(types)
    options.fieldpos = dict(enumerate(types))
    options.defaults = {name: each.default for name, each in descriptors.items() if not each.required}
    options.optionalset = frozenset(options.defaults)
    options.descriptors = descriptors


def _descriptor(cls: Any, name: str, tp: Any, options: ModelOptions) -> FieldDescriptor[Any]:
    assigned = default_of(cls, Record, name, MISSING)
    optional = _is_optional(tp)
    common = {"field": name, "type": tp, "model": cls}
    if isinstance(assigned, FieldDescriptor) and assigned.is_explicit:
        made = assigned.clone(**common, required=assigned.required and not optional)
    else:
        if isinstance(assigned, FieldDescriptor):  # what a base made of its annotation
            assigned = MISSING if assigned.required else assigned.default
        kind = FieldDescriptor if isinstance(tp, Later) else field_for_type(remove_optional(tp))
        made = kind(**common, default=None if assigned is MISSING and optional else assigned)
        made.is_explicit = False
    if made._coerce is None:
        made.coerce = options.coerce
    if made._date_parser is None and options.date_parser is not None:
        made.date_parser = options.date_parser
    return made


def _is_optional(tp: Any) -> bool:
    return tp.is_optional if isinstance(tp, Later) else is_optional(tp)


def _check_order(cls: Any, types: Mapping[str, Any]) -> None:
    """As in a dataclass, what has no default comes first. Optional fields may stand anywhere."""
    before: list[str] = []
    for name in own_names(cls):
        if name not in types:  # a class variable
            continue
        assigned = vars(cls).get(name, MISSING)
        if assigned is MISSING:
            if before and not _is_optional(types[name]):
                raise TypeError(f"{cls.__name__}: {name} without a default follows {', '.join(before)}")
        elif not isinstance(assigned, FieldDescriptor) or not assigned.required:
            before.append(name)


def _define_methods(cls: Any, options: ModelOptions) -> None:
    names = list(options.fields)
    if "asdict" in vars(cls):
        raise AppError(f"{cls.__name__} cannot define asdict(): override _prepare_dict or to_representation")
    written = {name: each.output_name for name, each in options.descriptors.items() if not each.exclude}
    cls.asdict = asdict_method(written)
    if not wire.overridden(cls) & {"to_representation", "_prepare_dict"}:
        metadata = {BLESSED_KEY: {"ns": options.namespace}} if options.include_metadata else {}
        cls.to_representation = representation_method(written, metadata)
    if "__hash__" not in vars(cls):
        cls.__hash__ = hash_method(names)
    for method in COMPARISONS:
        if method not in vars(cls):
            setattr(cls, method, comparison(method, names))
    if not wire.has_own_init(cls):
        cls.__init__ = _first_init


def _complete(cls: Any) -> None:
    """Make the conversions of all fields, and what depends on them. Raises AppError for a type that is not defined."""
    options: ModelOptions = cls._options
    for name, tp in options.fields.items():
        if isinstance(tp, Later):
            try:
                options.fields = {**options.fields, name: defined(tp)}
            except NameError as error:
                raise refuse_type(options.descriptors[name], error) from None
            found = _descriptor(cls, name, options.fields[name], options)
            options.descriptors = {**options.descriptors, name: found}
            setattr(cls, name, found)
    conversions = {}
    for name, descriptor in options.descriptors.items():
        parser = None if descriptor.date_parser is to_datetime else descriptor.date_parser
        descriptor.attach(Rules(cls._namespaces, options.coercions, parser, options.polymorphic_fields))
        if (convert := descriptor.at_assignment()) is not None:
            conversions[name] = convert
    options.defaults = {
        name: conversions[name](value) if name in conversions and value is not None else value
        for name, value in options.defaults.items()
    }
    cls.__dataclass_fields__ = wire.dataclass_fields(options)
    if not wire.overridden(cls) & {"validate", "_itervalidate"}:
        cls._is_surely_valid = check_method({name: each.sure_check() for name, each in options.descriptors.items()})
    made: Any = init_method(list(options.fields), options.defaults, conversions, cls._finishing())
    made.is_generated = True
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    cls._model_init = made  # for an `__init__` of the app's own to call
    if cls.__init__ is _first_init:
        cls.__init__ = made
    if any(each.prepares for each in options.descriptors.values()) and cls.__setattr__ is object.__setattr__:
        cls.__setattr__ = _set_prepared


def _set_prepared(self: Any, name: str, value: Any) -> None:
    """`__setattr__` of classes that coerce."""
    descriptor = self._options.descriptors.get(name)
    if descriptor is not None and descriptor.prepares:
        value = descriptor.prepare_value(value)
    object.__setattr__(self, name, value)


def _first_init(self: Any, *args: Any, **kwargs: Any) -> None:
    """`__init__` until all types are defined."""
    type(self).make_final()
    type(self).__init__(self, *args, **kwargs)


_first_init.is_generated = True  # type: ignore[attr-defined]
