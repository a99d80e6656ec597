"""Connections to the other members of the quorum: two to each that is talked to, one for fetches, which wait there.

A member answers a connection's requests in order, so a vote must not stand behind a fetch that waits. A request whose
answer is not wanted any more may still be under way; the next one then gets a new connection.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from ....client.connection import Connection, close_all, connect, host_and_port
from ....client.errors import ConnectionLost, RequestTimeout, UnsupportedVersion
from ....protocol.messages import fetch, fetch_snapshot
from ....protocol.schema import Api
from ..raft.voters import Endpoint

FETCHES = (fetch.API.key, fetch_snapshot.API.key)


class Peers(Protocol):
    """How other members are reached."""

    async def request(self, node: Endpoint, api: Api, message: Any, timeout_ms: float, least_version: int = 0) -> Any:
        """Send a request and wait for its answer.

        Raises ConnectionLost, also if there is no connection to be had, RequestTimeout, UnsupportedVersion.
        """

    async def close(self) -> None: ...


class ConnectionPeers:
    """Peers over connections of the client. client_id: names this node to the others."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._lines: dict[tuple[str, bool], _Line] = {}

    async def request(self, node: Endpoint, api: Api, message: Any, timeout_ms: float, least_version: int = 0) -> Any:
        address = host_and_port(node.host, node.port)
        key = (address, api.key in FETCHES)
        line = self._lines.setdefault(key, _Line(address, self._client_id))
        return await line.request(api, message, timeout_ms, least_version)

    async def close(self) -> None:
        lines, self._lines = self._lines, {}
        await close_all([line.connection for line in lines.values() if line.connection is not None])


class _Line:
    """One connection to a member, made when it is needed."""

    def __init__(self, address: str, client_id: str) -> None:
        self.address = address
        self.client_id = client_id
        self.connection: Connection | None = None
        self._is_busy = False
        self._turn = 0

    async def request(self, api: Api, message: Any, timeout_ms: float, least_version: int) -> Any:
        self._turn += 1
        turn = self._turn
        if self._is_busy and self.connection is not None:
            self.connection.close()
            self.connection = None
        self._is_busy = True
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connection = self.connection
                if connection is None or not connection.alive:
                    connection = await connect(self.address, self.client_id, timeout_ms)
                    if self._turn != turn:
                        connection.close()
                        raise ConnectionLost(f"{self.address}: a later request took the place of this one")
                    self.connection = connection
                version = connection.version_of(api)
                if version < least_version:
                    raise UnsupportedVersion(f"{self.address} supports {api.name} up to {version}")
                return await connection.request(api, message, timeout_ms, version)
        except TimeoutError:
            raise RequestTimeout(f"{self.address} did not answer {api.name} in time") from None
        finally:
            if self._turn == turn:
                self._is_busy = False
