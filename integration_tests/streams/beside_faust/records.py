# mypy: ignore-errors
"""What records do, case by case: run as `records.py faust` or `records.py isthmus`, it prints one JSON object.

An outcome is a repr, of what JSON says where the case gives bytes; of an error, whether it is a ValueError.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Set, Tuple  # noqa: UP035
from uuid import UUID

if not TYPE_CHECKING and sys.argv[1] == "faust":
    from faust import Record
    from faust.models.fields import IntegerField, StringField
    from faust.serializers.codecs import get_codec
    from faust.serializers.registry import Registry

    serializers = Registry(key_serializer="raw", value_serializer="json")
else:
    from isthmus.streams.engine.codecs import get_codec
    from isthmus.streams.engine.serialization import Serializers
    from isthmus.streams.models import IntegerField, Record, StringField

    serializers = Serializers()

# ruff: noqa: UP006, UP045  # as Faust's users write them


class Color(Enum):
    RED = "red"


class Item(Record, namespace="n.Item"):
    sku: str
    n: int = 1


class Order(Record, serializer="json", namespace="n.Order"):
    account_id: str
    amount: float
    item: Item
    items: List[Item]
    by: Dict[str, Item]
    pair: Tuple[str, Item]
    times: List[datetime]
    prices: Set[Decimal]
    note: Optional[str] = None
    maybe: Optional[Item] = None


class Iso(Record, namespace="n.Iso", isodates=True, decimals=True, include_metadata=False):
    at: datetime
    price: Decimal
    opt: Optional[datetime] = None


class Plain(Record, namespace="n.Plain"):
    at: datetime
    price: Decimal
    color: Color
    u: UUID
    numbers: Dict[int, int]
    any: Any


class Coerced(Record, namespace="n.Coerced", coerce=True):
    i: int
    f: float
    s: str
    b: bool
    at: datetime
    p: Decimal
    o: Optional[int]
    w: int = 5


class Valid(Record, namespace="n.Valid", validation=True):
    age: int = IntegerField(min_value=18, max_value=99)
    name: str = StringField(max_length=5, required=False, default="x")


class Checked(Record, namespace="n.Checked"):
    age: int = IntegerField(min_value=18)
    name: str = StringField(max_length=3)


class Excluding(Record, namespace="n.Excluding"):
    price: float
    user: str = StringField(required=True, exclude=True)
    renamed: str = StringField(required=False, default="d", input_name="in", output_name="out")


class Asset(Record, namespace="n.Asset", polymorphic_fields=True):
    url: str


class Image(Asset, namespace="n.Image"):
    w: int


class Article(Record, namespace="n.Article"):
    assets: List[Asset]


class Post(Record, namespace="n.Post"):
    a: int

    def __post_init__(self) -> None:
        self.b = self.a + 1


class Base(Record, abstract=True, namespace="n.Base"):
    id: str
    created: float = 1.0


class Sub(Base, namespace="n.Sub"):
    name: str


class Coercing(Record, namespace="n.Coercing", coercions={UUID: UUID}):
    u: UUID
    us: List[UUID]


OUTCOMES: dict[str, str] = {}
ITEM = Item("a")
AT = datetime(2020, 1, 1, tzinfo=UTC)
ORDER = Order("x", 1.5, ITEM, [ITEM], {"k": ITEM}, ("p", ITEM), [AT], {Decimal("1.5")}, None)
DATA = (
    b'{"account_id":1,"amount":"x","item":{"sku":"s","zz":1},"items":[{"sku":"s"},{"sku":"t","n":null}],'
    b'"by":{"k":{"sku":"s"}},"pair":["a",{"sku":"z"}],"times":["2020-01-02T03:04:05Z","2020-01-02"],'
    b'"prices":["1.50"],"note":null,"extra":1}'
)


def case(name: str, outcome: Callable[[], Any]) -> None:
    try:
        found = outcome()
    except Exception as error:
        OUTCOMES[name] = "ValueError" if isinstance(error, ValueError) else "another error"
    else:
        is_json = isinstance(found, bytes) and found[:1] in b'{["5'
        OUTCOMES[name] = f"{json.loads(found)} as bytes" if is_json else repr(found)


def values(record: Any) -> list[Any]:
    return [getattr(record, name) for name in type(record)._options.fields]


def assigned(record: Any, name: str, value: Any) -> Any:
    setattr(record, name, value)
    return getattr(record, name)


case("written", lambda: ORDER.dumps())
case("asdict", lambda: ORDER.asdict())
case("represented", lambda: ORDER.to_representation())
case("read", lambda: values(Order.loads(DATA)))
case("read again", lambda: Order.loads(ORDER.dumps()) == ORDER)
case("null for a record", lambda: Order.loads(DATA.replace(b'{"sku":"s","zz":1}', b"null", 1)).item)
case("a field is missing", lambda: Order.loads(b'{"account_id":1}'))
case("no object", lambda: Order.loads(b"[1]"))
case("no JSON", lambda: Order.loads(b"{"))
case("hash", lambda: hash(ITEM) == hash(Item("a", 1)))
case("compared", lambda: (Item("a") < Item("b"), Item("a", 2) >= Item("a"), Item("a") != Item("a"), ITEM == ("a", 1)))
case("repr", lambda: repr(ITEM))
case("None for a default", lambda: Item(sku="q", n=None).n)
case("an unknown argument", lambda: Item("a", zz=1))
case("too many arguments", lambda: Item("a", 1, 2))
case("no argument", lambda: Item())
case("derived", lambda: ITEM.derive(n=9))
case(
    "descriptors",
    lambda: (
        (Item.sku.field, Item.n.default, Item.n.required, Item.sku.required, type(Item.n).__name__, repr(Item.n)),
        (Item.sku.getattr(ITEM), Order.item.sku.getattr(ORDER), Order.note.required),
    ),
)
for text in (
    "2020-01-01T00:00:00",
    "2020-01-01T00:00:00Z",
    "2020-01-01T01:02:03.123456+02:00",
    "2020-01-01",
    "x",
    None,
):
    case(f"date {text}", lambda: values(Iso.from_data({"at": text, "price": "1", "opt": text})))  # noqa: B023
for number in ("1.5", "x", None, 5, "NaN"):
    case(f"decimal {number}", lambda: Iso.from_data({"at": "2020-01-01", "price": number}).price)  # noqa: B023
zone = timezone(timedelta(hours=2))
case(
    "dates written", lambda: Iso(AT, Decimal("1.50"), datetime(2020, 1, 1, 1, 2, 3, 456, zone)).dumps(serializer="json")
)
PLAIN = Plain(AT, Decimal("1"), Color.RED, UUID(int=1), {1: 2}, {"x": [1, (2, 3)], "d": date(2020, 1, 2)})
case("written by value", lambda: {**json.loads(PLAIN.dumps(serializer="json")), "any": None})
case("types not forced", lambda: values(Plain.loads(PLAIN.dumps(serializer="json"), serializer="json"))[:-1])
for value in ("5", 5, 5.5, True, None, "x", ""):
    for field in "ifsbpo":
        usual = {"i": 1, "f": 1.0, "s": "s", "b": True, "at": datetime(2020, 1, 1), "p": Decimal(1), "o": None}
        given: dict[str, Any] = {**usual, field: value}
        case(f"coerced {field} {value!r}", lambda: getattr(Coerced(**given), field))  # noqa: B023
        case(f"coerced of data {field} {value!r}", lambda: getattr(Coerced.from_data(given), field))  # noqa: B023
COERCED = Coerced(i=1, f=1.0, s="s", b=True, at="2020-01-01", p="1.5", o=None)
case("coerced dates", lambda: values(COERCED))
case("coerced at assignment", lambda: assigned(COERCED, "i", "7"))
case("valid", lambda: values(Valid(20, "abc")))
case("too low", lambda: Valid(10, "abc"))
case("too long", lambda: Valid(20, "abcdefgh"))
case("default of a descriptor", lambda: Valid(20).name)
case("read and not valid", lambda: Valid.loads(b'{"age":5}', serializer="json"))
case(
    "asked whether it is valid",
    lambda: (
        Checked(20, "abc").is_valid(),
        len(Checked("x", "abcd").validate()),
        len(Checked(1, "").validation_errors),
    ),
)
case("excluded", lambda: Excluding(1.0, "u").asdict())
case("excluded, written", lambda: Excluding(1.0, "u").dumps(serializer="json"))
case("excluded, read", lambda: values(Excluding.loads(b'{"price":1,"user":"k","in":"r"}', serializer="json")))
ARTICLE = Article([Asset("u"), Image("v", 5)]).dumps(serializer="json")
case("polymorphic", lambda: Article.loads(ARTICLE, serializer="json").assets)
case("after init", lambda: (Post(1).b, Post.loads(b'{"a":4}', serializer="json").b))
case("abstract", lambda: Base("a"))
case("inherited", lambda: (Sub(id="a", name="b"), Sub("i", "n"), Sub("i", "n", 3.0).created))
case(
    "coercions",
    lambda: values(
        Coercing.loads(
            b'{"u":"00000000-0000-0000-0000-000000000001","us":["00000000-0000-0000-0000-000000000001"]}',
            serializer="json",
        )
    ),
)
case("another by name", lambda: Order.loads(b'{"sku":"q","__faust":{"ns":"n.Item"}}'))

for type_, data in (
    (None, b'{"a":1}'),
    (None, ITEM.dumps(serializer="json")),
    (int, b"5"),
    (int, b'"5"'),
    (float, b"5"),
    (float, b'"5.5"'),
    (str, b'"a"'),
    (Decimal, b'"1.5"'),
    (Item, b'{"sku":"q"}'),
    (Item, b'{"sku":"q","__faust":{"ns":"gone"}}'),
    (Item, b'{"url":"q","w":1,"__faust":{"ns":"n.Image"}}'),
):
    named = getattr(type_, "__name__", None)
    case(f"value {named} {data!r}", lambda: serializers.loads_value(type_, data))  # noqa: B023
for type_, data in ((None, b"k"), (str, b"k"), (int, b"5"), (float, b"5"), (bytes, b"q"), (Decimal, b"1.5")):
    case(f"key {getattr(type_, '__name__', None)} {data!r}", lambda: serializers.loads_key(type_, data))  # noqa: B023
SOME = {"d": Decimal("1.5"), "u": UUID(int=3), "s": {1}, "e": Color.RED, "t": AT}
for type_, sent in ((None, {"a": 1}), (None, ITEM), (int, 5), (str, "a"), (Item, ITEM), (None, SOME)):
    case(f"sent {getattr(type_, '__name__', None)} {sent}", lambda: serializers.dumps_value(type_, sent))  # noqa: B023
case("bytes sent", lambda: list(serializers.dumps_value(None, b"raw")))
case("a text key sent", lambda: list(serializers.dumps_key(str, "k")))
for name in ("json", "pickle", "json|binary"):
    case(f"codec {name}", lambda: get_codec(name).loads(get_codec(name).dumps({"a": [1, "x"]})))  # noqa: B023
case("codec json|binary, written", lambda: list(get_codec("json|binary").dumps([1])))

print(json.dumps(OUTCOMES))
