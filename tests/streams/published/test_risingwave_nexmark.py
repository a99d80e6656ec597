"""Nexmark's queries over the few rows of RisingWave's tests, and row by row what those say of each query.

`risingwave.json` has the rows. Times are in ms after midnight. Of people and auctions it lacks what no query here uses:
addresses, cards, and `extra`.
"""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from isthmus.streams import App
from isthmus.streams.aggregates import Aggregate, Count, CountDistinct, Last, Max, Mean, Min, Sum, TopN
from isthmus.streams.api.pipeline import Source, TableView
from isthmus.streams.engine.operators.windows import WindowResult
from tests.running import in_loop, run_by
from tests.streams.published.nexmark import BASE_MS
from tests.streams.published.running import Given, Run, app_of, in_time_order

Row = list[Any]
Read = Callable[[Run], Iterable[Any]]

DAY_S = 24 * 60 * 60
HOUR_MS = 60 * 60 * 1000
COLUMNS = {
    "people": ("id", "name", "city", "state", "at"),
    "auctions": ("id", "item", "description", "initial", "reserve", "at", "expires", "seller", "category"),
    "bids": ("auction", "bidder", "price", "channel", "url", "at", "extra"),
}
CHANNELS = {"apple": 0, "google": 1, "facebook": 2, "baidu": 3}
RANKS = ((0, 1 << 62), (0, 10_000), (10_000, 1_000_000), (1_000_000, 1 << 62))  # prices: all, and of three ranks


@cache
def data() -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = json.loads(Path(__file__).with_name("risingwave.json").read_text())
    return found


def inputs(topic: str) -> list[Given]:
    named = [dict(zip(COLUMNS[topic], row, strict=True)) for row in data()[topic]]
    return [Given(topic, row[COLUMNS[topic][0]], row, BASE_MS + row["at"]) for row in named]


def of(value: dict[str, Any], *names: str) -> Row:
    return [value[name] for name in names]


def sent(run: Run) -> list[Any]:
    return run.values("out")


def q0(app: App) -> Read:
    app.stream("bids").map(lambda bid: of(bid, "auction", "bidder", "price", "at")).to("out")
    return sent


def euros(bid: dict[str, Any]) -> dict[str, Any]:
    return {**bid, "price": 0.908 * bid["price"]}


def q1(app: App) -> Read:
    app.stream("bids").map(euros).map(lambda bid: of(bid, "auction", "bidder", "price", "at")).to("out")
    return sent


def q2(app: App) -> Read:
    some = app.stream("bids").filter(lambda bid: bid["auction"] in (1007, 1020, 2001, 2019, 2087))
    some.map(lambda bid: of(bid, "auction", "price")).to("out")
    return sent


def q3(app: App) -> Read:
    auctions = app.stream("auctions").filter(lambda auction: auction["category"] == 10).table("auctions")
    people = app.stream("people").filter(lambda person: person["state"] in ("or", "id", "ca")).table("people")
    auctions.join(
        people,
        key=lambda auction: auction["seller"],
        value=lambda auction, person: [*of(person, "name", "city", "state"), auction["id"]],
        name="sellers",
    )
    return lambda run: run.driver.table("sellers").values()


def in_time(app: App) -> Source[int, Any]:
    """Bids with their auctions, while those last."""
    auctions = app.stream("auctions").table("auctions")
    both = app.stream("bids").join(auctions, value=lambda bid, auction: {"bid": bid, **auction})
    return both.filter(lambda each: each["at"] <= each["bid"]["at"] <= each["expires"])


def better(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """The one with the higher bid; of equal ones, the earlier one."""
    return min(a, b, key=lambda each: (-each["bid"]["price"], each["bid"]["at"]))


def q4(app: App) -> Read:
    best = in_time(app).group_by_key().reduce(better, name="best")
    best.group_by(lambda each: each["category"], name="by-category").aggregate(
        lambda: [0, 0],
        lambda total, each: [total[0] + each["bid"]["price"], total[1] + 1],
        lambda total, each: [total[0] - each["bid"]["price"], total[1] - 1],
        name="totals",
    )
    return lambda run: [[category, sum / n] for category, (sum, n) in run.driver.table("totals").items()]


def q5(app: App) -> Read:
    counts = app.stream("bids").hopping(10, 2).count(name="bids-per-auction").final()
    ends = counts.group_by(lambda result: "all", name="all").tumbling(2)
    hot = ends.top(1, "value", of=lambda result: [result.key, result.value], ties=True, name="hot").final()
    hot.flat_map(lambda result: result.value).to("out")
    return sent


def averages(all: list[Row]) -> list[float]:
    """Of each price and the ten before it."""
    prices = [price for _, price in all]
    return [sum(prices[max(at - 10, 0) : at + 1]) / (at + 1 - max(at - 10, 0)) for at in range(len(prices))]


def q6(app: App) -> Read:
    best = in_time(app).group_by_key().top(1, by=lambda each: each["bid"]["price"], least=True, name="best")
    sellers = best.group_by(lambda first: first[0]["seller"], name="by-seller")
    in_order = TopN(
        1_000, by=lambda first: first[0]["bid"]["at"], of=lambda first: of(first[0]["bid"], "at", "price"), least=True
    )
    sellers.aggregate(all=in_order, result=averages, name="averages")
    return lambda run: [[seller, each] for seller, found in run.driver.table("averages").items() for each in found]


def q7(app: App) -> Read:
    bids = app.stream("bids").group_by(lambda bid: "all", name="all").tumbling(10)
    highest = bids.reduce(lambda a, b: max(a, b, key=lambda bid: bid["price"]), name="highest").final()
    highest.map(lambda result: of(result.value, "auction", "price", "bidder", "at")).to("out")
    return sent


def q8(app: App) -> Read:
    people = app.stream("people").tumbling(10).aggregate(person=Last("name"), name="people").final()
    sellers = app.stream("auctions").group_by(lambda auction: auction["seller"], name="by-seller")
    new = people.join(
        sellers.tumbling(10).count(name="sellers").final(),
        value=lambda person, auctions: [person.key, person.value["person"], person.start_ms - BASE_MS],
    )
    new.to("out")
    return sent


def q9(app: App) -> Read:
    in_time(app).group_by_key().reduce(better, name="best")
    auction = ("id", "initial", "reserve", "at", "expires", "seller", "category")
    rows = ("auction", "bidder", "price", "at")
    return lambda run: [[*of(row, *auction), *of(row["bid"], *rows)] for row in run.driver.table("best").values()]


def q10(app: App) -> Read:
    def written(bid: dict[str, Any]) -> Row:
        at = datetime.fromtimestamp((BASE_MS + bid["at"]) / 1000, UTC)
        return [*of(bid, "auction", "bidder", "price", "at"), f"{at:%Y-%m-%d}", f"{at:%I:%M}"]

    app.stream("bids").map(written).to("out")
    return sent


def part_of_day(at_ms: int) -> str:
    hour = at_ms // HOUR_MS
    return "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"


def q14(app: App) -> Read:
    some = app.stream("bids").map(euros).filter(lambda bid: 1_000_000 < bid["price"] < 50_000_000)
    rows = some.map(
        lambda bid: [*of(bid, "auction", "bidder", "price"), part_of_day(bid["at"]), bid["at"], bid["extra"].count("c")]
    )
    rows.to("out")
    return sent


def day(result: WindowResult[Any, Any]) -> str:
    return datetime.fromtimestamp(result.start_ms / 1000, UTC).date().isoformat()


def of_rank(rank: tuple[int, int], name: str) -> Callable[[dict[str, Any]], Any]:
    """A field of bids whose price is of a rank, and None of others, which aggregates leave out."""
    low, high = rank
    return lambda bid: bid[name] if low <= bid["price"] < high else None


def per_rank(aggregate: Callable[[Any], Aggregate], name: str) -> dict[str, Aggregate]:
    return {f"{aggregate.__name__}-{name}-{rank}": aggregate(of_rank(rank, name)) for rank in RANKS}


COUNTS = per_rank(Count, "price") | per_rank(CountDistinct, "bidder") | per_rank(CountDistinct, "auction")


def row(**columns: Any) -> Row:
    return list(columns.values())


def q15(app: App) -> Read:
    bids = app.stream("bids").group_by(lambda bid: "all", name="all").tumbling(DAY_S)
    days = bids.aggregate(**COUNTS, result=row, name="days").final()
    days.map(lambda result: [day(result), *result.value]).to("out")
    return sent


def q16(app: App) -> Read:
    bids = app.stream("bids").group_by(lambda bid: bid["channel"], name="by-channel").tumbling(DAY_S)
    days = bids.aggregate(**COUNTS, result=row, name="days").final()
    days.map(lambda result: [result.key, *result.value]).to("out")
    return sent


def q17(app: App) -> Read:
    prices = {each.kind: each for each in (Min("price"), Max("price"), Mean("price"), Sum("price"))}
    days = app.stream("bids").tumbling(DAY_S).aggregate(**per_rank(Count, "price"), **prices, result=row, name="days")
    days.final().map(lambda result: [result.key, day(result), *result.value]).to("out")
    return sent


def q18(app: App) -> Read:
    pairs = app.stream("bids").group_by(lambda bid: (bid["bidder"], bid["auction"]), name="by-pair").group_by_key()
    pairs.top(1, by=lambda bid: (-bid["at"], bid["extra"]), least=True, name="last")
    return lambda run: [of(bid, *COLUMNS["bids"]) for [bid] in run.driver.table("last").values()]


def q19(app: App) -> Read:
    app.stream("bids").group_by_key().top(10, by="price", name="best")
    return lambda run: [
        [*of(bid, *COLUMNS["bids"]), rank]
        for bids in run.driver.table("best").values()
        for rank, bid in enumerate(bids, 1)
    ]


def q20(app: App) -> Read:
    auctions = app.stream("auctions").filter(lambda auction: auction["category"] == 10).table("auctions")
    names = ("initial", "reserve", "at", "expires", "seller", "category")
    both = app.stream("bids").join(
        auctions, value=lambda bid, auction: [*of(bid, *COLUMNS["bids"]), *of(auction, *names)]
    )
    both.to("out")
    return sent


def channel_id(bid: dict[str, Any]) -> int | None:
    known = CHANNELS.get(bid["channel"].lower())
    _, _, given = bid["url"].partition("&channel_id=")
    return known if known is not None else int(given) if given else None


def q21(app: App) -> Read:
    rows = app.stream("bids").map(lambda bid: [*of(bid, "auction", "bidder", "price", "channel"), channel_id(bid)])
    rows.filter(lambda row: row[-1] is not None).to("out")
    return sent


def q22(app: App) -> Read:
    names = ("auction", "bidder", "price", "channel")
    app.stream("bids").map(lambda bid: [*of(bid, *names), *bid["url"].split("/")[3:6]]).to("out")
    return sent


def item(auction: dict[str, Any]) -> Row:
    """As its test prints it: with single spaces."""
    return [auction["id"], " ".join(auction["item"].split())]


def rows(table: str) -> Read:
    return lambda run: run.driver.table(table).values()


def q101(app: App) -> Read:
    best = app.stream("bids").group_by_key().max(lambda bid: bid["price"], name="best")
    auctions = app.stream("auctions").table("auctions")
    auctions.left_join(best, value=lambda auction, price: [*item(auction), price], name="highest")
    return rows("highest")


def bids_per_auction(app: App) -> TableView[int, Row]:
    counts = app.stream("bids").group_by_key().count(name="counts")
    return counts.join(app.stream("auctions").table("auctions"), value=lambda n, each: [*item(each), n], name="bids-of")


def q102(app: App) -> Read:
    all = app.stream("bids").group_by(lambda bid: "all", name="all").group_by_key()
    mean = all.aggregate(n=Count(), auctions=CountDistinct("auction"), name="mean")
    bids_per_auction(app).join(
        mean, key=lambda row: "all", value=lambda row, of: [*row, row[-1] >= of["n"] // of["auctions"]], name="many"
    )
    return lambda run: [each for *each, is_many in run.driver.table("many").values() if is_many]


def q103(app: App) -> Read:
    bids_per_auction(app)
    return lambda run: [each for *each, n in run.driver.table("bids-of").values() if n >= 20]


def q104(app: App) -> Read:
    counts = app.stream("bids").group_by_key().count(name="counts")
    auctions = app.stream("auctions").table("auctions")
    auctions.left_join(counts, value=lambda auction, n: [*item(auction), n], name="all")
    return lambda run: [each for *each, n in run.driver.table("all").values() if n is None or n >= 20]


def q105(app: App) -> Read:
    bids_per_auction(app).group_by(lambda row: "all", name="all").top(1_000, by=lambda row: row[-1], name="top")
    return lambda run: run.driver.table("top")["all"]


def q106(app: App) -> Read:
    best = in_time(app).group_by_key().max(lambda each: each["bid"]["price"], name="best")
    best.group_by(lambda price: "all", name="all").aggregate(least=Min(), result=row, name="least")
    return rows("least")


QUERIES = [
    *(q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q14, q15, q16, q17, q18, q19, q20, q21, q22),
    *(q101, q102, q103, q104, q105, q106),
]


@pytest.mark.parametrize("batch", [1, 9, 50])
@pytest.mark.parametrize("query", QUERIES)
@run_by(in_loop)
async def test_a_query_has_the_rows_that_risingwave_says(query: Callable[[App], Read], batch: int) -> None:
    app = app_of(query.__name__)
    read = query(app)
    run = Run(app)
    reads = app.input_topics()
    await run.give(in_time_order(*(inputs(topic) for topic in COLUMNS if topic in reads)), batches=(batch,))
    await run.end()
    found, expected = sorted(read(run)), sorted(data()[query.__name__])
    assert len(found) == len(expected)
    for each, other in zip(found, expected, strict=True):
        assert each == [pytest.approx(value) if isinstance(value, float) else value for value in other]
    await run.close()
