"""One connection to one broker: sends frames, matches answers in order, with limits on everything.

A broker answers the requests of a connection in order (ours and Kafka's do), so a queue of waiters is enough. If a
request times out, the connection is closed, because its answer could still arrive and be taken for the next one's. If a
frame does not end in the read buffer, a buffer of its exact size is made, which the transport then fills directly.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Collection
from typing import Any, cast

from .. import __version__
from ..protocol.errors import DecodeError, EncodeError, ErrorCode
from ..protocol.header import RequestHeader, decode_response_header, frame_request
from ..protocol.messages import (
    api_versions,
    describe_cluster,
    fetch,
    find_coordinator,
    heartbeat,
    list_offsets,
    metadata,
    offset_fetch,
)
from ..protocol.schema import Api
from ..same_host import without_pacing
from .errors import CannotCarry, ConnectionLost, RequestTimeout, UnsupportedVersion

FRAME_MAX_BYTES = 256 << 20  # a larger answer is invalid
IN_FLIGHT_MAX = 64  # requests without an answer; the next one waits
WRITE_BUFFER_BYTES = 4 << 20  # above this `request` waits until the kernel has taken some
READ_BUFFER_BYTES = 64 << 10
IDLE_MS = 540_000  # a minute less than brokers allow by default, so that no request is sent into a closing connection
CLOSE_TIMEOUT_S = 1.0  # for transports to close
SOFTWARE_NAME = "isthmus"
# Requests that a broker answers by itself: not, as Produce and JoinGroup, after replicas or members did their part.
PROMPT = frozenset(
    each.API.key
    for each in (
        api_versions,
        describe_cluster,
        fetch,
        find_coordinator,
        heartbeat,
        list_offsets,
        metadata,
        offset_fetch,
    )
)

_INT32 = struct.Struct(">i")


class Waiter:
    __slots__ = ("api", "correlation_id", "deadline", "future", "sent_at", "version")

    def __init__(
        self, api: Api, version: int, correlation_id: int, future: asyncio.Future[Any], sent_at: float, deadline: float
    ) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.future = future
        self.sent_at = sent_at
        self.deadline = deadline


class Connection(asyncio.BufferedProtocol):
    """Made by `connect`. `lost`: done when the connection is lost; `released`: when its transport is closed too."""

    def __init__(self, address: str, client_id: str, idle_ms: int = IDLE_MS) -> None:
        self.address = address
        self.client_id = client_id
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}  # the cluster's finalized levels, when the connection was made
        self.features_epoch = -1
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.released: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._waiters: deque[Waiter] = deque()
        self._correlation_id = 0
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._writable = asyncio.Event()
        self._writable.set()
        self._read = bytearray(READ_BUFFER_BYTES)
        self._frame: bytearray | None = None  # of an answer that does not end in _read
        self._filled = 0  # bytes of _frame, or else of _read
        self._idle_s = idle_ms / 1000
        self._used_at = self._answered_at = self._loop.time()
        self._timer: asyncio.Handle | None = None  # for the earliest deadline, or the end of idleness
        self._timer_at = 0.0
        self._error: Exception | None = None

    @property
    def alive(self) -> bool:
        return self._transport is not None and not self.lost.done()

    @property
    def silent_s(self) -> float:
        """For how long the broker has owed an answer that it can give by itself; 0 if it owes none."""
        first = self._waiters[0] if self._waiters else None
        if first is None or first.api.key not in PROMPT:
            return 0.0
        return self._loop.time() - max(first.sent_at, self._answered_at)

    @property
    def is_writable(self) -> bool:
        """Whether the kernel accepts data as fast as it is written."""
        return self._writable.is_set()

    # --- Requests -----------------------------------------------------------------------------------

    def version_of(self, api: Api, most: int | None = None) -> int:
        """The highest version that both sides support (at most `most`). Raises UnsupportedVersion."""
        theirs = self.versions.get(api.key)
        if theirs is None:
            raise UnsupportedVersion(f"broker {self.address} does not support {api.name} (key {api.key})")
        version = min(api.max_version, theirs[1], api.max_version if most is None else most)
        if version < max(api.min_version, theirs[0]):
            raise UnsupportedVersion(
                f"broker {self.address} supports {api.name} {theirs[0]} to {theirs[1]}, this client "
                f"{api.min_version} to {api.max_version}"
            )
        return version

    def supports(self, api: Api, version: int) -> bool:
        """Whether both sides support this version of a request, or a later one."""
        return min(api.max_version, self.versions.get(api.key, (0, -1))[1]) >= version

    async def request(self, api: Api, message: Any, timeout_ms: float, version: int | None = None) -> Any:
        """Send and wait for the answer. Raises ConnectionLost, RequestTimeout, UnsupportedVersion, CannotCarry."""
        deadline = self._loop.time() + timeout_ms / 1000
        if self.is_writable and not self._slots.locked():
            await self._slots.acquire()  # immediately available: no timer is needed
        else:
            await self._acquire(api, deadline)
        try:
            return await self.send(api, message, (deadline - self._loop.time()) * 1000, version)
        finally:
            self._slots.release()

    async def _acquire(self, api: Api, deadline: float) -> None:
        """Wait until the kernel has taken enough of what was written, and for a slot."""
        try:
            async with asyncio.timeout_at(deadline):
                await self.writable()
                await self._slots.acquire()
        except TimeoutError:
            raise RequestTimeout(f"{self.address} did not take {api.name} in time: is it overloaded or hung?") from None

    async def writable(self) -> None:
        """Wait until the kernel has taken enough of what was written."""
        if not self._writable.is_set():
            await self._writable.wait()

    def send(self, api: Api, message: Any, timeout_ms: float, version: int | None = None) -> asyncio.Future[Any]:
        """Write the request now; requests are sent in the order of the calls. The future gets the answer."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if not self.alive:
            future.set_exception(self._gone())
            return future
        version = self.version_of(api) if version is None else version
        self._write(api, message, version)
        sent_at, deadline = self._used_at, self._used_at + timeout_ms / 1000
        self._waiters.append(Waiter(api, version, self._correlation_id, future, sent_at, deadline))
        if self._timer is None or deadline < self._timer_at:
            self._arm(deadline)
        return future

    def post(self, api: Api, message: Any, version: int | None = None) -> None:
        """Write a request that has no answer (Produce with acks=0)."""
        if not self.alive:
            raise self._gone()
        self._write(api, message, self.version_of(api) if version is None else version)

    def _write(self, api: Api, message: Any, version: int) -> None:
        assert self._transport is not None
        try:
            body = api.encode_request(message, version)  # before anything has changed
        except EncodeError as error:
            raise CannotCarry(f"broker {self.address} is asked in version {version}, but {error}") from None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(api.key, version, self._correlation_id, self.client_id)
        self._transport.writelines(frame_request(header, body))
        self._used_at = self._loop.time()

    async def handshake(self, timeout_ms: float) -> None:
        """Ask for the broker's versions; uses version 0 with brokers that do not support ours."""
        version = api_versions.API.max_version
        while True:
            message = introduction()
            answer = await self.request(api_versions.API, message, timeout_ms, version)
            if answer.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:  # the answer is of version 0
                theirs = {each.api_key: each.max_version for each in answer.api_keys}
                version = min(version - 1, theirs.get(api_versions.API.key, 0))
                continue
            if answer.error_code:
                raise ConnectionLost(f"{self.address} refused ApiVersions with error {answer.error_code}")
            self.versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
            self.features = {each.name: each.max_version_level for each in answer.finalized_features}
            self.features_epoch = answer.finalized_features_epoch
            return

    # --- Protocol -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit from it
        self._transport = transport
        without_pacing(transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if self._error is not None:  # closed before it was connected
            transport.abort()
            return
        self._arm(self._used_at + self._idle_s)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._read if self._frame is None else self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._frame is None:
            self._cut_frames()
        elif self._filled == len(self._frame):
            frame, self._frame, self._filled = self._frame, None, 0
            self._received(memoryview(frame))

    def _cut_frames(self) -> None:
        """Handle whole frames in the read buffer; the rest moves to its beginning, or into a buffer of its own."""
        view, at, end = memoryview(self._read), 0, self._filled
        while end - at >= 4 and not self.lost.done():
            (length,) = _INT32.unpack_from(view, at)
            if not 4 <= length <= FRAME_MAX_BYTES:
                self.close(ConnectionLost(f"{self.address} sent a frame of {length} bytes: it does not speak Kafka"))
                return
            at += 4
            if end - at < length:
                self._frame = bytearray(length)
                self._filled = end - at
                self._frame[: self._filled] = view[at:end]
                return
            self._received(memoryview(bytes(view[at : at + length])))
            at += length
        self._filled = end - at
        if at and self._filled:
            view[: self._filled] = bytes(view[at:end])

    def connection_lost(self, error: Exception | None) -> None:
        if not self.released.done():
            self.released.set_result(None)
        if self._error is None:
            self._error = ConnectionLost(f"connection to {self.address} lost: {error or 'closed by the broker'}")
        self._end()

    def close(self, error: Exception | None = None) -> None:
        """Close at once; requests without an answer fail with `error`."""
        self._error = self._error or error or ConnectionLost(f"connection to {self.address} was closed")
        if self._transport is not None:
            if error or self._transport.get_write_buffer_size():
                self._transport.abort()
            else:
                self._transport.close()
        self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._frame = None
        self._filled = 0
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
            self.close(ConnectionLost(f"{self.address} sent an answer without a request"))
            return
        waiter = self._waiters[0]
        correlation_id = int.from_bytes(frame[:4], "big")
        if correlation_id != waiter.correlation_id:
            self.close(
                ConnectionLost(f"{self.address} answered request {correlation_id}, expected {waiter.correlation_id}")
            )
            return
        self._used_at = self._answered_at = self._loop.time()
        if not waiter.future.done():  # else cancelled: the answer is dropped
            try:
                waiter.future.set_result(self._decode(waiter, frame))
            except DecodeError as error:
                self.close(ConnectionLost(f"{self.address}: answer to {waiter.api.name} v{waiter.version}: {error}"))
                return
        self._waiters.popleft()

    def _decode(self, waiter: Waiter, frame: memoryview) -> Any:
        api, version = waiter.api, waiter.version
        if api.key == api_versions.API.key:
            error_code = int.from_bytes(frame[4:6], "big", signed=True)
            return api.decode_response(frame, 4, 0 if error_code == ErrorCode.UNSUPPORTED_VERSION else version)
        _, offset = decode_response_header(frame, api.response_header_version(version))
        return api.decode_response(frame, offset, version)

    # --- Time ---------------------------------------------------------------------------------------

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._time_over)
        self._timer_at = when

    def _time_over(self) -> None:
        """The earliest deadline or the idle time may be over.

        A cancelled waiter counts too: its caller had less time, but a broker that does not answer it is gone.
        """
        self._timer = None
        now = self._loop.time()
        if self._waiters:
            first = min(self._waiters, key=lambda each: each.deadline)
            if first.deadline > now:
                self._arm(first.deadline)
                return
            what = f"{self.address} did not answer {first.api.name} in time: is it overloaded or hung?"
            self.close(RequestTimeout(what))
        elif now - self._used_at >= self._idle_s:
            self.close()
        else:
            self._arm(self._used_at + self._idle_s)


async def close_all(connections: Collection[Connection]) -> None:
    """Close connections, and wait until their transports are closed, for at most CLOSE_TIMEOUT_S."""
    for connection in connections:
        connection.close()
    if held := [connection.released for connection in connections if not connection.released.done()]:
        await asyncio.wait(held, timeout=CLOSE_TIMEOUT_S)


def introduction() -> api_versions.Request:
    """It asks for the versions, and says which software asks (KIP-511)."""
    return api_versions.Request(client_software_name=SOFTWARE_NAME, client_software_version=__version__)


def host_and_port(host: str, port: int) -> str:
    """An address as `connect` takes it: IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def connect(address: str, client_id: str, timeout_ms: float) -> Connection:
    """Connect and exchange versions. Raises ConnectionLost that names the address."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    connection: Connection | None = None

    def protocol() -> Connection:
        nonlocal connection
        connection = Connection(address, client_id)
        return connection

    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await loop.create_connection(protocol, host.strip("[]"), int(port))
            assert connection is not None
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
