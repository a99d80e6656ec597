"""A line between two datacenters that can be cut: a TCP relay on loopback.

A cut line is a cut cable, no polite close: from then on no byte comes out at either end, no connection breaks, and
nobody is told. What was sent waits, as TCP lets it wait; new connections are taken by the kernel and hear nothing.
Mending the line lets all of it go on where it stopped, in order. What a side gave up meanwhile it finds out then.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable

HOST = "127.0.0.1"
CHUNK_BYTES = 64 << 10  # held of one direction of a connection
SEND_BUFFER_BYTES = 64 << 10  # what the kernel may still deliver after a cut
BACKLOG = 128  # connections that wait for a cut line
CONNECTIONS_MAX = 256  # of one line; more are closed at once
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close by RST


class Relay:
    """One line to `target` (host, port). Runs on the loop that `start` was called in."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.is_cut = False
        self._listening = socket.socket()
        self._connections: dict[int, Connection] = {}
        self._connecting: dict[asyncio.Task[None], None] = {}

    @property
    def address(self) -> str:
        return f"{HOST}:{self._listening.getsockname()[1]}"

    def bind(self) -> None:
        """Take a port, so that `address` is known; nothing is accepted yet."""
        self._listening.setblocking(False)
        self._listening.bind((HOST, 0))

    def start(self) -> None:
        self._listening.listen(BACKLOG)
        self._open()

    def cut(self) -> None:
        """Stop every byte in both directions."""
        if not self.is_cut:
            self.is_cut = True
            asyncio.get_running_loop().remove_reader(self._listening)
            for each in self._connections.values():
                each.shut()

    def mend(self) -> None:
        """Let everything go on."""
        if self.is_cut:
            self.is_cut = False
            self._open()
            for each in list(self._connections.values()):
                each.open()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listening)
        self._listening.close()
        for task in list(self._connecting):
            task.cancel()
        for each in list(self._connections.values()):
            each.close()

    def _open(self) -> None:
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            near, _ = self._listening.accept()
            if len(self._connections) + len(self._connecting) >= CONNECTIONS_MAX:
                near.close()
                return
            task = asyncio.get_running_loop().create_task(self._connect(near))
            self._connecting[task] = None
            task.add_done_callback(self._connecting.pop)

    async def _connect(self, near: socket.socket) -> None:
        far = await reached(self.target, near)
        if far is None:
            return
        connection = self._connections[id(near)] = Connection(near, far, lambda: self._connections.pop(id(near), None))
        if not self.is_cut:
            connection.open()


async def reached(target: tuple[str, int], near: socket.socket) -> socket.socket | None:
    """A connection to the target for who came by `near`; None where it is refused, and `near` has heard so."""
    far = socket.socket(socket.AF_INET6 if ":" in target[0] else socket.AF_INET)
    for each in (near, far):
        each.setblocking(False)
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    try:
        await asyncio.get_running_loop().sock_connect(far, target)
    except (OSError, asyncio.CancelledError):
        far.close()
        _reset(near)
        return None
    return far


class Connection:
    """Two sockets and the bytes between them, one direction each way. Nothing comes through until it is opened."""

    def __init__(self, near: socket.socket, far: socket.socket, ended: Callable[[], object]) -> None:
        self._sockets = near, far
        self._ended = ended
        self._ways = _Way(near, far, self), _Way(far, near, self)

    def open(self) -> None:
        self.let(True, True)

    def shut(self) -> None:
        self.let(False, False)

    def let(self, inward: bool, outward: bool) -> None:
        """Whether bytes come through from near to far, and from far to near."""
        for way, is_open in zip(self._ways, (inward, outward), strict=True):
            way.open() if is_open else way.shut()

    def way_ended(self) -> None:
        if all(way.ended for way in self._ways):
            self.close()

    def close(self, reset: bool = False) -> None:
        self.shut()
        for each in self._sockets:
            _reset(each) if reset else each.close()
        self._ended()


class _Way:
    """Bytes from one socket to another; at most CHUNK_BYTES are held."""

    def __init__(self, source: socket.socket, sink: socket.socket, connection: Connection) -> None:
        self.ended = False
        self._source, self._sink, self._connection = source, sink, connection
        self._held = memoryview(b"")

    def open(self) -> None:
        loop = asyncio.get_running_loop()
        if self._held:
            loop.add_writer(self._sink, self._send)
        elif not self.ended:
            loop.add_reader(self._source, self._receive)

    def shut(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._source)
        loop.remove_writer(self._sink)

    def _receive(self) -> None:
        try:
            data = self._source.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._connection.close(reset=True)
            return
        if data:
            self._held = memoryview(data)
            self._send()
            return
        self.shut()
        self.ended = True
        with contextlib.suppress(OSError):
            self._sink.shutdown(socket.SHUT_WR)
        self._connection.way_ended()

    def _send(self) -> None:
        try:
            sent = self._sink.send(self._held)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._connection.close(reset=True)
            return
        self._held = self._held[sent:]
        loop = asyncio.get_running_loop()
        if self._held:
            loop.remove_reader(self._source)
            loop.add_writer(self._sink, self._send)
        else:
            loop.remove_writer(self._sink)
            loop.add_reader(self._source, self._receive)


def _reset(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    each.close()
