"""Record batches written by hand, byte for byte by Kafka's table, so that no code under test makes its own input."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import crc32c

BASE_TIMESTAMP_MS = 1_600_000_000_000


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


def record(index: int, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    body = b"\0" + varint(index * 10) + varint(index) + field(key) + field(value) + varint(len(headers))
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
) -> bytes:
    """`count` records, each 10 ms after the last; one has no key, one a null value, all a header."""
    records = b"".join(
        record(i, None if i == 1 else b"key", None if i == 2 else b"value %d" % i, [("header", b"x")])
        for i in range(count)
    )
    checked = struct.pack(
        ">hiqqqhii", attributes, count - 1, BASE_TIMESTAMP_MS, BASE_TIMESTAMP_MS + 10 * (count - 1),
        producer_id, producer_epoch, base_sequence, count,
    ) + records  # fmt: skip
    crc = crc32c.crc32c(checked) ^ break_crc
    return struct.pack(">qiibI", 0, 9 + len(checked), -1, magic, crc) + checked
