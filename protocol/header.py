"""The client's side of headers and frames: request headers are written, response headers are read.

Header v1 ends with the client id, v2 (flexible requests) adds tagged fields; the client id is an old nullable string
in both. Response header v0 is the correlation id alone, v1 adds tagged fields. A frame is an int32 size and that many
bytes. The broker's side, which reads requests in pieces, is in `core_broker/server/`.
"""

from __future__ import annotations

import struct
from typing import Any

from .errors import DecodeError, EncodeError
from .messages import APIS
from .primitives import skip_tagged_fields
from .schema import Part

_SIZE_AND_FIXED = struct.Struct(">ihhih")
_INT32 = struct.Struct(">i")


class RequestHeader:
    """Who asks what: api_key, api_version, correlation_id, client_id (None when null)."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(self, api_key: int, api_version: int, correlation_id: int, client_id: str | None = None) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RequestHeader):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RequestHeader({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


def frame_request(header: RequestHeader, body: list[Part]) -> list[Part]:
    """A whole request frame as parts: size and header in the first, then the body's parts as they are."""
    api = APIS[header.api_key]
    try:
        name = b"" if header.client_id is None else header.client_id.encode()
        tags = b"\0" if header.api_version >= api.flexible_since else b""
        size = 10 + len(name) + len(tags) + sum(map(len, body))
        length = -1 if header.client_id is None else len(name)
        head = _SIZE_AND_FIXED.pack(size, header.api_key, header.api_version, header.correlation_id, length)
    except (struct.error, ValueError) as error:
        raise EncodeError(f"request header of {api.name}: {error}") from error
    return [head + name + tags, *body]


def decode_response_header(buf: Any, header_version: int, offset: int = 0) -> tuple[int, int]:
    """The correlation id of a response frame (without its size) and where the body starts. Raises DecodeError."""
    try:
        (correlation_id,) = _INT32.unpack_from(buf, offset)
        position = offset + 4
        return correlation_id, skip_tagged_fields(buf, position) if header_version else position
    except (struct.error, IndexError) as error:
        raise DecodeError(f"response header: {error}") from None
