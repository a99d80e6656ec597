# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
# ruff: noqa: F821  (a struct of C is declared by its annotation alone)
"""The one check of a batch that is to be appended: by its 61-byte header and its CRC, what speaks against it.

Both ways of an append ask it. The short way (`_tail.py`) takes a batch of which it finds nothing; the long way
(`append.py`) makes an error of a refusal, and has a second look at the rest. Changes nothing.
"""

from __future__ import annotations

from typing import Any

import cython

from ....protocol.batch_layout import (
    ATTRIBUTES_LOW_AT,
    BASE_OFFSET_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    CODEC_MASK,
    CONTROL,
    CRC_AT,
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    LAST_CODEC,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORDS_COUNT_AT,
    TRANSACTIONAL,
)
from ....protocol.crc import crc32c
from ._limits import AppendLimits
from ._producers import ProducerEntry, ProducerStates
from .batch_reasons import (
    ASSIGNS_OFFSETS,
    CHECKS_PRODUCERS,
    CLIENT_RULES,
    CONTROL_RECORDS,
    CUT,
    FOLLOWED,
    LIMITS_SIZE,
    NEGATIVE_COUNT,
    NO_SEQUENCE,
    NOT_FROM_ZERO,
    OLD_FORMAT,
    PLAIN,
    PRODUCER,
    SHORT_LENGTH,
    STAMPED,
    TOO_EARLY,
    TOO_FAR,
    TOO_LARGE,
    TOO_LATE,
    TOO_MUCH,
    UNKNOWN_CODEC,
    UNKNOWN_FORMAT,
    WRONG_COUNT,
    WRONG_CRC,
)

if cython.compiled:
    from cython.cimports.cpython.buffer import PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.cpython.memoryview import PyMemoryView_FromMemory
    from cython.cimports.isthmus.protocol._batch_header import _int16, _int32, _int64, _uint32
else:  # only compiled code calls them
    _int16: Any
    _int32: Any
    _int64: Any
    _uint32: Any
    PyBUF_READ: Any
    PyBUF_SIMPLE: Any
    PyBuffer_Release: Any
    PyMemoryView_FromMemory: Any
    PyObject_GetBuffer: Any

COMPILED = cython.compiled

_APPEND_BYTES_MAX: cython.longlong = 2**31 - 1  # positions in a segment are int32
_OFFSET_MAX: cython.longlong = 2**63 - 2  # the end of a log, one more, is an int64, too


def reasons_of(
    view: memoryview,
    position: cython.Py_ssize_t,
    rules: cython.int,
    limits: AppendLimits,
    producers: ProducerStates,
    next_offset: cython.longlong,
    wall_ms: cython.longlong,
) -> int:
    """`_reasons` of the batch at a position of a buffer."""
    buffer: cython.Py_buffer
    if not cython.compiled:
        return _reasons(view[position:], len(view) - position, rules, limits, producers, next_offset, wall_ms)
    PyObject_GetBuffer(view, cython.address(buffer), PyBUF_SIMPLE)
    try:
        return _reasons(
            cython.cast(cython.p_const_uchar, buffer.buf) + position,
            buffer.len - position,
            rules,
            limits,
            producers,
            next_offset,
            wall_ms,
        )
    finally:
        PyBuffer_Release(cython.address(buffer))


@cython.cfunc
@cython.exceptval(-1)
def _reasons(
    b: cython.p_const_uchar,
    left: cython.Py_ssize_t,
    rules: cython.int,
    limits: AppendLimits,
    producers: ProducerStates,
    next_offset: cython.longlong,
    wall_ms: cython.longlong,
) -> cython.int:
    """What speaks against the batch that begins with b, of `left` bytes: PLAIN, or reasons of `batch_reasons.py`.

    next_offset: where the log ends, or will after what comes before this batch. producers: with that, too.
    """
    base: cython.longlong
    length: cython.longlong
    magic: cython.int
    crc: cython.longlong
    attributes: cython.int
    delta: cython.longlong
    base_timestamp: cython.longlong
    max_timestamp: cython.longlong
    producer_id: cython.longlong
    producer_epoch: cython.longlong
    sequence: cython.longlong
    count: cython.longlong
    size: cython.longlong
    found: cython.int = PLAIN
    entry: ProducerEntry | None
    if left < HEADER_SIZE:
        return CUT
    if cython.compiled:
        base = _int64(b, BASE_OFFSET_AT)
        length = _int32(b, LENGTH_AT)
        magic = b[MAGIC_AT]
        crc = _uint32(b, CRC_AT)
        attributes = b[ATTRIBUTES_LOW_AT]
        delta = _int32(b, LAST_OFFSET_DELTA_AT)
        base_timestamp = _int64(b, BASE_TIMESTAMP_AT)
        max_timestamp = _int64(b, MAX_TIMESTAMP_AT)
        producer_id = _int64(b, PRODUCER_ID_AT)
        producer_epoch = _int16(b, PRODUCER_EPOCH_AT)
        sequence = _int32(b, BASE_SEQUENCE_AT)
        count = _int32(b, RECORDS_COUNT_AT)
    else:
        (
            base, length, _, magic, crc, attributes, delta, base_timestamp, max_timestamp,
            producer_id, producer_epoch, sequence, count,
        ) = HEADER.unpack_from(b)  # fmt: skip
    size = length + LENGTH_OVERHEAD
    if magic != MAGIC:
        return OLD_FORMAT if 0 <= magic < MAGIC else UNKNOWN_FORMAT
    if size < HEADER_SIZE:
        return SHORT_LENGTH
    if size > left:
        return CUT
    if base and rules & CLIENT_RULES:  # before its size and its CRC, as Kafka
        return NOT_FROM_ZERO
    if is_too_large(size, rules, limits):
        return TOO_LARGE
    if cython.compiled:
        view = PyMemoryView_FromMemory(cython.cast(cython.p_char, b + CRC_FROM), size - CRC_FROM, PyBUF_READ)
    else:
        view = b[CRC_FROM:size]
    if crc32c(view) != crc:
        return WRONG_CRC
    if delta < 0 or count < 0:
        return NEGATIVE_COUNT
    if rules & CLIENT_RULES:
        if delta + 1 != count:
            return WRONG_COUNT
        if attributes & CONTROL:
            return CONTROL_RECORDS
        if sequence < 0 <= producer_id:
            return NO_SEQUENCE
        if attributes & LOG_APPEND_TIME:
            return STAMPED
        if attributes & CODEC_MASK > LAST_CODEC:
            return UNKNOWN_CODEC
        found = time_reason(base_timestamp if base_timestamp >= 0 else wall_ms, max_timestamp, limits, wall_ms)
        if found != PLAIN:
            return found
    if size < left:
        found = FOLLOWED
    if rules & CHECKS_PRODUCERS and producer_id >= 0 and not attributes & CONTROL:
        entry = producers.entries.get(producer_id)
        if (
            found
            or entry is None
            or not entry.goes_on(producer_epoch, sequence)
            or (entry.transaction_start >= 0) != (attributes & TRANSACTIONAL != 0)
        ):
            found |= PRODUCER
    if is_too_much(size, rules, limits):
        found |= TOO_MUCH
    if (next_offset if rules & ASSIGNS_OFFSETS else base) > _OFFSET_MAX - delta:
        found |= TOO_FAR
    return found


@cython.ccall
@cython.exceptval(check=False)
def is_too_large(size_bytes: cython.longlong, rules: cython.int, limits: AppendLimits) -> cython.bint:
    """Whether a batch is, for max.message.bytes."""
    return (rules & LIMITS_SIZE) != 0 and size_bytes > limits.max_message_bytes


@cython.ccall
@cython.exceptval(check=False)
def is_too_much(size_bytes: cython.longlong, rules: cython.int, limits: AppendLimits) -> cython.bint:
    """Whether an append is, for segment.bytes, or for any segment."""
    return size_bytes > _APPEND_BYTES_MAX or ((rules & LIMITS_SIZE) != 0 and size_bytes > limits.segment_bytes)


@cython.ccall
@cython.exceptval(check=False)
def time_reason(
    least: cython.longlong, most: cython.longlong, limits: AppendLimits, wall_ms: cython.longlong
) -> cython.int:
    """TOO_LATE or TOO_EARLY, where the largest or the least timestamp of a client's records is."""
    if most > wall_ms and most - wall_ms > limits.timestamp_after_max_ms:  # their sum may pass 2**63
        return TOO_LATE
    if least < wall_ms - limits.timestamp_before_max_ms:
        return TOO_EARLY
    return PLAIN
