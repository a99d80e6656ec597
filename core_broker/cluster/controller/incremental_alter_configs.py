"""IncrementalAlterConfigs: sets, deletes, appends to and subtracts from options of resources (KIP-339)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from ...config import ConfigError, Option, Type, broker_option, topic_option
from ..image import BROKER_RESOURCE, GROUP_RESOURCE
from .common import MAX_RECORDS_PER_COMMAND, TOO_MANY_OPTIONS, Decision, Result, View
from .resources import AlteredResource, present_options, records_of_change


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(slots=True, frozen=True)
class IncrementalAlterConfigs:
    """Resources as in the request, each once. Items: AlteredResource, in the request's order."""

    resources: Sequence[AlterConfigsResource]
    validate_only: bool = False

    def decide(self, view: View) -> Decision:
        items, records = [], []
        for resource in self.resources:
            item = AlteredResource(resource_type=resource.resource_type, resource_name=resource.resource_name)
            try:
                records += _alter(resource, view)
            except KafkaError as error:
                item.error_code, item.error_message = error.code, error.message
            items.append(item)
        if len(records) > MAX_RECORDS_PER_COMMAND:
            return Decision(self.fail(KafkaError(ErrorCode.POLICY_VIOLATION, TOO_MANY_OPTIONS)))
        return Decision(Result(items), [] if self.validate_only else records)

    def fail(self, error: KafkaError) -> Result:
        items = [
            AlteredResource(error.code, error.message, each.resource_type, each.resource_name)
            for each in self.resources
        ]
        return Result(items, error)


def _alter(resource: AlterConfigsResource, view: View) -> list[Any]:
    """The records of one resource. Raises KafkaError."""
    kind, name = resource.resource_type, resource.resource_name
    after = changed_options(present_options(kind, name, view.image), resource.configs, kind)
    return records_of_change(kind, name, after, view)


def changed_options(present: Mapping[str, str], changes: Sequence[AlterableConfig], kind: int) -> dict[str, str]:
    """A resource's own options after some operations. Raises KafkaError."""
    after = dict(present)
    for change in changes:
        value = _changed(change, present.get(change.name), kind)
        if value is None:
            after.pop(change.name, None)
        else:
            after[change.name] = value
    return after


def _changed(change: AlterableConfig, present: str | None, kind: int) -> str | None:
    """The text of an option after one operation; None if it is not set any more. Raises KafkaError."""
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
    option = _list_option(change.name, kind)
    if option is None:
        raise ConfigError(f"Can't {operation.name} to key {change.name} because its type is not LIST.")
    parts = [part for part in (option.default or "" if present is None else present).split(",") if part]
    for part in _given(change.value or ""):
        if operation is Operation.APPEND and part not in parts:
            parts.append(part)
        elif operation is Operation.SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)


def _given(text: str) -> list[str]:
    """The parts of a list, split as Java does: empty parts at the end are dropped."""
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _list_option(name: str, kind: int) -> Option | None:
    """An option's row if it is a list; None for other options and unknown ones, and for all of groups, as in Kafka."""
    if kind == GROUP_RESOURCE:
        return None
    try:
        option = broker_option(name) if kind == BROKER_RESOURCE else topic_option(name)
    except ConfigError:
        return None
    return option if option.type is Type.LIST else None
