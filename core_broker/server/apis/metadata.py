"""Metadata (key 3): brokers, topics, partitions, leaders.

v0: no topics named means all. v1: null means all, none means none. v4: the client says whether to create what is
missing. v10: topic ids. v12: topics by id. v13: an error for the whole answer. Addresses are those of the listener the
request came in on. A topic that is created here is answered when it can be written to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata import (
    MetadataRequestTopic,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    Request,
    Response,
)
from ....protocol.primitives import ZERO_UUID
from ...cluster.image import TopicImage
from ...cluster.topic_names import is_internal
from ...purgatory import Pending
from ..context import Context
from ..topics import code_for_missing, create_missing

ALL_TOPIC_OPERATIONS = 0b110111111000  # what a client may do to a topic where there is no authorizer
ALL_CLUSTER_OPERATIONS = 0b1111110100000
NOT_ASKED = -0x80000000
BY_ID_SINCE = 12


def handle(request: Request, context: Context) -> Any:
    asked = request.topics
    if asked is None or (context.version == 0 and not asked):
        topics = context.services.image.topics
        return _response(request, context, [_topic(topics[name], request) for name in sorted(topics)])
    wrong = [topic for topic in asked if topic.name is None and context.version < BY_ID_SINCE]
    if wrong or any(topic.topic_id != ZERO_UUID for topic in asked if context.version < BY_ID_SINCE):
        return _response(request, context, [_error(t.name or "", t.topic_id, ErrorCode.INVALID_REQUEST) for t in asked])
    missing = _missing(asked, request, context)
    if not missing:
        return _response(request, context, _named(asked, request, context, {}))

    def created(errors: dict[str, KafkaError]) -> None:
        pending.complete(_response(request, context, _named(asked, request, context, errors)))

    pending = Pending(lambda: _response(request, context, _named(asked, request, context, {})))
    create_missing(missing, context, created)
    return context.services.purgatory.add(pending, context.services.config["request.timeout.ms"])


def _missing(asked: list[MetadataRequestTopic], request: Request, context: Context) -> list[str]:
    """Names to be created."""
    services = context.services
    if not request.allow_auto_topic_creation or not services.config["auto.create.topics.enable"]:
        return []
    names = dict.fromkeys(topic.name for topic in asked if topic.name is not None)
    return [name for name in names if name not in services.image.topics]


def _named(
    asked: list[MetadataRequestTopic], request: Request, context: Context, errors: dict[str, KafkaError]
) -> list[MetadataResponseTopic]:
    image = context.services.image
    answers = []
    seen: set[tuple[str | None, bytes]] = set()
    for topic in asked:
        if (topic.name, topic.topic_id) in seen:
            continue
        seen.add((topic.name, topic.topic_id))
        if topic.name is None:
            found = image.topic_by_id(topic.topic_id)
            answers.append(
                _error(None, topic.topic_id, ErrorCode.UNKNOWN_TOPIC_ID) if found is None else _topic(found, request)
            )
            continue
        found = image.topics.get(topic.name)
        if found is not None:
            answers.append(_topic(found, request))
        elif topic.name in errors:
            answers.append(_error(topic.name, ZERO_UUID, errors[topic.name].code))
        else:
            answers.append(_error(topic.name, ZERO_UUID, code_for_missing(topic.name)))
    return answers


def _error(name: str | None, topic_id: bytes, code: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=topic_id, is_internal=name is not None and is_internal(name)
    )


def _topic(topic: TopicImage, request: Request) -> MetadataResponseTopic:
    partitions = []
    for index in sorted(topic.partitions):
        partition = topic.partitions[index]
        partitions.append(
            MetadataResponsePartition(
                error_code=ErrorCode.NONE if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
            )
        )
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=partitions,
        topic_authorized_operations=ALL_TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED,
    )


def _response(request: Request, context: Context, topics: Iterable[MetadataResponseTopic]) -> Response:
    services = context.services
    return Response(
        brokers=[
            MetadataResponseBroker(node_id=node, host=host, port=port, rack=rack)
            for node, host, port, rack in services.endpoints(context.listener)
        ],
        cluster_id=services.cluster_id,
        controller_id=services.node_id,
        topics=list(topics),
        cluster_authorized_operations=(
            ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
