"""Metadata (key 3): brokers, topics, partitions, leaders.

v0: no topics named means all. v1: null means all, none means none. v4: the client says whether to create what is
missing. v10: topic ids. v12: topics by id. v13: an error for the whole answer. Addresses are those of the listener the
request came in on. A topic that is created here is answered when it can be written to. A partition that is offline is
told as one without a leader, as in Kafka: producers then choose another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata import MetadataResponseBroker, MetadataResponseTopic, Request, Response
from ....protocol.primitives import ZERO_UUID
from ...cluster.image import TopicImage
from ...cluster.topic_names import is_internal
from ...purgatory import Pending
from .._context import Context
from ..encoded_topics import ALL_TOPIC_OPERATIONS, row_of
from ..topics import code_for_missing, create_missing

ALL_CLUSTER_OPERATIONS = 0b1111110100000
NOT_ASKED = -0x80000000
BY_ID_SINCE = 12

Told = TopicImage | MetadataResponseTopic  # a topic that is there, or what is said of one that is not


def handle(request: Request, context: Context) -> Any:
    asked = request.topics
    if asked is None or (context.version == 0 and not asked):
        topics = context.services.image.topics
        return _response(request, context, [topics[name] for name in sorted(topics)])
    ids = dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID)
    names = dict.fromkeys(topic.name for topic in asked if topic.name is not None)
    if context.version < BY_ID_SINCE and (ids or len(asked) > sum(topic.name is not None for topic in asked)):
        return _refused(request)
    if ids:
        return _response(request, context, _by_id(ids, context))
    if not names and asked:
        return _refused(request)
    missing = _missing(names, request, context)
    if not missing:
        return _response(request, context, _by_name(names, context, {}))

    def created(errors: dict[str, KafkaError]) -> None:
        pending.complete(_response(request, context, _by_name(names, context, errors)))

    pending = Pending(lambda: _response(request, context, _by_name(names, context, {})))
    create_missing(missing, context, created)
    return context.services.purgatory.add(pending, context.services.config["request.timeout.ms"])


def _refused(request: Request) -> Response:
    """To a request that its version does not allow: nothing is told but the error, of each topic and of the whole."""
    code = ErrorCode.INVALID_REQUEST
    return Response(
        error_code=code,
        topics=[_error(topic.name or "", topic.topic_id, code, internal=False) for topic in request.topics or ()],
    )


def _missing(names: Iterable[str], request: Request, context: Context) -> list[str]:
    """Names to be created."""
    services = context.services
    if not request.allow_auto_topic_creation or not services.config["auto.create.topics.enable"]:
        return []
    return [name for name in names if name not in services.image.topics]


def _by_id(ids: Iterable[bytes], context: Context) -> list[Told]:
    """Where ids are given, names are not looked at. Those that nobody knows come first."""
    unknown: list[Told] = []
    known: list[Told] = []
    for topic_id in ids:
        topic = context.services.image.topic_by_id(topic_id)
        if topic is None:
            unknown.append(_error(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, internal=False))
        else:
            known.append(topic)
    return [*unknown, *known]


def _by_name(names: Iterable[str], context: Context, errors: dict[str, KafkaError]) -> list[Told]:
    """errors: why some could not be created. Topics that are there come first."""
    known: list[Told] = []
    unknown: list[Told] = []
    for name in names:
        topic = context.services.image.topics.get(name)
        if topic is not None:
            known.append(topic)
            continue
        code = errors[name].code if name in errors else code_for_missing(name)
        if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
            code = code_for_missing(name)  # a name that is too much like another's: it is told to who creates it
        unknown.append(_error(name, ZERO_UUID, code, internal=is_internal(name)))
    return known + unknown


def _error(name: str | None, topic_id: bytes, code: int, *, internal: bool) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, is_internal=internal)


def _response(request: Request, context: Context, told: list[Told]) -> Response:
    services = context.services
    with_operations = request.include_topic_authorized_operations
    services.encoded_topics.look_at_brokers()
    topics: list[Any] = []
    for each in told:
        if isinstance(each, TopicImage):
            lost = services.replicas.leaderless.get(each.name)
            if lost:
                topics.append(row_of(each, services.image, with_operations, lost))
            else:
                topics.append(services.encoded_topics.get(each, context.version, with_operations))
            continue
        if with_operations and each.name is not None:
            each.topic_authorized_operations = ALL_TOPIC_OPERATIONS
        topics.append(each)
    return Response(
        brokers=[
            MetadataResponseBroker(node_id=node, host=host, port=port, rack=rack)
            for node, host, port, rack in services.endpoints(context.listener, with_departed=True)
        ],
        cluster_id=services.cluster_id,
        controller_id=services.some_broker(),
        topics=topics,
        cluster_authorized_operations=(
            ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
