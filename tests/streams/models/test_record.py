"""Records as Python objects and as JSON: what Faust's are, and where they differ on purpose."""

import pickle
import typing
from dataclasses import fields as dataclass_fields
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.streams.errors import AppError
from isthmus.streams.models import FloatField, Record, StringField, ValidationError, wire


class Item(Record, namespace="shop.Item"):
    sku: str
    count: int = 1


class Order(Record, serializer="json", namespace="shop.Order"):
    account_id: str
    amount: float
    note: str | None = None


class Basket(Record, namespace="shop.Basket", isodates=True, decimals=True):
    first: Item
    items: list[Item]
    by_name: dict[str, Item]
    pair: tuple[str, Item]
    tags: set[str]
    paid: frozenset[Decimal]
    at: datetime
    price: Decimal
    last: Item | None = None


class Node(Record):
    """Written before what it refers to is defined."""

    children: "list[Node]"
    leaf: "Leaf | None"
    size: int = 0


class Leaf(Record):
    name: str


class Color(Enum):
    RED = "red"


ITEM = Item("a", 2)
BASKET = Basket(
    ITEM,
    [ITEM, Item("b")],
    {"k": ITEM},
    ("x", ITEM),
    {"t", "s"},
    frozenset([Decimal("1.50")]),
    datetime(2020, 1, 2, 3, 4, 5, 6, UTC),
    Decimal("9.99"),
)


# --- Objects ----------------------------------------------------------------------------------------


def test_fields_are_given_by_position_or_name_and_none_stands_for_a_default():
    assert Item("a").count == Item("a", None).count == Item(sku="a", count=1).count == 1
    assert Order("a", 1.5).note is None
    with pytest.raises(TypeError, match="amount"):
        Order("a")
    with pytest.raises(TypeError, match="Order has no field price, size"):
        Order("a", 1.5, size=1, price=2)


def test_a_class_may_have_no_fields():
    class Empty(Record, namespace="shop.Empty"):
        pass

    assert Empty().dumps() == b'{"__faust":{"ns":"shop.Empty"}}'
    assert Empty.loads(Empty().dumps()) == wire.reader(Empty)(b"{}") == Empty()


def test_fields_may_have_any_name():
    class Odd(Record):
        self: int
        kwargs: int
        value: int = 1
        other: int = 2
        name: int = 3

    odd = Odd(self=1, kwargs=2)
    assert (odd.self, odd.kwargs, odd.value, odd.other, odd.name) == (1, 2, 1, 2, 3)
    assert Odd.loads(odd.dumps()) == odd < Odd(2, 0)


def test_a_default_that_can_be_changed_is_each_record_s_own():
    class Tagged(Record):
        tags: list[str] = []

    one, other = Tagged(), Tagged.loads(b"{}")
    one.tags.append("x")
    assert (one.tags, other.tags, Tagged().tags, wire.reader(Tagged)(b"{}").tags) == (["x"], [], [], [])


def test_a_field_without_a_default_cannot_follow_one_that_has_one():
    with pytest.raises(TypeError, match="Wrong: b without a default follows a"):

        class Wrong(Record):
            a: int = 1
            b: int


def test_records_compare_by_class_and_fields():
    assert Item("a") == Item("a", 1) != Item("a", 2)
    assert Item("a") != Order("a", 1.0)
    assert hash(Item("a")) == hash(Item("a", 1))
    assert sorted([Item("b"), Item("a", 2), Item("a")]) == [Item("a"), Item("a", 2), Item("b")]
    with pytest.raises(TypeError):
        Item("a") < ("a", 1)  # noqa: B015


def test_repr_names_the_values():
    assert repr(Order("a", 1.5)) == "<Order: account_id='a', amount=1.5, note=None>"


def test_derive_changes_some_fields():
    assert Order("a", 1.5, "n").derive(amount=2.0) == Order("a", 2.0, "n")
    assert Order("a", 1.5).derive(Order("b", 3.0), note="x") == Order("b", 3.0, "x")


def test_a_subclass_has_the_fields_and_options_of_its_base():
    class Base(Record, abstract=True, coerce=True, include_metadata=False):
        id: str
        kind = "unannotated"
        shared: ClassVar[int] = 3

    class Sub(Base):
        size: int

    class Fixed(Sub):
        size = 7

    assert list(Sub._options.fields) == ["id", "size"]
    assert Sub("x", "5").size == 5
    assert Sub("x", 5).dumps() == b'{"id":"x","size":5}'
    assert Fixed("x").size == 7
    with pytest.raises(NotImplementedError, match="Base is abstract"):
        Base("x")


def test_options_may_stand_in_an_inner_class():
    class Old(Record):
        at: datetime

        class Options:
            isodates = True
            namespace = "old.Old"
            include_metadata = False

    assert Old._options.namespace == "old.Old"
    assert Old.loads(b'{"at": "2020-01-01"}') == Old(datetime(2020, 1, 1))


def test_a_class_attribute_describes_its_field():
    assert (Order.account_id.field, Order.account_id.type, Order.account_id.required) == ("account_id", str, True)
    assert (Order.note.required, Item.count.default, Item.count.required) == (False, 1, False)
    assert isinstance(Order.amount, FloatField)
    assert repr(Item.count) == "<IntegerField: Item.count: int = 1>"
    assert Order.amount.getattr(Order("a", 2.5)) == 2.5
    assert Basket.first.sku.getattr(BASKET) == Basket.first.sku(BASKET) == "a"
    assert Item.sku.model is Item
    with pytest.raises(AttributeError, match="no attribute colour"):
        _ = Basket.first.colour


def test_a_missing_value_is_an_attribute_error():
    item = Item("a")
    del item.count
    with pytest.raises(AttributeError, match="Item record has no value for its field count"):
        _ = item.count


def test_post_init_runs_once_however_a_record_is_made():
    class Squared(Record):
        side: int

        def __post_init__(self) -> None:
            self.area = getattr(self, "area", 0) + self.side**2

    assert Squared(3).area == Squared.loads(b'{"side": 3}').area == wire.reader(Squared)(b'{"side": 3}').area == 9
    assert not hasattr(Squared, "__msgspec_cache__")


def test_an_init_of_its_own_is_called():
    class Own(Record):
        a: int

        def __init__(self, a: int, **kwargs: Any) -> None:
            self.a = a * 2

    class Calling(Record):
        a: int
        b: int = 7

        def __init__(self, a: int, **kwargs: Any) -> None:
            self._model_init(a + 1, **kwargs)

    assert Own(2).a == Own.loads(b'{"a": 2}').a == wire.reader(Own)(b'{"a": 2}').a == 4
    assert Calling(2) == Calling.loads(b'{"a": 2}') == wire.reader(Calling)(b'{"a": 2}')
    assert (Calling(2).a, Calling(2).b) == (3, 7)


def test_records_can_be_pickled():
    assert pickle.loads(pickle.dumps(BASKET)) == BASKET


def test_asdict_cannot_be_replaced_but_what_it_gives_can():
    class Less(Record):
        a: int
        b: int

        def _prepare_dict(self, payload: dict[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in payload.items() if value}

    assert Less(0, 1).asdict() == {"b": 1}
    assert Less(0, 1).dumps().startswith(b'{"b":1,"__faust"')
    with pytest.raises(AppError, match="cannot define asdict"):

        class Wrong(Record):
            a: int

            def asdict(self) -> dict[str, Any]:
                return {}


# --- JSON -------------------------------------------------------------------------------------------


def test_json_is_what_faust_writes():
    assert Order("a", 1.5).dumps() == (b'{"account_id":"a","amount":1.5,"note":null,"__faust":{"ns":"shop.Order"}}')
    item = b'{"sku":"a","count":2,"__faust":{"ns":"shop.Item"}}'
    assert BASKET.dumps() == (
        b'{"first":%s,"items":[%s,{"sku":"b","count":1,"__faust":{"ns":"shop.Item"}}],"by_name":{"k":%s},'
        b'"pair":["x",%s],"tags":["s","t"],"paid":["1.50"],"at":"2020-01-02T03:04:05.000006Z","price":"9.99",'
        b'"last":null,"__faust":{"ns":"shop.Basket"}}' % (item, item, item, item)
    )


def test_the_short_way_and_the_long_way_read_the_same():
    data = BASKET.dumps()
    read = wire.reader(Basket)
    assert read(data) == Basket.loads(data) == BASKET
    assert type(read(data).first) is Item and type(read(data).tags) is set and type(read(data).paid) is frozenset


def test_metadata_can_be_left_out():
    class Bare(Record, include_metadata=False):
        a: int

    assert Bare(1).dumps() == b'{"a":1}'
    assert Bare(1).to_representation() == {"a": 1}


def test_null_and_nothing_stand_for_a_default():
    for read in (Item.loads, wire.reader(Item)):
        assert read(b'{"sku":"a","count":null}') == read(b'{"sku":"a"}') == Item("a", 1)


def test_other_names_in_the_data_are_left_out():
    for read in (Item.loads, wire.reader(Item)):
        assert not hasattr(read(b'{"sku":"a","more":1}'), "more")


def test_types_are_not_forced_on_what_json_has():
    for read in (Item.loads, wire.reader(Item)):
        assert read(b'{"sku":5,"count":"x"}') == Item(5, "x")
        assert read(b'{"sku":null}').sku is None


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{", "no JSON: "),
        (b"[1]", "a Order record is made of a mapping, not of \\[1\\]"),
        (b'{"account_id":"a"}', "Order record without amount"),
        (b"\xff", "no JSON: "),
    ],
)
def test_what_is_no_record_is_a_value_error(data: bytes, says: str):
    for read in (Order.loads, wire.reader(Order)):
        with pytest.raises(ValueError, match=says):
            read(data)


def test_a_nested_value_that_is_no_record_names_its_field():
    class Holder(Record):
        item: Item

    with pytest.raises(ValidationError, match=r"Holder\.item: a Item record is made of a mapping, not of 5"):
        Holder.loads(b'{"item": 5}')
    with pytest.raises(ValidationError, match="Item record without sku"):
        wire.reader(Holder)(b'{"item": {}}')


def test_nested_data_is_made_records_in_python_too():
    basket = BASKET.derive(first={"sku": "z"}, items=[{"sku": "y"}])
    assert (basket.first, basket.items) == (Item("z"), [Item("y")])


def test_types_may_be_defined_after_the_class():
    node = Node([Node([], None)], Leaf("x"))
    assert Node.loads(node.dumps()) == wire.reader(Node)(node.dumps()) == node
    assert type(wire.reader(Node)(node.dumps()).leaf) is Leaf


def test_a_type_that_is_never_defined_is_named():
    class Lost(Record):
        a: "Nowhere"  # noqa: F821

    with pytest.raises(AppError, match=r"Lost\.a: type Nowhere cannot be used"):
        Lost(1)


def test_the_older_names_of_types():
    class Old(Record):
        one: typing.Optional[Item]  # noqa: UP045
        all: typing.List[Item]  # noqa: UP006
        by: typing.Dict[str, Item]  # noqa: UP006
        some: typing.Union[Item, Order]  # noqa: UP007

    old = Old([ITEM], {"a": ITEM}, Order("a", 1.0))  # what is optional comes last
    assert Old._options.optionalset == {"one"}
    assert Old.loads(old.dumps()) == wire.reader(Old)(old.dumps()) == old


def test_the_short_way_leaves_no_trace_on_a_class():
    class Traced(Record):
        item: Item
        at: datetime

        def __post_init__(self) -> None:
            pass

    before = (dict(vars(Traced)), dict(vars(Item)))
    wire.reader(Traced)(b'{"item":{"sku":"a"},"at":"x"}')
    after = (dict(vars(Traced)), dict(vars(Item)))
    for names in (*before, *after):
        names.pop("_reads", None)
    assert after == before


def test_bytes_are_text_in_json():
    class Blob(Record, coerce=True):
        data: bytes

    assert Blob(b"abc").dumps().startswith(b'{"data":"abc"')
    assert Blob.loads(Blob(b"abc").dumps()) == wire.reader(Blob)(Blob(b"abc").dumps()) == Blob(b"abc")
    with pytest.raises(TypeError):
        Blob(b"\xff").dumps()


def test_named_tuples_and_unions_of_records():
    class Point(NamedTuple):
        x: int
        item: Item

    class Mixed(Record):
        point: Point
        one: Item | Order
        any: str | list[int]

    mixed = Mixed(Point(1, ITEM), Order("a", 1.0), [1])
    for read in (Mixed.loads, wire.reader(Mixed)):
        assert read(mixed.dumps()) == mixed
        assert type(read(mixed.dumps()).one) is Order


def test_other_codecs_than_json():
    for codec in ("pickle", "msgpack", "yaml", "json|binary"):
        assert Basket.loads(BASKET.dumps(serializer=codec), serializer=codec) == BASKET


def test_a_record_is_a_dataclass_to_others():
    assert [each.name for each in dataclass_fields(Order)] == ["account_id", "amount", "note"]


# --- Coercion ---------------------------------------------------------------------------------------


class Strict(Record, coerce=True, namespace="shop.Strict"):
    whole: int
    part: float
    text: str
    flag: bool
    at: datetime
    price: Decimal
    color: Color
    id: UUID
    maybe: int | None
    size: int = 5


STRICT = Strict(1, 2.0, "t", True, datetime(2020, 1, 1), Decimal("1.5"), Color.RED, UUID(int=7), None)


def test_coerced_values_have_the_types_of_their_fields():
    assert Strict("1", "2", "t", 1, "2020-01-01", "1.5", "red", str(UUID(int=7)), None) == STRICT
    for read in (Strict.loads, wire.reader(Strict)):
        assert read(STRICT.dumps()) == STRICT
        assert [type(value) for value in vars(read(STRICT.dumps())).values()] == [
            type(value) for value in vars(STRICT).values()
        ]


def test_coercion_also_holds_for_assignment():
    record = STRICT.derive()
    record.whole = "7"
    assert record.whole == 7
    with pytest.raises(ValueError):
        record.whole = "x"


def test_text_that_a_producer_wrote_for_a_number_is_coerced():
    data = STRICT.dumps().replace(b'"whole":1', b'"whole":"1"').replace(b'"price":"1.5"', b'"price":1.5')
    assert wire.reader(Strict)(data) == STRICT


@pytest.mark.parametrize("field", ["whole", "part", "text", "price"])
def test_null_is_no_value_of_a_coerced_field(field: str):
    data = {**STRICT.to_representation(), field: None}
    with pytest.raises(ValidationError, match=f"Strict.{field} cannot be made of None"):
        Strict.from_data(data)


@pytest.mark.parametrize("at", ["'yesterday'", "12"])
def test_what_is_no_time_says_its_field_and_what_is_taken(at: str):
    data = STRICT.dumps().replace(b'"2020-01-01T00:00:00"', at.replace("'", '"').encode())
    for read in (Strict.loads, wire.reader(Strict)):
        with pytest.raises(ValueError, match=f"Strict.at cannot be made of {at}: .* text in ISO 8601, such as 2026-"):
            read(data)


def test_coercions_make_types_of_their_own_from_json():
    class Owned(Record, coercions={UUID: UUID}):
        id: UUID
        ids: list[UUID]

    data = b'{"id":"00000000-0000-0000-0000-000000000007","ids":["00000000-0000-0000-0000-000000000008"]}'
    for read in (Owned.loads, wire.reader(Owned)):
        assert read(data) == Owned(UUID(int=7), [UUID(int=8)])


def test_a_date_parser_of_the_class():
    class Dated(Record, coerce=True, date_parser=datetime.utcfromtimestamp):
        at: datetime
        all: list[datetime] = []

    for read in (Dated.loads, wire.reader(Dated)):
        assert read(b'{"at": 60}').at == datetime(1970, 1, 1, 0, 1)


def test_dates_stay_text_unless_the_class_says_otherwise():
    class Plain(Record):
        at: datetime
        all: list[datetime]

    for read in (Plain.loads, wire.reader(Plain)):
        assert read(b'{"at":"2020-01-01","all":["2020-01-01"]}') == Plain("2020-01-01", [datetime(2020, 1, 1)])


# --- Namespaces -------------------------------------------------------------------------------------


class Asset(Record, namespace="shop.Asset", polymorphic_fields=True):
    url: str


class Image(Asset, namespace="shop.Image"):
    width: int


def test_polymorphic_fields_are_loaded_as_what_the_data_names():
    class Article(Record):
        assets: list[Asset]

    article = Article([Asset("u"), Image("v", 5)])
    for read in (Article.loads, wire.reader(Article)):
        assert read(article.dumps()) == article
        assert [type(asset) for asset in read(article.dumps()).assets] == [Asset, Image]
    data = Image("v", 5).dumps()
    for form in (data, memoryview(data), data.decode()):
        assert wire.reader(Asset)(form) == Image("v", 5)


def test_a_class_with_polymorphic_fields_loads_subclasses_of_their_types():
    class Animal(Record):
        name: str

    class Dog(Animal):
        tricks: int

    class Zoo(Record, polymorphic_fields=True):
        animals: list[Animal]

    zoo = Zoo([Animal("a"), Dog("b", 2)])
    for read in (Zoo.loads, wire.reader(Zoo)):
        assert read(zoo.dumps()) == zoo
        assert read(b'{"animals":[{"name":"a","__faust":{"ns":"shop.Order"}}]}') == Zoo([Animal("a")])


def test_data_names_another_class_only_where_that_allows_it():
    assert type(Item.from_data(Order("a", 1.0).to_representation())) is Order
    read = wire.reader(Item)
    assert read(b'{"sku":"a","__faust":{"ns":"shop.Order"}}') == Item("a")
    assert read(b'{"sku":"a","__faust":{"ns":"gone.Away"}}') == Item("a")

    class Allowed(Record, allow_blessed_key=True, namespace="shop.Allowed"):
        n: int

    assert read(Allowed(1).dumps()) == Allowed(1)


def test_an_abstract_class_reads_what_the_data_names():
    class Event(Record, abstract=True):
        pass

    class Created(Event, namespace="shop.Created"):
        id: int

    assert Event.loads(Created(1).dumps()) == Created(1)
    with pytest.raises(ValidationError, match="no class is defined for a record of namespace 'gone'"):
        Event.loads(b'{"__faust":{"ns":"gone"}}')


def test_the_latest_class_of_a_namespace_counts():
    class First(Record, namespace="shop.Twice"):
        a: int

    class Second(Record, namespace="shop.Twice"):
        a: int

    assert type(Item.from_data({"a": 1, "__faust": {"ns": "shop.Twice"}})) is Second


# --- Any values -------------------------------------------------------------------------------------

text = st.text(st.characters(codec="utf-8"))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(text, each, max_size=3),
    max_leaves=5,
)
moments = st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=-3, minutes=-30))]))
decimals = st.decimals(allow_nan=False, allow_infinity=False, places=4)
items = st.builds(Item, text, st.integers(0, 9))
baskets = st.builds(
    Basket,
    items,
    st.lists(items, max_size=3),
    st.dictionaries(text, items, max_size=3),
    st.tuples(text, items),
    st.sets(text, max_size=3),
    st.frozensets(decimals, max_size=3),
    moments,
    decimals,
    st.none() | items,
)


@settings(deadline=None)
@given(baskets)
def test_records_come_back_from_their_json(basket: Basket):
    data = basket.dumps()
    assert Basket.loads(data) == wire.reader(Basket)(data) == basket
    assert wire.reader(Basket)(data).dumps() == data


@settings(deadline=None)
@given(json_values, json_values)
def test_any_json_in_any_field_is_read_alike_by_both_ways(first: Any, second: Any):
    class Loose(Record, namespace="shop.Loose"):
        a: int
        b: list[str] | None
        c: float = 1.5

    data = Loose(first, second, first).dumps()
    assert Loose.loads(data) == wire.reader(Loose)(data) == Loose(first, second, first)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*Basket._options.fields, "other"]), json_values))
def test_both_ways_refuse_the_same_data(data: dict[str, Any]):
    def read(how: Any) -> Any:
        try:
            return how()
        except ValueError:
            return "refused"

    written = msgspec.json.encode(data)
    assert read(lambda: Basket.loads(written)) == read(lambda: wire.reader(Basket)(written))


def test_string_fields_are_found_by_their_types():
    assert isinstance(Order.note, StringField)
