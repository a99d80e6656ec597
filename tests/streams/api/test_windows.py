"""Tables with windows: which window is meant, what is written where, and when windows close."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from isthmus.streams import App
from isthmus.streams.api.windows import HoppingWindow, TumblingWindow
from isthmus.streams.driver import TestDriver
from isthmus.streams.errors import AppError, RecordError
from tests.running import in_loop, run_by

ACCUMULATED = ["+=", "-=", "*=", "/=", "//=", "%=", "**=", "<<=", ">>=", "&=", "^=", "|="]


def made(windows: Callable[[Any], Any], default: Any = int, **options: Any) -> tuple[App, Any]:
    app = App("app")
    return app, windows(app.Table("t", default=default, **options))


def in_agent(scenario: Callable[[Any], None], windows: Callable[[Any], Any], at_ms: int = 25_000) -> TestDriver:
    """Runs `scenario(table)` within an event of this time. Gives the driver, closed."""
    app, table = made(windows)

    @app.agent(app.topic("in"))
    async def agent(stream: Any) -> None:
        async for _ in stream:
            scenario(table)

    async def run() -> TestDriver:
        driver = TestDriver(app)
        driver.send("in", value=b"1", timestamp_ms=at_ms)
        driver.close()
        return driver

    return asyncio.run(run())


def counting(windows: Callable[[Any], Any], **options: Any) -> App:
    """An app that counts events by their key."""
    app, table = made(windows, **options)

    @app.agent(app.topic("in"))
    async def count(stream: Any) -> None:
        async for event in stream.events():
            table[event.key.decode()] += 1

    return app


async def give(driver: TestDriver, *times_ms: int, key: bytes = b"a") -> None:
    for at_ms in times_ms:
        driver.send("in", key=key, value=b"1", timestamp_ms=at_ms)


# --- Which windows a time is in ---------------------------------------------------------------------


def test_windows_are_at_multiples_of_their_step_and_end_before_their_end():
    assert TumblingWindow(10).ranges(19.999) == [(10, 20)] and TumblingWindow(10).ranges(20) == [(20, 30)]
    assert HoppingWindow(10, 5).ranges(12) == [(5, 15), (10, 20)]
    assert HoppingWindow(10, 4).ranges(12) == [(4, 14), (8, 18), (12, 22)]
    assert HoppingWindow(10, 5).current(12) == (10, 20) and HoppingWindow(10, 5).earliest(12) == (5, 15)
    assert HoppingWindow(10, 5).delta(12, timedelta(seconds=6)) == (5, 15)
    assert TumblingWindow(0.5).ranges(1.25) == [(1, 1.5)]
    assert TumblingWindow(10, expires=5).stale(20, 25) and not TumblingWindow(10, expires=5).stale(20, 24.999)
    assert not TumblingWindow(10).stale(20, 1e12)


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda table: table.tumbling(0), "both must be at least 0.001 s"),
        (lambda table: table.hopping(10, 11), "step not longer than the window"),
        (lambda table: table.tumbling(10, expires=-1), "windows that expire -1.0 s after their end"),
        (lambda table: table.tumbling("10"), "a window's size is '10', but must be seconds or a timedelta"),
        (lambda table: table.using_window(10), r"using_window\(10\) needs a TumblingWindow or a HoppingWindow"),
        (lambda table: (table.tumbling(1), table.tumbling(1)), "table t has windows already"),
        (lambda table: table.tumbling(1).relative_to("yesterday"), "is no field, time or function"),
    ],
)
def test_windows_that_cannot_be_are_refused(use: Callable[[Any], Any], said: str):
    with pytest.raises(AppError, match=said):
        use(App("app").Table("t"))


# --- Reading and writing ------------------------------------------------------------------------------


def test_writes_go_to_all_windows_of_the_time_and_reads_to_the_last():
    def scenario(table: Any) -> None:
        table["a"][15.0, 25.0] = 5
        table["a"] += 2
        assert dict(table.rows()) == {("a", 15_000): 5, ("a", 20_000): 2, ("a", 25_000): 2}
        table["b"] = 7
        assert table["b"].value() == table["b"].current() == table["b"].now() == 7
        assert "b" in table and "c" not in table
        del table["b"]
        assert "b" not in table and dict(table.rows()).keys() == {("a", each) for each in (15_000, 20_000, 25_000)}
        with pytest.raises(KeyError):
            del table["b"]
        del table["a"][15.0, 25.0]
        assert table["a"][15.0, 25.0] == 0

    in_agent(scenario, lambda table: table.hopping(10, 5))


@pytest.mark.parametrize("operation", ACCUMULATED)
def test_all_augmented_assignments_apply_to_the_value(operation: str):
    def scenario(table: Any) -> None:
        expected: Any = {"a": 12}
        table["a"] = 12
        exec(f"table['a'] {operation} 5\nexpected['a'] {operation} 5", {"table": table, "expected": expected})
        assert table["a"].value() == expected["a"]

    in_agent(scenario, lambda table: table.tumbling(10))


def test_windows_of_another_key_or_table_are_set_as_their_value():
    app = App("app")
    one, other = (app.Table(name, default=int).tumbling(10) for name in ("one", "other"))

    @app.agent(app.topic("in"), tables=[one, other])
    async def agent(stream: Any) -> None:
        async for _ in stream:
            windows = one["a"]
            windows += 2
            one["b"] = other["a"] = windows

    async def run() -> None:
        driver = TestDriver(app)
        driver.send("in", value=b"1", timestamp_ms=5)
        assert driver.table("one") == {("a", 0): 2, ("b", 0): 2} and driver.table("other") == {("a", 0): 2}
        driver.close()

    asyncio.run(run())


def test_windows_of_other_times_can_be_looked_at():
    app, table = made(lambda table: table.tumbling(10))
    seen = []

    @app.agent(app.topic("in"))
    async def agent(stream: Any) -> None:
        before = None
        async for event in stream.events():
            table["a"] += event.timestamp_ms
            windows = table["a"]
            seen.append((windows.current(), windows.delta(10), windows.delta(timedelta(seconds=20)), windows.now()))
            if before is not None:
                assert windows[before].value() == windows.value(before) == windows.current(before)
            before = event

    async def run() -> None:
        driver = TestDriver(app)
        await give(driver, 1, 10_002, 20_003, 15_000)
        driver.close()

    asyncio.run(run())
    assert seen == [(1, 0, 0, 1), (10_002, 1, 0, 10_002), (20_003, 10_002, 1, 20_003), (25_002, 1, 0, 20_003)]


def test_views_are_about_one_window_and_rows_about_all():
    def scenario(table: Any) -> None:
        table["a"][10.0, 20.0] = 1
        table["b"] = 2
        assert list(table.items()) == list(table.items().current()) == list(table.items().now()) == [("b", 2)]
        assert list(table.keys()) == ["b"] and list(table.values()) == [2] and len(table.items()) == 1
        assert list(table.items().delta(10)) == [("a", 1)] and list(table.keys().delta(10)) == ["a"]
        assert list(table.values().delta(10)) == [1] and list(table.values().delta(20)) == []
        assert sorted(table) == ["a", "b"] and len(table) == 2
        assert table == {("a", 10_000): 1, ("b", 20_000): 2} and table != {}
        assert "│" in table.as_ansitable(title="{table.name}s") and "ts" in table.as_ansitable(title="{table.name}s")

    in_agent(scenario, lambda table: table.tumbling(10))


@pytest.mark.parametrize(
    "use",
    [
        lambda table: table["a"].keys(), lambda table: list(table["a"]), lambda table: table["a"]["b"],
        lambda table: table["a"][3.0, 13.0], lambda table: table.get("a"), lambda table: table.pop("a"),
        lambda table: table.update(a=1), lambda table: table.clear(), reversed,
        lambda table: table | {}, lambda table: {} | table,
    ],
)  # fmt: skip
def test_what_windows_cannot_do_they_say(use: Callable[[Any], Any]):
    def scenario(table: Any) -> None:
        with pytest.raises((AppError, AttributeError), match="table t"):
            use(table)

    in_agent(scenario, lambda table: table.tumbling(10))


def test_a_windowed_table_is_about_the_window_of_the_event_in_hand():
    def scenario(views: Any) -> None:
        views["a"] += 1
        views["a"] += 1
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
        assert dict(views.rows()) == views == {("a", 20_000): 3, ("b", 20_000): 2}
        assert repr(views) == "<WindowedTable t>"

    in_agent(scenario, lambda table: table.tumbling(10))


def test_a_window_compares_as_its_value():
    def scenario(views: Any) -> None:
        views["a"] = 2
        window = views["a"]
        assert window == 2 and window != 1 and 2 in [window] and window == views["a"] != views["b"]
        assert 1 < window <= 2 and 3 > window >= 2 and window > views["b"]
        assert window and not views["b"]
        assert repr(window) == "<WindowSet of 'a' in table t>"
        with pytest.raises(TypeError, match="unhashable type: 'WindowSet'"):
            hash(window)

    in_agent(scenario, lambda table: table.tumbling(10))


def test_a_table_that_was_given_windows_has_no_other_rows():
    table = App("app").Table("t")
    views = table.tumbling(10)
    with pytest.raises(AppError, match=r"table t has windows: use what its tumbling\(\) or hopping\(\) returned"):
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

    with pytest.raises(AppError, match="table t is used before the agent has an event"):
        TestDriver(app)


# --- relative_to --------------------------------------------------------------------------------------


class At:
    """A field of values that are dicts."""

    def getattr(self, obj: Any) -> Any:
        return obj["at"]


@pytest.mark.parametrize(
    ("value", "start_ms"),
    [
        (b'{"at": 31.5}', 30_000),
        (b'{"at": "1970-01-01T00:00:41"}', 40_000),
        (b'{"at": "1970-01-01T01:00:41+01:00"}', 40_000),
    ],
)
def test_windows_of_a_field_are_those_of_its_time(value: bytes, start_ms: int):
    app, plain = made(lambda table: table.tumbling(10))
    table = plain.relative_to_field(At())

    @app.agent(app.topic("in"))
    async def agent(stream: Any) -> None:
        async for _ in stream:
            table["a"] += 1
            assert table["a"].value() == 1 and table["a"].current() == 0
            assert plain["a"].value() == 0

    async def run() -> None:
        driver = TestDriver(app)
        driver.send("in", value=value, timestamp_ms=5)
        assert driver.table("t") == {("a", start_ms): 1}
        driver.close()

    asyncio.run(run())


def test_windows_can_be_relative_to_a_time_a_function_or_what_was_seen():
    def scenario(table: Any) -> None:
        for time in (datetime.fromtimestamp(51, UTC), 51.0, lambda event: event.timestamp + 26):
            table.relative_to(time)["a"] += 1
        table.relative_to_now()["b"] += 1
        table.relative_to_stream()["c"] += 1
        assert table == {("a", 50_000): 3, ("b", 50_000): 1, ("c", 20_000): 1}
        with pytest.raises(AppError, match="relative to None, which is neither seconds since the epoch nor a datetime"):
            table.relative_to(lambda event: None)["a"].value()

    in_agent(scenario, lambda table: table.tumbling(10))


# --- Closing ----------------------------------------------------------------------------------------------


@run_by(in_loop)
async def test_a_window_closes_so_long_after_its_end_once_and_is_removed():
    closed: list[Any] = []
    app = counting(
        lambda table: table.tumbling(10, expires=5), on_window_close=lambda key, value: closed.append((key, value))
    )
    driver = TestDriver(app)
    await give(driver, 1, 2, 14_999)
    assert closed == [] and driver.table("t") == {("a", 0): 2, ("a", 10_000): 1}
    await give(driver, 15_000)
    assert closed == [(("a", (0, 10)), 2)] and driver.table("t") == {("a", 10_000): 2}
    await give(driver, 9_000, 15_000)  # too late, and not
    assert len(closed) == 1 and driver.table("t") == {("a", 10_000): 3}
    await give(driver, 25_000)  # in another window, which is open
    assert closed[1:] == [(("a", (10, 20)), 3)] and driver.table("t") == {("a", 20_000): 1}
    driver.close()


@run_by(in_loop)
async def test_a_value_that_is_set_does_not_open_a_window_that_has_closed():
    closed: list[Any] = []
    app, table = made(
        lambda table: table.hopping(20, 10, expires=5), on_window_close=lambda key, value: closed.append((key, value))
    )

    @app.agent(app.topic("in"))
    async def agent(stream: Any) -> None:
        async for value in stream:
            table["a"] = value

    driver = TestDriver(app)
    for value, at_ms in [(b"1", 9_000), (b"2", 30_000), (b"3", 19_000), (b"4", 9_000)]:
        driver.send("in", value=value, timestamp_ms=at_ms)
    assert closed == [(("a", (-10, 10)), 1), (("a", (0, 20)), 1)]
    assert driver.table("t") == {("a", 10_000): 3, ("a", 20_000): 2, ("a", 30_000): 2}
    driver.close()


@run_by(in_loop)
async def test_what_has_closed_stays_closed_after_a_restart():
    closed: list[Any] = []
    app = counting(
        lambda table: table.tumbling(10, expires=5), on_window_close=lambda key, value: closed.append((key, value))
    )
    driver = TestDriver(app)
    await give(driver, 1, 17_000)
    driver.restart()
    await give(driver, 2)
    assert closed == [(("a", (0, 10)), 1)] and driver.table("t") == {("a", 10_000): 1}
    await give(driver, 26_000)
    assert closed[1:] == [(("a", (10, 20)), 1)]
    driver.restart()
    assert driver.table("t") == {("a", 20_000): 1}
    driver.close()


@run_by(in_loop)
async def test_windows_do_not_close_without_expires():
    closed: list[Any] = []
    app = counting(lambda table: table.tumbling(10), on_window_close=lambda key, value: closed.append(key))
    driver = TestDriver(app)
    await give(driver, 1, 10**12, 2)
    assert closed == [] and driver.table("t") == {("a", 0): 2, ("a", 10**12): 1}
    driver.close()


@run_by(in_loop)
async def test_hopping_windows_close_one_by_one_the_earliest_first():
    closed: list[Any] = []

    async def close(key: Any, value: Any) -> None:
        closed.append((key, value))

    app = counting(lambda table: table.hopping(10, 5, expires=1), on_window_close=close)
    driver = TestDriver(app)
    await give(driver, 12_000, 21_000)
    assert closed == [(("a", (5, 15)), 1), (("a", (10, 20)), 1)]
    assert driver.table("t") == {("a", 15_000): 1, ("a", 20_000): 1}
    await give(driver, 12_000)
    assert driver.table("t") == {("a", 15_000): 1, ("a", 20_000): 1}
    driver.close()


@run_by(in_loop)
async def test_what_on_window_close_sends_is_an_output_of_the_task():
    app = App("app")
    out = app.topic("out")

    async def close(key: Any, value: Any) -> None:
        await out.send(key=key[0], value=[key[1][0], value])

    table = app.Table("t", default=int, on_window_close=close).tumbling(10, expires=1)

    @app.agent(app.topic("in"))
    async def count(stream: Any) -> None:
        async for _ in stream:
            table["a"] += 1

    driver = TestDriver(app)
    await give(driver, 1, 20_000)
    assert [(sent.topic, sent.key, sent.value) for sent in driver.sent] == [("out", b"a", b"[0.0,1]")]
    driver.close()


@run_by(in_loop)
async def test_an_error_of_on_window_close_is_the_tasks_and_nothing_is_committed():
    app = counting(lambda table: table.tumbling(10, expires=1), on_window_close=lambda key, value: 1 / 0)
    driver = TestDriver(app)
    await give(driver, 1)
    with pytest.raises(RecordError, match=r"on_window_close of table t raised ZeroDivisionError: .* for window"):
        await give(driver, 20_000)
    with pytest.raises(AppError, match="no checkpoint can be written"):
        driver.commit()
    driver.close()


# --- Tables and options -------------------------------------------------------------------------------


def test_a_table_takes_fausts_options_or_says_why_not():
    app = App("app")
    app.Table("a", help="x", key_type=str, value_type=int, recovery_buffer_size=1, window=TumblingWindow(10))
    assert app.tables["a"].spec.windows is not None
    for option, said in (("use_partitioner", "group_by"), ("changelog_topic", "extra_topic_configs="), ("x", "no opt")):
        with pytest.raises(AppError, match=f"table b: .*{option}=.*{said}|table b: there is no option {option}="):
            app.Table("b", **{option: True})
