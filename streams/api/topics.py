"""Topics that an app reads or writes."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol

from ...client import RecordMetadata
from ..engine import topic_names
from ..engine.codecs import CodecArg
from ..engine.columns import ColumnTypes, records_of
from ..engine.event import Event, Headers
from ..engine.failures import FAIL, OnError, check
from ..engine.partitioning import KeyRule, key_rule
from ..engine.serialization import Serialization, Serializers
from ..engine.task import Task
from ..errors import AppError
from . import absent
from .generics import KeyT, ValueT
from .outgoing import Outgoing
from .schema import Schema
from .work import current_work

IDLE_AFTER_MS = 5_000  # by default
NEVER_IDLE_MS = 1 << 62
Place = Callable[[Event, int], int | None]  # of an event and the number of partitions: a partition; None: by the key


class Outbox(Protocol):
    """The destination of `Topic.send`: the worker's producers, or a test's list."""

    async def send(self, task: Task | None, record: Outgoing) -> Awaitable[RecordMetadata]:
        """Returns what has the record's place, once it is acknowledged."""
        ...

    def put(
        self,
        task: Task,
        topic: Topic,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp_ms: int,
        by: KeyRule | None,
        of: Event,
    ) -> Awaitable[RecordMetadata] | None:
        """`send` of a record without headers, where that is to be had at once; None: it is not, and nothing is sent.
        by: the partitioner, None: the app's. of: the event that it is sent for."""
        ...

    def send_soon(self, task: Task | None, record: Outgoing) -> Awaitable[RecordMetadata]:
        """The same for code that cannot wait."""
        ...

    async def declare(self, topic: Topic) -> None:
        """Create it on the cluster, unless it is there. Raises KafkaError where the cluster refuses that."""
        ...


class Owner(Protocol):
    """The app that a topic was declared in."""

    @property
    def id(self) -> str: ...

    @property
    def serializers(self) -> Serializers: ...

    def outbox_at_hand(self) -> Outbox:
        """Of the worker or driver that runs the app; else one that is made for it."""
        ...


class Topic(Generic[KeyT, ValueT]):
    """Made by `App.topic`. is_internal: of the app itself, which creates it, and in whose transactions its records
    are."""

    def __init__(
        self,
        app: Owner,
        names: Sequence[str],
        *,
        serialization: Serialization,
        partitions: int | None = None,
        config: Mapping[str, Any] | None = None,
        on_error: OnError = FAIL,
        is_internal: bool = False,
        partitioner: Any = None,
    ) -> None:
        if not names:
            raise AppError("app.topic() needs a name")
        for name in names:
            topic_names.check_topic(name)
        self.app = app
        self.names = tuple(names)
        self.serialization = serialization
        self.encode_key = serialization.encode_key
        self.encode_value = serialization.encode_value
        self.timestamp: Callable[[Any], int] | None = None  # of a value, in ms
        self.watermark_delay_ms = 0  # how far a record's time may be behind an earlier one's
        self.idle_after_ms = IDLE_AFTER_MS  # with nothing to read for so long it is not waited for
        self.has_heartbeats = False  # among its records: tasks write them (`engine/heartbeats.py`)
        self.place: Place | None = None  # of what pipelines write; None: by the key
        self.partitions = partitions
        self.config = dict(config or {})
        self.on_error = check(on_error, f"topic {names[0]}")
        self.is_internal = is_internal
        self.partitioner = (
            None if partitioner is None else key_rule(partitioner, f"topic {names[0]}")
        )  # None: the app's
        self.is_declared = False  # by `maybe_declare`
        self.is_at_once = False
        self.is_asked = False  # its records may be requests for replies
        self.columns: ColumnTypes | None = None  # its records are read as these, not as events
        self.derived_from: Topic | None = None  # whose number of partitions it has

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(absent.said("Topic", name, dir(type(self))))

    def derive(self, name: str, partitions: int | None = None) -> Topic[KeyT, ValueT]:
        """A topic of the app with the same kinds of keys and values. partitions: as many as this one has."""
        made = copy.copy(self)
        made.names, made.partitions, made.is_internal, made.is_declared = (name,), partitions, True, False
        made.derived_from = None if partitions else self
        return made

    def partitioned_by(self, partitioner: Any) -> Topic:
        """This topic, for who writes it by another partitioner. None: itself."""
        if partitioner is None:
            return self
        made = copy.copy(self)
        made.partitioner = key_rule(partitioner, f"topic {self.names[0]}")
        return made

    def at_once(self) -> Topic:
        """The topic, for records that are in no transaction: they are seen at once, and again where their event is
        processed again. The checkpoint of the event waits until they are acknowledged."""
        made = copy.copy(self)
        made.is_at_once = True
        return made

    def as_events(self) -> Topic:
        """The same topic, read as events."""
        if self.columns is None:
            return self
        made = copy.copy(self)
        made.columns = None
        return made

    def reads_alike(self, other: Topic) -> bool:
        """Whether records are decoded the same way by another declaration."""
        mine, its = self.serialization, other.serialization
        return (
            mine.key is its.key
            and mine.value is its.value
            and mine.schema is its.schema
            and self.columns == other.columns
        )

    def get_topic_name(self) -> str:
        """Its name. Raises AppError where it stands for several topics."""
        if len(self.names) != 1:
            raise AppError(f"a record can be sent to one topic, not to {', '.join(self.names)}")
        return self.names[0]

    async def send(
        self,
        *,
        key: Any = None,
        value: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        timestamp: float | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
        partitioner: Any = None,
        key_serializer: CodecArg = None,
        value_serializer: CodecArg = None,
        callback: Callable[[Any], Any] | None = None,
        force: bool = False,
    ) -> Awaitable[RecordMetadata]:
        """Send a record. From an agent: it is acknowledged before the checkpoint that covers the current event, and
        with processing_guarantee='exactly_once' it counts with that checkpoint. timestamp_ms defaults to that event's.
        timestamp: the same in seconds. value None: a tombstone. key_serializer, value_serializer: codecs, for this
        record, in place of the topic's; partitioner: likewise. callback: called with what this returns, once the record
        is acknowledged or is not to be. force: as if it were not given. Returns what gives its place, when awaited in
        turn. Where no worker runs, it is acknowledged when this returns."""
        key, value = self._encoded(key, value, key_serializer, value_serializer)
        if timestamp is not None:
            timestamp_ms = round(timestamp * 1000)
        by = self._by(partitioner)
        sent = None if headers else self._put(key, value, partition, timestamp_ms, by)
        if sent is None:
            task, record = self._made(key, value, partition, timestamp_ms, headers, by)
            sent = await self.app.outbox_at_hand().send(task, record)
        if callback is not None:
            asyncio.ensure_future(sent).add_done_callback(callback)
        return sent

    def _encoded(
        self, key: Any, value: Any, key_serializer: CodecArg, value_serializer: CodecArg
    ) -> tuple[bytes | None, bytes | None]:
        if key_serializer is None and value_serializer is None:
            return self.encode_key(key), self.encode_value(value)
        schema = Schema(key_serializer=key_serializer, value_serializer=value_serializer)
        other = schema.bind(self.app.serializers)
        return (
            (self if key_serializer is None else other).encode_key(key),
            (self if value_serializer is None else other).encode_value(value),
        )

    async def send_encoded(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
        partitioner: Any = None,
        is_output: bool = True,
    ) -> Awaitable[RecordMetadata]:
        """`send` for a key and a value as they are written. is_output: whether the checkpoint of the agent that sends
        has it; else it is written at once, whatever becomes of the event."""
        by = self._by(partitioner)
        if is_output and not headers:
            sent = self._put(key, value, partition, timestamp_ms, by)
            if sent is not None:
                return sent
        task, record = self._made(key, value, partition, timestamp_ms, headers, by)
        return await self.app.outbox_at_hand().send(task if is_output else None, record)

    def _put(
        self,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        by: KeyRule | None,
    ) -> Awaitable[RecordMetadata] | None:
        """Send a record without headers, from an agent, where nothing must be waited for; else None."""
        work = current_work.get(None)
        if work is None or work.outputs is None or work.current is None:
            return None
        at_ms = work.current.timestamp_ms if timestamp_ms is None else timestamp_ms
        return self.app.outbox_at_hand().put(work.outputs, self, key, value, partition, at_ms, by, work.current)

    async def send_rows(self, rows: Any, *, key: str = "key") -> None:
        """Send a record for each row of a `pyarrow.RecordBatch` or `Table`, as `send` does. Values are the column
        `value`, where there is one, else dicts of the columns. key: the name of the column with the keys. Timestamps
        are the column `timestamp`, where there is one."""
        for key_, value, timestamp_ms in records_of(rows, key):
            await self.send(key=key_, value=value, timestamp_ms=timestamp_ms)

    async def declare(self) -> None:
        """Create it, unless it is there. A worker creates the topics of the app itself; others, which programs may
        send to before anybody else has created them, are created by this. Raises AppError where the app may create no
        topics, KafkaError where the cluster refuses."""
        await self.app.outbox_at_hand().declare(self)

    async def maybe_declare(self) -> None:
        """`declare`, once."""
        if not self.is_declared:
            await self.declare()
            self.is_declared = True

    def send_soon(
        self,
        *,
        key: Any = None,
        value: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        timestamp: float | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
        partitioner: Any = None,
        key_serializer: CodecArg = None,
        value_serializer: CodecArg = None,
        callback: Callable[[Any], Any] | None = None,
        force: bool = False,
    ) -> Awaitable[RecordMetadata]:
        """`send` for code that is not async, such as a callback. Raises BufferFull where too much waits already."""
        data = self._encoded(key, value, key_serializer, value_serializer)
        if timestamp is not None:
            timestamp_ms = round(timestamp * 1000)
        by = self._by(partitioner)
        sent = self.app.outbox_at_hand().send_soon(*self._made(*data, partition, timestamp_ms, headers, by))
        if callback is not None:
            asyncio.ensure_future(sent).add_done_callback(callback)
        return sent

    def _by(self, partitioner: Any) -> KeyRule | None:
        return (
            self.partitioner
            if partitioner is None
            else key_rule(partitioner, f"a record for topic {self.get_topic_name()}")
        )

    def _made(
        self,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | Mapping[str, bytes | None],
        by: KeyRule | None,
    ) -> tuple[Task | None, Outgoing]:
        """What an outbox takes."""
        self.get_topic_name()  # raises
        work = current_work.get(None)
        if timestamp_ms is None and work is not None and work.current is not None:
            timestamp_ms = work.current.timestamp_ms
        sent = tuple(headers.items()) if isinstance(headers, Mapping) else headers
        return (
            None if work is None else work.outputs,
            Outgoing(self, key, value, partition, timestamp_ms, sent, by),
        )

    def __class_getitem__(cls, _: Any) -> type[Topic]:
        """`Topic[Order]` is for readers of the code."""
        return cls

    def __repr__(self) -> str:
        return f"<Topic {', '.join(self.names)}>"
