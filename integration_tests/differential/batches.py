"""Record batches written and taken apart by hand, byte for byte by Kafka's table, so that no code under test makes its
own input or reads its own output.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cramjam
import crc32c
import lz4.frame
import zstandard

BASE_TIMESTAMP_MS = 1_600_000_000_000
STEP_MS = 10  # between two records
KEY = b"key"
CONTROL, TRANSACTIONAL, LOG_APPEND_TIME = 0x20, 0x10, 0x08
CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {  # number in the attributes
    "none": (0, bytes),
    "gzip": (1, lambda data: gzip.compress(data, mtime=0)),
    "snappy": (2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "lz4": (3, lz4.frame.compress),
    "zstd": (4, zstandard.compress),
}

_HEADER = struct.Struct(">qiibIhiqqqhii")
FIELDS = (
    "base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta", "base_timestamp_ms",
    "max_timestamp_ms", "producer_id", "producer_epoch", "base_sequence", "records_count",
)  # fmt: skip


def varint(value: int) -> bytes:
    """Zigzag varint."""
    number = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    index: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    timestamp_delta_ms: int | None = None,
) -> bytes:
    """One record; its timestamp is `index` steps after the batch's first if no other is given."""
    delta = index * STEP_MS if timestamp_delta_ms is None else timestamp_delta_ms
    body = b"\0" + varint(delta) + varint(index) + field(key) + field(value) + varint(len(headers))
    for name, content in headers:
        body += field(name.encode()) + field(content)
    return varint(len(body)) + body


def batch(
    count: int = 3,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    break_crc: bool = False,
    magic: int = 2,
    attributes: int = 0,
    keys: bool = False,
    codec: str = "none",
    value: bytes = b"value %d",
    base_timestamp_ms: int = BASE_TIMESTAMP_MS,
    max_timestamp_ms: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    says_count: int | None = None,
    last_offset_delta: int | None = None,
    records: bytes | None = None,
) -> bytes:
    """`count` records, each STEP_MS after the last; one has no key (unless `keys`), one a null value, all a header.

    What is not the count of records, their last offset or largest timestamp can be claimed by the header all the same.
    """
    if records is None:
        records = b"".join(
            record(i, None if i == 1 and not keys else KEY, None if i == 2 else _filled(value, i), [("header", b"x")])
            for i in range(count)
        )
    number, compress = CODECS[codec]
    checked = struct.pack(
        ">hiqqqhii",
        attributes | number,
        count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp_ms,
        base_timestamp_ms + STEP_MS * (count - 1) if max_timestamp_ms is None else max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count if says_count is None else says_count,
    ) + compress(records)
    crc = crc32c.crc32c(checked) ^ break_crc
    return struct.pack(">qiibI", base_offset, 9 + len(checked), leader_epoch, magic, crc) + checked


def _filled(value: bytes, index: int) -> bytes:
    return value % index if b"%" in value else value


def old_message_set(magic: int = 1) -> bytes:
    """One message of the formats before batches (magic 0 and 1), whose CRC is the old one."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", BASE_TIMESTAMP_MS) if magic else b"")
    body += struct.pack(">i", len(KEY)) + KEY + struct.pack(">i", 5) + b"value"
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


# --- Taken apart ----------------------------------------------------------------------------------------------------


def split(data: bytes) -> list[dict[str, Any]]:
    """The batches in some bytes: their headers by field, whether the CRC is right, and what follows the header."""
    batches = []
    position = 0
    while len(data) - position >= _HEADER.size:
        batch: dict[str, Any] = dict(zip(FIELDS, _HEADER.unpack_from(data, position), strict=True))
        end = position + 12 + batch["length"]
        if end > len(data):
            break
        batch["crc"] = crc32c.crc32c(data[position + 21 : end]) == batch["crc"]
        batch["records"] = data[position + _HEADER.size : end]
        batches.append(batch)
        position = end
    return batches


def records_of(batch: dict[str, Any]) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Key and value of each record of a batch that is not compressed, as `split` gives it."""
    data, position = batch["records"], 0
    for _ in range(batch["records_count"]):
        size, position = read_varint(data, position)
        end = position + size
        position += 1  # attributes
        for _ in range(2):  # deltas of timestamp and offset
            _, position = read_varint(data, position)
        key, position = _read_field(data, position)
        value, position = _read_field(data, position)
        yield key, value
        position = end


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint, and where it ends."""
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position


def _read_field(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position)
    return (None, position) if size < 0 else (data[position : position + size], position + size)
