"""What an app declares, step by step, and what it gives; names, and errors of declarations."""

from datetime import timedelta
from typing import Any, assert_type

import pytest

from isthmus.streams import App, Record
from isthmus.streams.api.aggregates import Sum
from isthmus.streams.api.pipeline import Aggregated, Late, Pipeline, Results, Source, TableView
from isthmus.streams.api.tables import Table
from isthmus.streams.engine.operators.table_sources import Change
from isthmus.streams.engine.operators.windows import WindowResult
from isthmus.streams.engine.tables import DISK, TableSpec
from isthmus.streams.errors import AppError
from tests.streams.flowing import Flowing

S = 1_000  # milliseconds


@pytest.fixture
def app() -> Pipeline:
    return Pipeline("shop")


def plain(run: Flowing, topic: str) -> list[tuple[Any, Any]]:
    return [(event.key, event.value) for event in run.sent[topic]]


def test_steps_of_one_event(app: Pipeline) -> None:
    seen: list[Any] = []
    source = app.topic("in")
    source.filter(lambda value: value > 1).map(lambda value: value * 10).peek(seen.append).to("out")
    source.flat_map(range).to("many")
    run = Flowing(app)
    run.send("in", ("a", 1, 0), ("a", 2, 1), ("b", 3, 2))
    assert plain(run, "out") == [("a", 20), ("b", 30)] and seen == [20, 30]
    assert run.values("many") == [0, 0, 1, 0, 1, 2]


def test_names_that_were_not_given_and_matter_are_told(app: Pipeline) -> None:
    source = app.topic("in")
    source.filter(bool).map(str).group_by(str, name="given").group_by_key().count()
    source.tumbling(5).count()
    source.group_by(str).to("out")
    assert app.shifting == ["given-count", "in-tumbling-count", "in-group_by"]


def test_group_by_goes_through_a_topic_of_the_app(app: Pipeline) -> None:
    grouped = app.topic("orders").group_by(lambda order: order["shop"], name="by-shop", partitions=3)
    grouped.tumbling(60).count(name="orders-per-shop").final().to("out")
    node = app.graph.nodes["by-shop"]
    assert (node.topics, node.partitions) == (("shop-by-shop-repartition",), 3)
    run = Flowing(app)
    run.send("orders", *[(n, {"shop": shop}, n) for n, shop in enumerate("xyx")])
    run.advance(60 * S)
    assert plain(run, "out") == [("x", WindowResult("x", 0, 60 * S, 2, 0)), ("y", WindowResult("y", 0, 60 * S, 1, 0))]


def test_windows_of_each_kind_and_what_they_give(app: Pipeline) -> None:
    source = app.topic("in")
    source.tumbling(10).sum(name="t").final().to("tumbling")
    source.hopping(timedelta(seconds=10), timedelta(seconds=5)).max(name="h").final().to("hopping")
    source.sliding(10).collect(name="sl").final().to("sliding")
    source.session(3).mean(name="se").final().to("session")
    source.tumbling(10).min(name="m").current().to("current")
    source.tumbling(10).reduce(lambda a, b: a - b, name="r").final().to("reduce")
    source.session(3).aggregate(str, lambda a, b: f"{a}{b}", merge=lambda a, b: a + b, name="a").final().to("aggregate")
    run = Flowing(app)
    run.send("in", ("k", 4, 1 * S), ("k", 2, 2 * S), ("k", 1, 12 * S))
    run.advance(100 * S)
    shown = {
        name: [(each.value.start_ms // S, each.value.value) for each in events] for name, events in run.sent.items()
    }
    assert shown == {
        "tumbling": [(0, 6), (10, 1)],
        "hopping": [(0, 4), (5, 1), (10, 1)],
        "sliding": [(0, [4, 2]), (1, [2]), (2, [2, 1]), (2, [1])],
        "session": [(1, 3.0), (12, 1.0)],
        "current": [(0, 2), (10, 1)],
        "reduce": [(0, 2), (10, 1)],
        "aggregate": [(1, "42"), (12, "1")],
    }


def test_late_events_are_a_source(app: Pipeline) -> None:
    counts = app.topic("in").tumbling(10, grace=2).count(name="n")
    counts.final().to("out")
    counts.late.map(lambda value: f"late {value}").to("late")
    run = Flowing(app)
    run.send("in", ("k", 1, 5 * S), ("k", 2, 12 * S), ("k", 3, 6 * S))
    assert run.values("late") == ["late 3"]


def test_finals_may_be_revised(app: Pipeline) -> None:
    app.topic("in").tumbling(10, retention=60).count(name="n").final(revise=True).to("out")
    run = Flowing(app)
    run.send("in", ("k", 1, 5 * S), ("k", 2, 12 * S), ("k", 3, 6 * S))
    assert [(result.value, result.revision) for result in run.values("out")] == [(1, 0), (2, 1)]


def test_sources_are_joined_within_a_time(app: Pipeline) -> None:
    orders, payments = app.topic("orders"), app.topic("payments")
    orders.join(payments, value=lambda a, b: (a, b), within=5, name="paid").to("paid")
    orders.left_join(payments, value=lambda a, b: (a, b), before=0, after=5, name="all").to("all")
    orders.outer_join(payments, value=lambda a, b: (a, b), within=timedelta(seconds=1), grace=1, name="both").to("both")
    run = Flowing(app)
    run.send("orders", ("k", "o1", 10 * S))
    run.send("payments", ("k", "p1", 8 * S), ("k", "p2", 13 * S))
    run.advance(60 * S)
    assert run.values("paid") == [("o1", "p1"), ("o1", "p2")]
    assert run.values("all") == [("o1", "p2")]
    assert run.values("both") == [(None, "p1"), ("o1", None), (None, "p2")]


def test_a_source_is_joined_with_itself(app: Pipeline) -> None:
    source = app.topic("in")
    pairs = source.join(source, value=lambda a, b: (a, b), within=5, name="self")
    pairs.to("out")
    pairs.late.to("late")
    run = Flowing(app)
    run.send("in", ("k", 1, 0), ("k", 2, 1), ("k", 3, 60 * S), ("k", 4, 2))
    assert run.values("out") == [(1, 1), (2, 1), (1, 2), (2, 2), (3, 3)]
    assert run.values("late") == [4]  # once, though it is left and right


def test_a_source_is_joined_with_tables(app: Pipeline) -> None:
    users = app.topic("users").table("users-now")
    prices = app.topic("prices").table("prices-then", history=60)
    rates = Table(TableSpec("rates"))
    orders = app.topic("orders")
    orders.left_join(users, value=lambda order, user: (order, user), key=lambda order: order["user"]).to("named")
    orders.join(prices, value=lambda order, price: price, grace=10, name="priced").to("priced")
    orders.join(rates, value=lambda order, rate: rate, name="rated").to("rated")
    run = Flowing(app, rates.spec)
    run.stores["rates"].set("k", 0.5)
    run.send("users", ("u", "Ada", 0))
    run.send("prices", ("k", 1, 0), ("k", 2, 20 * S))
    run.send("orders", ("k", {"user": "u"}, 15 * S), ("k", {"user": "x"}, 16 * S))
    run.advance(60 * S)
    assert [user for _, user in run.values("named")] == ["Ada", None]
    assert run.values("priced") == [1, 1] and run.values("rated") == [0.5, 0.5]
    # The watermark is waited for: topics need not come event by event, in the order of their times.
    assert [app.graph.nodes[name].is_joining for name in ("priced", "rated")] == [False, True]


def test_tables_are_joined_grouped_and_calmed(app: Pipeline) -> None:
    users = app.topic("users").table("users")
    cities = app.topic("cities").table("cities")
    addresses = app.topic("addresses").table("addresses")
    users.left_join(addresses, value=lambda user, street: (user["name"], street), name="where").stream().to("where")
    users.join(cities, key=lambda user: user["city"], value=lambda user, city: city, name="in").changes().to("in")
    users.outer_join(addresses, value=lambda *pair: len(pair), name="either").suppress(10).to("calm")
    per_city = users.group_by(lambda user: user["city"], name="by-city")
    per_city.count(name="users-per-city").stream().to("counts")
    per_city.sum(lambda user: user["age"], name="ages").stream().to("ages")
    run = Flowing(app)
    run.send("users", ("u", {"name": "Ada", "city": "x", "age": 36}, 0))
    run.send("cities", ("x", "London", 1))
    run.send("addresses", ("u", "St James's", 2))
    run.send("users", ("u", {"name": "Ada", "city": "y", "age": 36}, 3))
    run.advance(60 * S)
    assert run.values("where")[-1] == ("Ada", "St James's")
    assert run.values("in") == [Change(None, "London"), Change("London", None)]
    assert run.values("calm") == [Change(None, 2)]
    assert plain(run, "counts") == [("x", 1), ("x", 0), ("y", 1)]
    assert run.rows("ages") == {"x": 0, "y": 36}


def test_a_table_joined_twice_is_what_kafka_gives(app: Pipeline) -> None:
    # TableTableJoinIntegrationTest.testInnerInner: the last value of each key; for the last but one it says itself that
    # the tombstone, which ours gives, would be correct
    left, right = app.topic("left").table("l"), app.topic("right").table("r")
    dashed = "{}-{}".format
    left.join(right, value=dashed, name="one").join(right, value=dashed, name="two").stream().to("out")
    run = Flowing(app)
    last = []
    for at, (topic, value) in enumerate([("left", "A"), ("right", "a"), ("left", "B"), ("right", "b"), ("left", None)]):
        run.send(topic, (0, value, at))
        last.append(run.values("out")[-1:])
    assert last == [[], ["A-a-a"], ["B-a-a"], ["B-b-b"], [None]]


def test_dedup_and_processors(app: Pipeline) -> None:
    class Numbers:
        def process(self, event: Any, context: Any) -> None:
            context.state[event.key] = context.state.get(event.key, 0) + 1
            context.forward((event.value, context.state[event.key], dict(context.table("names"))))

        def on_timer(self, timer: Any, context: Any) -> None:
            raise AssertionError("it sets none")

    names = app.topic("names").table("names")
    once = app.topic("in").dedup(lambda value: value["id"], within=10, name="once")
    once.map(lambda value: value["id"]).process(Numbers, tables=[names], name="numbered").to("out")
    run = Flowing(app)
    run.send("names", ("n", "x", 0))
    run.send("in", *[("k", {"id": id}, at * S) for at, id in enumerate([1, 1, 2])])
    assert run.values("out") == [(1, 1, {"n": "x"}), (2, 2, {"n": "x"})]


def test_names_are_made_of_what_steps_do_and_steps_without_state_may_be_many(app: Pipeline) -> None:
    source = app.topic("in")
    source.filter(bool).filter(bool).tumbling(1).count().final().tumbling(5).count().final()
    source.join(app.topic("other"), value=lambda a, b: None, within=1)
    source.group_by(str).dedup(within=1)
    assert [name for name, node in app.graph.nodes.items() if node.specs] == [
        "in-tumbling-count",
        "in-tumbling-count-tumbling-count",
        "in-other-join",
        "in-group_by-dedup",
    ]
    assert "in-filter-2" in app.graph.nodes


def test_where_tables_are(app: Pipeline) -> None:
    disk = Pipeline("shop", store=DISK)
    for pipeline in (app, disk):
        pipeline.topic("in").table("t")
    assert [each.graph.specs["t"].store for each in (app, disk)] == ["memory", "disk"]


def test_rows_of_a_table_may_end(app: Pipeline) -> None:
    app.topic("in").table("t", ttl=10).stream().to("out")
    run = Flowing(app)
    run.send("in", ("k", 1, 0), ("other", 2, 11 * S))
    assert plain(run, "out") == [("k", 1), ("k", None), ("other", 2)]


def test_two_steps_with_state_of_one_name_are_refused(app: Pipeline) -> None:
    app.topic("in").filter(bool).tumbling(1).count()
    with pytest.raises(AppError, match=r"two steps are called in-tumbling-count, .* Give one of them a name="):
        app.topic("in").tumbling(1).count()
    app.topic("in").tumbling(1).count(name="other")


def test_windows_give_current_or_final_results(app: Pipeline) -> None:
    counts = app.topic("in").tumbling(1).count(name="n")
    counts.current().to("a")
    counts.current().to("b")
    with pytest.raises(AppError, match=r"windows n: current\(\) and final\(\) are two steps"):
        counts.final()


@pytest.mark.parametrize(
    "declare",
    [
        lambda source, other: source.map("total"),
        lambda source, other: source.branch(bool, "total"),
        lambda source, other: source.group_by("total"),
        lambda source, other: source.dedup("total", within=1),
        lambda source, other: source.join(other, within=1, value="total"),
        lambda source, other: source.join(other.table("t"), key="total", value=lambda a, b: None),
        lambda source, other: source.table("s").left_join(other.table("t"), key="total", value=lambda a, b: None),
        lambda source, other: source.table("s").group_by("total"),
        lambda source, other: source.tumbling(1).reduce("total"),
    ],
)
def test_what_is_no_function_is_refused_where_it_is_declared(app: Pipeline, declare: Any) -> None:
    with pytest.raises(AppError, match=r"'total' is no function: a field is lambda value: value\['total'\]"):
        declare(app.topic("in"), app.topic("other"))


def test_steps_read_what_their_own_app_declares(app: Pipeline) -> None:
    source, other = app.topic("in"), Pipeline("bank").topic("in")
    for declare in (
        lambda: source.merge(other),
        lambda: source.join(other, within=1, value=max),
        lambda: source.outer_join(other, within=1, value=max),
        lambda: source.left_join(other.table("t"), value=max),
        lambda: source.table("t").join(other.table("u"), value=max),
    ):
        with pytest.raises(AppError, match="is of another app than shop"):
            declare()


def test_options_of_joins_that_are_not_there_are_named(app: Pipeline) -> None:
    source: Any = app.topic("in")
    with pytest.raises(AppError, match=r"join paid: a join with a source has no option garce=: is it grace=\?"):
        source.join(app.topic("other"), within=1, garce=1, value=max, name="paid")
    with pytest.raises(AppError, match="a join with a table has no option within=: there are key=, grace="):
        source.left_join(app.topic("other").table("t"), within=1, value=max)


def test_a_field_is_added_up_by_its_name(app: Pipeline) -> None:
    orders = app.topic("orders")
    orders.tumbling(60).sum("total", name="windows").current().to("sums")
    orders.group_by_key().max("total", name="keys").stream().to("largest")
    orders.table("rows").group_by(lambda order: "all", name="all").sum("total", name="groups").stream().to("of-rows")
    run = Flowing(app)
    run.send("orders", ("a", {"total": 3}, 1), ("a", {"total": 4}, 2))
    assert [each.value for each in run.values("sums")] == [7]
    assert run.values("largest")[-1] == 4 and run.values("of-rows")[-1] == 4


def test_a_field_of_a_record_stands_for_a_function_of_it(app: Pipeline) -> None:
    class Order(Record):
        shop: Any
        total: Any

    assert App("shop").topic("orders", timestamp=Order.total).timestamp is Order.total
    assert Sum(Order.total).of_values.computes == Sum("total").of_values.computes
    orders = app.topic("orders")
    by_shop = orders.group_by(Order.shop, name="by-shop").group_by_key()
    by_shop.sum(Order.total, name="shops").stream().to("shops")
    orders.table("rows").group_by(Order.shop, name="groups").count(name="counts").stream().to("counts")
    run = Flowing(app)
    run.send("orders", ("a", Order("x", 3), 1), ("b", Order("y", 4), 2), ("c", Order("x", 5), 3))
    assert plain(run, "shops") == [("x", 8), ("y", 4)]
    assert dict(plain(run, "counts")) == {"x": 2, "y": 1}


def test_declarations_that_cannot_be(app: Pipeline) -> None:
    source, other = app.topic("in"), app.topic("other")
    with pytest.raises(AppError, match="join in-other-join: say how far apart events may be"):
        source.join(other, value=lambda a, b: None)
    with pytest.raises(AppError, match=r"takes a source or a table, and not 5: app.stream\(topic\) is the source"):
        source.join(5, value=lambda a, b: None)  # type: ignore[call-overload]
    with pytest.raises(AppError, match=r"to\(\) takes a topic or its name, and not 5"):
        source.to(5)
    with pytest.raises(AppError, match="give them a retention="):
        source.tumbling(1).count(name="never").final(revise=True)
    with pytest.raises(AppError, match="windows slid: only tumbling and hopping windows can be revised"):
        source.sliding(1).count(name="slid").final(revise=True)
    with pytest.raises(AppError, match="sessions s: the aggregation needs `merge`"):
        source.session(1).aggregate(int, lambda a, b: a, name="s")
    with pytest.raises(AppError, match="size is 'long', but must be seconds or a timedelta"):
        source.tumbling("long")  # type: ignore[arg-type]
    with pytest.raises(AppError, match="table t must have a history= of at least the grace"):
        source.join(app.topic("t-in").table("t"), value=lambda a, b: None, grace=1)
    with pytest.raises(AppError, match="table u: it can have a history or a ttl, not both"):
        source.table("u", history=1, ttl=1)
    with pytest.raises(AppError, match="a source needs the name of a topic"):
        app.topic()


def test_types_are_followed(app: Pipeline) -> None:
    """Checked by mypy and pyright; here only that it can be declared."""
    numbers: Source[str, int] = app.topic("numbers")
    texts: Source[str, str] = app.topic("texts")
    assert_type(numbers.map(str), Source[str, str])
    assert_type(numbers.group_by(lambda n: n > 1, name="g"), Source[bool, int])
    assert_type(numbers.tumbling(1).count(name="n"), Aggregated[str, int, int])
    assert_type(numbers.tumbling(1).reduce(max, name="r").final(), Results[str, int])
    assert_type(numbers.tumbling(1).collect(name="c").late, Source[str, int])

    def pair(number: int, text: str) -> tuple[int, str]:
        return number, text

    def half(number: int, text: str | None) -> tuple[int, str | None]:
        return number, text

    table: TableView[str, str] = texts.table("t")
    assert_type(numbers.join(texts, value=pair, within=1, name="j1"), Late[str, tuple[int, str]])
    assert_type(numbers.left_join(texts, value=half, within=1, name="j2"), Late[str, tuple[int, str | None]])
    assert_type(numbers.join(table, value=pair, name="j3"), Source[str, tuple[int, str]])
    assert_type(table.stream(), Source[str, str | None])
    assert_type(table.changes(), Source[str, Change[str]])
    assert_type(numbers.group_by_key().mean(name="m"), TableView[str, float])
    assert_type(table.group_by(len, name="l").count(), TableView[int, int])


def test_one_processor_for_all_tasks_is_refused(app: Pipeline) -> None:
    class Forwards:
        def process(self, event: Any, context: Any) -> None: ...

        def on_timer(self, timer: Any, context: Any) -> None: ...

    with pytest.raises(AppError, match=r"process own: .*each task needs its own"):
        app.topic("in").process(Forwards(), name="own")  # type: ignore[arg-type]
