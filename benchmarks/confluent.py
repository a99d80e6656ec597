"""A client of librdkafka by confluent-kafka's Python calls: the other form of `rdkafka.Client`.

It makes Python objects of each record, or looks into some, and that is most of what it costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from .rdkafka import PRODUCER, WAIT_MS

WAIT_S = WAIT_MS / 1000
CALL_RECORDS = 10_000  # most that one call gives

Records = list[dict[str, bytes]]


class Client:
    """A producer or a consumer, and a topic. `failed` tells, in words, what went wrong between calls."""

    def __init__(self, kind: int, address: str, topic: str, options: Mapping[str, object]) -> None:
        """kind: PRODUCER or CONSUMER."""
        self.failed: list[str] = []
        self._topic = topic
        common = {"bootstrap.servers": address, "error_cb": lambda error: self.failed.append(str(error)), **options}
        if kind == PRODUCER:
            self._producer = Producer({**common, "on_delivery": lambda error, message: self.failed.append(str(error))})
            self._producer.list_topics(topic, timeout=WAIT_S)
        else:
            self._consumer = Consumer({**common, "group.id": "bench", "enable.auto.commit": False})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if hasattr(self, "_consumer"):
            self._consumer.close()

    def count(self, partitions: int) -> int:
        """Records from the beginning to the end of so many partitions."""
        bounds = [
            self._consumer.get_watermark_offsets(TopicPartition(self._topic, each), WAIT_S)
            for each in range(partitions)
        ]
        return sum(high - low for low, high in bounds)

    def waiting(self) -> int:
        """Records that are not acknowledged yet."""
        return len(self._producer)

    def poll(self, wait_ms: int) -> None:
        self._producer.poll(wait_ms / 1000)

    def flush(self) -> None:
        if left := self._producer.flush(WAIT_S):
            raise RuntimeError(f"{left} records are not acknowledged after {WAIT_S} s")

    def records(self, values: Sequence[bytes]) -> Records:
        """What `produce` takes, again and again."""
        return [{"value": value} for value in values]

    def produce(self, partition: int, records: Records) -> None:
        """Each is copied; there must be room in the queue."""
        taken = self._producer.produce_batch(self._topic, records, partition=partition)
        if taken != len(records):
            raise RuntimeError(f"{taken} of {len(records)} records were taken")

    def start(self, partitions: int) -> None:
        """Reads so many from the beginning."""
        self._consumer.assign([TopicPartition(self._topic, each, OFFSET_BEGINNING) for each in range(partitions)])

    def consume(self, wait_s: float) -> int:
        """How many records came."""
        messages = self._consumer.consume(CALL_RECORDS, wait_s)
        for message in messages:
            if (error := message.error()) is not None:
                raise KafkaException(error)
        return len(messages)

    def stop(self, partitions: int) -> None:
        self._consumer.unassign()
