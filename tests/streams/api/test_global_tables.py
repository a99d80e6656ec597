"""Global tables: any row from anywhere, in agents, pipelines and outside, and what cannot be said of them."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.streams import App, AppError, Record
from isthmus.streams.driver import TestDriver
from tests.running import in_loop, run_by


class Rate(Record, namespace="global_tables.Rate"):
    per_euro: float


@run_by(in_loop)
async def test_agents_write_and_read_any_row_and_a_restart_has_them() -> None:
    app = App("app")
    names = app.GlobalTable("names", default=str)
    seen: list[Any] = []

    @app.agent(app.topic("users", key_type=str, value_serializer="raw", value_type=str))
    async def learn(stream: Any) -> None:
        async for key, name in stream.items():
            names[key] = name

    @app.agent(app.topic("orders", value_serializer="raw", value_type=str))
    async def tell(stream: Any) -> None:
        async for user in stream:
            seen.append((names[user], len(names), dict(names)))

    driver = TestDriver(app)
    assert [id.subtopology for id in driver.tasks] == ["orders", "users"]  # nothing ties them
    driver.send("users", key=b"u1", value=b"ann")
    driver.send("orders", value=b"u1")
    driver.commit()
    driver.crash()
    driver.send("orders", value=b"u1")
    driver.send("orders", value=b"u2")
    assert seen == [("ann", 1, {"u1": "ann"})] * 2 + [("", 1, {"u1": "ann"})]
    assert driver.table("names") == {"u1": "ann"}
    driver.close()


@run_by(in_loop)
async def test_a_pipeline_joins_a_view_of_a_topic_by_any_key() -> None:
    """As Kafka Streams' KStream-GlobalKTable join: no repartition, and the row of now."""
    app = App("app")
    rates = app.GlobalTable("rates", topic=app.topic("rates", key_type=str, value_type=Rate))
    orders = app.topic("orders", key_type=str, value_type=dict)
    joined = app.stream(orders).join(
        rates, key=lambda order: order["currency"], value=lambda order, rate: order["total"] / rate.per_euro
    )
    missing = app.stream(orders).left_join(
        rates, key=lambda order: order["currency"], value=lambda order, rate: None if rate is None else rate.per_euro
    )
    joined.to("euros")
    missing.to("rates-used")
    driver = TestDriver(app)
    assert [id.subtopology for id in driver.tasks] == ["orders"]
    order = b'{"currency": "usd", "total": 6}'
    driver.send("orders", key=b"o1", value=order)
    for rate in (b'{"per_euro": 2}', b'{"per_euro": 3}', None):
        driver.send("rates", key=b"usd", value=rate)
        driver.send("orders", key=b"o1", value=order)
    assert [each.value for each in driver.sent if each.topic == "euros"] == [b"3.0", b"2.0"]
    assert [each.value for each in driver.sent if each.topic == "rates-used"] == [None, b"2", b"3", None]
    driver.restart()
    assert driver.table("rates") == {}
    driver.close()


@run_by(in_loop)
async def test_sets_are_global_too() -> None:
    app = App("app")
    tags = app.SetGlobalTable("tags", start_manager=True)

    @app.agent(app.topic("in", key_type=str, value_serializer="raw", value_type=str))
    async def tag(stream: Any) -> None:
        async for key, value in stream.items():
            tags[key].add(value)

    driver = TestDriver(app)
    driver.send("in", key=b"k", value=b"a")
    await tags.manager.add("k", "b")
    driver.send("in", key=b"other", value=b"c")
    assert driver.table("tags") == {"k": ["a", "b"], "other": ["c"]}
    driver.close()


@run_by(in_loop)
async def test_outside_of_agents_it_can_be_read_alone() -> None:
    app = App("app")
    table = app.GlobalTable("t", default=int)

    @app.agent(app.topic("in"))
    async def write(stream: Any) -> None:
        async for _ in stream:
            table["a"] += 1

    with pytest.raises(AppError, match="no worker of its app runs"):
        table["a"]
    driver = TestDriver(app)
    driver.send("in", value=b"1")
    assert (table["a"], table["b"], list(table.items())) == (1, 0, [("a", 1)])
    with pytest.raises(AppError, match="changed outside of an agent"):
        table["a"] = 2
    driver.close()


def test_what_cannot_be_had_says_why() -> None:
    app = App("app")
    topic = app.topic("rates", value_type=Rate)
    with pytest.raises(AppError, match="value_type= is the topic's"):
        app.GlobalTable("a", topic=topic, value_type=int)
    with pytest.raises(AppError, match="of one topic, not of x, y"):
        app.GlobalTable("b", topic=app.topic("x", "y"))
    with pytest.raises(AppError, match="is global, and has no windows"):
        app.GlobalTable("c").tumbling(10)
    assert app.GlobalTable("d", use_partitioner=True, standby_buffer_size=1).is_global
    with pytest.raises(AppError, match="GlobalTable always uses the partitioner"):
        app.Table("e", use_partitioner=True)
