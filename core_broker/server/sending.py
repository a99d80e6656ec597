"""Sends the parts of answers, bytes and file ranges, in order through one connection.

A plain socket gets ranges by `os.sendfile`, only while the transport's own buffer is empty, and at most
`send.turn.bytes` in one turn of the loop. Small ones, as a reader at the end of a log gets them, are joined with the
bytes around them, and a head with the beginning of the range that follows it, so that no packet holds a head alone:
clients that wake for less than they can use cost both sides more than the copy. When the socket is full a dup of
its fd waits for room (uvloop refuses the fd itself, and a dup that outlives the answer would hide the end of the
connection from the peer). A transport without an fd (the simulator's, TLS) is given the bytes instead. Parts are kept
until sent, and a range keeps its file open. What is not in the page cache is sent by a pool, see `cold_sends.py`: the
sender waits for that, the loop does not.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from .cold_sends import PIECE_BYTES, ColdSends

BUFFERS = frozenset((bytes, bytearray, memoryview))
JOIN_BYTES = 256 * 1024  # bytes parts are joined up to here, so that one write takes them
SMALL_RANGE_BYTES = 16 * 1024  # a copy of so many, of a range or its beginning, costs less than a packet of their own


class Owner(Protocol):
    """What a sender must know of its connection."""

    writable: bool  # False from pause_writing to resume_writing

    def sent(self) -> None: ...
    def send_failed(self, error: OSError) -> None: ...


class Sender:
    """The parts of one connection that are on their way. Used only while there are ranges among them."""

    __slots__ = (
        "_cold_sends",
        "_dup",
        "_fd",
        "_left",
        "_loop",
        "_owner",
        "_parts",
        "_position",
        "_ready_to",
        "_transport",
        "_turn_bytes",
        "_waits_for_disk",
    )

    def __init__(self, owner: Owner, transport: asyncio.Transport, turn_bytes: int, cold_sends: ColdSends) -> None:
        self._owner = owner
        self._transport = transport
        self._turn_bytes = turn_bytes
        self._parts: deque[Any] = deque()
        self._position = 0  # in the range that is being sent
        self._left = -1  # bytes of it; -1: not begun
        self._cold_sends = cold_sends
        self._ready_to = 0  # up to which position of its file it can be sent without waiting for the disk
        self._waits_for_disk = False
        self._dup = -1
        self._fd = socket_fd(transport)
        self._loop: asyncio.AbstractEventLoop | None = None

    def send(self, parts: list[Any]) -> bool:
        """Take over `parts`; True when all are sent by now, else `owner.sent()` is called later."""
        self._parts.extend(parts)
        return self._run()

    def resume(self) -> None:
        """The transport's buffer is empty again."""
        if self._dup < 0:
            self._finish(self._run())

    def close(self) -> None:
        """Let go of all parts; nothing more is sent."""
        self._stop_waiting()
        self._parts.clear()

    def _finish(self, done: bool) -> None:
        if done:
            self._owner.sent()

    def _run(self) -> bool:
        if self._waits_for_disk:
            return False
        budget = self._turn_bytes
        while self._parts:
            if self._transport.is_closing():
                self.close()
                return False
            if not self._owner.writable:
                return False
            if self._left < 0 and self._write_joined():
                continue
            sent = self._send_some(budget)
            if sent < 0:
                return False
            budget -= sent
            if budget <= 0 and self._parts:
                self._wait_writable()
                return False
        self._stop_waiting()
        return True

    def _write_joined(self) -> bool:
        """Write the bytes and small cached ranges that come first, with the beginning of a larger one, as one.

        False where there are none.
        """
        joined: list[Any] = []
        size = 0
        while self._parts and size < JOIN_BYTES:
            part = self._parts[0]
            if type(part) not in BUFFERS:
                is_whole = part.size_bytes <= SMALL_RANGE_BYTES
                if self._fd < 0 or not (is_whole or joined):
                    break
                data = _beginning(part)
                if not data or (is_whole and len(data) < part.size_bytes):
                    break
                if not is_whole:
                    joined.append(data)
                    self._position, self._left = part.position + len(data), part.size_bytes - len(data)
                    break
                part = data
            self._parts.popleft()
            size += len(part)
            joined.append(part)
        if not joined:
            return False
        self._transport.write(joined[0] if len(joined) == 1 else b"".join(joined))
        return True

    def _send_some(self, budget: int) -> int:
        """Bytes of the first range that went out; -1 when the socket is full or broken."""
        source = self._parts[0]
        if self._left < 0:
            self._position, self._left = source.position, source.size_bytes
        if self._left == 0:
            self._range_done()
            return 0
        data = b""
        try:
            if self._position >= self._ready_to and not self._is_ready(source):
                return -1
            size = min(self._left, self._ready_to - self._position)
            held = source.file.hold() if self._fd >= 0 else None
            if held is None:
                data = source.file.pread(size, self._position)
        except OSError as error:
            source.unreadable(error)
            self._fail(error)
            return -1
        if held is None:
            if data:
                self._transport.write(data)
            sent = len(data)
        else:
            try:
                sent = os.sendfile(self._fd, held.fd, self._position, min(size, budget))
            except BlockingIOError:
                self._wait_writable()
                return -1
            except OSError as error:
                self._fail(self._cause(source, error))
                return -1
        if sent == 0:
            self._fail(_too_short(source, self._position, self._left))
            return -1
        self._advance(sent)
        return sent

    def _advance(self, sent: int) -> None:
        self._position += sent
        self._left -= sent
        if self._left == 0:
            self._range_done()

    def _cause(self, source: Any, error: OSError) -> OSError:
        """An error of sendfile is the socket's or the file's; a read of the next byte tells whose."""
        if isinstance(error, ConnectionError):
            return error
        try:
            source.file.pread(1, self._position)
        except OSError as refused:
            source.unreadable(refused)
            return OSError(refused.errno, os.strerror(refused.errno or 0), source.file.path)
        return error

    def _is_ready(self, source: Any) -> bool:
        """Whether the next piece of a range is cached; else the pool sends it, and `_sent_cold` goes on."""
        size = min(self._left, PIECE_BYTES)
        if not self._cold_sends.is_cold(source.file, self._position, size):
            self._ready_to = self._position + size
            return True
        self._stop_waiting()
        fd = -1
        if self._fd >= 0:
            try:
                fd = os.dup(self._fd)
            except OSError as error:
                self._fail(error)
                return False
        self._waits_for_disk = True
        self._cold_sends.send(source.file, fd, self._position, size, self._sent_cold)
        return False

    def _sent_cold(self, sent: int, data: bytes, error: OSError | None) -> None:
        self._waits_for_disk = False
        if not self._parts:
            return  # closed meanwhile
        source = self._parts[0]
        if error is not None:
            if self._fd < 0:
                source.unreadable(error)
                self._fail(error)
            else:
                self._fail(self._cause(source, error))
            return
        is_full = self._fd >= 0 and sent < min(self._left, PIECE_BYTES)
        if data:
            self._transport.write(data)
        elif self._fd < 0:
            self._fail(_too_short(source, self._position, self._left))
            return
        self._advance(sent + len(data))
        if is_full:
            self._wait_writable()
        else:
            self._finish(self._run())

    def _range_done(self) -> None:
        self._left = -1
        self._ready_to = 0
        self._parts.popleft()

    def _wait_writable(self) -> None:
        if self._dup >= 0:
            return
        self._loop = asyncio.get_running_loop()
        if self._fd < 0:
            self._loop.call_soon(self._on_writable)
            return
        try:
            self._dup = os.dup(self._fd)
        except OSError as error:
            self._fail(error)
            return
        self._loop.add_writer(self._dup, self._on_writable)

    def _on_writable(self) -> None:
        self._finish(self._run())

    def _stop_waiting(self) -> None:
        if self._dup >= 0:
            assert self._loop is not None
            self._loop.remove_writer(self._dup)
            os.close(self._dup)
            self._dup = -1

    def _fail(self, error: OSError) -> None:
        self.close()
        self._owner.send_failed(error)


def _beginning(source: Any) -> bytes:
    """The first bytes of a range; none where they are not cached or not to be had, which the long way tells."""
    try:
        data: bytes = source.file.pread_cached(min(source.size_bytes, SMALL_RANGE_BYTES), source.position)
    except OSError:
        return b""
    return data


def _too_short(source: Any, position: int, left: int) -> OSError:
    return OSError(f"{source.file.path} ends before the range at {position}, {left} bytes")


def socket_fd(transport: asyncio.BaseTransport) -> int:
    """The fd of a plain socket; -1 where there is none or where bytes must pass the transport (TLS)."""
    if transport.get_extra_info("sslcontext") is not None:
        return -1
    sock = transport.get_extra_info("socket")
    if sock is None:
        return -1
    fileno: Callable[[], int] | None = getattr(sock, "fileno", None)
    return -1 if fileno is None else fileno()
