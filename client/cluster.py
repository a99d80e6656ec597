"""`Client`: a cluster as seen from outside. Finds brokers, keeps metadata, sends each request where it belongs.

One connection to a broker for requests, made when first needed and made again after it broke; fetches that wait on the
broker get a connection of their own, since a broker answers one request of a connection at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import metadata
from ..protocol.primitives import ZERO_UUID
from ..runtime import Runtime, system
from .connection import Connection, connect
from .errors import ClientError, ConnectionLost
from .types import TopicPartition

CONNECT_TIMEOUT_MS = 10_000
REQUEST_TIMEOUT_MS = 30_000
BACKOFF_MIN_MS, BACKOFF_MAX_MS = 50, 2_000
START_TIMEOUT_MS = 30_000
METADATA_MAX_AGE_S = 300.0  # then all topics in use are asked about again
METADATA_ATTEMPTS = 3
TOPICS_MAX = 10_000  # whose metadata is kept


@dataclass
class TopicMetadata:
    """What the cluster says of one topic."""

    topic_id: bytes = ZERO_UUID
    leaders: dict[int, int] = field(default_factory=dict)  # partition -> node; -1: none
    epochs: dict[int, int] = field(default_factory=dict)


class Client:
    """A cluster by its bootstrap addresses, `HOST:PORT` with commas between."""

    def __init__(self, bootstrap: str, client_id: str = "isthmus", runtime: Runtime | None = None) -> None:
        self.bootstrap = [address.strip() for address in bootstrap.split(",") if address.strip()]
        for address in self.bootstrap:
            host, _, port = address.rpartition(":")
            if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= 65_535:
                raise ClientError(f"'{address}' is not HOST:PORT, such as 127.0.0.1:9092")
        if not self.bootstrap:
            raise ClientError("no bootstrap address was given: write HOST:PORT")
        self.client_id = client_id
        self.runtime = runtime or system()
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, str] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self._connections: dict[tuple[int, str], Connection] = {}  # (node or -1, lane)
        self._connecting: dict[tuple[int, str], asyncio.Lock] = {}
        self._lanes = 0
        self._closed = False
        self._age_timer: asyncio.TimerHandle | None = None
        self._age_task: asyncio.Task[None] | None = None

    # --- Life ---------------------------------------------------------------------------------------

    async def start(self, timeout_ms: float = START_TIMEOUT_MS) -> None:
        """Connect to one of the bootstrap addresses; tries for timeout_ms, then raises ConnectionLost."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        attempt = 0
        while True:
            try:
                await self.refresh_metadata([], attempts=1)
                self._age_timer = loop.call_later(METADATA_MAX_AGE_S, self._aged)
                return
            except ConnectionLost as error:
                if self._closed or loop.time() > deadline:
                    raise ConnectionLost(f"no broker of {', '.join(self.bootstrap)} answers: {error}") from None
                await self.back_off(attempt)
                attempt += 1

    async def close(self) -> None:
        """Close all connections; nothing of the client is left in the loop when this returns."""
        self._closed = True
        if self._age_timer is not None:
            self._age_timer.cancel()
        if self._age_task is not None:
            self._age_task.cancel()
            await asyncio.gather(self._age_task, return_exceptions=True)
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.closed()

    def new_lane(self, what: str) -> str:
        """A name for connections of one user's own."""
        self._lanes += 1
        return f"{what} {self._lanes}"

    async def close_lane(self, lane: str) -> None:
        """Close the connections of a lane that nobody uses any more."""
        for key in [key for key in self._connecting if key[1] == lane]:
            del self._connecting[key]
            if connection := self._connections.pop(key, None):
                connection.close()
                await connection.closed()

    async def back_off(self, attempt: int) -> None:
        """Sleep before attempt number `attempt` + 1: doubling, with jitter."""
        ms = min(BACKOFF_MIN_MS * 2 ** min(attempt, 10), BACKOFF_MAX_MS)
        await asyncio.sleep(self.runtime.jittered(ms) / 1000)

    # --- Connections --------------------------------------------------------------------------------

    async def connection(self, node_id: int | None = None, lane: str = "main") -> Connection:
        """A live connection to a node; None: to any. `lane` keeps what waits apart from what must not."""
        if self._closed:
            raise ConnectionLost(f"client {self.client_id} is closed")
        key = (-1 if node_id is None else node_id, lane)
        if (found := self._connections.get(key)) and found.alive:
            return found
        if node_id is None:
            for (_, other_lane), found in self._connections.items():
                if other_lane == lane and found.alive:
                    return found
        async with self._connecting.setdefault(key, asyncio.Lock()):
            if (found := self._connections.get(key)) and found.alive:
                return found
            made = await self._connect(node_id)
            if self._closed:
                made.close()
                raise ConnectionLost(f"client {self.client_id} is closed")
            self._connections[key] = made
            return made

    def open_connection(self, node_id: int, lane: str = "main") -> Connection | None:
        """The connection to a node if there is one now."""
        found = self._connections.get((node_id, lane))
        return found if found is not None and found.alive else None

    async def _connect(self, node_id: int | None) -> Connection:
        if node_id is not None:
            address = self.nodes.get(node_id)
            if address is None:
                raise ConnectionLost(f"node {node_id} is not in the cluster's metadata")
            return await connect(address, self.client_id, CONNECT_TIMEOUT_MS)
        known = [self.nodes[node] for node in sorted(self.nodes)]
        self.runtime.random.shuffle(known)
        addresses = list(dict.fromkeys([*known, *self.bootstrap]))
        error: Exception = ConnectionLost("no address")
        for address in addresses:
            try:
                return await connect(address, self.client_id, CONNECT_TIMEOUT_MS)
            except ClientError as failed:
                error = failed
        raise error

    async def request(
        self,
        message: Any,
        node_id: int | None = None,
        timeout_ms: float = REQUEST_TIMEOUT_MS,
        lane: str = "main",
        most_version: int | None = None,
    ) -> Any:
        """Send a request message and give its answer. No retry: what may be done twice is the caller's to know."""
        connection = await self.connection(node_id, lane)
        api = type(message).API
        return await connection.request(api, message, timeout_ms, connection.version_of(api, most_version))

    def supports(self, key: int) -> bool:
        """Whether the brokers met so far list a request."""
        known = [c for c in self._connections.values() if c.alive]
        return bool(known) and all(key in connection.versions for connection in known)

    # --- Metadata -----------------------------------------------------------------------------------

    async def refresh_metadata(
        self, topics: Iterable[str] | None = None, create: bool = False, attempts: int = METADATA_ATTEMPTS
    ) -> None:
        """Ask the cluster about topics; None: about those known already. Topics are made only with `create`.

        A topic that does not exist has no partitions afterwards. Raises ConnectionLost when no broker answers.
        """
        names = sorted(self.topics) if topics is None else list(topics)
        message = metadata.Request(
            topics=[metadata.MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=create
        )
        for attempt in range(attempts):
            try:
                answer = await self.request(message)
                break
            except ConnectionLost:
                if self._closed or attempt == attempts - 1:
                    raise
            await self.back_off(attempt)
        if answer.error_code:
            raise KafkaError.of(answer.error_code, f"metadata of {', '.join(names) or 'the cluster'}")
        self.learn(answer)

    def _aged(self) -> None:
        async def refresh() -> None:
            try:
                await self.refresh_metadata()
            except (ClientError, KafkaError):
                pass  # who needs it asks again

        loop = asyncio.get_running_loop()
        self._age_timer = loop.call_later(METADATA_MAX_AGE_S, self._aged)
        self._age_task = loop.create_task(refresh(), name=f"{self.client_id} metadata")

    def learn(self, answer: Any) -> None:
        """Take a metadata answer in."""
        self.nodes = {each.node_id: f"{each.host}:{each.port}" for each in answer.brokers} or self.nodes
        self.cluster_id = answer.cluster_id or self.cluster_id
        self.controller_id = answer.controller_id
        for topic in answer.topics:
            if topic.name is None:
                continue
            if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                self.topics.pop(topic.name, None)
                continue
            if topic.error_code and not topic.partitions:
                continue  # such as LEADER_NOT_AVAILABLE: what was known stays
            if len(self.topics) >= TOPICS_MAX and topic.name not in self.topics:
                raise ClientError(f"metadata of more than {TOPICS_MAX} topics: use a client for each part of them")
            self._learn_topic(topic)

    def _learn_topic(self, topic: Any) -> None:
        """A broker that is behind may tell of an older leader than another did before: the newer epoch counts."""
        known = self.topics.get(topic.name)
        if known is not None and known.topic_id != topic.topic_id:
            known = None
        found = self.topics[topic.name] = TopicMetadata(topic.topic_id)
        for each in topic.partitions:
            index = each.partition_index
            if known is not None and 0 <= each.leader_epoch < known.epochs.get(index, -1):
                found.leaders[index], found.epochs[index] = known.leaders[index], known.epochs[index]
            else:
                found.leaders[index], found.epochs[index] = each.leader_id, each.leader_epoch

    async def wait_for_topics(self, topics: Sequence[str], timeout_ms: float = 5_000) -> list[str]:
        """Refresh until each of these has partitions with leaders; those that have not when the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        attempt = 0
        while True:
            await self.refresh_metadata(topics)
            missing = [
                name
                for name in topics
                if not self.partitions(name)
                or any(self.leader(TopicPartition(name, p)) is None for p in self.partitions(name))
            ]
            if not missing or loop.time() > deadline:
                return missing
            await self.back_off(attempt)
            attempt = min(attempt + 1, 3)

    def partitions(self, topic: str) -> list[int]:
        """Partition numbers as last refreshed; empty when the topic is not known."""
        found = self.topics.get(topic)
        return sorted(found.leaders) if found else []

    def leader(self, tp: TopicPartition) -> int | None:
        """Node that leads a partition, as last refreshed."""
        found = self.topics.get(tp[0])
        node = found.leaders.get(tp[1], -1) if found else -1
        return node if node in self.nodes else None

    def leader_epoch(self, tp: TopicPartition) -> int:
        found = self.topics.get(tp[0])
        return found.epochs.get(tp[1], -1) if found else -1

    def topic_id(self, topic: str) -> bytes | None:
        """None when the topic is not known or the cluster has no ids."""
        found = self.topics.get(topic)
        return found.topic_id if found and found.topic_id != ZERO_UUID else None

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((name for name, each in self.topics.items() if each.topic_id == topic_id), None)

    async def leader_of(self, tp: TopicPartition) -> int:
        """Node that leads a partition, asked for when it is not known. Raises KafkaError."""
        for attempt in range(LEADER_ATTEMPTS):
            if (node := self.leader(tp)) is not None:
                return node
            await self.refresh_metadata([tp[0]])
            if tp[0] not in self.topics or tp[1] not in self.topics[tp[0]].leaders:
                raise KafkaError.of(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {tp[0]}-{tp[1]} in the cluster"
                )
            if self.leader(tp) is None:
                await self.back_off(attempt)
        raise KafkaError.of(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp[0]}-{tp[1]} has no leader: is its broker down?")


LEADER_ATTEMPTS = 8
