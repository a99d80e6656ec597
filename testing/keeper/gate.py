"""The way in to one listener of a broker, for the other brokers of its cluster: a relay that knows who comes.

All brokers of a cluster are told one address of a listener, so the gate finds out whose connection it is (`who`), and
cuts each broker's by itself. As on a cut cable no byte comes through, no connection breaks, and a new one hears
nothing; what was sent waits. It can be one way alone, for connections that are there: a new one needs both.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from .relay import BACKLOG, CONNECTIONS_MAX, HOST, Connection, reached

_TCP_ESTABLISHED = 1  # the first byte of TCP_INFO
BOTH_OPEN = (True, True)


class Gate:
    """To `target` (host, port). who: the node id of the broker that has a connection's end (host, port), the second of
    which is the gate's; None: no broker's, and never cut. Runs on the loop that `start` was called in."""

    def __init__(self, target: tuple[str, int], who: Callable[[tuple[str, int], tuple[str, int]], int | None]) -> None:
        self.target = target
        self._who = who
        self._listening = socket.socket()
        self._cut: dict[int, tuple[bool, bool]] = {}  # by node id: whether it is open inward, and outward
        self._connections: dict[Connection, int | None] = {}
        self._connecting: dict[asyncio.Task[None], None] = {}
        self._held: dict[socket.socket, int] = {}  # new connections of those that are cut

    @property
    def address(self) -> str:
        return f"{HOST}:{self._listening.getsockname()[1]}"

    def start(self) -> None:
        self._listening.setblocking(False)
        self._listening.bind((HOST, 0))
        self._listening.listen(BACKLOG)
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def let(self, source: int, inward: bool, outward: bool) -> None:
        """Whether what a broker sends comes through, and what it is sent. What is mended goes on where it stopped."""
        self._cut[source] = inward, outward
        if (inward, outward) == BOTH_OPEN:
            del self._cut[source]
        for connection, whose in list(self._connections.items()):
            if whose == source:
                connection.let(inward, outward)
        if source not in self._cut:
            for near in [each for each, whose in self._held.items() if whose == source]:
                del self._held[near]
                self._begin(near, source)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listening)
        self._listening.close()
        for task in list(self._connecting):
            task.cancel()
        for each in list(self._connections):
            each.close()
        for near in self._held:
            near.close()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            near, peer = self._listening.accept()
            self._forget_given_up()
            if len(self._connections) + len(self._connecting) + len(self._held) >= CONNECTIONS_MAX:
                near.close()
                return
            source = self._who(peer, near.getsockname())
            if source is not None and source in self._cut:
                self._held[near] = source
            else:
                self._begin(near, source)

    def _forget_given_up(self) -> None:
        """Else those that try again and again would fill the gate."""
        for near in list(self._held):
            if near.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _TCP_ESTABLISHED:
                del self._held[near]
                near.close()

    def _begin(self, near: socket.socket, source: int | None) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(near, source))
        self._connecting[task] = None
        task.add_done_callback(self._connecting.pop)

    async def _connect(self, near: socket.socket, source: int | None) -> None:
        far = await reached(self.target, near)
        if far is None:
            return
        connection = Connection(near, far, lambda: self._connections.pop(connection, None))
        self._connections[connection] = source
        connection.let(*(BOTH_OPEN if source is None else self._cut.get(source, BOTH_OPEN)))
