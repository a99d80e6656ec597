"""mypy and pyright know what topics, streams, tables and pipelines are of, with no plugin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from isthmus.streams import Stream, Table, Topic
from tests.streams.checkers import CHECKERS, Problems, check

RIGHT = """
from typing import Any, assert_type

from isthmus.streams import App, Record, Stream, Table, TestDriver, TestRecord, Topic
from isthmus.streams.api.agents import Agent
from isthmus.streams.api.pipeline import Late, Results, Source, TableView


class Order(Record):
    shop: str
    total: int


class Payment(Record):
    order: str


app = App("typed")
orders = app.topic("orders", key_type=str, value_type=Order, partitions=3)
payments = app.topic("payments", key_type=str, value_type=Payment)
assert_type(orders, Topic[str, Order])
assert_type(app.topic("any"), Topic[Any, Any])
assert_type(app.topic("values", value_type=Order), Topic[Any, Order])

totals: Table[str, int] = app.Table("totals", default=int)
assert_type(totals["x"], int)
assert_type(app.Table("lists", default=list), Table[Any, list[Any]])


@app.agent(orders)
async def count(stream: Stream[Order]) -> None:
    async for order in stream:
        assert_type(order, Order)
        totals[order.shop] += order.total


assert_type(count, Agent)
source = app.stream(orders)
assert_type(source, Source[str, Order])
assert_type(source.map(lambda order: order.total), Source[str, int])
assert_type(source.group_by(lambda order: order.total), Source[int, Order])
assert_type(source.tumbling(60).count().final(), Results[str, int])
assert_type(source.group_by_key().count(), TableView[str, int])
paid = app.stream(payments)
joined = source.join(paid, within=5, value=lambda order, payment: (order.total, payment.order))
assert_type(joined, Late[str, tuple[int, str]])
perhaps = source.left_join(paid, within=5, value=lambda order, payment: payment is None)
assert_type(perhaps, Late[str, bool])
with TestDriver(app, partitions={"orders": 3}) as driver:
    driver.send(orders, TestRecord(Order("x", 1), key="x"))
    assert_type(driver.read("out"), list[TestRecord])
"""

WRONG = {  # a line that a checker must not take, and what mypy and pyright say
    "totals['x'] = 'one'": (
        "Incompatible types in assignment",
        'cannot be assigned to parameter "value" of type "int"',
    ),
    "source.map(lambda order: order.colour)": ('has no attribute "colour"', 'Cannot access attribute "colour"'),
    "driver.send(3)": ("has incompatible type", "cannot be assigned to parameter"),
    "driver.advance('1')": ("has incompatible type", "cannot be assigned to parameter"),
}


@pytest.mark.parametrize("by", CHECKERS)
def test_type_checkers_follow_apps(tmp_path: Path, by: Callable[[Path], Problems]) -> None:
    check(by, tmp_path, RIGHT, WRONG)


def test_what_has_types_can_be_named_with_them_where_it_runs() -> None:
    assert Stream[int] and Topic[str, int] and Table[str, int]
