"""The worker's order of writes, and how it shares its time, with client and changelog replaced."""

import asyncio
from typing import Any

import orjson
import pytest

from isthmus.client import Client, FetchedBatches, RecordMetadata, TopicPartition
from isthmus.protocol import records
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.primitives import ZERO_UUID, uuid_to_str
from isthmus.streams import App
from isthmus.streams.engine.checkpoint import Restored, marker_key
from isthmus.streams.errors import AppError, ChangelogError, StreamsError
from isthmus.streams.runtime import worker as worker_module
from isthmus.streams.runtime.worker import StreamWorker


class FakeProducer:
    """Records are acknowledged by `settle`, or at once."""

    def __init__(self, at_once: bool = True) -> None:
        self.written: list[tuple[bytes, bytes | None]] = []
        self.open: list[asyncio.Future[RecordMetadata]] = []
        self.at_once = at_once
        self.has_room = True

    def send(self, topic: str, value: bytes | None, key: bytes, **_: Any) -> asyncio.Future[RecordMetadata]:
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        self.written.append((key, value))
        self.open.append(future)
        if self.at_once:
            self.settle()
        return future

    def settle(self, error: Exception | None = None) -> None:
        for future in self.open:
            if error:
                future.set_exception(error)
            else:
                future.set_result(RecordMetadata("app-changelog", 0, 40 + len(self.written), 0))
        self.open.clear()


def make(monkeypatch: pytest.MonkeyPatch, producer: FakeProducer, **options: Any) -> tuple[StreamWorker, list[Any]]:
    app = App("app", **options)
    seen = app.Table("seen", default=int)

    @app.agent(app.topic("in", value="json"))
    async def count(stream: Any) -> None:
        async for event in stream.events():
            seen[event.key] += 1

    loads: list[Any] = []

    async def load(client: Client, app: App, number: int, end: int | None) -> Restored:
        loads.append((number, end, [key for key, _ in producer.written]))
        return Restored(positions={"in": {number: 0}})

    monkeypatch.setattr(worker_module, "load", load)
    client = Client("127.0.0.1:1")
    client.topics["app-changelog"] = type("Known", (), {"leaders": {0: 1, 1: 1}, "topic_id": bytes(16)})()
    made = StreamWorker(app, client)
    made.producer = producer  # type: ignore[assignment]
    monkeypatch.setattr(made.consumer, "seek", lambda tp, offset: None)

    async def commit(offsets: Any) -> None:
        raise KafkaError.of(ErrorCode.ILLEGAL_GENERATION, "only lag tools care")

    monkeypatch.setattr(made.consumer, "commit", commit)
    return made, loads


def fetched(count: int) -> FetchedBatches:
    data = records.build_batch([(0, b"k%d" % i, b"1", ()) for i in range(count)])
    return FetchedBatches(TopicPartition("in", 0), memoryview(bytes(data)), 0, count, count, count)


def test_a_run_begins_in_the_changelog_before_it_reads_it(monkeypatch):
    """Else a run it replaces could close a checkpoint in between, which the next restore would count, this one not."""

    async def scenario():
        worker, loads = make(monkeypatch, FakeProducer())
        await worker._assigned([TopicPartition("in", 0)])
        task = worker.running[0].task
        assert loads == [(0, 41, [marker_key(task.run, True)])]
        with pytest.raises(AppError, match="cannot be changed"):
            await worker._assigned([TopicPartition("in", 2)])
        await worker.running[0].stop()

    asyncio.run(scenario())


def test_state_of_a_topic_that_was_made_anew_is_not_gone_on_from(monkeypatch):
    """Its offset is another record's in the new topic, which may have grown past it."""

    async def scenario(known: bytes, now: bytes) -> StreamWorker:
        worker, _ = make(monkeypatch, FakeProducer())
        restored = Restored(positions={"in": {0: 7}}, topic_ids={"in": uuid_to_str(known)} if known else {})

        async def load(*_: Any) -> Restored:
            return restored

        monkeypatch.setattr(worker_module, "load", load)
        worker.client.topics["in"] = type("Known", (), {"leaders": {0: 1}, "topic_id": now})()
        try:
            await worker._assigned([TopicPartition("in", 0)])
        finally:
            await worker.running[0].stop()
        return worker

    one, another = b"\1" * 16, b"\2" * 16
    with pytest.raises(StreamsError, match=r"topic in was deleted and made anew, .* the old one up to offset 7"):
        asyncio.run(scenario(one, another))
    for known, now in ((one, one), (b"", one), (one, ZERO_UUID)):  # the same; not written down; a cluster without ids
        task = asyncio.run(scenario(known, now)).running[0].task
        assert task.position("in") == 7
        assert orjson.loads(task.checkpoint()[1])["topic_ids"] == {"in": uuid_to_str(one)}


def test_a_marker_waits_until_its_rows_are_acknowledged(monkeypatch):
    async def scenario():
        producer = FakeProducer()
        worker, _ = make(monkeypatch, producer)
        await worker._assigned([TopicPartition("in", 0)])
        worker._take_in(fetched(3))
        await worker._process_some()
        task = worker.running[0].task
        producer.at_once = False
        writing = asyncio.ensure_future(worker._checkpoint(task))
        for _ in range(10):
            await asyncio.sleep(0)
        assert [key[:4] for key, _ in producer.written[1:]] == [b"seen"] * 3
        producer.settle()
        producer.at_once = True
        await writing  # a refused commit of offsets is nothing
        assert producer.written[-1][0] == marker_key(task.run, False)

        worker._take_in(fetched(4))
        await worker._process_some()
        producer.at_once = False
        writing = asyncio.ensure_future(worker._checkpoint(task))
        for _ in range(10):
            await asyncio.sleep(0)
        markers = sum(key == marker_key(task.run, False) for key, _ in producer.written)
        producer.settle(KafkaError.of(ErrorCode.MESSAGE_TOO_LARGE, "app-changelog-0: too large"))
        with pytest.raises(ChangelogError, match=r"task 0 of app app was not written: .*its largest row, 1 bytes, is"):
            await writing
        assert sum(key == marker_key(task.run, False) for key, _ in producer.written) == markers
        await worker.running[0].stop()

    asyncio.run(scenario())


def test_slow_agents_get_less_at_once(monkeypatch):
    async def scenario():
        worker, _ = make(monkeypatch, FakeProducer())
        await worker._assigned([TopicPartition("in", 0)])
        worker._batch_events, clock = 1_000, [0.0]
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: clock[0])
        original = worker.running[0].process

        async def slow(topic: str, events: list[Any], next_offset: int) -> None:
            await original(topic, events, next_offset)
            clock[0] += len(events) / 500  # 500 events a second

        monkeypatch.setattr(worker.running[0], "process", slow)
        worker._take_in(fetched(3_000))
        steps = []
        while worker._backlog:
            before = worker.processed_total
            await worker._process_some()
            steps.append(worker.processed_total - before)
        assert steps[0] == 1_000 and 45 < min(steps[1:-1]) <= max(steps[1:]) <= 50 and sum(steps) == 3_000
        assert worker.running[0].task.position("in") == 3_000
        await worker.running[0].stop()

    asyncio.run(scenario())


def test_unacknowledged_outputs_are_bounded(monkeypatch):
    async def scenario():
        producer = FakeProducer()
        worker, _ = make(monkeypatch, producer)
        monkeypatch.setattr(worker_module, "OUTPUTS_MAX", 3)
        await worker._assigned([TopicPartition("in", 0)])
        task = worker.running[0].task
        producer.at_once = False
        for _ in range(3):
            await worker.send(task, "out", b"k", b"v", 0)
        fourth = asyncio.ensure_future(worker.send(task, "out", b"k", b"v", 0))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not fourth.done() and len(producer.open) == 3
        producer.settle()
        await fourth
        assert len(task.outputs) == 1
        producer.settle()
        await worker.running[0].stop()

    asyncio.run(scenario())


def test_an_output_that_fails_keeps_its_checkpoint_from_being_written(monkeypatch):
    async def scenario():
        producer = FakeProducer()
        worker, _ = make(monkeypatch, producer)
        await worker._assigned([TopicPartition("in", 0)])
        task = worker.running[0].task
        worker._take_in(fetched(1))
        await worker._process_some()
        producer.at_once = False
        await worker.send(task, "out", b"k", b"v", 0)
        producer.settle(KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "out-0: may not write"))
        before = list(producer.written)
        worker._checkpoint_at = 0.0
        worker._checkpoint_when_due(1.0)
        await asyncio.wait(worker._checkpoints.values())
        with pytest.raises(KafkaError, match="out-0: may not write"):
            worker._checkpoint_when_due(1.0)  # ends the worker
        assert producer.written == before
        await worker.running[0].stop()

    asyncio.run(scenario())
