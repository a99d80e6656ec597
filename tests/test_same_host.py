"""Connections within a machine do not pace what they send; all others keep what the system gives them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
import uvloop

from isthmus.client.connection import Connection as ClientConnection
from isthmus.core_broker.config import BrokerConfig
from isthmus.core_broker.server.connection import Connection as BrokerConnection
from isthmus.core_broker.server.listener import Listener, Server, addresses
from isthmus.same_host import UNPACED, without_pacing

AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
OTHERS = [name.encode() for name in AVAILABLE if name.encode() != UNPACED]


class Transport(asyncio.BaseTransport):
    pass


def control(sock: Any) -> bytes:
    return bytes(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)).rstrip(b"\0")


def pair(host: str) -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection, which have another congestion control than the one that is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family)) as listener:
        if OTHERS:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, OTHERS[0])
        listener.bind((host, 0))
        listener.listen()
        far = socket.create_connection(listener.getsockname()[:2])
        near, _ = listener.accept()
    return near, far


needs_two = pytest.mark.skipif(not OTHERS, reason=f"the kernel has {AVAILABLE} only: there is nothing to change")


@needs_two
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.7", "::1"])
def test_a_connection_within_the_machine_is_not_paced(host: str) -> None:
    near, far = pair(host)
    with closing(near), closing(far):
        assert control(near) == OTHERS[0]
        before = control(far)
        without_pacing(Transport({"socket": near, "peername": near.getpeername(), "sockname": near.getsockname()}))
        assert control(near) == UNPACED and control(far) == before


@needs_two
@pytest.mark.parametrize("peer", [("192.0.2.1", 9), None, ()])
def test_a_connection_of_two_machines_is_left(peer: Any) -> None:
    near, far = pair("127.0.0.1")
    with closing(near), closing(far):
        without_pacing(Transport({"socket": near, "peername": peer, "sockname": near.getsockname()}))
        assert control(near) == OTHERS[0]


def test_a_kernel_that_refuses_is_no_error() -> None:
    class Refuses:
        asked = 0

        def setsockopt(self, *_: Any) -> None:
            self.asked += 1
            raise OSError("there is no such congestion control")

    sock = Refuses()
    here = ("127.0.0.1", 1)
    without_pacing(Transport({"socket": sock, "peername": here, "sockname": here}))
    assert sock.asked == 1
    without_pacing(Transport({"socket": None, "peername": here, "sockname": here}))
    without_pacing(Transport({}))


@needs_two
@pytest.mark.parametrize("loops", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_transports_of_both_loops_give_their_socket(loops: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        made: list[asyncio.BaseTransport] = []
        both: asyncio.Future[None] = loop.create_future()

        class End(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                without_pacing(transport)
                made.append(transport)
                if len(made) == 2:
                    both.set_result(None)

        server = await loop.create_server(End, "127.0.0.1", 0)
        await loop.create_connection(End, "127.0.0.1", server.sockets[0].getsockname()[1])
        await both
        assert [control(each.get_extra_info("socket")) for each in made] == [UNPACED, UNPACED]
        for each in made:
            each.close()
        server.close()

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(test())


def of_a_broker(transport: asyncio.Transport) -> None:
    server = Server(BrokerConfig({}))
    server.services = cast(Any, None)  # nothing is asked of them yet
    BrokerConnection(Listener(server, *addresses(server.config)[0])).connection_made(transport)


def of_a_client(transport: asyncio.Transport) -> None:
    async def test() -> None:
        ClientConnection("broker:9092", "app").connection_made(transport)

    asyncio.run(test())


@pytest.mark.parametrize("made", [of_a_broker, of_a_client])
def test_brokers_and_clients_take_it_for_what_they_send(made: Callable[[asyncio.Transport], None]) -> None:
    class Sock:
        taken: ClassVar[list[Any]] = []

        def setsockopt(self, *option: Any) -> None:
            self.taken.append(option)

        def fileno(self) -> int:
            return -1

    class Fake(asyncio.Transport):
        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
            pass

    here = ("10.0.0.9", 1)
    made(Fake({"socket": Sock(), "peername": here, "sockname": here}))
    assert Sock.taken == [(socket.IPPROTO_TCP, socket.TCP_CONGESTION, UNPACED)]
