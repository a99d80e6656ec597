"""Reads ranges of offsets and gives Arrow record batches: raw fetched batches, decoded once, in the compiled loops.

Every range is checked: the rows given must be what the batches' headers claim for it, whatever codecs they mix, and
the range must be read to its end. It never ends early without an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute

from ..client import Admin, Client, TopicPartition
from ..client.errors import ClientError, ConnectionLost
from ..client.raw import RawFetch, fetch_raw
from ..protocol import records
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.records import Columns
from .errors import SourceError
from .options import SourceOptions
from .planning import OffsetRange

LOG = logging.getLogger(__name__)

FETCH_WAIT_MS = 500  # how long a broker may hold a fetch that finds nothing
ARROW_BYTES = 4 << 20  # of a record batch: Spark is fastest with 1 to 10 MB

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)


class TopicMadeAnew(Exception):
    """The topic of this name is not the one whose offsets are to be read."""


def read_ranges(
    options: SourceOptions, wanted: Iterable[OffsetRange], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Record batches of the ranges, with these columns in this order. Runs a loop of its own: call it in a worker."""
    loop = asyncio.new_event_loop()
    batches = _read(options, wanted, columns)
    try:
        while True:
            try:
                yield loop.run_until_complete(anext(batches))
            except StopAsyncIteration:
                return
    finally:
        loop.run_until_complete(batches.aclose())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _read(
    options: SourceOptions, wanted: Iterable[OffsetRange], columns: Sequence[str]
) -> AsyncGenerator[pa.RecordBatch, None]:
    client = Client(options.bootstrap, client_id=options.client_id)
    try:
        await client.start()
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
            position, data = await ahead
            found = records.decode_columns(data, from_offset=position, to_offset=wanted.end)
            check_span(where, data, found, position, wanted.end)
            if found.next_offset <= position < wanted.end:
                raise SourceError(f"{where}: the broker answered a fetch at offset {position} with older batches")
            position = max(position, found.next_offset)
            if position < wanted.end:
                ahead = loop.create_task(_fetch(client, options, wanted, position))
                await asyncio.sleep(0)  # lets it be sent: this loop stands still while Spark takes the rows
            for batch in to_arrow(found, wanted.topic, wanted.partition, columns):
                yield batch
    finally:
        ahead.cancel()
        await asyncio.gather(ahead, return_exceptions=True)


async def _fetch(client: Client, options: SourceOptions, wanted: OffsetRange, position: int) -> tuple[int, Any]:
    """(position, batches from there on, one at least). position: moves only over data that is lost and may be."""
    where = f"{wanted.topic}-{wanted.partition}"
    loop = asyncio.get_running_loop()
    deadline = loop.time() + options.stall_ms / 1000
    attempt = 0
    trouble: object = "nothing came"
    while position < wanted.end:
        try:
            if attempt:
                await client.refresh_metadata([wanted.topic])  # another broker may lead it now, or be elsewhere
            fetched = await _fetch_once(client, options, wanted, position)
            if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                position = await _after_loss(client, options, wanted, position)
                continue
            if fetched.error_code:
                trouble = KafkaError.of(fetched.error_code, f"fetch of {where} at offset {position}")
                if not trouble.retriable:
                    raise trouble
            elif next(records.walk(fetched.records), None):
                return position, fetched.records
        except ConnectionLost as error:
            trouble = error
        except TopicMadeAnew:
            gone = f"{where}: offsets {position} to {wanted.end - 1} are gone: the topic was deleted and made anew"
            if options.fail_on_data_loss:
                raise SourceError(f"{gone} since they were planned to be read; read it anew") from None
            LOG.warning("%s; they are left out", gone)
            return wanted.end, memoryview(b"")
        except KafkaError as error:
            if options.fail_on_data_loss or error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            LOG.warning("%s is gone: offsets %d to %d are left out", where, position, wanted.end - 1)
            return wanted.end, memoryview(b"")
        if loop.time() > deadline:
            raise SourceError(
                f"{where}: stuck at offset {position} of {wanted.end} for {options.stall_ms / 1000:g} s "
                f"(kafkaConsumer.pollTimeoutMs): {trouble}"
            )
        await client.back_off(attempt)
        attempt += 1
    return position, memoryview(b"")


async def _fetch_once(client: Client, options: SourceOptions, wanted: OffsetRange, position: int) -> RawFetch:
    """Raises TopicMadeAnew, KafkaError, ConnectionLost."""
    tp = TopicPartition(wanted.topic, wanted.partition)
    node_id = await client.leader_of(tp)
    if wanted.topic_id is not None and client.topic_id(tp.topic) not in (None, wanted.topic_id):
        raise TopicMadeAnew  # which may have records at these offsets: others
    fetched = await fetch_raw(
        client,
        {tp: (position, -1, -1)},
        node_id=node_id,
        max_wait_ms=FETCH_WAIT_MS,
        max_bytes=options.fetch_max_bytes,
        partition_max_bytes=options.fetch_max_bytes,
    )
    return fetched[0]


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


def check_span(where: str, data: object, found: Columns, start: int, end: int) -> None:
    """Compare the decoded rows with what the headers of the batches claim for offsets start <= offset < end.

    A batch wholly inside the span claims its record count; of one cut by the span's ends, offsets must be dense
    (compaction leaves whole batches' counts, so a cut batch is only bounded). Raises SourceError.
    """
    least = most = 0
    for _, header in records.walk(data):  # type: ignore[arg-type]
        if header.is_control or header.last_offset < start or header.base_offset >= end:
            continue
        if start <= header.base_offset and header.last_offset < end:
            least += header.records_count
            most += header.records_count
        else:
            inside = min(header.last_offset + 1, end) - max(header.base_offset, start)
            dense = header.records_count == header.last_offset_delta + 1
            least += inside if dense else 0
            most += inside
    inside_range = not found.count or (start <= found.offsets[0] and found.offsets[-1] < end)
    if not (least <= found.count <= most and inside_range):
        raise SourceError(
            f"{where}: the batches between offsets {start} and {end} claim {least} to {most} records, but "
            f"{found.count} were decoded: this is a bug, nothing of this range was given to Spark"
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
            return _binary(count, found.key_offsets, found.key_data, found.key_valid)
        case "value":
            return _binary(count, found.value_offsets, found.value_data, found.value_valid)
        case "topic":
            return pa.repeat(pa.scalar(topic), count)
        case "partition":
            return pa.repeat(pa.scalar(partition, pa.int32()), count)
        case "offset":
            return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(found.offsets)])
        case "timestamp":
            ms = pa.Array.from_buffers(pa.timestamp("ms", "UTC"), count, [None, pa.py_buffer(found.timestamps)])
            try:
                return ms.cast(pa.timestamp("us", "UTC"))
            except pa.ArrowInvalid as error:
                where = f"{topic}-{partition}, offsets {found.offsets[0]} to {found.offsets[-1]}"
                raise SourceError(f"{where}: a record's timestamp is no time in ms ({error})") from None
        case "timestampType":
            if found.append_time is None:
                return pa.repeat(pa.scalar(0, pa.int32()), count)
            return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(found.append_time)])
        case "headers":
            return _headers(found)
    raise SourceError(f"there is no column {name}; there are {', '.join(ARROW.names)}")


def _binary(
    count: int, offsets: object, data: object, valid: object | None, type_: pa.DataType | None = None
) -> pa.Array:
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(type_ or pa.binary(), count, buffers)


def _headers(found: Columns) -> pa.Array:
    """Spark's Kafka source gives null where a record has no headers."""
    if found.headers is None:
        return pa.nulls(found.count, HEADERS)
    given = found.headers
    keys = _binary(given.count, given.key_offsets, given.key_data, None)
    values = _binary(given.count, given.value_offsets, given.value_data, given.value_valid)
    try:
        names = keys.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8, which Kafka does not look at
        names = pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())
    structs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    rows = pa.Array.from_buffers(pa.int32(), found.count + 1, [None, pa.py_buffer(given.rows)])
    lists = pa.ListArray.from_arrays(rows, structs, type=HEADERS)
    return pa.compute.if_else(pa.compute.equal(pa.compute.list_value_length(lists), 0), pa.scalar(None, HEADERS), lists)
