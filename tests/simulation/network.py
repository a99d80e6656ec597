"""The simulated network: machines reach each other by name over TCP-like connections with faults.

Bytes arrive in order, late, and in pieces cut anywhere. A partition holds them back until it heals; a cut resets a
connection after a random part of what was under way; a killed process's peers see the end of the stream or a
reset, those of a machine without power see nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import random
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .hosts import Machine, Process
from .observer import FrameObserver
from .transport import SimTransport

if TYPE_CHECKING:
    from .runner import Simulation

SYN_RETRY_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
LOCAL_NAMES = ("127.0.0.1", "localhost", "::1", "0.0.0.0")


@dataclass(slots=True)
class Link:
    """How bytes travel between two machines."""

    latency_s: tuple[float, float] = (0.0002, 0.002)
    spike_s: tuple[float, float] = (0.01, 0.15)
    spike_chance: float = 0.01
    small_piece_chance: float = 0.1  # that a segment, or a read, is cut at a random byte
    window_bytes: tuple[int, ...] = (4096, 65536, 262144, 1 << 20)  # on their way at once; each connection has one

    def delay(self, chance: random.Random) -> float:
        low, high = self.spike_s if chance.random() < self.spike_chance else self.latency_s
        return chance.uniform(low, high)


class SimServer(asyncio.AbstractServer):
    """A listening port."""

    def __init__(self, network: Network, process: Process, factory: Callable[[], Any], port: int, serve: bool) -> None:
        self.network = network
        self.process = process
        self.factory = factory
        self.port = port
        self.context = contextvars.copy_context()
        self._bound = True
        self._serving = serve

    @property
    def sockets(self) -> tuple[SimSocket, ...]:
        return (SimSocket((self.process.machine.name, self.port), None, self._serving),) if self._bound else ()

    def close(self) -> None:
        self._bound = self._serving = False
        listeners = self.process.machine.listeners
        if listeners.get(self.port) is self:
            del listeners[self.port]

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.network.sim.loop

    def is_serving(self) -> bool:
        return self._serving

    async def start_serving(self) -> None:
        self._serving = self._bound

    async def serve_forever(self) -> None:
        await self.network.sim.loop.create_future()

    async def wait_closed(self) -> None:
        pass


class SimSocket:
    """What `get_extra_info("socket")` and `server.sockets` give: names, whether it listens, and options that are taken
    and ignored."""

    def __init__(self, sockname: tuple[str, int], peername: tuple[str, int] | None, listens: bool = False) -> None:
        self._sockname = sockname
        self._peername = peername
        self._listens = listens
        self.family = 2
        self.type = 1

    def getsockname(self) -> tuple[str, int]:
        return self._sockname

    def getpeername(self) -> tuple[str, int]:
        if self._peername is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self._peername

    def setsockopt(self, *_: Any) -> None:
        pass

    def getsockopt(self, level: int, option: int, size: int = 0) -> int | bytes:
        return bytes(size) if size else int(option == socket.SO_ACCEPTCONN and self._listens)

    def fileno(self) -> int:
        return -1


class Network:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.random = random.Random(f"{sim.seed}/network")
        self.default = Link()
        self.links: dict[tuple[str, str], Link] = {}
        self.blocked: dict[tuple[str, str], None] = {}
        self.connections: dict[int, tuple[SimTransport, SimTransport]] = {}
        self.observer: FrameObserver | None = None  # set by scenarios in which all connections carry Kafka's frames
        self._connections_made = 0

    def link(self, source: str, target: str) -> Link:
        return self.links.get((source, target), self.default)

    # -- faults

    def partition(self, one: Iterable[str], other: Iterable[str], *, both_ways: bool = True) -> None:
        """Hold back everything from machines `one` to machines `other`."""
        one, other = list(one), list(other)
        self.sim.trace.add("partition", ",".join(one), ",".join(other))
        self.sim.counters["partitions"] += 1
        for a in one:
            for b in other:
                self.blocked[a, b] = None
                if both_ways:
                    self.blocked[b, a] = None

    def heal(self) -> None:
        """End all partitions; what was held back arrives."""
        if not self.blocked:
            return
        self.blocked.clear()
        self.sim.trace.add("heal")
        for pair in list(self.connections.values()):
            for transport in pair:
                transport.wire_moved()

    def cut(self, one: str | None = None, other: str | None = None) -> int:
        """Reset the connections between two machines (None: any); how many there were."""
        count = 0
        for a, b in list(self.connections.values()):
            names = (a.machine_name, b.machine_name)
            if (one is None or one in names) and (other is None or other in names) and a.established and b.established:
                count += 1
                self.sim.trace.add("cut", a.number)
                a.cut()
                b.cut()
        self.sim.counters["cuts"] += count
        return count

    def process_killed(self, process: Process, power: bool) -> None:
        for transport in list(process.transports.values()):
            transport.owner_died(power)
        process.transports.clear()

    # -- sockets

    def listen(self, process: Process, factory: Callable[[], Any], port: int, serve: bool = True) -> SimServer:
        process.check_alive()
        machine = process.machine
        if port == 0:
            port = self._free_port(machine)
        elif port in machine.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        server = SimServer(self, process, factory, port, serve)
        machine.listeners[port] = server
        self.sim.trace.add("listen", process.name, port)
        return server

    def _free_port(self, machine: Machine) -> int:
        machine.next_port += 1
        return machine.next_port

    async def connect(
        self, process: Process, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[SimTransport, Any]:
        process.check_alive()
        loop = self.sim.loop
        target = process.machine.name if host in LOCAL_NAMES else host
        if target not in self.sim.machines:
            raise OSError(errno.ENOENT, f"host {host} is not known")
        future: asyncio.Future[SimTransport] = loop.create_future()
        attempt = _Attempt(self, process, target, port, future)
        attempt.send_syn()
        try:
            transport = await future
        except asyncio.CancelledError:
            attempt.abandoned = True
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result().abort()
            raise
        protocol = factory()
        transport.attach(protocol, contextvars.copy_context())
        protocol.connection_made(transport)
        transport.start()
        return transport, protocol

    def accept(self, process: Process, target: Machine, port: int) -> SimTransport:
        """A connection request has reached a listening port: make both ends, the server's alive at once."""
        server = target.listeners[port]
        self._connections_made += 1
        number = self._connections_made
        client_name = (process.machine.name, self._free_port(process.machine))
        server_name = (target.name, port)
        window = self.random.choice(self.link(process.machine.name, target.name).window_bytes)
        client = SimTransport(self, process, number, 0, client_name, server_name, window)
        accepted = SimTransport(self, server.process, number, 1, server_name, client_name, window)
        client.peer, accepted.peer = accepted, client
        self.connections[number] = (client, accepted)
        self.sim.trace.add("accept", number, process.name, server.process.name, port)
        self.sim.counters["connections"] += 1
        self.sim.loop.call_soon(_start_accepted, server, accepted, context=server.context)
        return client

    def forget(self, number: int) -> None:
        pair = self.connections.get(number)
        if pair is not None and pair[0].gone and pair[1].gone:
            del self.connections[number]
            if self.observer is not None:
                self.observer.forget(number)


def _start_accepted(server: SimServer, transport: SimTransport) -> None:
    if not server.is_serving():
        transport.abort()
        return
    protocol = server.factory()
    transport.attach(protocol, contextvars.copy_context())
    protocol.connection_made(transport)
    transport.start()


class _Attempt:
    """A connection request on its way, repeated while nobody answers."""

    def __init__(
        self, network: Network, process: Process, target: str, port: int, future: asyncio.Future[SimTransport]
    ) -> None:
        self.network = network
        self.process = process
        self.target = target
        self.port = port
        self.future = future
        self.tries = 0
        self.abandoned = False
        self.link = network.link(process.machine.name, target)

    def send_syn(self) -> None:
        if self.process.alive and not self.abandoned:
            self.network.sim.loop.kernel.after(self.link.delay(self.network.random), self._syn_arrives)

    def _syn_arrives(self) -> None:
        network, source = self.network, self.process.machine.name
        machine = network.sim.machines[self.target]
        kernel = network.sim.loop.kernel
        if not machine.powered or (source, self.target) in network.blocked or (self.target, source) in network.blocked:
            if self.tries < len(SYN_RETRY_S):
                kernel.after(SYN_RETRY_S[self.tries], self.send_syn)
                self.tries += 1
            else:
                self._answer(None, OSError(errno.ETIMEDOUT, f"no answer from {self.target}:{self.port}"))
            return
        back = self.link.delay(network.random)
        listener = machine.listeners.get(self.port)
        if listener is None or not listener.is_serving():
            error = ConnectionRefusedError(errno.ECONNREFUSED, f"{self.target}:{self.port} refused the connection")
            kernel.after(back, self._answer, None, error)
            return
        kernel.after(back, self._answer, network.accept(self.process, machine, self.port), None)

    def _answer(self, transport: SimTransport | None, error: OSError | None) -> None:
        if not self.process.alive or self.abandoned or self.future.done():
            if transport is not None:
                transport.abort()
        elif error is not None:
            self.future.set_exception(error)
        elif transport is not None:
            self.future.set_result(transport)
