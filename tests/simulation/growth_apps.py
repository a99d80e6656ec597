"""A stream app whose inputs grow, for scenarios, and what must hold of all that it writes.

An input with a table that grows goes through a bridge from then on. The table is changed by two agents in lanes of
their own, one of which is in the middle of its events for long. A third agent has its records through a topic, and
then by another key. A pipeline has a table whose rows end by themselves.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import orjson

from isthmus.client import Client
from isthmus.client.partitioner import partition_for_key
from isthmus.streams import App, AppError, table_reader

from .history import Batch
from .hosts import Process
from .runner import Simulation
from .stream_apps import EXACTLY_ONCE, NobodyTells, Read, StreamHost, committed

APP = "app"
CLICKS, PAIRS, LOGINS = "clicks", "pairs", "logins"
PARTITIONS = 2  # of each input before it grows, and of all that the app has
GROWS = {CLICKS: 4, LOGINS: PARTITIONS, PAIRS: 3}  # how far
TOLD, VIA = "told", "via"
BRIDGE, BY_SITE = f"{APP}-{CLICKS}-copartitioned", f"{APP}-site-{VIA}-site-repartition"
TABLES = ("clicked", "per-site", "recent", "recent-times")
SITES = 4
SESSION_S = 4.0
PURGE_S = 1.0
TTL_MS = 9_000
PAIR_S = (0.0, 0.03, 0.25)  # between the two rows of an event, by its number: some are longer than a step may be


class Options(NamedTuple):
    guarantee: str
    protocol: str
    standbys: int


def new_app(options: Options) -> App:
    app = App(
        APP,
        processing_guarantee=options.guarantee,
        group_protocol=options.protocol,
        broker_commit_interval=0.2,
        broker_session_timeout=SESSION_S,
        table_standby_replicas=options.standbys,
        repartition_purge_interval=PURGE_S,
        topic_partitions=PARTITIONS,
    )
    app.stream(LOGINS).table("recent", ttl=TTL_MS / 1000)
    clicked = app.Table("clicked", default=int)
    per_site = app.Table("per-site", default=int)
    told = app.topic(TOLD)

    @app.agent(app.topic(CLICKS), name="click")
    async def click(stream: Any) -> None:
        async for event in stream.events():
            page = event.key.decode()
            clicked[page] += 1
            await told.send(key=page, value=[event.value["id"], clicked[page]])

    @app.agent(app.topic(PAIRS), name="pair")
    async def pair(stream: Any) -> None:
        async for event in stream.events():
            one, other = pair_of(event.key.decode())
            clicked[one] += 1
            await asyncio.sleep(PAIR_S[event.value["id"] % len(PAIR_S)])
            clicked[other] += 1

    @app.agent(app.topic(CLICKS), name="site")
    async def site(stream: Any) -> None:
        async for event in stream.through(VIA).group_by(site_of, name="site").events():
            per_site[site_of(event.value)] += 1

    return app


def site_of(value: Any) -> str:
    return f"s{value['id'] % SITES}"


def pair_of(key: str) -> tuple[str, str]:
    return f"{key} one", f"{key} other"


class Logins:
    """The rows of a partition of `recent` after some of its records, by their keys, with the times of those."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.late = self.ended = 0
        self._times: dict[str, int] = {}
        self._watermark_ms = -1

    def take(self, login: Read) -> None:
        self._watermark_ms = max(self._watermark_ms, login.timestamp_ms)
        for key in [key for key, at_ms in self._times.items() if at_ms + TTL_MS < self._watermark_ms]:
            del self._times[key], self.rows[key]
            self.ended += 1
        if login.timestamp_ms + TTL_MS < self._watermark_ms:
            self.late += 1
        elif login.value:
            self.rows[login.key] = orjson.loads(login.value)["id"]
            self._times[login.key] = max(login.timestamp_ms, self._times.get(login.key, 0))
        else:
            self.rows.pop(login.key, None)
            self._times.pop(login.key, None)


class GrowthAudit:
    """Compares what the app writes with its input, at any time. batches: what is readable of a partition; None if
    nobody can tell now. counts: how many partitions an input has."""

    def __init__(
        self,
        sim: Simulation,
        process: Process,
        bootstrap: str,
        batches: Callable[[str, int], list[Batch] | None],
        counts: Callable[[str], int],
        guarantee: str,
    ) -> None:
        self.sim = sim
        self.guarantee = guarantee
        self.client = Client(bootstrap, client_id="audit", runtime=process.runtime)
        self.hosts: Sequence[StreamHost] = ()
        self.undone: list[str] = []  # in the last look
        self._batches = batches
        self._counts = counts
        self._seen: dict[tuple[str, str], int] = {}  # by table and key: how far it was counted
        self._positions: dict[int, int] = {}  # of `recent`

    # --- What the logs hold -------------------------------------------------------------------------------------------

    def _read(self, topic: str, index: int) -> list[Read]:
        batches = self._batches(topic, index)
        if batches is None:
            raise NobodyTells(f"{topic}-{index}")
        return committed(batches)[0]

    def _input(self, topic: str) -> list[Read]:
        return [each for index in range(self._counts(topic)) for each in self._read(topic, index)]

    def _ids(self, topic: str, partitions: int) -> list[int]:
        return [
            orjson.loads(each.value)["id"]
            for index in range(partitions)
            for each in self._read(topic, index)
            if each.value
        ]

    # --- One part after the other: each says whether it has done all that there is ------------------------------------

    async def look(self) -> bool:
        """Whether all input has been processed. Raises AssertionError where something does not agree, or a worker has
        found that; NobodyTells for a leader that is not known."""
        for host in self.hosts:
            if host.keeper.done():
                host.keeper.result()
        self.undone = []
        try:
            done = [self._check_told(), await self._check_counts(), await self._check_recent()]
        except AppError:  # no worker has come so far yet
            return False
        self._check_between()
        self.sim.counters["looks"] += 1
        return all(done)

    def _check_told(self) -> bool:
        """Each count of a page is told, and with exactly_once no other and none again."""
        told = [orjson.loads(each.value) for index in range(PARTITIONS) for each in self._read(TOLD, index)]
        pages = {orjson.loads(each.value)["id"]: each.key for each in self._input(CLICKS)}
        have: dict[str, Counter[int]] = {}
        for number, count in told:
            assert number in pages, f"click {number} was told, and is not there"
            have.setdefault(pages[number], Counter())[count] += 1
        for page, want in Counter(pages.values()).items():
            counts = have.get(page, Counter())
            assert not counts or max(counts) <= want, f"{page} was told to have {max(counts)} clicks, and has {want}"
            if self.guarantee == EXACTLY_ONCE:
                assert max(counts.values(), default=0) <= 1, f"a count of {page} was told twice: {counts}"
            self._look_for(f"counts of {page} that were told", len(counts), want)
        self._look_for("clicks that were told", len({number for number, _ in told}), len(pages))
        self.sim.counters["repeated_outputs"] += len(told) - len(pages) if len(told) > len(pages) else 0
        return not self.undone

    def _check_between(self) -> None:
        """What is in a topic of the app is there once, by any guarantee."""
        for topic, partitions in ((VIA, 1), (BY_SITE, PARTITIONS), (BRIDGE, PARTITIONS)):
            try:
                found = Counter(self._ids(topic, partitions))
            except NobodyTells:  # it may not be there
                continue
            twice = [number for number, count in found.items() if count > 1]
            assert not twice, f"{topic} has some twice: {twice[:5]}"
            self.sim.counters[f"in_{topic}"] += len(found)

    async def _check_counts(self) -> bool:
        """What was counted is there once, in the partition of its key, and does not go back."""
        found = await table_reader.read(self.client, APP, ["clicked", "per-site"])
        want: dict[str, Counter[str]] = {"clicked": Counter(), "per-site": Counter()}
        for each in self._input(CLICKS):
            want["clicked"][each.key] += 1
            want["per-site"][site_of(orjson.loads(each.value))] += 1
        for each in self._input(PAIRS):
            want["clicked"].update(dict.fromkeys(pair_of(each.key), 1))
        rows: dict[tuple[str, str], int] = {}
        for row in found.rows:
            key, where = (row.table, row.key), f"row {row.key} of {row.table}-{row.partition}"
            place = partition_for_key(row.key.partition(" ")[0].encode(), PARTITIONS)
            assert row.partition == place, f"{where} is {row.value}, and belongs in partition {place}"
            assert row.value <= want[row.table][row.key], f"{where} is {row.value}, of {want[row.table][row.key]}"
            assert row.value >= self._seen.get(key, 0), f"{where} went back to {row.value} from {self._seen[key]}"
            rows[key] = self._seen[key] = row.value
        missing = self._seen.keys() - rows.keys()
        assert not missing, f"rows have gone: {sorted(missing)}"
        for name, value in [(name, value) for (_, name), value in rows.items() if name.endswith(" one")]:
            other = rows.get(("clicked", name.removesuffix("one") + "other"), 0)
            assert other == value, f"{name} is {value}, and the other row of the same events is {other}"
        for table, each in want.items():
            self._look_for(table, {key: value for (its, key), value in rows.items() if its == table}, dict(each))
        return not self.undone

    async def _check_recent(self) -> bool:
        """Rows are those of the records before the position that they were committed with; their ends are by time."""
        found = await table_reader.read(self.client, APP, ["recent"])
        for index in range(PARTITIONS):
            at = found.positions.get(LOGINS, {}).get(index)
            position = 0 if at is None else at.offset
            assert position >= self._positions.get(index, 0), f"{LOGINS}-{index} went back to {position}"
            self._positions[index] = position
            logins, read = Logins(), self._read(LOGINS, index)
            for each in read:
                if each.offset < position:
                    logins.take(each)
            rows = {row.key.decode(): row.value["id"] for row in found.rows if row.partition == index}
            assert rows == logins.rows, f"recent-{index} at {position} is {rows}, and not {logins.rows}"
            self.sim.counters["rows_ended"] += logins.ended
            self.sim.counters["logins_late"] += logins.late
            self._look_for(f"logins of partition {index}", position > max((e.offset for e in read), default=-1), True)
        return not self.undone

    def _look_for(self, what: str, found: Any, wanted: Any) -> None:
        if found != wanted:
            self.undone.append(f"{what}: {found}, not {wanted}")
