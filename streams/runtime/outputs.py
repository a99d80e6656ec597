"""Records on their way to a producer, as columns: an agent sends one after another, and they go together.

They are handed over when the loop has its next turn, so that a record waits for nothing but the code that runs, and
before anything that must come after them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any

from ...client import Acknowledged, Producer, RecordMetadata
from ...client.errors import ClientError, TransactionAborted
from ...client.partitioner import Partitioner
from ...protocol.errors import ErrorCode, KafkaError
from ..engine.event import Event

WAITING_MAX = 1_000  # records that are not handed over
WAITING_MAX_BYTES = 1 << 20
RECORD_BYTES = 100  # beside key and value: about as much as the producer counts for a record
TIMES_MS = range(-(1 << 63), 1 << 63)
KEY_SHOWN_BYTES = 50
_PLAIN, _TIME = frozenset({bytes, type(None)}), frozenset({int})


class Column:
    """Records of one topic. partition: which all of them go to; None: that of each key, by this partitioner, None:
    by the producer's. offsets: of the events that they are of; inputs: from which row on, where those were read. The
    events themselves are not kept: freeing thousands of them late costs more than the rows. written: once they are
    handed over."""

    __slots__ = (
        "_partition",
        "_topic",
        "by",
        "inputs",
        "keys",
        "offsets",
        "outputs",
        "partition",
        "timestamps",
        "topic",
        "values",
        "written",
    )

    def __init__(self, outputs: Outputs, topic: str, partition: int | None, by: str | Partitioner | None) -> None:
        self.outputs = outputs
        self.topic = topic
        self.partition = partition
        self.by = by
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.offsets: list[int] = []
        self.inputs: list[tuple[int, str, int]] = []  # row, topic and partition
        self._topic, self._partition = "", -1  # of the last of them
        self.written: asyncio.Future[Acknowledged] | None = None

    def note(self, event: Event) -> None:
        """The next row is of this event."""
        if event.partition != self._partition or event.topic != self._topic:
            self._topic, self._partition = event.topic, event.partition
            self.inputs.append((len(self.offsets), event.topic, event.partition))
        self.offsets.append(event.offset)

    def _at(self, row: int) -> str:
        _, topic, partition = next(each for each in reversed(self.inputs) if each[0] <= row)
        return f"the event {topic}-{partition} at offset {self.offsets[row]}"

    def told(self, written: asyncio.Future[Acknowledged]) -> None:
        """Note at the error of one that was refused which record it is, as far as that is known."""
        error = None if written.cancelled() else written.exception()
        cause = error.__cause__ if isinstance(error, TransactionAborted) else error
        if error is None or not isinstance(cause, KafkaError) or f"{self.topic}-" not in str(cause):
            return  # it is not of these: the transaction has failed
        if cause.code == ErrorCode.MESSAGE_TOO_LARGE:
            sizes = [len(key or b"") + len(value or b"") for key, value in zip(self.keys, self.values, strict=True)]
            row = sizes.index(max(sizes))
            error.add_note(f"the largest has {sizes[row]} bytes and key {_short(self.keys[row])}, of {self._at(row)}")
        else:
            error.add_note(
                f"it is of {self._at(0)}, or one of those after that up to {self._at(len(self.offsets) - 1)}"
            )


class Pending(Awaitable[RecordMetadata]):
    """A record that was sent. Awaited, it gives its place, once it is acknowledged, or raises why it is not."""

    __slots__ = ("_column", "_row")

    def __init__(self, column: Column, row: int) -> None:
        self._column = column
        self._row = row

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if self._column.written is None:
            self._column.outputs.hand_over()
        assert self._column.written is not None
        written = yield from asyncio.shield(self._column.written).__await__()
        return written.metadata(self._row)


class Outputs:
    """What waits for one producer, which nobody else may fill meanwhile. handed_over: told of each column's outcome;
    failed: of what the producer refused at once."""

    def __init__(
        self,
        producer: Producer,
        handed_over: Callable[[asyncio.Future[Acknowledged]], None],
        failed: Callable[[Exception], Exception],
    ) -> None:
        self.producer = producer
        self._handed_over = handed_over
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._columns: dict[str | tuple[str, int], Column] = {}  # by topic, or by partition where one was chosen
        self._count = 0
        self._size_bytes = 0

    def put(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp_ms: int,
        by: str | Partitioner | None,
        of: Event,
    ) -> Pending | None:
        """A record without headers, of an event. None where it is not taken: the producer has no space for it, or it is
        not what a producer takes. Then `hand_over`, and ask the producer itself, which says what is wrong."""
        size = RECORD_BYTES + (0 if key is None else len(key)) + (0 if value is None else len(value))
        producer = self.producer
        if (
            type(key) not in _PLAIN
            or type(value) not in _PLAIN
            or type(timestamp_ms) is not int
            or not TIMES_MS.start <= timestamp_ms < TIMES_MS.stop
            or producer.buffered_bytes + self._size_bytes + size >= producer.buffer_bytes
        ):
            return None
        at = topic if partition is None else (topic, partition)
        column = self._columns.get(at)
        if column is None or column.by != by:
            if partition is not None and partition not in producer.client.partitions(topic):
                return None
            column = self._begun(at, topic, partition, by)
        column.keys.append(key)
        column.values.append(value)
        column.timestamps.append(timestamp_ms)
        column.note(of)
        self._count += 1
        self._size_bytes += size
        sent = Pending(column, len(column.keys) - 1)
        if self._count >= WAITING_MAX or self._size_bytes >= WAITING_MAX_BYTES:
            self.hand_over()
        return sent

    def put_columns(
        self,
        topic: str,
        keys: list[bytes | None],
        values: list[bytes | None],
        by: str | None,
        of: Sequence[Event],
    ) -> bool:
        """`put` of several, with the times of their events, all or none; of not more than WAITING_MAX."""
        times = [event.timestamp_ms for event in of]
        size = RECORD_BYTES * len(keys) + sum(map(len, filter(None, keys))) + sum(map(len, filter(None, values)))
        producer = self.producer
        if (
            not _PLAIN.issuperset(map(type, keys))
            or not _PLAIN.issuperset(map(type, values))
            or not _TIME.issuperset(map(type, times))
            or min(times) < TIMES_MS.start
            or max(times) >= TIMES_MS.stop
            or producer.buffered_bytes + self._size_bytes + size >= producer.buffer_bytes
        ):
            return False
        column = self._columns.get(topic)
        if column is None or column.by != by:
            column = self._begun(topic, topic, None, by)
        column.keys += keys
        column.values += values
        column.timestamps += times
        for each in of:
            column.note(each)
        self._count += len(keys)
        self._size_bytes += size
        if self._count >= WAITING_MAX or self._size_bytes >= WAITING_MAX_BYTES:
            self.hand_over()
        return True

    def _begun(
        self, at: str | tuple[str, int], topic: str, partition: int | None, by: str | Partitioner | None
    ) -> Column:
        if any(each.topic == topic and None in (each.partition, partition) for each in self._columns.values()):
            self.hand_over()  # they may be for the same partition
        if not self._columns:
            self._loop.call_soon(self.hand_over)
        column = self._columns[at] = Column(self, topic, partition, by)
        return column

    def hand_over(self) -> None:
        """Give the producer what waits."""
        columns, self._columns = self._columns, {}
        self._count = self._size_bytes = 0
        for each in columns.values():
            try:
                each.written = self.producer.send_many(
                    each.topic,
                    each.values,
                    each.keys,
                    partition=each.partition,
                    timestamps_ms=each.timestamps,
                    partitioner=each.by,
                )
            except (KafkaError, ClientError, ValueError, OverflowError) as error:
                each.written = self._loop.create_future()
                each.written.set_exception(self._failed(error))
                each.written.exception()  # else asyncio logs it where nobody looks at what was sent
            else:
                each.written.add_done_callback(each.told)
                self._handed_over(each.written)

    def drop(self) -> None:
        """Forget what waits."""
        columns, self._columns = self._columns, {}
        self._count = self._size_bytes = 0
        for each in columns.values():
            each.written = self._loop.create_future()
            each.written.cancel()


def _short(key: bytes | None) -> str:
    return repr(key) if key is None or len(key) <= KEY_SHOWN_BYTES else f"{key[:KEY_SHOWN_BYTES]!r}…"
