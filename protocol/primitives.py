"""The Kafka wire's variable-length pieces: unsigned varints, UUIDs in text form, and the skipping of tagged fields.

Generated codecs inline the common short cases and come here for the rest. Readers take (buffer, position) and give
(value, next position); running off the end shows as IndexError, which the codecs turn into DecodeError.
KIP-482 (flexible versions). The zigzag varints of records are in the compiled modules.
"""

from __future__ import annotations

import base64
from typing import Any

from .errors import DecodeError

ZERO_UUID = bytes(16)


def uuid_to_str(raw: bytes) -> str:
    """16 bytes as Kafka prints ids: base64url without padding, 22 characters."""
    if len(raw) != 16:
        raise ValueError(f"a uuid has 16 bytes, not {len(raw)}")
    return base64.urlsafe_b64encode(raw)[:22].decode("ascii")


def uuid_from_str(text: str) -> bytes:
    """The 16 bytes of an id printed by `uuid_to_str` or by Kafka's tools. Raises ValueError."""
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except ValueError:  # binascii.Error is one
        raw = b""
    if len(raw) != 16 or "+" in text or "/" in text:
        raise ValueError(f"{text!r} is not a base64url uuid of 16 bytes")
    return raw


def write_uvarint(value: int) -> bytes:
    """An unsigned varint: 7 bits a byte, low bits first."""
    if value < 0:
        raise ValueError(f"an unsigned varint cannot be {value}")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


UVARINTS: tuple[bytes, ...] = tuple(write_uvarint(n) for n in range(2049))


def read_uvarint(buf: Any, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits."""
    value = buf[position]
    position += 1
    if value > 127:
        return read_uvarint_rest(buf, position, value)
    return value, position


def read_uvarint_rest(buf: Any, position: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte, already taken, had its high bit set."""
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = buf[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise DecodeError(f"varint of more than 32 bits at byte {position}")


def skip_tagged_fields(buf: Any, position: int) -> int:
    """The position after a tagged-field section, whatever its tags; sizes are checked against the buffer."""
    count, position = read_uvarint(buf, position)
    end = len(buf)
    if 2 * count > end - position:
        raise DecodeError(f"{count} tagged fields in {end - position} bytes")
    for _ in range(count):
        _, position = read_uvarint(buf, position)
        size, position = read_uvarint(buf, position)
        position += size
        if position > end:
            raise DecodeError(f"a tagged field of {size} bytes ends {position - end} bytes after its frame")
    return position
