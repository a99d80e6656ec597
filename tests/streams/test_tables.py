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
from isthmus.streams.engine.changelog import Restored
from isthmus.streams.engine.tables import TableSpec, TableState
from isthmus.streams.engine.task import Task
from isthmus.streams.errors import AppError
from tests.running import in_loop, run_by

SPEC = TableSpec("t", default=int)


def restored(rows: dict[bytes, bytes]) -> TableState:
    """The table that a changelog with these rows gives back."""
    task = Task("app", 0, [SPEC], b"r" * 8)
    task.restore(Restored(rows=rows))
    return task.tables["t"]


def written(key: Any, value: Any) -> dict[bytes, bytes]:
    state = TableState(SPEC)
    state.set(key, value)
    return {data: row for data, row in state.take_changes() if row is not None}


def in_agent(scenario: Any, timestamp_ms: int = 25_000, **windows: float) -> TestDriver:
    """Runs `scenario(table)` within an event; windows: tumbling=seconds. Gives the driver, closed."""
    app = App("app")
    made: Any = app.Table("t", default=int)
    table = made.tumbling(windows["tumbling"]) if windows else made

    @app.agent(app.topic("in"))
    async def agent(stream: Any) -> None:
        async for _ in stream:
            scenario(table)

    async def run() -> TestDriver:
        driver = TestDriver(app)
        await driver.send("in", value=b"", timestamp_ms=timestamp_ms)
        driver.checkpoint()
        await driver.close()
        return driver

    return asyncio.run(run())


async def restarted(driver: TestDriver) -> TestDriver:
    return driver.restarted(b"n" * 8)


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
    assert written("k", {"a": [1, 2.0, None, "é"]}) == {b't\0"k"': b'{"a":[1,2.0,null,"\xc3\xa9"]}'}
    assert restored({b't\0"k"': b'{"bytes":"a","tuple":[1]}'}).rows == {"k": {"bytes": "a", "tuple": [1]}}


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
    state = TableState(SPEC)
    state.set("k", 1)
    for nested in (value, [value], {"a": (value,)}):
        named = "something nested too deeply" if isinstance(value, list) else type(value).__name__
        with pytest.raises(AppError, match=f"table t: the value of key 'k' cannot be stored: it is or has .*{named}"):
            state.set("k", nested)
        assert state.rows == {"k": 1}


def test_what_is_written_is_what_was_set():
    state = TableState(SPEC)
    value = [1]
    state.set("k", value)
    value.append(object())  # changed in place, and not set again
    assert dict(state.take_changes()) == {b't\0"k"': b"[1]"}


def test_a_raw_topic_takes_bytes_alone():
    with pytest.raises(TypeError, match="a raw topic takes bytes, not a int"):
        App("x").topic("out").codec.encode(3)  # bytes(3) would be three zeros


# --- Keys -------------------------------------------------------------------------------------------


@given(key=HASHABLE)
@example(key=(1.0, True, (-0.0, 2**70)))
@example(key=float("inf"))
@settings(max_examples=300, deadline=None)
def test_a_key_comes_back_as_it_is_in_the_table(key):
    state = TableState(SPEC)
    try:
        state.set(key, 1)
    except AppError:
        assert "nan" in repr(key)
        return
    assert state.rows == {key: 1}
    assert same(restored(written(key, 1)).rows, state.rows)


@given(one=HASHABLE, other=HASHABLE)
@example(one=1, other=1.0)
@example(one=True, other=1)
@example(one=("a", 0), other=("a", -0.0))
@settings(max_examples=300, deadline=None)
def test_two_keys_are_one_changelog_row_where_they_are_one_live_row(one, other):
    if "nan" in repr((one, other)):
        return
    state = TableState(SPEC)
    changelog_keys = set()
    for key in (one, other):
        state.set(key, 1)
        changelog_keys |= {data for data, _ in state.take_changes()}  # a checkpoint after each
    assert len(changelog_keys) == len({one, other}) == len(state.rows)


@pytest.mark.parametrize("key", [math.nan, ("a", math.nan), *REFUSED, DEEP], ids=lambda key: type(key).__name__)
def test_a_key_that_would_not_come_back_is_refused_where_it_is_set(key):
    state = TableState(SPEC)
    named = type(key).__name__
    if isinstance(key, tuple) and not isinstance(key, Point):
        named = "NaN" if key[0] == "a" else "nested too deeply"
    elif key != key:
        named = "NaN"
    with pytest.raises(AppError, match=f"table t: key .* cannot be stored: it is or has .*{named}"):
        state.set(key, 1)
    with pytest.raises(AppError, match=f"table t: key .* cannot be stored: it is or has .*{named}"):
        state.set_window(key, 0, 1)
    assert not state.rows and not state.dirty


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
    assert asyncio.run(restarted(driver)).table("t") == {"b": 2, "c": 5}


def test_a_windowed_table_is_about_the_window_of_the_event_in_hand():
    def scenario(views: Any) -> None:
        views["a"] += 1
        views["a"] += 1
        with pytest.raises(AppError):
            iter(views)  # else the next line would have no end
        assert "a" in views and "b" not in views
        views["b"] = views["a"]
        assert views["b"].current() == 2
        views["c"] = views["c"]
        assert "c" in views
        del views["c"]
        with pytest.raises(KeyError):
            del views["c"]
        kept = views["a"]
        kept += 1
        views["a"] = kept
        assert dict(views.items()) == views == {("a", 20_000): 3, ("b", 20_000): 2}
        assert repr(views) == "<WindowedTable t>"

    in_agent(scenario, tumbling=10)


def test_a_window_compares_as_its_value():
    def scenario(views: Any) -> None:
        views["a"] = 2
        window = views["a"]
        assert window == 2 and window != 1 and 2 in [window] and window == views["a"] != views["b"]
        assert 1 < window <= 2 and 3 > window >= 2 and window > views["b"]
        assert window and not views["b"]
        assert repr(window) == "<Window of 'a' in table t>"
        with pytest.raises(TypeError, match="unhashable type: 'Window'"):
            hash(window)

    in_agent(scenario, tumbling=10)


@pytest.mark.parametrize(
    "use",
    [
        iter, len, bool, reversed, lambda views: views | {}, lambda views: {} | views,
        lambda views: views.keys(), lambda views: views.values(), lambda views: views.get("a"),
        lambda views: views.pop("a"), lambda views: views.update(a=1), lambda views: views.clear(),
    ],
)  # fmt: skip
def test_what_a_windowed_table_cannot_do_it_says(use):
    def scenario(views: Any) -> None:
        with pytest.raises((AppError, AttributeError), match=r"table t has windows and .* items\(\) returns"):
            use(views)

    in_agent(scenario, tumbling=10)


def test_a_table_that_was_given_windows_has_no_other_rows():
    table = App("app").Table("t")
    views = table.tumbling(10)
    with pytest.raises(AppError, match=r"table t has windows: use what its tumbling\(\) returned"):
        table["a"] = 1
    with pytest.raises(AppError, match="table t is used outside of an agent"):
        views["a"] += 1


@run_by(in_loop)
async def test_a_window_needs_an_event() -> None:
    app = App("app")
    views = app.Table("t", default=int).tumbling(10)

    @app.agent(app.topic("in"))
    async def early(stream: Any) -> None:
        views["a"] += 1

    driver = TestDriver(app)
    with pytest.raises(AppError, match="table t is used before the agent has an event"):
        await driver.send("in", value=b"")
    await driver.close()
