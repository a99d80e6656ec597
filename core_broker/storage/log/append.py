"""Checks batches before they enter a log, and assigns their offsets. One table has the rules for each origin.

Nothing here writes or keeps state. Only the 61-byte header of a batch is read; its CRC is computed in hardware. Base
offset and leader epoch are outside the CRC, so they can be assigned without changing other bytes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ....protocol.batch_layout import (
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    LAST_CODEC,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    PREFIX,
    PREFIX_SIZE,
    SEQUENCE_MASK,
    TRANSACTIONAL,
)
from ....protocol.crc import crc32c
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.records import BatchSummary, CorruptBatch, validate_batch, with_append_time, with_codec
from ..disk.files import Buffer
from ._producers import ProducerBatch, ProducerStates
from ._segment import MAX_RELATIVE
from .errors import NullKeys, OffsetMismatch
from .inspection import Inspection
from .log_config import MAX_INT64, LogConfig

NOT_FOR_CLIENTS = CONTROL | TRANSACTIONAL | LOG_APPEND_TIME
MAX_APPEND_BYTES = 2**31 - 1  # positions in a segment are int32


class Origin(IntEnum):
    """Where an append comes from."""

    CLIENT = 0  # a producer's request
    COORDINATOR = 1  # this broker's own coordinators and controller
    REPLICATION = 2  # a follower's fetch
    MIRROR = 3  # another cluster's log, byte for byte


class Rules(NamedTuple):
    """The rules for an origin. The others (whole batches, magic 2, CRC, increasing offsets) hold for all origins."""

    assigns_offsets: bool  # and leader epochs; if not, every byte is kept
    checks_producers: bool  # epochs, sequences, duplicates; if not, producer state is only updated
    checks_client_rules: bool  # dense offsets, no control batches, plausible timestamps
    limits_batch_size: bool  # max.message.bytes and segment.bytes


RULES: tuple[Rules, ...] = (
    #                assigns  producers  client  size
    Rules(True, True, True, True),  # CLIENT
    Rules(True, True, False, True),  # COORDINATOR
    Rules(False, False, False, False),  # REPLICATION
    Rules(False, False, False, False),  # MIRROR
)


# A batch as it will be in the log: size in bytes, base offset, last offset, max timestamp, leader epoch, producer id,
# producer epoch, base sequence, attributes, position in the source buffer. A plain tuple, since each request makes one.
Checked = tuple[int, int, int, int, int, int, int, int, int, int]

# A checked append: the parts to write, their batches, size in bytes, number of records, max timestamp, LogAppendTime
# (-1 under CreateTime), and the batch that the whole append repeats, if it is a duplicate.
Plan = tuple[list[Buffer], list[Checked], int, int, int, int, ProducerBatch | None]


def check(
    view: memoryview,
    origin: Origin,
    config: LogConfig,
    producers: ProducerStates,
    name: str,
    next_offset: int,
    leader_epoch: int,
    wall_ms: int,
    inspection: Inspection | None = None,
) -> Plan:
    """Check all batches of an append to the log `name`, which ends at `next_offset`. Raises KafkaError.

    inspection: what `inspect_batch` has found in the first batch, which is then not inspected again.
    A batch that is cut off at the end of the buffer, as in fetch responses, is left out.
    """
    assigns, checks_producers, checks_client, limits_size = RULES[origin]
    total = len(view)
    position = 0
    offset = next_offset
    parts: list[Buffer] = []
    batches: list[Checked] = []
    records = 0
    top_timestamp = -1
    append_time = -1
    stored = 0
    stamps = assigns and config.stamps
    codec = config.codec if assigns else None
    earliest = wall_ms - config.message_timestamp_before_max_ms
    latest = wall_ms + config.message_timestamp_after_max_ms
    looks_at_records = checks_client and (config.compacts or (earliest >= 0 and not stamps))
    if inspection is not None:
        inspection = inspection.of(config.codec, config.codec_level)
    tentative: ProducerStates | None = None
    while total - position >= HEADER_SIZE:
        (
            base, length, batch_epoch, magic, crc, attributes, delta, base_timestamp, max_timestamp,
            producer_id, producer_epoch, base_sequence, count,
        ) = HEADER.unpack_from(view, position)  # fmt: skip
        size = length + LENGTH_OVERHEAD
        end = position + size
        if position and end > total and 0 <= magic < MAGIC:
            break  # half a batch of an old format
        if magic != MAGIC:
            raise _refuse(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT if 0 <= magic < MAGIC else ErrorCode.CORRUPT_MESSAGE,
                name, f"record format {magic}; only format 2 is accepted", base,
            )  # fmt: skip
        if size < HEADER_SIZE:
            raise _refuse(ErrorCode.CORRUPT_MESSAGE, name, f"{length} is not a possible size of a batch", base)
        if end > total:
            break
        if base and checks_client:  # checked before size and CRC, as in Kafka
            raise _refuse(ErrorCode.INVALID_RECORD, name, "a producer's batch must begin at offset 0", base)
        if limits_size and size > config.max_message_bytes:
            raise _too_large(name, size, config)
        found = crc32c(view[position + CRC_FROM : end])
        if found != crc:
            raise _refuse(
                ErrorCode.CORRUPT_MESSAGE, name, f"its CRC is {crc:#010x}, its bytes have {found:#010x}", base
            )
        if delta < 0 or count < 0:
            raise _refuse(
                ErrorCode.INVALID_RECORD, name, f"{count} records, but the last offset delta is {delta}", base
            )
        if checks_client:
            if (
                count <= 0
                or delta + 1 != count
                or attributes & NOT_FOR_CLIENTS
                or attributes & CODEC_MASK > LAST_CODEC
                or (base_sequence < 0 <= producer_id)
                or not earliest <= base_timestamp
                or max_timestamp > latest
            ):
                _refuse_client(
                    name, config, base, attributes, delta, count, base_timestamp, max_timestamp, producer_id,
                    base_sequence, wall_ms,
                )  # fmt: skip
            if looks_at_records:
                _check_records(_summary(view, position, inspection), name, config, base, wall_ms)
        if producer_id >= 0 and checks_producers and base_sequence >= 0:
            known = producers
            if tentative is not None:
                tentative.borrow(producers, producer_id)
                known = tentative
            last_sequence = (base_sequence + delta) & SEQUENCE_MASK
            repeated = known.check(producer_id, producer_epoch, base_sequence, last_sequence)
            if repeated is not None:
                if not batches and end == total:
                    return [], [], 0, 0, -1, -1, repeated
                raise _refuse(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, name,
                    f"producer {producer_id} repeats sequence {base_sequence} among other batches", base,
                )  # fmt: skip
            if end < total:
                # More batches follow. They are checked as if this one had been written.
                if tentative is None:
                    tentative = ProducerStates()
                    tentative.complete = producers.complete
                tentative.borrow(producers, producer_id)
                tentative.update(
                    producer_id, producer_epoch, base_sequence, offset, offset + delta, max_timestamp, wall_ms
                )
        if assigns:
            base = offset
            batch_epoch = leader_epoch
            source, start, stop = view, position, end
            if codec is not None and attributes & CODEC_MASK != codec and not attributes & CONTROL:
                source = memoryview(_recoded(view, position, codec, config.codec_level, inspection))
                start, stop = 0, len(source)
                size, length = stop, stop - LENGTH_OVERHEAD
                if limits_size and size > config.max_message_bytes:
                    raise _too_large(name, size, config)
            if stamps and not attributes & CONTROL:
                append_time = max_timestamp = wall_ms
                head = bytearray(with_append_time(source, start, wall_ms))
                PREFIX.pack_into(head, 0, base, length, batch_epoch)
                parts.append(head)
                parts.append(source[start + HEADER_SIZE : stop])
            else:
                parts.append(PREFIX.pack(base, length, batch_epoch))
                parts.append(source[start + PREFIX_SIZE : stop])
        elif base < offset:
            raise OffsetMismatch(f"{name}: a batch at offset {base}, before {offset}, the next offset", next_offset)
        if base > MAX_INT64 - 1 - delta or (batches and base + delta - batches[0][1] > MAX_RELATIVE):
            raise _refuse(
                ErrorCode.INVALID_RECORD, name, f"its last offset, {base + delta}, is too large for this log", base
            )
        if max_timestamp > top_timestamp:
            top_timestamp = max_timestamp
        records += count
        stored += size
        batches.append(
            (
                size, base, base + delta, max_timestamp, batch_epoch, producer_id, producer_epoch, base_sequence,
                attributes, position,
            )
        )  # fmt: skip
        offset = base + delta + 1
        position = end
    if stored > MAX_APPEND_BYTES or (limits_size and stored > config.segment_bytes):
        raise KafkaError.of(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{name}: {stored} bytes in one append are more than segment.bytes={config.segment_bytes}",
        )
    if not batches and assigns:
        raise KafkaError.of(ErrorCode.CORRUPT_MESSAGE, f"{name}: no complete record batch in {total} bytes")
    if not assigns and batches:
        parts.append(view[:position])
    return parts, batches, stored, records, top_timestamp, append_time, None


def _summary(view: memoryview, position: int, inspection: Inspection | None) -> BatchSummary:
    """A summary of a batch's records. Raises KafkaError INVALID_RECORD, which a producer does not retry."""
    try:
        if inspection is None or position:
            return validate_batch(view, position)
        if inspection.error is not None:
            raise inspection.error
        return inspection.summary or validate_batch(view)
    except CorruptBatch as error:
        raise KafkaError.of(ErrorCode.INVALID_RECORD, error.message) from error


def _recoded(view: memoryview, position: int, codec: int, level: int | None, inspection: Inspection | None) -> bytes:
    """A batch recompressed with another codec. Raises KafkaError like `_summary`."""
    try:
        if inspection is None or position:
            return with_codec(view, position, codec, level)[0]
        if inspection.error is not None:
            raise inspection.error
        return inspection.recoded or with_codec(view, position, codec, level)[0]
    except CorruptBatch as error:
        raise KafkaError.of(ErrorCode.INVALID_RECORD, error.message) from error


def _check_records(found: BatchSummary, name: str, config: LogConfig, base: int, wall_ms: int) -> None:
    """Check what the header does not show. Raises KafkaError."""
    if config.compacts and found.null_keys:
        raise NullKeys(f"{name}: batch at offset {base}: a compacted topic accepts no record without a key")
    if not config.stamps and found.min_timestamp != NO_TIMESTAMP:
        _check_times(name, config, base, found.min_timestamp, found.max_timestamp, wall_ms)


def _check_times(name: str, config: LogConfig, base: int, least: int, most: int, wall_ms: int) -> None:
    if most > wall_ms + config.message_timestamp_after_max_ms:
        raise _refuse(
            ErrorCode.INVALID_TIMESTAMP,
            name,
            f"timestamp {most} is more than message.timestamp.after.max.ms="
            f"{config.message_timestamp_after_max_ms} after now, {wall_ms}",
            base,
        )
    if least < wall_ms - config.message_timestamp_before_max_ms:
        raise _refuse(
            ErrorCode.INVALID_TIMESTAMP,
            name,
            f"timestamp {least} is more than message.timestamp.before.max.ms="
            f"{config.message_timestamp_before_max_ms} before now, {wall_ms}",
            base,
        )


def _too_large(name: str, size: int, config: LogConfig) -> KafkaError:
    return KafkaError.of(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{name}: a batch of {size} bytes is larger than max.message.bytes={config.max_message_bytes}",
    )


def _refuse_client(
    name: str,
    config: LogConfig,
    base: int,
    attributes: int,
    delta: int,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    base_sequence: int,
    wall_ms: int,
) -> None:
    """The error for a producer's batch. The header is checked in the order of Kafka's LogValidator."""
    if count <= 0 or delta + 1 != count:
        raise _refuse(ErrorCode.INVALID_RECORD, name, f"{count} records in {delta + 1} offsets", base)
    if attributes & CONTROL:
        raise _refuse(ErrorCode.INVALID_RECORD, name, "clients may not write control records", base)
    if producer_id >= 0 and base_sequence < 0:
        raise _refuse(
            ErrorCode.INVALID_RECORD, name, f"invalid sequence {base_sequence} of producer {producer_id}", base
        )
    if attributes & NOT_FOR_CLIENTS:
        if attributes & TRANSACTIONAL:
            raise _refuse(ErrorCode.INVALID_TXN_STATE, name, "no transaction is open for this producer", base)
        raise _refuse(ErrorCode.INVALID_TIMESTAMP, name, "a producer may not set the type LogAppendTime", base)
    if attributes & CODEC_MASK > LAST_CODEC:
        codec = attributes & CODEC_MASK
        raise _refuse(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, name, f"unknown codec {codec}", base)
    if not config.stamps:
        least = base_timestamp if base_timestamp >= 0 else wall_ms
        _check_times(name, config, base, least, max_timestamp, wall_ms)


def _refuse(code: ErrorCode, name: str, reason: str, base: int) -> KafkaError:
    return KafkaError.of(code, f"{name}: batch at offset {base}: {reason}")
