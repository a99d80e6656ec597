"""FindCoordinator: which broker leads the partition that a group or a transactional id hashes to."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.messages.find_coordinator import Coordinator, Request, Response
from ..auto_creation import AutoCreation
from ..cluster.controller import new_topic
from ..cluster.image import MetadataImage
from ..cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from ..config import BrokerConfig
from ..purgatory import Pending, Purgatory
from .java import java_hash
from .runtime import Replicas

GROUP, TRANSACTION = 0, 1
MANY_KEYS_SINCE = 4
TOPICS = {GROUP: CONSUMER_OFFSETS, TRANSACTION: TRANSACTION_STATE}  # by kind of coordinator
PARTITIONS = {
    CONSUMER_OFFSETS: "offsets.topic.num.partitions",
    TRANSACTION_STATE: "transaction.state.log.num.partitions",
}
FACTORS = {
    CONSUMER_OFFSETS: "offsets.topic.replication.factor",
    TRANSACTION_STATE: "transaction.state.log.replication.factor",
}


class Found(NamedTuple):
    error: ErrorCode
    node_id: int = -1
    host: str = ""
    port: int = -1


class CoordinatorFinder:
    """Answers FindCoordinator from the metadata image, and has the topic of a kind made where there is none."""

    def __init__(
        self,
        creation: AutoCreation,
        image: MetadataImage,
        replicas: Replicas,
        config: BrokerConfig,
        purgatory: Purgatory,
    ) -> None:
        self._creation = creation
        self._image = image
        self._replicas = replicas
        self._config = config
        self._purgatory = purgatory

    def find_coordinator(self, request: Request, version: int, listener: str | None = None) -> Any:
        """listener: whose addresses are given, by name: the one that the request came by. None: the first."""
        name = listener or next(iter(self._image.brokers[self._config["node.id"]].endpoints))
        topic = TOPICS.get(request.key_type)
        if topic is None:
            return respond(request, version, lambda key: Found(ErrorCode.INVALID_REQUEST))

        def answer() -> Response:
            leaderless = self._replicas.leaderless.get(topic, ())
            return respond(request, version, lambda key: find(self._image, topic, key, name, leaderless))

        if topic in self._image.topics:
            return answer()
        pending = Pending(answer)
        self.create(topic, lambda: pending.complete(answer()))
        return self._purgatory.add(pending, self._config["request.timeout.ms"])

    def create(self, topic: str, then: Callable[[], object]) -> None:
        """Have an internal topic made; `then()` once that was tried."""
        configs = {"cleanup.policy": "compact", **self._configs(topic)}
        wanted = new_topic(topic, self._config[PARTITIONS[topic]], self._factor(FACTORS[topic]), configs)
        self._creation.create([wanted], lambda errors: then())

    def _configs(self, topic: str) -> dict[str, str]:
        """As Kafka sets them."""
        if topic == CONSUMER_OFFSETS:
            return {
                "compression.type": "producer",
                "segment.bytes": str(self._config["offsets.topic.segment.bytes"]),
            }
        return {
            "compression.type": "uncompressed",
            "min.insync.replicas": str(self._config["transaction.state.log.min.isr"]),
            "segment.bytes": str(self._config["transaction.state.log.segment.bytes"]),
            "unclean.leader.election.enable": "false",
        }

    def _factor(self, option: str) -> int:
        """One broker serves groups and transactions without an option, too. A factor that was set is kept: less would
        be a broken promise (KIP-115)."""
        factor: int = self._config[option]
        if option in self._config.given:
            return factor
        return min(factor, max(1, sum(map(self._image.is_active, self._image.brokers))))


def partition_for(key: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that holds a group, of `__transaction_state` that holds an id."""
    hashed = java_hash(key)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partitions


def find(image: MetadataImage, topic: str, key: str, listener: str, leaderless: Collection[int]) -> Found:
    """The address of a coordinator on a listener. leaderless: partitions that no broker serves."""
    found = image.topics.get(topic)
    if found is None:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    index = partition_for(key, len(found.partitions))
    if index in leaderless:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = found.partitions[index]
    endpoint = image.endpoint_of(partition.leader, listener)
    if endpoint is None:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Found(ErrorCode.NONE, partition.leader, endpoint.host, endpoint.port)


def respond(request: Request, version: int, look: Callable[[str], Found]) -> Response:
    """The answer in the shape of a version. look: finds the coordinator of one key."""
    if version >= MANY_KEYS_SINCE:
        coordinators = []
        for key in request.coordinator_keys:
            found = look(key)
            coordinators.append(
                Coordinator(
                    key=key,
                    node_id=found.node_id,
                    host=found.host,
                    port=found.port,
                    error_code=found.error,
                    error_message=_message(found.error) if found.error else "",
                )
            )
        return Response(coordinators=coordinators)
    found = look(request.key)
    return Response(
        error_code=found.error,
        error_message=_message(found.error),
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _message(error: ErrorCode) -> str:
    return {
        ErrorCode.NONE: "NONE",
        ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
        ErrorCode.INVALID_REQUEST: "Unknown kind of coordinator.",
    }[error]
