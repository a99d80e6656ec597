"""FindCoordinator: which broker leads the partition that a group hashes to."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.messages.find_coordinator import Coordinator, Request, Response
from ..auto_creation import AutoCreation
from ..cluster.controller import new_topic
from ..cluster.image import MetadataImage
from ..cluster.topic_names import CONSUMER_OFFSETS
from ..config import BrokerConfig
from ..purgatory import Pending, Purgatory
from .java import java_hash
from .runtime import Replicas

GROUP, TRANSACTION = 0, 1
MANY_KEYS_SINCE = 4
FACTOR = "offsets.topic.replication.factor"


class Found(NamedTuple):
    error: ErrorCode
    node_id: int = -1
    host: str = ""
    port: int = -1


class CoordinatorFinder:
    """Answers FindCoordinator from the metadata image, and has the topic of groups made where there is none."""

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
        refused = kind_error(request, version)

        def answer() -> Response:
            leaderless = self._replicas.leaderless.get(CONSUMER_OFFSETS, ())

            def look(key: str) -> Found:
                return Found(refused) if refused else find(self._image, key, name, leaderless)

            return respond(request, version, look)

        if refused or CONSUMER_OFFSETS in self._image.topics:
            return answer()
        pending = Pending(answer)

        self._creation.create([self._topic()], lambda errors: pending.complete(answer()))
        return self._purgatory.add(pending, self._config["request.timeout.ms"])

    def _topic(self) -> Any:
        return new_topic(
            CONSUMER_OFFSETS,
            self._config["offsets.topic.num.partitions"],
            self._factor(),
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(self._config["offsets.topic.segment.bytes"]),
            },
        )

    def _factor(self) -> int:
        """One broker serves groups without an option, too. A factor that was set is kept: less would be a broken
        promise (KIP-115)."""
        factor: int = self._config[FACTOR]
        if FACTOR in self._config.given:
            return factor
        return min(factor, max(1, sum(map(self._image.is_active, self._image.brokers))))


def partition_for(group_id: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that holds a group."""
    hashed = java_hash(group_id)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partitions


def find(image: MetadataImage, group_id: str, listener: str, leaderless: Collection[int]) -> Found:
    """The address of a group's coordinator on a listener. leaderless: partitions that no broker serves."""
    topic = image.topics.get(CONSUMER_OFFSETS)
    if topic is None:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    index = partition_for(group_id, len(topic.partitions))
    if index in leaderless:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = topic.partitions[index]
    endpoint = image.endpoint_of(partition.leader, listener)
    if endpoint is None:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Found(ErrorCode.NONE, partition.leader, endpoint.host, endpoint.port)


def kind_error(request: Request, version: int) -> ErrorCode:
    """Why a request is refused for its kind of coordinator; NONE where it is not."""
    if request.key_type == GROUP:
        return ErrorCode.NONE
    if request.key_type == TRANSACTION:
        return ErrorCode.UNSUPPORTED_VERSION  # there are no transactions yet; the error is not retriable
    return ErrorCode.INVALID_REQUEST


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
        ErrorCode.UNSUPPORTED_VERSION: "Transactions are not supported by this broker yet.",
        ErrorCode.INVALID_REQUEST: "Unknown kind of coordinator.",
    }[error]
