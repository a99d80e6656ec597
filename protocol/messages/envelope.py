"""Envelope (key 58): a client's request that a broker forwards to the controller (KIP-590).

Flexible from the start. Request and answer are carried as they came and go, header and body. The principal is in the
encoding of Kafka's own principal builder: an int16, its version, and DefaultPrincipalData."""

from __future__ import annotations

from typing import Any

from ..errors import DecodeError
from ..schema import Api, Codec, Struct, boolean, int16, octets, string


class Request(Struct):
    """client_host_address: 4 or 16 bytes."""

    request_data: bytes = octets()
    request_principal: bytes | None = octets(nullable="0+")
    client_host_address: bytes = octets()


class Response(Struct):
    response_data: bytes | None = octets(nullable="0+", default=None)
    error_code: int = int16()


class Principal(Struct):
    """Who sent a request: by default type "User", name "ANONYMOUS". token_authenticated: by a delegation token."""

    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()


API = Api(58, "Envelope", Request, Response, versions="0", flexible="0+")
PRINCIPAL = Codec(Principal, "DefaultPrincipalData", "0", "0+")


def encode_principal(principal: Principal) -> bytes:
    """What `request_principal` holds. Raises EncodeError."""
    version = PRINCIPAL.versions.high
    return version.to_bytes(2, "big") + PRINCIPAL.encode_bytes(principal, version)


def decode_principal(data: Any) -> Principal:
    """The principal in `request_principal`. Raises DecodeError."""
    if len(data) < 2:
        raise DecodeError(f"a principal of {len(data)} bytes")
    version = int.from_bytes(data[:2], "big", signed=True)
    principal: Principal = PRINCIPAL.decode(data, 2, version)[0]
    return principal
