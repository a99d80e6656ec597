"""Addresses of listeners, and the bounds that all connections of a server share."""

import asyncio
import errno
import logging
import socket
from types import SimpleNamespace

import pytest
import uvloop

from isthmus.core_broker.config import BrokerConfig, ConfigError
from isthmus.core_broker.server.dispatch import SERVED, Routes
from isthmus.core_broker.server.listener import (
    TICKS,
    Address,
    ListenError,
    Server,
    addresses,
    begin_to_listen,
    cannot_listen,
    parse_address,
)
from isthmus.protocol.messages import APIS


class FakeConnection:
    def __init__(self):
        self.said = []
        self.context = SimpleNamespace(client_host="10.0.0.9")
        self.listener = SimpleNamespace(connections=0, taken=0)

    def close_if_idle(self, ticks):
        self.said.append(ticks)


def test_address_has_a_name_or_is_plaintext():
    assert parse_address("127.0.0.1:9092", "listeners") == Address("PLAINTEXT", "127.0.0.1", 9092)
    assert parse_address("inside://[::1]:0", "listeners") == Address("INSIDE", "::1", 0)
    assert str(Address("INSIDE", "::1", 7)) == "INSIDE://[::1]:7"
    for wrong in ("nowhere", "host:", "host:x", "host:70000", "://host:1"):
        with pytest.raises(ConfigError, match="listeners"):
            parse_address(wrong, "listeners")


def test_advertised_address_is_the_listener_s_own_unless_said():
    config = BrokerConfig(
        {
            "listeners": "A://:1,B://:2",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            "advertised.listeners": "B://b.example:22",
        }
    )
    assert addresses(config) == [
        (Address("A", "", 1), Address("A", "", 1)),
        (Address("B", "", 2), Address("B", "b.example", 22)),
    ]


CONTROLLER = {"controller.listener.names": "CONTROLLER", "inter.broker.listener.name": "a"}


def test_controllers_listeners_are_checked_and_not_opened():
    map_ = {"listener.security.protocol.map": "a:plaintext,CONTROLLER:SSL"}
    listeners = {"listeners": "A://h:1,CONTROLLER://:2", "advertised.listeners": "CONTROLLER://h:2"}
    assert addresses(BrokerConfig(CONTROLLER | map_ | listeners)) == [(Address("A", "h", 1), Address("A", "h", 1))]
    with pytest.raises(ConfigError, match="have the port 1 both"):
        addresses(BrokerConfig(CONTROLLER | map_ | {"listeners": "A://h:1,CONTROLLER://:1"}))
    with pytest.raises(ConfigError, match="at least one is needed"):
        addresses(BrokerConfig(CONTROLLER | {"listeners": "CONTROLLER://:1"}))


def test_listeners_that_forgot_their_names_are_told_what_to_do():
    with pytest.raises(ConfigError, match="2 are called PLAINTEXT: give each a name of its own"):
        addresses(BrokerConfig({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}))


@pytest.mark.parametrize(
    ("error", "why", "way_out"),
    [
        (OSError(errno.EADDRINUSE, ""), "Address already in use", "stop what uses the port"),
        (OSError(errno.EADDRNOTAVAIL, ""), "Cannot assign requested address", "no interface of this machine has it"),
        (OSError(errno.EACCES, ""), "Permission denied", "a port from 1024 on"),
        (socket.gaierror(socket.EAI_NONAME, ""), "the name is not known", "name this machine"),
        (UnicodeError("label empty or too long"), "the name is not known", "name this machine"),
    ],
)
def test_why_an_address_cannot_be_had_is_told_with_the_way_out(error, why, way_out):
    said = str(cannot_listen(error, "host:1", "--metrics"))
    assert said.startswith(f"cannot listen on host:1: {why}; ")
    assert way_out in said
    assert "--metrics" in said


@pytest.mark.parametrize(
    "options",
    [
        {"listeners": "A://:1,A://:2", "listener.security.protocol.map": "A:PLAINTEXT"},
        {"listeners": "PLAINTEXT://:1", "advertised.listeners": "B://b:1"},
        {"listeners": ""},
        {"listeners": "PLAINTEXT://:1", "inter.broker.listener.name": "B"},
        {"listener.security.protocol.map": "PLAINTEXT"},
        {"listener.security.protocol.map": "PLAINTEXT:NONE"},
    ],
)
def test_wrong_listeners_are_refused(options):
    with pytest.raises(ConfigError):
        addresses(BrokerConfig(options))


@pytest.mark.parametrize(
    ("listeners", "protocols", "line"),
    [
        ("INTERNAL://h:1", None, "listener INTERNAL: write listener.security.protocol.map=INTERNAL:PLAINTEXT"),
        ("A://h:1,B://h:2", "A:PLAINTEXT", "listener B: write listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"),
        (
            "PLAINTEXT://h:1",
            "CONTROLLER:PLAINTEXT",
            "listener PLAINTEXT: write listener.security.protocol.map=PLAINTEXT",
        ),
        ("PLAINTEXT://h:1", "", "listener PLAINTEXT: write listener.security.protocol.map=PLAINTEXT:PLAINTEXT"),
        ("SSL://h:1", None, "listener SSL has the protocol SSL, .* write SSL:PLAINTEXT"),
        ("A://h:1", "A:SASL_SSL", "listener A has the protocol SASL_SSL, .* write A:PLAINTEXT"),
    ],
)
def test_a_listener_without_a_protocol_that_is_served_is_refused_with_the_line_to_write(listeners, protocols, line):
    given = {} if protocols is None else {"listener.security.protocol.map": protocols}
    with pytest.raises(ConfigError, match=line):
        addresses(BrokerConfig({"listeners": listeners, **given}))


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "write advertised.listeners=PLAINTEXT://HOST:1, with"),
        ({"listeners": "PLAINTEXT://[::]:1"}, "write advertised.listeners=PLAINTEXT://HOST:1, with"),
        ({"listeners": "PLAINTEXT://h:1", "advertised.listeners": "PLAINTEXT://0.0.0.0:2"}, "PLAINTEXT://HOST:2, with"),
    ],
)
def test_an_address_that_nobody_can_connect_to_is_not_advertised(options, line):
    with pytest.raises(ConfigError, match=r"advertised\.listeners cannot use the nonroutable .*" + line):
        addresses(BrokerConfig(options))


@pytest.mark.parametrize(
    ("first", "second", "metrics", "fits"),
    [
        ("127.0.0.1:7", "127.0.0.1:7", None, False),
        ("127.0.0.1:7", "127.0.0.2:7", None, False),
        ("h:7", ":7", None, False),
        ("[::1]:7", "[::2]:7", None, False),
        ("127.0.0.1:7", "[::1]:7", None, True),
        ("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", True),
        ("127.0.0.1:7", "127.0.0.1:8", "127.0.0.1:8", False),
        ("127.0.0.1:7", "127.0.0.1:8", ":9", True),
    ],
)
def test_two_on_one_port_are_refused(first, second, metrics, fits):
    protocols = "A:PLAINTEXT,B:PLAINTEXT"
    given = {"listeners": f"A://{first},B://{second}", "listener.security.protocol.map": protocols}
    config = BrokerConfig(given | ({} if metrics is None else {"metrics.listener": metrics}))
    if fits:
        assert len(addresses(config)) == 2
    else:
        with pytest.raises(ConfigError, match="give each a port of its own"):
            addresses(config)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_what_another_listens_on_since_it_was_bound_is_not_taken_for_listening(run):
    """uvloop says nothing of it."""

    async def scenario():
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", 0))
            port = other.getsockname()[1]
            loop = asyncio.get_running_loop()
            server = await loop.create_server(asyncio.Protocol, "127.0.0.1", port, start_serving=False)
            other.listen()
            with pytest.raises(ListenError, match=f"cannot listen on here:{port}: Address already in use; stop what"):
                await begin_to_listen(server, f"here:{port}", "--listen")
            server.close()
            free = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, start_serving=False)
            await begin_to_listen(free, "here", "--listen")  # the control
            free.close()

    run(scenario())


def test_connections_are_bounded(monkeypatch):
    server = Server(BrokerConfig({"max.connections": "2"}))
    told = []
    monkeypatch.setattr(server.closings, "tell", lambda *said: told.append(said))
    held = [FakeConnection() for _ in range(3)]
    assert [server.add(each) for each in held] == [True, True, False]
    assert told == [("10.0.0.9", "there are max.connections=2 already", logging.WARNING)]
    server.remove(held[0])
    assert server.add(held[2])


def test_all_connections_are_looked_at_by_the_idle_timer(monkeypatch):
    server = Server(BrokerConfig())
    monkeypatch.setattr(server, "_arm", lambda: None)
    connections = FakeConnection(), FakeConnection()
    for each in connections:
        server.add(each)
    server._look_for_idle()
    server._look_for_idle()
    assert server.shared.tick == 2
    assert [each.said for each in connections] == [[TICKS, TICKS]] * 2


def test_every_served_version_has_a_route_and_the_codec_knows_it():
    routes = Routes()
    for key, (low, high) in SERVED.items():
        for version in range(low, high + 1):
            route = routes[key << 16 | version]
            if (key, version) in ((0, 0), (0, 1), (0, 2)):
                assert route is None
            else:
                assert (route.api, route.version) == (APIS[key], version)
        assert routes[key << 16 | (high + 1)] is None
    assert routes[-1] is None
