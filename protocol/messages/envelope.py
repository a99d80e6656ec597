"""Envelope (key 58): a client's request that a broker forwards to the controller (KIP-590).

Flexible from the start. Request and answer are carried as they came and go, header and body."""

from __future__ import annotations

from ..schema import Api, Struct, int16, octets


class Request(Struct):
    """client_host_address: 4 or 16 bytes."""

    request_data: bytes = octets()
    request_principal: bytes | None = octets(nullable="0+")
    client_host_address: bytes = octets()


class Response(Struct):
    response_data: bytes | None = octets(nullable="0+", default=None)
    error_code: int = int16()


API = Api(58, "Envelope", Request, Response, versions="0", flexible="0+")
