"""Record batches v2: header view, walker, validation, readers and builder (KIP-98; magic 2 only).

What moves batches looks at headers alone: `walk`, `read_header`, `verify_crc`. The readers take a buffer of many
batches, each of its own codec, and skip control batches; a batch cut at the end of the buffer, as a fetch may end,
is left out. All raise CorruptBatch for bytes that are not what they claim. The per-record loops are in `_records.py`
and `_writing.py`.

A batch of a few kilobytes may expand to gigabytes. `record_pieces`, `iter_records` and `iter_columns` decompress a
batch in pieces and give out each piece's records before the next one, so that their memory does not depend on that.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _records
from ._batch_header import BatchHeader, CorruptBatch, read_header, read_whole_header
from ._columns import ColumnBuffers
from ._records import COMPILED, Record
from ._writing import RecordsWriter
from .batch_layout import (
    ATTRIBUTES,
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL,
    CRC,
    CRC_AT,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    KNOWN_ATTRIBUTES,
    LENGTH,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    PREFIX,
    TRANSACTIONAL,
)
from .compression import (
    DECOMPRESSED_BYTES_MAX,
    CompressionError,
    DecompressedTooLarge,
    codec_id,
    compress,
    decompress,
    decompressed_pieces,
)
from .crc import crc32c

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "COMPILED",
    "DECODE_BYTES_MAX",
    "HEADER_SIZE",
    "OFFSET_MAX",
    "BatchBuilder",
    "BatchHeader",
    "BatchSummary",
    "Columns",
    "CorruptBatch",
    "HeaderColumns",
    "Record",
    "TooLargeToDecode",
    "batch_prefix",
    "build_batch",
    "build_columns",
    "decode_batch",
    "decode_lists",
    "decode_lists_with_headers",
    "iter_columns",
    "iter_records",
    "plain_records",
    "read_header",
    "record_pieces",
    "validate_batch",
    "verify_crc",
    "walk",
    "with_append_time",
    "with_codec",
]

OFFSET_MAX = 2**63 - 1
PIECE_BYTES = 4 << 20  # of a batch's records decompressed at a time; a record that is larger is not cut
DECODE_BYTES_MAX = 64 << 20  # of what cannot be cut, a record or a block of snappy, where the caller says nothing else

_APPEND_TIME = struct.Struct(">hiqq")  # attributes, last offset delta, base and max timestamp
_BATCH_BYTES_MAX = 2**31 - 1

Fields = tuple[int, "Buffer | None", "Buffer | None", Sequence[tuple[str, "Buffer | None"]]]


def _bytes_view(buf: Buffer) -> memoryview:
    view = memoryview(buf)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


# Headers


def walk(buf: Buffer, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch from `start` on. Stops at one that the end of the buffer cuts.

    Raises CorruptBatch for a header that cannot be. No CRC is looked at.
    """
    data = _bytes_view(buf)
    position = start
    while (header := read_whole_header(data, position)) is not None:
        yield position, header
        position += header.size_bytes


def verify_crc(buf: Buffer, position: int, size_bytes: int) -> bool:
    """Whether the CRC32C in the batch at `position` is that of its bytes."""
    return _crc_matches(_bytes_view(buf), position, size_bytes)


def _crc_matches(data: memoryview, position: int, size_bytes: int) -> bool:
    if size_bytes < HEADER_SIZE or position < 0 or position + size_bytes > len(data):
        return False
    (crc,) = CRC.unpack_from(data, position + CRC_AT)
    return crc32c(data[position + CRC_FROM : position + size_bytes]) == crc


def batch_prefix(base_offset: int, length: int, partition_leader_epoch: int) -> bytes:
    """The first 16 bytes of a batch, which its CRC does not cover: what a leader overwrites."""
    return PREFIX.pack(base_offset, length, partition_leader_epoch)


def with_append_time(buf: Buffer, position: int, timestamp_ms: int) -> bytes:
    """The 61 header bytes of the batch at `position` with LogAppendTime set to `timestamp_ms`, and a new CRC."""
    header = read_header(buf, position)
    data = _bytes_view(buf)
    out = bytearray(data[position : position + HEADER_SIZE])
    attributes = header.attributes & KNOWN_ATTRIBUTES | LOG_APPEND_TIME  # as in Kafka, others are dropped
    _APPEND_TIME.pack_into(
        out, ATTRIBUTES_AT, attributes, header.last_offset_delta, header.base_timestamp, timestamp_ms
    )
    tail = data[position + HEADER_SIZE : position + header.size_bytes]
    CRC.pack_into(out, CRC_AT, crc32c(tail, crc32c(memoryview(out)[CRC_FROM:])))
    return bytes(out)


class TooLargeToDecode(CorruptBatch):
    """A batch that cannot be decoded within the memory that the caller allows."""


_Checked = tuple[int, int, int, int, bool]  # as of `check_records`


class BatchSummary(NamedTuple):
    """What `validate_batch` has seen. Offsets count from the header's base offset; all -1 without records."""

    header: BatchHeader
    max_timestamp: int
    offset_of_max_timestamp: int
    min_timestamp: int  # of the records that have one
    null_keys: int
    dense: bool  # offset deltas are 0, 1, 2, … and the last is the header's


def validate_batch(buf: Buffer, position: int = 0, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> BatchSummary:
    """Looks at every record of the batch at `position`, after its CRC. Raises CorruptBatch.

    max_bytes: of the batch when decompressed, of which only pieces are held.
    """
    data = _bytes_view(buf)
    header = _whole_header(data, position)
    found, total = None, 0
    for section in _sections(data, position, header, True, max_bytes=max_bytes):
        total += section.left
        part = _records.check_records(section)
        total -= section.left
        if total > max_bytes:
            what = f"its records have more than {max_bytes} bytes when decompressed"
            raise TooLargeToDecode(f"the batch at offset {header.base_offset} of {header.size_bytes} bytes: {what}")
        found = part if found is None else _both(found, part)
    assert found is not None
    return _summary(header, found)


def _both(first: _Checked, then: _Checked) -> _Checked:
    """What `check_records` says of two parts of a batch together."""
    stamp, offset = first[:2] if then[1] < 0 or (first[1] >= 0 and first[0] >= then[0]) else then[:2]
    least = min((each for each in (first[2], then[2]) if each != -1), default=-1)
    return stamp, offset, least, first[3] + then[3], first[4] and then[4]


def _summary(header: BatchHeader, found: _Checked) -> BatchSummary:
    stamp, offset, least, null_keys, dense = found
    dense = dense and header.last_offset_delta == header.records_count - 1
    return BatchSummary(header, stamp, offset, least, null_keys, dense)


def with_codec(
    buf: Buffer, position: int, codec: str | int, level: int | None = None, *, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> tuple[bytes, BatchSummary]:
    """The batch at `position` in another codec, with a new CRC, and what its records are. Raises CorruptBatch.

    Every record is looked at, after the batch's CRC. level: see `compress`.
    """
    data = _bytes_view(buf)
    header, source, start, stop = _batch_at(data, position, True, max_bytes)
    summary = _summary(header, _records.check_records(_records.Section(source, start, stop, header)))
    number = codec_id(codec)
    packed = compress(number, memoryview(source)[start:stop], level)
    out = bytearray(HEADER_SIZE + len(packed))
    out[:HEADER_SIZE] = data[position : position + HEADER_SIZE]
    out[HEADER_SIZE:] = packed
    LENGTH.pack_into(out, LENGTH_AT, len(out) - LENGTH_OVERHEAD)
    kept = header.attributes & KNOWN_ATTRIBUTES & ~(CODEC_MASK | DELETE_HORIZON)  # as in Kafka
    ATTRIBUTES.pack_into(out, ATTRIBUTES_AT, kept | number)
    CRC.pack_into(out, CRC_AT, crc32c(memoryview(out)[CRC_FROM:]))
    return bytes(out), summary


# Readers


def _whole_header(data: memoryview, position: int) -> BatchHeader:
    header = read_header(data, position)
    if header.size_bytes > len(data) - position:
        raise CorruptBatch(
            f"the batch at offset {header.base_offset} has {header.size_bytes} bytes, "
            f"{len(data) - position} are left at byte {position}"
        )
    return header


def _batch_at(data: memoryview, position: int, check_crc: bool, max_bytes: int) -> tuple[BatchHeader, Any, int, int]:
    header = _whole_header(data, position)
    return header, *plain_records(data, position, header, check_crc, max_bytes)


def _sections(
    data: memoryview,
    position: int,
    header: BatchHeader,
    check_crc: bool,
    from_offset: int = 0,
    to_offset: int = OFFSET_MAX,
    piece_bytes: int = PIECE_BYTES,
    max_bytes: int = DECODE_BYTES_MAX,
) -> Iterable[_records.Section]:
    """The records of the batch at `position` in one section or several, each to be read to its end before the next.

    At a time two pieces of at most `piece_bytes` are held, or a record of at most `max_bytes`. Raises CorruptBatch,
    TooLargeToDecode.
    """
    size = header.size_bytes
    if check_crc and not _crc_matches(data, position, size):
        raise _wrong_crc(header)
    if not header.codec:
        return (_records.Section(data, position + HEADER_SIZE, position + size, header, from_offset, to_offset),)
    body = data[position + HEADER_SIZE : position + size]
    return _decompressed_sections(body, header, from_offset, to_offset, piece_bytes, max_bytes)


def _decompressed_sections(
    body: memoryview, header: BatchHeader, from_offset: int, to_offset: int, piece_bytes: int, max_bytes: int
) -> Iterator[_records.Section]:
    try:
        pieces = decompressed_pieces(header.codec, body, max(min(piece_bytes, max_bytes), 1), max_bytes)
        plain = _bytes_view(next(pieces, b""))
        following = next(pieces, None)
        section = _records.Section(plain, 0, len(plain), header, from_offset, to_offset, following is not None)
        yield section
        while following is not None:
            if section.record_bytes > max_bytes:
                raise TooLargeToDecode(
                    f"the record after offset {section.next_offset - 1}, in the batch at offset {header.base_offset}, "
                    f"has more than {max_bytes} bytes when decompressed: {section.record_bytes}"
                )
            parts = [plain[len(plain) - section.left :], following]
            have = section.left + len(following)
            while (following := next(pieces, None)) is not None and have < section.record_bytes:
                parts.append(following)
                have += len(following)
            plain = memoryview(b"".join(parts))
            section.go_on(plain, following is not None)
            yield section
    except DecompressedTooLarge as error:
        raise TooLargeToDecode(_in_batch(header, error)) from error
    except CompressionError as error:
        raise CorruptBatch(_in_batch(header, error)) from error


def _wrong_crc(header: BatchHeader) -> CorruptBatch:
    return CorruptBatch(f"the batch at offset {header.base_offset} of {header.size_bytes} bytes does not match its CRC")


def _in_batch(header: BatchHeader, error: Exception) -> str:
    return f"the batch at offset {header.base_offset} of {header.size_bytes} bytes: {error}"


def plain_records(
    data: memoryview, position: int, header: BatchHeader, check_crc: bool, max_bytes: int
) -> tuple[Any, int, int]:
    """Where the records of the batch at `position` lie uncompressed: (buffer, start, stop). Raises CorruptBatch."""
    size = header.size_bytes
    if check_crc and not _crc_matches(data, position, size):
        raise _wrong_crc(header)
    if not header.codec:
        return data, position + HEADER_SIZE, position + size
    try:
        plain = decompress(header.codec, data[position + HEADER_SIZE : position + size], max_bytes)
    except CompressionError as error:
        raise CorruptBatch(_in_batch(header, error)) from error
    return plain, 0, len(plain)


def decode_batch(
    buf: Buffer, position: int = 0, *, check_crc: bool = True, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """The records of the one batch at `position`, be it a control batch. Raises CorruptBatch.

    max_bytes: bound of the batch when decompressed.
    """
    out: list[Record] = []
    data = _bytes_view(buf)
    header, source, start, stop = _batch_at(data, position, check_crc, max_bytes)
    _records.read_records(_records.Section(source, start, stop, header), out)
    return out


def iter_records(
    buf: Buffer,
    *,
    from_offset: int = 0,
    to_offset: int = OFFSET_MAX,
    check_crc: bool = True,
    max_bytes: int = DECODE_BYTES_MAX,
) -> Iterator[Record]:
    """The records of `record_pieces`, one by one."""
    for piece in record_pieces(
        buf, from_offset=from_offset, to_offset=to_offset, check_crc=check_crc, max_bytes=max_bytes
    ):
        yield from piece


def record_pieces(
    buf: Buffer,
    *,
    from_offset: int = 0,
    to_offset: int = OFFSET_MAX,
    check_crc: bool = True,
    max_bytes: int = DECODE_BYTES_MAX,
) -> Iterator[list[Record]]:
    """The records with from_offset <= offset < to_offset of all whole batches, as many at a time as are in a piece.

    A piece is a batch, or PIECE_BYTES of one that expands to more. max_bytes: of a record in a compressed batch. Raises
    CorruptBatch, TooLargeToDecode; those records of a batch that come before the error are given out.
    """
    data = _bytes_view(buf)
    for position, header in walk(data):
        if _is_outside(header, from_offset, to_offset):
            continue
        for section in _sections(data, position, header, check_crc, from_offset, to_offset, max_bytes=max_bytes):
            out: list[Record] = []
            _records.read_records(section, out)
            yield out


def _is_outside(header: BatchHeader, from_offset: int, to_offset: int) -> bool:
    return header.is_control or header.last_offset < from_offset or header.base_offset >= to_offset


class Lists(NamedTuple):
    """Records as four lists of one length."""

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]


def decode_lists(
    buf: Buffer,
    *,
    from_offset: int = 0,
    to_offset: int = OFFSET_MAX,
    check_crc: bool = True,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> Lists:
    """(offsets, timestamps, keys, values) of the records with from_offset <= offset < to_offset of all whole batches.

    Headers are left out. Timestamps in ms. Raises CorruptBatch.
    """
    out = Lists([], [], [], [])
    for section in _plain_sections(buf, from_offset, to_offset, check_crc, max_bytes):
        _records.read_lists(section, *out)
    return out


class ListsWithHeaders(NamedTuple):
    """Records as five lists of one length. headers: (name, value or None) pairs, as in Record; one empty tuple is
    shared by all records that have none."""

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[tuple[tuple[str, bytes | None], ...]]


def decode_lists_with_headers(
    buf: Buffer,
    *,
    from_offset: int = 0,
    to_offset: int = OFFSET_MAX,
    check_crc: bool = True,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> ListsWithHeaders:
    """As `decode_lists`, and the headers."""
    out = ListsWithHeaders([], [], [], [], [])
    for section in _plain_sections(buf, from_offset, to_offset, check_crc, max_bytes):
        _records.read_lists(section, *out)
    return out


def _plain_sections(
    buf: Buffer, from_offset: int, to_offset: int, check_crc: bool, max_bytes: int
) -> Iterator[_records.Section]:
    """The records of each whole batch, decompressed in one piece."""
    data = _bytes_view(buf)
    for position, header in walk(data):
        if not _is_outside(header, from_offset, to_offset):
            source, start, stop = plain_records(data, position, header, check_crc, max_bytes)
            yield _records.Section(source, start, stop, header, from_offset, to_offset)


@dataclass(slots=True, frozen=True, eq=False)
class HeaderColumns:
    """Record headers as Arrow's list<struct<key: binary, value: binary>>: row i has headers rows[i] to rows[i+1].

    Keys are the wire's bytes; nothing says they are UTF-8. valid is None where no value is null.
    """

    count: int
    rows: array[int]
    key_offsets: array[int]
    key_data: bytearray
    value_offsets: array[int]
    value_data: bytearray
    value_valid: bytearray | None


@dataclass(slots=True, frozen=True, eq=False)
class Columns:
    """The records of many batches as Arrow's buffers, for pyarrow.py_buffer: int64 offsets and timestamps (ms), and
    Binary keys and values (int32 offsets of count + 1, data, validity bitmap or None where there is no null).

    headers: None where no record has any. append_time: None where all timestamps are the producers', else an int32
    for each row, Kafka's timestamp type (0 create, 1 log append). next_offset: after the last record, or after the last
    whole batch, control batches included; -1 without one.
    """

    count: int
    offsets: array[int]
    timestamps: array[int]
    key_offsets: array[int]
    key_data: bytearray
    key_valid: bytearray | None
    key_nulls: int
    value_offsets: array[int]
    value_data: bytearray
    value_valid: bytearray | None
    value_nulls: int
    headers: HeaderColumns | None
    append_time: array[int] | None
    next_offset: int


def iter_columns(
    buf: Buffer,
    *,
    from_offset: int = 0,
    to_offset: int = OFFSET_MAX,
    check_crc: bool = True,
    piece_bytes: int = PIECE_BYTES,
    max_bytes: int = DECODE_BYTES_MAX,
) -> Iterator[Columns]:
    """The records with from_offset <= offset < to_offset of all whole batches as columns; the last may be empty.

    piece_bytes: of records in one Columns, many batches or a part of one; more only where a batch is not compressed, or
    for a larger record. max_bytes: of a record in a compressed batch, at most 1 GiB. Raises CorruptBatch,
    TooLargeToDecode; what comes before the error is given out.
    """
    data = _bytes_view(buf)
    held: list[_records.Section] = []
    held_bytes, next_offset = 0, -1
    for position, header in walk(data):
        if not _is_outside(header, from_offset, to_offset):
            sections = _sections(data, position, header, check_crc, from_offset, to_offset, piece_bytes, max_bytes)
            for section in sections:
                if held and held_bytes + section.left > piece_bytes:
                    yield _columns(held, next_offset)
                    held, held_bytes = [], 0
                held.append(section)
                held_bytes += section.left
                if section.partial:  # it goes on elsewhere once it is read
                    yield _columns(held, None)
                    held, held_bytes = [], 0
        next_offset = header.next_offset
    yield _columns(held, next_offset)


def _columns(sections: list[_records.Section], next_offset: int | None) -> Columns:
    """next_offset None: the one after the last section's last record."""
    buffers = ColumnBuffers(sum(each.rows_at_most for each in sections), sum(each.left for each in sections))
    append_time = array("i") if any(each.append_time for each in sections) else None
    for section in sections:
        _records.read_columns(section, buffers)
        if append_time is not None:
            append_time.extend((int(section.append_time),) * (buffers.rows - len(append_time)))
    buffers.finish()
    return Columns(
        buffers.rows,
        buffers.offsets,
        buffers.timestamps,
        buffers.key_offsets,
        buffers.key_data,
        buffers.key_valid if buffers.key_nulls else None,
        buffers.key_nulls,
        buffers.value_offsets,
        buffers.value_data,
        buffers.value_valid if buffers.value_nulls else None,
        buffers.value_nulls,
        _header_columns(buffers),
        append_time,
        sections[-1].next_offset if next_offset is None else next_offset,
    )


def _header_columns(buffers: ColumnBuffers) -> HeaderColumns | None:
    if buffers.header_rows is None:
        return None
    count = len(buffers.header_key_offsets) - 1
    valid = None
    if buffers.header_nulls:
        valid = bytearray(b"\xff") * ((count + 7) // 8)
        for i in buffers.header_nulls:
            valid[i >> 3] &= ~(1 << (i & 7))
    return HeaderColumns(
        count,
        buffers.header_rows,
        buffers.header_key_offsets,
        buffers.header_key_data,
        buffers.header_value_offsets,
        buffers.header_value_data,
        valid,
    )


# Builder


class BatchBuilder(RecordsWriter):
    """One batch in the making: `append` until it says False, then `build`.

    codec: none, gzip, snappy, lz4 or zstd, or its id. max_bytes: bound of the batch before compression; the first
    record goes in whatever its size. What a producer learns late (producer id, epoch, base sequence) and the
    offsets are attributes that may be set until `build`. Also has count, size_bytes, base_timestamp, max_timestamp,
    extend(records) and extend_columns(timestamps, keys, values).
    """

    def __init__(
        self,
        codec: str | int = "none",
        *,
        max_bytes: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        base_offset: int = 0,
        partition_leader_epoch: int = -1,
        control: bool = False,
        transactional: bool = False,
    ) -> None:
        super().__init__(max_bytes)
        self.codec = codec_id(codec)
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.base_offset = base_offset
        self.partition_leader_epoch = partition_leader_epoch
        self.control = control
        self.transactional = transactional

    def build(self) -> bytes:
        """The batch. Raises ValueError without records. May be called again after more was appended."""
        if not self.count:
            raise ValueError("a batch needs a record")
        buffer = self.buffer()
        if not self.codec:
            self._pack_header(buffer, len(buffer))
            CRC.pack_into(buffer, CRC_AT, crc32c(buffer[CRC_FROM:]))
            return bytes(buffer)
        data = compress(self.codec, buffer[HEADER_SIZE:])
        header = bytearray(HEADER_SIZE)
        self._pack_header(header, HEADER_SIZE + len(data))
        CRC.pack_into(header, CRC_AT, crc32c(data, crc32c(memoryview(header)[CRC_FROM:])))
        return b"".join((header, data))

    def _pack_header(self, out: bytearray | memoryview, size_bytes: int) -> None:
        HEADER.pack_into(
            out,
            0,
            self.base_offset,
            size_bytes - LENGTH_OVERHEAD,
            self.partition_leader_epoch,
            MAGIC,
            0,
            self.codec | (TRANSACTIONAL if self.transactional else 0) | (CONTROL if self.control else 0),
            self.count - 1,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        )


def build_batch(records: Iterable[Fields], codec: str | int = "none", **header: Any) -> bytes:
    """One batch of all (timestamp_ms, key, value, headers). `header` is BatchBuilder's other keywords."""
    builder = BatchBuilder(codec, max_bytes=_BATCH_BYTES_MAX, **header)
    builder.extend(records)
    return builder.build()


def build_columns(
    timestamps: Sequence[int],
    keys: Sequence[Buffer | None],
    values: Sequence[Buffer | None],
    codec: str | int = "none",
    *,
    max_bytes: int,
    base_offset: int = 0,
    **header: Any,
) -> list[bytes]:
    """Batches of at most max_bytes (before compression) of all records of three sequences of one length.

    Offsets and, with a producer, sequences go on from batch to batch.
    """
    out: list[bytes] = []
    sequence = header.pop("base_sequence", -1)
    start = 0
    while start < len(timestamps):
        builder = BatchBuilder(
            codec,
            max_bytes=max_bytes,
            base_offset=base_offset + start,
            base_sequence=sequence if sequence < 0 else (sequence + start) % 2**31,
            **header,
        )
        start = builder.extend_columns(timestamps, keys, values, start)
        out.append(builder.build())
    return out
