"""Descriptors: what validates, what a descriptor's arguments do, and descriptors of an app's own."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.streams.models import (
    BytesField,
    DatetimeField,
    DecimalField,
    FieldDescriptor,
    FloatField,
    IntegerField,
    Record,
    StringField,
    ValidationError,
    wire,
)


class Person(Record, validation=True):
    age: int = IntegerField(min_value=18, max_value=99)
    name: str = StringField(max_length=5, min_length=2)


class Loose(Record):
    age: int = IntegerField(min_value=0)
    name: str = StringField(max_length=3)


class Choice(FieldDescriptor[str]):
    def __init__(self, choices: list[str], **kwargs: Any) -> None:
        self.choices = choices
        super().__init__(choices=choices, **kwargs)

    def validate(self, value: str) -> Iterable[ValidationError]:
        if value not in self.choices:
            yield self.validation_error(f"{self.field} must be one of {', '.join(self.choices)}")


class Shout(StringField):
    def prepare_value(self, value: Any, *, coerce: bool | None = None) -> str | None:
        return None if value is None else str(value).upper()


@pytest.mark.parametrize(
    ("age", "name", "says"),
    [
        (17, "Anna", "age must be at least 18"),
        (100, "Anna", "age cannot be more than 99"),
        (20, "Annabel", "name must be at most 5 characters"),
        (20, "A", "name must have at least 2 characters"),
        (20, "", "name cannot be left blank"),
    ],
)
def test_a_validating_class_refuses_a_value_however_it_is_made(age: int, name: str, says: str):
    with pytest.raises(ValidationError, match=says) as refused:
        Person(age, name)
    assert refused.value.field is Person._options.descriptors[says.split()[0]]
    data = Loose(age, name).dumps()
    for read in (Person.loads, wire.reader(Person)):
        with pytest.raises(ValidationError, match=says):
            read(data.replace(Loose._options.namespace.encode(), Person._options.namespace.encode()))


def test_validation_implies_coercion_and_is_inherited():
    class Pupil(Person):
        grade: int

    assert Person("20", "Anna").age == 20
    with pytest.raises(ValidationError, match="at least 18"):
        Pupil(3, "Anna", 1)


def test_a_record_says_all_that_is_wrong_with_it():
    assert Loose(5, "abc").is_valid()
    wrong = Loose(-1, "abcd")
    assert not wrong.is_valid()
    assert [error.reason for error in wrong.validate()] == [
        "age must be at least 0",
        "name must be at most 3 characters",
    ]
    assert [error.reason for error in Loose("x", "a").validation_errors] == [
        "age is not correct type for Loose.age, got <class 'str'>: "
        "ValueError(\"invalid literal for int() with base 10: 'x'\")"
    ]
    wrong.age, wrong.name = 1, "ok"
    assert wrong.is_valid()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("12.345", "at most 2 decimal places"),
        ("123456.7", "at most 5 digits before the point"),
        ("1E+6", "at most 5 digits"),
        ("NaN", "must be a number"),
        ("12345.67", None),
        ("0.01", None),
    ],
)
def test_digits_of_decimals(value: str, says: str | None):
    class Priced(Record):
        price: Decimal = DecimalField(max_digits=5, max_decimal_places=2)

    reasons = [error.reason for error in Priced(Decimal(value)).validate()]
    assert (reasons == []) if says is None else (says in reasons[0])


def test_a_field_may_coerce_where_its_class_does_not():
    class Partly(Record):
        a: int = IntegerField(coerce=True)
        b: int
        c: datetime = DatetimeField(coerce=True)

    for read in (Partly.loads, wire.reader(Partly)):
        assert read(b'{"a":"1","b":"1","c":"2020-01-01"}') == Partly(1, "1", datetime(2020, 1, 1))


def test_a_field_may_not_coerce_where_its_class_does():
    class Mostly(Record, coerce=True):
        a: int
        b: int = IntegerField(coerce=False)

    for read in (Mostly.loads, wire.reader(Mostly)):
        assert read(b'{"a":"1","b":"1"}') == Mostly(1, "1")


def test_white_space_is_trimmed_of_coerced_values():
    class Trimmed(Record, coerce=True):
        text: str = StringField(trim_whitespace=True)
        data: bytes = BytesField(trim_whitespace=True, encoding="latin-1")

    for read in (Trimmed.loads, wire.reader(Trimmed)):
        assert read('{"text":" a ","data":" é "}'.encode()) == Trimmed("a", b"\xe9")


def test_excluded_and_renamed_fields():
    class Order(Record, include_metadata=False):
        price: float
        user: str = StringField(exclude=True)
        kind: str = StringField(input_name="type", default="?")
        size: int = IntegerField(input_name="in", output_name="out", default=1)

    order = Order(1.5, "u", "k", 2)
    assert order.dumps() == b'{"price":1.5,"type":"k","out":2}'
    assert order.asdict() == {"price": 1.5, "type": "k", "out": 2}
    for read in (Order.loads, wire.reader(Order)):
        assert read(b'{"price":1.5,"user":"u","type":"k","in":2}') == order
        assert read(b'{"price":1.5,"user":"u"}') == Order(1.5, "u")
    assert order.derive(price=2.0).user == "u"

    class Login(Record, include_metadata=False):
        name: str
        password: str = StringField(exclude=True)

    assert Login("n", "p").dumps() == b'{"name":"n"}'


def test_a_descriptor_s_default_makes_a_field_optional():
    class Defaulted(Record):
        a: float = FloatField(default=2.5)
        b: str = StringField(required=False)

    assert (Defaulted().a, Defaulted().b) == (2.5, None)


def test_descriptors_of_an_app_s_own():
    class Order(Record, validation=True):
        side: str = Choice(["SELL", "BUY"])
        note: str = Shout(default="none")

    class Sub(Order):
        more: int

    assert type(Sub.side) is Choice
    for read in (Order.loads, wire.reader(Order)):
        with pytest.raises(ValidationError, match="side must be one of SELL, BUY"):
            read(b'{"side":"LEFT"}')
        assert read(b'{"side":"BUY","note":"x"}').note == "X"
        assert read(b'{"side":"BUY"}').note == "NONE"
    order = Order("BUY")
    order.note = "quiet"
    assert order.note == "QUIET"


class Any5(Record):
    """Not validating, so that its records can be asked."""

    low: int = IntegerField(min_value=-1, max_value=2)
    part: float = FloatField(min_value=0.5)
    text: str = StringField(min_length=1, max_length=2)
    blank: str = StringField(allow_blank=True)
    flag: bool
    price: Decimal = DecimalField(max_digits=1)
    rate: Decimal = DecimalField(min_value=0)
    data: bytes = BytesField(max_length=1)
    at: datetime
    more: int | None = None
    endless: float = FloatField(max_value=float("inf"), default=0.0)


anything = (
    st.none() | st.booleans() | st.integers(-3, 4) | st.floats(-1, 2) | st.text(max_size=3) | st.just("1")
    | st.decimals(-11, 11) | st.just(Decimal("NaN")) | st.binary(max_size=2) | st.just(datetime(2020, 1, 1))
)  # fmt: skip
NAMES = list(Any5._options.fields)


@settings(deadline=None, max_examples=500)
@given(st.sampled_from(NAMES), anything)
def test_what_is_surely_valid_is_valid(name: str, value: Any):
    usual = Any5(0, 1.0, "a", "", True, Decimal(1), Decimal(1), b"a", datetime(2020, 1, 1))
    record = usual.derive(**{name: value})
    check = type(record)._options.descriptors[name].sure_check()
    surely = eval(check, {"value": getattr(record, name), "Decimal": Decimal, "datetime": datetime})
    assert not surely or not list(Any5._options.descriptors[name].validate_all(getattr(record, name)))


def test_most_valid_records_are_surely_valid():
    class Usual(Record):
        id: str
        size: int = IntegerField(min_value=0)
        rate: float | None = None
        flag: bool = True

    assert Usual("a", 1)._is_surely_valid() and Usual("a", 1, 1.5)._is_surely_valid()
    assert not Usual("a", -1)._is_surely_valid() and not Usual("a", "1")._is_surely_valid()


def test_a_validation_of_one_s_own_is_asked():
    class Own(Record):
        a: int

        def validate(self) -> list[ValidationError]:
            return [ValidationError("never")]

    with pytest.raises(ValidationError, match="never"):
        Own(1).validate_or_raise()
