"""An app over the topics of three datacenters: where records are from, records that come again, and a link that is cut.

Each result is compared with that of a run without the fault, or of one without the datacenter.
"""

import json
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from isthmus.streams import App, AppError, ByDatacenter, Origin
from isthmus.streams.driver import Sent, TestDriver, TestRecord
from isthmus.streams.engine.origin import HEADER, Copy
from tests.running import in_loop, run_by

DATACENTERS = ("dc1", "dc2", "dc3")
TOPICS = tuple(f"{name}.orders" for name in DATACENTERS)
COPIES = {f"{name}.orders": Copy(name, "orders") for name in DATACENTERS}
SIZE_MS, AFTER_MS, BEAT_MS, BOUND_MS = 1_000, 3_000, 500, 100


def record(value: int, timestamp_ms: int = 0, key: bytes = b"k", partition: int | None = None) -> TestRecord:
    return TestRecord(b"%d" % value, key, timestamp_ms, partition=partition)


# --- Where records are from ---------------------------------------------------------------------------


@run_by(in_loop)
async def test_each_record_has_an_origin_of_its_own_wherever_it_goes() -> None:
    app = App("from", origins=True)
    orders = app.stream(*TOPICS)
    found: dict[str, list[Origin | None]] = {"direct": [], "regrouped": []}

    @app.agent(orders, name="direct")
    async def direct(stream: Any) -> None:
        async for event in stream.events():
            found["direct"].append(event.origin)

    @app.agent(orders.group_by(lambda value: value % 3, name="by"), name="regrouped")
    async def regrouped(stream: Any) -> None:
        async for event in stream.events():
            found["regrouped"].append(event.origin)

    driver = TestDriver(app, partitions=3, copies=COPIES)
    chance = random.Random(7)
    counts: Counter[str] = Counter()
    for value in range(60):
        topic = chance.choice(TOPICS)
        counts[COPIES[topic].datacenter] += 1
        driver.send(topic, record(value, partition=2))
    driver.close()
    expected = {Origin(name, "orders", 2, offset) for name in DATACENTERS for offset in range(counts[name])}
    for which, origins in found.items():
        assert len(origins) == 60 and set(origins) == expected, which


@run_by(in_loop)
async def test_an_app_that_does_not_ask_writes_no_header() -> None:
    for asks in (False, True):
        app = App("plain", origins=asks)
        app.stream("in").to("out")
        driver = TestDriver(app)
        driver.send("in", *[record(1)])
        assert [name for name, _ in driver.sent[0].headers] == ([HEADER] if asks else [])
        driver.close()


# --- Records that come again --------------------------------------------------------------------------


def totals(app: App, once: bool) -> None:
    orders = app.stream("bridged")
    (orders.dedup_origin(name="once") if once else orders).group_by_key().sum(name="totals")


async def bridged() -> list[Sent]:
    """What an app between the mirrors and another app writes."""
    app = App("bridge", origins=True)
    app.stream(*TOPICS).to("bridged")
    driver = TestDriver(app, copies=COPIES)
    for topic in TOPICS:
        driver.send(topic, *[record(value) for value in range(1, 21)])
    driver.close()
    return driver.sent


@pytest.mark.parametrize("once", [True, False], ids=["dedup", "control"])
@run_by(in_loop)
async def test_a_bridge_that_replays_has_one_effect_a_record(once: bool) -> None:
    app = App("sums")
    totals(app, once)
    sent = await bridged()
    driver = TestDriver(app)
    chance = random.Random(3)
    at = 0
    while at < len(sent):  # it dies after some records, and goes on some before them
        end = min(len(sent), at + chance.randint(1, 9))
        driver.send("bridged", *[TestRecord(each.value, each.key, 0, each.headers) for each in sent[at:end]])
        if chance.random() < 0.4:  # so does the app, at a checkpoint
            driver.commit()
            driver.crash()
        at = end if end == len(sent) else max(0, end - chance.randint(0, 4))
    total = driver.table("totals")["k" if "k" in driver.table("totals") else b"k"]
    if not once:
        assert total > 3 * 210  # the fault happened
    else:
        assert total == 3 * 210
        assert driver.table("once") == {(name, "orders", 0): 20 for name in DATACENTERS}
    driver.close()


@run_by(in_loop)
async def test_the_vector_is_the_fold_of_what_was_processed_also_after_a_restart() -> None:
    app = App("vector")
    app.stream(*TOPICS).dedup_origin(name="once").to("out")
    driver = TestDriver(app, copies=COPIES)
    driver.send("dc1.orders", *[record(1), record(2)])
    driver.send("dc3.orders", *[record(3)])
    driver.commit()
    rows = driver.table("once")
    assert rows == {("dc1", "orders", 0): 2, ("dc3", "orders", 0): 1}
    written = driver.changelogs["once"]
    driver.crash()
    assert driver.table("once") == rows
    driver.commit()
    assert driver.changelogs["once"] == written
    driver.close()


def test_a_step_that_drops_repetitions_reads_topics() -> None:
    with pytest.raises(AppError, match=r"app\.stream\(topic\)\.dedup_origin\(\)"):
        App("a").stream("in").flat_map(lambda value: [value, value]).dedup_origin()


# --- A link that is cut -------------------------------------------------------------------------------


class Run:
    """Three datacenters with an order every 100 ms of the clock each, in whose windows of a second orders are summed.
    The link of dc3 is cut for some time, and then brings everything at once."""

    def __init__(self, policy: str, names: Iterable[str] = DATACENTERS, regrouped: bool = False) -> None:
        self.names = tuple(names)
        app = App("windows", watermarks=ByDatacenter(policy, after=AFTER_MS / 1000))
        topics = [app.topic(f"{name}.orders", watermark_delay=BOUND_MS / 1000) for name in self.names]
        orders = app.stream(*topics)
        if regrouped:
            orders = orders.group_by(lambda value: "k", name="by")
        windows = orders.tumbling(SIZE_MS / 1000, retention=3_600).sum(name="sums")
        windows.final(revise=True).to("results")
        windows.late.to("late")
        self.driver = TestDriver(app, copies=COPIES)
        self.ends = dict.fromkeys(self.names, 0)  # of the sources
        self.read = dict.fromkeys(self.names, 0)
        self.seen_ms = dict.fromkeys(self.names, 0)
        self.results: list[tuple[int, dict[str, Any]]] = []  # wall clock, result

    async def run(self, until_ms: int, cut: tuple[int, int] = (0, 0), restart_at: int = -1, silent: str = "") -> None:
        """cut: of the link of dc3, from and to; silent: a datacenter with no orders at all."""
        for now_ms in range(100, until_ms + 1, 100):
            for name in self.names:
                self.ends[name] += name != silent
                if not (name == "dc3" and cut[0] <= now_ms < cut[1]):
                    await self.bring(name, now_ms)
            if now_ms == restart_at:
                self.driver.restart()
            self.driver.advance((now_ms - self.driver.wall_ms) / 1_000)
            self.results += [
                (now_ms, json.loads(each.value or b"")) for each in self.driver.sent if each.topic == "results"
            ]
            assert [each for each in self.driver.sent if each.topic == "late"] == []
            self.driver.sent.clear()
        self.driver.close()

    async def bring(self, name: str, now_ms: int) -> None:
        topic, end = f"{name}.orders", self.ends[name]
        new = [record(DATACENTERS.index(name) * 1_000 + at, 100 * (at + 1)) for at in range(self.read[name], end)]
        self.driver.send(topic, *new)
        self.read[name] = end
        if now_ms % BEAT_MS == 0:
            self.driver.heartbeat(topic, now_ms, end, end)

    @property
    def last(self) -> dict[int, int]:
        """The value of the last revision of each window."""
        return {said["start_ms"]: said["value"] for _, said in self.results}

    @property
    def first(self) -> dict[int, int]:
        return {said["start_ms"]: said["value"] for _, said in self.results if said["revision"] == 0}


CUT = (10_000, 20_000)


async def after(policy: str, names: Iterable[str] = DATACENTERS, *, regrouped: bool = False, **options: Any) -> Run:
    run = Run(policy, names, regrouped)
    await run.run(30_000, **options)
    return run


REGROUPED = pytest.mark.parametrize("regrouped", [False, True], ids=["", "regrouped"])


@REGROUPED
@run_by(in_loop)
async def test_hold_gives_what_a_run_without_the_fault_gives(regrouped: bool) -> None:
    whole, held = await after("hold"), await after("hold", cut=CUT, regrouped=regrouped)
    assert len(whole.last) == 29
    assert [said for _, said in held.results] == [said for _, said in whole.results]
    during = [said for at, said in held.results if CUT[0] + 500 < at < CUT[1]]
    assert during == []  # the fault happened


@REGROUPED
@pytest.mark.parametrize("restart_at", [-1, 15_000], ids=["", "restarted"])
@run_by(in_loop)
async def test_exclude_goes_on_without_it_and_revises_when_it_is_back(restart_at: int, regrouped: bool) -> None:
    whole, without = await after("exclude"), await after("exclude", names=("dc1", "dc2"))
    cut = await after("exclude", cut=CUT, restart_at=restart_at, regrouped=regrouped)
    missing = {said["start_ms"] for _, said in cut.results if said["revision"] == 0 and said["missing"]}
    assert missing == set(range(9_000 + SIZE_MS, 19_000, SIZE_MS)) | ({9_000} & missing)
    for start in missing - {9_000}:  # of the first, dc3 had brought a part
        assert cut.first[start] == without.first[start]
    assert {tuple(said["missing"]) for _, said in cut.results} == {(), ("dc3",)}
    assert cut.last == whole.last
    last = {said["start_ms"]: said["missing"] for _, said in cut.results}
    assert {start for start, lacks in last.items() if lacks} == set()


@run_by(in_loop)
async def test_an_exclusion_is_written_with_the_next_checkpoint_though_nothing_comes() -> None:
    driver = Run("exclude").driver
    driver.advance(0)
    driver.advance((AFTER_MS - 1) / 1_000)
    [task] = driver.tasks.values()
    assert task.checkpoint_number == 0
    driver.advance(0.001)
    assert task.checkpoint_number == 1
    driver.close()


@REGROUPED
@run_by(in_loop)
async def test_an_idle_datacenter_holds_results_up_no_longer_than_a_heartbeat_and_the_bound(regrouped: bool) -> None:
    idle = await after("hold", silent="dc3", regrouped=regrouped)
    assert len(idle.results) >= 28
    waits = [at - said["end_ms"] for at, said in idle.results]
    assert max(waits) <= BEAT_MS + BOUND_MS
