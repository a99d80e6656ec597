"""What is restored is what was live: values, keys and rows; and tables do what a dict does, or say why not."""

import asyncio
import copy
import datetime
import decimal
import enum
import math
import uuid
from collections import Counter, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from isthmus.streams import App
from isthmus.streams.driver import TestDriver
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.errors import AppError

SPEC = TableSpec("t", default=int)


def restored(rows: dict[bytes, bytes]) -> MemoryStore:
    """The rows that a changelog with these gives back."""
    store = MemoryStore(SPEC)
    store.restore(rows.items(), 0)
    return store


def written(key: Any, value: Any) -> dict[bytes, bytes]:
    store = MemoryStore(SPEC)
    store.set(key, value)
    return {data: row for data, row in store.take_changes() if row is not None}


def in_agent(scenario: Any, timestamp_ms: int = 25_000) -> TestDriver:
    """What a restart finds after an event in which `scenario(table)` ran."""
    app = App("app")
    table = app.Table("t", default=int)

    @app.agent(app.topic("in"))
    async def agent(stream: Any) -> None:
        async for _ in stream:
            scenario(table)

    async def run() -> TestDriver:
        driver = TestDriver(app)
        driver.send("in", value=b"0", timestamp_ms=timestamp_ms)
        driver.commit()
        driver.crash()
        driver.close()
        return driver

    return asyncio.run(run())


# --- Values -----------------------------------------------------------------------------------------

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
)
HASHABLE = st.recursive(SCALARS, lambda each: st.lists(each, max_size=3).map(tuple), max_leaves=4)
VALUES = st.recursive(
    SCALARS,
    lambda each: (
        st.lists(each, max_size=4)
        | st.lists(each, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=4) | HASHABLE, each, max_size=4)
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    """Equal, and of equal types all the way down; NaN is NaN, and 0.0 is not -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return repr(one) == repr(other)
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@given(value=VALUES)
@example(value=float("-inf"))
@example(value=[-0.0, math.nan, 2**64, -(2**63) - 1, 10**5000, "\ud800", "\0\u2028", b"\xff"])
@example(value={"tuple": [1], "int": "0x1", "!": {1: {True: ()}}})
@example(value={1: 2, "1": 3, (1, 2.0): None})
@settings(max_examples=300, deadline=None)
def test_a_value_comes_back_equal_and_of_equal_type(value):
    assert same(restored(written("k", value)).rows, {"k": value})


def test_values_of_json_are_written_as_json():
    assert written("k", {"a": [1, 2.0, None, "é"]}) == {b'"k"': b'{"a":[1,2.0,null,"\xc3\xa9"]}'}
    assert restored({b'"k"': b'{"bytes":"a","tuple":[1]}'}).rows == {"k": {"bytes": "a", "tuple": [1]}}


@dataclass
class Visit:
    page: str


class Colour(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


Point = namedtuple("Point", "x y")
ITSELF: list[Any] = []
ITSELF.append(ITSELF)
DEEP: Any = ()
for _ in range(300):
    DEEP = (DEEP,)

REFUSED = [
    datetime.datetime(2024, 1, 2), datetime.date(2024, 1, 2), Visit("x"), uuid.UUID(int=5), Colour.RED, Word.RED,
    Number.ONE, decimal.Decimal("1.5"), {1}, Counter("a"), Point(1, 2), bytearray(b"a"), 1j, object(),
]  # fmt: skip


@pytest.mark.parametrize("value", [*REFUSED, ITSELF, [DEEP]], ids=lambda value: type(value).__name__)
def test_a_value_that_would_not_come_back_is_refused_where_it_is_set(value):
    store = MemoryStore(SPEC)
    store.set("k", 1)
    for nested in (value, [value], {"a": (value,)}):
        named = "something nested too deeply" if isinstance(value, list) else type(value).__name__
        with pytest.raises(AppError, match=f"table t: the value of key 'k' cannot be stored: it is or has .*{named}"):
            store.set("k", nested)
        assert store.rows == {"k": 1}


def test_a_raw_topic_takes_no_numbers():
    with pytest.raises(TypeError, match="take bytes or text, not a int"):
        App("x").topic("out", value_serializer="raw").encode_value(3)  # bytes(3) would be three zeros


# --- Keys -------------------------------------------------------------------------------------------


@given(key=HASHABLE)
@example(key=(1.0, True, (-0.0, 2**70)))
@example(key=float("inf"))
@settings(max_examples=300, deadline=None)
def test_a_key_comes_back_as_it_is_in_the_table(key):
    store = MemoryStore(SPEC)
    try:
        store.set(key, 1)
    except AppError:
        assert "nan" in repr(key)
        return
    assert store.rows == {key: 1}
    assert same(restored(written(key, 1)).rows, store.rows)


@given(one=HASHABLE, other=HASHABLE)
@example(one=1, other=1.0)
@example(one=True, other=1)
@example(one=("a", 0), other=("a", -0.0))
@settings(max_examples=300, deadline=None)
def test_two_keys_are_one_changelog_row_where_they_are_one_live_row(one, other):
    if "nan" in repr((one, other)):
        return
    store = MemoryStore(SPEC)
    changelog_keys = set()
    for key in (one, other):
        store.set(key, 1)
        changelog_keys |= {data for data, _ in store.take_changes()}  # a checkpoint after each
    assert len(changelog_keys) == len({one, other}) == len(store.rows)


@pytest.mark.parametrize("key", [math.nan, ("a", math.nan), *REFUSED, DEEP], ids=lambda key: type(key).__name__)
def test_a_key_that_would_not_come_back_is_refused_where_it_is_set(key):
    store = MemoryStore(SPEC)
    named = type(key).__name__
    if isinstance(key, tuple) and not isinstance(key, Point):
        named = "NaN" if key[0] == "a" else "nested too deeply"
    elif key != key:
        named = "NaN"
    with pytest.raises(AppError, match=f"table t: key .* cannot be stored: it is or has .*{named}"):
        store.set(key, 1)
    with pytest.raises(AppError, match=f"table t: key .* cannot be stored: it is or has .*{named}"):
        store.set((key, 0), 1)  # as of a window
    assert not store.rows and not store.take_changes()


# --- What a table does ------------------------------------------------------------------------------


def test_a_table_does_what_a_dict_does():
    def scenario(table: Any) -> None:
        like = {"a": 1, "b": 2}
        table.update(like)
        assert table == like and table != {} and bool(table) and len(table) == 2
        assert (list(table), list(reversed(table))) == (["a", "b"], ["b", "a"])
        assert (table | {"c": 3}, {"a": 0, "c": 3} | table) == ({**like, "c": 3}, {"a": 1, "c": 3, "b": 2})
        assert type(table.copy()) is type(copy.copy(table)) is dict and table.copy() == like
        assert table["no"] == 0 and "no" not in table  # a default is no row
        assert not {("no", 0)} & table.items() and not {"no"} & table.keys() and 0 not in table.values()
        assert table.get("no") is None and table.pop("no", 7) == 7
        with pytest.raises(KeyError):
            table.pop("no")
        assert (table.setdefault("c", 5), table.setdefault("c", 6)) == (5, 5) and "c" in table
        table |= {"d": 4}
        assert table.popitem() == ("d", 4)
        table.clear()
        assert not table and table == {}
        table.update(like, c=5)
        del table["a"]
        with pytest.raises(KeyError):
            del table["a"]
        assert repr(table) == "<Table t>"
        with pytest.raises(TypeError, match="unhashable type: 'Table'"):
            hash(table)
        assert dict(table) == {"b": 2, "c": 5}

    driver = in_agent(scenario)
    assert driver.table("t") == {"b": 2, "c": 5}


def test_an_app_that_is_final_knows_its_tables_without_looking_again() -> None:
    app = App("app")
    app.Table("first")
    assert app.all_tables() is not app.all_tables()
    app.finalize()
    assert app.all_tables() is app.all_tables()
    app.Table("second")
    assert list(app.all_tables()) == ["first", "second"]
    app.stream("orders").table("third")
    assert list(app.all_tables()) == ["first", "second", "third"]
