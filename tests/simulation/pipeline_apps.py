"""A stream app of many parts for scenarios, and what must hold of all that it writes.

Pipelines: events without duplicates, joined with a stream and with tables, and regrouped by another key for counts and
windows; windows and sessions of an input; two tables joined by a foreign key. Agents: one with a table of two versions,
one that asks another one, one that takes several events at a time, and one that fails at some. What is between two
parts is in a topic whose log says in which order it was processed, so that each part is compared with its own input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import orjson

from isthmus.client import Client
from isthmus.streams import App, AppError, table_reader

from .history import Batch
from .hosts import Process
from .runner import Simulation
from .stream_apps import AT_LEAST_ONCE, EXACTLY_ONCE, NobodyTells, Read, committed

APP = "app"
ORDERS, PAYMENTS, LIMITS, REGIONS = "orders", "payments", "limits", "regions"  # inputs of pipelines
ITEMS, PRICES = "items", "prices"  # tables, of which one refers to the other
VISITS, NOTES, QUESTIONS = "visits", "notes", "questions"  # and of agents
INPUTS = {ORDERS: 2, PAYMENTS: 3, LIMITS: 2, REGIONS: 1, ITEMS: 2, PRICES: 2, VISITS: 2, NOTES: 1, QUESTIONS: 1}
PAID, CLOSED, LATE, LIMITED, COUNTED, NOTED, ANSWERED = (
    "paid", "closed", "late", "limited", "counted", "noted", "answered",
)  # fmt: skip
ENDED, ENDED_LATE, SHOP_CLOSED, SHOP_LATE = "ended", "ended-late", "shop-closed", "shop-late"
OUTPUTS = {
    PAID: 2, CLOSED: 2, LATE: 2, LIMITED: 2, COUNTED: 2, NOTED: 1, ANSWERED: 1,
    ENDED: 2, ENDED_LATE: 2, SHOP_CLOSED: 2, SHOP_LATE: 2,
}  # fmt: skip
BY_SHOP, BRIDGE, DEAD = f"{APP}-by-shop-repartition", f"{APP}-{PAYMENTS}-copartitioned", f"{APP}-dead-letters"
PARTITIONS = 2  # of what the app's tables are in
TABLES = (
    "counts", "firsts", "items", "limits", "paid-of", "per-session", "per-shop", "per-shop-window", "per-window",
    "priced", "priced-references", "prices", "seen",
)  # fmt: skip
SHOPS = 3
LONG_S = 100_000.0  # nothing is late where this is the bound
SIZE_MS, GRACE_MS = 10_000, 5_000
GAP_MS = 2_000  # of sessions
BAD = 9  # every so many visits are refused by their agent
TAKEN, TAKEN_S = 4, 0.6
THOUSAND = 1000  # what a visit counts in rows of the second version


class Options(NamedTuple):
    """store: of all tables; standbys: copies of each task; version: of the code."""

    guarantee: str
    protocol: str
    store: str
    standbys: int
    version: int = 1


def new_app(options: Options, name: str) -> App:
    """name: of the worker's machine."""
    app = App(
        APP,
        processing_guarantee=options.guarantee,
        group_protocol=options.protocol,
        broker_commit_interval=0.2,
        store=options.store,
        table_standby_replicas=options.standbys,
        repartition_purge_interval=0,  # the logs between the parts are compared with what is behind them
        topic_partitions=PARTITIONS,
        reply_to=f"replies-{name}",
    )
    _add_pipelines(app)
    _add_agents(app, options.version)
    return app


def _add_pipelines(app: App) -> None:
    regions = app.GlobalTable("regions", topic=app.topic(REGIONS))
    first = app.stream(ORDERS).dedup(within=LONG_S, name="firsts")
    paid = first.join(
        app.stream(PAYMENTS),
        value=lambda order, payment: {**order, "payment": payment["id"]},
        within=LONG_S,
        name="paid-of",
    )
    paid.join(regions, key=lambda order: order["shop"].encode(), value=lambda order, region: [order["id"], region]).to(
        PAID
    )
    limits = app.stream(LIMITS).table("limits")
    first.left_join(limits, value=lambda order, limit: [order["id"], limit], name="limited-of").to(LIMITED)
    by_shop = first.group_by(lambda order: order["shop"], name="by-shop")
    by_shop.group_by_key().count(name="per-shop")
    of_shops = by_shop.tumbling(SIZE_MS / 1000).count(name="per-shop-window")
    of_shops.final().map(lambda result: [result.key, result.start_ms, result.value]).to(SHOP_CLOSED)
    of_shops.late.map(lambda order: [order["id"]]).to(SHOP_LATE)
    sessions = app.stream(VISITS).session(GAP_MS / 1000, grace=GRACE_MS / 1000).count(name="per-session")
    sessions.final().map(lambda result: [result.key.decode(), result.start_ms, result.value]).to(ENDED)
    sessions.late.map(lambda visit: [visit["id"]]).to(ENDED_LATE)
    prices = app.stream(PRICES).table("prices")
    app.stream(ITEMS).table("items").join(
        prices,
        key=lambda item: item["shop"].encode(),
        value=lambda item, price: [item["id"], price["price"]],
        name="priced",
    )
    windows = app.stream(VISITS).tumbling(SIZE_MS / 1000, grace=GRACE_MS / 1000).count(name="per-window")
    windows.final().map(lambda result: [result.key.decode(), result.start_ms, result.value]).to(CLOSED)
    windows.late.map(lambda visit: [visit["id"]]).to(LATE)


def _add_agents(app: App, version: int) -> None:
    unit = 1 if version == 1 else THOUSAND
    counts = app.Table("counts", default=int, version=version)
    if version > 1:
        counts.migration(from_version=1)(lambda key, value: value * THOUSAND)
    seen = app.GlobalTable("seen", default=int)
    counted, noted, answered = app.topic(COUNTED), app.topic(NOTED), app.topic(ANSWERED)

    @app.agent(app.topic(VISITS), on_error="dead_letter", name="count")
    async def count(stream: Any) -> None:
        async for event in stream.events():
            if event.value["id"] % BAD == 0:
                raise ValueError("a visit that is refused")
            row = event.key.decode()
            counts[row] += unit
            await counted.send(key=row, value=[event.offset, counts[row] // unit], partition=event.partition)

    @app.agent(app.topic(NOTES), name="note")
    async def note(stream: Any) -> None:
        async for events in stream.take_events(TAKEN, TAKEN_S):
            for event in events:
                noted.send_soon(value=[event.offset], partition=event.partition)
                seen["notes"] = event.offset

    @app.agent(name="double")
    async def double(stream: Any) -> Any:
        async for number in stream:
            yield number * 2

    @app.agent(app.topic(QUESTIONS), name="ask")
    async def ask(stream: Any) -> None:
        async for event in stream.events():
            answer = await double.ask(event.value["id"], key=event.key)
            await answered.send(value=[event.offset, answer], partition=event.partition)


# --- What must hold ---------------------------------------------------------------------------------------------------


class Order(NamedTuple):
    """An event of a topic whose time counts."""

    timestamp_ms: int
    value: dict[str, Any]


class Windows:
    """What the windows make of a partition of their input, in the order of its log."""

    def __init__(self, orders: Iterable[Order]) -> None:
        self.late: list[int] = []
        self._counts: Counter[tuple[str, int]] = Counter()
        self._watermark_ms = -1
        for at_ms, value in orders:
            self._watermark_ms = max(self._watermark_ms, at_ms)
            start = at_ms // SIZE_MS * SIZE_MS
            if self._is_closed(start):
                self.late.append(value["id"])
            else:
                self._counts[value["key"], start] += 1

    def _is_closed(self, start: int) -> bool:
        return start + SIZE_MS + GRACE_MS <= self._watermark_ms

    @property
    def closed(self) -> list[list[Any]]:
        return [[shop, start, count] for (shop, start), count in self._counts.items() if self._is_closed(start)]


class Sessions:
    """The same for sessions of events that are at most GAP_MS apart."""

    def __init__(self, orders: Iterable[Order]) -> None:
        self.late: list[int] = []
        self.closed: list[list[Any]] = []
        self._open: list[tuple[str, int, int, int]] = []  # key, start, end, count
        watermark_ms = -1
        for at_ms, value in orders:
            watermark_ms = max(watermark_ms, at_ms)
            over = [each for each in self._open if each[2] + GAP_MS + GRACE_MS < watermark_ms]
            self.closed += [[key, start, count] for key, start, _, count in over]
            self._open = [each for each in self._open if each not in over]
            key = value["key"]
            near = [each for each in self._open if each[0] == key and each[1] - GAP_MS <= at_ms <= each[2] + GAP_MS]
            if not near and at_ms + GAP_MS + GRACE_MS < watermark_ms:
                self.late.append(value["id"])
                continue
            self._open = [each for each in self._open if each not in near]
            start, end = min([at_ms, *(each[1] for each in near)]), max([at_ms, *(each[2] for each in near)])
            self._open.append((key, start, end, 1 + sum(each[3] for each in near)))


class PipelineAudit:
    """Compares what the app writes with its input, at any time. batches: what is readable of a partition; None if
    nobody can tell now."""

    def __init__(
        self,
        sim: Simulation,
        process: Process,
        bootstrap: str,
        batches: Callable[[str, int], list[Batch] | None],
        guarantee: str,
    ) -> None:
        self.sim = sim
        self.batches = batches
        self.guarantee = guarantee
        self.client = Client(bootstrap, client_id="audit", runtime=process.runtime)
        self.partitions = dict(INPUTS)
        self.undone: list[str] = []  # in the last look

    # -- what the logs hold

    def _read(self, topic: str, index: int) -> list[Read]:
        batches = self.batches(topic, index)
        if batches is None:
            raise NobodyTells(f"{topic}-{index}")
        return committed(batches)[0]

    def _values(self, topic: str, partitions: int) -> list[Any]:
        return [
            orjson.loads(each.value) for index in range(partitions) for each in self._read(topic, index) if each.value
        ]

    def _timed(self, index: int) -> list[Order]:
        read = self._read(VISITS, index)
        return [Order(each.timestamp_ms, {"key": each.key, **orjson.loads(each.value)}) for each in read]

    def _regrouped(self, index: int) -> list[Order]:
        return [Order(each.timestamp_ms, _regrouped(each)) for each in self._read(BY_SHOP, index) if each.value]

    # -- one part after the other: each says whether it has done all that there is

    async def look(self) -> bool:
        """Whether all input has been processed. Raises AssertionError where something does not agree."""
        self.undone = []
        done = [
            self._check_between(),
            self._check_joins(),
            self._check_windows(),
            self._check_shop_windows(),
            self._check_agents(),
        ]
        try:
            done.append(await self._check_tables())
        except AppError:  # no worker has come so far yet
            done.append(False)
        self.sim.counters["looks"] += 1
        return all(done)

    def _is_all(self, what: str, found: list[Any], expected: list[Any], *, is_once: bool) -> bool:
        """Whether all that is expected is there. What is not expected never is, and with is_once nothing twice."""
        have, want = Counter(map(repr, found)), Counter(map(repr, expected))
        assert not (extra := have.keys() - want.keys()), f"{what} has what it must not have: {sorted(extra)[:5]}"
        if is_once:
            twice = sorted(each for each in have if have[each] > want[each])
            assert not twice, f"{what} has some too often: {twice[:5]}"
        else:
            self.sim.counters["repeated_outputs"] += sum((have - want).values())
        if missing := sorted(want.keys() - have.keys()):
            self.undone.append(f"{what}: {missing[:3]}")
        return not missing

    def _firsts(self) -> dict[int, dict[str, Any]]:
        """Orders by id: those that came again count once."""
        found: dict[int, dict[str, Any]] = {}
        for each in self._values(ORDERS, INPUTS[ORDERS]):
            self.sim.counters["duplicates"] += each["id"] in found
            found.setdefault(each["id"], each)
        return found

    def _check_between(self) -> bool:
        """What is in topics of the app is there once, by any guarantee."""
        regrouped = [each.value for index in range(PARTITIONS) for each in self._regrouped(index)]
        bridged, dead = self._values(BRIDGE, PARTITIONS), self._values(DEAD, 1)
        firsts, payments = list(self._firsts().values()), self._values(PAYMENTS, self.partitions[PAYMENTS])
        refused = [each for each in self._values(VISITS, INPUTS[VISITS]) if each["id"] % BAD == 0]
        self.sim.counters["bridged"] += len(bridged)
        self.sim.counters["dead_letters"] += len(dead)
        return all(
            [
                self._is_all(BY_SHOP, regrouped, firsts, is_once=True),
                self._is_all(BRIDGE, bridged, payments, is_once=True),
                self._is_all(DEAD, dead, refused, is_once=True),
            ]
        )

    def _check_joins(self) -> bool:
        paid, limited = self._values(PAID, OUTPUTS[PAID]), self._values(LIMITED, OUTPUTS[LIMITED])  # the inputs last
        payments = {each["id"] for each in self._values(PAYMENTS, self.partitions[PAYMENTS])}
        firsts = self._firsts()
        pairs = [[number, region_of(each["shop"])] for number, each in firsts.items() if number in payments]
        is_once = self.guarantee == EXACTLY_ONCE
        for number, limit in limited:  # a limit may have come after its order
            assert limit in (None, {"limit": number}), f"order {number} was joined with {limit}"
        return all(
            [
                self._is_all(PAID, paid, pairs, is_once=is_once),
                self._is_all(LIMITED, [[number] for number, _ in limited], [[n] for n in firsts], is_once=is_once),
            ]
        )

    def _check_windows(self) -> bool:
        closed, late = self._values(CLOSED, OUTPUTS[CLOSED]), self._values(LATE, OUTPUTS[LATE])
        ended, ended_late = self._values(ENDED, OUTPUTS[ENDED]), self._values(ENDED_LATE, OUTPUTS[ENDED_LATE])
        windows = [Windows(self._timed(index)) for index in range(INPUTS[VISITS])]
        sessions = [Sessions(self._timed(index)) for index in range(INPUTS[VISITS])]
        is_once = self.guarantee == EXACTLY_ONCE
        all_closed = [each for window in windows for each in window.closed]
        all_late = [[number] for window in windows for number in window.late]
        self.sim.counters["windows_closed"] += len(closed)
        self.sim.counters["late"] += len(late)
        self.sim.counters["sessions_closed"] += len(ended)
        all_ended = [each for session in sessions for each in session.closed]
        all_ended_late = [[number] for session in sessions for number in session.late]
        return all(
            [
                self._is_all(ENDED, ended, all_ended, is_once=is_once),
                self._is_all(ENDED_LATE, ended_late, all_ended_late, is_once=is_once),
                self._is_all(CLOSED, closed, all_closed, is_once=is_once),
                self._is_all(LATE, late, all_late, is_once=is_once),
            ]
        )

    def _check_shop_windows(self) -> bool:
        """Windows behind a topic of the app: each event is in the result of its window or late, and none is late that
        was not behind an earlier one where it was written."""
        closed, late = self._values(SHOP_CLOSED, PARTITIONS), self._values(SHOP_LATE, PARTITIONS)
        self.sim.counters["shop_windows_closed"] += len(closed)
        self.sim.counters["shop_late"] += len(late)
        may_be_late: set[int] = set()
        for index in range(INPUTS[ORDERS]):
            latest_ms = -1
            for each in self._read(ORDERS, index):
                latest_ms = max(latest_ms, each.timestamp_ms)
                if each.timestamp_ms < latest_ms:
                    may_be_late.add(orjson.loads(each.value)["id"])
        is_late = {number for [number] in late}
        assert is_late <= may_be_late, f"windows of shops took {sorted(is_late - may_be_late)} for late"
        if self.guarantee == EXACTLY_ONCE:
            assert len(is_late) == len(late), f"windows of shops gave some twice as late: {sorted(late)}"
        orders = [each for index in range(PARTITIONS) for each in self._regrouped(index)]  # the input last
        taken: Counter[tuple[str, int]] = Counter()
        for at_ms, order in orders:
            taken[order["shop"], at_ms // SIZE_MS * SIZE_MS] += order["id"] not in is_late
        expected = [[shop, start, taken[shop, start]] for shop, start, _ in closed]
        once = {(shop, start) for shop, start, _ in closed}
        assert len({tuple(each) for each in closed}) == len(once), f"a window of a shop has two results: {closed}"
        if self.guarantee == EXACTLY_ONCE:
            assert len(once) == len(closed), f"a window of a shop was closed twice: {closed}"
        unlike = [(each, want) for each, want in zip(closed, expected, strict=True) if each != want]
        assert all(each[2] <= want[2] for each, want in unlike), f"windows of shops have too many: {unlike}"
        if unlike:  # until what is late is written
            self.undone.append(f"windows of shops: {unlike[:3]}")
        return not unlike

    def _check_agents(self) -> bool:
        found = {each: self._values(each, OUTPUTS[each]) for each in (COUNTED, NOTED, ANSWERED)}
        counted: list[Any] = []
        for index in range(INPUTS[VISITS]):
            counts: Counter[str] = Counter()
            for each in self._read(VISITS, index):
                if orjson.loads(each.value)["id"] % BAD:
                    counts[each.key] += 1
                    counted.append([each.offset, counts[each.key]])
        expected = {
            COUNTED: counted,
            NOTED: [[each.offset] for each in self._read(NOTES, 0)],
            ANSWERED: [[each.offset, orjson.loads(each.value)["id"] * 2] for each in self._read(QUESTIONS, 0)],
        }
        is_once = self.guarantee == EXACTLY_ONCE
        done = [self._is_all(each, found[each], expected[each], is_once=is_once) for each in found]
        return all(done)

    async def _check_tables(self) -> bool:
        """Rows are those of the records before the positions that they were committed with."""
        found = await table_reader.read(self.client, APP, ["per-shop"])
        done = self._check_rows(
            "per-shop", found, BY_SHOP, lambda each: (_regrouped(each)["shop"], 1) if each.value else None
        )
        found = await table_reader.read(self.client, APP, ["counts"])
        unit = THOUSAND if any(row.value >= THOUSAND for row in found.rows) else 1
        self.sim.counters["migrated"] += unit == THOUSAND
        done &= self._check_rows("counts", found, VISITS, _visit)
        return done & await self._check_priced()

    async def _check_priced(self) -> bool:
        """Rows have a value of their item, and a price of the shop that it was in; in the end the last ones."""
        found = await table_reader.read(self.client, APP, ["priced"])
        rows = {_text(row.key): row.value for row in found.rows}
        prices = [each for index in range(INPUTS[PRICES]) for each in self._read(PRICES, index)]
        items = [each for index in range(INPUTS[ITEMS]) for each in self._read(ITEMS, index)]
        had = {(each.key, orjson.loads(each.value)["price"]) for each in prices}
        last = {each.key: orjson.loads(each.value)["price"] for each in prices}
        shops: dict[tuple[str, int], str] = {}
        want: dict[str, list[Any]] = {}
        for each in items:
            item = orjson.loads(each.value)
            shops[each.key, item["id"]] = item["shop"]
            want.pop(each.key, None)
            if item["shop"] in last:
                want[each.key] = [item["id"], last[item["shop"]]]
        for key, (number, price) in rows.items():
            assert (shops.get((key, number)), price) in had, f"item {key} has {[number, price]}: not of its shop"
        self.sim.counters["priced"] += len(rows)
        if rows != want:
            self.undone.append(f"priced is {rows}, and not {want}")
        return rows == want

    def _check_rows(self, table: str, found: table_reader.Committed, topic: str, of: Callable[[Read], Any]) -> bool:
        is_done = True
        for index in range(PARTITIONS):
            rows = {_text(row.key): row.value for row in found.rows if row.partition == index}
            at = found.positions.get(topic, {}).get(index)
            position = 0 if at is None else at.offset
            want: Counter[str] = Counter()
            for each in self._read(topic, index):
                is_done = is_done and each.offset < position
                if each.offset < position and (row := of(each)) is not None:
                    want[row[0]] += row[1]
            thousands = {key: count * THOUSAND for key, count in want.items()}
            # A partition is of one version or of the other, as a whole.
            is_well = rows == want or (table == "counts" and rows == thousands)
            assert is_well, f"{table}-{index} at position {position} is {rows}, and not {dict(want)}"
        return is_done


def _regrouped(each: Read) -> dict[str, Any]:
    """Values between two steps are in an envelope."""
    value: dict[str, Any]
    (value,) = orjson.loads(each.value)
    return value


def _visit(each: Read) -> tuple[str, int] | None:
    return (each.key, 1) if orjson.loads(each.value)["id"] % BAD else None


def _text(key: Any) -> str:
    return key.decode() if isinstance(key, bytes) else str(key)


def region_of(shop: str) -> str:
    return f"region of {shop}"


GUARANTEES = AT_LEAST_ONCE, EXACTLY_ONCE
