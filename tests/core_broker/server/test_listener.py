"""Addresses of listeners, and the bounds that all connections of a server share."""

import asyncio
import errno
import logging
import socket
from types import SimpleNamespace

import pytest
import uvloop

from isthmus.core_broker.config import BrokerConfig, ConfigError
from isthmus.core_broker.server.dispatch import SERVED, SERVED_BY_CONTROLLERS, Routes, Scope
from isthmus.core_broker.server.listener import (
    TICKS,
    Address,
    ListenError,
    Planned,
    Server,
    begin_to_listen,
    cannot_listen,
    parse_address,
    planned,
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
    assert planned(config) == [
        Planned(Address("A", "", 1), Address("A", "", 1)),
        Planned(Address("B", "", 2), Address("B", "b.example", 22)),
    ]


def planned_of(**options):
    return planned(BrokerConfig({name.replace("_", "."): text for name, text in options.items()}))


def test_listeners_of_controllers_are_told_apart_by_their_names():
    found = planned_of(
        listeners="A://h:1,CONTROLLER://:2",
        advertised_listeners="CONTROLLER://c:3",
        controller_listener_names="CONTROLLER",
        inter_broker_listener_name="a",
        listener_security_protocol_map="a:plaintext,CONTROLLER:PLAINTEXT",
    )
    assert found == [
        Planned(Address("A", "h", 1), Address("A", "h", 1), Scope.BROKER),
        Planned(Address("CONTROLLER", "", 2), Address("CONTROLLER", "c", 3), Scope.CONTROLLER),
    ]


OTHERS = {"controller_quorum_voters": "1@a:1,2@b:1,3@c:1", "cluster_id": "MkU3OEVBNTcwNTJENDM2Qk"}


@pytest.mark.parametrize(
    ("listeners", "more", "why"),
    [
        ("A://h:1,CONTROLLER://:1", {}, "have the port 1 both"),
        ("CONTROLLER://:1", {}, "at least one is needed"),
        ("A://h:1", OTHERS, "controller.listener.names=CONTROLLER has none of the listeners, which are A"),
        ("A://h:1,CONTROLLER://:2", {"inter_broker_listener_name": "CONTROLLER"}, "not among the listeners of brokers"),
        ("A://h:1,CONTROLLER://0.0.0.0:2", {}, "write advertised.listeners=CONTROLLER://HOST:2"),
        ("A://h:1,CONTROLLER://:2", {"listener_security_protocol_map": "A:PLAINTEXT,CONTROLLER:SSL"}, "no TLS or SASL"),
    ],
)
def test_listeners_that_do_not_fit_the_controllers_names_are_refused(listeners, more, why):
    given = {"listener_security_protocol_map": "A:PLAINTEXT,CONTROLLER:PLAINTEXT"} | more
    with pytest.raises(ConfigError, match=why):
        planned_of(listeners=listeners, controller_listener_names="CONTROLLER", **given)


@pytest.mark.parametrize(
    ("listeners", "asked", "found"),
    [
        ("A://h:1,PLAINTEXT://h:2", None, "PLAINTEXT"),
        ("A://h:1,B://h:2", None, "A"),
        ("A://h:1,B://h:2,CONTROLLER://h:3", "b", "B"),
    ],
)
def test_other_brokers_come_by_the_listener_that_is_named_or_by_plaintext(listeners, asked, found):
    names = [each.partition(":")[0] for each in listeners.split(",")]
    given = {
        "listeners": listeners,
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
        "controller.listener.names": "CONTROLLER" if "CONTROLLER" in names else None,
        "inter.broker.listener.name": asked,
    }
    given = {name: text for name, text in given.items() if text is not None}
    assert Server(BrokerConfig(given)).between_brokers == found


def test_listeners_that_forgot_their_names_are_told_what_to_do():
    with pytest.raises(ConfigError, match="2 are called PLAINTEXT: give each a name of its own"):
        planned(BrokerConfig({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}))


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
        planned(BrokerConfig(options))


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
        planned(BrokerConfig({"listeners": listeners, **given}))


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
        planned(BrokerConfig(options))


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
        assert len(planned(config)) == 2
    else:
        with pytest.raises(ConfigError, match="give each a port of its own"):
            planned(config)


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


@pytest.mark.parametrize(("scope", "served"), [(Scope.BROKER, SERVED), (Scope.CONTROLLER, SERVED_BY_CONTROLLERS)])
def test_every_served_version_has_a_route_and_the_codec_knows_it(scope, served):
    routes = Routes(scope)
    for key, (low, high) in served.items():
        for version in range(low, high + 1):
            route = routes[key << 16 | version]
            if (key, version) in ((0, 0), (0, 1), (0, 2)):
                assert route is None
            else:
                assert (route.api, route.version) == (APIS[key], version)
        assert routes[key << 16 | (high + 1)] is None
    assert routes[-1] is None
