"""A stream app for scenarios: what it does, its workers, and what must hold of all that it writes.

Two agents: one with tables, one without that holds events back. Each output names the input record that it is of, and
what the table had then, so that the input alone says what outputs and tables must be.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol
from unittest import mock

import orjson

from isthmus.client import Admin, Client, Producer, TopicPartition
from isthmus.client.errors import ClientError
from isthmus.client.joining import CLASSIC
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.records import decode_batch
from isthmus.streams import App, AppError, ChangelogError, StreamsError, table_reader
from isthmus.streams.engine.checkpoint import Position
from isthmus.streams.runtime.worker import StreamWorker

from .committed_reader import COMMIT, head_of, marker_of
from .history import Batch
from .hosts import Process, ProcessKilled
from .product import retried
from .runner import Simulation

APP = "app"
EVENTS, NOTES = "events", "notes"  # inputs
TALLIED, NOTED = "tallied", "noted"  # outputs, with the partitions of their inputs
TABLES = ("totals", "odd")
GUARANTEES = AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once"
COMMIT_S = 0.2
SESSION_S = 10.0  # of a worker, where the scenario gives no other
HELD, HELD_S = 3, 0.7  # events that the agent without tables waits for, and how long
NOTE_S = 0.05  # that the agent without tables takes for an event, while others go on
PAUSE_S = (0.1, 2.0)  # until a worker that has ended is started again


def row_of(key: str, value: bytes) -> str:
    """The row that an input record changes: one record or two change it, then it is left alone."""
    number = int(value.rstrip(b".").rpartition(b"-")[2])
    return f"{key}-{number // 12}"


def new_app(guarantee: str, protocol: str = CLASSIC, session_s: float = SESSION_S) -> App:
    app = App(
        APP,
        processing_guarantee=guarantee,
        group_protocol=protocol,
        broker_commit_interval=COMMIT_S,
        broker_session_timeout=session_s,
    )
    tallied, noted = app.topic(TALLIED), app.topic(NOTED)
    totals = app.Table("totals", default=int)
    odd = app.Table("odd")

    @app.agent(app.topic(EVENTS, value_serializer="raw"), name="tally")
    async def tally(stream: Any) -> None:
        """Counts the records of each row; every other record deletes the row from a second table, the others set it."""
        async for event in stream.events():
            row = row_of(event.key.decode(), event.value)
            totals[row] += 1
            if row in odd:
                del odd[row]
            else:
                odd[row] = event.offset
            await tallied.send(key=row, value=[event.offset, row, totals[row]], partition=event.partition)

    @app.agent(app.topic(NOTES, value_serializer="raw"), name="note")
    async def note(stream: Any) -> None:
        async for events in stream.take_events(HELD, HELD_S):
            for event in events:
                await noted.send(value=[event.offset], partition=event.partition)
                await asyncio.sleep(NOTE_S)

    return app


# --- What the logs hold -----------------------------------------------------------------------------------------------


class Read(NamedTuple):
    offset: int
    key: str
    value: bytes
    timestamp_ms: int = 0


def committed(batches: Sequence[Batch]) -> tuple[list[Read], list[Read]]:
    """Records that count, in order, up to the first of a transaction that is not decided; and what is not decided or
    comes after that."""
    decided: list[Read] = []
    waiting: dict[int, list[Read]] = {}
    for batch in batches:
        head = head_of(batch)
        if head.is_control:
            told = waiting.pop(head.producer_id, [])
            decided += told if marker_of(batch) == COMMIT else ()
            continue
        rows = [
            Read(record.offset, bytes(record.key or b"").decode(), bytes(record.value or b""), record.timestamp_ms)
            for record in decode_batch(batch.data)
        ]
        if head.is_transactional:
            waiting.setdefault(head.producer_id, []).extend(rows)
        else:
            decided += rows
    undecided = [row for rows in waiting.values() for row in rows]
    stable = min((row.offset for row in undecided), default=1 << 62)
    before = sorted(row for row in decided if row.offset < stable)
    return before, undecided + [row for row in decided if row.offset >= stable]


class Expected:
    """What the app makes of the records of an input partition."""

    def __init__(self, topic: str, records: Sequence[Read]) -> None:
        self.offsets = [each.offset for each in records]
        self.outputs: list[list[Any]] = []
        self._changes: list[tuple[int, str]] = []
        totals: dict[str, int] = {}
        for each in records:
            if topic == NOTES:
                self.outputs.append([each.offset])
                continue
            row = row_of(each.key, each.value)
            totals[row] = totals.get(row, 0) + 1
            self.outputs.append([each.offset, row, totals[row]])
            self._changes.append((each.offset, row))

    def before(self, position: int) -> int:
        """How many records are before this offset."""
        return sum(offset < position for offset in self.offsets)

    def table(self, name: str, position: int) -> dict[str, int]:
        """The rows of a table after all records before this offset."""
        rows: dict[str, int] = {}
        for offset, row in self._changes:
            if offset >= position:
                break
            if name == "totals":
                rows[row] = rows.get(row, 0) + 1
            elif rows.pop(row, None) is None:
                rows[row] = offset
        return rows


class NobodyTells(Exception):
    """A partition has no leader that is known now."""


class Logs(Protocol):
    """Where the scenario keeps its topics. bootstrap: of their brokers."""

    bootstrap: str

    def batches(self, topic: str, index: int) -> list[Batch] | None:
        """What is readable of a partition; None if nobody can tell now."""
        ...


# --- Workers ----------------------------------------------------------------------------------------------------------


class StreamHost:
    """A machine that runs one stream worker, one life after the other, as long as it is `wanted`. new_app: makes the
    app of a life."""

    def __init__(self, sim: Simulation, name: str, bootstrap: str, new_app: Callable[[], App]) -> None:
        self.sim = sim
        self.machine = sim.machine(name)
        self.bootstrap = bootstrap
        self.new_app = new_app
        self.wanted = True
        self.worker: StreamWorker | None = None
        self.keeper = sim.loop.create_task(self._keep())

    @property
    def is_alive(self) -> bool:
        return self.machine.process is not None and self.machine.process.alive

    async def leave(self) -> None:
        """End in the controlled way, until `wanted` is set again."""
        self.wanted = False
        if self.worker is not None:
            await self.worker.stop()

    async def _keep(self) -> None:
        while True:
            if self.wanted:
                await self._live()
            await asyncio.sleep(self.sim.random.uniform(*PAUSE_S))

    async def _live(self) -> None:
        process = self.machine.start()
        try:
            await process.outcome(self._run(process))
        except ProcessKilled:
            return
        except ChangelogError as error:
            raise AssertionError(f"{process.name} finds a changelog damaged: {error}") from error
        except (StreamsError, ClientError, KafkaError, OSError) as error:
            self.sim.counters["worker_exits"] += 1
            self.sim.notes.append(f"{self.sim.loop.time():.3f} {process.name}: {error!r}")
        except Exception as error:
            raise AssertionError(f"{process.name} is broken: {error!r}") from error
        finally:
            self.worker = None
        self.machine.kill()

    async def _run(self, process: Process) -> None:
        client = Client(self.bootstrap, client_id=APP, runtime=process.runtime)
        await client.start()
        worker = StreamWorker(self.new_app(), client, process.runtime)
        self.worker = worker
        try:
            await worker.start()
            await worker.run()
            await worker.close()
            self.sim.counters["workers_left"] += 1
        except Exception:
            await worker.abandon()
            raise
        finally:
            await client.close()


@contextlib.contextmanager
def counted(sim: Simulation) -> Iterator[None]:
    """Counts what happens to workers."""
    real_back, real_lost = StreamWorker._go_back, StreamWorker._lost

    async def go_back(self: StreamWorker, *given: Any) -> None:
        sim.counters["went_back"] += 1
        await real_back(self, *given)

    async def lost(self: StreamWorker, partitions: Sequence[TopicPartition]) -> None:
        sim.counters["lost_tasks"] += 1
        await real_lost(self, partitions)

    with mock.patch.object(StreamWorker, "_go_back", go_back), mock.patch.object(StreamWorker, "_lost", lost):
        yield


# --- Input ------------------------------------------------------------------------------------------------------------


class Writer:
    """Writes an input topic, in transactions of which some are aborted if it has a transactional id. No value is
    written again. partitions: how many it may write to."""

    def __init__(self, sim: Simulation, topic: str, bootstrap: str, partitions: int, *, transactional: bool) -> None:
        self.sim = sim
        self.topic = topic
        self.bootstrap = bootstrap
        self.partitions = partitions
        self.transactional = transactional
        self.number = 0
        self.is_enough = False
        self.machine = sim.machine(f"writer-{topic}")
        self.running = self.machine.start().outcome(self._run())

    async def until(self, number: int, pause_s: float) -> None:
        """Wait until it has written so many, and end it."""
        while self.number < number:
            await asyncio.sleep(pause_s)
        self.is_enough = True
        await self.running

    async def _run(self) -> None:
        process = self.machine.process
        assert process is not None
        client = Client(self.bootstrap, client_id=self.machine.name, runtime=process.runtime)
        await retried(client.start)
        while not self.is_enough:
            producer = Producer(client, transactional_id=self.machine.name if self.transactional else None)
            try:
                await producer.start()
                while not self.is_enough:
                    await self._some(producer)
                    await asyncio.sleep(process.runtime.random.uniform(0.0, 0.8))
            except (ClientError, KafkaError) as error:
                self.sim.notes.append(f"{self.sim.loop.time():.3f} {process.name}: {error!r}")
                await asyncio.sleep(0.5)
            finally:
                with contextlib.suppress(ClientError, KafkaError):
                    await producer.close()
        await client.close()

    async def _some(self, producer: Producer) -> None:
        chance = self.sim.random
        if self.transactional:
            await producer.begin_transaction()
        futures = []
        for _ in range(chance.randint(1, 6)):
            value = f"{self.topic}-{self.number:05d}".encode() + b"." * chance.choice((0, 40, 2000))
            key = b"k%d" % (self.number % 7)
            futures.append(producer.send(self.topic, value, key, partition=chance.randrange(self.partitions)))
            self.number += 1
        await asyncio.gather(*futures)
        if self.transactional and chance.random() < 0.3:
            await producer.abort_transaction()
            self.sim.counters["aborted_inputs"] += 1
            return
        if self.transactional:
            await producer.commit_transaction()


# --- What must hold ---------------------------------------------------------------------------------------------------


class Audit:
    """Compares tables, positions and outputs with the input, at any time. partitions: of each input topic."""

    def __init__(
        self, sim: Simulation, process: Process, logs: Logs, guarantee: str, partitions: dict[str, int]
    ) -> None:
        self.sim = sim
        self.logs = logs
        self.guarantee = guarantee
        self.partitions = partitions
        self.client = Client(logs.bootstrap, client_id="audit", runtime=process.runtime)
        self.positions: dict[tuple[str, int], int] = {}
        self.hosts: Sequence[StreamHost] = ()  # of the app's workers

    async def look(self) -> bool:
        """Whether all input has been processed. Raises AssertionError where something does not agree, or a worker has
        found that."""
        for host in self.hosts:
            if host.keeper.done():
                host.keeper.result()
        told = self._check_outputs()
        complete = True
        for table in TABLES:
            try:
                found = await table_reader.read(self.client, APP, [table])
            except AppError:
                return False  # no worker has come so far yet
            at = found.positions.get(EVENTS, {})
            for index in range(self.partitions[EVENTS]):
                rows = {row.key: row.value for row in found.rows if row.partition == index}
                position = at.get(index, Position(0)).offset
                complete = self._check_table(table, index, position, rows) and complete
                complete = self._check_told(EVENTS, index, position, told) and complete
        offsets = await Admin(self.client).group_offsets(APP)
        for index in range(self.partitions[NOTES]):
            position = offsets.get(TopicPartition(NOTES, index), 0)
            complete = self._check_told(NOTES, index, position, told) and complete
        self.sim.counters["looks"] += 1
        return complete

    def _input(self, topic: str, index: int) -> Expected | None:
        batches = self.logs.batches(topic, index)
        return None if batches is None else Expected(topic, committed(batches)[0])

    def _outputs(self, topic: str, index: int) -> tuple[list[list[Any]], list[list[Any]]] | None:
        """What was written for an input partition; and what is not decided of that."""
        batches = self.logs.batches({EVENTS: TALLIED, NOTES: NOTED}[topic], index)
        if batches is None:
            return None
        decided, undecided = committed(batches)
        return [orjson.loads(each.value) for each in decided], [orjson.loads(each.value) for each in undecided]

    def _check_outputs(self) -> dict[tuple[str, int], int]:
        """How many records of each input partition have outputs that count, where these are in order."""
        told: dict[tuple[str, int], int] = {}
        for topic, count in self.partitions.items():
            for index in range(count):
                outputs, expected = self._outputs(topic, index), self._input(topic, index)  # the input last
                if outputs is None or expected is None:
                    continue
                if self.guarantee == EXACTLY_ONCE:
                    self._check_sequence(f"{topic}-{index}", outputs[0], expected.outputs)
                    told[topic, index] = len(outputs[0])
                else:
                    for each in outputs[0]:
                        assert each in expected.outputs, f"the output {each} of {topic}-{index} is of no record"
        return told

    @staticmethod
    def _check_sequence(where: str, outputs: list[list[Any]], expected: list[list[Any]]) -> None:
        for number, (found, wanted) in enumerate(zip(outputs, expected, strict=False)):
            assert found == wanted, f"output {number} of {where} is {found}, not {wanted}: {outputs[: number + 2][-4:]}"
        assert len(outputs) <= len(expected), f"{where} has {len(outputs)} outputs, for {len(expected)} records"

    def _check_table(self, table: str, index: int, position: int, rows: dict[str, int]) -> bool:
        before = self.positions.get((table, index), 0)
        assert position >= before, f"the position of {table}-{index} went back from {before} to {position}"
        self.positions[table, index] = position
        expected = self._input(EVENTS, index)
        if expected is None:
            return False
        want = expected.table(table, position)
        differ = {each: (rows.get(each), want.get(each)) for each in rows.keys() | want.keys()}
        differ = {each: both for each, both in sorted(differ.items()) if both[0] != both[1]}
        assert not differ, f"{table}-{index} at position {position}: (found, wanted) {differ}"
        return expected.before(position) == len(expected.offsets)

    def _check_told(self, topic: str, index: int, position: int, told: dict[tuple[str, int], int]) -> bool:
        """Whether the position is past all input. What is before it has its outputs; and what had some before it was
        asked for is before it, where both are in one transaction."""
        expected, outputs = self._input(topic, index), self._outputs(topic, index)
        if expected is None or outputs is None:
            return False
        done = expected.before(position)
        there = outputs[0] + outputs[1]
        missing = [each for each in expected.outputs[:done] if each not in there]
        assert not missing, f"{topic}-{index} was processed up to {position}, without outputs for {missing[:5]}"
        count = told.get((topic, index), 0)
        assert count <= done, f"{topic}-{index} has outputs for {count} records, and {done} are before {position}"
        return done == len(expected.offsets) and not outputs[1]

    async def until_complete(self, within_s: float) -> None:
        """Wait until all is processed, and look at what that came to."""
        deadline = self.sim.loop.time() + within_s
        while not await self.retried_look(within_s):
            assert self.sim.loop.time() < deadline, f"the app stays at {self.positions}"
            await asyncio.sleep(2.0)
        for topic, count in self.partitions.items():
            for index in range(count):
                outputs, expected = self._outputs(topic, index), self._input(topic, index)
                assert outputs is not None and expected is not None
                if self.guarantee == EXACTLY_ONCE:
                    assert outputs == (expected.outputs, []), f"{topic}-{index} in the end: {outputs}"
                self.sim.counters["processed"] += len(expected.offsets)
                self.sim.counters["repeated_outputs"] += len(outputs[0]) - len(expected.offsets)

    async def glance(self, within_s: float) -> None:
        """A look, unless it is disturbed for all this time."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.retried_look(1e9), within_s)

    async def retried_look(self, within_s: float) -> bool:
        """A look that is disturbed is done again; one that finds something wrong is not."""
        deadline = self.sim.loop.time() + within_s
        while True:
            try:
                return await self.look()
            except AssertionError:
                raise
            except ChangelogError as error:
                raise AssertionError(f"a changelog cannot be read: {error}") from error
            except Exception as error:
                assert self.sim.loop.time() < deadline, f"the tables cannot be read: {error!r}"
            await asyncio.sleep(0.3)
