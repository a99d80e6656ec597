"""Resources with options: topics, brokers and groups. Checks a change of their options, and makes the records of it.

Kafka's checks in Kafka's order (KIP-226, KIP-339). The broker that is to change has made the checks that only it can
make. Here a broker's name and options are checked once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata_records import ClearElrRecord, ConfigRecord
from ....protocol.topic_names import why_invalid
from ...config import topic_option, validate_broker_options, validate_topic_options
from ...group_options import validate_group_options
from ..image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, MetadataImage
from .common import Item, View
from .leadership import MIN_ISR, has_elr


@dataclass(slots=True)
class AlteredResource(Item):
    resource_type: int = 0
    resource_name: str = ""


def present_options(kind: int, name: str, image: MetadataImage) -> Mapping[str, str]:
    """The options that are set for a resource. Raises KafkaError for a kind of resource without options."""
    if kind == TOPIC_RESOURCE:
        topic = image.topics.get(name)
        return {} if topic is None else topic.configs
    if kind == BROKER_RESOURCE:
        return image.broker_configs.get(name, {})
    if kind == GROUP_RESOURCE:
        return image.group_configs.get(name, {})
    raise unknown_kind(kind)


def unknown_kind(kind: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


def records_of_change(kind: int, name: str, after: Mapping[str, str], view: View) -> list[Any]:
    """The records after which a resource has exactly the options `after`. Raises KafkaError."""
    image = view.image
    present = present_options(kind, name, image)
    changed = {key: after.get(key) for key in dict.fromkeys([*after, *present]) if after.get(key) != present.get(key)}
    if kind == TOPIC_RESOURCE:
        _check_topic(name, after, changed, view)
    elif kind == GROUP_RESOURCE:
        _check_group(name, after, view)
    else:
        _check_broker(name, after)
    if kind == BROKER_RESOURCE and MIN_ISR.name in changed and has_elr(image):
        _check_min_isr(name, changed[MIN_ISR.name])
    records: list[Any] = [
        ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value) for key, value in changed.items()
    ]
    return [*records, *elr_cleared(kind, name, changed, image)]


def elr_cleared(kind: int, name: str, changed: Iterable[str], image: MetadataImage) -> list[ClearElrRecord]:
    """The record that goes with another min.insync.replicas, which gives an ELR another meaning (KIP-966)."""
    if MIN_ISR.name not in changed or not has_elr(image):
        return []
    return [ClearElrRecord(topic_name=name if kind == TOPIC_RESOURCE else "")]


def _check_min_isr(broker: str, value: str | None) -> None:
    """Raises KafkaError where the cluster keeps eligible leader replicas, and a broker would differ from the others."""
    reason = None
    if broker:
        reason = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    elif value is None:
        reason = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, reason)


def _check_topic(name: str, after: Mapping[str, str], changed: Mapping[str, str | None], view: View) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    reason = why_invalid(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    validate_topic_options(after, view.config)
    if name not in view.image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    for key in changed:
        if topic_option(key).sealed:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{key} of topic {name} is set when the topic is created and cannot be changed",
            )


def _check_broker(name: str, after: Mapping[str, str]) -> None:
    """An empty name means all brokers."""
    if name and not (name.isascii() and name.isdigit()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {name} is not a non-negative number.")
    validate_broker_options(after)


def _check_group(name: str, after: Mapping[str, str], view: View) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    validate_group_options(after, view.config)


def is_sealed(option: str, kind: int) -> bool:
    """Whether an option can be set only when its resource is created."""
    return kind == TOPIC_RESOURCE and topic_option(option).sealed
