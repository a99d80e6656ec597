"""An event: one record as an agent or an operator sees it, with its key and value decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self

from ..errors import AppError
from .origin import Headers, Origin, origin_of

__all__ = ["NO_WATERMARK", "Event", "Headers"]

NO_WATERMARK = -1


_SAME: Any = object()  # the event's own


class TP(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Message(NamedTuple):
    """The record that an event is of. timestamp: of the record, in seconds since the epoch. key, value: bytes."""

    topic: str
    partition: int
    offset: int
    timestamp: float
    headers: Headers
    key: bytes | None
    value: bytes | None

    @property
    def tp(self) -> TP:
        return TP(self.topic, self.partition)


class Carrier(Protocol):
    """The fetched data that events are of."""

    @property
    def app(self) -> Any: ...

    def message_of(self, offset: int) -> Message: ...


class Event:
    """One record. timestamp_ms is the event time; topic, partition and offset are the record's. raw_headers: as they
    were sent, in order and with repetitions. carrier: the data that it was fetched with.

    watermark_ms: the task's watermark after this event, see `time.py`. It travels with the event, so that what is late
    does not depend on how input is divided into batches. A result that passing time has caused has no record: topic is
    the operator's name, offset -1.

    `async with event` and `ack` do nothing: an event is done when the agent asks for the next one.
    """

    __slots__ = (
        "carrier",
        "key",
        "offset",
        "partition",
        "raw_headers",
        "timestamp_ms",
        "topic",
        "value",
        "watermark_ms",
    )

    def __init__(
        self,
        key: Any,
        value: Any,
        timestamp_ms: int,
        topic: str,
        partition: int,
        offset: int,
        raw_headers: Headers = (),
        watermark_ms: int = NO_WATERMARK,
        carrier: Carrier | None = None,
    ) -> None:
        self.key = key
        self.value = value
        self.timestamp_ms = timestamp_ms
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.raw_headers = raw_headers
        self.watermark_ms = watermark_ms
        self.carrier = carrier

    @property
    def headers(self) -> dict[str, bytes | None]:
        """The last value of each header."""
        return dict(self.raw_headers)

    @property
    def timestamp(self) -> float:
        """The event time in seconds."""
        return self.timestamp_ms / 1000

    @property
    def origin(self) -> Origin | None:
        """Where the record came into being (`origin.py`); None for a result that no record has caused. Raises AppError
        in an app without origins, RecordError for a header that is not one of ours."""
        return origin_of(self)

    def derived(self, key: Any, value: Any, timestamp_ms: int | None = None) -> Self:
        """An event that this one has caused: at its place, with another key, value or time."""
        return type(self)(
            key,
            value,
            self.timestamp_ms if timestamp_ms is None else timestamp_ms,
            self.topic,
            self.partition,
            self.offset,
            self.raw_headers,
            self.watermark_ms,
            self.carrier,
        )

    def _origin(self) -> Carrier:
        if self.carrier is None:
            raise AppError(f"{self!r} is of no record that was fetched: a step of a pipeline or a test has made it")
        return self.carrier

    @property
    def app(self) -> Any:
        """The app that reads the record."""
        return self._origin().app

    @property
    def message(self) -> Message:
        """The record as it was fetched. Raises AppError for an event that is of none."""
        return self._origin().message_of(self.offset)

    async def send(
        self,
        channel: Any,
        key: Any = _SAME,
        value: Any = _SAME,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: Headers | Mapping[str, bytes | None] = _SAME,
        **options: Any,
    ) -> Any:
        """Send its key, value and headers, or others, to a topic, an agent, or the topic of this name. timestamp:
        seconds since the epoch; the event's."""
        to = self.app.topic(channel) if isinstance(channel, str) else channel
        if timestamp is not None:
            options["timestamp_ms"] = round(timestamp * 1000)
        return await to.send(
            key=self.key if key is _SAME else key,
            value=self.value if value is _SAME else value,
            partition=partition,
            headers=self.raw_headers if headers is _SAME else headers,
            **options,
        )

    async def forward(
        self,
        channel: Any,
        key: Any = _SAME,
        value: Any = _SAME,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: Headers | Mapping[str, bytes | None] = _SAME,
    ) -> Any:
        """Send the record as it was fetched, not encoded again, or with another key or value."""
        message = self.message
        to = self.app.topic(channel) if isinstance(channel, str) else channel
        to = getattr(to, "topic", to)  # an agent's
        timestamp_ms = self.timestamp_ms if timestamp is None else round(timestamp * 1000)
        return await to.send_encoded(
            message.key if key is _SAME else to.encode_key(key),
            message.value if value is _SAME else to.encode_value(value),
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=message.headers if headers is _SAME else headers,
        )

    @property
    def acked(self) -> bool:
        """False: an event is done when the agent asks for the next one."""
        return False

    def ack(self) -> bool:
        """Nothing: an event is done when the agent asks for the next one."""
        return False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: object = None,
    ) -> None:
        self.ack()

    def __repr__(self) -> str:
        return f"<Event {self.topic}-{self.partition} offset {self.offset} key {self.key!r}>"
