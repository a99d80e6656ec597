"""Several aggregates of a step, and what is done with the results of windows: tables of them, and joins by window."""

from dataclasses import dataclass
from typing import Any, assert_type

import pytest

from isthmus.streams import App
from isthmus.streams.aggregates import Count, First, Max, Mean, Min, Reduce, Sum, TopN
from isthmus.streams.api.pipeline import Aggregated, Pipeline, Source, TableView
from isthmus.streams.driver import TestDriver, TestRecord
from isthmus.streams.engine.operators.table_sources import Change
from isthmus.streams.engine.operators.windows import WindowResult
from isthmus.streams.engine.placement import BY_FIRST
from isthmus.streams.errors import AppError, RecordError
from tests.streams.flowing import Flowing

S = 1_000  # milliseconds


@pytest.fixture
def app() -> Pipeline:
    return Pipeline("shop")


@dataclass
class Summary:
    total: int
    n: int


def order(total: int, shop: str = "x") -> dict[str, Any]:
    return {"total": total, "shop": shop}


def windows(run: Flowing, topic: str) -> list[tuple[Any, int, Any]]:
    return [(result.key, result.start_ms // S, result.value) for result in run.values(topic)]


# --- Columns ------------------------------------------------------------------------------------------


def test_columns_of_windows_of_each_kind(app: Pipeline) -> None:
    source = app.topic("in")
    source.tumbling(10).aggregate(total=Sum("total"), n=Count(), name="t").final().to("tumbling")
    source.sliding(3).aggregate(top=TopN(1, "total", of="total"), n=Count(), name="sl").final().to("sliding")
    source.session(3).aggregate(first=First("total"), mean=Mean("total"), name="se").final().to("session")
    source.tumbling(10).top(2, by="total", name="best").current().to("top")
    run = Flowing(app)
    run.send("in", ("k", order(5), 1 * S), ("k", order(7), 2 * S))
    run.restart()
    run.send("in", ("k", order(6), 3 * S), ("k", order(1), 15 * S))
    run.advance(60 * S)
    assert windows(run, "tumbling") == [("k", 0, {"total": 18, "n": 3}), ("k", 10, {"total": 1, "n": 1})]
    sliding = [(start, *value["top"], value["n"]) for _, start, value in windows(run, "sliding")]
    assert sorted(sliding) == [(0, 7, 3), (1, 7, 2), (2, 6, 1), (12, 1, 1)]
    assert windows(run, "session") == [("k", 1, {"first": 5, "mean": 6.0}), ("k", 15, {"first": 1, "mean": 1.0})]
    assert [[each["total"] for each in value] for _, _, value in windows(run, "top")] == [[7, 5], [7, 6], [1]]


def test_a_result_is_what_the_app_says(app: Pipeline) -> None:
    source = app.topic("in")
    source.tumbling(10).aggregate(total=Sum("total"), n=Count(), result=Summary, name="a").final().to("out")
    half = source.group_by_key().aggregate(int, lambda a, b: a + b["total"], result=lambda total: total / 2, name="b")
    half.stream().to("half")
    run = Flowing(app)
    run.send("in", ("k", order(5), 1 * S), ("k", order(7), 2 * S), ("k", order(1), 11 * S))
    assert windows(run, "out") == [("k", 0, Summary(12, 2))]
    assert run.values("half") == [6.5] and run.rows("b-state") == {"k": 13}


def test_results_of_a_class_are_rows(app: Pipeline) -> None:
    source = app.topic("in")
    source.group_by_key().aggregate(total=Sum("total"), n=Count(), result=Summary, name="keys")
    grouped = source.table("orders").group_by(lambda each: each["shop"], name="by-shop")
    grouped.aggregate(total=Sum("total"), n=Count(), result=Summary, name="groups")
    sums = source.tumbling(10).aggregate(total=Sum("total"), n=Count(), result=Summary, name="w").current()
    sums.table("windows", value_type=Summary)
    run = Flowing(app)
    run.send("in", ("k", order(5), 1 * S), ("k", order(7), 2 * S))
    run.restart()
    assert run.rows("keys") == {"k": Summary(12, 2)} and run.rows("groups") == {"x": Summary(7, 1)}
    assert run.rows("windows") == {("k", 0, 10 * S): Summary(12, 2)}


def test_a_result_that_cannot_be_made_names_the_step(app: Pipeline) -> None:
    app.topic("in").tumbling(1).aggregate(n=Count(), result=Summary, name="bad").final().to("out")
    run = Flowing(app)
    run.send("in", ("k", 1, 0))
    with pytest.raises(RecordError, match=r"bad: .*result= raised TypeError: .*'total' for \{'n': 1\}"):
        run.advance(1 * S)


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_a_result_that_cannot_be_made_is_left_out_by_the_app_s_policy(policy: str) -> None:
    def whole(total: int) -> int:
        if total % 2:
            raise ValueError("odd")
        return total

    app = App("shop", on_error=policy)
    source = app.stream(app.topic("in", key_type=str, value_type=int))
    for name, each in {"t": source.tumbling(10), "sl": source.sliding(5), "se": source.session(3)}.items():
        each.aggregate(int, int.__add__, merge=int.__add__, result=whole, name=name).final().to(name)
    source.tumbling(10).aggregate(int, int.__add__, result=whole, name="now").current().to("now")
    keyed = source.group_by_key().aggregate(int, int.__add__, result=whole, name="keys")
    keyed.changes().to("changes")
    rows = source.table("rows").group_by(lambda row: "all", name="groups")
    rows.aggregate(int, int.__add__, int.__sub__, result=whole, name="group").stream().to("group")
    given = {name: app.topic(name, key_type=str) for name in ("t", "sl", "se", "now", "changes", "group")}
    with TestDriver(app) as driver:
        for key, number, at in (("a", 1, 1), ("b", 2, 1), ("a", 1, 21), ("c", 1, 21)):
            driver.send("in", TestRecord(number, key, at * S))
        driver.advance_event_time(60 * S)
        by_step = {name: [each.key for each in driver.read(topic)] for name, topic in given.items()}
        assert by_step.pop("changes") == ["b", "a"] and by_step.pop("group") == ["all"]
        assert all(keys == ["b"] for keys in by_step.values()), by_step
        dead = [dict(each.headers)["__streams.errors.processor"] for each in driver.read(app.dead_letters)]
        assert len(driver.left_out) == 17 and len(dead) == (17 if policy == "dead_letter" else 0)
        assert driver.table("keys")["a"] == 2
    closed = [str(each.problem) for each in driver.left_out if each.by == "t"]
    assert closed[0] == "step t: result= raised ValueError: odd for 1 for key 'a' at 9999 ms"


def test_columns_of_a_tables_rows_go_back_when_rows_do(app: Pipeline) -> None:
    # KTableAggregateTest: each row counts in one group, where it is now
    orders = app.topic("orders").table("orders").group_by(lambda each: each["shop"], name="by-shop")
    least = orders.aggregate(n=Count(), least=Min("total"), most=Max("total"), name="shops")
    least.changes().to("out")
    orders.top(1, by="total", name="best").stream().to("best")
    run = Flowing(app)
    run.send("orders", (1, order(5), 1), (2, order(7), 2))
    run.restart()
    run.send("orders", (2, order(9, "y"), 3), (1, None, 4))
    assert run.values("out") == [
        Change(None, {"n": 1, "least": 5, "most": 5}),
        Change({"n": 1, "least": 5, "most": 5}, {"n": 2, "least": 5, "most": 7}),
        Change({"n": 2, "least": 5, "most": 7}, {"n": 1, "least": 5, "most": 5}),
        Change(None, {"n": 1, "least": 9, "most": 9}),
        Change({"n": 1, "least": 5, "most": 5}, {"n": 0, "least": None, "most": None}),
    ]
    assert [[each["total"] for each in rows] for rows in run.values("best")] == [[5], [7], [5], [9], []]


OWN = [("A", 1, 10), ("B", 2, 15), ("A", 3, 20), ("B", 4, 18), ("C", 5, 5), ("D", 6, 25), ("B", 7, 15), ("C", 8, 10)]
MOVING = [
    *(("A", 1, 10), ("A", None, 15), ("A", 1, 12), ("B", 2, 20)),
    *(("null", 3, 25), ("B", 4, 23), ("NULL", 5, 24), ("B", 7, 22)),
]


@pytest.mark.parametrize(
    ("group_of", "history", "given", "expected"),
    [
        (  # testAggBasic: each row in a group of its own
            lambda row: row[0],
            None,
            OWN,
            "A 0+1, B 0+2, A 0+1-1+3, B 0+2-2+4, C 0+5, D 0+6, B 0+2-2+4-4+7, C 0+5-5+8",
        ),
        (  # testAggRepartition: rows move between groups, and two are in none
            lambda row: None if row[0] in ("null", "NULL") else row[1],
            None,
            MOVING,
            "1 0+1, 1 0+1-1, 1 0+1-1+1, 2 0+2, 2 0+2-2, 4 0+4, 4 0+4-4, 7 0+7",
        ),
        (  # testAggOfVersionedStore: what comes out of order is ignored
            lambda row: None if row[0] in ("null", "NULL") else row[1],
            300,
            MOVING,
            "1 0+1, 1 0+1-1, 2 0+2, 2 0+2-2, 4 0+4",
        ),
    ],
)
def test_groups_are_those_of_kafka(
    app: Pipeline, group_of: Any, history: float | None, given: list[Any], expected: str
) -> None:
    """Of KTableAggregateTest. The time of a change is its own here; in Kafka it is the group's greatest."""
    groups = app.topic("in").table("rows", history=history).group_by(group_of, name="by")
    text = groups.aggregate(lambda: "0", lambda a, row: f"{a}+{row[1]}", lambda a, row: f"{a}-{row[1]}", name="text")
    text.stream().to("out")
    run = Flowing(app)
    for key, value, at in given:
        run.send("in", (key, None if value is None else [key, value], at))
    assert ", ".join(f"{event.key} {event.value}" for event in run.sent["out"]) == expected


def test_columns_that_cannot_be(app: Pipeline) -> None:
    source = app.topic("in")
    rows = app.topic("rows").table("rows").group_by(str, name="g")
    with pytest.raises(AppError, match=r"step in-tumbling-aggregate: aggregate\(\) needs columns, such as n=Count\(\)"):
        source.tumbling(1).aggregate()
    with pytest.raises(AppError, match="takes columns, or initial and add, not both"):
        source.tumbling(1).aggregate(int, max, n=Count())  # type: ignore[call-overload]
    with pytest.raises(AppError, match="column n is 5; it must be one such as"):
        source.group_by_key().aggregate(n=5)  # type: ignore[call-overload]
    for name in ("name", "result", "initial"):
        with pytest.raises(AppError, match=f"a column cannot be called {name}, as an argument is"):
            source.group_by_key().aggregate(**{name: Count()})  # type: ignore[call-overload]
    with pytest.raises(AppError, match="column a: First of a table's rows is not possible: rows have no order"):
        rows.aggregate(a=First())
    with pytest.raises(
        AppError, match="Reduce of a table's rows is not possible: it needs an initial= and a subtract="
    ):
        rows.aggregate(a=Reduce(max))
    with pytest.raises(AppError, match="sessions s: the aggregation needs `merge`"):
        source.session(1).aggregate(n=Count(), all=Reduce(lambda a, b: a, initial=int), name="s")
    with pytest.raises(AppError, match="a limit of 10000, and the first 0: both must be at least 1"):
        source.tumbling(1).top(0)
    with pytest.raises(AppError, match="5 is neither the name of a field nor a function"):
        source.tumbling(1).aggregate(n=Sum(5))  # type: ignore[arg-type]


# --- Results of windows -------------------------------------------------------------------------------


def either(a: WindowResult[Any, int] | None, b: WindowResult[Any, int] | None) -> tuple[int, int | None, int | None]:
    [start_ms, *_] = [each.start_ms for each in (a, b) if each]
    return start_ms // S, a and a.value, b and b.value


def test_results_are_joined_by_key_and_window(app: Pipeline) -> None:
    clicks = app.topic("clicks").tumbling(10, grace=3).count(name="clicks").final()
    views = app.topic("views").tumbling(10).count(name="views").final()
    clicks.join(views, value=lambda a, b: (a.start_ms // S, a.value, b.value), name="both").to("both")
    views.outer_join(clicks, value=either, name="either").to("either")
    run = Flowing(app)
    run.send("views", ("k", "v", 1 * S), ("k", "v", 2 * S), ("j", "v", 9 * S), ("k", "v", 11 * S))
    run.send("clicks", ("k", "c", 3 * S), ("k", "c", 12 * S), ("k", "c", 9 * S), ("k", "c", 21 * S))
    run.restart()
    run.advance(60 * S)
    assert [(event.key, event.value) for event in run.sent["both"]] == [("k", (0, 2, 2)), ("k", (10, 1, 1))]
    assert sorted((event.key, event.value) for event in run.sent["either"]) == [
        ("j", (0, 1, None)), ("k", (0, 2, 2)), ("k", (10, 1, 1)), ("k", (20, None, 1)),
    ]  # fmt: skip


def test_sessions_are_joined_where_they_begin_and_end_alike(app: Pipeline) -> None:
    a, b = (app.topic(name).session(2).count(name=f"{name}-sessions").final() for name in ("a", "b"))
    a.join(b, value=lambda left, right: left.value + right.value, name="both").to("out")
    run = Flowing(app)
    run.send("a", ("k", 1, 0), ("k", 1, 1 * S), ("k", 1, 9 * S), ("k", 1, 10 * S))
    run.send("b", ("k", 1, 0), ("k", 1, 1 * S), ("k", 1, 8 * S), ("k", 1, 10 * S))
    run.advance(60 * S)
    assert run.values("out") == [4]


def test_results_are_joined_with_themselves_and_with_tables(app: Pipeline) -> None:
    counts = app.topic("in").tumbling(10).count(name="counts").final()
    counts.join(counts, value=lambda a, b: (a.value, b.value), name="self").to("self")
    shops = app.topic("shops").table("shops")
    counts.join(shops, value=lambda result, name: (name, result.value), name="named").to("named")
    run = Flowing(app)
    run.send("shops", ("x", "Xenia's", 0))
    run.send("in", ("x", 1, 1 * S), ("x", 1, 2 * S), ("y", 1, 3 * S))
    run.advance(20 * S)
    assert run.values("self") == [(2, 2), (1, 1)] and run.values("named") == [("Xenia's", 2)]


def test_windows_are_rows_until_they_close(app: Pipeline) -> None:
    windowed = app.topic("in").hopping(10, 5, grace=2)
    counts = windowed.count(name="counts").current().table("now")
    totals = windowed.sum(name="totals").current().table("totals-now")
    counts.join(totals, value=lambda n, total: total / n, name="means").changes().to("means")
    run = Flowing(app)
    run.send("in", ("k", 4, 6 * S))
    run.send("in", ("k", 2, 7 * S))
    run.restart()
    assert run.rows("now") == {("k", 0, 10 * S): 2, ("k", 5 * S, 15 * S): 2}
    assert run.rows("means") == {("k", 0, 10 * S): 3.0, ("k", 5 * S, 15 * S): 3.0}
    run.advance(19 * S)
    assert len(run.rows("now")) == 2, "the last event was at 7 s; windows of 10 s with a grace of 2 s are kept until 19"
    run.advance(20 * S)
    assert run.rows("now") == run.rows("means") == {}
    assert [change.new for change in run.values("means")[-2:]] == [None, None]


def test_finals_are_rows_for_a_time(app: Pipeline) -> None:
    app.topic("in").session(2).count(name="sessions").final().table("visits", ttl=30)
    run = Flowing(app)
    run.send("in", ("k", 1, 0), ("k", 1, 1 * S), ("k", 1, 20 * S))
    assert run.rows("visits") == {("k", 0, 1 * S): 2}
    assert {app.graph.specs[name].placement for name in ("visits", "visits-times")} == {BY_FIRST}
    run.advance(33_001)  # a session closes 2001 ms after its end, and tables hear of it then
    assert run.rows("visits") == {("k", 0, 1 * S): 2, ("k", 20 * S, 20 * S): 1}
    run.advance(33_002)
    assert run.rows("visits") == {("k", 20 * S, 20 * S): 1}


def test_results_that_cannot_be_joined_or_be_rows(app: Pipeline) -> None:
    source = app.topic("in")
    final = source.tumbling(10).count(name="a").final()
    with pytest.raises(AppError, match="join j: the windows of a and b differ"):
        final.join(source.tumbling(5).count(name="b").final(), value=lambda a, b: a, name="j")
    with pytest.raises(AppError, match=r"join a-c-join: c gives windows more than once: join final\(\) without revise"):
        final.join(source.tumbling(10).count(name="c").current(), value=lambda a, b: a)
    revised = source.tumbling(10, retention=60).count(name="d").final(revise=True)
    with pytest.raises(AppError, match="d gives windows more than once"):
        revised.join(final, value=lambda a, b: a)
    with pytest.raises(AppError, match=r"table e: a ttl of 9000 ms would delete windows .* together, 12000 ms"):
        source.tumbling(10, grace=2).count(name="e-counts").current().table("e", ttl=9)
    with pytest.raises(AppError, match=r"table f: sessions that go on are no rows yet: make it of final\(\)"):
        source.session(10).count(name="f-counts").current().table("f")


# --- Tables that agents read --------------------------------------------------------------------------


def test_an_agent_reads_the_tables_of_steps() -> None:
    app = App("shop", key_serializer="json")
    counts = app.stream("orders").tumbling(10).count(name="counts").current().table("now")
    users = app.stream("users").table("users")
    past = app.stream("prices").table("prices", history=10)
    out = app.topic("out")

    @app.agent("asked")
    async def look(stream: Any) -> None:
        async for event in stream.events():
            found = {"n": counts.get((event.key, 0, 10 * S), 0), "rows": len(counts), "has": "u" in users}
            await out.send(value={**found, "users": dict(users.items()), "key": [*users]})
            with pytest.raises(AppError, match="table prices has a history: its rows are read by joins alone"):
                past.get("k")

    driver = TestDriver(app)
    driver.send("users", key=b'"u"', value=b'"Ada"')
    driver.send("orders", TestRecord(b"{}", b'"x"', 1), TestRecord(b"{}", b'"x"', 2), TestRecord(b"{}", b'"y"', 2))
    driver.send("asked", key=b'"x"', value=b"null")
    assert [sent.value for sent in driver.sent] == [b'{"n":2,"rows":2,"has":true,"users":{"u":"Ada"},"key":["u"]}']
    driver.close()


def test_types_are_followed(app: Pipeline) -> None:
    """Checked by mypy and pyright; here only that it can be declared."""
    numbers: Source[str, int] = app.topic("numbers")
    assert_type(numbers.tumbling(1).aggregate(n=Count(), name="a"), Aggregated[str, int, dict[str, Any]])
    assert_type(
        numbers.tumbling(1).aggregate(n=Count(), total=Sum(), result=Summary, name="b"), Aggregated[str, int, Summary]
    )
    assert_type(numbers.tumbling(1).top(3, name="c"), Aggregated[str, int, list[Any]])
    rows = numbers.session(1).count(name="d").final().table("e")
    assert_type(rows, TableView[tuple[str, int, int], int])
    with pytest.raises(AppError, match="table e is used outside of an agent, and no worker of its app runs here"):
        assert_type(rows.get(("k", 0, 1)), int | None)
    assert_type(numbers.group_by_key().aggregate(int, max, result=str, name="f"), TableView[str, str])
