"""The sockets of a node: several listeners, each with a name, whom it is for, and the address that is told to those.

A `Server` holds what its connections share: the read buffer, the routes, the bounds, and one timer that closes idle
connections. Listeners that `controller.listener.names` has are for controllers, all others for clients and brokers.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...client.connection import host_and_port
from ...same_host import accept_unpaced, bound
from ..config import BrokerConfig, ConfigError
from ..membership import is_alone
from ._frames import Shared
from ._route import Route
from .buffers import Buffers
from .closings import Closings
from .connection import Connection
from .dispatch import Routes, Scope
from .latency import Latency
from .request_memory import RequestMemory
from .services import Services

log = logging.getLogger(__name__)

SCRATCH_BYTES = 128 * 1024  # one read of small requests
TICKS = 4  # the idle timer looks this often within connections.max.idle.ms
PLAINTEXT = "PLAINTEXT"
SECURITY_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PROTOCOLS = "listener.security.protocol.map"
ANY_HOST = ("0.0.0.0", "::")  # a socket may listen there, but no client can connect to it


@dataclass(slots=True, frozen=True)
class Address:
    """NAME://HOST:PORT. host "" is all interfaces, port 0 any free one."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{host_and_port(self.host, self.port)}"


@dataclass(slots=True, frozen=True)
class Planned:
    """A listener of a configuration. An advertised address without a host is this machine's name."""

    address: Address
    advertised: Address
    scope: Scope = Scope.BROKER


@dataclass(slots=True)
class Listener:
    """One listening socket."""

    server: Server
    address: Address
    advertised: Address
    shared: Shared
    scope: Scope = Scope.BROKER
    sockets: list[asyncio.Server] = field(default_factory=list)
    connections: int = 0  # open ones
    taken: int = 0  # since the start

    @property
    def name(self) -> str:
        return self.address.name


class ListenError(Exception):
    """A socket could not be opened; the message says which and what to do."""


def cannot_listen(error: OSError | UnicodeError, where: str, option: str) -> ListenError:
    """The error for an address on which no socket can listen, with a way out. UnicodeError: no name is of that form."""
    if isinstance(error, (socket.gaierror, UnicodeError)):
        why, way_out = "the name is not known", f"name this machine, or an address of it ({option} HOST:PORT)"
    else:
        why = os.strerror(error.errno or 0)
        way_out = {
            errno.EADDRNOTAVAIL: "no interface of this machine has it: listen on one that it has, or on all "
            f"({option} 0.0.0.0:PORT); clients get advertised.listeners as the address",
            errno.EACCES: f"choose a port from 1024 on, which needs no rights ({option} HOST:PORT)",
        }.get(
            error.errno or 0, f"stop what uses the port or choose another ({option} HOST:PORT, port 0 for any free one)"
        )
    return ListenError(f"cannot listen on {where}: {why}; {way_out}")


def parse_address(text: str, option: str) -> Address:
    """From NAME://HOST:PORT, or HOST:PORT for the listener PLAINTEXT. ConfigError names the option."""
    name, mark, rest = text.rpartition("://")
    if not mark:
        name, rest = PLAINTEXT, text
    host, colon, port = rest.rpartition(":")
    form = "HOST:PORT" if option == "metrics.listener" else "NAME://HOST:PORT"
    if not colon or not port.isdigit() or int(port) > 65535 or not name:
        raise ConfigError(f"Invalid value {text} for configuration {option}: expected {form}, the port from 0 to 65535")
    return Address(name.upper(), host.strip("[]"), int(port))


def planned(config: BrokerConfig) -> list[Planned]:
    """The listeners of a configuration, in its order. Raises ConfigError where Kafka does, too."""
    listeners = [parse_address(text, "listeners") for text in config["listeners"]]
    controllers = controller_names(config)
    _check_names(listeners)
    _check_ports(listeners, config["metrics.listener"])
    protocols = _protocols(config, controllers)
    needed = dict.fromkeys((*(listener.name for listener in listeners), *controllers))
    for name in needed:
        _check_protocol(name, protocols, list(needed))
    _check_roles(config, [listener.name for listener in listeners], controllers)
    told = {a.name: a for a in (parse_address(t, "advertised.listeners") for t in config["advertised.listeners"] or ())}
    names = [listener.name for listener in listeners]
    for name in sorted(told):
        if name not in (*names, *controllers):
            raise ConfigError(f"advertised.listeners names {name}, which is not among the listeners")
    found = [
        Planned(
            listener,
            told.get(listener.name, listener),
            Scope.CONTROLLER if listener.name in controllers else Scope.BROKER,
        )
        for listener in listeners
    ]
    for each in found:
        _check_advertised(each, [address.name for address in told.values()])
    between_brokers(config, [each.address.name for each in found if each.scope is Scope.BROKER])
    return found


def controller_names(config: BrokerConfig) -> list[str]:
    """The names of the controllers' listeners. Nodes reach controllers by the first one."""
    return [name.upper() for name in config["controller.listener.names"] or ()]


def between_brokers(config: BrokerConfig, names: Sequence[str]) -> str:
    """By which of the brokers' listeners other brokers reach this one; "" if there are none. Raises ConfigError.

    As in Kafka it is PLAINTEXT where nothing is said, after security.inter.broker.protocol; the first one if no
    listener has that name.
    """
    asked = config["inter.broker.listener.name"]
    if asked is not None and asked.upper() not in names:
        raise ConfigError(
            f"inter.broker.listener.name={asked} is not among the listeners of brokers: name one of {', '.join(names)}"
        )
    if asked is not None:
        return str(asked.upper())
    return PLAINTEXT if PLAINTEXT in names or not names else names[0]


def _check_roles(config: BrokerConfig, names: list[str], controllers: list[str]) -> None:
    """A broker has a listener for clients, a controller one for controllers, and neither has one of the other kind.

    A node that is alone needs none for controllers.
    """
    roles = config["process.roles"]
    ours = [name for name in names if name not in controllers]
    theirs = [name for name in names if name in controllers]
    if "broker" in roles and not ours:
        raise ConfigError("Invalid value for configuration listeners: at least one is needed, as PLAINTEXT://HOST:PORT")
    if "broker" not in roles and ours:
        raise ConfigError(
            f"listeners has {ours[0]}, which is for clients, but process.roles=controller serves none: leave it out, "
            f"or name it in controller.listener.names"
        )
    if "controller" not in roles and theirs:
        raise ConfigError(
            f"listeners has {theirs[0]}, which controller.listener.names has, too, but process.roles=broker is no "
            "controller: leave it out of listeners"
        )
    if "controller" in roles and not theirs and not is_alone(config):
        raise ConfigError(
            f"controller.listener.names={','.join(controllers)} has none of the listeners, which are "
            f"{', '.join(names)}: other nodes could not reach this controller"
        )


def _check_names(listeners: list[Address]) -> None:
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"Invalid value for configuration listeners: {names.count(name)} are called {name}: "
                "give each a name of its own, such as INSIDE://HOST:PORT"
            )


def _check_ports(listeners: list[Address], metrics: str | None) -> None:
    """Two may have one port if one address is of IPv4 and the other of IPv6, as in Kafka."""
    options = ["listeners"] * len(listeners)
    if metrics is not None:
        listeners = [*listeners, parse_address(metrics, "metrics.listener")]
        options.append("metrics.listener")
    seen: dict[int, list[tuple[str, Address]]] = {}
    for option, each in zip(options, listeners, strict=True):
        if each.port:
            seen.setdefault(each.port, []).append((option, each))
    for port, those in seen.items():
        families = [_family(each.host) for _, each in those]
        if len(those) > 1 and sorted(families) != [socket.AF_INET, socket.AF_INET6]:
            named = " and ".join(
                str(each) if option == "listeners" else f"{option}={metrics}" for option, each in those
            )
            raise ConfigError(
                f"Invalid value for configuration {those[-1][0]}: {named} have the port {port} both: "
                "give each a port of its own"
            )


def _family(host: str) -> int:
    """The family of a numeric address; 0 for a name, and for all interfaces."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, host)
            return family
    return 0


def _protocols(config: BrokerConfig, controllers: list[str]) -> dict[str, str]:
    """By name of listener."""
    protocols = {} if PROTOCOLS in config.given else dict.fromkeys(controllers, PLAINTEXT)
    for pair in filter(str.strip, config[PROTOCOLS].split(",")):
        name, colon, protocol = (part.strip().upper() for part in pair.partition(":"))
        if not colon or not name or protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(
                f"Invalid value {pair} for configuration {PROTOCOLS}: expected NAME:PROTOCOL, the protocol one of "
                f"{', '.join(SECURITY_PROTOCOLS)}"
            )
        protocols[name] = protocol
    return protocols


def _check_protocol(name: str, protocols: dict[str, str], names: list[str]) -> None:
    protocol = protocols.get(name)
    if protocol is None:
        line = ",".join(f"{each}:{protocols.get(each, PLAINTEXT)}" for each in names)
        raise ConfigError(f"No security protocol defined for listener {name}: write {PROTOCOLS}={line}")
    if protocol != PLAINTEXT:
        raise ConfigError(
            f"listener {name} has the protocol {protocol}, by {PROTOCOLS}: there is no TLS or SASL here, and only "
            f"PLAINTEXT can be served: write {name}:PLAINTEXT, or leave the listener out"
        )


def _check_advertised(listener: Planned, told: list[str]) -> None:
    name, advertised = listener.address.name, listener.advertised
    if advertised.host in ANY_HOST:
        others = "".join(f",{each}://..." for each in told if each != name)
        raise ConfigError(
            f"advertised.listeners cannot use the nonroutable meta-address {advertised.host}, which is what clients of "
            f"listener {name} would be told to connect to: write advertised.listeners={name}://HOST:"
            f"{advertised.port or 'PORT'}{others}, with a name or an address of this machine that clients can reach"
        )


async def begin_to_listen(server: asyncio.Server, where: str, option: str) -> None:
    """Have a server listen that is bound to its address; raises ListenError where another process listens there by now.

    Two processes may bind one address as long as none of them listens (SO_REUSEADDR). uvloop does not raise the error
    of a listen(2) that fails, it closes the socket.
    """
    try:
        await server.start_serving()
    except OSError as error:
        raise cannot_listen(error, where, option) from error
    if not server.sockets or not all(map(_listens, server.sockets)):
        raise cannot_listen(OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)), where, option)


def _listens(each: Any) -> bool:
    """Whether a server's socket listens. uvloop has None, or one without a descriptor, for one that was closed."""
    with contextlib.suppress(OSError, ValueError):
        return each is not None and bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    return False


async def _machine_name() -> str:
    """This machine's name for others, as by Java's getLocalHost().getCanonicalHostName(). Raises ConfigError."""
    loop, name = asyncio.get_running_loop(), socket.gethostname()
    try:
        found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        canonical, _ = await loop.getnameinfo((str(found[0][4][0]), 0))
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"the name of this machine, {name}, cannot be told to clients: {error}: write advertised.listeners="
            "PLAINTEXT://HOST:PORT"
        ) from None
    return canonical


class Server:
    """All listeners and connections of a node. Raises ConfigError for listeners that cannot be.

    listeners: for clients and brokers. controller_listeners: the others; both in the order of the configuration.
    between_brokers: the name of the listener by which other brokers reach this one; "" if it is no broker.
    """

    services: Services  # from `serve` on

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.buffers = Buffers()
        self.memory = RequestMemory(config["queued.max.request.bytes"])
        self._planned = planned(config)
        scratch = memoryview(bytearray(SCRATCH_BYTES))
        longest = config["socket.request.max.bytes"]
        scopes = dict.fromkeys((Scope.BROKER, *(each.scope for each in self._planned)))
        latencies: dict[int, Latency] = {}
        self._routes = {scope: Routes(scope, latencies) for scope in scopes}
        self._shared = {
            scope: Shared(routes, scratch, self.buffers, self.memory, longest) for scope, routes in self._routes.items()
        }
        self.unsupported_api_versions = _unsupported_route(self.routes)
        self.turn_bytes: int = config["send.turn.bytes"]
        self.is_draining = False
        self._empty: asyncio.Future[None] | None = None  # set while `drained` waits for the last connection to end
        self.closings = Closings()
        self.listeners: list[Listener] = []
        self.controller_listeners: list[Listener] = []
        self.between_brokers = between_brokers(
            config, [each.address.name for each in self._planned if each.scope is Scope.BROKER]
        )
        self._idle_ms: int = config["connections.max.idle.ms"]
        self._send_buffer_bytes: int = config["socket.send.buffer.bytes"]
        self._backlog: int = config["socket.listen.backlog.size"]
        self.far_congestion_control = b""  # of connections from other machines
        self._connections: dict[int, Connection] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def bind(self) -> None:
        """Take all addresses, so that their ports are known. No connection is accepted yet.

        Raises ListenError, and ConfigError where this machine has no name to advertise.
        """
        for each in self._planned:
            await self._listen(each)

    async def serve(self, services: Services, scope: Scope | None = None) -> None:
        """Begin to accept connections, on the listeners of one scope if it is given. Raises ListenError."""
        self.services = services
        for listener in self.every_listener:
            if scope in (None, listener.scope):
                for server in listener.sockets:
                    await begin_to_listen(server, str(listener.address), "--listen")
        if self._timer is None:
            self._arm()

    async def _listen(self, each: Planned) -> None:
        loop = asyncio.get_running_loop()
        address, advertised = each.address, each.advertised
        listener = Listener(self, address, advertised, self._shared[each.scope], each.scope)

        async def bind(host: Any) -> asyncio.Server:
            return await loop.create_server(
                lambda: Connection(listener), host, address.port, backlog=self._backlog, start_serving=False
            )

        try:
            server = await bound(bind, address.host)
        except (OSError, UnicodeError) as error:
            raise cannot_listen(error, host_and_port(address.host or "*", address.port), "--listen") from error
        listener.sockets.append(server)
        self._choose_for_accepted(server)
        port = address.port or server.sockets[0].getsockname()[1]
        listener.address = Address(address.name, address.host, port)
        told_host = advertised.host or await _machine_name()
        listener.advertised = Address(address.name, told_host, advertised.port or port)
        (self.listeners if each.scope is Scope.BROKER else self.controller_listeners).append(listener)

    @property
    def every_listener(self) -> list[Listener]:
        return [*self.listeners, *self.controller_listeners]

    @property
    def routes(self) -> Routes:
        """Those of clients and brokers."""
        return self._routes[Scope.BROKER]

    @property
    def every_route(self) -> list[Route]:
        """Those of all listeners that were made; of one version of an API there may be one for each scope."""
        return [route for routes in self._routes.values() for route in routes.values()]

    @property
    def shared(self) -> Shared:
        """What the connections of clients and brokers share."""
        return self._shared[Scope.BROKER]

    def watch(self, clock: Callable[[], int] | None, on_answered: Callable[[Any, int, Any, int], None] | None) -> None:
        """Time the requests of all listeners, and tell of each that is answered. See `Shared`."""
        for shared in self._shared.values():
            shared.clock, shared.on_answered = clock, on_answered

    def stop_listening(self, scope: Scope | None = None) -> None:
        """Accept no more connections, on the listeners of one scope if it is given."""
        for listener in self.every_listener:
            if scope in (None, listener.scope):
                for server in listener.sockets:
                    server.close()

    def begin_drain(self) -> None:
        """Take no more requests. Each connection ends once the answers that are due to it are sent."""
        self.is_draining = True
        for connection in list(self._connections.values()):
            if connection.is_idle:
                connection.close()

    async def drained(self, timeout_s: float) -> int:
        """Wait until all answers are sent, but no longer than so many seconds. Gives how many connections are left."""
        if self._connections:
            self._empty = asyncio.get_running_loop().create_future()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty, timeout_s)
        return len(self._connections)

    def close_connections(self) -> None:
        """End all connections at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.closings.summarise()
        for connection in list(self._connections.values()):
            connection.close()

    def _choose_for_accepted(self, server: asyncio.Server) -> None:
        """Connections inherit what the socket has that accepts them."""
        for each in server.sockets:
            self.far_congestion_control = accept_unpaced(each) or self.far_congestion_control
            if self._send_buffer_bytes >= 0 and hasattr(each, "setsockopt"):  # the simulator's has none
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)

    # --- for its connections ------------------------------------------------------------------------------------------

    def add(self, connection: Connection) -> bool:
        """False when there are as many connections as may be."""
        most = self.config["max.connections"]  # may change while the broker runs
        if len(self._connections) >= most:
            reason = f"there are max.connections={most} already"
            self.closings.tell(connection.context.client_host, reason, logging.WARNING)
            return False
        self._connections[id(connection)] = connection
        connection.listener.connections += 1
        connection.listener.taken += 1
        return True

    def remove(self, connection: Connection) -> None:
        if self._connections.pop(id(connection), None) is not None:
            connection.listener.connections -= 1
            if self._empty is not None and not self._connections and not self._empty.done():
                self._empty.set_result(None)

    # --- idle connections ---------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._idle_ms / 1000 / TICKS, self._look_for_idle)

    def _look_for_idle(self) -> None:
        for shared in self._shared.values():
            shared.tick += 1
        self.buffers.trim()
        self.closings.summarise()
        for connection in list(self._connections.values()):
            connection.close_if_idle(TICKS)
        self._arm()


def _unsupported_route(routes: dict[int, Route]) -> Route:
    """ApiVersions as version 0, with the error that the version is not supported."""
    from .apis import api_versions

    plain = routes[18 << 16]
    route = Route(plain.api, 0, api_versions.handle_unsupported, plain.latency)
    route.encode = plain.encode
    return route
