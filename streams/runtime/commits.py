"""What a worker writes: outputs of its agents, and checkpoints, in transactions.

A transaction has the changed rows of tables, their markers and the group's offsets (see `engine/checkpoint.py`),
records to the app's internal topics and, with exactly_once, all other outputs of agents, too. Otherwise these are
written by a producer of their own, and a checkpoint waits until they are acknowledged. A checkpoint that has nothing
for a transaction commits plain offsets.

The group's generation fences: a worker that the group has removed cannot commit (KIP-447).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...client import Acknowledged, Admin, Client, Consumer, Producer, RecordMetadata, TopicPartition
from ...client.committed import NOT_THIS_MEMBER
from ...client.errors import (
    BufferFull,
    ClientError,
    OperationTimeout,
    ProducerFailed,
    ProducerFenced,
    TransactionAborted,
)
from ...client.operation import CLOSE_TIMEOUT_MS
from ...protocol.errors import ErrorCode, KafkaError
from ...runtime import Runtime
from ..api.app import App
from ..api.outgoing import Destination, Outgoing
from ..api.topics import Topic
from ..engine.checkpoint import MARKER, Marker, Row, as_written
from ..engine.event import Event
from ..engine.heartbeats import Heartbeat
from ..engine.origin import carrying
from ..engine.partitioning import KeyRule, partition_of
from ..engine.stores.global_store import GlobalStore, Place, Written
from ..engine.task import Checkpoint, Task
from ..errors import AppError, ChangelogError, CommitRefused, StreamsError
from .changelogs import check_end
from .declaring import declare
from .outputs import WAITING_MAX, Outputs, Pending
from .time_limits import AFTER_MAX, TimeLimits, TimestampRefused

log = logging.getLogger("isthmus.streams")

FENCED_MAX = 3  # in a row, before that counts as another worker of the same name
OUTPUTS_MAX = 100_000  # unacknowledged outputs before an agent that sends waits for them
UNNAMED = "[0-9a-f]{32}"  # what a worker is called that nobody gave a name
ONGOING = "Ongoing"  # what Kafka calls a transaction that is open
PORTION_ROWS, PORTION_BYTES = 5_000, 1 << 20  # of a changelog, that a producer is given at once
CHANGELOG_COMPRESSION = "lz4"


Shared = Mapping[str, Sequence[Written]]  # rows of global tables, by table


class _Late(NamedTuple):
    """A record that waits for a transaction. outcome: what the app was given."""

    task: Task
    record: Outgoing
    outcome: asyncio.Future[RecordMetadata]


class Commits:
    """The producers of one worker. name: of the worker, which no other one of the app has at a time. check: called at
    each commit, before anything of it is written; raises CommitRefused. committed: told of the group's offsets after
    each. global_stores: by table, set before the first task begins; what agents change in them is in the
    transactions."""

    def __init__(
        self,
        app: App,
        client: Client,
        consumer: Consumer,
        name: str,
        runtime: Runtime,
        check: Callable[[], Awaitable[None]],
        committed: Callable[[Mapping[TopicPartition, int]], None],
    ) -> None:
        self._check = check
        self.global_stores: Mapping[str, GlobalStore] = {}
        self._committed = committed
        self.app = app
        self._carries_origins = app.carries_origins
        self.client = client
        self.consumer = consumer
        self.runtime = runtime
        self._is_exactly_once = app.is_exactly_once
        by = app.conf.producer_partitioner
        self._function = None if isinstance(by, str) else by  # of the app's own partitioner
        self.transactional_id = f"{app.id}-{name}"
        timeout_s, interval_s = app.conf.producer_transaction_timeout, app.conf.broker_commit_interval
        if app.conf.said.get("producer_transaction_timeout") and timeout_s <= interval_s:
            raise AppError(
                f"app {app.id}: producer_transaction_timeout is {timeout_s:g} s, and must be longer than "
                f"broker_commit_interval, {interval_s:g} s: a transaction lasts from one commit to the next"
            )
        self._timeout_ms = round(timeout_s * 1000)
        self._plain = Producer(
            client,
            linger_ms=app.conf.producer_linger * 1000,
            compression=app.conf.producer_compression_type,
            partitioner=app.conf.producer_partitioner,
            request_timeout_ms=round(app.conf.broker_request_timeout * 1000),
        )
        self._outputs_beside = Outputs(self._plain, self._handed_over, self._refused_at_once)
        self._outputs_within: Outputs | None = None  # of the transactional producer
        self._transactional: Producer | None = None  # from the first transaction on
        self._starting = asyncio.Lock()
        self._has_transactions = False
        self._beside: dict[asyncio.Task[None], None] = {}  # what ends the transactions of others
        self._is_open = False  # a transaction is
        self._ending: asyncio.Future[None] | None = None  # while a commit is under way
        self._outputs: list[asyncio.Future[Any]] = []  # since the last checkpoint
        self._late: deque[_Late] = deque()  # of `send_soon`, for the transaction that is open, or the next one
        self._writers: dict[Task, None] = {}  # that have written to the transaction that is open, or to the next one
        self._fenced = 0  # in a row
        self._failure: CommitRefused | None = None  # of an output since the last commit
        self._limits = TimeLimits(client, runtime)

    async def start(self, has_transactions: bool) -> None:
        """has_transactions: the app will have them. What a worker of this name, which was killed, has open is aborted
        now then, and not with the first one."""
        await self._plain.start()
        self._has_transactions = has_transactions
        if has_transactions:
            self._do_beside(self._take_over())

    async def _take_over(self) -> None:
        with contextlib.suppress(StreamsError, KafkaError, ClientError):  # the first transaction tells
            async with self._starting:
                await self._started()

    def end_others(self, transactional_ids: Iterable[str]) -> None:
        """Of workers that have left the group. What one that was killed has open would hold up readers until its
        timeout. One that lives would be refused by the group."""
        for each in transactional_ids:
            self._do_beside(self._end_other(each))

    def end_unnamed(self, names: str, living: Callable[[], Awaitable[Collection[str]]]) -> None:
        """Of workers without a name that were killed, where nobody was told of them: no other worker has their names
        again. names: a regular expression of what these are called. living: the transactional ids of all that are in
        the group; without this worker's own among them nothing is done."""
        if self._has_transactions:
            self._do_beside(self._end_unnamed(re.compile(f"{re.escape(self.app.id)}-{names}"), living))

    async def _end_unnamed(self, ids: re.Pattern[str], living: Callable[[], Awaitable[Collection[str]]]) -> None:
        try:
            found = await Admin(self.client).list_transactions(states=[ONGOING])
            there = await living()  # only then: whoever is in the group had not begun, or is among them
        except (KafkaError, ClientError) as error:
            log.info("app %s: what killed workers have open ends after its timeout: %s", self.app.id, error)
            return
        for each in found if self.transactional_id in there else ():
            if ids.fullmatch(each.transactional_id) and each.transactional_id not in there:
                await self._end_other(each.transactional_id)

    async def _end_other(self, transactional_id: str) -> None:
        producer = Producer(self.client, transactional_id=transactional_id, transaction_timeout_ms=self._timeout_ms)
        try:
            await producer.start()
            log.info("app %s: what %s had open is aborted: it has left the group", self.app.id, transactional_id)
        except (KafkaError, ClientError) as error:
            log.warning("app %s: what %s has open ends after its timeout: %s", self.app.id, transactional_id, error)
        finally:
            await producer.close(0)

    def _do_beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"transactions of {self.app.id}")
        self._beside[task] = None
        task.add_done_callback(lambda each: self._beside.pop(each, None))

    # --- Outputs ------------------------------------------------------------------------------------

    def put(
        self,
        task: Task,
        topic: Destination,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp_ms: int,
        by: KeyRule | None,
        of: Event,
    ) -> Pending | None:
        """`send` of a record without headers, where nothing must be waited for: else None. This is the rule: the task
        goes on, the producer has space; in a transaction: it is open, and nothing else comes first. by: as of
        `Outgoing`. Raises what a partitioner of the app's raises, and TimestampRefused."""
        outputs = self._outputs_for(task, topic)
        if outputs is None:
            return None
        name = topic.get_topic_name()
        if name in self._limits.known:
            self._limits.check(name, timestamp_ms)
        by = by or self._function
        if partition is not None:
            by = None
        elif by is not None and not isinstance(by, str):  # it may raise: it is called for each, and now
            count = len(self.client.partitions(name))
            if not count:
                return None
            partition, by = partition_of(key, count, by), None
        sent = outputs.put(name, key, value, partition, timestamp_ms, by, of)
        if sent is not None:
            task.changed = True
        return sent

    def _outputs_for(self, task: Task, topic: Destination) -> Outputs | None:
        """What takes a record by the rule of `put`."""
        if task.is_over or len(self._outputs) >= OUTPUTS_MAX:
            return None
        if not self._is_in_transaction(topic):
            return self._outputs_beside
        if self._outputs_within is None or not self._is_open or self._ending is not None or self._late:
            return None
        self._writers[task] = None
        return self._outputs_within

    def _handed_over(self, written: asyncio.Future[Acknowledged]) -> None:
        self._outputs.append(written)

    def _refused_at_once(self, error: Exception) -> Exception:
        self._failure = CommitRefused(f"app {self.app.id}: an output was not taken: {error}")
        return self._failure

    def _hand_over(self) -> None:
        """What waits comes before what is sent now, or committed."""
        self._outputs_beside.hand_over()
        if self._outputs_within is not None:
            self._outputs_within.hand_over()

    async def send(self, task: Task | None, record: Outgoing) -> asyncio.Future[RecordMetadata]:
        """The app's outbox: passes a record to a producer, without waiting for it. What no task has sent belongs to no
        transaction. Returns what has its place, once it is acknowledged."""
        if task is not None and task.is_over:
            raise self._is_over(task)
        record = self._in_time(task, record)
        try:
            producer = self._plain
            if task is not None and self._is_in_transaction(record.topic):
                producer = await self._open()
                self._writers[task] = None
                self._send_late(producer)
            if len(self._outputs) >= OUTPUTS_MAX:
                await asyncio.wait(self._outputs)
                self._outputs = _unwritten(self._outputs)
            self._hand_over()
            if not producer.has_space:
                await producer.wait_for_space()
            self._hand_over()  # what was put meanwhile
            sent = record.put(producer)
        except (KafkaError, ClientError) as error:
            raise self._not_taken(task, error) from error
        return self._sent(task, sent)

    def send_soon(self, task: Task | None, record: Outgoing) -> asyncio.Future[RecordMetadata]:
        """`send` for code that cannot wait. What belongs to a transaction is sent at its end, or before the next record
        of `send`. Raises BufferFull, or in an agent CommitRefused, where too much waits already."""
        if task is not None and task.is_over:
            raise self._is_over(task)
        record = self._in_time(task, record)
        try:
            if task is None or not self._is_in_transaction(record.topic):
                self._hand_over()
                return self._sent(task, record.put(self._plain))
            if len(self._late) >= OUTPUTS_MAX:
                raise BufferFull(
                    f"{len(self._late)} records of send_soon() wait for their transaction: await send() instead"
                )
        except (KafkaError, ClientError) as error:
            raise self._not_taken(task, error) from error
        outcome: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        self._late.append(_Late(task, record, outcome))
        self._writers[task] = None
        task.changed = True
        return outcome

    def _in_time(self, task: Task | None, record: Outgoing) -> Outgoing:
        """A record with a timestamp that its topic takes: a dead letter is one of now where its own is refused. Raises
        TimestampRefused."""
        name = record.topic.get_topic_name()
        if task is not None and record.timestamp_ms is not None and name in self._limits.known:
            try:
                self._limits.check(name, record.timestamp_ms)
            except TimestampRefused:
                if record.topic is not self.app.dead_letters:
                    raise
                return record._replace(timestamp_ms=None)
        return record

    async def declare(self, topic: Topic) -> None:
        await declare(self.client, self.app.conf, topic)

    def _is_in_transaction(self, topic: Destination) -> bool:
        """Whether what a task sends there counts with its next checkpoint."""
        return (self._is_exactly_once or topic.is_internal) and not topic.is_at_once

    def _is_over(self, task: Task) -> StreamsError:
        return StreamsError(f"task {task.id} has ended here: its agent must not send any more")

    def _not_taken(self, task: Task | None, error: Exception) -> Exception:
        """What to raise for an output that is not taken: it is not the record's fault, and not to be passed over,
        whatever the agent does with the error."""
        return error if task is None else self._refused_at_once(error)

    def _sent(self, task: Task | None, sent: asyncio.Future[RecordMetadata]) -> asyncio.Future[RecordMetadata]:
        if task is not None:
            task.changed = True
            self._outputs.append(sent)
        else:
            sent.add_done_callback(_told)
        return sent

    def _send_late(self, producer: Producer) -> None:
        """What `send_soon` was given, into the transaction that is open."""
        self._hand_over()
        while self._late:
            task, record, outcome = self._late[0]
            self._sent(task, record.put(producer)).add_done_callback(functools.partial(_copy, outcome))
            self._late.popleft()

    async def send_event(self, task: Task, topic: Topic, event: Event) -> None:
        """What an operator gives to a topic."""
        key, value = topic.encode_key(event.key), topic.encode_value(event.value)
        headers = carrying(event) if self._carries_origins else event.raw_headers
        partition = None if topic.place is None else topic.place(event, await self._count(topic))
        by = topic.partitioner
        if not headers and self.put(task, topic, key, value, partition, event.timestamp_ms, by, event) is not None:
            return
        record = Outgoing(topic, key, value, partition, event.timestamp_ms, headers, by)
        await self.send(task, record)

    def put_events(self, task: Task, topic: Topic, events: Sequence[Event]) -> int:
        """`send_event` of the first of several, as columns, by the rule of `put`; how many. Where one has headers or
        cannot be encoded, it is the first that is not taken: `send_event` tells why. None is where the topic refuses
        a time."""
        by = topic.partitioner or self._function
        if self._carries_origins or topic.place is not None or not (by is None or isinstance(by, str)):
            return 0
        name = topic.get_topic_name()
        if name in self._limits.known and not self._limits.takes(name, events):
            return 0
        taken = 0
        while taken < len(events):
            outputs = self._outputs_for(task, topic)
            if outputs is None:
                break
            some = events[taken : taken + WAITING_MAX]
            keys, values = _encoded(topic, some)
            if not keys or not outputs.put_columns(name, keys, values, by, some[: len(keys)]):
                break
            task.changed = True
            taken += len(keys)
            if len(keys) < len(some):
                break
        return taken

    async def send_heartbeat(self, task: Task, topic: Topic, beat: Heartbeat) -> None:
        """Of a task, to those that read what it writes."""
        for partition in range(await self._count(topic)):
            await self.send(task, Outgoing(topic, None, None, partition, beat.timestamp_ms, beat.headers))

    async def _count(self, topic: Topic) -> int:
        """Partitions of a topic of the app."""
        name = topic.get_topic_name()
        found = len(self.client.partitions(name))
        if not found:
            await self.client.refresh_metadata([name])
            found = len(self.client.partitions(name))
        if not found:
            raise CommitRefused(f"app {self.app.id}: topic {name} is not known to the cluster any more, or not yet")
        return found

    # --- Checkpoints --------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a commit is under way."""
        return self._ending is not None

    @property
    def has_outputs(self) -> bool:
        """Whether a transaction is open that must be ended, or there is something for one that is of no task alone."""
        return self._is_open or bool(self._late) or any(each.has_changes for each in self.global_stores.values())

    @property
    def writers(self) -> Collection[Task]:
        """The tasks that have outputs in the transaction that is open, or in the next one: they must be in the commit
        that ends it."""
        return self._writers.keys()

    def begin_commit(self, checkpoints: Sequence[Checkpoint]) -> asyncio.Task[None]:
        """Commit these checkpoints and all outputs so far together. The task raises

        * CommitRefused: nothing of them counts, and the tasks must go back to their last checkpoint;
        * ChangelogError, StreamsError: the worker cannot go on."""
        assert self._ending is None, "one commit at a time"
        self._hand_over()
        if self._failure is not None:
            raise self._failure
        outputs, self._outputs = self._outputs, []
        late, self._late = self._late, deque()
        shared = {name: store.take_changes() for name, store in self.global_stores.items() if store.has_changes}
        self._writers = {}
        self._ending = asyncio.get_running_loop().create_future()
        return asyncio.get_running_loop().create_task(
            self._commit_and_end(checkpoints, outputs, late, shared), name=f"commit of {self.app.id}"
        )

    async def _commit_and_end(
        self,
        checkpoints: Sequence[Checkpoint],
        outputs: Sequence[asyncio.Future[Any]],
        late: Iterable[_Late],
        shared: Shared,
    ) -> None:
        try:
            await self._commit(checkpoints, outputs, late, shared)
        finally:  # not in a callback: the next commit may begin as soon as the task is done
            _cancel(late)  # of a commit that was refused
            ended, self._ending = self._ending, None
            assert ended is not None
            ended.set_result(None)

    async def _commit(
        self,
        checkpoints: Sequence[Checkpoint],
        outputs: Sequence[asyncio.Future[Any]],
        late: Iterable[_Late],
        shared: Shared,
    ) -> None:
        offsets = {
            TopicPartition(topic, each.task.partition): at.offset
            for each in checkpoints
            for topic, at in each.positions.items()
        }
        if not self._is_open and not late and not shared and not any(each.rows for each in checkpoints):
            await self._commit_offsets(checkpoints, offsets, outputs)
            return
        try:
            await asyncio.gather(*_unwritten(outputs))
            await self._check()
            producer = await self._begun()
            written, placed = await self._write(producer, checkpoints, late, shared)
            self._check_changelogs(checkpoints, written)
            await producer.send_offsets(offsets, self.consumer.group_metadata())
            await self._decided(producer)
        except (TransactionAborted, KafkaError, ClientError) as error:
            await self._refused(error, checkpoints, shared)
        except ChangelogError:
            await self.roll_back()
            raise
        self._is_open, self._fenced = False, 0
        for each, ends in zip(checkpoints, written, strict=True):
            each.task.confirm(each, ends)
        for table, places in placed.items():
            self.global_stores[table].confirm(places)
        self._committed(offsets)

    async def _commit_offsets(
        self,
        checkpoints: Sequence[Checkpoint],
        offsets: dict[TopicPartition, int],
        outputs: Sequence[asyncio.Future[Any]],
    ) -> None:
        """Of tasks without tables, whose outputs go out at once."""
        try:
            await asyncio.gather(*_unwritten(outputs))
        except (KafkaError, ClientError) as error:
            await self._see_time(error, error)
            raise self._not_written(error) from error
        try:
            await self.consumer.commit(offsets)
        except (KafkaError, ClientError) as error:
            # A rebalance under way: the next commit, or the next owner, goes on from the last one.
            log.info("app %s: offsets were not committed, and are with the next commit: %s", self.app.id, error)
            for each in checkpoints:
                each.task.changed = True
            return
        self._committed(offsets)

    async def _write(
        self, producer: Producer, checkpoints: Sequence[Checkpoint], late: Iterable[_Late], shared: Shared
    ) -> tuple[list[dict[str, int]], dict[str, list[Place]]]:
        """Late outputs, changed rows and markers. Returns for each checkpoint where its records end in the changelogs,
        by table, and where the rows of each global table are."""
        ends: list[dict[str, asyncio.Future[Acknowledged]]] = []
        all_sent: list[asyncio.Future[Any]] = []
        for _, record, outcome in late:
            if not producer.has_space:
                await producer.wait_for_space()
            all_sent.append(record.put(producer))
            all_sent[-1].add_done_callback(functools.partial(_copy, outcome))
        for each in checkpoints:
            last: dict[str, asyncio.Future[Acknowledged]] = {}
            for table, rows in each.rows.items():
                topic, now_ms = self.app.changelog_topic(table), self.runtime.wall_ms()
                for keys, values in _portions(rows):
                    if not producer.has_space:
                        await producer.wait_for_space()
                    last[table] = producer.send_many(
                        topic, values, keys, partition=each.task.partition, timestamps_ms=now_ms
                    )
                    all_sent.append(last[table])
            ends.append(last)
        of_global: dict[str, list[tuple[int, asyncio.Future[RecordMetadata]]]] = {table: [] for table in shared}
        for table, changes in shared.items():
            topic, now_ms = self.app.changelog_topic(table), self.runtime.wall_ms()
            for change in changes:
                if not producer.has_space:
                    await producer.wait_for_space()
                [row] = as_written([(change.key, change.value)])
                sent = producer.send(topic, row.value, row.key, partition=change.partition, timestamp_ms=now_ms)
                of_global[table].append((change.partition, sent))
                all_sent.append(sent)
            marker = Marker(self.app.id, now_ms, (table,)).encode()
            for partition in sorted({change.partition for change in changes}):
                all_sent.append(producer.send(topic, marker, MARKER, partition=partition, timestamp_ms=now_ms))
        await producer.flush()
        await asyncio.gather(*all_sent)
        return (
            [
                {table: sent.result().offsets[each.task.partition] + 1 for table, sent in last.items()}
                for each, last in zip(checkpoints, ends, strict=True)
            ],
            {table: [Place(at, sent.result().offset) for at, sent in all] for table, all in of_global.items()},
        )

    def _check_changelogs(self, checkpoints: Sequence[Checkpoint], written: Sequence[Mapping[str, int]]) -> None:
        """Raises ChangelogError where rows were written to a topic that does not have those before."""
        for each, ends in zip(checkpoints, written, strict=True):
            for table, end in ends.items():
                known, first = each.task.stores[table].changelog_offset, end - len(each.rows[table])
                check_end(self.app.id, self.app.changelog_topic(table), each.task.partition, known, first)

    async def _decided(self, producer: Producer) -> None:
        """Commit; asked again until the outcome is known."""
        while True:
            try:
                return await producer.commit_transaction()
            except OperationTimeout as error:
                log.warning("app %s: no answer to a commit yet: %s", self.app.id, error)

    async def _refused(self, error: Exception, checkpoints: Sequence[Checkpoint], shared: Shared) -> None:
        """The transaction failed, and is aborted. Raises what that means for the worker."""
        await self.roll_back()
        cause = error.__cause__ if isinstance(error, TransactionAborted) and error.__cause__ else error
        code = cause.code if isinstance(cause, KafkaError) else None
        await self._see_time(cause, error)
        if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            if noted(error):
                raise self._not_written(error) from error
            raise ChangelogError(self._too_large(cause, checkpoints, shared)) from error
        # Which of them it is depends on who is asked first: the coordinator, or a partition that is written to.
        if isinstance(error, ProducerFenced) or code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
            self._fenced += 1
            if self._fenced >= FENCED_MAX:
                raise StreamsError(
                    f"app {self.app.id}: another worker uses the transactional id {self.transactional_id}: give each "
                    "worker a name of its own"
                ) from error
        elif code not in NOT_THIS_MEMBER and not getattr(cause, "retriable", False):
            raise StreamsError(f"app {self.app.id}: a commit was refused for good: {error}{noted(error)}") from error
        raise CommitRefused(f"app {self.app.id}: a commit was refused, and its work is done again: {error}") from error

    async def _see_time(self, cause: BaseException, error: BaseException) -> None:
        """Raises CommitRefused for a timestamp that a topic does not take: when the work is done again, the record is
        refused as it is sent."""
        if isinstance(cause, KafkaError) and cause.code == ErrorCode.INVALID_TIMESTAMP:
            if await self._limits.learn(cause):
                raise CommitRefused(
                    f"app {self.app.id}: an output is out of time, and its work is done again to find it: {cause}"
                ) from error
            error.add_note(f"send it with another timestamp=, or let the topic take it ({AFTER_MAX})")

    def _not_written(self, error: BaseException) -> StreamsError:
        return StreamsError(f"app {self.app.id}: an output was not written: {error}{noted(error)}")

    def _too_large(self, error: BaseException, checkpoints: Sequence[Checkpoint], shared: Shared) -> str:
        sizes = [
            (len(row.value or b""), table, row.key)
            for each in checkpoints
            for table, rows in each.rows.items()
            for row in rows
        ]
        sizes += [(len(row.value or b""), table, row.key) for table, rows in shared.items() for row in rows]
        said = f"a checkpoint of app {self.app.id} was not written: {error}"
        if sizes:
            size, table, key = max(sizes)
            said += f"; its largest row, {size} bytes, is {key!r} of table {table}"
        return said

    async def roll_back(self) -> None:
        """Abort what is open: outputs since the last commit do not count."""
        for waiting in (self._outputs_beside, self._outputs_within):
            if waiting is not None:
                waiting.drop()
        self._outputs, self._failure = [], None
        for store in self.global_stores.values():
            store.roll_back()
        _cancel(self._late)
        self._late.clear()
        self._writers = {}
        if not self._is_open or self._transactional is None:
            return
        try:
            await self._transactional.abort_transaction()
        except (KafkaError, ClientError) as error:
            log.warning("app %s: its producer is made anew: %s", self.app.id, error)
            with contextlib.suppress(KafkaError, ClientError):
                await self._transactional.close(0)
            self._transactional = self._outputs_within = None
        self._is_open = False

    async def removed(self) -> None:
        """The group has removed this worker. The others have fenced it, which is no sign of a double."""
        await self.roll_back()
        self._fenced = 0

    # --- The transaction ----------------------------------------------------------------------------

    async def _open(self) -> Producer:
        """The producer with a transaction open, for outputs: those during a commit belong to the next one, also if the
        commit has begun while this waited."""
        while True:
            while self._ending is not None:
                await asyncio.shield(self._ending)
            producer = await self._begun()
            if self._ending is None:
                return producer

    async def _begun(self) -> Producer:
        async with self._starting:
            producer = await self._started()
            if not self._is_open:
                await producer.begin_transaction()
                self._is_open = True
            return producer

    async def _started(self) -> Producer:
        if self._transactional is None:
            producer = Producer(
                self.client,
                linger_ms=self.app.conf.producer_linger * 1000,
                compression=CHANGELOG_COMPRESSION,
                partitioner=self.app.conf.producer_partitioner,
                request_timeout_ms=round(self.app.conf.broker_request_timeout * 1000),
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
            )
            try:
                await producer.start()
            except (ProducerFailed, KafkaError) as error:
                raise StreamsError(
                    f"app {self.app.id} cannot have transactions, which its tables"
                    f"{' and exactly_once' if self._is_exactly_once else ''} need: {error}. The cluster must allow "
                    "them "
                    "(on few brokers: transaction.state.log.replication.factor and .min.isr), and so must its ACLs"
                ) from error
            self._transactional = producer
            self._outputs_within = Outputs(producer, self._handed_over, self._refused_at_once)
        return self._transactional

    async def close(self, timeout_ms: float = CLOSE_TIMEOUT_MS) -> None:
        """Abort what is open, and release everything."""
        self._outputs_beside.hand_over()
        beside = list(self._beside)
        for each in beside:
            each.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        if self._transactional is not None:
            await self._transactional.close(timeout_ms)
        await self._plain.close(timeout_ms)


def _encoded(topic: Topic, events: Sequence[Event]) -> tuple[list[bytes | None], list[bytes | None]]:
    """Keys and values of the events before the first that has headers, or cannot be encoded."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    encode_key, encode_value = topic.encode_key, topic.encode_value
    with contextlib.suppress(TypeError, ValueError):
        for event in events:
            if event.raw_headers:
                break
            key = encode_key(event.key)
            values.append(encode_value(event.value))
            keys.append(key)
    return keys, values


def _unwritten(outputs: Iterable[asyncio.Future[Any]]) -> list[asyncio.Future[Any]]:
    """Those that are not acknowledged: what failed stays, so that the commit fails, whatever the agent does. Most of a
    commit's are, and to wait for each of thousands would cost the loop more than the commit."""
    return [each for each in outputs if not each.done() or each.cancelled() or each.exception()]


def noted(error: BaseException) -> str:
    """What `Column.told` has found out."""
    return "".join(f"; {each}" for each in getattr(error, "__notes__", ()))


def _copy(to: asyncio.Future[RecordMetadata], sent: asyncio.Future[RecordMetadata]) -> None:
    if to.done() or sent.cancelled():
        to.cancel()
    elif (error := sent.exception()) is not None:
        to.set_exception(error)
        to.exception()  # else asyncio logs it where the app does not look at what send_soon() returned
    else:
        to.set_result(sent.result())


def _portions(rows: Sequence[Row]) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
    """Keys and values of rows, so many at a time as a producer takes at once."""
    keys: list[bytes] = []
    values: list[bytes | None] = []
    size = 0
    for row in rows:
        keys.append(row.key)
        values.append(row.value)
        size += len(row.key) + len(row.value or b"")
        if size >= PORTION_BYTES or len(keys) >= PORTION_ROWS:
            yield keys, values
            keys, values, size = [], [], 0
    if keys:
        yield keys, values


def _cancel(late: Iterable[_Late]) -> None:
    for each in late:
        each.outcome.cancel()


def _told(sent: asyncio.Future[RecordMetadata]) -> None:
    if not sent.cancelled() and (error := sent.exception()) is not None:
        log.error("a record that was sent outside of agents was not written: %s", error)
