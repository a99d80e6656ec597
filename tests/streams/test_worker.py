"""The worker's order of writes, and how it shares its time, with client and changelog replaced."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from isthmus.client import Client, FetchedBatches, RecordMetadata, TopicPartition
from isthmus.protocol import records
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.primitives import ZERO_UUID, uuid_to_str
from isthmus.streams import App
from isthmus.streams.engine.changelog import END, RUN_BYTES, Restored, begin_key, end_key, row_key
from isthmus.streams.errors import AppError, ChangelogError, RecordError, StreamsError
from isthmus.streams.runtime import agents as agents_module
from isthmus.streams.runtime import worker as worker_module
from isthmus.streams.runtime.worker import StreamWorker
from tests.running import in_loop, run_by


class FakeProducer:
    """Records are acknowledged by `settle`, or at once."""

    def __init__(self, at_once: bool = True) -> None:
        self.written: list[tuple[bytes, bytes | None]] = []
        self.open: list[asyncio.Future[RecordMetadata]] = []
        self.at_once = at_once
        self.has_space = True
        self.end = 40  # offset of what is written next

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
                future.set_result(RecordMetadata("app-changelog", 0, self.end, 0))
                self.end += 1
        self.open.clear()


def run_begun(producer: FakeProducer) -> bytes:
    return producer.written[-1][0][-RUN_BYTES:]


def make(
    monkeypatch: pytest.MonkeyPatch, producer: FakeProducer, *agents: Any, **options: Any
) -> tuple[StreamWorker, list[Any]]:
    app = App("app", **options)
    seen = app.Table("seen", default=int)

    async def count(stream: Any) -> None:
        async for event in stream.events():
            seen[event.key] += 1

    source = app.topic("in", value="json")
    for agent in agents or (count,):
        app.agent(source)(agent)

    loads: list[Any] = []

    async def load(client: Client, app_id: str, topic: str, number: int) -> Restored:
        loads.append((app_id, topic, number, [key for key, _ in producer.written]))
        return Restored(positions={"in": {number: 0}}, begun=run_begun(producer), next_offset=producer.end)

    monkeypatch.setattr(worker_module, "load_partition", load)
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


async def drain(worker: StreamWorker, count: int) -> list[int]:
    """Processes so many records; gives how many there were in each step."""
    worker._take_in(fetched(count))
    steps = []
    while worker._backlog:
        before = worker.processed_total
        await worker._process_some()
        steps.append(worker.processed_total - before)
    return steps


@run_by(in_loop)
async def test_a_run_begins_in_the_changelog_before_it_reads_it(monkeypatch):
    """Else a run it replaces could close a checkpoint in between, which the next restore would count, this one not."""
    worker, loads = make(monkeypatch, FakeProducer())
    await worker._assigned([TopicPartition("in", 0)])
    task = worker.running[0].task
    assert loads == [("app", "app-changelog", 0, [begin_key(task.run)])]
    with pytest.raises(AppError, match="cannot be changed"):
        await worker._assigned([TopicPartition("in", 2)])
    await worker.running[0].stop()


def test_state_of_a_topic_that_was_made_anew_is_not_gone_on_from(monkeypatch):
    """Its offset is another record's in the new topic, which may have grown past it."""

    async def scenario(known: bytes, now: bytes) -> StreamWorker:
        producer = FakeProducer()
        worker, _ = make(monkeypatch, producer)
        restored = Restored(positions={"in": {0: 7}}, topic_ids={"in": uuid_to_str(known)} if known else {})

        async def load(*_: Any) -> Restored:
            restored.begun = run_begun(producer)
            return restored

        monkeypatch.setattr(worker_module, "load_partition", load)
        worker.client.topics["in"] = type("Known", (), {"leaders": {0: 1}, "topic_id": now})()
        try:
            await worker._assigned([TopicPartition("in", 0)])
        finally:
            await worker.running[0].stop()
        return worker

    one, another = b"\1" * 16, b"\2" * 16
    with pytest.raises(StreamsError, match=r"topic in was deleted and created again, .* the old one up to offset 7"):
        asyncio.run(scenario(one, another))
    for known, now in ((one, one), (b"", one), (one, ZERO_UUID)):  # the same; not written down; a cluster without ids
        task = asyncio.run(scenario(known, now)).running[0].task
        assert task.position("in") == 7
        assert orjson.loads(task.checkpoint().marker.value or b"")["topic_ids"] == {"in": uuid_to_str(one)}


@run_by(in_loop)
async def test_a_marker_waits_until_its_rows_are_acknowledged(monkeypatch):
    producer = FakeProducer()
    worker, _ = make(monkeypatch, producer)
    await worker._assigned([TopicPartition("in", 0)])
    await drain(worker, 3)
    task = worker.running[0].task
    producer.at_once = False
    writing = asyncio.ensure_future(worker._checkpoint(task))
    for _ in range(10):
        await asyncio.sleep(0)
    assert [row_key(key)[:4] for key, _ in producer.written[1:]] == [b"seen"] * 3
    producer.settle()
    producer.at_once = True
    await writing  # a refused commit of offsets is nothing
    assert producer.written[-1][0] == end_key(task.run, 1)

    await drain(worker, 4)
    producer.at_once = False
    writing = asyncio.ensure_future(worker._checkpoint(task))
    for _ in range(10):
        await asyncio.sleep(0)
    producer.settle(KafkaError.of(ErrorCode.MESSAGE_TOO_LARGE, "app-changelog-0: too large"))
    with pytest.raises(ChangelogError, match=r"task 0 of app app was not written: .*its largest row, 1 bytes, is"):
        await writing
    assert end_key(task.run, 2) not in [key for key, _ in producer.written]
    await worker.running[0].stop()


async def breaking(stream: Any, saw: Callable[[Any], None]) -> None:
    while True:
        async for event in stream.events():
            saw(event)
            break


async def catching(stream: Any, saw: Callable[[Any], None]) -> None:
    while True:
        with contextlib.suppress(ValueError):
            async for event in stream.events():
                saw(event)
                raise ValueError


async def timing_out(stream: Any, saw: Callable[[Any], None]) -> None:
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                async for event in stream.events():
                    saw(event)
        await asyncio.sleep(0)


async def mixing(stream: Any, saw: Callable[[Any], None]) -> None:
    while True:
        async for event in stream.events():
            saw(event)
            break
        async for batch in stream.batches():
            for event in batch:
                saw(event)
            break


@pytest.mark.parametrize("agent", [breaking, catching, timing_out, mixing])
@run_by(in_loop)
async def test_an_iteration_begun_again_goes_on_with_the_next_event(monkeypatch, agent):
    seen: list[int] = []
    worker, _ = make(monkeypatch, FakeProducer(), lambda stream: agent(stream, lambda each: seen.append(each.offset)))
    await worker._assigned([TopicPartition("in", 0)])
    await drain(worker, 40)
    assert seen == list(range(40))
    assert worker.running[0].task.position("in") == 40
    await worker.running[0].stop()


@run_by(in_loop)
async def test_an_event_counts_as_done_when_the_next_is_asked_for(monkeypatch):
    """And not when the iteration that gave it is left."""
    done = asyncio.Event()

    async def late(stream: Any) -> None:
        while True:
            async for _ in stream.events():
                break
            await done.wait()

    worker, _ = make(monkeypatch, FakeProducer(), late)
    await worker._assigned([TopicPartition("in", 0)])
    draining = asyncio.ensure_future(drain(worker, 1))
    for _ in range(10):
        await asyncio.sleep(0)
    assert worker.running[0].task.position("in") == 0
    done.set()
    await draining
    assert worker.running[0].task.position("in") == 1
    await worker.running[0].stop()


@run_by(in_loop)
async def test_two_tasks_that_share_a_stream_are_an_error(monkeypatch):
    async def forked(stream: Any) -> None:
        async def one() -> None:
            async for _ in stream.events():
                await asyncio.Event().wait()

        await asyncio.gather(one(), one())

    worker, _ = make(monkeypatch, FakeProducer(), forked)
    await worker._assigned([TopicPartition("in", 0)])
    draining = asyncio.ensure_future(drain(worker, 3))
    for _ in range(10):
        await asyncio.sleep(0)
    with pytest.raises(AppError, match="agent forked at in-0 offset 0: a stream is iterated over in two asyncio"):
        draining.result()
    assert worker.running[0].task.position("in") == 0
    await worker.running[0].stop()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("readers", "event_s", "due_s", "at_once"),
    [
        (1, 0.3, 60.0, 1),  # soon enough for a stop or a rebalance
        (1, 0.02, 0.05, 3),  # at the time of a checkpoint
        (1, 0.02, -1.0, 1),  # but not before the first event
        (2, 0.3, 60.0, 1),  # all agents of a topic have done the same events
        (2, 0.02, 0.05, 2),
        (2, 0.02, -1.0, 1),
    ],
)
@run_by(in_loop)
async def test_a_batch_ends_at_the_event_in_hand(monkeypatch, again, readers, event_s, due_s, at_once):
    """Agents that were fast turn slow here; again: each event is of an iteration of its own."""
    clock, pause_s = [0.0], 0.0
    done: list[list[int]] = [[] for _ in range(readers)]

    def agent(number: int) -> Any:
        async def slow(stream: Any) -> None:
            while True:
                async for event in stream.events():
                    clock[0] += pause_s
                    await asyncio.sleep(0)
                    done[number].append(event.offset)
                    if again:
                        break

        return slow

    worker, _ = make(monkeypatch, FakeProducer(), *map(agent, range(readers)))
    await worker._assigned([TopicPartition("in", 0)])
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock[0])
    await drain(worker, 1)
    worker._batch_events = 1_000
    worker._take_in(fetched(400))
    pause_s = event_s
    for step in range(1, 4):
        worker._checkpoint_at = clock[0] + due_s
        await worker._process_some()
        worker._batch_events = 1_000
        position = worker.running[0].task.position("in")
        assert position == 1 + step * at_once
        assert all(each == list(range(position)) for each in done)
        assert worker.running[0].is_whole
    await worker.running[0].stop()


@run_by(in_loop)
async def test_a_batch_that_an_agent_takes_whole_is_smaller_where_it_is_slow(monkeypatch):
    clock, sizes = [0.0], []

    async def slow(stream: Any) -> None:
        async for batch in stream.batches():
            sizes.append(len(batch))
            clock[0] += len(batch) / 500  # 500 events a second

    worker, _ = make(monkeypatch, FakeProducer(), slow)
    await worker._assigned([TopicPartition("in", 0)])
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock[0])
    steps = await drain(worker, 3_000)
    assert sizes == steps and sum(steps) == 3_000
    assert steps[0] == 1 and max(steps) <= 64
    assert worker.running[0].task.position("in") == 3_000
    await worker.running[0].stop()


@pytest.mark.parametrize("fails", [True, False])
@run_by(in_loop)
async def test_no_checkpoint_is_written_within_an_event(monkeypatch, fails):
    """When an agent failed or the worker was cancelled, tables reflect more than the positions say."""
    producer = FakeProducer()

    async def agent(stream: Any) -> None:
        async for event in stream.events():
            stream._feed.task.tables["seen"].set("k", event.offset)
            if event.offset == 2:
                if fails:
                    raise ValueError("no")
                await asyncio.Event().wait()

    worker, _ = make(monkeypatch, producer, agent)
    await worker._assigned([TopicPartition("in", 0)])
    await drain(worker, 1)
    draining = asyncio.ensure_future(drain(worker, 5))
    for _ in range(20):
        await asyncio.sleep(0)
    draining.cancel()
    await asyncio.gather(draining, return_exceptions=True)
    before = list(producer.written)
    await worker._finish(0)
    assert producer.written == before
    assert not worker.running


@run_by(in_loop)
async def test_a_checkpoint_is_of_what_stands_when_it_is_due(monkeypatch):
    """And not when its asyncio task has its first turn, which an agent may have before."""
    producer = FakeProducer()
    worker, _ = make(monkeypatch, producer)
    await worker._assigned([TopicPartition("in", 0)])
    await drain(worker, 1)
    worker._checkpoint_at = 0.0
    worker._checkpoint_when_due(1.0)
    worker.running[0].task.tables["seen"].set(b"k0", 7)
    await worker._checkpoints[0]
    written = {row_key(key): value for key, value in producer.written}
    assert written[b'seen\0{"bytes":"k0"}'] == b"1"
    await worker.running[0].stop()


@run_by(in_loop)
async def test_an_agent_that_ends_between_events_is_noticed_before_a_checkpoint(monkeypatch):
    async def impatient(stream: Any) -> None:
        async with asyncio.timeout(0):
            async for _ in stream:
                pass

    worker, _ = make(monkeypatch, FakeProducer(), impatient)
    await worker._assigned([TopicPartition("in", 0)])
    for _ in range(5):
        await asyncio.sleep(0)
    worker._checkpoint_at = 0.0
    with pytest.raises(RecordError, match="agent impatient raised TimeoutError"):
        worker._checkpoint_when_due(1.0)
    await worker._finish(0)


@run_by(in_loop)
async def test_unacknowledged_outputs_are_bounded(monkeypatch):
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


@run_by(in_loop)
async def test_an_output_that_fails_keeps_its_checkpoint_from_being_written(monkeypatch):
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


@run_by(in_loop)
async def test_a_task_whose_changelog_others_write_ends_and_the_worker_joins_again(monkeypatch):
    """What they wrote may be the marker by which they took the task over: nothing more is written then."""
    producer = FakeProducer()
    worker, _ = make(monkeypatch, producer)
    joins = []

    async def subscribe(topics: list[str], **_: Any) -> None:
        joins.append(topics)

    monkeypatch.setattr(worker.consumer, "subscribe", subscribe)
    await worker._assigned([TopicPartition("in", 0)])
    await drain(worker, 3)
    worker._take_in(fetched(4))
    producer.end += 1  # somebody else's record
    worker._checkpoint_at = 0.0
    worker._checkpoint_when_due(1.0)
    await asyncio.wait(worker._checkpoints.values())
    before = list(producer.written)
    worker._checkpoint_when_due(2.0)
    await worker._join_again()
    assert joins == [["in"]] and not worker.running and not worker._backlog
    assert producer.written == before and [key for key, _ in before if key.startswith(END)] == []
    await worker._revoked([TopicPartition("in", 0)])
    assert producer.written == before


@run_by(in_loop)
async def test_a_run_that_was_overtaken_before_it_had_read_the_changelog_does_not_go_on(monkeypatch):
    worker, _ = make(monkeypatch, FakeProducer())
    joins = []

    async def subscribe(topics: list[str], **_: Any) -> None:
        joins.append(topics)

    async def load(*_: Any) -> Restored:
        return Restored(begun=b"another!")

    monkeypatch.setattr(worker_module, "load_partition", load)
    monkeypatch.setattr(worker.consumer, "subscribe", subscribe)
    await worker._assigned([TopicPartition("in", 0)])
    assert joins == [["in"]] and not worker.running


@pytest.mark.parametrize("under_way", [False, True])
@run_by(in_loop)
async def test_a_task_that_was_lost_ends_without_a_last_checkpoint(monkeypatch, under_way):
    """Others may have it: what was done after the last checkpoint is theirs to do again."""
    producer = FakeProducer()
    worker, _ = make(monkeypatch, producer)
    callbacks: dict[str, Any] = {}

    async def subscribe(topics: list[str], **given: Any) -> None:
        callbacks.update(given)

    monkeypatch.setattr(worker.consumer, "subscribe", subscribe)
    await worker._join()
    await callbacks["on_assigned"]([TopicPartition("in", 0)])
    await drain(worker, 3)
    producer.at_once = False
    if under_way:
        worker._checkpoint_at = 0.0
        worker._checkpoint_when_due(1.0)
        await asyncio.sleep(0)
        await drain(worker, 4)
    worker._take_in(fetched(9))
    before = list(producer.written)
    await callbacks["on_lost"]([TopicPartition("in", 0)])
    await asyncio.sleep(0)
    assert producer.written == before and not any(key.startswith(END) for key, _ in before)
    assert not (worker.running or worker._checkpoints or worker._backlog)


@run_by(in_loop)
async def test_an_agent_that_cannot_be_cancelled_does_not_hold_up_its_worker(monkeypatch, caplog):
    """A rebalance that waited for it would never end."""
    over = False

    async def stubborn(stream: Any) -> None:
        while not over:
            with contextlib.suppress(BaseException):
                async for _ in stream:
                    pass

    monkeypatch.setattr(agents_module, "STOP_S", 0.0)
    producer = FakeProducer()
    worker, _ = make(monkeypatch, producer, stubborn)
    await worker._assigned([TopicPartition("in", 0)])
    await drain(worker, 3)
    run = worker.running[0]
    await asyncio.wait_for(worker._revoked([TopicPartition("in", 0)]), 10)
    assert "agent stubborn of task 0 runs on after it was cancelled" in caplog.text
    assert producer.written[-1][0] == end_key(run.task.run, 1) and not worker.running
    over = True
    await run.stop()
