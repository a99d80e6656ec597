"""Addresses of listeners, and the bounds that all connections of a server share."""

import errno
import logging
import socket
from types import SimpleNamespace

import pytest

from isthmus.core_broker.config import BrokerConfig, ConfigError
from isthmus.core_broker.server.dispatch import SERVED, Routes
from isthmus.core_broker.server.listener import TICKS, Address, Server, addresses, cannot_listen, parse_address
from isthmus.protocol.messages import APIS


class FakeConnection:
    def __init__(self, tick=0, waits_for_us=False):
        self.tick = tick
        self.waits_for_us = waits_for_us
        self.said = []
        self.context = SimpleNamespace(client_host="10.0.0.9")
        self.listener = SimpleNamespace(connections=0, taken=0)

    def pause_for_memory(self):
        self.said.append("pause")

    def resume_for_memory(self):
        self.said.append("resume")

    def close(self, reason=None):
        self.said.append(reason)


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
        {"listeners": "SSL://:1"},
        {"listeners": "PLAINTEXT://:1", "advertised.listeners": "B://b:1"},
        {"listeners": ""},
    ],
)
def test_wrong_listeners_are_refused(options):
    with pytest.raises(ConfigError):
        addresses(BrokerConfig(options))


def test_past_the_memory_bound_readers_pause_until_there_is_room():
    server = Server(BrokerConfig({"queued.max.request.bytes": str(1 << 20)}))
    first, second = FakeConnection(), FakeConnection()
    assert server.add(first)
    assert server.add(second)
    server.held(first, 1 << 20)
    assert first.said == []
    server.held(second, 100)
    assert second.said == ["pause"]
    server.held(first, -(1 << 20))
    assert second.said == ["pause", "resume"]


def test_connections_are_bounded(monkeypatch):
    server = Server(BrokerConfig({"max.connections": "2"}))
    told = []
    monkeypatch.setattr(server.closings, "tell", lambda *said: told.append(said))
    held = [FakeConnection() for _ in range(3)]
    assert [server.add(each) for each in held] == [True, True, False]
    assert told == [("10.0.0.9", "there are max.connections=2 already", logging.WARNING)]
    server.remove(held[0])
    assert server.add(held[2])


def test_idle_connections_are_closed_but_not_those_that_wait_for_us(monkeypatch):
    server = Server(BrokerConfig())
    monkeypatch.setattr(server, "_arm", lambda: None)
    idle, waiting = FakeConnection(), FakeConnection(waits_for_us=True)
    server.add(idle)
    server.add(waiting)
    for _ in range(TICKS):
        server._look_for_idle()
    assert idle.said == []
    server._look_for_idle()
    assert idle.said == ["idle for connections.max.idle.ms"]
    assert waiting.said == []


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
