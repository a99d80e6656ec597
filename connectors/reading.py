"""Reads ranges of offsets and gives Arrow record batches: raw fetched batches, decoded once, in the compiled loops.

A range is read in pieces: memory is bounded by `fetchMaxBytes` (the answer in hand and the next one) and by
`decodeMaxBytes`, whatever the batches expand to. Every range is checked: the rows given must be what the batches'
headers claim for it, whatever codecs they mix, and the range must be read to its end. It never ends early without an
error, and Spark drops the rows of a task that fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from ..client import Admin, Client, TopicPartition
from ..client.errors import ClientError
from ..client.raw import READ_COMMITTED, RawFetch, fetch_raw
from ..protocol import arrow, records
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.isolation import without_aborted
from ..protocol.records import Columns, CorruptBatch, TooLargeToDecode
from .errors import SourceError
from .options import SourceOptions
from .planning import OffsetRange, Patience, client_of

LOG = logging.getLogger(__name__)

FETCH_WAIT_MS = 500  # how long a broker may hold a fetch that finds nothing
ARROW_BYTES = 4 << 20  # of a record batch: Spark is fastest with 1 to 10 MB

ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", arrow.HEADERS),
    ]
)


class TopicMadeAnew(Exception):
    """The topic of this name is not the one whose offsets are to be read."""


class TaskLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands still while the loop does, as it does while Spark takes rows. No deadline and no timer
    counts that time: an answer that waits in the socket meanwhile is not late."""

    def __init__(self) -> None:
        self._stood_s = 0.0
        super().__init__()

    def time(self) -> float:
        return super().time() - self._stood_s

    @contextmanager
    def standing(self) -> Iterator[None]:
        since = self.time()
        try:
            yield
        finally:
            self._stood_s += self.time() - since


def read_ranges(
    options: SourceOptions, wanted: Iterable[OffsetRange], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Record batches of the ranges, with these columns in this order. Runs a loop of its own: call it in a worker."""
    loop = TaskLoop()
    batches = _read(options, wanted, columns)
    try:
        while True:
            try:
                batch = loop.run_until_complete(anext(batches))
            except StopAsyncIteration:
                return
            with loop.standing():
                yield batch
    finally:
        loop.run_until_complete(batches.aclose())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _read(
    options: SourceOptions, wanted: Iterable[OffsetRange], columns: Sequence[str]
) -> AsyncGenerator[pa.RecordBatch, None]:
    client = client_of(options)
    try:
        await client.start(options.stall_ms)
        for each in wanted:
            async for batch in _read_range(client, options, each, columns):
                yield batch
    except (KafkaError, ClientError) as error:
        raise SourceError(f"cluster at {options.bootstrap}: {error}") from error
    finally:
        await client.close()


async def _read_range(
    client: Client, options: SourceOptions, wanted: OffsetRange, columns: Sequence[str]
) -> AsyncGenerator[pa.RecordBatch, None]:
    """The next fetch is under way while Spark takes what the last one brought."""
    where = f"{wanted.topic}-{wanted.partition}"
    loop = asyncio.get_running_loop()
    position = wanted.start
    ahead = loop.create_task(_fetch(client, options, wanted, position))
    try:
        while position < wanted.end:
            start, fetched = await ahead
            data, next_offset = (memoryview(b""), -1) if fetched is None else counting(options, fetched)
            if next_offset <= start < wanted.end:
                raise SourceError(f"{where}: the broker answered a fetch at offset {start} with older batches")
            position = max(start, next_offset)
            span = Span(where, data, start, wanted.end)
            if position < wanted.end:
                ahead = loop.create_task(_fetch(client, options, wanted, position))
                await asyncio.sleep(0)  # lets it be sent: this loop stands still while Spark takes the rows
            for found in _decoded(where, options, data, start, wanted.end):
                span.add(found)
                for batch in to_arrow(found, wanted.topic, wanted.partition, columns):
                    yield batch
            span.finish()
    finally:
        ahead.cancel()
        await asyncio.gather(ahead, return_exceptions=True)


def _decoded(where: str, options: SourceOptions, data: Any, start: int, end: int) -> Iterator[Columns]:
    try:
        yield from records.iter_columns(data, from_offset=start, to_offset=end, max_bytes=options.decode_max_bytes)
    except TooLargeToDecode as error:
        raise SourceError(f"{where}: {error.message}; a larger decodeMaxBytes takes it") from error
    except CorruptBatch as error:
        raise SourceError(f"{where}: {error.message}") from error


async def _fetch(
    client: Client, options: SourceOptions, wanted: OffsetRange, position: int
) -> tuple[int, RawFetch | None]:
    """(position, what has at least one batch from there on). position: moves only over data that is lost and may be; to
    the end of the range where it has nothing more."""
    where = f"{wanted.topic}-{wanted.partition}"
    patience = Patience(client, options)
    trouble: object = "nothing came"
    while position < wanted.end:
        stuck = f"{where}: stuck at offset {position} of {wanted.end}"
        try:
            async with asyncio.timeout_at(patience.deadline):
                if patience.attempts:
                    await client.refresh_metadata([wanted.topic])  # another broker may lead it now, or be elsewhere
                fetched = await _fetch_once(client, options, wanted, position)
                if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    position = await _after_loss(client, options, wanted, position)
                    continue
            if fetched.error_code:
                trouble = KafkaError.of(fetched.error_code, f"fetch of {where} at offset {position}")
            elif next(records.walk(fetched.records), None):
                return position, fetched
        except TimeoutError:
            raise patience.over(stuck, trouble) from None
        except TopicMadeAnew:
            gone = f"{where}: offsets {position} to {wanted.end - 1} are gone: the topic was deleted and made anew"
            if options.fail_on_data_loss:
                raise SourceError(f"{gone} since they were planned to be read; read it anew") from None
            LOG.warning("%s; they are left out", gone)
            return wanted.end, None
        except (KafkaError, ClientError) as error:
            trouble = error
        try:
            await patience.again(stuck, trouble)
        except KafkaError as error:
            if options.fail_on_data_loss or error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            LOG.warning("%s is gone: offsets %d to %d are left out", where, position, wanted.end - 1)
            return wanted.end, None
    return position, None


async def _fetch_once(client: Client, options: SourceOptions, wanted: OffsetRange, position: int) -> RawFetch:
    """Raises TopicMadeAnew, KafkaError, ConnectionLost."""
    tp = TopicPartition(wanted.topic, wanted.partition)
    node_id = await client.leader_of(tp)
    if wanted.topic_id is not None and client.topic_id(tp.topic) not in (None, wanted.topic_id):
        raise TopicMadeAnew  # which may have records at these offsets: others
    fetched = await fetch_raw(
        client,
        {tp: (position, -1)},
        node_id=node_id,
        max_wait_ms=FETCH_WAIT_MS,
        max_bytes=options.fetch_max_bytes,
        partition_max_bytes=options.fetch_max_bytes,
        isolation=options.isolation,
    )
    return fetched[0]


def counting(options: SourceOptions, fetched: RawFetch) -> tuple[memoryview, int]:
    """The batches that count, and the offset after all, also after those that do not."""
    next_offset = -1
    for _, header in records.walk(fetched.records):
        next_offset = header.next_offset
    data = fetched.records
    return (without_aborted(data, fetched.aborted) if options.isolation == READ_COMMITTED else data), next_offset


async def _after_loss(client: Client, options: SourceOptions, wanted: OffsetRange, position: int) -> int:
    """Where reading goes on when `position` is not in the log: at the log's start or the range's end, if it may."""
    tp = TopicPartition(wanted.topic, wanted.partition)
    earliest = (await Admin(client).list_offsets({tp: "earliest"}))[tp][0]
    onward = min(earliest, wanted.end) if earliest > position else wanted.end
    gone = f"{tp.topic}-{tp.partition}: offsets {position} to {onward - 1} are gone"
    if options.fail_on_data_loss:
        raise SourceError(
            f"{gone} (deleted by retention, or the topic was made anew); failOnDataLoss=false goes on without them"
        )
    LOG.warning("%s and left out", gone)
    return onward


class Span:
    """Compares the decoded rows with what the headers of the batches claim for offsets start <= offset < end.

    A batch wholly inside the span claims its record count; of one cut by the span's ends, offsets must be dense
    (compaction leaves whole batches' counts, so a cut batch is only bounded).
    """

    def __init__(self, where: str, data: object, start: int, end: int) -> None:
        self.where = where
        self.start = start
        self.end = end
        self._least = self._most = self._count = 0
        self._last = start - 1  # offset of the last row
        for _, header in records.walk(data):  # type: ignore[arg-type]
            if header.is_control or header.last_offset < start or header.base_offset >= end:
                continue
            if start <= header.base_offset and header.last_offset < end:
                self._least += header.records_count
                self._most += header.records_count
            else:
                inside = min(header.last_offset + 1, end) - max(header.base_offset, start)
                dense = header.records_count == header.last_offset_delta + 1
                self._least += inside if dense else 0
                self._most += inside

    def add(self, found: Columns) -> None:
        """Before these rows are given out. Raises SourceError."""
        if not found.count:
            return
        self._count += found.count
        if not (self._last < found.offsets[0] and found.offsets[-1] < self.end) or self._count > self._most:
            raise self._wrong()
        self._last = found.offsets[-1]

    def finish(self) -> None:
        """After all rows. Raises SourceError."""
        if self._count < self._least:
            raise self._wrong()

    def _wrong(self) -> SourceError:
        return SourceError(
            f"{self.where}: the batches between offsets {self.start} and {self.end} claim {self._least} to "
            f"{self._most} records, but {self._count} were decoded, up to offset {self._last}: this is a bug"
        )


def to_arrow(
    found: Columns, topic: str, partition: int, columns: Sequence[str], max_bytes: int = ARROW_BYTES
) -> list[pa.RecordBatch]:
    """Decoded columns as record batches of about `max_bytes`; keys, values and numbers are not copied."""
    if not found.count:
        return []
    arrays = [_array(name, found, topic, partition) for name in columns]
    whole = pa.RecordBatch.from_arrays(arrays, schema=pa.schema([ARROW.field(name) for name in columns]))
    pieces = -(-(len(found.key_data) + len(found.value_data)) // max_bytes) or 1
    rows = -(-found.count // pieces)
    return [whole.slice(start, rows) for start in range(0, found.count, rows)]


def _array(name: str, found: Columns, topic: str, partition: int) -> pa.Array:
    count = found.count
    match name:
        case "key":
            return arrow.keys(found)
        case "value":
            return arrow.values(found)
        case "topic":
            return pa.repeat(pa.scalar(topic), count)
        case "partition":
            return pa.repeat(pa.scalar(partition, pa.int32()), count)
        case "offset":
            return arrow.offsets(found)
        case "timestamp":
            try:
                return arrow.timestamps(found).cast(pa.timestamp("us", "UTC"))
            except pa.ArrowInvalid as error:
                where = f"{topic}-{partition}, offsets {found.offsets[0]} to {found.offsets[-1]}"
                raise SourceError(f"{where}: a record's timestamp is no time in ms ({error})") from None
        case "timestampType":
            if found.append_time is None:
                return pa.repeat(pa.scalar(0, pa.int32()), count)
            return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(found.append_time)])
        case "headers":
            return arrow.headers(found)
    raise SourceError(f"there is no column {name}; there are {', '.join(ARROW.names)}")
