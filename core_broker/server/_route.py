# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
# ruff: noqa: F821  (a struct of C is declared by its annotation alone)
"""How the requests of one version of an API are answered: by its handler, or by a short way from their bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import cython

from ._context import Context

if cython.compiled:
    from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

if TYPE_CHECKING:
    from ...compiled import Public
    from ...protocol.schema import Api
    from .latency import Latency

    Handler: TypeAlias = "Callable[[Any, Context], Any]"  # (request, context) -> Response | Pending | None

COMPILED = cython.compiled


@cython.cclass
class Body:
    """The body of a request that is being read where it lies; p is the next byte."""

    b: cython.p_const_uchar
    p: cython.Py_ssize_t
    end: cython.Py_ssize_t

    @cython.cfunc
    @cython.exceptval(check=False)
    def uvarint(self) -> cython.Py_ssize_t:
        """The next unsigned varint; -1 where there is none, or where it has more bytes than it needs.

        The second because an answer repeats a name and its length byte for byte.
        """
        value: cython.Py_ssize_t = 0
        shift: cython.int = 0
        byte: cython.int
        while self.p < self.end and shift < 35:
            byte = self.b[self.p]
            self.p += 1
            value |= cython.cast(cython.Py_ssize_t, byte & 0x7F) << shift
            if byte < 0x80:
                return value if byte or not shift else -1
            shift += 7
        return -1


@cython.cclass
class AtOnce:
    """The short way of one version of an API: it answers requests from their bytes, where it can."""

    @cython.cfunc
    def answer(
        self,
        b: cython.p_const_uchar,
        body: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        correlation: cython.longlong,
        context: Context,
    ):
        """The answer to the request whose body is b[body:end]: its bytes, a list of bytes and ranges, or a Response.

        None when the request has to go the long way: by its decoder, handler and encoder. Nothing has been done then.
        """

    def __call__(
        self, frame: bytes | memoryview, body: cython.Py_ssize_t, correlation: cython.longlong, context: Context
    ) -> Any:
        """`answer` for Python code, of a request whose body is frame[body:]."""
        buffer: cython.Py_buffer
        if cython.compiled:
            PyObject_GetBuffer(frame, cython.address(buffer), PyBUF_SIMPLE)
            try:
                b: cython.p_const_uchar = cython.cast(cython.p_const_uchar, buffer.buf)
                return self.answer(b, body, buffer.len, correlation, context)
            finally:
                PyBuffer_Release(cython.address(buffer))
        else:
            return self.answer(frame, body, len(frame), correlation, context)


@cython.final
@cython.cclass
class Route:
    """How one version of an API is decoded, handled and answered.

    answer_at_once: the short way, which is tried first; None where there is none. requests: how many there were.
    latency: of all versions of the API.
    """

    api: Public[Api]
    version: Public[cython.int]
    answer_at_once: Public[AtOnce | None]
    decode: Public[Callable[[Any, int], tuple[Any, int]]]
    handle: Public[Handler]
    encode: Public[Callable[[Any], list[Any]]]
    latency: Public[Latency]
    requests: Public[cython.longlong]
    flexible_request: Public[cython.bint]
    flexible_response: Public[cython.bint]

    def __init__(
        self, api: Api, version: cython.int, handle: Handler, latency: Latency, answer_at_once: AtOnce | None = None
    ) -> None:
        self.api = api
        self.version = version
        self.handle = handle
        self.answer_at_once = answer_at_once
        self.flexible_request = api.request_header_version(version) == 2
        self.flexible_response = api.response_header_version(version) == 1
        self.decode = api.request.decoder(version)
        self.encode = api.response.encoder(version)
        self.requests = 0
        self.latency = latency
