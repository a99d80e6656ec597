"""Nexmark as in Beam: how many results its smoke suite has of each query is published in Beam's documentation ("Nexmark
benchmark suite", "Output").

Of query 3 it says 444, and is not tried here: the generator gives 580 as a join of all time. That is no change of the
generator: how people and auctions are drawn is the same in Beam's first sources of it, and all events are within its
window of 10 s and its 600 s of waiting. Nor is it the pairs whose person comes first (514), nor three other states or
another category. Query 12 has windows of processing time, of which one takes all; here it is a count of all time.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from isthmus.streams import App
from isthmus.streams.api.pipeline import Source
from isthmus.streams.engine.event import Event
from isthmus.streams.engine.operators.processor import ProcessorContext, Timer
from isthmus.streams.engine.operators.windows import WindowResult
from tests.running import in_loop, run_by
from tests.streams.published.nexmark import STEP_MS, Made, events
from tests.streams.published.running import Given, Run, app_of

ALL, FEW = 100_000, 10_000
SIZE_S, PERIOD_S = 10, 5  # of windows

all_events = cache(lambda count: list(events(count)))


class Winning:
    """The bid that wins each auction, when it ends: the highest one of those that reach the reserve; of equal ones, the
    first. State: auction -> [the auction, its best bid] or, before it was seen, [None, its bids]. Beam's windows for
    this join have no lower bound of a bid's time."""

    def process(self, event: Event, context: ProcessorContext) -> None:
        auction, bids = context.state.get(event.key, [None, []])
        if "reserve" in event.value:
            auction = event.value
            context.set_timer(auction["expires"], event.key)
        else:
            bids = [*bids, event.value]
        if auction is not None:
            fit = [bid for bid in bids if bid["price"] >= auction["reserve"] and bid["at"] < auction["expires"]]
            bids = sorted(fit, key=lambda bid: (-bid["price"], bid["at"]))[:1]
        context.state[event.key] = [auction, bids]

    def on_timer(self, timer: Timer, context: ProcessorContext) -> None:
        key = timer[2]
        auction, bids = context.state.pop(key)
        for bid in bids:
            context.forward({"category": auction["category"], "price": bid["price"]}, key=key)


def winning(app: App) -> Source[int, dict[str, int]]:
    return app.stream("auctions", "bids").process(Winning, name="winning")


def most(best: list[list[int]], result: WindowResult[int, int]) -> list[list[int]]:
    """Those with the greatest count."""
    if best and result.value < best[0][1]:
        return best
    this = [result.key, result.value]
    return [*best, this] if best and result.value == best[0][1] else [this]


def pairs(result: WindowResult[int, list[dict[str, Any]]]) -> list[tuple[int, int]]:
    people = [each for each in result.value if "seller" not in each]
    return [(person["id"], each["id"]) for person in people for each in result.value if "seller" in each]


def q0(app: App) -> None:
    app.stream("people", "auctions", "bids").map(lambda value: value).to("out")


def q1(app: App) -> None:
    app.stream("bids").map(lambda bid: {**bid, "price": bid["price"] * 89 // 100}).to("out")


def q2(app: App) -> None:
    app.stream("bids").filter(lambda bid: bid["auction"] % 123 == 0).to("out")


def q4(app: App) -> None:
    by_category = winning(app).group_by(lambda won: won["category"], name="by-category")
    by_category.hopping(SIZE_S, PERIOD_S).mean(lambda won: won["price"]).final().to("out")


def q5(app: App) -> None:
    counts = app.stream("bids").hopping(SIZE_S, PERIOD_S).count(name="bids-per-auction").final()
    # what ends in the same period ends together
    ends = counts.group_by(lambda result: "all", name="all").tumbling(PERIOD_S).aggregate(list, most, name="hot")
    ends.final().flat_map(lambda result: result.value).to("out")


def q7(app: App) -> None:
    bids = app.stream("bids").group_by(lambda bid: "all", name="all")
    bids.tumbling(SIZE_S).reduce(lambda a, b: max(a, b, key=lambda bid: bid["price"])).final().to("out")


def q8(app: App) -> None:
    both = app.stream("people", "auctions").group_by(lambda each: each.get("seller", each["id"]), name="by-person")
    both.tumbling(SIZE_S).collect().final().flat_map(pairs).to("out")


def q9(app: App) -> None:
    winning(app).to("out")


def q11(app: App) -> None:
    app.stream("bids").group_by(lambda bid: bid["bidder"]).session(SIZE_S).count().final().to("out")


def q12(app: App) -> None:
    counts = app.stream("bids").group_by(lambda bid: bid["bidder"]).group_by_key().count(name="bids-per-bidder")
    counts.changes().filter(lambda change: change.old is None).to("out")


def given(event: Made) -> Given:
    """As producers would send it."""
    key = event.value["auction" if event.topic == "bids" else "id"]
    return Given(event.topic, key, event.value, event.timestamp_ms)


@pytest.mark.parametrize(
    ("query", "count", "results"),
    [
        (q0, ALL, 100_000),
        (q1, ALL, 92_000),
        (q2, ALL, 351),
        (q4, FEW, 40),
        (q5, ALL, 12),
        (q7, ALL, 1),
        (q8, ALL, 6_000),
        (q9, FEW, 298),
        (q11, ALL, 1_919),
        (q12, ALL, 1_919),
    ],
)
@run_by(in_loop)
async def test_a_query_has_as_many_results_as_in_beam(query: Callable[[App], None], count: int, results: int) -> None:
    app = app_of(query.__name__)
    query(app)
    run = Run(app)
    reads = app.input_topics()
    await run.give(given(event) for event in all_events(count) if event.topic in reads)
    await run.end()
    assert len(run.records("out")) == results
    await run.close()


GROUP, WINDOW_MS, CHUNK = 200, 1_000, 2_999


@pytest.mark.parametrize("delay_ms", [0, 700, GROUP * STEP_MS])
@pytest.mark.parametrize("grace_ms", [0, 300])
@pytest.mark.parametrize("step_ms", [WINDOW_MS, WINDOW_MS // 2])
@run_by(in_loop)
async def test_what_disorder_makes_late_is_left_out_and_given_apart(step_ms: int, grace_ms: int, delay_ms: int) -> None:
    bids = [given(event) for event in events(FEW * 4, GROUP) if event.topic == "bids"]
    app = app_of("late")
    topic = app.topic("bids", watermark_delay=delay_ms / 1000)
    windows = app.stream(topic).hopping(WINDOW_MS / 1000, step_ms / 1000, grace=grace_ms / 1000)
    counts = windows.count(name="counts")
    counts.final().to("out")
    counts.late.to("late")
    run = Run(app)
    for begin in range(0, len(bids), CHUNK):
        await run.give(bids[begin : begin + CHUNK], batches=(1, 7, 500))
        await run.restart(loses=bids[begin + CHUNK : begin + CHUNK + 100])  # what is late stays late
    await run.end()

    expected: Counter[tuple[int, int]] = Counter()
    late = []
    seen_ms = 0
    for bid in bids:
        seen_ms = max(seen_ms, bid.timestamp_ms)
        last_ms = bid.timestamp_ms // step_ms * step_ms
        starts = range(last_ms, bid.timestamp_ms - WINDOW_MS, -step_ms)
        still_open = [at_ms for at_ms in starts if at_ms + WINDOW_MS + grace_ms > seen_ms - delay_ms]
        expected.update((bid.key, at_ms) for at_ms in still_open)
        if not still_open:
            late.append(bid.value)
    finals = [(result["key"], result["start_ms"], result["value"]) for result in run.values("out")]
    assert sorted(finals) == sorted((*where, count) for where, count in expected.items())
    assert run.values("late") == late
    if step_ms == WINDOW_MS:  # two to a group, which is how long the disorder may be
        assert bool(late) == (delay_ms + grace_ms < GROUP * STEP_MS - WINDOW_MS)
    await run.close()
