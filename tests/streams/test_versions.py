"""An app's code changes while its state lives: each version of it takes over the changelogs of the one before."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from isthmus.streams import DROP, App, AppError, ChangeRefused, TestDriver
from isthmus.streams.aggregates import Count, Sum, TopN
from isthmus.streams.engine import versions
from isthmus.streams.engine.changes import DOUBTED, GOES_ON, LEFT, REFUSED, Written, compare
from isthmus.streams.engine.checkpoint import MARKER, Marker, as_read
from isthmus.streams.runtime.written import code_of


def ran(
    app: App,
    before: TestDriver | None = None,
    *records: tuple[str, str, int],
    look: Callable[[TestDriver], object] = lambda driver: None,
) -> TestDriver:
    """What an app makes of records (topic, key, value), from what another version has left, with a commit. look: is
    called before its stores are closed."""
    driver = TestDriver(app, topics=None if before is None else copy.deepcopy(before.topics))
    try:
        for topic, key, value in records:
            driver.send(topic, key=key.encode(), value=b"%d" % value, timestamp_ms=value * 1000)
        driver.commit()
        look(driver)
    finally:
        driver.close()
    return driver


def changelog(driver: TestDriver, table: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(each.key, each.value) for each in driver.topics.records(driver.app.changelog_topic(table), 0)]


def last_marker(driver: TestDriver, table: str) -> Marker | None:
    keys, values = zip(*changelog(driver, table), strict=True)
    written = as_read(keys, values, table)[1]
    return None if written is None else Marker.decode(written, driver.app.id, table)


def changes(app: App, before: TestDriver) -> dict[str, tuple[str, str]]:
    """What `isthmus streams diff` says of an app that has run before: effect and change, by what is changed."""
    markers: dict[str, dict[int, Marker]] = {}
    for table in before.app.all_tables():
        if (marker := last_marker(before, table)) is not None:
            markers[table] = {0: marker}
    found = compare(code_of(app), Written(markers, dict.fromkeys(markers, 1)))
    return {change.what: (change.effect, str(change)) for change in found}


def sums(version: int = 1, **options: Any) -> tuple[App, Any]:
    """Version 1 has numbers, version 2 has a dict with the number in it."""
    app = App("sums")
    table = app.Table("sums", default=int if version == 1 else dict, version=version, **options)

    @app.agent(app.topic("in"))
    async def add(stream: Any) -> None:
        async for key, value in stream.items():
            key = key.decode()
            table[key] = table[key] + value if version == 1 else {"sum": table[key].get("sum", 0) + value}

    return app, table


def test_rows_are_migrated_once_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    first = ran(sums()[0], None, ("in", "a", 1), ("in", "b", 2))
    app, table = sums(2)

    @table.migration(from_version=1)
    def up(key: str, value: int) -> dict[str, int]:
        calls.append(key)
        return {"sum": value}

    second = ran(app, first, ("in", "a", 10))
    assert second.table("sums") == {"a": {"sum": 11}, "b": {"sum": 2}}
    third = ran(app, second, ("in", "b", 5))  # the marker says that it is done
    assert third.table("sums") == {"a": {"sum": 11}, "b": {"sum": 7}} and sorted(calls) == ["a", "b"]
    app, table = sums()
    table.migration(from_version=2, to_version=1)(lambda key, value: value["sum"])
    assert ran(app, third, ("in", "b", 1)).table("sums") == {"a": 11, "b": 8}


def test_a_migration_that_was_not_committed_begins_again() -> None:
    first = ran(sums()[0], None, ("in", "a", 1))
    app, _ = sums(2, migrate={1: lambda key, value: {"sum": value}})
    driver = TestDriver(app, topics=first.topics)
    before = changelog(driver, "sums")
    driver.crash()
    assert driver.table("sums") == {"a": {"sum": 1}} and changelog(driver, "sums") == before
    driver.restart()
    assert changelog(driver, "sums")[len(before) :][0] == (b'"a"', b'{"sum":1}')
    driver.close()


def test_there_is_no_way_back_without_a_migration() -> None:
    app, _ = sums(2, migrate={1: lambda key, value: {"sum": value}})
    later = ran(app, None, ("in", "a", 1))
    with pytest.raises(ChangeRefused, match=r"rows of version 2.*version 1.*from_version=2, to_version=1"):
        ran(sums()[0], later)
    with pytest.raises(ChangeRefused, match=r"rows of version 1.*version 3.*@sums.migration\(from_version=1\)"):
        ran(sums(3)[0], (ran(sums()[0], None, ("in", "a", 1))))


def test_versions_are_passed_in_order_rows_dropped_and_keys_joined() -> None:
    first = ran(sums()[0], None, ("in", "a", 1), ("in", "A", 2), ("in", "b", 0))
    app, table = sums(3)
    table.migration(from_version=1)(lambda key, value: {"sum": value} if value else DROP)

    @table.migration(from_version=2, keys=True, merge=lambda one, other: {"sum": one["sum"] + other["sum"]})
    def upper(key: str, value: dict[str, int]) -> Any:
        return key.upper(), value

    assert ran(app, first).table("sums") == {"A": {"sum": 3}}
    app, table = sums(2)
    table.migration(from_version=1, keys=True)(lambda key, value: (key.upper(), value))
    with pytest.raises(ChangeRefused, match="two rows of version 1 become the row 'A': give the migration merge="):
        ran(app, first)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda key, value: (key, value["sum"]), r"raised TypeError.*at the row of key \"a\""),
        (lambda key, value: (key, object()), r"raised AppError.*cannot be stored.*at the row of key \"a\""),
        (lambda key, value: (object(), value), r"raised AppError.*at the row of key \"a\""),
        (lambda key, value: value, r"raised TypeError: cannot unpack.*at the row of key \"a\""),
        (lambda key, value: ("one", value), r"merge= of the migration raised ZeroDivisionError.*of key 'one'"),
    ],
)
def test_what_a_migration_raises_or_makes_wrong_names_the_row(function: Any, said: str) -> None:
    first = ran(sums()[0], None, ("in", "a", 1), ("in", "b", 1))
    app, table = sums(2)
    table.migration(from_version=1, keys=True, merge=lambda one, other: one / 0)(function)
    with pytest.raises(ChangeRefused, match=f"table sums: .*{said}"):
        ran(app, first)


def windows(size: float, version: int = 1) -> tuple[App, Any]:
    app = App("windows")
    base = app.Table("counts", default=int, version=version)
    counts = base.tumbling(size)

    @app.agent(app.topic("in"))
    async def count(stream: Any) -> None:
        async for event in stream.events():
            counts[event.key.decode()] += 1

    return app, base


def test_windows_of_another_length_are_refused_without_a_version() -> None:
    first = ran(windows(1)[0], None, ("in", "a", 0), ("in", "a", 1))
    with pytest.raises(ChangeRefused, match="size_ms was 1000, and is 2000; step_ms was 1000, and is 2000"):
        ran(windows(2)[0], first)
    app, base = windows(2, version=2)

    @base.migration(from_version=1, keys=True, merge=lambda one, other: one + other)
    def twice_as_long(key: tuple[str, int], value: int) -> Any:
        return (key[0], key[1] // 2000 * 2000), value

    second = ran(app, first, ("in", "a", 1), ("in", "a", 2))
    assert second.table("counts") == {("a", 0): 3, ("a", 2000): 1}


def two_agents(*, tied: bool) -> App:
    """One reads `left`, one `right`, each with a table of its own; a third one may need both."""
    app = App("two")
    made = {topic: app.Table(f"of-{topic}", default=int) for topic in ("left", "right")}

    def declare(topic: str) -> None:
        @app.agent(app.topic(topic), name=topic, tables=[made[topic]])
        async def add(stream: Any) -> None:
            async for key, value in stream.items():
                made[topic][key.decode()] += value

    for topic in made:
        declare(topic)
    if tied:

        @app.agent(app.topic("left"), name="both", tables=list(made.values()))
        async def both(stream: Any) -> None:
            async for _ in stream:
                pass

    return app


def positions(driver: TestDriver) -> dict[str, dict[str, int]]:
    return {
        id.subtopology: {topic: at.offset for topic, at in sorted(run.task.positions.items())}
        for id, run in driver._running.runs.items()
    }


def test_tables_part_and_join_with_their_positions() -> None:
    """Each goes on where its own topic was read up to, whatever the other has read since."""
    first = ran(two_agents(tied=True), None, ("left", "a", 1), ("right", "a", 2))
    apart = ran(two_agents(tied=False), first, ("left", "a", 10), ("left", "a", 10))
    assert positions(apart) == {"left": {"left": 3}, "right": {"right": 1}}
    again = ran(two_agents(tied=True), apart, ("right", "a", 5))
    assert again.table("of-left") == {"a": 21} and again.table("of-right") == {"a": 7}
    assert positions(again) == {"left+right": {"left": 3, "right": 2}}


def test_a_table_that_was_away_lacks_only_what_those_who_use_it_read() -> None:
    def app(*, is_later: bool) -> App:
        app = App("grows")
        made = {name: app.Table(name, default=int) for name in (("one", "more") if is_later else ("one",))}

        @app.agent(app.topic("left"), name="left", tables=[made["one"]])
        async def left(stream: Any) -> None:
            async for key, value in stream.items():
                made["one"][key.decode()] += value

        if is_later:

            @app.agent(app.topic("right"), name="right", tables=list(made.values()))
            async def right(stream: Any) -> None:
                async for key, value in stream.items():
                    made["more"][key.decode()] += value

        return app

    first = ran(app(is_later=True), None, ("left", "a", 1), ("right", "a", 2))
    back = ran(app(is_later=False), first, ("left", "a", 10))
    again = ran(app(is_later=True), back, ("right", "a", 20))
    assert again.table("one") == {"a": 11} and again.table("more") == {"a": 22}
    assert positions(again) == {"left+right": {"left": 2, "right": 2}}


def test_a_topic_that_is_read_again_goes_on_where_it_was_left() -> None:
    def app(*topics: str) -> App:
        app = App("sources")
        table = app.Table("sums", default=int)

        @app.agent(app.topic(*topics), tables=[table])
        async def add(stream: Any) -> None:
            async for key, value in stream.items():
                table[key.decode()] += value

        return app

    first = ran(app("left", "right"), None, ("left", "a", 1), ("right", "a", 2))
    second = ran(app("left"), first, ("left", "a", 4))
    third = ran(app("left", "right"), second)
    assert positions(third) == {"left+right": {"left": 2, "right": 1}}


def test_a_step_that_is_declared_before_others_leaves_their_event_time() -> None:
    def app(*, has_more: bool) -> App:
        app = App("steps")
        source = app.stream(app.topic("in"))
        if has_more:
            source.tumbling(5).count(name="more").final().to("more")
        source.tumbling(2).count(name="windows").final().to("closed")
        return app

    first = ran(app(has_more=False), None, ("in", "a", 1), ("in", "a", 9))
    assert [sent.topic for sent in first.sent] == ["closed"]
    second = ran(app(has_more=True), first, ("in", "a", 1))
    assert second.sent == []  # what was late before is late, and opens no window again
    kept = sorted(name for name in second.topics._topics if name.endswith("-changelog"))
    assert kept == ["steps-more-changelog", "steps-windows-changelog"]  # and nothing but rows is kept


def test_windows_of_steps_keep_their_length() -> None:
    def app(size: float) -> App:
        app = App("steps")
        app.stream(app.topic("in")).tumbling(size).count(name="windows").final().to("closed")
        return app

    first = ran(app(2), None, ("in", "a", 1))
    with pytest.raises(ChangeRefused, match=r"table windows has rows .* size_ms was 2000, and is 3000"):
        ran(app(3), first)


def test_parts_with_different_event_times_are_not_joined() -> None:
    def app(*, together: bool) -> App:
        app = App("parts")
        left, right = (app.stream(app.topic(name)) for name in ("left", "right"))
        left.tumbling(2).count(name="l").final().to("closed")
        right.tumbling(2).count(name="r").final().to("closed")
        if together:
            left.merge(right).to("all")
        return app

    first = ran(app(together=False), None, ("left", "a", 9), ("right", "a", 1))
    with pytest.raises(ChangeRefused, match=r"steps l and r hang together now.*new name="):
        ran(app(together=True), first)


Made = dict[str, Any]
COUNTED: Made = {"n": Count()}
AND_SUMMED: Made = {"total": Sum(), "n": Count(), "version": 2}
BY_HAND: Made = {"initial": int, "add": lambda sum, value: sum + value, "result": lambda sum: {"total": sum}}
IN_A_LIST: Made = {
    "initial": list,
    "add": lambda both, value: [both[0] + value, both[1] + 1] if both else [value, 1],
    "result": lambda both: {"total": both[0]},
}


def aggregated(kind: str, store: str = "memory", emit: str = "current", **made: Any) -> App:
    app = App("steps", store=store)
    source = app.stream("in")
    if kind == "keys":
        source.group_by_key().aggregate(name="rows", **made)
    else:
        getattr(source.tumbling(600).aggregate(name="windows", **made), emit)().table("rows")
    return app


def rows(kind: str, driver: TestDriver) -> dict[bytes, Any]:
    found: Any = driver.table("rows")
    return {(key if kind == "keys" else key[0]): row for key, row in found.items()}


@pytest.mark.parametrize("store", ["memory", "rocksdb"])
@pytest.mark.parametrize("kind", ["keys", "windows"])
def test_columns_of_a_step_come_and_go_with_a_version(kind: str, store: str) -> None:
    """Those that stay have what they had, whatever the order in which they are declared; there and back."""
    found: list[dict[bytes, Any]] = []

    def next(made: Made, before: TestDriver | None, *records: tuple[str, str, int]) -> TestDriver:
        look = lambda driver: found.append(rows(kind, driver))  # noqa: E731
        return ran(aggregated(kind, store, **made), before, *records, look=look)

    first = next(COUNTED, None, ("in", "a", 1), ("in", "b", 2))
    second = next(AND_SUMMED, first, ("in", "a", 10))
    assert found[-1][b"a"] == {"total": 10, "n": 2}
    third = next({"n": Count(), "total": Sum(), "version": 2}, second, ("in", "a", 5), ("in", "b", 7))
    assert found[-1] == {b"a": {"n": 3, "total": 15}, b"b": {"n": 2, "total": 7}}
    next(COUNTED, third, ("in", "b", 1))
    assert found[-1][b"b"] == {"n": 3}
    if kind == "keys":  # what is given of accumulators is made anew
        assert found[-1][b"a"] == {"n": 3}


@pytest.mark.parametrize("kind", ["keys", "windows"])
def test_accumulators_of_an_app_are_migrated(kind: str) -> None:
    first = ran(aggregated(kind, **BY_HAND), None, ("in", "a", 1), ("in", "b", 2))
    with pytest.raises(
        ChangeRefused, match=r"rows of version 1, and the code has version 2: give the step migrate={1:"
    ):
        ran(aggregated(kind, **IN_A_LIST, version=2), first)
    second = ran(
        aggregated(kind, **IN_A_LIST, version=2, migrate={1: lambda key, sum: [sum, 1]}), first, ("in", "a", 3)
    )
    assert rows(kind, second) == {b"a": {"total": 4}, b"b": {"total": 2}}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            COUNTED,
            {"n": Sum()},
            r"computes was n=Count\(\), and is n=Sum\(\).*or version=2: columns keep what they have",
        ),
        (COUNTED, {"n": Count("user")}, r"is n=Count\(user\)"),
        (COUNTED, {"n": Count(), "best": TopN(3)}, r"is best=TopN\(3\), n=Count\(\)"),
        ({"best": TopN(3)}, {"best": TopN(3, of="shop")}, r"is best=TopN\(3, of=shop\)"),
        (COUNTED, {**COUNTED, "emit": "final"}, "emit was current, and is final"),
        (COUNTED, BY_HAND, "is aggregate"),
        (BY_HAND, {**COUNTED, "version": 2}, "rows of version 1 that were not made of columns"),
    ],
)
def test_what_a_step_computes_does_not_change_unseen(before: Made, after: Made, said: str) -> None:
    first = ran(aggregated("windows", **before), None, ("in", "a", 1))
    with pytest.raises(ChangeRefused, match=said):
        ran(aggregated("windows", **after), first)


def test_accumulators_do_not_become_rows_unseen() -> None:
    plain: Made = {"initial": int, "add": lambda sum, value: sum + value}
    first = ran(aggregated("keys", **plain), None, ("in", "a", 1))
    with pytest.raises(ChangeRefused, match="accumulators was the rows, and is in a table of their own"):
        ran(aggregated("keys", **BY_HAND, version=2), first)


def test_rows_of_a_processor_are_migrated() -> None:
    class Kept:
        def process(self, event: Any, context: Any) -> None:
            context.state[event.key] = event.value

        def on_timer(self, timer: Any, context: Any) -> None: ...

    def app(**options: Any) -> App:
        made = App("steps")
        made.stream("in").process(Kept, name="kept", **options)
        return made

    first = ran(app(), None, ("in", "a", 1))
    second = ran(app(version=2, migrate={1: lambda key, value: [value]}), first)
    assert second.table("kept") == {b"a": [1]}


def streams_joined(how: str) -> App:
    app = App("steps")
    getattr(app.stream("in"), how)(app.stream("more"), value=lambda left, right: [left, right], within=1, name="pairs")
    return app


def tables_joined(how: str, *, by_key: bool = False) -> App:
    app = App("steps")
    left, right = (app.stream(topic).table(topic) for topic in ("in", "more"))
    options: Made = {"key": lambda value: b"k"} if by_key else {}
    getattr(left, how)(right, value=lambda mine, other: [mine, other], name="pairs", **options)
    return app


def deduplicated(id_of: Callable[[Any], Any] | None) -> App:
    app = App("steps")
    app.stream("in").dedup(id_of, within=9, name="first")
    return app


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (streams_joined("join"), streams_joined("left_join"), "table pairs-left has .* how was inner, and is left"),
        (tables_joined("left_join"), tables_joined("outer_join"), "table pairs has .* how was left, and is outer"),
        (tables_joined("join", by_key=True), tables_joined("left_join", by_key=True), "how was inner, and is left"),
        (deduplicated(None), deduplicated(lambda value: b"a"), "ids was keys, and is of a function"),
    ],
)
def test_steps_whose_rows_would_lack_or_hold_something_else_are_refused(before: App, after: App, said: str) -> None:
    first = ran(before, None, ("in", "a", 1))
    with pytest.raises(ChangeRefused, match=said):
        ran(after, first)


def grouped(**made: Any) -> App:
    app = App("steps")
    app.stream("in").table("rows").group_by(lambda value: b"all", name="of").aggregate(name="groups", **made)
    return app


def test_columns_of_groups_of_rows_are_dropped_and_do_not_begin_anew() -> None:
    """What is in a group would be taken out of a column that never had it."""
    first = ran(grouped(n=Count(), total=Sum()), None, ("in", "a", 1), ("in", "b", 3))
    second = ran(grouped(n=Count(), version=2), first, ("in", "a", 5))
    assert second.table("groups") == {b"all": {"n": 2}}
    with pytest.raises(ChangeRefused, match=r"column total is new.*give the step and the table that its rows are of"):
        ran(grouped(n=Count(), total=Sum(), version=3), second, ("in", "a", 7))


@pytest.mark.parametrize("migrate", [{2: min}, {0: min}, {"1": min}, {1: None}, min])
def test_migrations_of_a_step_that_cannot_be_are_refused_where_they_are_declared(migrate: Any) -> None:
    with pytest.raises(AppError, match="step windows: migrate="):
        aggregated("windows", **BY_HAND, version=2, migrate=migrate)


@pytest.mark.parametrize(("before_s", "after_s"), [(40, 400), (400, 40)])
def test_a_table_may_have_another_history(before_s: int, after_s: int) -> None:
    """An update that comes out of order does not replace what was known before."""

    def app(history: int) -> App:
        made = App("steps")
        table = made.stream("rates").table("rates", history=history)
        made.stream("in").join(table, value=lambda value, rate: [value, rate], name="at-the-time").to("out")
        return made

    first = ran(app(before_s), None, *(("rates", "a", at) for at in range(100, 140, 4)))
    later = (("rates", "a", 150), ("rates", "a", 160), ("rates", "a", 137))
    second = ran(app(after_s), first, *later, *(("in", "a", at) for at in (125, 135, 138, 151)))
    assert [sent.value for sent in second.sent] == [b"[125,124]", b"[135,132]", b"[138,137]", b"[151,150]"]


def test_rows_from_before_a_table_had_a_ttl_expire_too() -> None:
    def app(ttl: float | None) -> App:
        made = App("steps")
        made.stream("in").table("rows", ttl=ttl)
        return made

    first = ran(app(None), None, ("in", "a", 1), ("in", "b", 9))
    second = ran(app(5), first, ("in", "c", 14))
    assert second.table("rows") == {b"a": 1, b"b": 9, b"c": 14}  # their time begins with the ttl, at 9 s
    assert ran(app(5), second, ("in", "d", 30)).table("rows") == {b"d": 30}


@pytest.mark.parametrize(("retention", "is_refused"), [(None, True), (70, False)])
def test_windows_that_have_closed_are_not_begun_anew_by_a_longer_grace(
    retention: float | None, is_refused: bool
) -> None:
    """An event at 2 s that comes at 30 s: late at first, and in its window once the grace is a minute."""

    def app(grace: float) -> App:
        app = App("steps")
        windows = app.stream("in").tumbling(10, grace=grace, retention=retention)
        windows.count(name="windows").current().table("rows")
        return app

    first = ran(app(0), None, ("in", "a", 1), ("in", "a", 30))
    if is_refused:
        with pytest.raises(ChangeRefused, match="ended over 0 ms ago are gone, and with a grace of 60000 ms"):
            ran(app(60), first)
        return
    second = ran(app(60), first, ("in", "a", 2))
    assert second.table("rows")[b"a", 0, 10_000] == 2
    ran(app(0), second)


async def give(topic: Any, **record: Any) -> None:
    await topic.send(**record)


def sent_between(app: App, by: str, how: str) -> None:
    """A table of what an agent sends to a topic of others, in ways that its code shows."""
    between, table = app.topic("between", partitioner=by), app.Table("counts", default=int)

    @app.agent(between, name="counting", tables=[table])
    async def counting(stream: Any) -> None:
        async for key, _ in stream.items():
            table[key] += 1

    async def send(**record: Any) -> None:
        await between.send(**record)

    async def by_a_helper(**record: Any) -> None:
        await give(between, **record)

    ways = {"sent": send, "sent by a method": between.send, "sent by a helper": by_a_helper, "sent as": counting.cast}
    way = ways[how]

    @app.agent(app.topic("in"), name="sending")
    async def sending(stream: Any) -> None:
        async for key, value in stream.items():
            await way(key=key, value=value)


def grouped_by_two(by: str, *, how: str = "group_by") -> App:
    """A table behind a topic that the app writes itself, by this partitioner."""
    app = App("placed", **({"producer_partitioner": by} if how == "setting" else {}))
    if how in ("group_by", "setting"):
        given = {} if how == "setting" else {"partitioner": by}
        app.stream("in").group_by(lambda value: value % 2, name="parity", **given).group_by_key().count(name="counts")
    elif how == "to":
        between = app.topic("between", partitioner=by)
        app.stream("in").to("between")
        app.stream(between).group_by_key().count(name="counts")
    elif how == "to steps":
        between = app.topic("between", partitioner=by)
        app.stream(between).group_by_key().count(name="counts")

        @app.agent(app.topic("in"), name="sending")
        async def send(stream: Any) -> None:
            async for key, value in stream.items():
                await between.send(key=key, value=value)

    elif how.startswith("sent"):
        sent_between(app, by, how)
    else:
        table = app.Table("counts", default=int)

        @app.agent(app.topic("in"), name="counting", tables=[table])
        async def count(stream: Any) -> None:
            async for event in stream.group_by(lambda value: value % 2, name="parity", partitioner=by).events():
                table[event.key] += 1

    return app


@pytest.mark.parametrize(
    "how",
    ["group_by", "setting", "to", "to steps", "agent", "sent", "sent by a method", "sent by a helper", "sent as"],
)
def test_another_partitioner_of_what_an_app_writes_for_its_tables_is_refused(how: str) -> None:
    """Keys would come to other tasks than their rows are in."""
    first = ran(grouped_by_two("murmur2_random", how=how), None, ("in", "a", 1), ("in", "b", 2))
    again = ran(grouped_by_two("murmur2", how=how), first, ("in", "a", 1))  # keys are where they were
    with pytest.raises(ChangeRefused, match=r"table counts has .*partitioner was murmur2, and is consistent"):
        ran(grouped_by_two("consistent_random", how=how), again)


def test_another_partitioner_of_what_is_brought_to_a_grown_table_is_refused() -> None:
    def app(by: str) -> App:
        app = App("placed", producer_partitioner=by)
        app.stream("in").group_by_key().count(name="counts")
        return app

    first = ran(app("murmur2_random"), None, ("in", "a", 1), look=lambda driver: driver.grow("in", 3))
    again = ran(app("murmur2"), first, ("in", "a", 1))  # keys are where they were
    with pytest.raises(ChangeRefused, match=r"table counts has rows .* by partitioner murmur2, .* by consistent"):
        ran(app("consistent_random"), again)


@pytest.mark.parametrize("is_named", [False, True])
def test_another_partitioner_of_a_topic_of_others_is_no_change(is_named: bool) -> None:
    """It says where their keys are, which may have been said wrongly before. An agent that names it sends nothing."""

    def app(by: str) -> App:
        app = App("placed")
        topic = app.topic("in", partitioner=by)
        if not is_named:
            app.stream(topic).group_by_key().count(name="counts")
            return app
        table = app.Table("counts", default=int)

        @app.agent(topic)
        async def counting(stream: Any) -> None:
            async for event in stream.events():
                if event.message.topic == topic.get_topic_name():
                    table[event.key] += 1

        return app

    ran(app("consistent_random"), ran(app("murmur2_random"), None, ("in", "a", 1)), ("in", "a", 1))


@pytest.mark.parametrize("is_sent", [False, True])
def test_what_is_joined_with_a_topic_is_brought_by_its_partitioner(is_sent: bool) -> None:
    """Whether the app writes that topic, too, or not. Releases before described a second rule in one of these cases,
    and not what agents send: an app that has not changed is not refused."""
    app = App("placed")
    orders = app.topic("orders", partitioner="fnv1a")
    paid = app.stream("payments").group_by(lambda value: value, name="by-order")
    app.stream(orders).join(paid, value=max, within=10, name="both")
    to = orders if is_sent else app.topic("others")

    @app.agent(app.topic("in"))
    async def sending(stream: Any) -> None:
        async for value in stream:
            await to.send(key=value, value=value)

    spec = app.all_tables()["both-left"]
    assert spec.partitioner == "fnv1a"
    for before in ("fnv1a", "fnv1a, murmur2"):
        versions.check_alike(spec, {**spec.description, "partitioner": before})
    with pytest.raises(ChangeRefused, match="partitioner was consistent, murmur2, and is fnv1a"):
        versions.check_alike(spec, {**spec.description, "partitioner": "consistent, murmur2"})


class Order:
    total: int


class Bill:
    total: int


def typed(**types: Any) -> App:
    app = App("typed")
    table = app.Table("t", **types)

    @app.agent(app.topic("in"))
    async def keep(stream: Any) -> None:
        async for key, value in stream.items():
            table[key.decode()] = value

    return app


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({}, {"key_type": str}, "key_type was none, and is str"),
        ({"key_type": str}, {}, "key_type was str, and is none"),
        ({}, {"value_type": Order}, "value_type was none, and is Order"),
        ({"value_type": Order}, {"value_type": list[Bill]}, r"value_type was Order, and is list\[Bill\].*version=2"),
        ({"value_type": Order}, {"value_type": Order}, None),
        ({"value_type": Order}, {"value_type": Bill, "version": 2, "migrate": {1: max}}, None),
    ],
)
def test_another_type_of_rows_goes_on_and_is_told(before: Any, after: Any, said: str | None) -> None:
    """A class may have a new name, and rows be of the type that is told now: that is not known."""
    first = ran(typed(**before), None, ("in", "a", 1))
    found = changes(typed(**after), first).get("table t", ("", ""))
    assert said is None or (found[0] == DOUBTED and re.search(said, found[1])), found
    assert said is not None or found[0] != DOUBTED
    if "version" not in after:
        assert ran(typed(**after), first).table("t") == {"a": 1}


def test_keys_of_another_type_are_refused() -> None:
    first = ran(typed(key_type=int), None, ("in", "a", 1))
    with pytest.raises(ChangeRefused, match="key_type was int, and is str"):
        ran(typed(key_type=str), first)
    with pytest.raises(ChangeRefused, match="key_type was none, and is Order"):  # it is written in another way
        ran(typed(key_type=Order), ran(typed(), None, ("in", "a", 1)))


def of_rows(
    *steps: str,
    group_by: str = "of",
    table: str = "groups",
    by: str = "rows",
    history: float | None = None,
    **options: Any,
) -> App:
    """A table, and steps that need all its rows: groups of them, and joins with another table."""
    app = App("steps", **options)
    rows, others = app.stream("in").table("rows", history=history), app.stream("more").table("others")
    rows.join(others, value=lambda left, right: 0, name="together")
    if "groups" in steps:
        groups = {"rows": rows, "others": others}[by].group_by(lambda value: value % 2, name=group_by)
        groups.count(name=table)
        if "sums" in steps:
            groups.sum(lambda value: value, name="sums")
    if "pairs" in steps:
        rows.left_join(others, value=lambda left, right: [left, right], name="pairs")
    if "references" in steps:
        rows.join(others, key=lambda value: b"x", value=lambda left, right: [left, right], name="references")
    if "then" in steps:
        joined = rows.outer_join(others, value=lambda left, right: (left or 0) + (right or 0), name="joined")
        joined.group_by(lambda value: value % 2, name="then").count(name="thens")
    return app


@pytest.mark.parametrize("of", [{"store": "memory"}, {"store": "rocksdb"}, {"history": 60}])
def test_a_new_step_gets_the_rows_that_a_table_has(of: Made) -> None:
    """As if it had been there from the first event on."""
    records = [("in", key, ord(key)) for key in "abcdeabc"] + [("more", "x", 7), ("more", "a", 9)]
    later = [("in", "a", 5), ("in", "f", 6), ("more", "x", 8), ("more", "g", 4)]
    steps = ("groups", "sums", "pairs", "references", "then")
    names = ("groups", "sums", "pairs", "references", "joined", "thens")

    def tables(before: App) -> list[Made]:
        found: list[Made] = []
        look = lambda driver: found.append({each: driver.table(each) for each in names})  # noqa: E731
        app, first = of_rows(*steps, **of), ran(before, None, *records)
        ran(app, ran(app, first, look=look), *later, look=look)
        return found

    whole, found = tables(of_rows(*steps, **of)), tables(of_rows(**of))
    assert found == whole and len(whole[-1]["references"]) >= 5


def test_rows_are_given_once_whatever_happens_before_the_first_commit() -> None:
    first = ran(of_rows(), None, ("in", "a", 1), ("in", "b", 2))
    driver = TestDriver(of_rows("groups"), topics=first.topics)
    for _ in range(2):
        assert driver.table("groups") == {1: 1, 0: 1}
        driver.crash()
    driver.commit()
    driver.crash()
    assert driver.table("groups") == {1: 1, 0: 1}
    driver.close()
    assert ran(of_rows("groups", group_by="by"), driver, ("in", "b", 3)).table("groups") == {
        1: 2,
        0: 0,
    }  # they had them


@pytest.mark.parametrize(
    ("first", "second", "third", "said"),
    [
        (of_rows("groups"), of_rows(), of_rows("groups"), "has changed while groups, made of its rows by step of, was"),
        (of_rows("groups"), None, of_rows("groups", "sums"), "sums, which is new behind step of"),
        (of_rows("groups"), None, of_rows("groups", "sums", group_by="by"), "sums, which is new behind step by"),
        (of_rows("groups"), of_rows(), of_rows("groups", table="anew"), "anew, which is new behind step of"),
        (
            of_rows("groups"),
            None,
            of_rows("groups", by="others"),
            "of the rows of rows, and is made of those of others",
        ),
    ],
)
def test_a_step_that_cannot_be_made_whole_is_refused(first: App, second: App | None, third: App, said: str) -> None:
    before = ran(first, None, ("in", "a", 1), ("more", "a", 1))
    if second is not None:
        before = ran(second, before, ("in", "a", 2))
    with pytest.raises(ChangeRefused, match=said):
        ran(third, before)
    assert any(effect == REFUSED for effect, _ in changes(third, before).values())


def test_more_rows_than_one_transaction_takes_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "FED_ROWS_MAX", 1)
    monkeypatch.setattr(versions, "MIGRATED_ROWS_MAX", 1)
    records = [("in", "a", 1), ("in", "b", 2)]
    with pytest.raises(
        ChangeRefused, match="rows has more than 1 rows in a partition, which cannot be given to step of"
    ):
        ran(of_rows("groups"), ran(of_rows(), None, *records))
    app, _ = sums(2, migrate={1: lambda key, value: {"sum": value}})
    with pytest.raises(ChangeRefused, match="sums has more than 1 rows in a partition, which cannot be migrated"):
        ran(app, ran(sums()[0], None, *records))


def test_a_step_that_is_filled_is_told_of() -> None:
    before = ran(of_rows(), None, ("in", "a", 1))
    effect, said = changes(of_rows("groups"), before)["table groups"]
    assert effect == GOES_ON and said == "table groups is new: it is filled with the rows that rows has"


def looked_up(grace: float | None, *, has_join: bool = True) -> App:
    app = App("steps")
    rates = app.stream("rates").table("rates", history=100)
    if has_join:
        app.stream("in").join(rates, value=lambda value, rate: [value, rate], grace=grace, name="rated").to("out")
    else:
        app.stream("in").to("out")
    return app


def test_events_that_wait_in_a_join_are_not_lost_with_its_grace() -> None:
    first = ran(looked_up(10), None, ("rates", "a", 1), ("in", "a", 2), ("in", "a", 9), ("rates", "a", 12))
    assert first.sent == []
    effect, said = changes(looked_up(None), first)["table rated-waiting"]
    assert effect == REFUSED and "has 2 events that wait for rated" in said and "grace=0" in said
    effect, said = changes(looked_up(None, has_join=False), first)["table rated-waiting"]
    assert effect == LEFT and "the 2 events that wait in it are not given" in said
    drained = ran(looked_up(0), first, ("rates", "a", 13))
    assert [sent.value for sent in drained.sent] == [b"[2,1]", b"[9,1]"]
    assert changes(looked_up(None), drained)["table rated-waiting"][0] == LEFT


def keyed(*, rekeyed: bool = False, **of_keys: Any) -> App:
    app = App("keyed")
    source = app.stream(app.topic("in", **of_keys))
    if rekeyed:
        source = source.group_by(lambda value: value, name="by")
    source.group_by_key().count(name="counts")
    return app


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({}, {"key_type": str}, "keys were read as bytes, and are read as text"),
        ({"key_type": str}, {"key_serializer": "json", "key_type": str}, "as text, and are read as JSON"),
        ({}, {"key_serializer": "pickle"}, "as bytes, and are read as "),
        ({}, {"key_type": bytes}, None),
        ({"key_type": str}, {"key_serializer": "str"}, None),
        ({"key_serializer": "json"}, {"key_serializer": "json", "key_type": str}, None),
        ({"rekeyed": True}, {"rekeyed": True, "key_type": str}, None),
    ],
)
def test_rows_of_steps_are_not_lost_by_another_way_to_read_keys(before: Made, after: Made, said: str | None) -> None:
    """The rows of b"a" would not be found for "a", and counted anew beside them."""
    first = ran(keyed(**before), None, ("in", '"a"', 1))
    if said is None:
        assert [*ran(keyed(**after), first, ("in", '"a"', 1)).table("counts").values()] == [2]
        return
    with pytest.raises(ChangeRefused, match=f"table counts has .*{said}"):
        ran(keyed(**after), first)


def test_what_is_made_of_rows_that_are_migrated_is_told_of() -> None:
    def app(version: int, name: str = "groups") -> App:
        made = App("steps")
        migrate: Made = {1: lambda key, sum: sum * 10} if version > 1 else {}
        sums = (
            made.stream("in").group_by_key().aggregate(int, int.__add__, name="sums", version=version, migrate=migrate)
        )
        sums.group_by(lambda sum: b"all", name=f"of-{name}").sum(lambda sum: sum, name=name)
        return made

    first = ran(app(1), None, ("in", "a", 1), ("in", "b", 2))
    effect, said = changes(app(2), first)["tables groups"]
    assert effect == DOUBTED and "keep what they have of those of version 1 (give them and their steps new" in said
    assert ran(app(2), first).table("groups") == {b"all": 3}
    assert ran(app(2, "anew"), first).table("anew") == {b"all": 30}


KEPT_BEFORE = ("version", "step", "computes", "accumulators", "how", "part")


def as_an_earlier_release(driver: TestDriver) -> TestDriver:
    """Markers without what it did not keep."""
    for table in driver.app.all_tables():
        marker = last_marker(driver, table)
        assert marker is not None
        kept = {name: each for name, each in marker.table.items() if name in KEPT_BEFORE}
        topic, data = driver.app.changelog_topic(table), replace(marker, table=kept).encode()
        driver.topics.append(topic, 0, MARKER, data, 0, (), is_open=False, by="murmur2")
    return driver


def test_what_an_earlier_release_did_not_keep_is_not_known_to_differ() -> None:
    first = as_an_earlier_release(ran(grouped_by_two("murmur2_random"), None, ("in", "a", 1)))
    assert ran(grouped_by_two("consistent_random"), first, ("in", "a", 1)).table("counts") == {1: 2}
    first = as_an_earlier_release(ran(keyed(), None, ("in", "a", 1)))
    assert ran(keyed(key_type=str), first, ("in", "a", 1)).table("counts") == {b"a": 1, "a": 1}
    first = as_an_earlier_release(ran(of_rows(), None, ("in", "a", 1)))
    assert changes(of_rows("groups"), first)["table groups"][0] == DOUBTED
    second = ran(of_rows("groups"), first)
    assert second.table("groups") == {}  # it may have had them
    assert ran(of_rows("groups", "pairs"), second, ("more", "z", 1)).table("pairs") == {b"a": [1, None]}
