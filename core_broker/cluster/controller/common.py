"""What all decisions of the controller share: their input, their result, and errors for each item.

A command is a dataclass with `decide(view) -> Decision`, a pure function of the image, the options and the random
source, and `fail(error)`, which returns the result if its records could not be written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ....runtime import Runtime
from ...config import BrokerConfig
from ..image import BrokerInfo, MetadataImage
from .sessions import Sessions

MAX_RECORDS_PER_COMMAND = 10_000  # as in Kafka: one batch, applied as one
TOO_MANY = "Excessively large number of partitions per request."
TOO_MANY_OPTIONS = "Excessively large number of options per request."


@dataclass(slots=True, frozen=True)
class View:
    """The input of a decision. `next_offset`: the offset that its first record will have in the metadata log.

    sessions: which brokers were heard of lately; a decision reads them. now_ms: loop time.
    """

    image: MetadataImage
    config: BrokerConfig
    runtime: Runtime
    next_offset: int
    sessions: Sessions = field(default_factory=Sessions)
    now_ms: float = 0.0


@dataclass(slots=True)
class Decision:
    """Records, to be appended as one batch, and the result to return when they are applied."""

    result: Any
    records: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Result:
    """Items in the command's order. `error` is set only if the whole command failed; then each item has it too."""

    items: list[Any] = field(default_factory=list)
    error: KafkaError | None = None


class Command(Protocol):
    def decide(self, view: View) -> Decision: ...

    def fail(self, error: KafkaError) -> Any: ...


@dataclass(slots=True)
class Item:
    """The result for one thing that a command names."""

    error_code: int = ErrorCode.NONE
    error_message: str | None = None


@dataclass(slots=True)
class PartitionItem(Item):
    index: int = -1


def registered(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerInfo:
    """The broker, as the one that says its epoch. Raises KafkaError(STALE_BROKER_EPOCH)."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
        )
    return broker


def default_message(code: ErrorCode) -> str:
    """The message for a code if there is no other."""
    return {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
        ErrorCode.UNKNOWN_TOPIC_ID: "This server does not host this topic ID.",
        ErrorCode.TOPIC_DELETION_DISABLED: "Topic deletion is disabled.",
        ErrorCode.ELECTION_NOT_NEEDED: "The partition already has this leader.",
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader is not in sync or not alive.",
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica that could lead is alive.",
    }[code]


def duplicates(names: list[Any]) -> dict[Any, None]:
    """The names that appear more than once, in order of their first appearance."""
    counts: dict[Any, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return {name: None for name, count in counts.items() if count > 1}
