"""Requests of this broker to other brokers, and to itself: markers of transactions, and what asks their coordinators.

There is one connection to each broker, made when it is needed, over which requests do not wait for each other. What is
for this node is given to its handler, without a network. A request is tried once: who asks knows whether it may be
asked again, and of whom.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ..client.connection import Connection, close_all, connect
from ..client.errors import ConnectionLost, RequestTimeout, UnsupportedVersion
from ..protocol.errors import ErrorCode, KafkaError

Local = Callable[[Any], Awaitable[Any]]


class BrokerChannels:
    """name: of these connections, for the logs of others. address_of: HOST:PORT of a broker's inter-broker listener;
    None if it is not alive. local: answers a request of this node to itself."""

    def __init__(self, name: str, node_id: int, address_of: Callable[[int], str | None], local: Local) -> None:
        self._client_id = f"{node_id}-{name}"
        self._node_id = node_id
        self._address_of = address_of
        self._local = local
        self._connecting: dict[int, tuple[str, asyncio.Task[Connection]]] = {}  # by broker: address, connection

    async def request(self, broker_id: int, message: Any, timeout_ms: float, *, least_version: int = 0) -> Any:
        """A broker's answer to a request message, in the highest version that both know.

        Raises KafkaError: BROKER_NOT_AVAILABLE where the broker is not alive, NETWORK_EXCEPTION where there is no
        connection or it is lost, REQUEST_TIMED_OUT, UNSUPPORTED_VERSION. Other errors are in the answer.
        """
        api = type(message).API
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if broker_id == self._node_id:
                    return await self._local(message)
                address = self._address_of(broker_id)
                if address is None:
                    raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not alive")
                connection = await self._connection(broker_id, address, timeout_ms)
                version = connection.version_of(api)
                if version < least_version:
                    raise UnsupportedVersion(f"broker {broker_id} supports {api.name} up to {version}")
                return await connection.request(api, message, timeout_ms, version)
        except (TimeoutError, RequestTimeout):
            reason = f"broker {broker_id} did not answer {api.name} within {timeout_ms:.0f} ms"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason) from None
        except UnsupportedVersion as error:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
        except ConnectionLost as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from None

    def metadata_changed(self) -> None:
        """Requests to brokers that are not alive any more, or elsewhere, fail with NETWORK_EXCEPTION: one that hangs
        would keep those who ask until their time is over, though others do its work by now."""
        for broker_id, (address, connecting) in list(self._connecting.items()):
            if self._address_of(broker_id) != address:
                del self._connecting[broker_id]
                if (found := _drop(connecting)) is not None:
                    found.close(ConnectionLost(f"broker {broker_id} is not alive at {address} any more"))

    async def close(self) -> None:
        """Close the connections. Requests without an answer fail with NETWORK_EXCEPTION."""
        lines, self._connecting = self._connecting, {}
        await close_all([found for _, task in lines.values() if (found := _drop(task)) is not None])

    async def _connection(self, broker_id: int, address: str, timeout_ms: float) -> Connection:
        """One is made for all that ask meanwhile."""
        known = self._connecting.get(broker_id)
        if known is None or known[0] != address or _is_over(known[1]):
            if known is not None and (found := _drop(known[1])) is not None:
                found.close()
            connecting = asyncio.get_running_loop().create_task(
                connect(address, self._client_id, timeout_ms), name=f"{self._client_id}: connection to {broker_id}"
            )
            self._connecting[broker_id] = known = address, connecting
        await asyncio.wait([known[1]])
        if known[1].cancelled():
            raise ConnectionLost(f"broker {broker_id} is not at {address} any more")
        return known[1].result()


def _is_over(connecting: asyncio.Task[Connection]) -> bool:
    """Whether there is no connection, and will be none."""
    if not connecting.done():
        return False
    return connecting.cancelled() or connecting.exception() is not None or not connecting.result().alive


def _drop(connecting: asyncio.Task[Connection]) -> Connection | None:
    """The connection to be closed, if one was made; else none will be."""
    connecting.cancel()
    if not connecting.done() or connecting.cancelled() or connecting.exception() is not None:
        return None
    return connecting.result()
