"""The broker's side of headers and frames, for scripted brokers and for checks of what clients write."""

from __future__ import annotations

import struct
from typing import Any

from isthmus.protocol.header import RequestHeader
from isthmus.protocol.messages import APIS
from isthmus.protocol.primitives import skip_tagged_fields
from isthmus.protocol.schema import Part

_FIXED = struct.Struct(">hhih")


def decode_request_header(frame: Any) -> tuple[RequestHeader, int]:
    """The header of a request frame (without its size), and where the body starts."""
    key, version, correlation_id, size = _FIXED.unpack_from(frame)
    position = _FIXED.size + max(size, 0)
    client_id = None if size < 0 else str(frame[_FIXED.size : position], "utf-8")
    if version >= APIS[key].flexible_since:
        position = skip_tagged_fields(frame, position)
    return RequestHeader(key, version, correlation_id, client_id), position


def frame_response(correlation_id: int, header_version: int, body: list[Part]) -> bytes:
    """A whole response frame."""
    rest = struct.pack(">i", correlation_id) + bytes(header_version) + b"".join(bytes(part) for part in body)
    return struct.pack(">i", len(rest)) + rest
