"""Brokers, programs that run on them until they are stopped, and what they leave in topics."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from integration_tests.brokers import die_with_parent, running_broker, running_cluster
from integration_tests.peers.peers import cluster, coordinator
from integration_tests.waiting import until as wait_until

OURS = ("isthmus", "three")  # one node, three
SIDES = (*OURS, "kafka")
THREE = {
    "broker.session.timeout.ms": 3_000,
    "min.insync.replicas": 2,
    "transaction.state.log.num.partitions": 1,  # the ids of Streams and Connect are not known beforehand: one has all
}
GROUP, TRANSACTION = 0, 1  # what is coordinated, as FindCoordinator has it
STOP_TIMEOUT_S = 30.0
MOVED_WITHIN_S = 60.0
DONE_WITHIN_S = 240.0  # a JVM or two starting on a busy machine, too


Restart = Callable[[int, str], float]


class Brokers:
    """A broker of `isthmus` or of stock `kafka`, or `three` of ours, for each call. Made by `starting`."""

    def __init__(self, side: str, folder: Path, started: ExitStack, settings: Mapping[str, object]) -> None:
        self._side, self._started, self._settings = side, started, settings
        self._restarts: dict[str, Restart] = {}
        self.replicas = 3 if side == "three" else 1  # of each partition
        self.folder = folder  # below it is what they store

    def __call__(self) -> str:
        """Start one more, with nothing in it yet: its bootstrap address."""
        make = {"isthmus": self._one, "three": self._three, "kafka": self._kafka}[self._side]
        address, restart = make(self.folder / f"broker-{len(self._restarts)}")
        self._restarts[address] = restart
        return address

    def _one(self, folder: Path) -> tuple[str, Restart]:
        broker = self._started.enter_context(running_broker(folder, self._settings))

        def restart(_kind: int, _key: str) -> float:
            broker.kill()
            killed_at = time.monotonic()
            broker.start()
            return killed_at

        return broker.bootstrap, restart

    def _three(self, folder: Path) -> tuple[str, Restart]:
        made = self._started.enter_context(running_cluster(folder, settings={**THREE, **self._settings}))

        def asked(kind: int, key: str, but: int) -> int:
            """What coordinates it, as the brokers but one say that run; 0 while they do not agree."""
            found = set()
            for number, each in made.brokers.items():
                with contextlib.suppress(OSError):
                    if number != but:
                        found.add(coordinator(each.port, kind, key))
            return found.pop() if len(found) == 1 and not found & {-1, but} else 0

        def restart(kind: int, key: str) -> float:
            wait_until(partial(is_in_sync, made.bootstrap), "the one killed before is in sync", MOVED_WITHIN_S)
            was = wait_until(lambda: asked(kind, key, 0), f"{key} has a coordinator", MOVED_WITHIN_S)
            made.brokers[was].kill()
            killed_at = time.monotonic()
            wait_until(lambda: asked(kind, key, was), f"{key} has a coordinator but {was}", MOVED_WITHIN_S)
            made.brokers[was].start()
            return killed_at

        return made.bootstrap, restart

    def _kafka(self, _folder: Path) -> tuple[str, Restart]:
        made = self._started.enter_context(cluster(properties=self._settings, heap="512m"))

        def restart(_kind: int, _key: str) -> float:
            made.nodes[0].kill()
            killed_at = time.monotonic()
            made.start("512m")
            return killed_at

        return made.bootstrap, restart

    def restart(self, address: str, kind: int, key: str) -> float:
        """kill -9 what coordinates a group or transactional id, and start it again; when it was killed, by the
        monotonic clock.

        Of three, it is started when another one coordinates; AssertionError if none does.
        """
        return self._restarts[address](kind, key)


def is_in_sync(bootstrap: str) -> bool:
    """Whether all partitions have all their replicas in sync."""
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics.values()
    return all(len(each.isrs) == len(each.replicas) for topic in topics for each in topic.partitions.values())


@contextmanager
def starting(side: str, folder: Path, settings: Mapping[str, object] = {}) -> Iterator[Brokers]:
    """Brokers are gone at the end. settings: of each."""
    with ExitStack() as started:
        yield Brokers(side, folder, started, settings)


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
