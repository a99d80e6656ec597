"""FindCoordinator: which broker leads the partition that a group hashes to."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.messages.find_coordinator import Coordinator, Request, Response
from ..cluster.image import MetadataImage
from ..cluster.topic_names import CONSUMER_OFFSETS
from .java import java_hash

GROUP, TRANSACTION, SHARE = 0, 1, 2
MANY_KEYS_SINCE = 4
SHARE_SINCE = 6


class Found(NamedTuple):
    error: ErrorCode
    node_id: int = -1
    host: str = ""
    port: int = -1


def partition_for(group_id: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that holds a group."""
    hashed = java_hash(group_id)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partitions


def find(image: MetadataImage, group_id: str, listener: str, leaderless: Collection[int]) -> Found:
    """The coordinator's address on a listener. leaderless: partitions without a leader that can serve them."""
    topic = image.topics.get(CONSUMER_OFFSETS)
    if topic is None:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    index = partition_for(group_id, len(topic.partitions))
    if index in leaderless:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = topic.partitions[index]
    broker = image.brokers.get(partition.leader)
    endpoint = None if broker is None or broker.fenced else broker.endpoints.get(listener)
    if endpoint is None:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Found(ErrorCode.NONE, partition.leader, endpoint.host, endpoint.port)


def kind_error(request: Request, version: int) -> ErrorCode:
    """The error if this kind of coordinator is not supported."""
    if request.key_type == GROUP:
        return ErrorCode.NONE
    if request.key_type == TRANSACTION:
        return ErrorCode.UNSUPPORTED_VERSION  # no transactions yet; a retriable error would make the client wait
    return ErrorCode.INVALID_REQUEST


def respond(request: Request, version: int, look: Callable[[str], Found]) -> Response:
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
