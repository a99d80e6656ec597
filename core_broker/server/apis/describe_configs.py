"""DescribeConfigs (key 32): options of topics, groups and brokers, with source and synonyms; log levels.

An empty broker name stands for all brokers: what is told is what was set for them while they run. Passwords take their
default only, which is none.

v1: synonyms. v3: types, and documentation when asked for.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.describe_configs import (
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    Request,
    Response,
)
from ...cluster.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from ...described import Entry, broker_entries, cluster_entries, group_entries, topic_entries
from ...option import Type
from .._context import Context
from ..broker_loggers import BROKER_LOGGER, describe_levels
from ..config_changes import check_broker_name
from ..topics import check_name

KINDS = (TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER, 16, GROUP_RESOURCE)  # that Kafka knows: 16 is client metrics


def handle(request: Request, context: Context) -> Response:
    # Once each: a few bytes ask for some kilobytes.
    asked = {(each.resource_type, each.resource_name): each for each in request.resources}
    unknown = next((kind for kind, _ in asked if kind not in KINDS), None)
    if unknown is not None:  # then nothing is told of the others either
        return Response(results=[_refused(resource, unknown) for resource in asked.values()])
    return Response(results=[_resource(resource, request, context) for resource in asked.values()])


def _unsupported(kind: int) -> str:
    return f"Unsupported resource type: {kind}"


def _refused(resource: DescribeConfigsResource, unknown_kind: int) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=_unsupported(unknown_kind),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _resource(resource: DescribeConfigsResource, request: Request, context: Context) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        if resource.resource_type == BROKER_LOGGER:
            result.configs = describe_levels(resource, context)
            return result
        entries = _entries(resource, context)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    keys = resource.configuration_keys
    result.configs = [_entry(entry, request) for entry in entries if not keys or entry.option.name in keys]
    return result


def _entries(resource: DescribeConfigsResource, context: Context) -> list[Entry]:
    """The options of a resource. Raises KafkaError."""
    services = context.services
    name = resource.resource_name
    if resource.resource_type == TOPIC_RESOURCE:
        check_name(name)
        topic = services.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return topic_entries(topic.configs, services.config)
    if resource.resource_type == BROKER_RESOURCE:
        if not name:
            return cluster_entries(services.config)
        check_broker_name(name, services.node_id)
        return broker_entries(services.config)
    if resource.resource_type == GROUP_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return group_entries(services.image.group_configs.get(name, {}), services.config)
    raise KafkaError(ErrorCode.INVALID_REQUEST, _unsupported(resource.resource_type))


def _entry(entry: Entry, request: Request) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else []
    return DescribeConfigsResourceResult(
        name=entry.option.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.option.type is Type.PASSWORD,
        synonyms=[DescribeConfigsSynonym(name=name, value=value, source=source) for name, value, source in synonyms],
        config_type=entry.option.type,
        documentation=entry.option.documentation if request.include_documentation else None,
    )
