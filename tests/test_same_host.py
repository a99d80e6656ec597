"""Connections within a machine do not pace what they send; all others keep what the system gives them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from isthmus.client.connection import Connection as ClientConnection
from isthmus.core_broker.config import BrokerConfig
from isthmus.core_broker.server.connection import Connection as BrokerConnection
from isthmus.core_broker.server.listener import Listener, Server, planned
from isthmus.same_host import PACED, UNPACED, accept_unpaced, bound, without_pacing

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


class Sock:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.had = UNPACED
        self.taken: list[Any] = []

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return self.had.ljust(size, b"\0")

    def setsockopt(self, *option: Any) -> None:
        self.taken.append(option)

    def fileno(self) -> int:
        return -1


class Fake(asyncio.Transport):
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


HERE = ("10.0.0.9", 1)
FAR = b"westwood"


def test_clients_take_it_for_what_they_send() -> None:
    sock = Sock()

    async def test() -> None:
        transport = Fake({"socket": sock, "peername": HERE, "sockname": HERE})
        ClientConnection("broker:9092", "app").connection_made(transport)

    asyncio.run(test())
    assert sock.taken == [(socket.IPPROTO_TCP, socket.TCP_CONGESTION, UNPACED)]


needs_bbr = pytest.mark.skipif("bbr" not in AVAILABLE, reason=f"the kernel has {AVAILABLE} only: none of them paces")


def listening_with(name: bytes) -> socket.socket:
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
    return listening


@needs_bbr
def test_a_listening_socket_has_it_from_the_start_for_what_it_accepts() -> None:
    """What a connection was accepted with goes on to pace it, whatever it takes later."""
    with listening_with(PACED) as listening:
        assert accept_unpaced(listening) == PACED
        with socket.create_connection(listening.getsockname()):
            accepted, _ = listening.accept()
            with closing(accepted):
                assert control(accepted) == UNPACED


@pytest.mark.parametrize("name", [name for name in OTHERS if not name.startswith(PACED)])
def test_a_listening_socket_that_does_not_pace_keeps_what_it_has(name: bytes) -> None:
    with listening_with(name) as listening:
        assert accept_unpaced(listening) == b""
        assert control(listening) == name


@pytest.mark.parametrize("loops", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_listeners_of_a_broker_do_not_pace(loops: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def test() -> None:
        server = Server(BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0"}))
        await server.bind()
        [listening] = server.listeners[0].sockets[0].sockets
        with socket.socket() as fresh:
            of_system = control(fresh)
        paces = of_system.startswith(PACED)
        assert control(listening) == (UNPACED if paces else of_system)
        assert server.far_congestion_control == (of_system if paces else b"")
        server.stop_listening()

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(test())


def accepted_by_a_broker(peer: Any, had: bytes = UNPACED) -> list[Any]:
    """What its connection's socket is told."""
    sock = Sock()
    sock.had = had
    server = Server(BrokerConfig({}))
    server.services = cast(Any, None)  # nothing is asked of them yet
    server.far_congestion_control = FAR
    transport = Fake({"socket": sock, "peername": peer, "sockname": HERE})
    (each,) = planned(server.config)
    BrokerConnection(Listener(server, each.address, each.advertised, server.shared)).connection_made(transport)
    return [name for _, _, name in sock.taken]


def test_who_comes_from_another_machine_has_what_the_system_has() -> None:
    far = ("192.0.2.1", 9)
    assert accepted_by_a_broker(far) == [FAR]
    assert accepted_by_a_broker(far, b"cubic") == []  # its route's own
    assert accepted_by_a_broker(HERE) == accepted_by_a_broker(("127.0.0.3", 9)) == [UNPACED]
    assert accepted_by_a_broker(None) == []


@needs_bbr
def test_to_pace_is_taken_by_a_socket_of_the_system() -> None:
    near, far = pair("127.0.0.1")
    with closing(near), closing(far):
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, UNPACED)
        far_away = Transport({"socket": near, "peername": ("192.0.2.1", 9), "sockname": near.getsockname()})
        without_pacing(far_away, b"")  # where there was nothing to give up
        assert control(near) == UNPACED
        without_pacing(far_away, PACED)
        assert control(near) == PACED


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_name_with_an_address_that_is_not_here_is_bound_to_those_that_are(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `localhost` of a container without IPv6: 192.0.2.1 is of no machine (RFC 5737)."""

    async def scenario() -> list[str]:
        loop = asyncio.get_running_loop()
        names = {"here-and-away": ["192.0.2.1", "127.0.0.1"], "away": ["192.0.2.1"]}

        async def resolved(host: str, port: int, **_: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in names[host]]

        async def bind(hosts: Any) -> asyncio.Server:
            return await loop.create_server(
                asyncio.Protocol, names.get(hosts, hosts) if isinstance(hosts, str) else hosts, 0
            )

        monkeypatch.setattr(
            type(loop), "getaddrinfo", lambda _, *given, **more: resolved(*given, **more), raising=False
        )
        with pytest.raises(OSError, match="requested address"):
            await bound(bind, "away")
        server = await bound(bind, "here-and-away")
        try:
            return [each.getsockname()[0] for each in server.sockets]
        finally:
            server.close()

    assert run(scenario()) == ["127.0.0.1"]
