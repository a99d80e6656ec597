"""What a log may hold after what happened to it: the checks that the scenarios share.

A log is compared as a list of batches, each its bytes. Batches are found by the plain reader below, which shares no
code with the product.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import crc32c

HEAD = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, CRC
LAST_DELTA = struct.Struct(">i")
OVERHEAD = 12
HEADER_BYTES = 61


class Batch(NamedTuple):
    base_offset: int
    last_offset: int
    leader_epoch: int
    data: bytes


def batches_of(data: bytes) -> list[Batch]:
    """Whole batches with the right CRC from the start of `data`."""
    found = []
    position = 0
    while len(data) - position >= HEADER_BYTES:
        base, length, epoch, magic, crc = HEAD.unpack_from(data, position)
        end = position + OVERHEAD + length
        if length < HEADER_BYTES - OVERHEAD or end > len(data) or magic != 2:
            break
        if crc32c.crc32c(data[position + 21 : end]) != crc:
            break
        (delta,) = LAST_DELTA.unpack_from(data, position + 23)
        found.append(Batch(base, base + delta, epoch, data[position:end]))
        position = end
    return found


def log_bytes(log: Any) -> bytes:
    """All bytes of a product log from its start to its end."""
    pieces = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, 1 << 30)
        data = b"".join(piece.read() for piece in part.ranges)
        whole = batches_of(data)
        if not whole:
            raise AssertionError(f"{log.name}: nothing valid at offset {offset}, the log ends at {log.log_end_offset}")
        pieces.append(b"".join(batch.data for batch in whole))
        offset = whole[-1].last_offset + 1
    return b"".join(pieces)


def check_prefix(shorter: list[Batch], longer: list[Batch], what: str) -> None:
    """`shorter` must be the beginning of `longer`, byte for byte."""
    for number, batch in enumerate(shorter):
        if number == len(longer):
            raise AssertionError(f"{what}: {len(shorter) - number} batches more from offset {batch.base_offset} on")
        if batch.data != longer[number].data:
            other = longer[number]
            raise AssertionError(
                f"{what}: differ at batch {number}: offsets {batch.base_offset}-{batch.last_offset} epoch "
                f"{batch.leader_epoch}, against {other.base_offset}-{other.last_offset} epoch {other.leader_epoch}"
            )
