"""What a table stores comes back equal and of the same type, or is refused."""

from __future__ import annotations

import dataclasses
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from fractions import Fraction
from typing import Any, NamedTuple, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.streams.engine.table_codec import TableCodec
from isthmus.streams.errors import ChangelogError
from isthmus.streams.models import Record


class Side(Enum):
    BUY = "buy"


class Level(IntEnum):
    LOW = 1


class Mode(Flag):
    A = 1
    B = 2


class Point(NamedTuple):
    x: int
    y: float


class Item(Record, namespace="stored.Item"):
    sku: Any
    price: Decimal | None = None


class Special(Item, namespace="stored.Special"):
    more: int = 0


class Order(Record, namespace="stored.Order", validation=True, coerce=True):
    """Its options say how JSON is read, which is nothing to a table."""

    id: str
    items: list[Item]
    side: Side = Side.BUY
    mode: Mode | None = None

    def __post_init__(self) -> None:
        self.seen = 1


class Loose(Record, namespace="stored.Loose"):
    a: Any
    b: Any = None


@dataclasses.dataclass
class Data:
    a: Any
    point: Point | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    a: Any
    b: int = 0


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any


class Struct(msgspec.Struct):
    a: Any
    item: Item | None = None


class Pydantic(pydantic.BaseModel):
    a: int
    at: datetime | None = None
    _private: int = 3


class Typed(TypedDict):
    item: Item


def restored(codec: TableCodec, value: Any) -> Any:
    return codec.decode_value(codec.encode_value(value))


def is_same(one: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, (Record, Data)):
        return is_same(vars(one), vars(other))
    return repr(one) == repr(other) if isinstance(one, (float, Decimal)) else one == other  # also of NaN


OBJECTS = [
    (Order, Order("a", [Item("x", Decimal("1.50")), Special("y", None, 2)])),
    (Order, Order("a", [], mode=Mode.B)),
    (Loose, Loose(1, "x")),
    (Loose, Loose(1.5, None)),
    (Loose, Loose(float("inf"), 2**70)),
    (Loose, Loose((1, b"\xff", {2: {3}}), {"tuple": [1]})),
    (Loose, Loose("\ud800", True)),
    (Data, Data([1], Point(1, 2.0))),
    (Slotted, Slotted(frozenset([1, "a"]))),
    (Frozen, Frozen((1, 2))),
    (Struct, Struct(UUID(int=1), Item("z"))),
    (Pydantic, Pydantic(a=1)),
    (Pydantic, Pydantic(a=1, at=datetime(2020, 1, 1))),
    (Typed, {"item": Item("a")}),
    (list[Item], [Item("a"), Special("b")]),
    (dict[str, Data], {"k": Data(1)}),
    (set, {1, "a", None}),
    (set[Point], {Point(1, 2.0)}),
    (datetime, datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=2)))),
    (date, date(2020, 1, 1)),
    (time, time(1, 2, 3, 4)),
    (timedelta, timedelta(days=-1, microseconds=1)),
    (Decimal, Decimal("1.500")),
    (Decimal, Decimal("NaN")),
    (UUID, UUID(int=2)),
    (Level, Level.LOW),
    (int, 5),
    (int, "not an int"),
    (str, "x"),
    (Order, None),
    (Order, {"id": 1}),
    (Order, [1, (2,)]),
]


@pytest.mark.parametrize(("type_", "value"), OBJECTS)
def test_values_of_typed_tables_come_back_as_they_were(type_: Any, value: Any):
    codec = TableCodec(value_type=type_)
    assert is_same(restored(codec, value), value)
    assert codec.encode_value(restored(codec, value)) == codec.encode_value(value)


def test_plain_values_are_plain_json():
    assert TableCodec(value_type=Loose).encode_value(Loose(1, "x")) == b'@{"a":1,"b":"x"}'
    assert TableCodec(value_type=Loose).encode_value(Loose(1, (2,))) == b'@!{"dict":[["a",1],["b",{"tuple":[2]}]]}'
    assert TableCodec(value_type=int).encode_value(5) == b"5"
    assert TableCodec().encode_value({"a": 1}) == b'{"a":1}'


def test_a_restored_object_has_not_been_made_again():
    order = Order("a", [])
    order.seen = 7
    assert restored(TableCodec(value_type=Order), order).seen == 7


@pytest.mark.parametrize(
    ("type_", "value", "says"),
    [
        (Order, Data(1), "a Data, which the table's type does not name"),
        (Loose, Loose(Fraction(1, 2)), "a Fraction"),
        (Loose, Loose(Counter("a")), "a Counter"),
        (Loose, Loose(Side.BUY), "a Side"),
        (Loose, Loose(object()), "a object"),
        (Mode, Mode.A | Mode.B, "Mode.A"),
        (datetime, datetime(2020, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")), "zone Europe/Berlin: take value.astimezone"),
        (None, {Side.BUY}, "a Side"),
    ],
)
def test_what_would_not_come_back_is_refused(type_: Any, value: Any, says: str):
    with pytest.raises(TypeError, match=says.replace("|", ".")):
        TableCodec(value_type=type_).encode_value(value)


def test_what_contains_itself_is_refused():
    value: list[Any] = []
    value.append(value)
    with pytest.raises(TypeError, match="nested too deeply"):
        TableCodec(value_type=Loose).encode_value(Loose(value))


# --- Classes that change ----------------------------------------------------------------------------


def test_a_field_with_a_default_that_came_later_has_it():
    class Old(Record, namespace="stored.Grown"):
        a: int

    @dataclasses.dataclass
    class OldData:
        a: int

    rows = TableCodec(value_type=Old).encode_value(Old(1)), TableCodec(value_type=OldData).encode_value(OldData(1))

    class New(Record, namespace="stored.Grown"):
        a: int
        tags: list[str] = []  # each record has its own

    @dataclasses.dataclass
    class NewData:
        a: int
        tags: list[str] = dataclasses.field(default_factory=list)

    class NewStruct(msgspec.Struct):
        a: int
        tags: list[str] = []

    class NewModel(pydantic.BaseModel):
        a: int

    first = TableCodec(value_type=New).decode_value(rows[0])
    assert is_same(first, New(1))
    first.tags.append("x")
    assert TableCodec(value_type=New).decode_value(rows[0]).tags == []
    assert TableCodec(value_type=NewData).decode_value(rows[1]) == NewData(1)
    assert TableCodec(value_type=NewStruct).decode_value(rows[1]) == NewStruct(1)


def test_what_a_class_no_longer_makes_is_a_changelog_error():
    class Needed(Record):
        a: int
        b: int

    row = TableCodec(value_type=Loose).encode_value(Loose(1))
    with pytest.raises(ChangelogError, match=r"no b for a .*Needed: give the field a default"):
        TableCodec(value_type=Needed).decode_value(b'@{"a":1}')
    with pytest.raises(ChangelogError, match="which is no class now"):
        TableCodec(value_type=int).decode_value(row)
    nested = TableCodec(value_type=dict[str, Data]).encode_value({"a": Data(1)})
    with pytest.raises(ChangelogError, match=r"has a .*Data, which the table's type does not name now"):
        TableCodec(value_type=dict[str, Item]).decode_value(nested)
    with pytest.raises(ChangelogError, match=r"Side\.SELL"):
        TableCodec(value_type=Side).decode_value(
            TableCodec(value_type=Side).encode_value(Side.BUY).replace(b"BUY", b"SELL")
        )
    with pytest.raises(ChangelogError, match="a value of type later"):
        TableCodec(value_type=Item).decode_value(b'!{"later":1}')


# --- Keys -------------------------------------------------------------------------------------------

EQUAL_KEYS = [
    (int, [1, True, 1.0, Decimal("1.0"), Level.LOW]),
    (Decimal, [Decimal("0.5"), 0.5, Decimal("0.50")]),
    (Decimal, [Decimal("0.1"), Decimal("0.100")]),
    (datetime, [datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))]),
    (tuple[int, str], [(1, "a"), (True, "a")]),
    (Point, [Point(1, 2.0), (1, 2), (Decimal(1), 2.0)]),
    (Item, [Item(1), Item(True), Item(1.0)]),
    (Item, [Item("a", Decimal("0.1")), Item("a", Decimal("0.10"))]),
    (Slotted, [Slotted(1), Slotted(1.0)]),
    (Frozen, [Frozen(1), Frozen(True)]),
    (frozenset, [frozenset([1, 2]), frozenset([2.0, True])]),
]


@pytest.mark.parametrize(("type_", "keys"), EQUAL_KEYS)
def test_equal_keys_are_one_row(type_: Any, keys: list[Any]):
    codec = TableCodec(key_type=type_ if type_ is not int else Level)
    rows = {codec.encode_key(codec.canonical_key(key)) for key in keys}
    assert len(rows) == 1
    [row] = rows
    for key in keys:
        assert codec.decode_key(row) == key and hash(codec.decode_key(row)) == hash(key)


@pytest.mark.parametrize(
    "key",
    [Side.BUY, date(2020, 1, 1), UUID(int=1), timedelta(1), (1, (Side.BUY, "a")), datetime(2020, 1, 1), None, b"\xff"],
)
def test_keys_of_typed_tables_come_back(key: Any):
    codec = TableCodec(key_type=Side)
    assert codec.canonical_key(key) == key
    assert is_same(codec.decode_key(codec.encode_key(codec.canonical_key(key))), key)


@pytest.mark.parametrize("key", [float("nan"), Decimal("NaN"), Decimal("1E+2000"), [1], Data(1), object(), {1}])
def test_keys_that_cannot_come_back_are_refused(key: Any):
    for type_ in (Item, Data):
        with pytest.raises(TypeError):
            TableCodec(key_type=type_).canonical_key(key)


def test_tables_without_types_keep_their_format():
    codec = TableCodec()
    assert codec.canonical_key((True, 1.0)) == (1, 1)
    assert codec.encode_key((1, "a", b"b")) == b'[1,"a",{"bytes":"b"}]'
    assert codec.decode_key(b'[1,"a",{"bytes":"b"}]') == (1, "a", b"b")
    assert codec.encode_value((1,)) == b'!{"tuple":[1]}'
    assert codec.decode_value(b'!{"tuple":[1]}') == (1,)


# --- Any values -------------------------------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.decimals()
    | st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(minutes=90))]))
    | st.uuids()
    | st.timedeltas()
    | st.sampled_from([Side.BUY, Level.LOW, Mode.A])
)
values = st.recursive(
    scalars,
    lambda each: (
        st.lists(each, max_size=3)
        | st.tuples(each, each)
        | st.dictionaries(st.text() | st.integers(), each, max_size=3)
        | st.builds(Item, each)
        | st.builds(Data, each)
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(values)
def test_all_values_come_back_as_they_were(value: Any):
    codec = TableCodec(value_type=dict[Data | Item, Side | Level | Mode])
    assert is_same(restored(codec, value), value)
    loose = TableCodec(value_type=tuple[Loose, Data, Item, Side, Level, Mode])
    assert is_same(restored(loose, Loose(value)), Loose(value))
    itself = TableCodec(value_type=Order)
    order = Order("a", [Item(value)]) if not isinstance(value, (Data, Enum)) else Order("a", [])
    try:
        assert is_same(restored(itself, order), order)
    except TypeError:
        assert "Data" in repr(value) or "Level" in repr(value)  # which Order does not name


keys = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.decimals(allow_nan=False, allow_infinity=False, places=3)
    | st.text()
    | st.binary()
    | st.sampled_from([Side.BUY, Level.LOW]),
    lambda each: st.tuples(each, each) | st.builds(Item, each) | st.builds(Slotted, each),
    max_leaves=4,
)


@settings(deadline=None)
@given(keys, keys)
def test_keys_are_one_row_exactly_if_they_are_equal(one: Any, other: Any):
    codec = TableCodec(key_type=tuple[Item, Slotted, Side, Level])
    rows = [codec.encode_key(codec.canonical_key(key)) for key in (one, other)]
    assert (rows[0] == rows[1]) == (one == other)
    assert codec.decode_key(rows[0]) == one
