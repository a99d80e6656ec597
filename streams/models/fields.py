"""Descriptors of fields: what `Order.amount` is, and what a class says of a field beyond its type.

A descriptor has no `__set__`: values stand in an instance's `__dict__`, where Python finds them without asking.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from math import isfinite
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ..errors import AppError
from .types import SHOWN, Conversion, Rules, conversion, to_datetime, to_decimal

if TYPE_CHECKING:
    from typing import Self

    _Assignable = Any  # type checkers let what derives from Any stand as the default of a field of any type
else:
    _Assignable = object

T = TypeVar("T")
MISSING: Any = object()
_NO_CONVERSION = Conversion()


class ValidationError(ValueError):
    """A value is not one of its field. reason: why; field: the descriptor."""

    def __init__(self, reason: str, *, field: FieldDescriptor[Any] | None = None) -> None:
        self.reason = reason
        self.field = field
        super().__init__(reason, field)

    def __str__(self) -> str:
        return self.reason if self.field is None else f"{self.reason} {self.field!r}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"


class MissingValueError(ValidationError, TypeError):
    """Data lacks a field. A TypeError as well, which it is in Faust."""


class FieldDescriptor(Generic[T], _Assignable):
    """Describes a field of a model. `Order.amount` is one; `Order.amount.getattr(order)` is the value, and so is
    `Order.amount(order)`: steps that take a function of the value take a field.

    A subclass may override `validate`, `prepare_value` and `to_python`; keyword arguments of its own are handed to
    `super().__init__`, so that a subclass of the model can copy them.

    required: whether a value must be given; True unless there is a default.
    default: the value where none, or None, is given.
    input_name, output_name: the name in JSON, read and written, where it differs from the attribute's.
    coerce: convert values to the field's type; by default as the class says.
    exclude: the field is read but never written.
    date_parser: from text to datetime; by default as the class says.
    """

    coerce: bool = False
    exclude: bool = False
    _coerced_by: Any = Any  # the type by which msgspec coerces as `prepare_value` does; None: it cannot

    def __init__(
        self,
        *,
        field: str | None = None,
        input_name: str | None = None,
        output_name: str | None = None,
        type: Any = None,
        model: Any = None,
        required: bool | None = None,
        default: Any = MISSING,
        parent: FieldDescriptor[Any] | None = None,
        coerce: bool | None = None,
        exclude: bool | None = None,
        date_parser: Callable[[Any], datetime] | None = None,
        **options: Any,
    ) -> None:
        self.field: str = field or ""
        self._input_name = input_name
        self._output_name = output_name
        self.type = type
        self.model = model
        self.required = default is MISSING if required is None else required
        self.default: Any = None if default is MISSING else default
        self.parent = parent
        self._coerce = coerce
        self._exclude = exclude
        if coerce is not None:
            self.coerce = coerce
        if exclude is not None:
            self.exclude = exclude
        self.date_parser = date_parser or to_datetime
        self._date_parser = date_parser
        self.options = options
        self.is_explicit = True  # made by whoever wrote the class, not by the model
        self.conversion = _NO_CONVERSION  # until a model has the field

    @property
    def input_name(self) -> str:
        return self._input_name or self.field

    @property
    def output_name(self) -> str:
        return self._output_name or self.input_name

    @property
    def ident(self) -> str:
        return f"{self.model.__name__ if self.model else '?'}.{self.field}"

    def as_dict(self) -> dict[str, Any]:
        """The arguments that make this descriptor again."""
        return {
            "field": self.field,
            "input_name": self._input_name,
            "output_name": self._output_name,
            "type": self.type,
            "model": self.model,
            "required": self.required,
            "default": self.default,
            "parent": self.parent,
            "coerce": self._coerce,
            "exclude": self._exclude,
            "date_parser": self._date_parser,
            **self.options,
        }

    def clone(self, **kwargs: Any) -> Self:
        made = type(self)(**{**self.as_dict(), **kwargs})
        made.conversion = self.conversion
        return made

    def attach(self, rules: Rules) -> None:
        """A model has the field: how its class says that values are converted. Raises AppError for a type that is not
        to be found."""
        self.conversion = conversion(self.type, rules)

    # --- Values -------------------------------------------------------------------------------------

    def to_python(self, value: Any) -> T | None:
        """The value for what JSON has. Raises TypeError or ValueError if there is none."""
        convert = self.conversion.convert
        if convert is not None and value is not None:
            value = convert(value)
        return self.prepare_value(value)

    def prepare_value(self, value: Any, *, coerce: bool | None = None) -> T | None:
        """The value to keep for one that is assigned; with `coerce`, converted to the field's type."""
        if value is not None and self.conversion.strict is not None and self.should_coerce(value, coerce):
            return self.conversion.strict(value)
        return value

    def should_coerce(self, value: Any, coerce: bool | None = None) -> bool:
        wanted = self.coerce if coerce is None else coerce
        return wanted and (self.required or value is not None)

    def validate_all(self, value: Any) -> Iterable[ValidationError]:
        """All that is wrong with a value: its type, then `validate`."""
        try:
            prepared = self.prepare_value(value, coerce=not self.coerce)
        except Exception as error:  # of a descriptor of the app's own, any
            yield self.validation_error(
                f"{self.field} is not correct type for {self.ident}, got {type(value)!r}: {error!r}"
            )
            return
        if prepared is not None or self.required:
            yield from self.validate(prepared)  # type: ignore[arg-type]

    def validate(self, value: T) -> Iterable[ValidationError]:
        """What is wrong with a value of the right type; nothing, unless a subclass says so."""
        return ()

    def validation_error(self, reason: str) -> ValidationError:
        return ValidationError(reason, field=self)

    # --- For the model ------------------------------------------------------------------------------

    @property
    def prepares(self) -> bool:
        """Whether an assigned value goes through `prepare_value`."""
        return self.coerce or type(self).prepare_value.__module__ != __name__

    def at_assignment(self) -> Callable[[Any], Any] | None:
        """What is done to a value that `__init__` gets; None: nothing."""
        convert = None if self.conversion.only_from_json else self.conversion.convert
        if convert is None and not self.prepares:
            return None

        def converted(value: Any) -> Any:
            return self.prepare_value(value if value is None or convert is None else convert(value))

        return lambda value: _checked(self, converted, value)

    def wire_type(self) -> Any:
        """The type by which msgspec makes of JSON what `to_python` makes; None: there is none. Null is apart."""
        if type(self).prepare_value.__module__ != __name__ or type(self).to_python.__module__ != __name__:
            return None
        if not self.conversion.is_plain:
            return self.conversion.wire if type(self) is FieldDescriptor or not self.coerce else None
        if self.coerce and self.conversion.strict is not None:
            return self.conversion.strict_wire
        return self._coerced_by if self._coerces_json() else Any

    def _coerces_json(self) -> bool:
        return self.coerce

    def sure_check(self) -> str:
        """An expression of `value`, datetime and Decimal that is true only of what `validate_all` finds nothing wrong
        with; of most such values, if it can be had."""
        kind = type(self)
        own = all(each.__module__ == __name__ for each in (kind.validate, kind.validate_all, kind.prepare_value))
        check = self._sure_check() if own else "False"
        return check if self.required else f"value is None or ({check})"

    def _sure_check(self) -> str:
        is_any = type(self) is FieldDescriptor and self.conversion.strict is None and self.conversion.is_plain
        return "True" if is_any else "False"

    # --- Access -------------------------------------------------------------------------------------

    def getattr(self, obj: Any) -> T:
        """The field's value in a record; `Order.account.id.getattr(order)` is that of the nested record."""
        return attrgetter(path(self))(obj)

    def __call__(self, obj: Any) -> T:
        return self.getattr(obj)

    def __set_name__(self, owner: Any, name: str) -> None:
        self.model = owner
        self.field = name

    @overload
    def __get__(self, instance: None, owner: Any) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: Any) -> T: ...
    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self
        raise AttributeError(f"{owner.__name__} record has no value for its field {self.field}")

    def __getattr__(self, name: str) -> Any:
        nested = self.__dict__.get("conversion", _NO_CONVERSION).model
        if nested is not None and name in nested._options.descriptors:
            return nested._options.descriptors[name].clone(parent=self)
        raise AttributeError(f"{type(self).__name__} has no attribute {name}")

    def __repr__(self) -> str:
        default = "" if self.required else f" = {self.default!r}"
        return f"<{type(self).__name__}: {self.ident}: {getattr(self.type, '__name__', self.type)}{default}>"

    def _reject_none(self, value: Any) -> None:
        if value is None:
            raise ValueError(f"{self.field} cannot be null")


def path(descriptor: FieldDescriptor[Any]) -> str:
    """From a record to the field: `account.id` for `Order.account.id`."""
    above = "" if descriptor.parent is None else f"{path(descriptor.parent)}."
    return f"{above}{descriptor.field}"


class BooleanField(FieldDescriptor[bool]):
    """True or False; with `coerce`, as Python takes a value for true."""

    _coerced_by = bool

    def _sure_check(self) -> str:
        return "type(value) is bool"

    def prepare_value(self, value: Any, *, coerce: bool | None = None) -> bool | None:
        return bool(value) if self.should_coerce(value, coerce) else value

    def validate(self, value: bool) -> Iterable[ValidationError]:
        if not isinstance(value, bool):
            yield self.validation_error(f"{self.field} must be True or False, of type bool")


class NumberField(FieldDescriptor[T]):
    """A number. min_value, max_value: the least and the greatest that is valid."""

    def __init__(self, *, min_value: Any = None, max_value: Any = None, **kwargs: Any) -> None:
        self.min_value = min_value
        self.max_value = max_value
        super().__init__(min_value=min_value, max_value=max_value, **kwargs)

    def validate(self, value: T) -> Iterable[ValidationError]:
        number: Any = value
        if self.max_value is not None and number > self.max_value:
            yield self.validation_error(f"{self.field} cannot be more than {self.max_value}")
        if self.min_value is not None and number < self.min_value:
            yield self.validation_error(f"{self.field} must be at least {self.min_value}")


class IntegerField(NumberField[int]):
    _coerced_by = int

    def _sure_check(self) -> str:
        return "type(value) is int" + _bounds("value", self.min_value, self.max_value)

    def prepare_value(self, value: Any, *, coerce: bool | None = None) -> int | None:
        if not self.should_coerce(value, coerce):
            return value
        self._reject_none(value)
        return int(value)


class FloatField(NumberField[float]):
    _coerced_by = float

    def _sure_check(self) -> str:
        return "type(value) is float" + _bounds("value", self.min_value, self.max_value)

    def prepare_value(self, value: Any, *, coerce: bool | None = None) -> float | None:
        if not self.should_coerce(value, coerce):
            return value
        self._reject_none(value)
        return float(value)


class DecimalField(NumberField[Decimal]):
    """max_digits, max_decimal_places: how many digits before and behind the point are valid."""

    _coerced_by = Decimal

    def _sure_check(self) -> str:
        is_bounded = self.max_digits is not None or self.max_decimal_places is not None
        bounds = _bounds("value", self.min_value, self.max_value)
        return "False" if is_bounded else f"type(value) is Decimal and value.is_finite(){bounds}"

    def __init__(self, *, max_digits: int | None = None, max_decimal_places: int | None = None, **kwargs: Any) -> None:
        self.max_digits = max_digits
        self.max_decimal_places = max_decimal_places
        super().__init__(max_digits=max_digits, max_decimal_places=max_decimal_places, **kwargs)

    def to_python(self, value: Any) -> Decimal | None:
        if self.conversion.is_plain:
            return self.prepare_value(value, coerce=self._coerces_json())
        return super().to_python(value)

    def _coerces_json(self) -> bool:
        return self.coerce or (self.model is not None and self.model._options.decimals)

    def prepare_value(self, value: Any, *, coerce: bool | None = None) -> Decimal | None:
        if not self.should_coerce(value, coerce) or not self.conversion.is_plain:
            return value
        self._reject_none(value)
        return to_decimal(value)

    def validate(self, value: Decimal) -> Iterable[ValidationError]:
        if not value.is_finite():
            yield self.validation_error(f"{self.field} must be a number, not {value!r}")
            return
        _, digits, exponent = value.as_tuple()
        places = max(0, -int(exponent))
        if self.max_decimal_places is not None and places > self.max_decimal_places:
            yield self.validation_error(f"{self.field} must have at most {self.max_decimal_places} decimal places")
        if self.max_digits is not None and len(digits) + int(exponent) > self.max_digits:
            yield self.validation_error(f"{self.field} must have at most {self.max_digits} digits before the point")
        yield from super().validate(value)


class CharField(FieldDescriptor[T]):
    """Text or bytes. min_length, max_length: in characters; trim_whitespace: a coerced value has none at its ends;
    allow_blank: whether an empty one is valid."""

    def __init__(
        self,
        *,
        max_length: int | None = None,
        min_length: int | None = None,
        trim_whitespace: bool = False,
        allow_blank: bool = False,
        **kwargs: Any,
    ) -> None:
        self.max_length = max_length
        self.min_length = min_length
        self.trim_whitespace = trim_whitespace
        self.allow_blank = allow_blank
        super().__init__(
            max_length=max_length,
            min_length=min_length,
            trim_whitespace=trim_whitespace,
            allow_blank=allow_blank,
            **kwargs,
        )

    def validate(self, value: T) -> Iterable[ValidationError]:
        length = len(value)  # type: ignore[arg-type]
        if not length and not self.allow_blank:
            yield self.validation_error(f"{self.field} cannot be left blank")
        if self.min_length is not None and length < self.min_length:
            yield self.validation_error(f"{self.field} must have at least {_characters(self.min_length)}")
        if self.max_length is not None and length > self.max_length:
            yield self.validation_error(f"{self.field} must be at most {_characters(self.max_length)}")


class StringField(CharField[str]):
    def _sure_check(self) -> str:
        if self.trim_whitespace:
            return "False"
        least = max(0 if self.allow_blank else 1, self.min_length or 0)
        return "type(value) is str" + _bounds("len(value)", least, self.max_length)

    @property
    def _coerced_by(self) -> Any:
        return None if self.trim_whitespace else str

    def prepare_value(self, value: Any, *, coerce: bool | None = None) -> str | None:
        if not self.should_coerce(value, coerce):
            return value
        self._reject_none(value)
        text = value if isinstance(value, str) else str(value)
        return text.strip() if self.trim_whitespace else text


class BytesField(CharField[bytes]):
    """Bytes, which are text in JSON. encoding, errors: as in str.encode."""

    _coerced_by = None

    def __init__(self, *, encoding: str | None = None, errors: str | None = None, **kwargs: Any) -> None:
        self.encoding = encoding or sys.getdefaultencoding()
        self.errors = errors or "strict"
        super().__init__(encoding=encoding, errors=errors, **kwargs)

    def prepare_value(self, value: Any, *, coerce: bool | None = None) -> bytes | None:
        if not self.should_coerce(value, coerce):
            return value
        if not isinstance(value, bytes):
            if not isinstance(value, str):
                raise TypeError(f"{self.field} takes bytes or text, not a {type(value).__name__}")
            value = value.encode(self.encoding, self.errors)
        return value.strip() if self.trim_whitespace else value


class DatetimeField(FieldDescriptor[datetime]):
    """A time; in JSON, text in ISO 8601 or what `date_parser` reads."""

    def _sure_check(self) -> str:
        return "type(value) is datetime"

    @property
    def _coerced_by(self) -> Any:
        return datetime if self.date_parser is to_datetime else None

    def to_python(self, value: Any) -> datetime | None:
        if self.conversion.is_plain:
            return self.prepare_value(value, coerce=self._coerces_json())
        return super().to_python(value)

    def _coerces_json(self) -> bool:
        return self.coerce or (self.model is not None and self.model._options.isodates)

    def prepare_value(self, value: Any, *, coerce: bool | None = None) -> datetime | None:
        if value is None or isinstance(value, datetime) or not self.conversion.is_plain:
            return value
        return self.date_parser(value) if self.should_coerce(value, coerce) else value


FIELD_OF_TYPE: Mapping[Any, type[FieldDescriptor[Any]]] = {
    bool: BooleanField,
    int: IntegerField,
    float: FloatField,
    Decimal: DecimalField,
    str: StringField,
    bytes: BytesField,
    datetime: DatetimeField,
}


def field_for_type(type_: Any) -> type[FieldDescriptor[Any]]:
    """The descriptor's class for a type, without Optional."""
    return FIELD_OF_TYPE.get(type_, FieldDescriptor)


def shown(value: Any) -> str:
    """A value in a message, of bounded length."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _bounds(value: str, least: Any, most: Any) -> str:
    """Only of bounds whose repr makes them again."""
    if any(bound is not None and (type(bound) not in (int, float) or not isfinite(bound)) for bound in (least, most)):
        return " and False"
    bounds = ((">=", least), ("<=", most))
    return "".join(f" and {value} {sign} {bound!r}" for sign, bound in bounds if bound is not None)


def _characters(count: int) -> str:
    return f"{count} character{'' if count == 1 else 's'}"


def load_value(descriptor: FieldDescriptor[Any], value: Any) -> Any:
    """The value of a field for what JSON has. Raises ValidationError."""
    return _checked(descriptor, descriptor.to_python, value)


def _checked(descriptor: FieldDescriptor[Any], convert: Callable[[Any], Any], value: Any) -> Any:
    try:
        return convert(value)
    except ValidationError as error:  # of a record within
        raise ValidationError(f"{descriptor.ident}: {error.reason}", field=error.field) from error
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        reason = f"{descriptor.ident} cannot be made of {shown(value)}: {error}"
        raise ValidationError(reason, field=descriptor) from error


def refuse_type(descriptor: FieldDescriptor[Any], error: Exception) -> AppError:
    return AppError(f"{descriptor.ident}: type {descriptor.type!r} cannot be used: {error}")
