"""Pipelines whose records change their partition, over any interleaving of the tasks."""

import asyncio
import json
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.client.partitioner import partition_for_key
from isthmus.streams import App
from isthmus.streams.driver import TestDriver
from isthmus.streams.engine.partitioning import partition_of
from isthmus.streams.runtime import layout as layout_module
from tests.streams.partitioned import Partitioned

WIDTH_MS, DELAY_MS, EVERY_MS = 1_000, 300, 40
SHOPS = 5


def per_shop() -> App:
    """Counts the orders of each shop in windows; orders have other keys."""
    app = App("shops")
    orders = app.topic("orders", watermark_delay=DELAY_MS / 1000)
    windows = app.stream(orders).group_by(lambda order: order["shop"], name="by").tumbling(WIDTH_MS / 1000)
    counts = windows.count(name="counts")
    counts.final().to("out")
    counts.late.to("late")
    return app


def fill(run: Partitioned, chance: Random, partitions: int, records: int) -> Counter[tuple[int, int]]:
    """Orders of each partition, some out of order by less than the delay. Returns how many each shop's windows have."""
    expected: Counter[tuple[int, int]] = Counter()
    for partition in range(partitions):
        for number in range(records):
            at_ms = number * EVERY_MS + chance.randrange(DELAY_MS)
            shop = chance.randrange(SHOPS)
            expected[shop, at_ms // WIDTH_MS * WIDTH_MS] += 1
            run.give("orders", partition, (at_ms, b"%d" % number, json.dumps({"shop": shop}).encode()))
    return expected


def counted(run: Partitioned) -> dict[tuple[int, int], int]:
    results = [json.loads(value or b"") for _, _, value, _ in run.written("out")]
    assert len(results) == len({(each["key"], each["start_ms"]) for each in results}), "each window is given once"
    return {(each["key"], each["start_ms"]): each["value"] for each in results}


COUNTS = st.tuples(st.integers(1, 4), st.integers(1, 4))


@settings(max_examples=40, deadline=None)
@given(COUNTS, st.integers(0, 1 << 30), st.sampled_from([0, 5]))
def test_windows_behind_group_by_are_those_of_a_single_partition(
    counts: tuple[int, int], seed: int, restarts: int
) -> None:
    orders, repartitioned = counts
    sizes = {"orders": orders, "shops-by-repartition": repartitioned}

    async def scenario() -> None:
        run = Partitioned(per_shop(), sizes, seed, restarts=restarts)
        expected = fill(run, Random(seed), orders, 60)
        await run.end()
        assert counted(run) == expected
        assert run.written("late") == []

    asyncio.run(scenario())


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 3), st.integers(0, 1 << 30), st.sampled_from([0, 5]), st.lists(st.integers(0, 8_000), max_size=60)
)
def test_what_is_late_where_it_comes_from_is_late_behind_group_by_and_nothing_else(
    partitions: int, seed: int, restarts: int, times: list[int]
) -> None:
    late, greatest_ms = [], -1
    for number, at_ms in enumerate(times):
        greatest_ms = max(greatest_ms, at_ms)
        if at_ms // WIDTH_MS * WIDTH_MS + WIDTH_MS <= greatest_ms - DELAY_MS:
            late.append(number)

    async def scenario() -> None:
        run = Partitioned(per_shop(), {"shops-by-repartition": partitions}, seed, restarts=restarts)
        for number, at_ms in enumerate(times):
            run.give("orders", 0, (at_ms, b"k", json.dumps({"shop": number % SHOPS, "n": number}).encode()))
        await run.end()
        assert sorted(json.loads(value or b"")["n"] for _, _, value, _ in run.written("late")) == late
        assert all(headers == () for _, _, _, headers in run.written("late"))

    asyncio.run(scenario())


def test_control_one_source_for_all_tasks_that_write_drops_what_slow_ones_bring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout_module.Layout, "_writers", lambda self, topic: {})
    real = layout_module.Watermarks

    def by_timestamps(*given: Any, **options: Any) -> Any:
        return real(*given, **{**options, "upstreams": {}})

    monkeypatch.setattr(layout_module, "Watermarks", by_timestamps)

    async def late(seed: int) -> int:
        app = per_shop()
        run = Partitioned(app, {"orders": 4, "shops-by-repartition": 2}, seed)
        run.layout.topics["shops-by-repartition"].has_heartbeats = False
        fill(run, Random(seed), 4, 60)
        await run.end()
        return len(run.written("late"))

    assert any(asyncio.run(late(seed)) for seed in range(3))


# --- Foreign keys -------------------------------------------------------------------------------------


def referring(how: str) -> App:
    """Orders joined with their users, and how many results each second has."""
    app = App("fk")
    orders, users = app.stream("orders").table("orders-now"), app.stream("users").table("users-now")
    join = orders.join if how == "inner" else orders.left_join
    named = join(
        users,
        key=lambda order: None if order["user"] is None else order["user"].encode(),
        value=lambda order, user: [order["n"], user],
        name="named",
    )
    named.stream().map(lambda value: 1, name="ones").tumbling(WIDTH_MS / 1000).count(name="results").final().to("out")
    return app


class Changes:
    """Changes of orders, each key's in a partition that its hash does not say, and of users; and what they come to."""

    def __init__(self, run: Partitioned, chance: Random, orders: int, users: int, count: int) -> None:
        self.orders: dict[bytes, Any] = {}
        self.users: dict[bytes, Any] = {}
        for number in range(count):
            if chance.random() < 0.3:
                key = b"u%d" % chance.randrange(4)
                value = None if chance.random() < 0.3 else f"name {number}"
                self._set(self.users, key, value)
                run.give("users", partition_for_key(key, users), (number * EVERY_MS, key, _json(value)))
            else:
                which = chance.randrange(8)
                user = chance.choice([None, "u0", "u1", "u2", "u3"])
                order = None if chance.random() < 0.2 else {"n": chance.choice([1, number]), "user": user}
                self._set(self.orders, b"o%d" % which, order)
                run.give("orders", which * 7 % orders, (number * EVERY_MS, b"o%d" % which, _json(order)))

    @property
    def references(self) -> set[tuple[bytes, bytes]]:
        return {(order["user"].encode(), key) for key, order in self.orders.items() if order["user"] is not None}

    @staticmethod
    def _set(rows: dict[bytes, Any], key: bytes, value: Any) -> None:
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value

    def joined(self, how: str) -> dict[bytes, Any]:
        found = {}
        for key, order in self.orders.items():
            user = None if order["user"] is None else self.users.get(order["user"].encode())
            if user is not None or how == "left":
                found[key] = [order["n"], user]
        return found


def _json(value: Any) -> bytes | None:
    return None if value is None else json.dumps(value).encode()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["inner", "left"]),
    COUNTS,
    st.sampled_from([(0, 0), (1, 1), (5, 2)]),  # of the topics between; 0: as it should be, others have bridges
    st.integers(0, 1 << 30),
    st.sampled_from([0, 5]),
)
def test_a_foreign_key_join_is_that_of_the_last_rows(
    how: str, counts: tuple[int, int], between: tuple[int, int], seed: int, restarts: int
) -> None:
    orders, users = counts
    sizes = {
        "orders": orders,
        "users": users,
        "fk-named-request-repartition": between[0] or users,
        "fk-named-response-repartition": between[1] or orders,
    }

    async def scenario() -> None:
        # A bridge of a topic between steps has no table for its watermarks: it waits for the next word of each task.
        run = Partitioned(referring(how), sizes, seed, restarts=0 if any(between) else restarts)
        changes = Changes(run, Random(seed), orders, users, 60)
        await run.drain()
        found = run.table("named")
        assert found == changes.joined(how)
        assert set(run.table("named-references")) == changes.references
        await run.end()
        assert run.table("results") == {}, "time goes on behind a join whose topics go in a circle: all windows close"
        assert len(run.written("out")) >= bool(found)

    asyncio.run(scenario())


@pytest.mark.parametrize("is_beside", [False, True], ids=["alone", "beside a topic of the app"])
def test_records_of_a_key_stay_together_where_their_topic_grows(is_beside: bool) -> None:
    """Rows are where the topic's own partitioner had their keys, and no other topic says where these are."""
    app = App("app")
    stream = app.stream(app.topic("in", partitioner="consistent_random"))
    if is_beside:  # this one does not grow
        stream = stream.merge(app.stream("others").group_by(lambda value: value, name="by-value"))
    stream.group_by_key().count(name="counts")
    with TestDriver(app, partitions=3) as driver:
        for _ in range(2):
            for number in range(20):
                driver.send("in", key=b"k%d" % number, value=1)
            driver.grow("in", 5)
        assert driver.table("counts") == {b"k%d" % number: 2 for number in range(20)}


@pytest.mark.parametrize("partitioner", ["murmur2_random", "consistent_random"])
@pytest.mark.parametrize("counts", [(3, 3), (3, 2), (2, 5)], ids=str)
def test_what_is_regrouped_goes_where_the_table_has_its_keys(partitioner: str, counts: tuple[int, int]) -> None:
    users, repartitioned = counts
    app = App("regrouped")
    names = app.stream(app.topic("users", partitioner=partitioner)).table("names")
    by_user = app.stream("orders").group_by(lambda order: order["user"].encode(), name="by")
    by_user.left_join(names, value=lambda order, name: [order["user"], name], name="named").to("out")
    assert app.all_tables()["names"].partitioner == partitioner.removesuffix("_random")

    async def scenario() -> None:
        run = Partitioned(app, {"orders": 2, "users": users, "regrouped-by-repartition": repartitioned}, 1)
        assert run.layout.apart == ()
        for number in range(20):
            key = b"u%d" % number
            run.give("users", partition_of(key, users, partitioner) or 0, (0, key, b'"name %d"' % number))
        await run.drain()
        for number in range(20):
            run.give("orders", number % 2, (1, b"o", b'{"user": "u%d"}' % number))
        await run.end()
        found = sorted(json.loads(value or b"") for _, _, value, _ in run.written("out"))
        assert found == sorted([f"u{number}", f"name {number}"] for number in range(20))

    asyncio.run(scenario())
