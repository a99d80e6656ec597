# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
# ruff: noqa: F821  (a struct of C is declared by its annotation alone)
"""The pass over a segment's batches by which a start after a crash reads a log, in the two forms of `_records.py`.

It has no I/O and no policy: `core_broker/storage/startup/recovery.py` gives it bytes and takes what it found. A batch
costs a look at its header and its checksum; only what the log's indexes, leader epochs and producers need becomes an
object.

Compiled, one core, bytes in the page cache: 0.4 µs a batch beside its checksum; plain 4 µs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from .batch_layout import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    CONTROL,
    CRC_AT,
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_ID_AT,
    RECORDS_COUNT_AT,
    TRANSACTIONAL,
)
from .crc import crc32c

if cython.compiled:
    from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.isthmus.protocol._batch_header import _int16, _int32, _int64, _uint32


if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ..compiled import Readonly

COMPILED = cython.compiled

Header = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]

_UNDECIDED: cython.int = TRANSACTIONAL | CONTROL  # the order of such batches counts beyond their producer
_MAX_RELATIVE: cython.longlong = 2**31 - 1  # of offsets in a segment above its base


@cython.final
@cython.cclass
class BatchScan:
    """The batches of one segment in order, as far as they are whole and valid and their offsets rise.

    end: the position after the last of them. stopped: what follows is none. wanted: the size of the next one, where the
    bytes given did not hold all of it; else 0. last_offset, max_timestamp, max_timestamp_offset, first_timestamp and
    bytes_since_index: what a growing segment would have of them, with an index point each `interval_bytes`.

    Of the last `take` alone: points, as (last offset above the base, position, largest timestamp so far, last offset of
    its batch above the base); epochs, as (leader epoch, offset of its first batch); producers, as (position, header) of
    batches with a producer id, where only the last `keeps` of each producer are, unless there are transactions.
    """

    base_offset: Readonly[cython.longlong]
    end: Readonly[cython.longlong]
    wanted: Readonly[cython.longlong]
    stopped: Readonly[cython.bint]
    last_offset: Readonly[cython.longlong]
    max_timestamp: Readonly[cython.longlong]
    max_timestamp_offset: Readonly[cython.longlong]
    first_timestamp: Readonly[cython.longlong]
    bytes_since_index: Readonly[cython.longlong]
    batches: Readonly[cython.longlong]
    points: Readonly[list[tuple[int, int, int, int]]]
    epochs: Readonly[list[tuple[int, int]]]
    producers: Readonly[list[tuple[int, Header]]]
    interval_bytes: cython.longlong
    keeps: cython.int
    epoch: cython.longlong

    def __init__(self, base_offset: cython.longlong, interval_bytes: cython.longlong, keeps: cython.int) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.keeps = keeps
        self.end = 0
        self.wanted = 0
        self.stopped = False
        self.last_offset = base_offset - 1
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.first_timestamp = -1
        self.bytes_since_index = 0
        self.batches = 0
        self.epoch = -1
        self.points = []
        self.epochs = []
        self.producers = []

    def take(self, buf: Buffer, left: cython.longlong, crc: cython.longlong = -1) -> None:
        """Go on with `buf`, whose first byte is at `end`; `left` bytes are left of the file there.

        crc: the first batch's checksum where it is too large to be given whole; `buf` needs its header alone then.
        """
        view: cython.Py_buffer
        b: cython.p_const_uchar
        size: cython.Py_ssize_t
        p: cython.Py_ssize_t = 0
        base: cython.longlong
        length: cython.longlong
        epoch: cython.longlong
        magic: cython.int
        wanted_crc: cython.longlong
        attributes: cython.int
        delta: cython.longlong
        max_timestamp: cython.longlong
        producer_id: cython.longlong
        sequence: cython.longlong
        count: cython.longlong
        batch: cython.longlong
        in_order: cython.bint = False
        self.points = []
        self.epochs = []
        self.producers = []
        self.wanted = 0
        data = memoryview(buf)
        if cython.compiled:
            PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
            b = cython.cast(cython.p_const_uchar, view.buf)
            size = view.len
        else:
            size = len(data)
        try:
            while size - p >= HEADER_SIZE:
                if cython.compiled:
                    base, length = _int64(b, p), _int32(b, p + LENGTH_AT)
                    epoch, magic = _int32(b, p + LEADER_EPOCH_AT), b[p + MAGIC_AT]
                    wanted_crc, attributes = _uint32(b, p + CRC_AT), _int16(b, p + ATTRIBUTES_AT)
                    delta, max_timestamp = _int32(b, p + LAST_OFFSET_DELTA_AT), _int64(b, p + MAX_TIMESTAMP_AT)
                    producer_id, sequence = _int64(b, p + PRODUCER_ID_AT), _int32(b, p + BASE_SEQUENCE_AT)
                    count = _int32(b, p + RECORDS_COUNT_AT)
                else:
                    (
                        base, length, epoch, magic, wanted_crc, attributes, delta, _, max_timestamp, producer_id, _,
                        sequence, count,
                    ) = HEADER.unpack_from(data, p)  # fmt: skip
                batch = length + LENGTH_OVERHEAD
                if (
                    batch < HEADER_SIZE
                    or batch > left
                    or magic != MAGIC
                    or delta < 0
                    or base <= self.last_offset
                    or base - self.base_offset > _MAX_RELATIVE - delta
                ):
                    self.stopped = True
                    break
                if crc < 0:
                    if batch > size - p:
                        self.wanted = batch
                        break
                    crc = crc32c(data[p + CRC_FROM : p + batch])
                if crc != wanted_crc:
                    self.stopped = True
                    break
                crc = -1
                if not count:
                    max_timestamp = -1  # compaction has left no record, whatever the header says
                if not self.end:
                    self.first_timestamp = max_timestamp
                if max_timestamp > self.max_timestamp:
                    self.max_timestamp = max_timestamp
                    self.max_timestamp_offset = base + delta
                if self.bytes_since_index > self.interval_bytes:
                    self.points.append(
                        (
                            base + delta - self.base_offset,
                            self.end,
                            self.max_timestamp,
                            self.max_timestamp_offset - self.base_offset,
                        )
                    )
                    self.bytes_since_index = 0
                if epoch != self.epoch:
                    self.epochs.append((epoch, base))
                    self.epoch = epoch
                if producer_id >= 0:
                    self.producers.append((self.end, HEADER.unpack_from(data, p)))
                    if attributes & _UNDECIDED or sequence < 0:
                        in_order = True
                self.bytes_since_index += batch
                self.last_offset = base + delta
                self.batches += 1
                self.end += batch
                p += batch
                left -= batch
        finally:
            if cython.compiled:
                PyBuffer_Release(cython.address(view))
        if not in_order:
            self.producers = _last_of_each(self.producers, self.keeps)


def _last_of_each(rows: list[tuple[int, Header]], keeps: cython.int) -> list[tuple[int, Header]]:
    """The last `keeps` rows of each producer id, in order."""
    if len(rows) <= keeps:
        return rows
    counts: dict = {}
    kept: list = []
    for row in reversed(rows):
        producer_id = row[1][9]
        seen = counts.get(producer_id, 0)
        if seen < keeps:
            counts[producer_id] = seen + 1
            kept.append(row)
    kept.reverse()
    return kept
