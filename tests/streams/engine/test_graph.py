"""The graph's parts, and a chain: order, watermarks between operators, and ends."""

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.api.pipeline import Pipeline
from isthmus.streams.engine.event import Event
from isthmus.streams.engine.graph import Chain, Graph, Kind, Node, awaited_topics
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.time import Watermarks
from isthmus.streams.engine.topology import Reader, Topology
from isthmus.streams.errors import AppError
from tests.streams.flowing import Flowing


def test_parts_are_what_hangs_together() -> None:
    app = Pipeline("app")
    app.topic("a").map(str).to("out")
    app.topic("b").group_by(str, name="by").tumbling(1).count(name="n").current().to("out")
    app.topic("unread")
    found = app.graph.readers()
    assert found == [
        Reader("a-map", ("a",), ()),
        Reader("by-key", ("b",), ()),
        Reader("n", ("app-by-repartition",), ("n",)),
    ]


def test_tables_tie_the_topics_of_a_join() -> None:
    app = Pipeline("app")
    users = app.topic("users").table("users-now")
    app.topic("orders").join(users, value=lambda order, user: None).to("out")
    app.topic("payments").join(app.topic("refunds"), value=lambda a, b: None, within=1, name="pair").to("out")
    topology = Topology("app", app.graph.readers())
    assert sorted(topology.subtopologies) == ["orders+users", "payments+refunds"]
    assert topology.of_topic("users").tables == ("users-now",)
    assert [reader.is_joining for reader in app.graph.readers()] == [True, True]


def test_a_step_waits_for_its_part_s_topics_but_not_for_what_comes_of_it_or_beside_it() -> None:
    app = Pipeline("app")
    left, right = app.topic("left").table("l"), app.topic("right").table("r")
    left.join(right, key=str, value=lambda a, b: None, name="j")
    response, request = "app-j-response-repartition", "app-j-request-repartition"
    source = app.topic("a")
    source.join(app.topic("b"), value=lambda a, b: None, within=1, name="pair").to("out")
    source.group_by(str, name="by")
    awaited = awaited_topics(app.graph.parts())
    assert {name: awaited[name] for name in ("j-request", "j", "j-response", "pair", "by")} == {
        "j-request": {"left"},
        "j": {"left", response},
        "j-response": {"right", request},
        "pair": {"a", "b"},
        "by": {"a"},
    }


def test_a_step_with_more_sources_is_no_further_than_all_of_them() -> None:
    app = Pipeline("app")
    app.topic("a").merge(app.topic("b")).tumbling(0.010).count(name="n").final().to("out")
    stores = {name: MemoryStore(spec) for name, spec in app.graph.specs.items()}
    both = Watermarks(["a", "b"])
    others = {name: both for name in app.graph.nodes if name != "topic a"}
    chain = Chain(app.graph.nodes.values(), stores, Watermarks(["a"]), others=others)
    events = [Event("k", "v", at, topic, 0, at) for topic, at in [("a", 30), ("b", 5), ("b", 20)]]
    given = [chain.process(event.topic, [event], 0) for event in events]
    assert [[(event.value.start_ms, event.value.value) for event in each.get("n-to-out", ())] for each in given] == [
        [],
        [],
        [(0, 1)],
    ]


def test_two_nodes_or_tables_of_one_name_are_refused() -> None:
    graph = Graph("app")
    graph.add(Node("a", Kind.TOPIC, topics=("a",)))
    with pytest.raises(AppError, match=r"app app: two steps are called a, .* Give one of them a name="):
        graph.add(Node("a", Kind.SINK))
    app = Pipeline("app")
    app.topic("a").join(app.topic("b"), value=lambda a, b: None, within=1, name="j")
    with pytest.raises(AppError, match="step j-left would have table j-left, which another step has"):
        app.topic("a").table("j-left")


def test_finals_of_small_windows_are_in_time_for_large_ones() -> None:
    app = Pipeline("app")
    small = app.topic("in").tumbling(0.010, grace=0.005).count(name="small").final()
    large = small.tumbling(0.100).sum(lambda result: result.value, name="large")
    large.final().to("out")
    large.late.to("late")
    run = Flowing(app)
    for at in [*range(0, 300, 7), 95, 294]:
        run.send("in", ("k", "v", at))
    run.advance(1_000)
    assert [(result.start_ms, result.value) for result in run.values("out")] == [(0, 15), (100, 14), (200, 15)]
    assert run.values("late") == []


def test_an_end_is_complete_up_to_what_windows_still_hold_back() -> None:
    app = Pipeline("app")
    app.topic("in").tumbling(0.010, grace=0.005).count().final().group_by(lambda result: "all", name="by")
    [end] = [node.name for node in app.graph.nodes.values() if node.kind is Kind.REPARTITION]
    chain = Flowing(app).chains["in"]
    found = []
    for at in (3, 14, 15, 26):
        complete_ms, *_ = chain.told(end)
        given = chain.process("in", [Event("k", "v", at, "in", 0, at)], 0).get(end, [])
        found.append((complete_ms, [event.timestamp_ms for event in given]))
    assert found == [(-1, []), (-1, []), (9, [9]), (10, [19])]


def test_branches_that_meet_again_are_in_the_order_of_their_events() -> None:
    app = Pipeline("app")
    odd, even = app.topic("in").branch(lambda value: value % 2)
    odd.map(lambda value: f"odd {value}").merge(even.map(lambda value: f"even {value}")).to("out")
    run = Flowing(app)
    run.send("in", *[("k", value, value) for value in range(5)])
    assert run.values("out") == ["even 0", "odd 1", "even 2", "odd 3", "even 4"]


def test_windows_that_time_closes_at_once_are_joined_in_the_order_of_time() -> None:
    app = Pipeline("app")
    counts, sums = app.topic("in").tumbling(1).count().final(), app.topic("in").tumbling(1).sum().final()
    counts.join(sums, value=lambda n, sum: (n.start_ms, n.value, sum.value), within=0, name="both").to("out")
    run = Flowing(app)
    run.send("in", *[("k", at, at * 1_000) for at in range(4)])
    run.advance(60_000)
    assert run.values("out") == [(at * 1_000, 1, at) for at in range(4)]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 100)), max_size=30),
    st.integers(0, 20),
    st.integers(1, 30),
)
def test_events_wait_in_joins_for_windows_that_close_later(
    events: list[tuple[str, int]], grace: int, batch: int
) -> None:
    """Each event is joined with the windows that it is in, however long those take events; late ones are not."""
    app = Pipeline("app")
    source = app.topic("in")
    windows = source.tumbling(0.01, grace=grace / 1_000).collect(name="windows")
    both = source.join(windows.final(), before=0, after=0.01, value=lambda at, window: (at, window.start_ms), name="j")
    both.to("out")
    windows.late.to("late")
    run = Flowing(app)
    for begin in range(0, len(events), batch):
        run.send("in", *[(key, at, at) for key, at in events[begin : begin + batch]])
    run.advance(1_000)
    seen = 0
    late: list[int] = []
    starts: set[tuple[str, int]] = set()
    for key, at in events:
        seen = max(seen, at)
        if at // 10 * 10 + 10 + grace <= seen:
            late.append(at)
        else:
            starts.add((key, at // 10 * 10))
    assert run.values("late") == late
    # the join is as far behind as the windows may be: their grace, and the millisecond in which they close
    seen_at = accumulate((at for _, at in events), max)
    in_time = [event for event, seen in zip(events, seen_at, strict=True) if event[1] + 11 > seen - grace - 1]
    pairs = [
        (at, start) for key, at in in_time for other, start in starts if key == other and at <= start + 9 <= at + 10
    ]
    assert sorted(run.values("out")) == sorted(pairs)


def test_an_event_meets_the_row_that_it_has_made_not_that_of_a_later_one() -> None:
    app = Pipeline("app")
    source = app.topic("in")
    source.join(source.table("last"), value=lambda value, row: (value, row)).to("out")
    run = Flowing(app)
    run.send("in", *[("k", value, value) for value in range(3)])
    assert run.values("out") == [(0, 0), (1, 1), (2, 2)]


def test_a_topic_with_nothing_to_read_does_not_keep_windows_open() -> None:
    app = Pipeline("app")
    users = app.topic("users").table("users-now")
    orders = app.topic("orders").left_join(users, value=lambda order, user: order)
    orders.tumbling(0.010).count(name="n").final().to("out")
    run = Flowing(app)
    run.send("orders", ("k", 1, 1), ("k", 2, 12))
    assert run.values("out") == []
    run.tick(1_000, idle=["users"])
    assert [(result.value, result.missing) for result in run.values("out")] == [(1, ())]


def test_what_all_topics_have_is_complete_when_none_has_more() -> None:
    app = Pipeline("app")
    app.topic("a").merge(app.topic("b")).tumbling(0.010).count(name="n").final().to("out")
    run = Flowing(app)
    run.send("a", ("k", 1, 1), ("k", 2, 12))
    run.tick(1_000, idle=["a", "b"])
    assert [result.value for result in run.values("out")] == [1]


def test_what_ticks_cause_goes_on() -> None:
    class Beat:
        def process(self, event: Any, context: Any) -> None:
            context.set_timer(50, event.key, wall_clock=True)

        def on_timer(self, timer: Any, context: Any) -> None:
            context.forward("beat")

    app = Pipeline("app")
    app.topic("in").process(Beat).map(str.upper).to("out")
    run = Flowing(app)
    run.send("in", ("k", 1, 1))
    run.tick(49)
    assert run.values("out") == []
    run.tick(50)
    assert run.values("out") == ["BEAT"]


EVENT = st.tuples(st.sampled_from(["left", "right"]), st.sampled_from("AB"), st.integers(0, 60))


def given_by(groups: list[tuple[str, list[Any]]], restarts: tuple[int, ...] = ()) -> dict[str, list[Any]]:
    """What a graph of many steps gives for runs of events of one topic each. restarts: before which of them."""
    app = Pipeline("app")
    left, right = app.topic("left"), app.topic("right")
    pairs = left.left_join(right, value=lambda a, b: (a, b), within=0.010, grace=0.005, name="pairs")
    pairs.late.to("late")
    pairs.filter(lambda pair: pair[0] != pair[1]).tumbling(0.020, grace=0.010).count(name="n").final().to("n")
    left.join(right.table("t", ttl=0.020), value=lambda a, b: (a, b), name="looked-up").to("looked-up")
    left.merge(right).dedup(within=0.004, name="once").to("once")
    run = Flowing(app)
    for number, (topic, records) in enumerate(groups):
        if number in restarts:
            run.restart()
        run.send(topic, *records)
    run.advance(1_000)
    return {name: [(e.key, e.value, e.timestamp_ms) for e in events] for name, events in run.sent.items()}


@given(st.lists(EVENT, max_size=30))
def test_a_whole_graph_gives_the_same_in_any_batches(events: list[Any]) -> None:
    singles = [(topic, [(key, number, at)]) for number, (topic, key, at) in enumerate(events)]
    together: list[tuple[str, list[Any]]] = []
    for topic, records in singles:
        if together and together[-1][0] == topic:
            together[-1][1].extend(records)
        else:
            together.append((topic, list(records)))
    assert given_by(together) == given_by(singles)


@given(st.lists(EVENT, max_size=30), st.lists(st.integers(0, 30), max_size=3))
def test_a_whole_graph_gives_the_same_whatever_restarts(events: list[Any], restarts: list[int]) -> None:
    singles = [(topic, [(key, number, at)]) for number, (topic, key, at) in enumerate(events)]
    assert _sorted(given_by(singles, tuple(restarts))) == _sorted(given_by(singles))


def _sorted(given: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Results that are due at once may come in another order after a restart."""
    return {name: sorted(events, key=repr) for name, events in given.items()}
