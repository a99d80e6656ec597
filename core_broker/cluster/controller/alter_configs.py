"""IncrementalAlterConfigs: options of topics set, deleted, appended to and subtracted from.

Broker options are read when a broker starts; changing them here is refused as Kafka refuses options that are not
dynamic. Options that own a topic's identity (`mirror.*`) are set when the topic is created and never after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from ....protocol.messages.metadata_records import ConfigRecord
from ...config import BrokerConfig, Type, topic_option, topic_value, validate_topic_options
from ..image import BROKER_RESOURCE, TOPIC_RESOURCE
from ..topic_names import why_invalid
from .common import Decision, Item, Result, View, duplicates


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(slots=True)
class AlteredResource(Item):
    resource_type: int = 0
    resource_name: str = ""


@dataclass(slots=True, frozen=True)
class AlterConfigs:
    """Resources as the request has them. Items: AlteredResource, in the request's order."""

    resources: Sequence[AlterConfigsResource]
    validate_only: bool = False

    def decide(self, view: View) -> Decision:
        twice = duplicates([(each.resource_type, each.resource_name) for each in self.resources])
        items, records = [], []
        for resource in self.resources:
            item = AlteredResource(resource_type=resource.resource_type, resource_name=resource.resource_name)
            try:
                if (resource.resource_type, resource.resource_name) in twice:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                records += _alter(resource, view)
            except KafkaError as error:
                item.error_code, item.error_message = error.code, error.message
            items.append(item)
        return Decision(Result(items), [] if self.validate_only else records)

    def fail(self, error: KafkaError) -> Result:
        items = [
            AlteredResource(error.code, error.message, each.resource_type, each.resource_name)
            for each in self.resources
        ]
        return Result(items, error)


def _alter(resource: AlterConfigsResource, view: View) -> list[Any]:
    """The records of one resource. Raises KafkaError."""
    if duplicates([config.name for config in resource.configs]):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    missing = [c.name for c in resource.configs if c.value is None and c.config_operation != Operation.DELETE]
    if missing:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")
    if resource.resource_type == BROKER_RESOURCE:
        names = ", ".join(config.name for config in resource.configs)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: Set({names})")
    if resource.resource_type != TOPIC_RESOURCE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    return _alter_topic(resource.resource_name, resource.configs, view)


def _alter_topic(name: str, changes: Sequence[AlterableConfig], view: View) -> list[Any]:
    topic = view.image.topics.get(name)
    present: Mapping[str, str] = {} if topic is None else topic.configs
    after = dict(present)
    records: list[Any] = []
    for change in changes:
        value = _changed(change, present, view.config)
        if value is None:
            after.pop(change.name, None)
        else:
            after[change.name] = value
        if value != present.get(change.name):
            records.append(
                ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=change.name, value=value)
            )
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    reason = why_invalid(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    validate_topic_options(after)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    for record in records:
        if topic_option(record.name).sealed:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{record.name} of topic {name} is set when the topic is created and cannot be changed",
            )
    return records


def _changed(change: AlterableConfig, present: Mapping[str, str], config: BrokerConfig) -> str | None:
    """The value of an option after one operation; None for none of its own. Raises KafkaError."""
    try:
        operation = Operation(change.config_operation)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unknown operations type {change.config_operation}"
        ) from None  # fmt: skip
    if operation is Operation.DELETE:
        return None
    if operation is Operation.SET:
        return change.value
    option = None
    try:
        option = topic_option(change.name)
    except KafkaError:
        pass  # an unknown option is no list either
    if option is None or option.type is not Type.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation.name} to key {change.name} because its type is not LIST.",
        )
    text = present.get(change.name)
    parts = list(topic_value(option, {}, config) or ()) if text is None else [part for part in text.split(",") if part]
    for part in (change.value or "").split(","):
        if operation is Operation.APPEND and part not in parts:
            parts.append(part)
        elif operation is Operation.SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)
