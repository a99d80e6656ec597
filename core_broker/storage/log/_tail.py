# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
# ruff: noqa: F821  (names declared in _tail.pxd)
# mypy: ignore-errors
"""What an append looks at and changes: fields of logs, segments and producers that are C variables when compiled.

`Log`, `Segment`, `ProducerEntry` and `ProducerStates` are made of these classes and of all that is done less often.
The short way of an append is here, too, where compiled: one batch of a client that nothing speaks against, which
nearly every append is. It does what `Log.append` would do with it, without an object made for each field; whatever is
out of the ordinary is left to that one.

Compiled, one core, three batches of 2 KB a request: 2.3 µs a batch from a request's bytes to its answer's, checksum
included, beside the write; the long way 9.7 µs.
"""

import cython

from ....protocol.batch_layout import (  # C variables when compiled, see _tail.pxd
    ATTRIBUTES_LOW_AT,
    BASE_SEQUENCE_AT,
    BOUNDS,
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
    SEQUENCE_MASK,
    TRANSACTIONAL,
)
from ....protocol.crc import crc32c
from ..disk._data_file import DataFile
from ..disk.errors import anew
from ._appended import OffsetTail, Positions

COMPILED = cython.compiled

# C variables when compiled, see _tail.pxd.
_NOT_PLAIN = -2
_MAX_RELATIVE = 2**31 - 1  # of offsets in a segment above its base
_OFFSETS_PLAIN = 2**63 - 1 - 2**32  # up to here no batch can reach past the last offset there is
_BATCHES_KEPT = 5  # a producer has at most five requests in flight
_NOT_FOR_CLIENTS = CONTROL | TRANSACTIONAL | LOG_APPEND_TIME

_SCAN_BYTES = 4096

SCAN_BYTES = _SCAN_BYTES  # read at once when batches are looked through: what an index entry stands for by default

BATCHES_KEPT = _BATCHES_KEPT


@cython.final
@cython.cclass
class AppendLimits:
    """What of a topic's options (LogConfig) an append goes by. Never changed."""

    __slots__ = (
        "batch_bytes",
        "index_entries_safe",
        "index_interval_bytes",
        "keeps_batches",
        "roll_ms",
        "segment_bytes",
        "timestamp_after_max_ms",
    )

    def __init__(self, config):
        self.segment_bytes = config.segment_bytes
        self.batch_bytes = min(config.max_message_bytes, config.segment_bytes)
        self.index_interval_bytes = config.index_interval_bytes
        # With jitter it takes the segment's name to tell how long it may grow: nothing surely fits.
        self.index_entries_safe = -1 if config.segment_jitter_ms else config.index_entries_safe
        self.roll_ms = config.roll_ms
        self.timestamp_after_max_ms = config.message_timestamp_after_max_ms
        self.keeps_batches = config.keeps_batches


@cython.cclass
class SegmentTail:
    """The end of a segment.

    file: its log. offsets, times: the active segment's indexes, None when it is closed: then their files are searched.
    created_ms stands in where no record has a timestamp; max_timestamp_offset is the last offset of the batch that has
    max_timestamp; first_timestamp, of the first batch, is what segment.ms counts from.
    """

    __slots__ = (
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "file",
        "first_timestamp",
        "last_offset",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "times",
    )

    def note(
        self,
        position: cython.longlong,
        size_bytes: cython.longlong,
        last_offset: cython.longlong,
        max_timestamp: cython.longlong,
        interval_bytes: cython.longlong,
    ):
        """Take a batch that was written at `position` into the indexes."""
        _note(self, position, size_bytes, last_offset, max_timestamp, interval_bytes)

    @cython.ccall
    @cython.exceptval(-2)
    def start_of(self, offset: cython.longlong) -> cython.longlong:
        """Where to begin to look for an offset, by the index in memory; -1 when that is in its file."""
        relative: cython.longlong = offset - self.base_offset
        offsets: OffsetTail = self.offsets  # a search on another thread may see the segment close
        if relative > _MAX_RELATIVE:
            return size_bytes_of(self.file)
        return -1 if offsets is None else offsets.lookup(relative)

    @cython.ccall
    @cython.exceptval(-2)
    def indexed_before(self, position: cython.longlong) -> cython.longlong:
        """The last batch at or before a position, of those that the index in memory knows; -1 where there is none."""
        offsets: OffsetTail = self.offsets
        return -1 if offsets is None else offsets.position_before(position)

    def seek(self, offset: cython.longlong, position: cython.longlong, may_wait: cython.bint):
        """`sought` from Python."""
        return self.sought(offset, position, may_wait)

    @cython.cfunc
    def sought(self, offset: cython.longlong, position: cython.longlong, may_wait: cython.bint) -> tuple:
        """(position, size in bytes) of the first batch whose last offset is `offset` or later, (size of the file, 0) if
        there is none. It is looked for from a position on that must be a batch's.

        Raises BlockingIOError at what is not in the page cache, if it may not wait for the disk.
        """
        file = self.file
        end: cython.longlong = size_bytes_of(file)
        chunk: bytes = b""
        chunk_start: cython.longlong = position
        at: cython.longlong
        last: cython.longlong
        length: cython.longlong
        while end - position >= HEADER_SIZE:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk = (file.pread if may_wait else file.pread_cached)(min(_SCAN_BYTES, end - position), position)
                chunk_start, at = position, 0
                if len(chunk) < HEADER_SIZE:
                    break
            if cython.compiled:
                b: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(chunk)) + at
                last, length = _int64(b, 0) + _int32(b, LAST_OFFSET_DELTA_AT), _int32(b, LENGTH_AT)
            else:
                base, length, delta, _, _ = BOUNDS.unpack_from(chunk, at)
                last = base + delta
            if length < HEADER_SIZE - LENGTH_OVERHEAD or position + length + LENGTH_OVERHEAD > end:
                break
            if last >= offset:
                return position, length + LENGTH_OVERHEAD
            position += length + LENGTH_OVERHEAD
        return end, 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _surely_fits(
        self,
        limits: AppendLimits,
        size: cython.longlong,
        last: cython.longlong,
        stamp: cython.longlong,
        wall_ms: cython.longlong,
    ) -> cython.bint:
        """Whether `Segment.must_roll` need not be asked."""
        held: cython.longlong = size_bytes_of(self.file)
        if last - self.base_offset > _MAX_RELATIVE:
            return False
        if not held:
            return True
        if held + size > limits.segment_bytes or len(self.offsets) > limits.index_entries_safe:
            return False
        if self.first_timestamp >= 0 and stamp >= 0:
            return stamp - self.first_timestamp <= limits.roll_ms
        return wall_ms - self.created_ms <= limits.roll_ms


@cython.cfunc
@cython.exceptval(-1)
def size_bytes_of(file) -> cython.longlong:
    data_file: DataFile
    if isinstance(file, DataFile):
        data_file = file
        return data_file.size
    return file.size


@cython.cfunc
@cython.exceptval(-1)
def _append_to(
    file, head: cython.p_const_uchar, head_bytes: cython.Py_ssize_t, rest: cython.p_const_uchar, size: cython.Py_ssize_t
) -> cython.int:
    data_file: DataFile
    if isinstance(file, DataFile):
        data_file = file
        data_file.append_batch(head, head_bytes, rest, size)
    else:  # a simulated one
        file.append([head[:head_bytes], rest[:size]])
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _note(
    segment: SegmentTail,
    position: cython.longlong,
    size_bytes: cython.longlong,
    last_offset: cython.longlong,
    max_timestamp: cython.longlong,
    interval_bytes: cython.longlong,
) -> cython.int:
    if not position:
        segment.first_timestamp = max_timestamp
    if max_timestamp > segment.max_timestamp:
        segment.max_timestamp = max_timestamp
        segment.max_timestamp_offset = last_offset
    if segment.bytes_since_index > interval_bytes:
        assert segment.offsets is not None and segment.times is not None
        segment.offsets.take(last_offset - segment.base_offset, position)
        segment.times.take(segment.max_timestamp, segment.max_timestamp_offset - segment.base_offset)
        segment.bytes_since_index = 0
    segment.bytes_since_index += size_bytes
    segment.last_offset = last_offset
    return 0


@cython.cclass
class ProducerTail:
    """One producer id's state: its epoch, and its last batches of that epoch.

    timestamp: of the last write, what expiry counts from; transaction_start: first offset of the open transaction, -1
    when there is none.
    """

    __slots__ = (
        "_first_offsets",
        "_first_sequences",
        "_kept",
        "_last_offsets",
        "_last_sequences",
        "_timestamps",
        "coordinator_epoch",
        "epoch",
        "timestamp",
        "transaction_start",
    )

    def __init__(self, epoch: cython.longlong):
        self.epoch = epoch
        self.timestamp = -1
        self.coordinator_epoch = -1
        self.transaction_start = -1
        self._kept = 0
        if not cython.compiled:
            self._first_sequences, self._last_sequences = [0] * _BATCHES_KEPT, [0] * _BATCHES_KEPT
            self._first_offsets, self._last_offsets = [0] * _BATCHES_KEPT, [0] * _BATCHES_KEPT
            self._timestamps = [0] * _BATCHES_KEPT

    def begin(self, epoch: cython.longlong):
        """A new epoch: nothing is remembered of the one before."""
        self.epoch = epoch
        self._kept = 0

    def take(
        self,
        base_sequence: cython.longlong,
        base_offset: cython.longlong,
        last_offset: cython.longlong,
        timestamp: cython.longlong,
    ):
        """Remember a batch, and forget the oldest when there are enough."""
        _take(self, base_sequence, base_offset, last_offset, timestamp)

    @property
    def last_sequence(self):
        """Of the last batch, -1 when none is remembered."""
        return self._last_sequences[self._kept - 1] if self._kept else -1

    def rows(self):
        """(first sequence, last sequence, first offset, last offset, timestamp) of each batch, oldest first."""
        i: cython.int
        found: list = []
        for i in range(self._kept):
            found.append(
                (
                    self._first_sequences[i], self._last_sequences[i], self._first_offsets[i], self._last_offsets[i],
                    self._timestamps[i],
                )
            )  # fmt: skip
        return found


@cython.cfunc
@cython.exceptval(check=False)
def _take(
    entry: ProducerTail,
    base_sequence: cython.longlong,
    base_offset: cython.longlong,
    last_offset: cython.longlong,
    timestamp: cython.longlong,
) -> cython.void:
    i: cython.int
    at: cython.int = entry._kept
    if at == _BATCHES_KEPT:
        at -= 1
        for i in range(at):
            entry._first_sequences[i] = entry._first_sequences[i + 1]
            entry._last_sequences[i] = entry._last_sequences[i + 1]
            entry._first_offsets[i] = entry._first_offsets[i + 1]
            entry._last_offsets[i] = entry._last_offsets[i + 1]
            entry._timestamps[i] = entry._timestamps[i + 1]
    entry._first_sequences[at] = base_sequence
    entry._last_sequences[at] = (base_sequence + (last_offset - base_offset)) & SEQUENCE_MASK
    entry._first_offsets[at] = base_offset
    entry._last_offsets[at] = last_offset
    entry._timestamps[at] = timestamp
    entry._kept = at + 1


@cython.cclass
class ProducerTails:
    """The producers of one log, by id; open: the first offset of each one's open transaction. `complete`: see
    ProducerStates."""

    __slots__ = (
        "complete",
        "entries",
        "open",
    )


@cython.cclass
class LogTail:
    """The end of a log. `_positions`: of recent batches in the active segment, None when it has had none lately."""

    __slots__ = (
        "_active",
        "_positions",
        "_wall_ms",
        "config",
        "epochs",
        "failure",
        "is_noted",
        "log_end_offset",
        "log_start_offset",
        "producers",
    )

    @cython.cfunc
    @cython.exceptval(-1)
    def records_plain(
        self, b: cython.p_const_uchar, size: cython.Py_ssize_t, wall_ms: cython.longlong
    ) -> cython.longlong:
        """How many records this one batch of a client has, if the short way may take it; else -2. Changes nothing.

        b: its first byte. All that `check` in append.py asks of it.
        """
        limits: AppendLimits = self.config.limits
        delta: cython.longlong
        stamp: cython.longlong
        producer_id: cython.longlong
        sequence: cython.longlong
        epoch: cython.int
        entry: ProducerTail
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
            if sequence < 0 or entry is None or entry.epoch != epoch or not entry._kept:
                return _NOT_PLAIN
            if sequence != (entry._last_sequences[entry._kept - 1] + 1) & SEQUENCE_MASK:
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
        """Append a batch that `records_plain` has counted the records of; its base offset. Raises KafkaError.

        Since it was counted, whoever an append to another log has woken may have found this one's disk broken.
        """
        limits: AppendLimits = self.config.limits
        segment: SegmentTail = self._active
        base: cython.longlong = self.log_end_offset
        last: cython.longlong = base + _int32(b, LAST_OFFSET_DELTA_AT)
        stamp: cython.longlong = _int64(b, MAX_TIMESTAMP_AT)
        producer_id: cython.longlong = _int64(b, PRODUCER_ID_AT)
        position: cython.longlong
        entry: ProducerTail = None
        head: cython.uchar[16]
        i: cython.int
        positions: Positions
        if self.failure is not None:
            raise anew(self.failure)
        if producer_id >= 0:
            entry = self.producers.entries[producer_id]
        if not segment._surely_fits(limits, size, last, stamp, wall_ms):
            segment = self._segment_for(base, last, size, stamp, wall_ms)
        position = size_bytes_of(segment.file)
        for i in range(8):
            head[i] = (base >> (56 - 8 * i)) & 0xFF
        for i in range(4):
            head[LENGTH_AT + i] = b[LENGTH_AT + i]
            head[LENGTH_OVERHEAD + i] = (leader_epoch >> (24 - 8 * i)) & 0xFF
        try:
            _append_to(segment.file, head, PREFIX_SIZE, b + PREFIX_SIZE, size - PREFIX_SIZE)
        except OSError as error:
            raise self._append_failed(error) from error
        # The batch is in the log; nothing below may refuse it.
        _note(segment, position, size, last, stamp, limits.index_interval_bytes)
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base)
        if producer_id >= 0:
            entry.timestamp = wall_ms
            _take(entry, _int32(b, BASE_SEQUENCE_AT), base, last, stamp)
        self._wall_ms = wall_ms
        if not self.is_noted:
            self._note_append(wall_ms)
        self.log_end_offset = last + 1
        positions = self._positions
        if positions is None:
            positions = self._positions = Positions()
        positions.take(last + 1, position + size)
        return base
