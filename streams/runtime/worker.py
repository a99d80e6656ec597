"""The stream worker: gets partitions from the group, restores their tasks, feeds agents, writes checkpoints.

Where a task goes on is decided by its changelog's last marker (format: `engine/changelog.py`). The group's committed
offsets are there for lag tools only. A checkpoint waits for the outputs it covers, then writes its rows, and once they
are acknowledged its marker, while processing goes on. A task's first write is the marker that begins its run: from
there on nothing counts that an earlier run still writes. Where records of the changelog are not this run's own,
another run may have begun: the task ends without another write, and the worker joins its group again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any

from ...client import Admin, Client, Consumer, Producer, RecordMetadata, TopicPartition
from ...client.admin import NewTopic
from ...client.consumer import FetchedBatches
from ...client.errors import ClientError, LogTruncated, NoOffset
from ...client.operation import CLOSE_TIMEOUT_MS
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.primitives import uuid_to_str
from ...runtime import Runtime, system
from ..api.app import App
from ..engine.changelog import ROW_HEADER, RUN_BYTES, ChangelogRecord, row_key
from ..engine.tables import split_key
from ..engine.task import Checkpoint, Task
from ..errors import AppError, ChangelogError, RecordError, StreamsError
from .agents import BATCH_EVENTS_MAX, NEVER, TaskRun
from .backlog import Backlog
from .loading import load_partition

log = logging.getLogger("isthmus.streams")

POLL_MS = 100
TOPICS_WAIT_S = 1.0  # between looks for input topics that are not there yet
BATCH_S = 0.1  # a batch ends at the first event after this time, so that the worker can poll and write checkpoints
OUTPUTS_MAX = 100_000  # unacknowledged outputs of one task before it waits for them
ABANDON_MS = 2_000  # what a worker that has failed may take for leaving its group, and again for closing its producer
# Only segments that are closed are compacted: small ones, as Kafka Streams has them, keep a restart short.
CHANGELOG_OPTIONS = {"cleanup.policy": "compact", "retention.ms": "-1", "segment.bytes": str(50 * 1024 * 1024)}


class StreamWorker:
    """Runs one app on one client until `stop`. Several workers of an app share its tasks through the group."""

    def __init__(self, app: App, client: Client, runtime: Runtime | None = None) -> None:
        self.app = app
        self.client = client
        self.runtime = runtime or system()
        self.topics = app.input_topics()
        self.running: dict[int, TaskRun] = {}
        self.consumer = Consumer(
            client,
            group_id=app.id,
            auto_offset_reset="none",  # positions come from the changelog
            isolation="read_committed",  # what a transaction aborted is no input
            max_poll_interval_ms=None,  # tasks are restored inside polls, and agents may take long between them
        )
        self.producer = Producer(client, linger_ms=5, compression="lz4")
        self.skipped_total = 0
        self.processed_total = 0
        self._backlog: deque[Backlog] = deque()  # of the last poll; the consumer fetches on meanwhile
        # Follows the agents' speed: so many took about BATCH_S, since an agent may take a whole batch at once.
        self._batch_events = 1
        self._checkpoints: dict[int, asyncio.Task[bool]] = {}
        self._overtaken: dict[int, None] = {}  # tasks for which another run may have begun
        self._checkpoint_at = NEVER
        self._stopping = asyncio.Event()
        app.outbox = self

    async def start(self) -> None:
        """Wait for the input topics, create the changelog, join the group."""
        count = await self._partitions()
        try:
            await Admin(self.client).create_topics([NewTopic(self.app.changelog_topic, count, -1, CHANGELOG_OPTIONS)])
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        await self.client.refresh_metadata([self.app.changelog_topic])
        have = len(self.client.partitions(self.app.changelog_topic))
        if have != count:
            raise self._grown(have, count)
        await self.producer.start()
        await self._join()

    async def _join(self) -> None:
        await self.consumer.subscribe(
            list(self.topics), on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._lost
        )

    def _grown(self, have: int, count: int) -> AppError:
        return AppError(
            f"{self.app.changelog_topic} has {have} partitions, the input topics have {count}: partitions of a running "
            "app's topics cannot be changed; give the app another id to start over"
        )

    async def _partitions(self) -> int:
        """The number of partitions of the input topics, which must be equal; waits until all topics exist."""
        told = False
        while True:
            await self.client.refresh_metadata(list(self.topics))
            counts = {name: len(self.client.partitions(name)) for name in self.topics}
            missing = [name for name, count in counts.items() if not count]
            if not missing:
                break
            if not told:
                log.warning("app %s waits for missing topics: %s", self.app.id, ", ".join(missing))
                told = True
            await asyncio.sleep(TOPICS_WAIT_S)
        if len(set(counts.values())) != 1:
            said = ", ".join(f"{name}: {count}" for name, count in counts.items())
            raise AppError(f"app {self.app.id}: the topics of an app need the same number of partitions ({said})")
        return next(iter(counts.values()))

    async def run(self) -> None:
        """Process until `stop`; raises the errors of agents and checkpoints."""
        loop = asyncio.get_running_loop()
        self._checkpoint_at = loop.time() + self.app.checkpoint_interval_ms / 1000
        while not self._stopping.is_set():
            if not self._backlog or self.consumer.must_poll:
                for batches in await self._poll():
                    self._take_in(batches)
            if self._backlog:
                await self._process_some()
            self._checkpoint_when_due(loop.time())
            if self._overtaken:
                await self._join_again()

    async def _poll(self) -> list[FetchedBatches]:
        try:
            return await self.consumer.poll_batches(POLL_MS)
        except (NoOffset, LogTruncated) as error:
            raise StreamsError(
                f"app {self.app.id}: {error}: the state in {self.app.changelog_topic} goes up to an offset that the "
                "topic does not have any more, or not yet (retention deleted it, the topic was created again, or a "
                "broker lost records). Nothing is skipped automatically: restore the records, or give the app another "
                "id to start over"
            ) from error

    async def stop(self) -> None:
        """Let `run` return after the current event; `close` then writes a last checkpoint and leaves the group."""
        self._stopping.set()

    async def close(self, timeout_ms: float = CLOSE_TIMEOUT_MS) -> None:
        """After `run` returned or was cancelled: write a last checkpoint of each task that has no half-processed event,
        and release everything. All within the time: raises ClientError or KafkaError when it is over, and `abandon`
        releases the rest."""
        async with self.client.operation(f"close of app {self.app.id}", timeout_ms):
            for number in list(self.running):
                await self._finish(number)
            await self.consumer.close()
            await self.producer.close()

    async def abandon(self) -> None:
        """After an error: release everything quickly, write nothing. The next run continues at the last checkpoint."""
        for number in list(self.running):
            await self._end(number)
        for closing in (self.consumer.close, self.producer.close):
            with contextlib.suppress(KafkaError, ClientError):
                await closing(ABANDON_MS)

    # --- Records ------------------------------------------------------------------------------------

    def _take_in(self, batches: FetchedBatches) -> None:
        run = self.running.get(batches.tp.partition)
        if run is None:
            return  # revoked during the fetch
        topic = self.topics[batches.tp.topic]
        from_offset = run.task.position(batches.tp.topic)
        skip = self._skip if topic.skips else None
        self._backlog.append(Backlog(batches, topic.codec, from_offset, skip))

    async def _process_some(self) -> None:
        """Give agents the next events until BATCH_S has passed or a checkpoint is due; partitions take turns."""
        backlog = self._backlog.popleft()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        until = min(begun + BATCH_S, self._checkpoint_at)
        done = await self.running[backlog.tp.partition].process(backlog, self._batch_events, until)
        self.processed_total += done
        if not backlog.empty:
            self._backlog.append(backlog)
        took = loop.time() - begun
        if took > BATCH_S:
            self._batch_events = max(1, int(done * BATCH_S / took))
        elif took < BATCH_S / 2 and done >= self._batch_events:
            self._batch_events = min(2 * self._batch_events, BATCH_EVENTS_MAX)

    def _skip(self, problem: RecordError) -> None:
        self.skipped_total += 1
        log.warning("left out (%d so far): %s", self.skipped_total, problem)

    async def send(
        self, task: Task, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int | None
    ) -> None:
        """The app's outbox: passes records to the producer, without waiting unless it is full."""
        if len(task.outputs) >= OUTPUTS_MAX:
            outputs, task.outputs = task.outputs, []
            await asyncio.gather(*outputs)
        if not self.producer.has_space:
            await self.producer.wait_for_space()
        task.outputs.append(self.producer.send(topic, value, key, timestamp_ms=timestamp_ms))

    # --- Checkpoints --------------------------------------------------------------------------------

    def _checkpoint_when_due(self, now: float) -> None:
        """Begin checkpoints of all changed tasks; only one at a time for a task."""
        for number, checkpoint in list(self._checkpoints.items()):
            if checkpoint.done():
                del self._checkpoints[number]
                if not checkpoint.result():  # its error ends the worker
                    self._overtaken[number] = None
        if now < self._checkpoint_at:
            return
        self._checkpoint_at = now + self.app.checkpoint_interval_ms / 1000
        for number, run in self.running.items():
            run.check()
            if run.task.changed and number not in self._checkpoints and number not in self._overtaken:
                self._checkpoints[number] = asyncio.get_running_loop().create_task(self._checkpoint(run.task))

    def _checkpoint(self, task: Task) -> Coroutine[Any, Any, bool]:
        """Write a checkpoint of the current state, between two batches. False if it may be invalid because another run
        may have begun: then this run must not write any more."""
        checkpoint = task.checkpoint()
        outputs, task.outputs = task.outputs, []
        return self._write_checkpoint(task, checkpoint, outputs)

    async def _write_checkpoint(
        self, task: Task, checkpoint: Checkpoint, outputs: Sequence[asyncio.Future[RecordMetadata]]
    ) -> bool:
        rows, marker, positions = checkpoint
        await asyncio.gather(*outputs)
        try:
            # The marker only now: it must not stand where a row of it was refused.
            counts = task.advance_and_check(await self._append(task, rows))
            if not (counts and task.advance_and_check(await self._append(task, [marker]))):
                log.warning(
                    "task %d of app %s: another run has written to %s, and may have taken over the task; what was done "
                    "after the last valid checkpoint will be done again",
                    task.number,
                    self.app.id,
                    self.app.changelog_topic,
                )
                return False
            for tombstones in task.confirm_checkpoint():
                task.advance_and_check(await self._append(task, tombstones))  # a gap shows at the next checkpoint
        except KafkaError as error:
            raise ChangelogError(self._not_written(task, rows, error)) from error
        offsets = {TopicPartition(t, p): offset for t, each in positions.items() for p, offset in each.items()}
        try:
            await self.consumer.commit(offsets)
        except (KafkaError, ClientError) as error:
            log.info("offsets of task %d not committed, which only lag tools will notice: %s", task.number, error)
        return True

    def _not_written(self, task: Task, rows: Sequence[ChangelogRecord], error: KafkaError) -> str:
        said = f"checkpoint of task {task.number} of app {self.app.id} was not written: {error}"
        if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE) and rows:
            largest = max(rows, key=lambda row: len(row.value or b""))
            table, key = split_key(row_key(largest.key))
            said += f"; its largest row, {len(largest.value or b'')} bytes, is {key!r} of table {table}"
        return said

    async def _append(self, task: Task, written: Sequence[ChangelogRecord]) -> list[int]:
        """Write records to the task's changelog and wait for them. Returns their offsets, -1 if unknown."""
        futures: list[asyncio.Future[RecordMetadata]] = []
        for record in written:
            if not self.producer.has_space:
                await self.producer.wait_for_space()
            futures.append(
                self.producer.send(
                    self.app.changelog_topic,
                    record.value,
                    record.key,
                    partition=task.number,
                    timestamp_ms=self.runtime.wall_ms(),
                    headers=() if record.header is None else ((ROW_HEADER, record.header),),
                )
            )
        return [each.offset for each in await asyncio.gather(*futures)]

    # --- Assignment ---------------------------------------------------------------------------------

    async def _begin(self, number: int) -> None:
        """Begin a run of a task with the state that earlier runs committed."""
        task = Task(self.app.id, number, self.app.tables.values(), self.runtime.uuid()[:RUN_BYTES])
        await self._append(task, [task.begin()])
        restored = await load_partition(self.client, self.app.id, self.app.changelog_topic, number)
        if restored.begun != task.run:
            log.warning("task %d of app %s: another run began after this one", number, self.app.id)
            self._overtaken[number] = None
            return
        task.restore(restored)
        self.running[number] = TaskRun(self.app, task)
        log.info("task %d goes on after checkpoint %d", number, task.checkpoint_number)

    async def _join_again(self) -> None:
        """End the tasks for which another run may have begun. If they still belong to this worker, start them again."""
        for number in list(self._overtaken):
            await self._end(number)
        await self._join()

    async def _assigned(self, partitions: Sequence[TopicPartition]) -> None:
        changelog = len(self.client.partitions(self.app.changelog_topic))
        for number in sorted({tp.partition for tp in partitions}):
            if number >= changelog:
                raise self._grown(changelog, number + 1)
            if number not in self.running:
                await self._begin(number)
        if self._overtaken:
            await self._join_again()
            return
        fresh = [tp for tp in partitions if not self.running[tp.partition].task.knows(tp.topic)]
        begins = await Admin(self.client).list_offsets(dict.fromkeys(fresh, "earliest")) if fresh else {}
        for tp in partitions:
            task = self.running[tp.partition].task
            topic_id = self.client.topic_id(tp.topic)
            if topic_id is not None and not task.bind_topic_id(tp.topic, uuid_to_str(topic_id)):
                raise StreamsError(
                    f"app {self.app.id}: topic {tp.topic} was deleted and created again, but the state in "
                    f"{self.app.changelog_topic} includes the old one up to offset {task.position(tp.topic)}. Nothing "
                    "is skipped automatically: give the app another id to start over"
                )
            if tp in begins:
                task.set_start(tp.topic, begins[tp][0])
            self.consumer.seek(tp, task.position(tp.topic))

    async def _revoked(self, partitions: Sequence[TopicPartition]) -> None:
        for number in sorted({tp.partition for tp in partitions}):
            await self._finish(number)

    async def _lost(self, partitions: Sequence[TopicPartition]) -> None:
        """The group has removed this worker, and others may have its tasks: they end without a last checkpoint."""
        for number in sorted({tp.partition for tp in partitions}):
            await self._end(number)

    async def _finish(self, number: int) -> None:
        """The last checkpoint of a task that leaves."""
        run = self.running.get(number)
        if run is None:
            return
        under_way = self._checkpoints.pop(number, None)
        try:
            counts = number not in self._overtaken and (under_way is None or await under_way)
            if not run.is_whole:
                log.warning("task %d stopped during an event, or failed: it continues from its last checkpoint", number)
            elif run.task.changed and counts:
                await self._checkpoint(run.task)
        finally:
            await self._end(number)

    async def _end(self, number: int) -> None:
        """Stop a task, if it runs, and its current checkpoint."""
        if under_way := self._checkpoints.pop(number, None):
            under_way.cancel()
            await asyncio.gather(under_way, return_exceptions=True)
        self._backlog = deque(each for each in self._backlog if each.tp.partition != number)
        self._overtaken.pop(number, None)
        if run := self.running.pop(number, None):
            await run.stop()
