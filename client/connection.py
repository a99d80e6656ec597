"""One connection to one broker: frames out, answers matched in order, everything bounded.

A broker answers a connection's requests in the order they came (and so do ours and Kafka's), so a queue of waiters is
all the bookkeeping there is. A timed-out request closes the connection: its answer could still come and would be
taken for the next one's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

from ..protocol.errors import DecodeError
from ..protocol.header import RequestHeader, decode_response_header, frame_request
from ..protocol.messages import api_versions
from ..protocol.schema import Api
from .errors import ConnectionLost, RequestTimeout, UnsupportedVersion

FRAME_MAX_BYTES = 256 << 20  # a larger answer is taken for garbage
IN_FLIGHT_MAX = 64  # requests under way; the next waits
WRITE_BUFFER_BYTES = 4 << 20  # above it `request` waits until the kernel took some
TIMEOUT_CHECK_S = 0.25
SOFTWARE_NAME, SOFTWARE_VERSION = "isthmus", "0.1.0"


class Waiter:
    __slots__ = ("api", "correlation_id", "deadline", "future", "version")

    def __init__(
        self, api: Api, version: int, correlation_id: int, future: asyncio.Future[Any], deadline: float
    ) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.future = future
        self.deadline = deadline


class Connection(asyncio.Protocol):
    """Made by `connect`. `lost` is done once the connection is gone."""

    def __init__(self, address: str, client_id: str) -> None:
        self.address = address
        self.client_id = client_id
        self.versions: dict[int, tuple[int, int]] = {}
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._waiters: deque[Waiter] = deque()
        self._correlation_id = 0
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._writable = asyncio.Event()
        self._writable.set()
        self._frame: bytearray | None = None  # the answer being received
        self._filled = 0
        self._head = bytearray()  # of its size, fewer than 4 bytes
        self._timer: asyncio.TimerHandle | None = None
        self._error: Exception | None = None

    @property
    def alive(self) -> bool:
        return self._transport is not None and not self.lost.done()

    # --- Requests -----------------------------------------------------------------------------------

    def version_of(self, api: Api, most: int | None = None) -> int:
        """The highest version both sides know (at most `most`). Raises UnsupportedVersion."""
        theirs = self.versions.get(api.key)
        if theirs is None:
            raise UnsupportedVersion(f"broker {self.address} does not know {api.name} (key {api.key})")
        version = min(api.max_version, theirs[1], api.max_version if most is None else most)
        if version < max(api.min_version, theirs[0]):
            raise UnsupportedVersion(
                f"broker {self.address} speaks {api.name} {theirs[0]} to {theirs[1]}, this client "
                f"{api.min_version} to {api.max_version}"
            )
        return version

    async def request(self, api: Api, message: Any, timeout_ms: float, version: int | None = None) -> Any:
        """Send and wait for the answer. Raises ConnectionLost, RequestTimeout, UnsupportedVersion."""
        await self.writable()
        await self._slots.acquire()
        try:
            return await self.send(api, message, timeout_ms, version)
        finally:
            self._slots.release()

    async def writable(self) -> None:
        """Return once the kernel has taken enough of what was written."""
        if not self._writable.is_set():
            await self._writable.wait()

    def send(self, api: Api, message: Any, timeout_ms: float, version: int | None = None) -> asyncio.Future[Any]:
        """Write the request now; requests go out in the order of the calls. The future is the answer."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if not self.alive:
            future.set_exception(self._gone())
            return future
        assert self._transport is not None
        version = self.version_of(api) if version is None else version
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(api.key, version, self._correlation_id, self.client_id)
        deadline = self._loop.time() + timeout_ms / 1000
        self._waiters.append(Waiter(api, version, self._correlation_id, future, deadline))
        self._transport.writelines(frame_request(header, api.encode_request(message, version)))
        if self._timer is None:
            self._timer = self._loop.call_later(TIMEOUT_CHECK_S, self._check_deadlines)
        return future

    def post(self, api: Api, message: Any, version: int | None = None) -> None:
        """Write a request that has no answer (Produce with acks=0)."""
        if not self.alive:
            raise self._gone()
        assert self._transport is not None
        version = self.version_of(api) if version is None else version
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(api.key, version, self._correlation_id, self.client_id)
        self._transport.writelines(frame_request(header, api.encode_request(message, version)))

    async def handshake(self, timeout_ms: float) -> None:
        """Learn the broker's versions; falls back to version 0 for brokers that do not know ours."""
        version = api_versions.API.max_version
        while True:
            message = api_versions.Request(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
            answer = await self.request(api_versions.API, message, timeout_ms, version)
            if answer.error_code == 35 and version > 0:  # UNSUPPORTED_VERSION: the answer is of version 0
                theirs = {each.api_key: each.max_version for each in answer.api_keys}
                version = min(version - 1, theirs.get(api_versions.API.key, 0))
                continue
            self.versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
            return

    # --- Protocol -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        view, at, size = memoryview(data), 0, len(data)
        while at < size:
            if self._frame is None:
                if self._head or size - at < 4:
                    take = min(4 - len(self._head), size - at)
                    self._head += view[at : at + take]
                    at += take
                    if len(self._head) < 4:
                        return
                    length = int.from_bytes(self._head, "big", signed=True)
                    self._head.clear()
                else:
                    length = int.from_bytes(view[at : at + 4], "big", signed=True)
                    at += 4
                if not 4 <= length <= FRAME_MAX_BYTES:
                    self.close(ConnectionLost(f"{self.address} sent a frame of {length} bytes: it speaks no Kafka"))
                    return
                if size - at >= length:  # the common case: all of it is here
                    self._received(view[at : at + length])
                    at += length
                    continue
                self._frame = bytearray(length)
                self._filled = 0
            take = min(len(self._frame) - self._filled, size - at)
            self._frame[self._filled : self._filled + take] = view[at : at + take]
            self._filled += take
            at += take
            if self._filled == len(self._frame):
                frame, self._frame = self._frame, None
                self._received(memoryview(frame))

    def connection_lost(self, error: Exception | None) -> None:
        if self._error is None:
            self._error = ConnectionLost(f"connection to {self.address} lost: {error or 'closed by the broker'}")
        self._end()

    def close(self, error: Exception | None = None) -> None:
        """Close at once; requests under way fail with `error`."""
        self._error = self._error or error or ConnectionLost(f"connection to {self.address} was closed")
        if self._transport is not None:
            self._transport.abort() if error else self._transport.close()
        self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._writable.set()
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.future.done():
                waiter.future.set_exception(self._gone())
        if not self.lost.done():
            self.lost.set_result(None)

    def _gone(self) -> Exception:
        return self._error or ConnectionLost(f"connection to {self.address} was closed")

    def _received(self, frame: memoryview) -> None:
        if not self._waiters:
            self.close(ConnectionLost(f"{self.address} answered what was not asked"))
            return
        waiter = self._waiters.popleft()
        correlation_id = int.from_bytes(frame[:4], "big")
        if correlation_id != waiter.correlation_id:
            self._waiters.appendleft(waiter)
            self.close(
                ConnectionLost(f"{self.address} answered request {correlation_id}, expected {waiter.correlation_id}")
            )
            return
        if waiter.future.done():  # cancelled; the answer is dropped
            return
        try:
            waiter.future.set_result(self._decode(waiter, frame))
        except DecodeError as error:
            waiter.future.set_exception(error)
            self.close(ConnectionLost(f"{self.address}: answer to {waiter.api.name} v{waiter.version}: {error}"))

    def _decode(self, waiter: Waiter, frame: memoryview) -> Any:
        api, version = waiter.api, waiter.version
        if api.key == api_versions.API.key:
            error_code = int.from_bytes(frame[4:6], "big", signed=True)
            return api.decode_response(frame, 4, 0 if error_code == 35 else version)
        _, offset = decode_response_header(frame, api.response_header_version(version))
        return api.decode_response(frame, offset, version)

    def _check_deadlines(self) -> None:
        self._timer = None
        now = self._loop.time()
        for waiter in self._waiters:
            if waiter.deadline <= now and not waiter.future.done():
                self.close(
                    RequestTimeout(
                        f"{self.address} did not answer {waiter.api.name} in time: is it overloaded or hung?"
                    )
                )
                return
        if self._waiters:
            self._timer = self._loop.call_later(TIMEOUT_CHECK_S, self._check_deadlines)


async def connect(address: str, client_id: str, timeout_ms: float) -> Connection:
    """Connect and shake hands. Raises ConnectionLost naming the address."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    connection: Connection | None = None
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, connection = await loop.create_connection(lambda: Connection(address, client_id), host, int(port))
            await connection.handshake(timeout_ms)
            return connection
    except TimeoutError:
        raise _closed(connection, ConnectionLost(f"{address} did not answer within {timeout_ms:.0f} ms")) from None
    except OSError as error:
        raise _closed(
            connection,
            ConnectionLost(f"{address} cannot be reached: {error.strerror or error}: does a broker run there?"),
        ) from None
    except BaseException as error:
        if connection is not None:
            connection.close(error if isinstance(error, Exception) else None)
        raise


def _closed(connection: Connection | None, error: Exception) -> Exception:
    if connection is not None:
        connection.close(error)
    return error
