"""The way to the active controller: requests that it alone decides are sent to it, wherever it is.

On the node that is the active controller itself, a request is given to its handler, without a network. Elsewhere it
goes over one connection to the controller's listener, which is made when it is needed. Who is no controller any more
says NOT_CONTROLLER; then, and after a lost connection, the request is sent again, to whoever leads by then, until the
caller's time is over. So it may be executed twice, as with Kafka's NodeToControllerChannelManager.

A controller answers the requests of a connection in order. What must not stand behind others has a channel of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from ..client.connection import Connection, close_all, connect
from ..client.errors import ConnectionLost, UnsupportedVersion
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.schema import Struct
from .pauses import Pauses

MAX_WAITING = 10_000  # requests of a channel that have no answer yet
MAX_IN_FLIGHT = 16  # of them on the connection; the others wait
RETRY_S = 0.05  # between two tries of a request, unless the leader changes before
CONNECT_TIMEOUT_MS = 5_000
ANSWER_TIMEOUT_MS = 30_000  # by default, see controller.socket.timeout.ms
ERROR_CODE = "error_code"

Leader = Callable[[], tuple[int, str] | None]
Local = Callable[[Any], Awaitable[Any]]

log = logging.getLogger(__name__)


class ControllerChannel:
    """leader: (node id, HOST:PORT) of the active controller as far as it is known.

    local: answers a request where this node is the active controller. name: of this channel, for log lines.
    answer_timeout_ms: a controller without an answer for so long is given up, whatever time the callers have. on_lost:
    called when a connection is over.
    """

    def __init__(
        self, name: str, node_id: int, leader: Leader, local: Local, answer_timeout_ms: int = ANSWER_TIMEOUT_MS
    ) -> None:
        self._name = name
        self._node_id = node_id
        self._leader = leader
        self._local = local
        self._answer_timeout_ms = answer_timeout_ms
        self.on_lost: Callable[[], None] = lambda: None
        self._waiting = 0
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._pauses = Pauses()
        self._said = ""  # the last line of the log, which is not repeated
        self._address = ""
        self._connecting: asyncio.Task[Connection] | None = None  # to _address; done once there is a connection

    @property
    def is_closed(self) -> bool:
        return self._pauses.is_stopping

    async def request(self, message: Any, timeout_ms: float) -> Any:
        """The active controller's answer to a request message, in the highest version that it supports.

        Raises KafkaError: REQUEST_TIMED_OUT if there is no answer in time, or if too many wait already;
        UNSUPPORTED_VERSION; NOT_CONTROLLER if the channel is closed. Other errors are in the answer.
        """
        name = type(message).API.name
        if self._waiting >= MAX_WAITING:
            reason = f"{MAX_WAITING} requests already wait for the controller"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason)
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._until_answered(message)
        except TimeoutError:
            leader = self._leader()
            who = "no controller is known" if leader is None else f"node {leader[0]} at {leader[1]} is the controller"
            reason = f"the controller did not answer {name} within {timeout_ms:.0f} ms: {who}"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason) from None
        except UnsupportedVersion as error:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
        finally:
            self._waiting -= 1

    def leader_changed(self) -> None:
        """There is another active controller, or none: what waits is sent to that one."""
        leader = self._leader()
        if self._connecting is not None and (leader is None or leader[1] != self._address):
            self._drop()
        self._pauses.wake()

    async def close(self) -> None:
        """Fail what waits, and close the connection."""
        self._pauses.stop()
        connection = self._drop()
        if connection is not None:
            await close_all([connection])

    async def _until_answered(self, message: Any) -> Any:
        while not self._pauses.is_stopping:
            leader = self._leader()
            if leader is not None:
                try:
                    if leader[0] == self._node_id:
                        answer = await self._local(message)
                    else:
                        async with self._slots:
                            answer = await self._exchange(leader[1], message)
                except ConnectionLost as error:
                    self._say(str(error))
                else:
                    if not has_error(answer, ErrorCode.NOT_CONTROLLER):
                        self._said = ""
                        return answer
            if leader is None or leader == self._leader():
                await self._pauses.pause(RETRY_S)
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "the broker is stopping")

    def _say(self, what: str) -> None:
        if what != self._said:
            self._said = what
            log.info("%s: %s", self._name, what)

    async def _exchange(self, address: str, message: Any) -> Any:
        """Raises ConnectionLost, UnsupportedVersion."""
        connection = await self._connection(address)
        return await connection.request(type(message).API, message, self._answer_timeout_ms)

    async def _connection(self, address: str) -> Connection:
        """One is made for all that ask meanwhile."""
        connecting = self._connecting
        if connecting is None or address != self._address or _is_over(connecting):
            self._drop()
            client_id = f"{self._node_id}-{self._name}"
            connecting = asyncio.get_running_loop().create_task(
                connect(address, client_id, CONNECT_TIMEOUT_MS), name=f"{self._name}: connection to the controller"
            )
            connecting.add_done_callback(self._connected)
            self._connecting, self._address = connecting, address
        await asyncio.wait([connecting])
        if connecting.cancelled():
            raise ConnectionLost(f"{address} is not the controller any more")
        return connecting.result()

    def _connected(self, connecting: asyncio.Task[Connection]) -> None:
        if not connecting.cancelled() and connecting.exception() is None:  # that is told to those who still wait
            connecting.result().lost.add_done_callback(lambda _: self.on_lost())

    def _drop(self) -> Connection | None:
        """Forget the connection, and close it. Requests without an answer fail with ConnectionLost."""
        connecting, self._connecting = self._connecting, None
        if connecting is None:
            return None
        connecting.cancel()
        if not connecting.done() or _is_over(connecting):
            return None
        connecting.result().close()
        return connecting.result()


def _is_over(connecting: asyncio.Task[Connection]) -> bool:
    """Whether there is no connection, and will be none."""
    if not connecting.done():
        return False
    return connecting.cancelled() or connecting.exception() is not None or not connecting.result().alive


def has_error(message: Struct | None, code: int) -> bool:
    """Whether an answer has this error code, at its top or of anything in it."""
    if message is None:
        return False
    for name in _with_errors(type(message)):
        value = getattr(message, name)
        if isinstance(value, list):
            if any(has_error(each, code) for each in value):
                return True
        elif value == code if name == ERROR_CODE else has_error(value, code):
            return True
    return False


@cache
def _with_errors(struct: type[Struct]) -> tuple[str, ...]:
    """The fields that are an error code, or in which there are some: the options of a created topic are not."""
    return tuple(
        field.name
        for field in struct.FIELDS
        if field.name == ERROR_CODE or (field.struct is not None and _with_errors(field.struct))
    )
