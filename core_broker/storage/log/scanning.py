"""Reads a segment's file batch by batch, by the headers, up to the first incomplete or invalid batch."""

from __future__ import annotations

from collections.abc import Iterator

from ....protocol._walk import BatchScan
from ....protocol.batch_layout import CRC_FROM, HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC
from ....protocol.crc import crc32c
from ..disk._data_file import AHEAD_FROM_BYTES, ZEROS_BYTES
from ..disk.files import File

READ_BYTES = 256 << 10  # per read; fits the processor's cache, which makes it cheaper than a megabyte

Header = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]


def headers(file: File, position: int, verify: bool) -> Iterator[tuple[int, Header]]:
    """(position, header) of the batches from a position on, up to the first that is incomplete, not of magic 2 or, with
    `verify`, does not match its CRC."""
    end = file.size
    chunk = memoryview(b"")
    chunk_start = position
    while end - position >= HEADER_SIZE:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            chunk = memoryview(file.pread(min(READ_BYTES, end - position), position))
            chunk_start, at = position, 0
            if len(chunk) < HEADER_SIZE:
                return
        header = HEADER.unpack_from(chunk, at)
        size = header[1] + LENGTH_OVERHEAD
        if size < HEADER_SIZE or position + size > end or header[3] != MAGIC or header[6] < 0:
            return
        if verify:
            if at + size > len(chunk) and size <= READ_BYTES:
                chunk = memoryview(file.pread(min(READ_BYTES, end - position), position))
                chunk_start, at = position, 0
            if at + size <= len(chunk):
                crc = crc32c(chunk[at + CRC_FROM : at + size])
            else:
                crc = _crc_of(file, position + CRC_FROM, position + size)
            if crc != header[4]:
                return
        yield position, header
        position += size


def scanned(file: File, scan: BatchScan) -> Iterator[BatchScan]:
    """Yield the scan after each piece of a segment, up to the first incomplete or invalid batch."""
    while not scan.stopped and file.size - scan.end >= HEADER_SIZE:
        position, size, crc = scan.end, scan.wanted, -1
        left = file.size - position
        if size > READ_BYTES:
            crc = _crc_of(file, position + CRC_FROM, position + size)
            if crc < 0:
                return
        data = file.pread(HEADER_SIZE if crc >= 0 else min(READ_BYTES, left), position)
        scan.take(data, left, crc)
        if scan.end == position and scan.wanted <= READ_BYTES:
            return  # not valid, or the file is shorter than its size says
        yield scan


def zeros_behind(file: File, end: int, next_offset: int, recovery_point: int, following: int | None) -> bool:
    """Whether all bytes after the last batch are zeros that an append has written, see `DataFile.append_batch`.

    False if records are missing: those before the recovery point, or before the segment that follows.
    """
    n = file.size - end
    is_whole = next_offset >= recovery_point if following is None else next_offset == following
    return is_whole and end >= AHEAD_FROM_BYTES and 0 < n <= ZEROS_BYTES and file.pread(n, end).count(0) == n


def _crc_of(file: File, position: int, end: int) -> int:
    crc = 0
    while position < end:
        data = file.pread(min(READ_BYTES, end - position), position)
        if not data:
            return -1
        crc = crc32c(data, crc)
        position += len(data)
    return crc
