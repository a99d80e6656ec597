"""DescribeConfigs (key 32): options of topics and of this broker, all of them, with source and synonyms.

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
from ...config import Entry, broker_entries, topic_entries
from ..context import Context
from ..topics import check_name

TOPIC, BROKER = 2, 4


def handle(request: Request, context: Context) -> Response:
    # Once each: a few bytes ask for some kilobytes.
    asked = {(each.resource_type, each.resource_name): each for each in request.resources}
    return Response(results=[_resource(resource, request, context) for resource in asked.values()])


def _resource(resource: DescribeConfigsResource, request: Request, context: Context) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        read_only, entries = _entries(resource, context)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    keys = resource.configuration_keys
    result.configs = [_entry(entry, read_only, request) for entry in entries if not keys or entry.option.name in keys]
    return result


def _entries(resource: DescribeConfigsResource, context: Context) -> tuple[bool, list[Entry]]:
    """The options of a resource, and whether they can only be set at start."""
    services = context.services
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        check_name(name)
        topic = services.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return False, topic_entries(topic.configs, services.config)
    if resource.resource_type == BROKER:
        if not name:
            return True, []  # options set for all brokers while they run: there are none
        if name != str(services.node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {services.node_id} or empty string, but received {name}",
            )
        return True, broker_entries(services.config)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")


def _entry(entry: Entry, read_only: bool, request: Request) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else []
    return DescribeConfigsResourceResult(
        name=entry.option.name,
        value=entry.value,
        read_only=read_only or entry.option.sealed,
        config_source=entry.source,
        synonyms=[DescribeConfigsSynonym(name=name, value=value, source=source) for name, value, source in synonyms],
        config_type=entry.option.type,
        documentation=entry.option.doc if request.include_documentation else None,
    )
