"""An idempotent producer of librdkafka that sends numbers in order, and a reader of all that is there."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from integration_tests.waiting import until

TOPIC = "events"
ASK_TIMEOUT_S = 10.0


class Sending:
    """One idempotent producer that sends numbers, in order, until it is told to end."""

    def __init__(self, bootstrap: str) -> None:
        self.acked: list[tuple[int, int]] = []  # offset, number
        self.acked_ms: list[float] = []  # when, on the clock of this machine
        self.errors: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 60_000,
                "socket.timeout.ms": 4000,  # how long it waits for a leader that hangs
                "log_level": 0,
            }
        )
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        number = 0
        try:
            while not self._ends.is_set():
                self._producer.produce(TOPIC, str(number).encode(), partition=0, on_delivery=self._told(number))
                number += 1
                self._producer.poll(0.003)
            self._producer.flush(60)
        except KafkaException as error:  # it is told that what it had sent before is lost
            self.errors.append(str(error))

    def _told(self, number: int) -> Callable[..., None]:
        def told(error: object, message: object) -> None:
            if error is not None:
                self.errors.append(str(error))
            else:
                self.acked_ms.append(time.time() * 1000)
                self.acked.append((message.offset(), number))  # type: ignore[attr-defined]

        return told

    @property
    def stall_s(self) -> float:
        """The longest time between two acknowledgements."""
        return max((after - before for before, after in itertools.pairwise(self.acked_ms)), default=0.0) / 1000

    def goes_on(self, records: int = 200, within_s: float = 60.0) -> None:
        """Wait until so many more are acknowledged."""
        wanted = len(self.acked) + records
        until(lambda: len(self.acked) >= wanted, lambda: f"{len(self.acked)} of {wanted} acknowledged", within_s)

    def end(self) -> None:
        self._ends.set()
        self._thread.join(70)
        assert not self._thread.is_alive()

    def all_are_there(self, bootstrap: str) -> None:
        """After the end: what was sent was acknowledged, and is there once, in order."""
        assert not self.errors
        numbers = [number for _, number in self.acked]
        assert numbers == list(range(len(numbers)))
        assert read_all(bootstrap, len(numbers)) == [str(number).encode() for number in numbers]


def leader_of(admin: AdminClient) -> int:
    """-1 if there is none, or nobody told."""
    try:
        return admin.list_topics(TOPIC, timeout=ASK_TIMEOUT_S).topics[TOPIC].partitions[0].leader
    except KafkaException:  # it asked the one that hangs
        return -1


def read_all(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []
    try:
        while len(found) < count:
            messages = consumer.consume(min(500, count - len(found)), timeout=20)  # it waits for all of them
            assert messages, f"{len(found)} of {count} records came"
            found += [each.value() or b"" for each in messages if each.error() is None]
    finally:
        consumer.close()
    return found
