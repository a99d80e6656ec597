"""One end of a simulated connection: an asyncio transport with a write buffer, a wire and a receive buffer.

`write` fills the write buffer; the kernel moves segments from it onto the wire while the peer's window has room;
what arrives waits in the peer's receive buffer until its protocol reads. Both ends together keep TCP's promises
(order, no loss before a reset) and break everything TCP does not promise.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import zlib
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .hosts import Process
    from .network import Network

SEGMENT_BYTES = 65536
READ_BYTES = 262144
HIGH_WATER_BYTES = 65536
RETRANSMIT_TIMEOUT_S = 900.0


class SimTransport(asyncio.Transport):
    def __init__(
        self,
        network: Network,
        process: Process,
        number: int,
        side: int,
        sockname: tuple[str, int],
        peername: tuple[str, int],
        window_bytes: int,
    ) -> None:
        from .network import SimSocket

        super().__init__(
            {"sockname": sockname, "peername": peername, "socket": SimSocket(sockname, peername), "sslcontext": None}
        )
        self.network = network
        self.loop = network.sim.loop
        self.process = process
        self.machine_name = process.machine.name
        self.number = number
        self.side = side
        self.peer: SimTransport
        self.gone = False  # connection_lost was called or the process died: nothing reaches the protocol any more
        self.broken = False  # cut: what is written goes nowhere, a reset is on its way here
        self.peer_vanished = False  # the other machine lost its power
        self._probing = False
        self._unread = False  # bytes arrived after close()
        self._protocol: Any = None
        self._context: contextvars.Context = contextvars.copy_context()
        self._link = network.link(sockname[0], peername[0])
        self._window_bytes = window_bytes
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._out: deque[bytes | bytearray | memoryview] = deque()
        self._out_bytes = 0
        self._wire: deque[tuple[float, str, bytes]] = deque()  # this end to the peer
        self._wire_bytes = 0
        self._wire_armed = False
        self._pump_armed = False
        self._in = bytearray()
        self._in_end: str | None = None  # "fin" or "rst" after the bytes
        self._read_armed = False
        self._paused = False
        self._writing_paused = False
        self._closing = False
        self._eof_written = False
        self._eof_seen = False
        self._lost = False
        process.transports[id(self)] = self

    # -- asyncio's interface

    def attach(self, protocol: Any, context: contextvars.Context) -> None:
        self._protocol = protocol
        self._context = context

    def start(self) -> None:
        self._arm_read()

    @property
    def established(self) -> bool:
        return not self.gone and not self.broken

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._arm_read()

    def get_write_buffer_size(self) -> int:
        return self._out_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not 0 <= low <= high:
            raise ValueError(f"high ({high}) must be >= low ({low}) must be >= 0")
        self._high, self._low = high, low
        self._maybe_pause_writing()

    def write(self, data: Any) -> None:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data must be bytes-like, not {type(data).__name__}")
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        self._put(data)
        self._write_now()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if self._eof_written:
            raise RuntimeError("Cannot call writelines() after write_eof()")
        for data in list_of_data:
            self._put(data)
        self._write_now()

    def _write_now(self) -> None:
        """As uvloop does it: what would pause the protocol is tried at once, the rest waits for the turn's end."""
        if not self._writing_paused and self._out_bytes > self._high and self.process.alive:
            self._pump(ending=False)
        self._maybe_pause_writing()

    def _put(self, data: Any) -> None:
        """Keep the buffer itself until it is sent, as uvloop does: whoever changes it meanwhile sends the change."""
        if isinstance(data, memoryview):
            data = data.cast("B")
        if self._lost or self._closing or not self.process.alive or not len(data):
            return
        self._out.append(data)
        self._out_bytes += len(data)
        self._arm_pump()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._eof_written and not self._closing:
            self._eof_written = True
            if not self._out:
                self._send("fin", b"")

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self.process.alive:
            return
        if not self._out:
            self._finish_close()

    def abort(self) -> None:
        if self._lost or not self.process.alive:
            return
        self._closing = True
        self._out.clear()
        self._out_bytes = 0
        self._send("rst", b"")
        self._lose(None)

    # -- out

    def _maybe_pause_writing(self) -> None:
        if self._out_bytes > self._high and not self._writing_paused and self._protocol is not None:
            self._writing_paused = True
            self._protocol.pause_writing()

    def _resume_writing(self) -> None:
        if self._writing_paused and self._out_bytes <= self._low and not self._lost:
            self._writing_paused = False
            self._protocol.resume_writing()

    def _arm_pump(self) -> None:
        if not self._pump_armed:
            self._pump_armed = True
            self.loop.kernel.after(0.0, self._pump_soon)

    def _pump_soon(self) -> None:
        self._pump_armed = False
        self._pump()

    def _pump(self, *, ending: bool = True) -> None:
        """Move segments from the write buffer to the wire, as far as the peer's window goes."""
        if self._lost or not self.process.alive:
            return
        if not ending and (self._in_end == "rst" or self.peer_vanished):
            return
        if self._in_end == "rst":
            self._lose(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))
            return
        if self.peer_vanished:
            self._probe_vanished_peer()
            return
        chance = self.network.random
        while self._out:
            room = self._window_bytes - self._wire_bytes - len(self.peer._in)
            if room <= 0:
                break
            size = min(room, SEGMENT_BYTES)
            if chance.random() < self._link.small_piece_chance:
                size = min(size, chance.randint(1, 2000))
            data = self._take(size)
            if self.network.observer is not None:
                self.network.observer.sent(self.number, self.side, data)
            self._send("data", data)
        self._resume_soon()
        if not self._out and ending:
            if self._closing:
                self._finish_close()
            elif self._eof_written:
                self._send("fin", b"")

    def _resume_soon(self) -> None:
        if self._writing_paused and self._out_bytes <= self._low:
            self.loop.call_soon(self._resume_writing, context=self._context)

    def _take(self, size: int) -> bytes:
        taken = bytearray()
        while self._out and len(taken) < size:
            head = self._out.popleft()
            room = size - len(taken)
            if len(head) > room:
                view = memoryview(head)
                taken += view[:room]
                self._out.appendleft(view[room:])
            else:
                taken += head
        self._out_bytes -= len(taken)
        return bytes(taken)

    def _send(self, kind: str, data: bytes) -> None:
        if self.broken:
            return
        if self.peer_vanished:
            return
        arrival = self.loop.kernel.now + self._link.delay(self.network.random)
        if self._wire:
            arrival = max(arrival, self._wire[-1][0])
        self._wire.append((arrival, kind, data))
        self._wire_bytes += len(data)
        self.wire_moved()

    def wire_moved(self) -> None:
        if self._wire and not self._wire_armed:
            self._wire_armed = True
            self.loop.kernel.at(self._wire[0][0], self._arrive)

    def _arrive(self) -> None:
        self._wire_armed = False
        if not self._wire:
            return
        if (self.machine_name, self.peer.machine_name) in self.network.blocked:
            if self.process.alive:
                self.loop.kernel.after(RETRANSMIT_TIMEOUT_S, self._give_up, self._wire[0])
            return  # Network.heal goes on
        _, kind, data = self._wire.popleft()
        self._wire_bytes -= len(data)
        self.peer._received(kind, data)
        self.wire_moved()

    def _give_up(self, head: tuple[float, str, bytes]) -> None:
        if self._wire and self._wire[0] is head and not self._lost and self.process.alive:
            self._lose(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

    # -- in

    def _received(self, kind: str, data: bytes) -> None:
        """Something arrived from the wire."""
        if self.gone or self._lost or not self.process.alive:
            if kind == "data":
                if self.peer.peer_vanished:
                    self.peer._probe_vanished_peer()
                else:
                    self._answer_reset()
            return
        if self._closing and kind == "data":
            self._unread = True
            return
        if kind == "data":
            self._in += data
        else:
            self._in_end = kind
            if kind == "rst" and self.network.random.random() < 0.5:
                self._in.clear()
        self._arm_read()

    def _answer_reset(self) -> None:
        if not self.peer.gone and not self.peer._lost:
            delay = self._link.delay(self.network.random)
            self.loop.kernel.after(delay, self.peer._received, "rst", b"")

    def _arm_read(self) -> None:
        if not self._read_armed and self._protocol is not None and not self._lost:
            self._read_armed = True
            self.loop.call_soon(self._read, context=self._context)

    def _read(self) -> None:
        """One read of the socket, as a loop does it when the socket is readable."""
        self._read_armed = False
        if self._lost:
            return
        if self._paused and not self._closing:
            return  # a reset, too, is noticed only by who reads or writes
        if self._in_end == "rst" and (not self._in or self._closing):
            self._lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
            return
        if self._closing:
            return
        if self._in:
            self._deliver()
            if self._in or self._in_end:
                self._arm_read()
            if self.peer._out:
                self.loop.kernel.after(self._link.delay(self.network.random), self.peer._pump)
        elif self._in_end == "fin" and not self._eof_seen:
            self._eof_seen = True
            self.network.sim.trace.add("eof", self.number, self.side)
            try:
                keep_open = self._protocol.eof_received()
            except BaseException as error:
                self._fatal(error, "Fatal error: protocol.eof_received() call failed.")
                return
            if not keep_open:
                self.close()

    def _deliver(self) -> None:
        chance = self.network.random
        size = min(len(self._in), READ_BYTES)
        if size > 1 and chance.random() < self._link.small_piece_chance:
            size = chance.randint(1, size)
        protocol = self._protocol
        try:
            if isinstance(protocol, asyncio.BufferedProtocol):
                buffer: Any = protocol.get_buffer(-1)
                size = min(size, len(buffer))
                if not size:
                    raise RuntimeError("get_buffer() returned an empty buffer")
                data = bytes(self._in[:size])
                buffer[:size] = data
                del self._in[:size]
                self._trace_delivery(data)
                protocol.buffer_updated(size)
            else:
                data = bytes(self._in[:size])
                del self._in[:size]
                self._trace_delivery(data)
                protocol.data_received(data)
        except BaseException as error:
            self._fatal(error, "Fatal error: protocol.data_received() call failed.")

    def _trace_delivery(self, data: bytes) -> None:
        self.network.sim.trace.add("deliver", self.number, self.side, len(data), zlib.crc32(data))

    # -- ends

    def _fatal(self, error: BaseException, message: str) -> None:
        self.loop.call_exception_handler(
            {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
        )
        if not self._lost and self.process.alive:
            self._closing = True
            self._out.clear()
            self._out_bytes = 0
            self._send("rst", b"")
            self._lose(error)

    def _finish_close(self) -> None:
        """The write buffer is empty: say goodbye, by a reset where bytes were left unread (as Linux does)."""
        if self._lost:
            return
        if self._in or self._unread:
            self._send("rst", b"")
        elif not self._eof_written:
            self._send("fin", b"")
        self._lose(None)

    def _lose(self, error: BaseException | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._closing = True
        self.gone = True
        self._out.clear()
        self._out_bytes = 0
        self._in.clear()
        self.process.transports.pop(id(self), None)
        self.network.sim.trace.add("lost", self.number, self.side, type(error).__name__)
        if self._protocol is not None:
            self.loop.call_soon(self._protocol.connection_lost, error, context=self._context)
        self.network.forget(self.number)
        if self.peer._out:
            self.peer._arm_pump()

    def cut(self) -> None:
        """The connection breaks: a random part of what is on the wire still arrives, then both ends see a reset."""
        if self.broken or self.gone:
            return
        chance = self.network.random
        keep = chance.randint(0, len(self._wire))
        while len(self._wire) > keep:
            _, _, data = self._wire.pop()
            self._wire_bytes -= len(data)
        if self._wire and self._wire[-1][1] == "data" and chance.random() < 0.5:
            arrival, kind, data = self._wire.pop()
            part = data[: chance.randint(0, len(data))]
            self._wire_bytes -= len(data) - len(part)
            self._wire.append((arrival, kind, part))
        self._send("rst", b"")
        self.broken = True

    def owner_died(self, power: bool) -> None:
        """The process of this end is dead: its write buffer is gone, the kernel closes the socket."""
        self._lost = self.gone = True
        unread = bool(self._in)
        self._out.clear()
        self._out_bytes = 0
        self._in.clear()
        if power:
            chance = self.network.random
            while self._wire and chance.random() < 0.5:
                self._wire_bytes -= len(self._wire.pop()[2])
            self.peer.peer_vanished = True
        elif unread:
            self._send("rst", b"")
        else:
            self._send("fin", b"")
        self.network.forget(self.number)

    def _probe_vanished_peer(self) -> None:
        """Bytes went to a machine that lost its power: nothing, until it is back and answers with a reset."""
        if not self._probing:
            self._probing = True
            self._probe(self.loop.kernel.now)

    def _probe(self, since: float) -> None:
        if self._lost or not self.process.alive:
            return
        network = self.network
        machine = network.sim.machines[self.peer.machine_name]
        blocked = (self.machine_name, machine.name) in network.blocked
        if machine.powered and not blocked:
            network.sim.loop.kernel.after(self._link.delay(network.random), self._received, "rst", b"")
        elif self.loop.kernel.now - since > RETRANSMIT_TIMEOUT_S:
            self._lose(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
        else:
            self.loop.kernel.after(1.0, self._probe, since)
