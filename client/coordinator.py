"""Who coordinates a group or a transactional id, and the way to it: looked up when it is first needed, and again after
it moved or failed (KIP-98). Nothing else is decided here; what an answer says is its caller's business."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import find_coordinator
from .cluster import REQUEST_TIMEOUT_MS, Client
from .errors import ClientError, ConnectionLost
from .operation import API_TIMEOUT_MS, SILENT_S

log = logging.getLogger("isthmus.client")

GROUP, TRANSACTION = 0, 1  # key types
NAMES = ("group", "transactional id")
STATE_TOPICS = ("__consumer_offsets", "__transaction_state")
SAY_AFTER_S = 3.0  # without a coordinator: shorter times, such as a restart of its broker, are not logged
COORDINATOR_GONE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class Coordinator:
    """Of one group or transactional id. lane: of the connection to it. node: as last looked up, None if unknown."""

    def __init__(self, client: Client, key: str, lane: str = "main", key_type: int = GROUP) -> None:
        self.client = client
        self.key = key
        self.key_type = key_type
        self.name = f"{NAMES[key_type]} {key}"  # in errors
        self.lane = lane
        self.node: int | None = None
        self._lost_at: float | None = None  # loop time since which no coordinator was found
        self._is_logged = False  # that was logged

    def heard(self, code: int) -> None:
        """Note whether an answer of the coordinator shows that it still is, or again is, the coordinator."""
        if code in COORDINATOR_GONE:
            self._lost(KafkaError.of(code).name)
            return
        if self._is_logged:
            seconds = asyncio.get_running_loop().time() - (self._lost_at or 0.0)
            log.warning("%s has a coordinator again, after %.0f s", self.name, seconds)
        self._lost_at, self._is_logged = None, False

    def _lost(self, why: object) -> None:
        """Look up the coordinator again. That may take for ever, so it is logged, once."""
        self.node = None
        now = asyncio.get_running_loop().time()
        if self._lost_at is None:
            self._lost_at = now
        elif now - self._lost_at >= SAY_AFTER_S and not self._is_logged:
            self._is_logged = True
            log.warning(
                "%s has no coordinator (%s): waiting for one. Its partition of %s may be offline, or its broker down",
                self.name,
                why,
                STATE_TOPICS[self.key_type],
            )

    async def find(self, timeout_ms: float = API_TIMEOUT_MS) -> int:
        """The coordinator's node. Raises KafkaError if there is none within the time."""
        if self.node is not None:
            return self.node
        request = self._question()
        async with self.client.operation(f"coordinator of {self.name}", timeout_ms) as operation:
            while True:
                try:
                    [found] = (await self.client.ask_any(request, operation.patience_s)).coordinators
                    if not found.error_code:
                        self.client.nodes[found.node_id] = f"{found.host}:{found.port}"
                        self.node = found.node_id
                        return found.node_id
                    told = found.error_message or KafkaError.of(found.error_code).name
                    error = KafkaError.of(found.error_code, f"{self.name}: {told}")
                except ClientError as failed:
                    if not failed.retriable:
                        raise
                    told = str(failed)
                    error = KafkaError.of(
                        ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name} has no coordinator: {told}"
                    )
                if error.retriable:
                    self._lost(told)
                await operation.again(error)

    def _question(self) -> Any:
        return find_coordinator.Request(key_type=self.key_type, coordinator_keys=[self.key])

    async def _watch(self, node: int, lane: str) -> None:
        """The coordinator owes an answer. As soon as there is another coordinator, nothing is waited for any more."""
        attempt = 0
        while True:
            try:
                [found] = (await self.client.ask_any(self._question(), SILENT_S)).coordinators
            except (ClientError, KafkaError):
                pass  # nobody can tell now
            else:
                connection = self.client.open_connection(node, lane)
                if not found.error_code and found.node_id != node and connection is not None:
                    now = f"node {found.node_id} coordinates {self.name} now"
                    connection.close(ConnectionLost(f"{connection.address} owes an answer, and {now}"))
                    return
            await self.client.back_off(attempt)
            attempt += 1

    async def ask(
        self,
        message: Any,
        timeout_ms: float = REQUEST_TIMEOUT_MS,
        most_version: int | None = None,
        lane: str | None = None,
    ) -> Any:
        """Send a request to the coordinator, which is first looked up if it is unknown; both within the time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        node = await self.find(timeout_ms)
        remaining_ms = (deadline - loop.time()) * 1000
        lane = lane or self.lane
        watch: asyncio.Task[None] | None = None

        def begin_to_watch() -> None:
            nonlocal watch
            watch = loop.create_task(self._watch(node, lane), name=f"{self.client.client_id} watches {self.name}")

        timer = loop.call_later(SILENT_S, begin_to_watch)
        try:
            return await self.client.request(message, node, remaining_ms, lane, most_version)
        except ClientError as error:
            self._lost(error)
            raise
        finally:
            timer.cancel()
            if watch is not None:
                watch.cancel()
