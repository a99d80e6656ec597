"""Types and codecs of topics, bound to functions."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from isthmus.streams.engine.codecs import Codec
from isthmus.streams.engine.serialization import DecodeError, Serializers
from isthmus.streams.errors import AppError
from isthmus.streams.models import Record

APP = Serializers()


class Order(Record, namespace="bound.Order"):
    id: str
    size: int = 1


class Packed(Record, serializer="msgpack", namespace="bound.Packed"):
    id: str


class Abstract(Record, abstract=True):
    pass


class Created(Abstract, namespace="bound.Created"):
    id: str


@dataclasses.dataclass
class Data:
    id: str
    at: datetime
    sizes: set[int] = dataclasses.field(default_factory=set)


class Struct(msgspec.Struct):
    id: str
    price: Decimal


class Typed(TypedDict):
    id: str


class Pydantic(pydantic.BaseModel):
    id: str
    price: Decimal


class Side(Enum):
    BUY = "buy"


VALUES: list[tuple[Any, Any]] = [
    (None, {"a": 1}),
    (Order, Order("a", 2)),
    (Packed, Packed("a")),
    (Abstract, Created("a")),
    (Record, Order("a", 2)),
    (Data, Data("a", datetime(2020, 1, 1), {1})),
    (Struct, Struct("a", Decimal("1.5"))),
    (Typed, {"id": "a"}),
    (Pydantic, Pydantic(id="a", price=Decimal("1.5"))),
    (int, 5),
    (float, 5.5),
    (str, "é"),
    (bytes, b"\xff"),
    (bool, True),
    (Decimal, Decimal("1.50")),
    (datetime, datetime(2020, 1, 1, tzinfo=UTC)),
    (date, date(2020, 1, 1)),
    (time, time(1, 2, 3)),
    (timedelta, timedelta(days=1, microseconds=5)),
    (UUID, UUID(int=5)),
    (Side, Side.BUY),
    (list[Order], [Order("a")]),
    (dict[str, Order], {"k": Order("a")}),
    (list[int], [1, 2]),
]


@pytest.mark.parametrize(("type_", "value"), VALUES)
@pytest.mark.parametrize("codec", [None, "json", "msgpack", "pickle", "yaml", "json|binary"])
def test_values_come_back_as_their_type(type_: Any, value: Any, codec: str | None):
    coder = APP.value_coder(type_, codec)
    data = coder.encode(value)
    assert isinstance(data, bytes)
    if type_ is bytes and codec is not None:
        return  # bytes are sent as they are, whatever the codec
    found = coder.decode(data)
    assert found == value and type(found) is type(value)
    assert coder.decode_column([data, None, data]) == [value, None, value]


@pytest.mark.parametrize(("type_", "value"), VALUES[1:])
def test_keys_come_back_as_their_type(type_: Any, value: Any):
    coder = APP.key_coder(type_)
    found = coder.decode(coder.encode(value))
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("type_", "value", "data"),
    [
        (None, b"k", b"k"),
        (None, "k", b"k"),
        (None, 5, b"5"),
        (None, {"a": 1}, b'{"a":1}'),
        (str, "k", b"k"),
        (int, 5, b"5"),
        (bool, True, b"true"),
        (UUID, UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
        (datetime, datetime(2020, 1, 1), b"2020-01-01T00:00:00"),
        (Order, Order("a"), b'{"id":"a","size":1,"__faust":{"ns":"bound.Order"}}'),
        (None, Order("a"), b'{"id":"a","size":1,"__faust":{"ns":"bound.Order"}}'),
    ],
)
def test_keys_are_text_unless_their_type_is_more(type_: Any, value: Any, data: bytes):
    assert APP.key_coder(type_).encode(value) == data


@pytest.mark.parametrize("type_", [None, int, str, Order, Data, Pydantic, bytes])
def test_null_is_none_on_both_sides(type_: Any):
    for coder in (APP.key_coder(type_), APP.value_coder(type_)):
        assert coder.encode(None) is None and coder.decode(None) is None


def test_values_without_a_type():
    read = APP.value_coder().decode
    assert read(Order("a").dumps()) == Order("a")
    assert read(b'{"id":"a","__faust":{"ns":"gone"}}') == {"id": "a", "__faust": {"ns": "gone"}}
    assert read(b'{"__faust":5}') == {"__faust": 5}
    assert APP.value_coder().encode(b'{"sent":"as it is"}') == b'{"sent":"as it is"}'


def test_a_record_is_written_by_its_own_codec_unless_the_topic_names_one():
    packed = APP.value_coder().encode(Packed("a"))
    assert packed == Packed("a").dumps() and packed[:1] != b"{"
    assert APP.value_coder(Packed).decode(packed) == Packed("a")
    assert APP.value_coder(None, "json").encode(Packed("a")) == Packed("a").dumps(serializer="json")


@pytest.mark.parametrize(
    ("type_", "data", "value"),
    [
        (int, b'"5"', 5),
        (int, b"5.0", 5),
        (float, b"5", 5.0),
        (float, b'"5.5"', 5.5),
        (Decimal, b"0.1", Decimal("0.1")),
        (Decimal, b'"0.10"', Decimal("0.10")),
    ],
)
def test_numbers_may_be_text(type_: Any, data: bytes, value: Any):
    found = APP.value_coder(type_).decode(data)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("type_", "codec", "data"),
    [
        (None, None, b"{"),
        (None, "json", b"\xff"),
        (int, None, b"5.5"),
        (int, None, b"null"),
        (int, "raw", b"x"),
        (str, None, b"5"),
        (str, "raw", b"\xff"),
        (bool, None, b"1"),
        (datetime, None, b'"x"'),
        (UUID, "raw", b"x"),
        (Order, None, b"{}"),
        (Order, None, b"[]"),
        (Order, "pickle", b"x"),
        (Order, "msgpack", b"\x81"),
        (Data, None, b'{"id":1}'),
        (Data, "msgpack", b"\xa1a"),
        (Pydantic, None, b'{"id":"a"}'),
        (Abstract, None, b"{}"),
        (list[Order], None, b"[5]"),
        (list[Order], None, b"5"),
    ],
)
def test_what_is_no_value_of_the_type_is_a_decode_error_with_its_place(type_: Any, codec: str | None, data: bytes):
    coder = APP.value_coder(type_, codec)
    with pytest.raises(DecodeError) as alone:
        coder.decode(data)
    assert str(alone.value) and alone.value.position is None
    with pytest.raises(DecodeError) as placed:
        coder.decode_column([None, data])
    assert placed.value.position == 1


def test_a_type_and_a_codec_that_do_not_fit_are_refused_when_they_are_bound():
    with pytest.raises(AppError, match="the codec 'raw' gives bytes or text, no Order: take another, such as 'json'"):
        APP.value_coder(Order, "raw")
    with pytest.raises(AppError, match=r"the codec RawCodec\(\) cannot write a Order record"):
        APP.value_coder(None, "raw").encode(Order("a"))
    with pytest.raises(AppError, match=r"type Serializers cannot be decoded: .*take a Record, dataclass"):
        APP.value_coder(Serializers)
    with pytest.raises(TypeError, match="take bytes or text, not a int"):
        APP.value_coder(None, "raw").encode(3)


def test_an_app_has_its_own_codecs():
    app = Serializers(key_serializer="json", value_serializer="msgpack")
    assert app.dumps_key(None, [1]) == b"[1]"
    assert app.loads_value(Order, app.dumps_value(Order, Order("a"))) == Order("a")
    assert app.loads_value(None, b"\x01") == app.loads_key(None, b"1") == 1


def test_an_error_that_says_nothing_of_the_data_is_no_decode_error():
    class Full(Codec):
        def _loads(self, data: bytes) -> Any:
            raise MemoryError

    coder = APP.value_coder(None, Full())
    for read in (coder.decode, lambda data: coder.decode_column([data])):
        with pytest.raises(MemoryError):
            read(b"x")
