"""Agents that read records as columns: what is in them, when they are done, and what becomes of bad ones."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from isthmus.streams import App
from isthmus.streams.driver import TestDriver, TestRecord
from isthmus.streams.errors import AppError


@dataclass
class Item:
    name: str
    price: float | None


@dataclass
class Order:
    id: int
    shop: str
    total: float
    paid: bool | None
    at: datetime
    items: list[Item]


def order(id: int, **fields: Any) -> bytes:
    given = {"id": id, "shop": "x", "total": id / 2, "paid": True, "at": "2026-01-02T03:04:05Z", "items": [], **fields}
    return repr(given).replace("'", '"').replace("True", "true").replace("None", "null").encode()


def reading(topic: Any, app: App, most: int = 100, within: float | None = None) -> list[Any]:
    """What an agent of the topic gets."""
    seen: list[Any] = []

    @app.agent(topic, name="reader")
    async def read(stream: Any) -> None:
        async for batch in stream.record_batches(most, within):
            seen.append(batch)

    return seen


def test_json_objects_become_columns_by_a_class() -> None:
    app = App("a")
    seen = reading(app.topic("orders", key_type=str, columns=Order), app)
    driver = TestDriver(app)
    items = [{"name": "i", "price": 1}, {"name": "j", "price": None}]
    driver.send(
        "orders",
        TestRecord(order(1, items=items, more="ignored"), "é".encode(), 7, (("h", b"1"), ("h", None))),
        TestRecord(None, None, 8),
        TestRecord(b'{\n"id": 2}', b"k", 9),
    )
    [batch] = seen
    assert batch.schema.names == ["key", "value", "timestamp", "offset", "partition", "topic", "headers"]
    first, tombstone, last = batch.to_pylist()
    assert first == {
        "key": "é",
        "value": {
            "id": 1, "shop": "x", "total": 0.5, "paid": True, "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            "items": [{"name": "i", "price": 1.0}, {"name": "j", "price": None}],
        },
        "timestamp": datetime(1970, 1, 1, 0, 0, 0, 7_000, tzinfo=UTC),
        "offset": 0,
        "partition": 0,
        "topic": "orders",
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }  # fmt: skip
    assert (tombstone["key"], tombstone["value"], tombstone["headers"]) == (None, None, None)
    assert last["value"] == {"id": 2, "shop": None, "total": None, "paid": None, "at": None, "items": None}
    driver.close()


def test_bytes_and_schemas_of_arrow() -> None:
    app = App("a")
    raw = reading(app.topic("raw", columns=True), app)
    typed: list[Any] = []

    @app.agent(app.topic("typed", key_type=int, columns=pa.schema([("n", pa.decimal128(5, 2))])))
    async def read(stream: Any) -> None:
        async for batch in stream.record_batches():
            typed.append(batch)

    driver = TestDriver(app)
    driver.send("raw", key=b"\xff", value=b"\x00")
    driver.send("typed", key=b"12", value=b'{"n": "1.25"}')
    assert raw[0].select(["key", "value"]).to_pylist() == [{"key": b"\xff", "value": b"\x00"}]
    assert pc.struct_field(typed[0]["value"], "n").to_pylist() == [pa.scalar("1.25").cast(pa.decimal128(5, 2)).as_py()]
    assert typed[0]["key"].to_pylist() == [12]
    driver.close()


def test_batches_have_at_most_so_many_rows_and_positions_follow_what_is_done() -> None:
    app = App("a")
    sizes: list[list[int]] = []
    held: list[int | None] = []

    @app.agent(app.topic("t", columns=True), name="slow")
    async def read(stream: Any) -> None:
        async for batch in stream.record_batches(3):
            sizes.append(batch["offset"].to_pylist())
            [run] = driver._running.runs.values()
            held.append(run.lanes[0].readers[0][0].held_from)

    driver = TestDriver(app)
    driver.send("t", *[TestRecord(b"%d" % n) for n in range(7)])
    assert sizes == [[0, 1, 2], [3, 4, 5], [6]]
    assert held == [0, 3, 6], "those before are done, since the next were asked for"
    driver.commit()
    assert driver.positions["t", 0] == 7
    driver.close()


def test_rows_of_several_fetches_are_one_batch_within_a_time() -> None:
    app = App("a")
    seen = reading(app.topic("t", columns=True), app, most=4, within=3600)
    driver = TestDriver(app)
    for n in range(3):
        driver.send("t", value=b"%d" % n)
    assert seen == [] and driver.positions["t", 0] == 0
    driver.send("t", TestRecord(b"3"), TestRecord(b"4"))
    assert [batch["offset"].to_pylist() for batch in seen] == [[0, 1, 2, 3]]
    assert driver.positions["t", 0] == 4
    driver.close()


BAD = [
    b"no json",
    b'{"id": 1.5}',
    b'{"id": 1} {"id": 2}',
    b"",
    b"[1]",
    b'{"shop": "\xff"}',
    b'{"id": 1}}\n{"v": {"id": 2}',
]


@pytest.mark.parametrize("bad", BAD)
def test_records_that_are_no_such_objects_are_left_out_alone(bad: bytes) -> None:
    app = App("a")
    seen = reading(app.topic("orders", columns=Order, on_error="skip"), app)
    driver = TestDriver(app)
    driver.send("orders", *[TestRecord(value) for value in (bad, order(1), order(2), bad, b"", order(5))])
    assert [n for batch in seen for n in batch["offset"].to_pylist()] == [1, 2, 5]
    assert [left.raw.offset for left in driver.left_out] == [0, 3, 4] and driver.left_out[0].raw.value == bad
    assert driver.positions["orders", 0] == 6
    driver.close()


def test_rows_go_to_tables_and_topics() -> None:
    app = App("a", key_serializer="json")
    totals = app.Table("totals", default=float)
    out, echo = app.topic("out"), app.topic("echo")

    @app.agent(app.topic("orders", key_serializer="raw", columns=Order), sink=[echo])
    async def add(stream: Any) -> AsyncIterator[Any]:
        async for batch in stream.record_batches():
            flat = pa.RecordBatch.from_struct_array(batch["value"])
            sums = pa.table(flat).group_by("shop").aggregate([("total", "sum"), ("id", "count")])
            for shop, total in zip(sums["shop"].to_pylist(), sums["total_sum"].to_pylist(), strict=True):
                totals[shop] += total
            await out.send_rows(sums.rename_columns({"total_sum": "sum", "id_count": "n"}), key="shop")
            yield batch.select(["key", "value", "timestamp"]).set_column(1, "value", flat["id"])

    driver = TestDriver(app)
    given = [TestRecord(order(n, shop="xy"[n % 2]), b"k%d" % n, n * 1_000) for n in (1, 2, 3)]
    driver.send("orders", *given)
    assert driver.table("totals") == {"y": 2.0, "x": 1.0}
    sent = [(each.topic, each.key, each.value, each.timestamp_ms) for each in driver.sent]
    assert sorted(sent[:2]) == [
        ("out", b'"x"', b'{"sum":1.0,"n":1}', 3_000),
        ("out", b'"y"', b'{"sum":2.0,"n":2}', 3_000),
    ]
    assert sent[2:] == [("echo", b"k%d" % n, b"%d" % n, n * 1_000) for n in (1, 2, 3)]
    driver.close()


def test_columns_after_group_by() -> None:
    app = App("a")
    seen: list[Any] = []

    @app.agent(app.topic("orders", columns=Order), name="by-shop")
    async def read(stream: Any) -> None:
        by_shop = stream.group_by(lambda value: value["shop"].encode(), name="shop")
        async for batch in by_shop.record_batches():
            seen.append((batch["key"].to_pylist(), pc.struct_field(batch["value"], "id").to_pylist()))

    driver = TestDriver(app)
    driver.send("orders", TestRecord(order(1)), TestRecord(order(2, shop="y")))
    assert seen == [([b"x", b"y"], [1, 2])]
    driver.close()


class Odd:
    n: dict[str, int]


def test_columns_that_cannot_be() -> None:
    app = App("a")
    for columns, options, problem in (
        (5, {}, "topic t: columns=5 is no pyarrow.Schema, no class with annotations, nor True"),
        (Odd, {}, r"topic t: Odd.n: dict\[str, int\] is no column; .* Give a pyarrow.Schema"),
        (object, {}, "topic t: object annotates no fields"),
        (Order, {"value_serializer": "raw"}, "topic t: only JSON becomes columns; columns=True gives the bytes"),
        (Order, {"value_type": Order}, "topic t: with columns= its records are never objects"),
        (Order, {"timestamp": len}, "topic t: with columns= its records are never objects"),
        (Order, {"key_type": Order}, "topic t: keys of .* are no column; key_type= may be bytes, str, int or float"),
    ):
        with pytest.raises(AppError, match=problem):
            app.topic("t", columns=columns, **options)
    columned = app.topic("t", columns=True)
    with pytest.raises(AppError, match="topic t has columns: agents read it, steps of pipelines read events"):
        app.stream(columned)
    with pytest.raises(AppError, match="reads columns, of which none can be left out alone"):
        app.agent(columned, on_error="skip")(lambda stream: stream)


def test_a_topic_of_events_gives_no_columns() -> None:
    app = App("a")
    reading(app.topic("t"), app)
    driver = TestDriver(app)
    with pytest.raises(AppError, match=r"topic t is read as events: declare it with columns= for record_batches\(\)"):
        driver.send("t", value=b"1")
    driver.close()


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(AppError, match=r"columns need the package pyarrow: pip install 'isthmus\[arrow\]'"):
        App("a").topic("t", columns=True)
