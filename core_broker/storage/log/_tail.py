# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
"""The end of a log: what an append compares and changes, as C variables when compiled, and the short way of an append.

The short way takes one batch of a client that is ordinary in all respects, which nearly every append is. It does what
`Log.append` would do, without an object for each field. Everything else takes the long way: for the rare parts of an
append the tail holds one object, `long_way`, and all other appends are those of `Log.append`.

Compiled, one core, three batches of 2 KB a request: 2.3 µs a batch from a request's bytes to its answer's, checksum
included, beside the write; the long way 9.7 µs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Protocol

import cython

from ....protocol.batch_layout import (
    ATTRIBUTES_LOW_AT,
    BASE_SEQUENCE_AT,
    CODEC_MASK,
    CONTROL,
    CRC_AT,
    CRC_FROM,
    HEADER_SIZE,
    LAST_CODEC,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    PREFIX_SIZE,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORDS_COUNT_AT,
    TRANSACTIONAL,
)
from ....protocol.crc import crc32c
from ..disk.errors import StorageError, fresh_copy
from ._limits import AppendLimits
from ._producers import ProducerEntry, ProducerStates
from ._segment import Segment
from .epochs import LeaderEpochs
from .log_config import LogConfig

if cython.compiled:
    from cython.cimports.cpython.buffer import PyBUF_READ
    from cython.cimports.cpython.memoryview import PyMemoryView_FromMemory
    from cython.cimports.isthmus.core_broker.storage.disk._data_file import append_to, size_of
    from cython.cimports.isthmus.protocol._batch_header import _int16, _int32, _int64, _uint32
else:  # only compiled code calls them
    append_to: Any
    size_of: Any
    _int16: Any
    _int32: Any
    _int64: Any
    _uint32: Any
    PyBUF_READ: Any
    PyMemoryView_FromMemory: Any

if TYPE_CHECKING:
    from ....compiled import Public
    from ....protocol.errors import KafkaError

COMPILED = cython.compiled

POSITIONS_KEPT = 64  # of recent appends, so that readers at the end of the log need no search

_NOT_PLAIN: cython.longlong = -2
_OFFSETS_PLAIN: cython.longlong = 2**63 - 1 - 2**32  # up to here no batch can reach past the last offset there is
_NOT_FOR_CLIENTS: cython.int = CONTROL | TRANSACTIONAL | LOG_APPEND_TIME
_POSITIONS_KEPT: cython.longlong = POSITIONS_KEPT


class LongWay(Protocol):
    """What an append needs seldom."""

    def segment_for(
        self, first_offset: int, last_offset: int, size_bytes: int, max_timestamp: int, wall_ms: int
    ) -> Segment:
        """The segment into which an append of these offsets, size and time belongs. Raises StorageError."""

    def append_failed(self, error: OSError) -> StorageError:
        """What to raise after a write that was refused."""

    def note_append(self, wall_ms: int) -> None:
        """The first append since `is_noted` was cleared."""


@cython.final
@cython.cclass
class RecentPositions:
    """Where the last POSITIONS_KEPT appends to a segment end, by the offset that the next batch begins with."""

    _count: cython.longlong  # of all appends so far
    _offsets: Annotated[list[cython.longlong], POSITIONS_KEPT]
    _positions: Annotated[list[cython.longlong], POSITIONS_KEPT]

    def __init__(self) -> None:
        self._count = 0
        if not cython.compiled:
            self._offsets, self._positions = [0] * _POSITIONS_KEPT, [0] * _POSITIONS_KEPT

    @cython.ccall
    @cython.exceptval(-1)
    def append(self, offset: cython.longlong, position: cython.longlong) -> cython.int:
        """Take an append that ends at a position; the next batch begins there with `offset`."""
        at: cython.longlong = self._count % _POSITIONS_KEPT
        self._offsets[at] = offset
        self._positions[at] = position
        self._count += 1
        return 0

    def get(self, offset: cython.longlong) -> int | None:
        """The position of a batch, None if it is not known."""
        i: cython.longlong
        for i in range(self._count - 1, max(self._count - _POSITIONS_KEPT, 0) - 1, -1):
            if self._offsets[i % _POSITIONS_KEPT] == offset:
                return self._positions[i % _POSITIONS_KEPT]
        return None

    def rows(self) -> list[tuple[int, int]]:
        """(offset, position) of each, oldest first."""
        i: cython.longlong
        found: list = []
        for i in range(max(self._count - _POSITIONS_KEPT, 0), self._count):
            found.append((self._offsets[i % _POSITIONS_KEPT], self._positions[i % _POSITIONS_KEPT]))
        return found


@cython.cclass
class LogTail:
    """The end of a log. `Log` and its parts hold it."""

    config: Public[LogConfig]
    producers: Public[ProducerStates]
    epochs: Public[LeaderEpochs]
    failure: Public[KafkaError | None]  # by which the log is offline
    long_way: Public[LongWay]
    active: Public[Segment]  # the one that is appended to
    recent: Public[RecentPositions | None]  # of appends to the active segment; None: none since it is active
    log_start_offset: Public[cython.longlong]
    log_end_offset: Public[cython.longlong]
    wall_ms: Public[cython.longlong]  # of the last append
    is_noted: Public[cython.bint]  # `long_way.note_append` was called; whoever looks after the log's appends clears it

    def __init__(
        self,
        config: LogConfig,
        producers: ProducerStates,
        epochs: LeaderEpochs,
        active: Segment,
        log_start_offset: int,
        log_end_offset: int,
        wall_ms: int,
    ) -> None:
        self.config = config
        self.producers = producers
        self.epochs = epochs
        self.active = active
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.wall_ms = wall_ms
        self.failure = None
        self.recent = None
        self.is_noted = False

    @cython.cfunc
    @cython.exceptval(-1)
    def records_plain(
        self, b: cython.p_const_uchar, size: cython.Py_ssize_t, wall_ms: cython.longlong
    ) -> cython.longlong:
        """How many records this one batch of a client has, if the short way may take it; else -2. Changes nothing.

        b: its first byte. Compares what `check` in append.py compares.
        """
        limits: AppendLimits = self.config.limits
        delta: cython.longlong
        stamp: cython.longlong
        producer_id: cython.longlong
        sequence: cython.longlong
        epoch: cython.int
        entry: ProducerEntry | None
        if size < HEADER_SIZE or size > limits.batch_bytes or not limits.keeps_batches or self.failure is not None:
            return _NOT_PLAIN
        delta = _int32(b, LAST_OFFSET_DELTA_AT)
        stamp = _int64(b, MAX_TIMESTAMP_AT)
        if (
            _int32(b, LENGTH_AT) + LENGTH_OVERHEAD != size
            or b[MAGIC_AT] != MAGIC
            or _int64(b, 0)
            or delta < 0
            or delta + 1 != _int32(b, RECORDS_COUNT_AT)
            or b[ATTRIBUTES_LOW_AT] & _NOT_FOR_CLIENTS
            or b[ATTRIBUTES_LOW_AT] & CODEC_MASK > LAST_CODEC
            or (stamp > wall_ms and stamp - wall_ms > limits.timestamp_after_max_ms)  # their sum may pass 2**63
            or self.log_end_offset > _OFFSETS_PLAIN
        ):
            return _NOT_PLAIN
        producer_id = _int64(b, PRODUCER_ID_AT)
        if producer_id >= 0:
            sequence = _int32(b, BASE_SEQUENCE_AT)
            epoch = _int16(b, PRODUCER_EPOCH_AT)
            entry = self.producers.entries.get(producer_id)
            if sequence < 0 or entry is None or entry.epoch != epoch or not entry.kept:
                return _NOT_PLAIN
            if sequence != entry.next_sequence():
                return _NOT_PLAIN
        view = PyMemoryView_FromMemory(cython.cast(cython.p_char, b + CRC_FROM), size - CRC_FROM, PyBUF_READ)
        if crc32c(view) != _uint32(b, CRC_AT):
            return _NOT_PLAIN
        return delta + 1

    @cython.cfunc
    @cython.exceptval(-1)
    def append_plain(
        self,
        b: cython.p_const_uchar,
        size: cython.Py_ssize_t,
        leader_epoch: cython.longlong,
        wall_ms: cython.longlong,
    ) -> cython.longlong:
        """Append a batch whose records `records_plain` has counted; gives its base offset. Raises KafkaError.

        The log may have gone offline in between: an append to another log wakes whoever waits for that one.
        """
        limits: AppendLimits = self.config.limits
        segment: Segment = self.active
        base: cython.longlong = self.log_end_offset
        last: cython.longlong = base + _int32(b, LAST_OFFSET_DELTA_AT)
        stamp: cython.longlong = _int64(b, MAX_TIMESTAMP_AT)
        producer_id: cython.longlong = _int64(b, PRODUCER_ID_AT)
        position: cython.longlong
        entry: ProducerEntry = cython.cast(ProducerEntry, None)
        if cython.compiled:
            head: cython.uchar[16]
        else:
            head = bytearray(PREFIX_SIZE)
        i: cython.int
        positions: RecentPositions | None
        if self.failure is not None:
            raise fresh_copy(self.failure)
        if producer_id >= 0:
            entry = self.producers.entries[producer_id]
        if not segment.surely_fits(limits, size, last, stamp, wall_ms):
            segment = self.long_way.segment_for(base, last, size, stamp, wall_ms)
        position = size_of(segment.file)
        for i in range(8):
            head[i] = (base >> (56 - 8 * i)) & 0xFF
        for i in range(4):
            head[LENGTH_AT + i] = b[LENGTH_AT + i]
            head[LENGTH_OVERHEAD + i] = (leader_epoch >> (24 - 8 * i)) & 0xFF
        try:
            append_to(segment.file, head, PREFIX_SIZE, b + PREFIX_SIZE, size - PREFIX_SIZE)
        except OSError as error:
            raise self.long_way.append_failed(error) from error
        # The batch is in the log; nothing below may refuse it.
        segment.note(position, size, last, stamp, limits.index_interval_bytes)
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base)
        if producer_id >= 0:
            entry.timestamp = wall_ms
            entry.take(_int32(b, BASE_SEQUENCE_AT), base, last, stamp)
        self.wall_ms = wall_ms
        if not self.is_noted:
            self.long_way.note_append(wall_ms)
        self.log_end_offset = last + 1
        positions = self.recent
        if positions is None:
            positions = self.recent = RecentPositions()
        positions.append(last + 1, position + size)
        return base
