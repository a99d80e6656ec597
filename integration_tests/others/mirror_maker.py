"""MirrorMaker 2, dedicated mode, between two brokers: the same records there, and a group at the same place.

Exactly once, too, where it and the broker it writes to are killed as they go.
"""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from integration_tests.clients.records import CODECS, create_topics
from integration_tests.peers.peers import MM2, MM2_ALONE, java_command

from .clients import JVM
from .processes import TRANSACTION, Brokers, produce, records, running, until

PROPERTIES = """\
clusters = from, to
from.bootstrap.servers = {source}
to.bootstrap.servers = {target}
from->to.enabled = true
from->to.topics = flights
from->to.groups = readers
from->to.sync.group.offsets.enabled = true
from->to.sync.group.offsets.interval.seconds = 1
from->to.emit.checkpoints.interval.seconds = 1
from->to.refresh.groups.interval.seconds = 1
from->to.refresh.topics.interval.seconds = 1
from->to.sync.topic.acls.enabled = false
from->to.offset.lag.max = 0
to->from.enabled = false
offset.flush.interval.ms = 1000
tasks.max = 2
"""
TOPIC, COPY, GROUP = "flights", "from.flights", "readers"
PARTITIONS, RECORDS = 3, 120  # records: of each codec, each time


ONCE = """\
from.exactly.once.source.support = enabled
to.exactly.once.source.support = enabled
exactly.once.source.support = enabled
dedicated.mode.enable.internal.rest = true
listeners = http://127.0.0.1:0
from.consumer.isolation.level = read_committed
from.transaction.state.log.replication.factor = 1
"""


def mirror(brokers: Brokers, _programs: Path, folder: Path) -> None:
    run(brokers, folder, "")


def mirror_once(brokers: Brokers, _programs: Path, folder: Path) -> None:
    run(brokers, folder, ONCE, with_kills=True)


def run(brokers: Brokers, folder: Path, options: str, with_kills: bool = False) -> None:
    source, target = brokers(), brokers()
    create_topics(source, [TOPIC], PARTITIONS)
    properties = folder / "mm2.properties"
    replicated = (MM2_ALONE + options).replace("factor = 1", f"factor = {brokers.replicas}")
    properties.write_text(PROPERTIES.format(source=source, target=target) + replicated)
    command = java_command(MM2, str(properties), log="INFO", heap="1g", jvm=JVM)

    def send(mark: str) -> None:
        for codec in CODECS:
            produce(source, TOPIC, [(f"{n}", f"{mark} {codec} {n}".encode()) for n in range(RECORDS)], codec)

    def copied() -> bool:
        return by_partition(target, COPY) == by_partition(source, TOPIC)

    def ends() -> dict[int, int]:
        return {partition: len(rows) for partition, rows in by_partition(source, TOPIC).items()}

    def is_at_the_end() -> bool:
        """Nothing of the copy is left for the group; markers of transactions have offsets, too."""
        places = committed(target)
        return len(places) == PARTITIONS and not records(target, COPY, starts=places)

    def found(log: Path) -> object:
        rows = by_partition(target, COPY)
        return {n: len(rows[n]) for n in rows}, ends(), committed(target), log.read_text(errors="replace")[-3000:]

    for state in ("first", "second"):  # the second goes on where the first stopped: nothing is carried twice
        if with_kills:
            with running(command, folder, state, ends=signal.SIGKILL) as log:
                send(f"{state} kept")
                until(copied, partial(found, log))
                send(f"{state} broken off")
            with running(command, folder, state) as log:
                send(f"{state} killed")
                until(copied, partial(found, log))
                send(f"{state} as its broker is killed")
                brokers.restart(target, TRANSACTION, COPY)
                until(copied, partial(found, log))
        send(f"{state} before")
        with running(command, folder, state) as log:
            until(copied, partial(found, log))
            send(f"{state} after")
            until(copied, partial(found, log))
            commit(source, ends())
            until(is_at_the_end, partial(found, log))
        assert copied()
    assert sum(ends().values()) == (12 if with_kills else 4) * len(CODECS) * RECORDS


def by_partition(bootstrap: str, topic: str) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    """Keys and values, each partition in its order."""
    found: dict[int, list[tuple[bytes | None, bytes | None]]] = {n: [] for n in range(PARTITIONS)}
    for partition, key, value in records(bootstrap, topic):
        found[partition].append((key, value))
    return found


def commit(bootstrap: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(TOPIC, *each) for each in offsets.items()], asynchronous=False)
    consumer.close()


def committed(bootstrap: str) -> dict[int, int]:
    """The group's offsets of the copy, where it has any."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    rows = consumer.committed([TopicPartition(COPY, n) for n in range(PARTITIONS)], 30)
    consumer.close()
    return {row.partition: row.offset for row in rows if row.offset >= 0}
