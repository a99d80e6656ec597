"""`format("isthmus")`: the PySpark data source, batch and stream, without a jar.

Spark uses these classes in three kinds of process: for plans and for offsets in the driver, and in workers that read.
All of them are pickled, so they hold options and offsets, never a connection. Stream offsets are JSON with sorted keys,
{"topic": {"partition": offset}}, as Spark's own Kafka source writes them. The topics' ids are beside them and show that
a topic was deleted and created again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..client import Client, TopicPartition
from ..client.errors import ClientError
from ..client.raw import READ_COMMITTED, READ_UNCOMMITTED
from ..protocol.errors import KafkaError
from ..protocol.primitives import uuid_from_str, uuid_to_str
from .errors import SourceError
from .options import EARLIEST, LATEST, Bound, SourceOptions, parse
from .planning import (
    OffsetRange,
    Patience,
    batch_ranges,
    bounds,
    client_of,
    ids_of,
    limited,
    partitions_of,
    ranges_between,
    tasks,
)
from .reading import read_ranges

LOG = logging.getLogger(__name__)

SCHEMA = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("timestampType", IntegerType())
)
HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))

T = TypeVar("T")
Offsets = dict[str, dict[str, Any]]  # by topic and partition, and the topics' ids under a name that no topic can have
TOPIC_IDS = "topic ids"


def ask(options: SourceOptions, question: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine with a client of its own, again while errors pass, and name the cluster in what goes wrong."""

    async def run() -> T:
        where = f"cluster at {options.bootstrap}"
        client = client_of(options)
        patience = Patience(client, options)
        trouble: object = "nothing was answered"
        try:
            await client.start(options.stall_ms)
            while True:
                try:
                    async with asyncio.timeout_at(patience.deadline):
                        return await question(client)
                except TimeoutError:
                    raise patience.over(f"{where} does not answer", trouble) from None
                except (KafkaError, ClientError) as error:
                    trouble = error
                await patience.again(f"{where} does not answer", trouble)
        except (KafkaError, ClientError) as error:
            raise SourceError(f"{where}: {error}") from error
        finally:
            await client.close()

    return asyncio.run(run())


class Task(InputPartition):
    """What one Spark task reads."""

    def __init__(self, wanted: tuple[OffsetRange, ...]) -> None:
        self.wanted = wanted


def read(options: SourceOptions, task: InputPartition, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker. Where there are no tasks, Spark gives it an empty InputPartition of its own."""
    return read_ranges(options, task.wanted, columns) if isinstance(task, Task) else iter(())


class IsthmusDataSource(DataSource):
    """The entry point Spark finds; see `connectors.options.OPTIONS`."""

    @classmethod
    def name(cls) -> str:
        return "isthmus"

    def schema(self) -> StructType:
        headers = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return with_headers() if headers else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(parse(self.options, streaming=False), columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            return StreamReader(parse(self.options, streaming=True), columns_of(schema))
        except SourceError as error:
            return RefusedStream(error)


def with_headers() -> StructType:
    return StructType([*SCHEMA.fields, StructField("headers", HEADERS)])


def columns_of(schema: StructType) -> list[str]:
    """Names of the columns to read: all, or those of the user's `.schema(…)`, which must have the right types."""
    known = {field.name: field.dataType for field in with_headers()}
    if not schema.fields:
        raise SourceError(f"the schema has no columns; there are {', '.join(known)}")
    for field in schema:
        if field.name not in known:
            raise SourceError(f"there is no column {field.name}; there are {', '.join(known)}")
        if (right := known[field.name]) != field.dataType:
            raise SourceError(f"column {field.name} is {right.simpleString()}, not {field.dataType.simpleString()}")
    return schema.fieldNames()


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the error at Spark's first call: Spark hides what `streamReader` itself raises."""

    def __init__(self, error: SourceError) -> None:
        self.error = error

    def _refuse(self, *_: Any) -> Any:
        raise self.error

    initialOffset: Any = _refuse
    latestOffset: Any = _refuse
    getDefaultReadLimit: Any = _refuse
    prepareForTriggerAvailableNow: Any = _refuse
    partitions: Any = _refuse
    read: Any = _refuse


class BatchReader(DataSourceReader):
    """A batch query: everything between two sets of offsets."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self.options = options
        self.columns = list(columns)

    def partitions(self) -> Sequence[InputPartition]:
        ranges = ask(self.options, lambda client: batch_ranges(client, self.options))
        return [Task(each) for each in tasks(ranges, self.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self.options, partition, self.columns)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query. `pinned`: the end that an available-now run must reach and not pass."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self.options = options
        self.columns = list(columns)
        self.pinned: Offsets | None = None
        self.latest: Offsets | None = None
        self.left_out: list[str] = []  # topics and partitions that are named, but gone

    def initialOffset(self) -> dict:
        async def first(client: Client) -> Offsets:
            partitions = await partitions_of(client, self.options)
            found = await bounds(client, self.options, partitions, self.options.starting, "startingOffsets")
            return to_json(found, ids_of(client, partitions))

        return ask(self.options, first)

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:
        self.latest = self.pinned or self._ends()
        ends = from_json(self.latest)
        for topic in made_anew(start, self.latest):
            self._lost(f"topic {topic} was deleted and made anew since it was read", "from its beginning")
        starts = self._starts(start, self.latest)
        ends = {tp: end for tp, end in ends.items() if tp in starts}
        ends |= self._read_before(starts, ends)
        for tp, offset in starts.items():
            if tp not in ends:
                self._lost(f"{tp.topic}-{tp.partition}, read up to offset {offset}, is no longer there", "without it")
        for tp, end in ends.items():
            if end < starts[tp]:
                before = f"{tp.topic}-{tp.partition} ends at offset {end}, but was read up to {starts[tp]} already"
                self._lost(f"{before}: was the topic made anew?", "from where it now ends")
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_json(limited(starts, ends, most), ids_in(self.latest))

    def _starts(self, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """Start offsets. Partitions that are not in `start` begin at their earliest offset."""
        ends, others = from_json(end), made_anew(start, end)
        starts = {tp: offset for tp, offset in from_json(start).items() if tp.topic not in others}
        return starts | self._earliest([tp for tp in ends if tp not in starts])

    def _read_before(
        self, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """A query that has read open transactions, and now reads committed ones, waits until these have ended."""
        early = [tp for tp, end in ends.items() if end < starts[tp]]
        if not early or self.options.isolation != READ_COMMITTED:
            return {}
        found = self._ends_of_all(early)
        return {tp: starts[tp] for tp in early if starts[tp] <= found[tp]}

    def _lost(self, what: str, onward: str) -> None:
        if self.options.fail_on_data_loss:
            raise SourceError(f"{what}; failOnDataLoss=false goes on {onward}")
        LOG.warning("%s; goes on %s", what, onward)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> dict | None:
        return self.latest

    def prepareForTriggerAvailableNow(self) -> None:
        self.pinned = self._ends()

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        ranges = ranges_between(self._starts(start, end), from_json(end), ids_in(end))
        return [Task(each) for each in tasks(ranges, self.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self.options, partition, self.columns)

    def _ends(self) -> Offsets:
        async def last(client: Client) -> Offsets:
            left_out: list[str] | None = None if self.options.fail_on_data_loss else []
            partitions = await partitions_of(client, self.options, left_out)
            if left_out and left_out != self.left_out:
                LOG.warning("not in the cluster at %s, and left out: %s", self.options.bootstrap, ", ".join(left_out))
            self.left_out = left_out or []
            found = await bounds(client, self.options, partitions, Bound(everywhere=LATEST), "endingOffsets")
            return to_json(found, ids_of(client, partitions))

        return ask(self.options, last)

    def _ends_of_all(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs end, after all transactions that are open."""
        every = replace(self.options, isolation=READ_UNCOMMITTED)
        return ask(every, lambda client: bounds(client, every, partitions, Bound(everywhere=LATEST), "endingOffsets"))

    def _earliest(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """A partition that appears while a stream runs is read from its earliest offset. One that is gone again is left
        out if failOnDataLoss is false."""
        if not partitions:
            return {}

        async def first(client: Client) -> dict[TopicPartition, int]:
            there = partitions
            if not self.options.fail_on_data_loss:
                await client.refresh_metadata(sorted({tp.topic for tp in partitions}))
                there = [tp for tp in partitions if tp.partition in client.partitions(tp.topic)]
            return await bounds(client, self.options, there, Bound(everywhere=EARLIEST), "startingOffsets")

        return ask(self.options, first)


def to_json(offsets: dict[TopicPartition, int], ids: Mapping[str, bytes] = {}) -> Offsets:
    """Sorted, because Spark compares offsets as text. ids: of the topics, as far as the cluster has any."""
    found: Offsets = {}
    for tp in sorted(offsets):
        found.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    if ids:
        found[TOPIC_IDS] = {topic: uuid_to_str(ids[topic]) for topic in sorted(ids)}
    return found


def from_json(offsets: Offsets) -> dict[TopicPartition, int]:
    parts = {topic: each for topic, each in offsets.items() if topic != TOPIC_IDS}
    return {TopicPartition(t, int(p)): offset for t, each in parts.items() for p, offset in each.items()}


def ids_in(offsets: Offsets) -> dict[str, bytes]:
    """None in the checkpoints of earlier releases, and of clusters without ids."""
    return {topic: uuid_from_str(text) for topic, text in offsets.get(TOPIC_IDS, {}).items()}


def made_anew(start: Offsets, end: Offsets) -> list[str]:
    """Topics that are not the same any more at `end`."""
    before, after = ids_in(start), ids_in(end)
    return sorted(topic for topic in before if after.get(topic, before[topic]) != before[topic])
