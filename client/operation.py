"""The time limit of one operation. The caller's deadline is the only one; it includes all requests, pauses and retries.

    async with client.operation("commit of group g", timeout_ms) as operation:
        while True:
            try:
                return await attempt()
            except (ClientError, KafkaError) as error:
                await operation.again(error)

An operation inside another one of the same task ends with the outer one at the latest. The default is Kafka's
`default.api.timeout.ms` (KIP-266): twice the limit of a request, so that one hanging broker leaves time for a retry.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Protocol

from ..protocol.errors import KafkaError
from .errors import ClientError, OperationTimeout

API_TIMEOUT_MS = 60_000  # default of an operation
SILENT_S = 2.0  # a broker that owes an answer for this long may hang: if there is another one, it is asked instead
PATIENCE_MAX_S = 30.0
CLOSE_TIMEOUT_MS = 30_000  # default of a `close()`, as in Kafka's consumer

_current: ContextVar[Operation | None] = ContextVar("operation", default=None)


class Owner(Protocol):
    """What an operation needs of its `Client`."""

    operations: dict[Operation, None]

    async def back_off(self, attempt: int) -> None: ...


class Operation:
    """Made by `Client.operation`. At its deadline it raises the error of the last attempt: a KafkaError keeps its code,
    other errors become OperationTimeout. `Client.close` ends it at once with ClientClosed."""

    def __init__(self, client: Owner, what: str, timeout_ms: float) -> None:
        self.client = client
        self.what = what
        self.timeout_ms = max(0.0, timeout_ms)
        self.deadline = 0.0  # loop time, from `async with` on
        self._attempts = 0
        self._failure: Exception | None = None  # of the last attempt, also in an inner operation
        self._closed: Exception | None = None
        self._outer: Operation | None = None
        self._task: asyncio.Task[object] | None = None
        self._timeout: asyncio.Timeout
        self._token: Token[Operation | None]

    @property
    def remaining_ms(self) -> float:
        return max(0.0, (self.deadline - asyncio.get_running_loop().time()) * 1000)

    @property
    def patience_s(self) -> float:
        """How long this attempt waits for one broker where any can be asked: longer each time, for slow ones."""
        return min(SILENT_S * 2.0 ** min(self._attempts, 10), PATIENCE_MAX_S)

    async def __aenter__(self) -> Operation:
        self._task = asyncio.current_task()
        self.deadline = asyncio.get_running_loop().time() + self.timeout_ms / 1000
        outer = _current.get()
        if outer is not None and outer._task is self._task:  # a task inherits its creator's context, but not its time
            self._outer = outer
        if self._outer is not None and self._outer.deadline <= self.deadline:
            self.deadline = self._outer.deadline
            self._timeout = asyncio.timeout(None)
        else:
            self._timeout = asyncio.timeout_at(self.deadline)
        await self._timeout.__aenter__()
        self._token = _current.set(self)
        self.client.operations[self] = None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self.client.operations[self]
        _current.reset(self._token)
        self._outer = self._task = None
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            raise self._closed or self._ended() from None

    def end(self, error: Exception) -> None:
        """Raise `error` in the operation on the next turn of the loop; nothing if it has ended by then."""
        if not self._timeout.expired():
            self._closed = error
            self._timeout.reschedule(asyncio.get_running_loop().time())

    async def again(self, error: ClientError | KafkaError, pause_ms: float | None = None) -> None:
        """Pause before the next attempt: for pause_ms, or longer each time. Raises `error` if another attempt cannot
        help."""
        if not error.retriable:
            raise error
        await self.pause(error, pause_ms)

    async def pause(self, error: ClientError | KafkaError, pause_ms: float | None = None) -> None:
        """Pause before the next attempt after an error that another attempt may help, whatever it says itself: for
        pause_ms, or longer each time."""
        operation: Operation | None = self
        while operation is not None:
            operation._failure = error
            operation = operation._outer
        if pause_ms is not None:
            await asyncio.sleep(pause_ms / 1000)
            return
        await self.client.back_off(self._attempts)
        self._attempts += 1

    def _ended(self) -> Exception:
        said = f"{self.what}: not done within {self.timeout_ms:.0f} ms"
        if isinstance(self._failure, KafkaError):
            return KafkaError.of(self._failure.code, f"{said}: {self._failure.message}")
        return OperationTimeout(f"{said}: {self._failure or 'no answer came: is a broker overloaded or hung?'}")
