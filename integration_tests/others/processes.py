"""Brokers, programs that run on them until they are stopped, and what they leave in topics."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from integration_tests.brokers import die_with_parent, running_broker
from integration_tests.peers.peers import cluster

STOP_TIMEOUT_S = 30.0
DONE_WITHIN_S = 90.0  # a JVM or two starting on a busy machine, too


class Brokers:
    """Of `isthmus` or of stock `kafka`. Made by `starting`."""

    def __init__(self, side: str, folder: Path, started: ExitStack) -> None:
        self._side, self._folder, self._started = side, folder, started
        self._restarts: dict[str, Callable[[], object]] = {}

    def __call__(self) -> str:
        """Start one more, with nothing in it yet: its bootstrap address."""
        if self._side == "kafka":
            [node] = (made := self._started.enter_context(cluster(heap="512m"))).nodes

            def restart() -> None:
                node.kill()
                made.start("512m")

            address = made.bootstrap
        else:
            broker = self._started.enter_context(running_broker(self._folder / f"broker-{len(self._restarts)}"))

            def restart() -> None:
                broker.kill()
                broker.start()

            address = broker.bootstrap
        self._restarts[address] = restart
        return address

    def restart(self, address: str) -> None:
        """kill -9, and start it again."""
        self._restarts[address]()


@contextmanager
def starting(side: str, folder: Path) -> Iterator[Brokers]:
    """Brokers are gone at the end."""
    with ExitStack() as started:
        yield Brokers(side, folder, started)


@contextmanager
def running(
    command: Sequence[str],
    folder: Path,
    name: str,
    environment: Mapping[str, str] = {},
    ends: signal.Signals = signal.SIGTERM,
) -> Iterator[Path]:
    """The program for as long as it is used, then ended by a signal; gives its log."""
    path = folder / f"{name}.log"
    with open(path, "ab") as log:
        process = subprocess.Popen(
            list(command), cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, preexec_fn=die_with_parent,
        )  # fmt: skip
    try:
        yield path
        assert process.poll() is None, f"{name} ended by itself:\n{path.read_text(errors='replace')[-3000:]}"
        process.send_signal(ends)
        process.wait(STOP_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()


def produce(bootstrap: str, topic: str, rows: Iterable[tuple[str | None, bytes]], codec: str = "none") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    for key, value in rows:
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0


def records(
    bootstrap: str, topic: str, isolation: str = "read_committed", starts: Mapping[int, int] = {}
) -> list[tuple[int, bytes | None, bytes | None]]:
    """(partition, key, value) of all there is in a topic, each partition in its order; none while it is not there.

    starts: offsets to begin at, in place of the beginnings of partitions.
    """
    options = {"bootstrap.servers": bootstrap, "group.id": "all", "enable.auto.commit": False}
    consumer = Consumer({**options, "enable.partition.eof": True, "isolation.level": isolation})
    found: list[tuple[int, bytes | None, bytes | None]] = []
    try:
        due = dict.fromkeys(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, n, starts.get(n, OFFSET_BEGINNING)) for n in due])
        while due:
            for message in consumer.consume(500, 0.2):
                error, partition = message.error(), message.partition()
                assert partition is not None and (error is None or error.code() == KafkaError._PARTITION_EOF), error
                if error is None:
                    found.append((partition, message.key(), message.value()))
                else:
                    due.pop(partition, None)
    except KafkaException:
        return []
    finally:
        consumer.close()
    return found


def last_values(bootstrap: str, topic: str) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value in records(bootstrap, topic)}


def until(holds: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + DONE_WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(0.2)
