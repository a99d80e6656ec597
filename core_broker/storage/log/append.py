"""Checks batches before they enter a log, and assigns their offsets. One table has the rules for each origin.

Nothing here writes or keeps state. `_batch_check.py` finds what is wrong with a batch, by its 61-byte header and its
CRC. Base offset and leader epoch are outside the CRC, so they can be assigned without changing other bytes.
"""

from __future__ import annotations

from enum import IntEnum

from ....protocol.batch_layout import (
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
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
from . import batch_reasons as why
from ._batch_check import is_too_large, is_too_much, reasons_of, time_reason
from ._producers import ProducerBatch, ProducerStates, VerificationGuard
from ._segment import MAX_RELATIVE
from .batch_reasons import ASSIGNS_OFFSETS, CLIENT_RULES, OF_CLIENTS
from .errors import NullKeys, OffsetMismatch
from .inspection import Inspection
from .log_config import LogConfig

UNSEQUENCED = -1


class Origin(IntEnum):
    """Where an append comes from."""

    CLIENT = 0  # a producer's request
    COORDINATOR = 1  # this broker's own coordinators and controller
    REPLICATION = 2  # a follower's fetch
    MIRROR = 3  # another cluster's log, byte for byte


# By origin. What is no rule of its own (whole batches, magic 2, CRC, increasing offsets) holds for all.
RULES: tuple[int, ...] = (
    OF_CLIENTS,  # CLIENT
    OF_CLIENTS & ~CLIENT_RULES,  # COORDINATOR
    0,  # REPLICATION
    0,  # MIRROR
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
    guard: VerificationGuard | None = None,
) -> Plan:
    """Check all batches of an append to the log `name`, which ends at `next_offset`. Raises KafkaError.

    inspection: what `inspect_batch` has found in the first batch, which is then not inspected again. guard: the
    verification of the transaction to which the batches belong, if there is one.
    A batch that is cut off at the end of the buffer, as in fetch responses, is left out.
    """
    rules = RULES[origin]
    assigns = rules & ASSIGNS_OFFSETS
    limits = config.limits
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
    looks_at_records = rules & CLIENT_RULES and (
        config.compacts or (wall_ms >= config.message_timestamp_before_max_ms and not stamps)
    )
    if inspection is not None:
        inspection = inspection.of(config.codec, config.codec_level)
    known = producers  # with what the batches before this one will change in them
    while position < total:
        reasons = reasons_of(view, position, rules, limits, known, offset, wall_ms)
        if reasons == why.CUT:
            break
        header = HEADER.unpack_from(view, position)
        (
            base, length, batch_epoch, _, _, attributes, delta, _, max_timestamp,
            producer_id, producer_epoch, base_sequence, count,
        ) = header  # fmt: skip
        size = length + LENGTH_OVERHEAD
        end = position + size
        if reasons & why.REFUSAL:
            if reasons == why.OLD_FORMAT and position and end > total:
                break  # half a batch
            raise _refusal(reasons, header, view[position:end], name, config, wall_ms)
        if looks_at_records:
            _check_records(_summary(view, position, inspection), name, config, base, wall_ms)
        if reasons & why.PRODUCER:
            if known is not producers:
                known.borrow(producers, producer_id)
            is_transactional = attributes & TRANSACTIONAL != 0
            first_sequence = base_sequence if rules & CLIENT_RULES else UNSEQUENCED  # coordinators keep none
            last_sequence = (base_sequence + delta) & SEQUENCE_MASK
            repeated = known.check(
                producer_id, producer_epoch, first_sequence, last_sequence, is_transactional, guard,
                config.transaction_partition_verification_enable,
            )  # fmt: skip
            if repeated is not None:
                if not batches and not reasons & why.FOLLOWED:
                    return [], [], 0, 0, -1, -1, repeated
                raise _refuse(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, name,
                    f"producer {producer_id} repeats sequence {base_sequence} among other batches", base,
                )  # fmt: skip
            if reasons & why.FOLLOWED and not reasons & why.TOO_FAR:
                # More batches follow. They are checked as if this one had been written.
                if known is producers:
                    known = ProducerStates()
                    known.complete = producers.complete
                    known.guards = producers.guards
                known.borrow(producers, producer_id)
                known.update(producer_id, producer_epoch, base_sequence, offset, offset + delta, max_timestamp, wall_ms)
                if is_transactional:
                    known.begin_transaction(producer_id, offset)
        if assigns:
            base = offset
            batch_epoch = leader_epoch
            source, start, stop = view, position, end
            if codec is not None and attributes & CODEC_MASK != codec and not attributes & CONTROL:
                source = memoryview(_recoded(view, position, codec, config.codec_level, inspection))
                start, stop = 0, len(source)
                size, length = stop, stop - LENGTH_OVERHEAD
                if is_too_large(size, rules, limits):
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
        if reasons & why.TOO_FAR or (batches and base + delta - batches[0][1] > MAX_RELATIVE):
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
    if is_too_much(stored, rules, limits):
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
        least, most = found.min_timestamp, found.max_timestamp
        reason = time_reason(least, most, config.limits, wall_ms)
        if reason:
            raise _wrong_time(reason, name, config, base, least, most, wall_ms)


def _refusal(
    reason: int, header: tuple[int, ...], batch: memoryview, name: str, config: LogConfig, wall_ms: int
) -> KafkaError:
    """The error of a refusal. batch: it, as far as the buffer has it."""
    (
        base, length, _, magic, crc, attributes, delta, base_timestamp, max_timestamp,
        producer_id, _, base_sequence, count,
    ) = header  # fmt: skip
    code = ErrorCode.INVALID_RECORD
    match reason:
        case why.OLD_FORMAT:
            code, what = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"record format {magic}; only format 2 is accepted"
        case why.UNKNOWN_FORMAT:
            code, what = ErrorCode.CORRUPT_MESSAGE, f"record format {magic}; only format 2 is accepted"
        case why.SHORT_LENGTH:
            code, what = ErrorCode.CORRUPT_MESSAGE, f"{length} is not a possible size of a batch"
        case why.NOT_FROM_ZERO:
            what = "a producer's batch must begin at offset 0"
        case why.TOO_LARGE:
            return _too_large(name, length + LENGTH_OVERHEAD, config)
        case why.WRONG_CRC:
            found = crc32c(batch[CRC_FROM:])
            code, what = ErrorCode.CORRUPT_MESSAGE, f"its CRC is {crc:#010x}, its bytes have {found:#010x}"
        case why.NEGATIVE_COUNT:
            what = f"{count} records, but the last offset delta is {delta}"
        case why.WRONG_COUNT:
            what = f"{count} records in {delta + 1} offsets"
        case why.CONTROL_RECORDS:
            what = "clients may not write control records"
        case why.NO_SEQUENCE:
            what = f"invalid sequence {base_sequence} of producer {producer_id}"
        case why.STAMPED:
            code, what = ErrorCode.INVALID_TIMESTAMP, "a producer may not set the type LogAppendTime"
        case why.UNKNOWN_CODEC:
            codec = attributes & CODEC_MASK
            code, what = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown codec {codec}"
        case _:
            return _wrong_time(reason, name, config, base, base_timestamp, max_timestamp, wall_ms)
    return _refuse(code, name, what, base)


def _wrong_time(
    reason: int, name: str, config: LogConfig, base: int, least: int, most: int, wall_ms: int
) -> KafkaError:
    is_late = reason == why.TOO_LATE
    side, limit_ms = (
        ("after", config.message_timestamp_after_max_ms)
        if is_late
        else ("before", config.message_timestamp_before_max_ms)
    )
    what = f"timestamp {most if is_late else least} is more than message.timestamp.{side}.max.ms={limit_ms}"
    return _refuse(ErrorCode.INVALID_TIMESTAMP, name, f"{what} {side} now, {wall_ms}", base)


def _too_large(name: str, size: int, config: LogConfig) -> KafkaError:
    return KafkaError.of(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{name}: a batch of {size} bytes is larger than max.message.bytes={config.max_message_bytes}",
    )


def _refuse(code: ErrorCode, name: str, reason: str, base: int) -> KafkaError:
    return KafkaError.of(code, f"{name}: batch at offset {base}: {reason}")
