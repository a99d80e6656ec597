"""The log levels of this broker, as options of the resource BROKER_LOGGER (KIP-412)."""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.describe_configs import DescribeConfigsResource, DescribeConfigsResourceResult
from ...protocol.messages.incremental_alter_configs import AlterConfigsResource
from ._context import Context
from .config_changes import check_broker_name

BROKER_LOGGER = 8  # a kind of resource
DYNAMIC_BROKER_LOGGER = 6  # the source of such a value


def describe_levels(resource: DescribeConfigsResource, context: Context) -> list[DescribeConfigsResourceResult]:
    """Raises KafkaError."""
    name, node_id = resource.resource_name, context.services.node_id
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    check_broker_name(name, node_id)
    keys = resource.configuration_keys
    return [
        DescribeConfigsResourceResult(name=logger, value=level, config_source=DYNAMIC_BROKER_LOGGER)
        for logger, level in context.services.loggers.describe()
        if not keys or logger in keys
    ]


def alter_levels(resource: AlterConfigsResource, validate_only: bool, context: Context) -> None:
    """Raises KafkaError."""
    check_broker_name(resource.resource_name, context.services.node_id)
    changes = [(each.name, each.config_operation, each.value) for each in resource.configs]
    if validate_only:
        context.services.loggers.check(changes)
    else:
        context.services.loggers.alter(changes)
