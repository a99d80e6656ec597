"""A record that an app sends, on its way to a producer."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

from ...client import Producer, RecordMetadata
from ..engine.event import Headers
from ..engine.partitioning import KeyRule


class Destination(Protocol):
    """A declared topic."""

    @property
    def is_internal(self) -> bool: ...

    @property
    def is_at_once(self) -> bool: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    def get_topic_name(self) -> str: ...


class Outgoing(NamedTuple):
    """partition: None where it follows from the key; by: the partitioner, None where it is the app's. timestamp_ms:
    None for the time at which it is written."""

    topic: Destination
    key: bytes | None
    value: bytes | None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()
    by: KeyRule | None = None

    def put(self, producer: Producer) -> asyncio.Future[RecordMetadata]:
        """Raises as `Producer.send` does."""
        topic, key, value, partition, timestamp_ms, headers, by = self
        [name] = topic.names
        return producer.send(
            name, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers, partitioner=by
        )
