"""Stream workers from outside: exact tables under kills, joins, restarts; stops, poison and lost input said clearly."""

from __future__ import annotations

import asyncio
import collections
import json
import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from integration_tests.brokers import BrokerProcess, running_broker, running_cluster
from integration_tests.mirror import workers
from integration_tests.mirror.workers import Worker, clients, run, until
from isthmus.client import Admin, Client, Consumer, Producer, TopicPartition
from isthmus.client.admin import NewTopic
from isthmus.client.partitioner import partition_for_key
from isthmus.client.raw import append_raw
from isthmus.protocol import records
from isthmus.streams import table_reader
from isthmus.streams.engine.checkpoint import MARKER

APP = f"{Path(__file__).with_name('apps.py')}:app"
KEYS = 50
MINUTE_MS = 60_000
SETTINGS = {"group.initial.rebalance.delay.ms": 0}


class Case:
    """One app: its topics, its workers, and what its tables must be."""

    def __init__(
        self,
        name: str,
        broker: BrokerProcess | SimpleNamespace,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        inputs: Sequence[str] = ("in",),
    ) -> None:
        self.name, self.broker, self.folder = name, broker, folder
        self.patch = monkeypatch
        self.inputs = inputs
        self.sent: list[tuple[bytes, int]] = []  # key, timestamp; the value's n is 1
        self.workers = 0

    def worker(self, **settings: object) -> Worker:
        """`commit_s=…` and so on become APP_COMMIT_S and so on."""
        self.workers += 1
        known = {"APP_NAME": self.name, "APP_INPUTS": ",".join(self.inputs)}
        environment = {**known, **{f"APP_{k.upper()}": str(v) for k, v in settings.items()}}
        self.patch.setattr(workers, "ENVIRONMENT", {**os.environ, **workers.ENVIRONMENT, **environment})
        arguments = ["isthmus.streams", APP, "--bootstrap", self.broker.bootstrap]
        return Worker(self.folder, f"worker{self.workers}", *arguments)

    async def create(self, client: Client, partitions: int = 3, **configs: str) -> None:
        options = {"retention.ms": "-1", **{k.replace("_", "."): v for k, v in configs.items()}}
        topics = [NewTopic(f"{self.name}.{each}", partitions, -1, options) for each in (*self.inputs, "out")]
        await Admin(client).create_topics(topics)

    async def begin(self, client: Client) -> None:
        """Have 6,000 events, and a worker that has counted them and ended."""
        await self.create(client)
        await self.produce(client, 6_000)
        with self.worker().ready() as worker:
            await self.exact(client)
            assert worker.end() == 0, worker.log

    async def produce(self, client: Client, count: int, pause_s: float = 0.0) -> None:
        producer = Producer(client, linger_ms=2)
        await producer.start()
        futures = []
        for _ in range(count):
            i = len(self.sent)
            key, timestamp_ms = b"k%d" % (i * 7 % KEYS), i * 10
            self.sent.append((key, timestamp_ms))
            await producer.wait_for_space()
            value = json.dumps({"n": 1, "i": i}).encode()
            futures.append(
                producer.send(f"{self.name}.{self.inputs[i % len(self.inputs)]}", value, key, timestamp_ms=timestamp_ms)
            )
            if pause_s and i % 500 == 0:
                await asyncio.sleep(pause_s)
        await asyncio.gather(*futures)
        await producer.close()

    def expected(self) -> dict[tuple[str, Any, int | None], int]:
        want: collections.Counter[tuple[str, Any, int | None]] = collections.Counter()
        for key, timestamp_ms in self.sent:
            want["counts", key, None] += 1
            want["minutes", key, timestamp_ms // MINUTE_MS * MINUTE_MS] += 1
        return dict(want)

    async def tables(self, client: Client) -> dict[tuple[str, Any, int | None], int]:
        found = await table_reader.read(client, self.name, ("counts", "minutes"), windowed=("minutes",))
        rows = {(row.table, row.key, row.window_start_ms): row.value for row in found.rows}
        assert len(rows) == len(found.rows), "a row stands in two tasks"
        return rows

    async def done(self, client: Client) -> int:
        """How many events the committed tables hold."""
        try:
            rows = await self.tables(client)
        except Exception:
            return 0
        return sum(value for (table, _, _), value in rows.items() if table == "counts")

    async def some_done(self, client: Client) -> None:
        """Wait until more than 2,000 are."""

        async def are() -> bool:
            return await self.done(client) > 2_000

        await until(are, "some counted")

    async def exact(self, client: Client, timeout_s: float = 45.0) -> None:
        async def all_there() -> bool:
            return await self.done(client) >= len(self.sent)

        await until(all_there, f"{self.name} has counted all", timeout_s)
        assert await self.tables(client) == self.expected()

    async def counts_that_are_not_committed(self, client: Client) -> int:
        """What a reader would count that does not look at transactions: the control."""
        found = await read_all(client, f"{self.name}-counts-changelog")
        newest = {bytes(record.key): record.value for record in found}
        return sum(int(bytes(value)) for key, value in newest.items() if value is not None and key != MARKER)


async def read_partitions(
    client: Client, topic: str, isolation: str = "read_uncommitted"
) -> dict[TopicPartition, list[Any]]:
    await client.refresh_metadata([topic])
    tps = [TopicPartition(topic, p) for p in client.partitions(topic)]
    ends = await Admin(client).list_offsets(dict.fromkeys(tps, "latest"))
    consumer = Consumer(client, isolation=isolation)
    consumer.assign(dict.fromkeys(tps, 0))
    found: dict[TopicPartition, list[Any]] = {tp: [] for tp in tps}
    while any((consumer.position(tp) or 0) < ends[tp][0] for tp in tps):
        for tp, some in (await consumer.poll(200, 100_000)).items():
            found[tp] += some
    await consumer.close()
    return found


async def read_all(client: Client, topic: str, isolation: str = "read_uncommitted") -> Sequence[Any]:
    return [record for some in (await read_partitions(client, topic, isolation)).values() for record in some]


def wait_for(worker: Worker, words: str) -> None:
    deadline = time.monotonic() + 20
    while words not in worker.log:
        assert time.monotonic() < deadline, worker.log
        time.sleep(0.05)


@pytest.fixture
def case(
    request: pytest.FixtureRequest, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Case:
    name = re.sub(r"\W", "_", request.node.name.removeprefix("test_"))
    return Case(name[:30] + name[-26:], broker, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("guarantee", "store"), [("at_least_once", "memory"), ("exactly_once", "memory"), ("exactly_once", "rocksdb")]
)
def test_kills_restarts_and_a_second_worker_leave_exact_tables(case: Case, guarantee: str, store: str) -> None:
    settings = {"slow_every": 2, "guarantee": guarantee, "table_store": f"{store}://", "folder": case.folder / "state"}

    async def scenario() -> None:
        async with clients(case.broker.bootstrap) as (client,):
            await case.create(client)
            total = 24_000
            first = case.worker(**settings).ready()
            producing = asyncio.create_task(case.produce(client, total, 0.1))

            async def past(part: float) -> None:
                async def look() -> bool:
                    return await case.done(client) >= total * part

                await until(look, f"{part:.0%} counted", 60.0)  # who is alone waits for a session of 10 s

            await past(0.1)
            assert await case.done(client) < total * 0.9
            first.kill()  # no leave: its session must expire
            second = case.worker(**settings).ready()
            await past(0.3)
            with case.worker(**settings).ready() as third:  # joins; takes some of the tasks

                async def shared() -> bool:
                    return "goes on after checkpoint" in third.log

                await until(shared, "the third worker has tasks")
                assert await case.done(client) < total * 0.95, "too late to prove anything"
                second.kill()
                await producing
                await case.exact(client)
                assert third.end() == 0, third.log
            outputs = [
                json.loads(bytes(r.value))["i"] for r in await read_all(client, f"{case.name}.out", "read_committed")
            ]
            assert set(outputs) == set(range(total))
            assert guarantee == "at_least_once" or len(outputs) == total
            if store == "rocksdb":
                restored = [int(rows) for rows in re.findall(r"restored with (\d+) rows", second.log)]
                assert sum(restored) < 2 * KEYS * 5, second.log  # the first one's, which it finds on disk, are not read

    run(scenario(), 150)


def test_rows_of_a_transaction_that_was_not_committed_do_not_count(case: Case) -> None:
    """The control: newest rows alone give other counts than the committed ones do."""

    async def scenario() -> None:
        async with clients(case.broker.bootstrap) as (client,):
            await case.begin(client)
            rows = await table_reader.read(client, case.name, ("counts",))
            [partition] = [row.partition for row in rows.rows if row.key == b"k1"]
            # What a worker leaves that dies between its rows and its commit.
            zombie = Producer(client, transactional_id="zombie", transaction_timeout_ms=3_000)
            await zombie.start()
            await zombie.begin_transaction()
            topic = f"{case.name}-counts-changelog"
            await zombie.send(topic, b"999999", b'{"bytes":"k1"}', partition=partition)
            assert await case.counts_that_are_not_committed(client) > 6_000 + 900_000
            with case.worker().ready() as second:  # it waits until the cluster has aborted that
                await case.produce(client, 3_000)
                await case.exact(client)
                assert second.end() == 0, second.log
            await zombie.close()

    run(scenario())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_killed_workers_without_a_name_have_open_is_ended_by_the_first_that_comes(
    case: Case, protocol: str
) -> None:
    """Else it would wait for the timeout of their transaction, here longer than the test."""

    async def scenario() -> None:
        async with clients(case.broker.bootstrap) as (client,):
            await case.begin(client)
            names = {"classic": "0f" * 16, "consumer": "member-" + "0f" * 16}  # as their workers have
            killed = f"{case.name}-{names.pop(protocol)}"
            others = [f"{case.name}-{each}" for each in (*names.values(), f"other-{'0f' * 16}", "some-name")]
            out = f"{case.name}.out"
            for transactional_id in (killed, *others):
                topic = f"{case.name}-counts-changelog" if transactional_id == killed else out
                producer = Producer(client, transactional_id=transactional_id, transaction_timeout_ms=600_000)
                await producer.start()
                await producer.begin_transaction()
                await producer.send(topic, b"1", b'{"bytes":"k1"}', partition=0)
            assert (await Admin(client).describe_transaction(killed)).state == "Ongoing"
            with case.worker(group_protocol=protocol).ready() as second:
                await case.produce(client, 3_000)
                await case.exact(client)
                assert second.end() == 0, second.log
            assert f"what {killed} had open is aborted" in second.log
            assert {(await Admin(client).describe_transaction(each)).state for each in others} == {"Ongoing"}

    run(scenario())


def test_a_stop_is_controlled_and_soon_even_without_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_broker(tmp_path / "broker", SETTINGS) as broker:
        case = Case("stop", broker, tmp_path, monkeypatch)

        async def begin() -> None:
            async with clients(broker.bootstrap) as (client,):
                await case.create(client)
                await case.produce(client, 2_000)
                await case.exact(client)

        async def more() -> None:
            async with clients(broker.bootstrap) as (client,):
                await case.produce(client, 2_000)

        waiting = case.worker()  # its topics are not there yet
        wait_for(waiting, "waits for missing topics")
        assert waiting.end() == 0, waiting.log
        assert "Traceback" not in waiting.log
        with case.worker() as quick:
            run(begin())
            assert quick.end() == 0
        worker = case.worker(commit_s=60).ready()
        run(more())
        wait_for(worker, ".in-2 goes on")
        time.sleep(1.0)  # it holds what no checkpoint has
        begun = time.monotonic()
        assert worker.end() == 0, worker.log
        assert time.monotonic() - begun < 4

        async def look() -> None:
            async with clients(broker.bootstrap) as (client,):
                assert await case.tables(client) == case.expected()  # the stop wrote the checkpoint

        run(look())
        lonely = case.worker().ready()
        wait_for(lonely, ".in-2 goes on")
        run(more())
        broker.kill()
        begun = time.monotonic()
        assert lonely.end() == 0, lonely.log
        assert time.monotonic() - begun < 10
        assert "Traceback" not in lonely.log


def test_a_broker_killed_under_a_worker_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_broker(tmp_path / "broker", SETTINGS) as broker:
        case = Case("bounce", broker, tmp_path, monkeypatch)

        async def scenario() -> None:
            async with clients(broker.bootstrap) as (client,):
                await case.create(client)
                with case.worker(slow_every=50).ready() as worker:
                    producing = asyncio.create_task(case.produce(client, 20_000, 0.02))
                    await case.some_done(client)
                    broker.kill()
                    await asyncio.to_thread(broker.start)
                    await producing
                    if worker.process.poll() is not None:
                        raise AssertionError(worker.log)
                    await case.exact(client)
                    assert worker.end() == 0, worker.log

        run(scenario(), 90)


def test_a_worker_goes_on_while_a_leader_of_its_cluster_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader of its changelog and, with others, of its input and its group's offsets."""
    settings = {**SETTINGS, "broker.session.timeout.ms": 3000, "min.insync.replicas": 2}
    with running_cluster(tmp_path / "brokers", settings=settings) as cluster:
        case = Case("hangs", SimpleNamespace(bootstrap=cluster.bootstrap), tmp_path, monkeypatch)

        async def scenario() -> None:
            async with clients(cluster.bootstrap) as (client,):
                await case.create(client)
                with case.worker(slow_every=50).ready() as worker:
                    producing = asyncio.create_task(case.produce(client, 20_000, 0.02))
                    await case.some_done(client)
                    [changelog] = await Admin(client).describe_topics([f"{case.name}-counts-changelog"])
                    hung = changelog.partitions[0].leader_id
                    cluster.brokers[hung].signal(signal.SIGSTOP)
                    await producing
                    await case.exact(client)  # it hangs still
                    [changelog] = await Admin(client).describe_topics([f"{case.name}-counts-changelog"])
                    assert hung not in [each.leader_id for each in changelog.partitions]
                    if worker.process.poll() is not None:
                        raise AssertionError(worker.log)
                    assert worker.end() == 0, worker.log

        run(scenario(), 120)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_poison_holds_its_task_alone(case: Case, guarantee: str) -> None:
    async def scenario() -> None:
        async with clients(case.broker.bootstrap) as (client,):
            await case.create(client)
            await case.produce(client, 3_000)
            at = TopicPartition(f"{case.name}.in", 0)
            [(end, *_)] = (await Admin(client).list_offsets({at: "latest"})).values()
            await append_raw(client, at, records.build_batch([(5, b"poison", b"{no json", ())]))
            await case.produce(client, 3_000)
            said = f"{case.name}.in-0 offset {end}: the value cannot be decoded"
            others = sum(1 for key, _ in case.sent if partition_for_key(key, 3) != 0)
            with case.worker(guarantee=guarantee).ready() as holding:

                async def all_others() -> bool:
                    return await case.done(client) == others + end

                await until(all_others, "all but what is behind the poison")
                wait_for(holding, f"task {case.name}.in-0 ends, and is tried again in 2 s: {said}")
                assert await all_others()
                assert holding.end() == 0, holding.log
            with case.worker(guarantee=guarantee, on_error="stop") as stopping:
                assert await asyncio.to_thread(stopping.process.wait, 30) == 1
                assert said in stopping.log
            with case.worker(guarantee=guarantee, on_error="dead_letter").ready() as going_on:
                await case.exact(client)
                assert "left out (dead_letter, 1 so far)" in going_on.log
                assert going_on.end() == 0, going_on.log
            [letter] = await read_all(client, f"{case.name}-dead-letters", "read_committed")
            assert (bytes(letter.key), bytes(letter.value), letter.timestamp_ms) == (b"poison", b"{no json", 5)
            headers = {name: bytes(value) for name, value in letter.headers}
            assert headers["__streams.errors.topic"] == f"{case.name}.in".encode()
            assert headers["__streams.errors.offset"] == b"%d" % end
            assert headers["__streams.errors.exception"] == b"orjson.JSONDecodeError"

    run(scenario())


def test_what_a_transaction_aborted_is_no_input(case: Case) -> None:
    async def scenario() -> None:
        async with clients(case.broker.bootstrap) as (client,):
            await case.create(client)
            producer = Producer(client, transactional_id=case.name)
            await producer.start()
            with case.worker().ready() as worker:
                for _ in range(3):
                    await case.produce(client, 100)
                    await producer.begin_transaction()
                    for p in range(3):
                        await producer.send(f"{case.name}.in", b"{no json", b"k", partition=p)
                    await producer.abort_transaction()
                await case.exact(client)
                assert worker.end() == 0, worker.log
            await producer.close()
            # The worker's positions are after what was aborted, and its markers.
            tps = [TopicPartition(f"{case.name}.in", p) for p in range(3)]
            ends = await Admin(client).list_offsets(dict.fromkeys(tps, "latest"))
            assert await Admin(client).group_offsets(case.name) == {tp: end for tp, (end, *_) in ends.items()}

    run(scenario())


def test_input_that_is_gone_is_an_error_not_a_reset(case: Case) -> None:
    async def scenario() -> None:
        async with clients(case.broker.bootstrap) as (client,):
            await case.create(client)
            await case.produce(client, 3_000)
            with case.worker().ready() as first:
                await case.exact(client)
                assert first.end() == 0
            before = await case.tables(client)
            await case.produce(client, 300)
            ends = [confluent_kafka.TopicPartition(f"{case.name}.in", p, -1) for p in range(3)]
            admin = AdminClient({"bootstrap.servers": case.broker.bootstrap})
            assert all(each.result(20).low_watermark > 0 for each in admin.delete_records(ends).values())
            with case.worker() as second:
                assert await asyncio.to_thread(second.process.wait, 30) == 1
                assert "out of range" in second.log and "give the app another id" in second.log, second.log
            assert await case.tables(client) == before

    run(scenario())


def test_input_made_anew_is_an_error_however_much_is_in_it(case: Case) -> None:
    """With more records than the app has read of the old topic, the first of them would be passed over in silence."""

    async def made_anew(client: Client) -> None:
        await Admin(client).delete_topics([f"{case.name}.in"])
        await Admin(client).create_topics([NewTopic(f"{case.name}.in", 3, -1, {"retention.ms": "-1"})])
        await client.refresh_metadata([f"{case.name}.in"])
        await case.produce(client, 6_000)

    async def scenario() -> None:
        async with clients(case.broker.bootstrap) as (client,):
            await case.create(client)
            await case.produce(client, 3_000)
            with case.worker().ready() as running:
                await case.exact(client)
                before = await case.tables(client)
                await made_anew(client)
                assert await asyncio.to_thread(running.process.wait, 30) == 1
                assert "give the app another id" in running.log, running.log
            with case.worker() as second:  # as a supervisor would start it
                assert await asyncio.to_thread(second.process.wait, 30) == 1
                assert "was deleted and created again" in second.log and "another id" in second.log, second.log
            assert await case.tables(client) == before

    run(scenario())


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_an_input_grows_while_its_tables_stay(case: Case, guarantee: str) -> None:
    """Its records go through a topic with as many partitions as the tables have, each once."""

    async def scenario() -> None:
        async with clients(case.broker.bootstrap) as (client,):
            await case.create(client, 2)
            await case.produce(client, 3_000)
            first, second = (case.worker(guarantee=guarantee).ready() for _ in range(2))
            producing = asyncio.create_task(case.produce(client, 20_000, 0.05))
            await case.some_done(client)
            await Admin(client).create_partitions(f"{case.name}.in", 5)
            await client.refresh_metadata([f"{case.name}.in"])
            await producing
            await case.produce(client, 3_000)
            [at] = [p for p in range(2, 5) if p == 4]
            ends = await Admin(client).list_offsets({TopicPartition(f"{case.name}.in", at): "latest"})
            assert next(iter(ends.values()))[0] > 0, "nothing is in a new partition"
            await case.exact(client, 90)
            assert f"its records go through {case.name}-{case.name}.in-copartitioned, with 2" in first.log + second.log
            first.kill()
            await case.produce(client, 3_000)
            await case.exact(client)
            assert second.end() == 0, second.log

    run(scenario(), 180)


def test_a_worker_that_hung_while_another_took_over_changes_nothing(case: Case) -> None:
    async def scenario() -> None:
        async with clients(case.broker.bootstrap) as (client,):
            await case.create(client)
            hung = case.worker(slow_every=2).ready()
            await case.produce(client, 12_000)

            async def some() -> bool:
                return await case.done(client) > 1_000

            await until(some, "some counted")
            hung.process.send_signal(signal.SIGSTOP)
            assert await case.done(client) < 11_000, "too late to prove anything"
            with case.worker().ready() as heir:
                await case.exact(client)  # the session of the one that hangs must expire first
                hung.process.send_signal(signal.SIGCONT)  # it does not know yet, and goes on with what it had
                await asyncio.sleep(1.5)
                assert await case.tables(client) == case.expected()
                await case.produce(client, 3_000)
                await case.exact(client)
                assert hung.process.poll() is None, hung.log
                assert hung.end() == 0, hung.log
                await case.exact(client)
                assert heir.end() == 0, heir.log
            assert "the group has removed this worker" in hung.log or "a commit was refused" in hung.log, hung.log

    run(scenario(), 90)


def test_a_standby_takes_over_with_the_tables_that_it_has(case: Case) -> None:
    """And a worker that joins gets copies first, while the tasks go on where they are."""

    async def scenario() -> None:
        async with clients(case.broker.bootstrap) as (client,):
            await case.create(client)
            await case.produce(client, 6_000)
            first = case.worker(standbys=1).ready()
            await case.exact(client)
            second = case.worker(standbys=1).ready()
            wait_for(second, "it can move")  # a copy was caught up
            wait_for(second, "goes on after checkpoint")
            await case.produce(client, 3_000)
            await case.exact(client)
            moved = second.log.count("goes on after checkpoint")
            assert moved in (1, 2), second.log
            first.kill()
            await case.produce(client, 3_000)
            await case.exact(client)
            assert second.log.count("goes on after checkpoint") == 3, second.log
            restored = [int(rows) for rows in re.findall(r"restored with (\d+) rows", second.log)]
            assert sum(restored) < 20, second.log  # the control: without copies it reads hundreds
            third = case.worker().ready()
            second.kill()
            await case.produce(client, 300)
            await case.exact(client)
            assert sum(int(rows) for rows in re.findall(r"restored with (\d+) rows", third.log)) > 100, third.log
            assert third.end() == 0, third.log

    run(scenario(), 120)


def test_the_same_app_runs_on_stock_kafka(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("on_stock_kafka", SimpleNamespace(bootstrap=kafka), tmp_path, monkeypatch)

    async def scenario() -> None:
        async with clients(kafka) as (client,):
            await case.create(client)
            await case.produce(client, 5_000)
            with case.worker().ready() as first:
                await case.exact(client)
                assert first.end() == 0, first.log
            with case.worker().ready() as second:
                await case.produce(client, 5_000)
                await case.exact(client)
                assert second.end() == 0, second.log

    run(scenario(), 90)
