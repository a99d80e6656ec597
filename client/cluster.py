"""`Client`: a cluster as seen from outside. Finds brokers, keeps metadata, and sends each request to the right broker.

There is one connection to each broker for requests, made when first needed and again after it breaks. Fetches that wait
at the broker have their own connection, since a broker answers the requests of a connection one at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import metadata
from ..protocol.primitives import ZERO_UUID
from ..runtime import Runtime, system
from .connection import Connection, close_all, connect
from .errors import ClientClosed, ClientError, ConnectionLost, RequestTimeout, no_topic
from .operation import API_TIMEOUT_MS, Operation
from .types import TopicPartition

log = logging.getLogger("isthmus.client")

CONNECT_TIMEOUT_MS = 10_000  # to one address
REQUEST_TIMEOUT_MS = 30_000
BACKOFF_MIN_MS, BACKOFF_MAX_MS = 100, 1_000  # Kafka's retry.backoff.ms and retry.backoff.max.ms
START_TIMEOUT_MS = 30_000
TOLD_AFTER_S = 3.0  # who waits in `start` is told that nobody answers
METADATA_MAX_AGE_S = 300.0  # then the metadata of all topics in use is refreshed
REBOOTSTRAP_MS = 300_000  # Kafka's metadata.recovery.rebootstrap.trigger.ms
HEDGE_S = 0.5  # a broker that owes an answer for this long is not asked what another one can answer, too
TOPICS_MAX = 10_000  # kept in the metadata
NAMES_SHOWN = 5  # topics named in an error


@dataclass
class TopicMetadata:
    """The metadata of one topic."""

    topic_id: bytes = ZERO_UUID
    leaders: dict[int, int] = field(default_factory=dict)  # partition -> node; -1: none
    epochs: dict[int, int] = field(default_factory=dict)


class NoOtherBroker(ConnectionLost):
    """All addresses were tried."""


class Client:
    """A cluster, given by bootstrap addresses: comma-separated `HOST:PORT`.

    It starts again from these addresses, with their names resolved anew, when no broker that it knows can be reached
    (KIP-899), when none has answered a metadata request for rebootstrap_ms, or one says so (KIP-1102)."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str = "isthmus",
        runtime: Runtime | None = None,
        *,
        rebootstrap_ms: float = REBOOTSTRAP_MS,
    ) -> None:
        self.bootstrap = [address.strip() for address in bootstrap.split(",") if address.strip()]
        for address in self.bootstrap:
            host, _, port = address.rpartition(":")
            if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= 65_535:
                raise ClientError(f"'{address}' is not HOST:PORT, such as 127.0.0.1:9092")
        if not self.bootstrap:
            raise ClientError("no bootstrap address was given: write HOST:PORT")
        self.client_id = client_id
        self.runtime = runtime or system()
        self._rebootstrap_s = rebootstrap_ms / 1000
        self._unreached: dict[str, None] = {}  # addresses whose last attempt of a connection has failed, or goes on
        self._unanswered_since: float | None = None  # loop time of the first metadata request since the last answer
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, str] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self._connections: dict[tuple[int, str], Connection] = {}  # (node, or -1 and less: bootstrap, lane)
        self._connecting: dict[tuple[int, str], asyncio.Lock] = {}
        self._lanes = 0
        self._closed = False
        self.operations: dict[Operation, None] = {}  # in progress
        self._age_timer: asyncio.TimerHandle | None = None
        self._age_task: asyncio.Task[None] | None = None

    # --- Life ---------------------------------------------------------------------------------------

    async def start(self, timeout_ms: float = START_TIMEOUT_MS) -> None:
        """Connect to one of the bootstrap addresses. Tries for timeout_ms, then raises ConnectionLost."""
        loop, tried = asyncio.get_running_loop(), ", ".join(self.bootstrap)
        telling = None
        if timeout_ms > 2 * TOLD_AFTER_S * 1000:  # else the error comes soon enough
            message = "no broker of %s answers yet, it is tried for %.0f s: does one run there?"
            telling = loop.call_later(TOLD_AFTER_S, log.warning, message, tried, timeout_ms / 1000)
        try:
            await self.refresh_metadata([], timeout_ms=timeout_ms)
        except ConnectionLost as error:
            raise ConnectionLost(f"no broker of {tried} answers: {error}") from None
        finally:
            if telling is not None:
                telling.cancel()
        self._age_timer = loop.call_later(METADATA_MAX_AGE_S, self._aged)

    def operation(self, what: str, timeout_ms: float) -> Operation:
        """The time limit of an operation, for `async with`. what: its name in errors."""
        return Operation(self, what, timeout_ms)

    def check_open(self) -> None:
        """Raise ClientClosed after `close`."""
        if self._closed:
            raise ClientClosed(f"client {self.client_id} is closed")

    async def close(self) -> None:
        """End all operations with ClientClosed, and close all connections. When this returns, after at most
        CLOSE_TIMEOUT_S, nothing of the client is left in the loop."""
        self._closed = True
        for operation in list(self.operations):
            operation.end(ClientClosed(f"client {self.client_id} was closed during {operation.what}"))
        if self._age_timer is not None:
            self._age_timer.cancel()
        if self._age_task is not None:
            self._age_task.cancel()
            await asyncio.gather(self._age_task, return_exceptions=True)
        connections = list(self._connections.values())
        self._connections.clear()
        await close_all(connections)

    def new_lane(self, what: str) -> str:
        """A name for a user's own connections."""
        self._lanes += 1
        return f"{what} {self._lanes}"

    async def close_lane(self, lane: str) -> None:
        """Close the connections of a lane that is not used any more."""
        for key in [key for key in self._connecting if key[1] == lane]:
            del self._connecting[key]
        await close_all([self._connections.pop(key) for key in list(self._connections) if key[1] == lane])

    def back_off_ms(self, attempt: int) -> float:
        """The pause after attempt number `attempt`: doubled each time up to BACKOFF_MAX_MS, with jitter."""
        return self.runtime.jittered(min(BACKOFF_MIN_MS * 2 ** min(attempt, 10), BACKOFF_MAX_MS))

    async def back_off(self, attempt: int) -> None:
        """Sleep for `back_off_ms`."""
        await asyncio.sleep(self.back_off_ms(attempt) / 1000)

    # --- Connections --------------------------------------------------------------------------------

    async def connection(
        self, node_id: int | None = None, lane: str = "main", timeout_ms: float = REQUEST_TIMEOUT_MS
    ) -> Connection:
        """A live connection to a node; None: to any. `lane` separates requests that wait from those that must not.
        Raises ConnectionLost if there is none within the time."""
        self.check_open()
        if found := self._least_silent(lane, {}) if node_id is None else self.open_connection(node_id, lane):
            return found
        node = f"node {node_id} ({self.nodes.get(node_id, 'unknown')})" if node_id is not None else "any broker"
        async with self.operation(f"connecting to {node}", timeout_ms) as operation:
            if node_id is not None:
                return await self._connection(node_id, lane, operation)
            return await self._any_connection(lane, {}, operation)

    def open_connection(self, node_id: int, lane: str = "main") -> Connection | None:
        """The connection to a node if there is one now."""
        found = self._connections.get((node_id, lane))
        return found if found is not None and found.alive else None

    def _least_silent(self, lane: str, tried: Mapping[str, None], most_s: float = HEDGE_S) -> Connection | None:
        """An open connection to an address not `tried`: the one whose broker is the least behind with its answers, if
        that is less than most_s. Of equal ones any, since one that is cut off from its cluster answers, too."""
        silent = self._silent_s()
        alive = [each for (_, other), each in self._connections.items() if other == lane and each.alive]
        self.runtime.random.shuffle(alive)
        found = min(
            (each for each in alive if each.address not in tried), key=lambda each: silent[each.address], default=None
        )
        return found if found is not None and silent[found.address] < most_s else None

    def _silent_s(self) -> dict[str, float]:
        """For how long each broker has owed an answer, by its address."""
        found: dict[str, float] = {}
        for each in self._connections.values():
            found[each.address] = max(found.get(each.address, 0.0), each.silent_s)
        return found

    async def _any_connection(self, lane: str, tried: dict[str, None], operation: Operation) -> Connection:
        """To a node that is known, or to a bootstrap address if none of these can be reached (KIP-899). Each gets its
        share of the time, because any of them may hang. Those in `tried` are left out, and the others added to it."""
        silent = self._silent_s()
        nodes = [node for node in sorted(self.nodes) if self.open_connection(node, lane) is None]
        self.runtime.random.shuffle(nodes)
        nodes.sort(key=lambda node: (self.nodes[node] in self._unreached, silent.get(self.nodes[node], 0.0)))
        known = list(self.nodes.values())
        bootstrap = [address for address in dict.fromkeys(self.bootstrap) if address not in known]
        left = len(nodes) + len(bootstrap)
        error: Exception = NoOtherBroker(f"no other broker than {', '.join(tried)} is known")
        for node in nodes:
            address = self.nodes.get(node)
            if address is None or address in tried:
                continue
            tried[address] = None
            try:
                return await self._connection(node, lane, operation, operation.remaining_ms / left)
            except ClientError as failed:
                self.check_open()
                error, left = failed, left - 1
        if found := self._least_silent(lane, tried, float("inf")):
            return found
        async with self._connecting.setdefault((-1, lane), asyncio.Lock()):
            if found := self._least_silent(lane, tried, float("inf")):
                return found
            for address in bootstrap:
                if address in tried:
                    continue
                tried[address] = None
                try:
                    number = -1 - self.bootstrap.index(address)
                    return await self._connect((number, lane), address, operation.remaining_ms / left)
                except ClientError as failed:
                    self.check_open()
                    error, left = failed, left - 1
        raise error

    async def _connection(
        self, node_id: int, lane: str, operation: Operation, most_ms: float = CONNECT_TIMEOUT_MS
    ) -> Connection:
        async with self._connecting.setdefault((node_id, lane), asyncio.Lock()):
            if found := self.open_connection(node_id, lane):
                return found
            address = self.nodes.get(node_id)
            if address is None:
                raise ConnectionLost(f"node {node_id} is not in the cluster's metadata")
            return await self._connect((node_id, lane), address, min(most_ms, operation.remaining_ms))

    async def _connect(self, key: tuple[int, str], address: str, most_ms: float) -> Connection:
        self._unreached[address] = None
        made = await connect(address, self.client_id, min(CONNECT_TIMEOUT_MS, most_ms))
        self._unreached.pop(address, None)
        if self._closed:  # closed meanwhile
            made.close()
            self.check_open()
        self._connections[key] = made
        return made

    def _rebootstrap(self, why: str) -> None:
        """Forget all nodes and close all connections, so that the bootstrap addresses are asked."""
        log.warning("client %s starts again from %s: %s", self.client_id, ", ".join(self.bootstrap), why)
        self._unanswered_since = None
        self.nodes = {}
        connections = list(self._connections.values())
        self._connections.clear()
        for each in connections:
            each.close(ConnectionLost(f"connection to {each.address} was closed: {why}"))

    async def request(
        self,
        message: Any,
        node_id: int | None = None,
        timeout_ms: float = REQUEST_TIMEOUT_MS,
        lane: str = "main",
        most_version: int | None = None,
    ) -> Any:
        """Send a request message and return its answer, connecting first if needed. When the time is over, the
        connection is closed. No retries: the caller knows whether the request may be repeated."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        try:
            connection = await self.connection(node_id, lane, timeout_ms)
        except ConnectionLost as error:
            error.was_sent = False
            raise
        api = type(message).API
        version = connection.version_of(api, most_version)
        return await connection.request(api, message, (deadline - loop.time()) * 1000, version)

    async def ask_any(self, message: Any, patience_s: float) -> Any:
        """Send a request that any broker can answer: to one, and while that does not answer, to one more after each
        HEDGE_S. All keep their connections. Raises RequestTimeout if none answers within `patience_s`."""
        self.check_open()
        tried: dict[str, None] = {}
        asking: list[asyncio.Task[Any]] = []
        error: BaseException = NoOtherBroker("no broker is known")
        may_ask_more = True
        try:
            async with asyncio.timeout(patience_s):
                while asking or may_ask_more:
                    if may_ask_more:
                        asking.append(asyncio.ensure_future(self._ask_one(message, tried, patience_s * 1000)))
                        asking[-1].add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved
                    pause_s = HEDGE_S if may_ask_more else None
                    await asyncio.wait(asking, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                    for each in [each for each in asking if each.done()]:
                        asking.remove(each)
                        if (failure := each.exception()) is None:
                            return each.result()
                        if isinstance(failure, NoOtherBroker):
                            may_ask_more = False
                        elif isinstance(failure, ConnectionLost) and failure.retriable:
                            error = failure
                        else:
                            raise failure
                raise error
        except TimeoutError:
            what = (
                f"{type(message).API.name} was not answered within {patience_s:.0f} s: is a broker overloaded or hung?"
            )
            raise RequestTimeout(what) from None
        finally:
            for each in asking:
                each.cancel()

    async def _ask_one(self, message: Any, tried: dict[str, None], timeout_ms: float) -> Any:
        """Ask a broker that was not `tried`, and add it there."""
        connection = self._least_silent("main", tried)
        if connection is None:
            async with self.operation("connecting to any broker", timeout_ms) as operation:
                connection = await self._any_connection("main", tried, operation)
        tried[connection.address] = None
        return await connection.request(type(message).API, message, REQUEST_TIMEOUT_MS)

    def supports(self, key: int) -> bool:
        """Whether the brokers met so far list a request."""
        known = [c for c in self._connections.values() if c.alive]
        return bool(known) and all(key in connection.versions for connection in known)

    def feature(self, name: str) -> int:
        """The cluster's finalized level of a feature, as the latest of the connections heard; 0 for none."""
        alive = [each for each in self._connections.values() if each.alive]
        latest = max(alive, key=lambda each: each.features_epoch, default=None)
        return 0 if latest is None else latest.features.get(name, 0)

    # --- Metadata -----------------------------------------------------------------------------------

    async def refresh_metadata(
        self, topics: Iterable[str] | None = None, create: bool = False, timeout_ms: float = API_TIMEOUT_MS
    ) -> None:
        """Ask the cluster about topics; None: about those known already. Topics are made only with `create`.

        A topic that does not exist has no partitions afterwards. Raises ConnectionLost when no broker answers.
        """
        names = sorted(self.topics) if topics is None else list(topics)
        message = metadata.Request(
            topics=[metadata.MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=create
        )
        what = f"metadata of {', '.join(names[:NAMES_SHOWN]) or 'the cluster'}{', …' * (len(names) > NAMES_SHOWN)}"
        async with self.operation(what, timeout_ms) as operation:
            while True:
                try:
                    answer = await self._ask_for_metadata(message, operation.patience_s)
                    break
                except ClientError as error:
                    await operation.again(error)
        if answer.error_code:
            raise KafkaError.of(answer.error_code, what)
        self.learn(answer)

    async def _ask_for_metadata(self, message: Any, patience_s: float) -> Any:
        """One attempt; starts again from the bootstrap addresses when that is due."""
        now = asyncio.get_running_loop().time()
        if self._unanswered_since is not None and now - self._unanswered_since >= self._rebootstrap_s:
            self._rebootstrap(f"no broker has answered a metadata request for {self._rebootstrap_s:.0f} s")
        if self._unanswered_since is None:
            self._unanswered_since = now
        answer = await self.ask_any(message, patience_s)
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._rebootstrap("a broker answered REBOOTSTRAP_REQUIRED")
            raise ConnectionLost("a broker answered REBOOTSTRAP_REQUIRED")
        self._unanswered_since = None
        return answer

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

    def learn_leader(self, tp: TopicPartition, told: Any, endpoints: Iterable[Any]) -> bool:
        """Take in what a refusal says about the leader (KIP-951), if that is newer than what is known: then True.

        told: the answer's `LeaderIdAndEpoch` or None. endpoints: the answer's `NodeEndpoint`s."""
        topic = self.topics.get(tp[0])
        if told is None or topic is None or told.leader_id < 0 or told.leader_epoch <= topic.epochs.get(tp[1], -1):
            return False
        address = next((f"{each.host}:{each.port}" for each in endpoints if each.node_id == told.leader_id), None)
        if address is not None:
            self.nodes[told.leader_id] = address
        elif told.leader_id not in self.nodes:
            return False
        topic.leaders[tp[1]], topic.epochs[tp[1]] = told.leader_id, told.leader_epoch
        return True

    async def wait_for_topics(self, topics: Sequence[str], timeout_ms: float = 5_000) -> list[str]:
        """Refresh until each of these has partitions with leaders; those that have not when the time is over."""
        missing = list(topics)
        try:
            async with self.operation(f"waiting for {', '.join(missing[:NAMES_SHOWN])}", timeout_ms) as operation:
                while True:
                    await self.refresh_metadata(missing)
                    missing = [
                        name
                        for name in missing
                        if not self.partitions(name)
                        or any(self.leader(TopicPartition(name, p)) is None for p in self.partitions(name))
                    ]
                    if not missing:
                        return missing
                    await operation.again(KafkaError.of(ErrorCode.LEADER_NOT_AVAILABLE, ", ".join(missing)))
        except (ConnectionLost, KafkaError) as error:
            if not error.retriable:
                raise
        return missing

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
        """Epoch of that leader; -1 if it is not known."""
        found = self.topics.get(tp[0])
        return found.epochs.get(tp[1], -1) if found else -1

    def topic_id(self, topic: str) -> bytes | None:
        """None when the topic is not known or the cluster has no ids."""
        found = self.topics.get(topic)
        return found.topic_id if found and found.topic_id != ZERO_UUID else None

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((name for name, each in self.topics.items() if each.topic_id == topic_id), None)

    async def names_of(self, topic_ids: Iterable[bytes], timeout_ms: float = REQUEST_TIMEOUT_MS) -> dict[bytes, str]:
        """Names of topics, whose metadata is asked for where they are not known; without those that do not exist."""
        wanted = list(topic_ids)
        unknown = [topic_id for topic_id in wanted if self.topic_name(topic_id) is None]
        if unknown:
            topics = [metadata.MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in unknown]
            request = metadata.Request(topics=topics, allow_auto_topic_creation=False)
            self.learn(await self.ask_any(request, timeout_ms / 1000))
        return {topic_id: name for topic_id in wanted if (name := self.topic_name(topic_id)) is not None}

    def why_no_leader(self, tp: TopicPartition) -> KafkaError | None:
        """What keeps a partition from having a leader, as last refreshed, with the way out; None where it has one."""
        if self.leader(tp) is not None:
            return None
        if not (partitions := self.partitions(tp[0])):
            return no_topic(tp[0])
        if tp[1] not in partitions:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no partition {tp[0]}-{tp[1]}: the topic has {len(partitions)}, from 0",
            )
        return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp[0]}-{tp[1]} has no leader: is its broker down?")

    async def leader_of(self, tp: TopicPartition, timeout_ms: float = API_TIMEOUT_MS) -> int:
        """Node that leads a partition, asked for when it is not known. Raises KafkaError: at once for a partition that
        is not there."""
        async with self.operation(f"leader of {tp[0]}-{tp[1]}", timeout_ms) as operation:
            while (node := self.leader(tp)) is None:
                await self.refresh_metadata([tp[0]])
                if error := self.why_no_leader(tp):
                    if error.code != ErrorCode.LEADER_NOT_AVAILABLE:
                        raise error
                    await operation.again(error)
        return node
