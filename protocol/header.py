"""Request and response headers, and the frame around them.

Header v1 ends with the client id, v2 (flexible requests) adds tagged fields; the client id is an old nullable string
in both. Response header v0 is the correlation id alone, v1 adds tagged fields. A frame is an int32 size and that many
bytes; `frame_*` puts size and header in front of the parts of a body without joining them.
"""

from __future__ import annotations

import struct
from typing import Any

from .errors import DecodeError, EncodeError
from .messages import APIS
from .primitives import skip_tagged_fields
from .schema import Part

_FIXED = struct.Struct(">hhih")
_SIZE_AND_FIXED = struct.Struct(">ihhih")
_INT32 = struct.Struct(">i")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_SIZE_CORRELATION_TAGS = struct.Struct(">iix")


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


def decode_request_header(buf: Any, offset: int = 0) -> tuple[RequestHeader, int]:
    """The header of a request frame (without its size) and where the body starts. Raises DecodeError.

    The tagged fields of header v2 are skipped where the key is known; of an unknown key nothing after the client id
    is looked at, since nobody can know its layout.
    """
    try:
        key, version, correlation_id, size = _FIXED.unpack_from(buf, offset)
        position = offset + 10
        client_id = None
        if size >= 0:
            end = position + size
            if end > len(buf):
                raise DecodeError(f"request header: client id of {size} bytes in a frame of {len(buf) - offset}")
            client_id = str(buf[position:end], "utf-8")
            position = end
        api = APIS.get(key)
        if api is not None and version >= api.flexible_since:
            if buf[position]:
                position = skip_tagged_fields(buf, position)
            else:
                position += 1
    except (struct.error, IndexError, ValueError) as error:
        raise DecodeError(f"request header: {error}") from None
    return RequestHeader(key, version, correlation_id, client_id), position


def encode_request_header(header: RequestHeader) -> bytes:
    """The header in the version that its key and version ask for."""
    return frame_request(header, [])[0][4:]


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


def encode_response_header(correlation_id: int, header_version: int) -> bytes:
    return _INT32.pack(correlation_id) + (b"\0" if header_version else b"")


def frame_response(correlation_id: int, header_version: int, body: list[Part]) -> list[Part]:
    """A whole response frame as parts: size and header in the first, then the body's parts as they are."""
    size = sum(map(len, body))
    if header_version:
        return [_SIZE_CORRELATION_TAGS.pack(size + 5, correlation_id), *body]
    return [_SIZE_AND_CORRELATION.pack(size + 4, correlation_id), *body]
