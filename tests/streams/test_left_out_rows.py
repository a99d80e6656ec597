"""What a step refuses is left out, and no more. Of a row of a table: what it was before is taken out, and what it is
later counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from isthmus.client import TopicPartition
from isthmus.streams import App, RecordError, TestDriver, TestRecord

TO_A, REFUSED, TO_B = {"of": "a", "n": 1}, {"n": "many"}, {"of": "b", "n": 5}


def shop() -> App:
    return App("shop", key_serializer="str", value_serializer="json", on_error="skip")


def changed(driver: TestDriver, *values: Any) -> None:
    for value in values:
        driver.send("rows", key="k", value=value)


def test_a_row_without_a_group_is_in_none() -> None:
    app = shop()
    app.stream("rows").table("latest").group_by(lambda row: row["of"], name="of").count(name="counts")
    with TestDriver(app, partitions={"rows": 2}) as driver:
        changed(driver, TO_A, REFUSED)
        assert driver.table("counts") == {"a": 0} and len(driver.left_out) == 1
        changed(driver, TO_B)
        assert driver.table("counts") == {"a": 0, "b": 1} and len(driver.left_out) == 1
        changed(driver, REFUSED, None)
        assert driver.table("counts") == {"a": 0, "b": 0} and len(driver.left_out) == 2


def test_a_value_that_cannot_be_added_is_not_taken_out() -> None:
    app = shop()
    app.stream("rows").table("latest").group_by(lambda _: "all", name="all").sum(lambda row: row["n"], name="sums")
    with TestDriver(app) as driver:
        changed(driver, TO_A, REFUSED)
        assert driver.table("sums") == {"all": 0} and len(driver.left_out) == 1
        changed(driver, TO_B)
        assert driver.table("sums") == {"all": 5} and len(driver.left_out) == 1
        changed(driver, REFUSED, None)
        assert driver.table("sums") == {"all": 0} and len(driver.left_out) == 2


def test_a_row_that_refers_to_what_cannot_be_known_is_joined_with_nothing() -> None:
    app = shop()
    rows, others = app.stream("rows").table("latest"), app.stream("others").table("names")
    joined = rows.left_join(others, key=lambda row: row["of"], value=lambda row, name: [row["n"], name], name="joined")
    joined.stream().to("out")
    with TestDriver(app, partitions={"rows": 2, "others": 3}) as driver:
        for key in "ab":
            driver.send("others", key=key, value=key.upper())
        changed(driver, TO_A)
        driver.commit()
        changed(driver, REFUSED)
        driver.commit()
        driver.send("others", key="a", value="new")
        assert driver.table("joined") == {} and len(driver.left_out) == 1
        changed(driver, TO_B)
        driver.commit()
        assert driver.table("joined") == {"k": [5, "B"]} and len(driver.left_out) == 1
        assert [each.value for each in driver.read("out")] == [[1, "A"], None, [5, "B"]]


@pytest.mark.parametrize("step", ["tumbling", "sliding", "session", "count", "table", "history", "dedup", "suppress"])
def test_a_key_that_cannot_be_a_tables_is_left_out(step: str) -> None:
    app = App("shop", key_serializer="json", value_serializer="json", on_error="skip")
    source = app.stream("in")
    steps: dict[str, Callable[[], Any]] = {
        "tumbling": lambda: source.tumbling(60).count(name="n").current(),
        "sliding": lambda: source.sliding(60).count(name="n").current(),
        "session": lambda: source.session(60).count(name="n").current(),
        "count": lambda: source.group_by_key().count(name="n").stream(),
        "table": lambda: source.table("n").stream(),
        "history": lambda: source.table("n", history=60).stream(),
        "dedup": lambda: source.dedup(lambda value: value, within=60, name="n"),
        "suppress": lambda: source.table("n").suppress(1),
    }
    steps[step]().to("out")
    with TestDriver(app) as driver:
        driver.send("in", TestRecord({"a": 1}, {"a": 1}, 0), TestRecord(2, "b", 0))
        [left_out] = driver.left_out
        assert "cannot be a table's key: give the events another with group_by()" in str(left_out.problem)
        assert driver.positions == {TopicPartition("in", 0): 2}


@pytest.mark.parametrize("by", ["table", "foreign key"])
def test_a_join_whose_key_is_bytes_where_the_tables_is_text_is_told(by: str) -> None:
    app = App("shop", key_serializer="str", value_serializer="json")
    names, rows = app.stream("others").table("names"), app.stream("rows")
    left: Any = rows if by == "table" else rows.table("latest")
    left.left_join(names, key=lambda row: row["of"].encode(), value=lambda row, name: name, name="named")
    with TestDriver(app) as driver:
        driver.send("others", key="a", value="A")
        with pytest.raises(RecordError, match=r"named.* TypeError: key= gave b'a', and the table has 'a': return str"):
            driver.send("rows", key="k", value=TO_A)
            driver.commit()
