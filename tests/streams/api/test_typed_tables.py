"""Tables with types and serializers: what rows are after a restart, in memory and on disk, with and without windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from isthmus.streams import App, AppError, ChangeRefused, Record, Schema, TestDriver
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.stores.opening import Stores
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.engine.untyped_rows import UntypedCodec


class Order(Record, namespace="typed_tables.Order", coerce=True):
    item: str
    tags: list[str]
    price: Decimal | None = None


class Item(Record, namespace="typed_tables.Item"):
    sku: str

    def __hash__(self) -> int:
        return hash(self.sku)


@dataclasses.dataclass(frozen=True)
class Place:
    country: str
    since: date


class Point(msgspec.Struct, frozen=True):
    x: int
    y: float


class Person(pydantic.BaseModel):
    name: str
    age: int = 0
    born: datetime | None = None


VALUES: dict[Any, list[Any]] = {
    Order: [Order(item="a", tags=["x"]), Order(item="b", tags=[], price=Decimal("1.50"))],
    Place: [Place("de", date(2020, 2, 29))],
    Point: [Point(1, 2.0), Point(-1, 0.5)],
    Person: [Person(name="ann"), Person(name="bob", age=7), Person(name="c", born=datetime(2020, 1, 2))],
    Decimal: [Decimal("1.20"), Decimal(0)],
    dict[str, Order]: [{"first": Order(item="a", tags=["x"])}],
}
KEYS: dict[Any, list[Any]] = {Place: [Place("de", date(2020, 2, 29))], UUID: [UUID(int=7)], Point: [Point(1, 2.5)]}
RAW: Any = {"key_serializer": "raw"}
PICKLED: Any = {"key_serializer": "pickle"}


def in_agent(app: App, scenario: Callable[[], None]) -> TestDriver:
    """What a restart finds after an event in which `scenario` ran."""

    @app.agent(app.topic("in"), tables=list(app.tables.values()))
    async def agent(stream: Any) -> None:
        async for _ in stream:
            scenario()

    with TestDriver(app) as driver:
        driver.send("in", value=b"0", timestamp_ms=25_000)
        driver.commit()
        driver.crash()
    return driver


@pytest.mark.parametrize("value_type", VALUES)
def test_values_come_back_equal_and_of_their_types(value_type: Any) -> None:
    app = App("app")
    table = app.Table("t", value_type=value_type)
    rows = dict(enumerate(VALUES[value_type]))
    found = in_agent(app, lambda: table.update(rows)).table("t")
    assert found == rows
    assert [type(each) for each in found.values()] == [type(each) for each in rows.values()]
    if value_type is Person:
        assert [each.model_fields_set for each in found.values()] == [each.model_fields_set for each in rows.values()]


@pytest.mark.parametrize("options", [{}, {"key_type": str}])
def test_records_need_no_type(options: Any) -> None:
    app = App("app")
    table, tags = app.Table("t", **options), app.SetTable("tags", **options)
    order = Order(item="a", tags=["x"], price=Decimal("1.50"))
    rows = {"plain": order, "in": [{"them": (order,)}], ("b", 1): 2}

    def write() -> None:
        table.update(rows)
        tags["k"].add(Item(sku="s"))

    found = in_agent(app, write)
    assert found.table("t") == rows
    assert found.table("tags") == {"k": [Item(sku="s")]}


@pytest.mark.parametrize("key_type", KEYS)
@pytest.mark.parametrize("serializer", [None, "pickle"])
def test_keys_come_back_with_and_without_windows(key_type: Any, serializer: str | None) -> None:
    app = App("app")
    rows = dict.fromkeys(KEYS[key_type], 1)
    plain = app.Table("plain", key_type=key_type, key_serializer=serializer)
    windowed = app.Table("windowed", default=int, key_type=key_type, key_serializer=serializer).tumbling(10)

    def write() -> None:
        plain.update(rows)
        for key in rows:
            windowed[key] += 1

    found = in_agent(app, write)
    assert found.table("plain") == rows
    assert found.table("windowed") == {(key, 20_000): 1 for key in rows}
    assert {type(key) for key, _ in found.table("windowed")} == set(map(type, rows))


@pytest.mark.parametrize("serializer", [None, "pickle"])
def test_sets_have_members_of_the_type(serializer: str | None) -> None:
    app = App("app")
    visits = app.SetTable("visits", key_type=str, value_type=Place, value_serializer=serializer)
    place = Place("de", date(2020, 2, 29))
    held: list[Any] = []

    def write() -> None:
        visits["a"].update([place, Place("fr", date(2020, 1, 1))])
        visits["a"].discard(Place("fr", date(2020, 1, 1)))
        held.extend([visits.get("a"), dict(visits.items()), visits.copy(), visits.get("b")])

    found = in_agent(app, write).table("visits")
    assert held == [{place}, {"a": {place}}, {"a": {place}}, None]
    assert found == {"a": [place]}


def test_rows_on_disk_are_of_their_types_and_changes_in_place_are_lost(tmp_path: Path) -> None:
    spec = App("app").Table("t", key_type=UUID, value_type=Order, store="rocksdb://").spec
    stores = Stores("app", tmp_path, lambda: 0)
    store = stores.open(spec, 0, "changelog-0")
    key, order = UUID(int=1), Order(item="a", tags=["x"])
    store.set(key, order)
    order.tags.append("lost")
    store.take_changes()
    store.confirm(1, b"marker")
    store.close()
    again = stores.open(spec, 0, "changelog-0")
    assert dict(again.rows.items()) == {key: Order(item="a", tags=["x"])}
    assert again.get(key) is not again.get(key)
    again.close()


def test_a_serializer_writes_rows_and_the_type_reads_them() -> None:
    app = App("app")
    schema = Schema(key_type=str, value_type=Order, key_serializer="raw", value_serializer="msgpack")
    table = app.Table("t", schema=schema)
    order = Order(item="a", tags=["x"], price=Decimal("1.50"))
    found = in_agent(app, lambda: table.update(a=order))
    assert next(key for key, _ in found.changelogs["t"]) == b"a"
    assert msgspec.msgpack.decode(found.changelogs["t"][0].value or b"")["item"] == "a"
    assert found.table("t") == {"a": order}


@pytest.mark.parametrize("kind", ["memory://", "rocksdb://"])
@pytest.mark.parametrize(
    ("options", "key", "value", "why"),
    [
        ({"value_type": Order}, "k", Point(1, 2.0), "Point"),
        ({"key_type": Place}, Point(1, 2.0), 1, "Point"),
        ({"value_serializer": "raw"}, "k", 1.5, "serializer refuses"),
        ({"value_serializer": "raw"}, "k", None, "would delete the row"),
        ({"value_serializer": "pickle"}, "k", b"as they are", "bytes"),
        (RAW, None, 1, "would delete the row"),
        (RAW | {"key_type": int}, "seven", 1, "cannot read again"),
        ({"key_serializer": "msgpack"}, ("a", 1), 1, "reads as no key"),
    ],
)
def test_what_cannot_come_back_is_refused_as_it_is_set(
    options: Any, key: Any, value: Any, why: str, kind: str, tmp_path: Path
) -> None:
    spec = App("app", store=kind).Table("t", **options).spec
    store = Stores("app", tmp_path, lambda: 0).open(spec, 0, "changelog-0")
    with pytest.raises(AppError, match=f"table t: .*{why}"):
        store.set(key, value)
    assert (store.take_changes(), dict(store.rows)) == ([], {})
    assert key not in store.rows
    with pytest.raises(KeyError):
        store.get(key)


def test_a_row_of_another_class_says_so_instead_of_coming_back_wrong() -> None:
    written = MemoryStore(App("app").Table("t", value_type=Order).spec)
    written.set("k", Order(item="a", tags=[]))
    read = MemoryStore(App("app").Table("t", value_type=int).spec)
    read.restore(written.take_changes(), 1)  # it may be written again, as another class
    with pytest.raises(ChangeRefused, match=r'table t: the row of key "k" is not .*no class now.*version=2'):
        list(read.settle())


def test_rows_can_be_read_without_the_app() -> None:
    changes: list[Any] = []
    for options, key, value in (
        ({"value_type": Order}, "order", Order(item="a", tags=["x"], price=Decimal("1.50"))),
        ({"value_type": Person}, "person", Person(name="ann")),
        ({"value_type": set[Point]}, "set", {Point(1, 2.0)}),
        ({"key_type": Point}, Point(1, 2.0), 1),
        ({"value_serializer": "pickle"}, "pickled", {"a": 1}),
    ):
        store = MemoryStore(App("app").Table("t", **options).spec)  # type: ignore[arg-type]
        store.set(key, value)
        changes += store.take_changes()
    read = MemoryStore(TableSpec("t", codec=UntypedCodec()))
    read.restore(changes, 1)
    list(read.settle())
    rows = dict(read.rows)
    assert isinstance(rows.pop("pickled"), bytes)
    assert rows == {
        "order": {"item": "a", "tags": ["x"], "price": Decimal("1.50")},
        "person": {"name": "ann", "age": 0, "born": None},
        "set": [{"x": 1, "y": 2.0}],
        (("x", 1), ("y", 2.0)): 1,
    }


def test_the_app_has_its_tables_by_name() -> None:
    app = App("app")
    plain, windowed = app.Table("plain"), app.Table("windowed").tumbling(10)
    assert app.tables == {"plain": plain, "windowed": windowed}
    assert app.tables["windowed"].changelog_topic_name == "app-windowed-changelog"


@pytest.mark.parametrize("store", ["memory", "rocksdb://"])
def test_stores_have_faust_s_names_and_others_are_refused(store: str) -> None:
    assert App("app").Table("t", store=store).spec.store in ("memory", "disk")
    with pytest.raises(AppError, match="store 'redis://' is not known"):
        App("app").Table("t", store="redis://")


@pytest.mark.parametrize("store", ["memory://", "rocksdb://"])
@pytest.mark.parametrize(
    ("options", "key", "kept"),
    [
        ({}, True, 1),
        ({}, None, None),
        ({}, ("a", 1.0), ("a", 1)),
        (RAW, "k", b"k"),
        (RAW, b"k", b"k"),
        (RAW | {"key_type": str}, "k", "k"),
        (RAW | {"key_type": int}, "7", 7),
        (PICKLED, 1.0, 1),
        (PICKLED, ("a", True), ("a", 1)),
        (PICKLED, Item(sku="s"), Item(sku="s")),
        (PICKLED | {"key_type": Place}, Place("de", date(2020, 2, 29)), Place("de", date(2020, 2, 29))),
    ],
)
def test_a_key_finds_its_row_and_comes_back_the_same_before_and_after_a_restart(
    store: str, options: Any, key: Any, kept: Any, tmp_path: Path
) -> None:
    app = App("app", datadir=tmp_path, store=store)
    table = app.Table("plain", **options)
    tables = [table, app.GlobalTable("global", **options)]
    sets, windows = app.SetTable("sets", **options), app.Table("windows", default=int, **options).tumbling(10, 60)
    looked: list[Any] = []

    def write() -> None:
        for each in tables:
            each[key] = 1
        sets[key].add("member")
        windows[key] += 1

    def look() -> None:
        for each in (*tables, sets):
            keys = each.keys()
            looked.append([key in each, each.get(key) is not None, key in keys, list(keys), len(each)])
        looked.append([key in windows, windows[key].value(), list(windows), list(windows.keys())])

    def remove() -> None:
        assert [each.pop(key) for each in (*tables, sets)] == [1, 1, {"member"}]
        del windows[key]
        write()
        for each in (*tables, sets, windows):
            del each[key]

    @app.agent(app.topic("in", value_type=str), tables=[table, sets, windows])
    async def agent(stream: Any) -> None:
        async for what in stream:
            {"write": write, "look": look, "remove": remove}[what]()

    with TestDriver(app) as driver:
        driver.send("in", value="write", timestamp_ms=1000)
        for step in (lambda: None, driver.commit, driver.restart, driver.crash):
            step()
            driver.send("in", value="look", timestamp_ms=1000)
            assert repr(looked[-4:]) == repr([[True, True, True, [kept], 1]] * 3 + [[True, 1, [kept], [kept]]])
        driver.send("in", value="remove", timestamp_ms=1000)
        driver.restart()
        driver.send("in", value="look", timestamp_ms=1000)
        assert looked[-4:] == [[False, False, False, [], 0]] * 3 + [[False, 0, [], []]]
