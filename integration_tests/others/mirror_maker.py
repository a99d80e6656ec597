"""MirrorMaker 2, dedicated mode, between two brokers: the same records there, and a group at the same place."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from integration_tests.clients.records import CODECS, create_topics
from integration_tests.peers.peers import MM2, MM2_ALONE, java_command

from .clients import JVM
from .processes import Brokers, produce, records, running, until

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
    run(brokers, folder, ONCE)


def run(brokers: Brokers, folder: Path, options: str) -> None:
    source, target = brokers(), brokers()
    admin = AdminClient({"bootstrap.servers": target})
    create_topics(source, [TOPIC], PARTITIONS)
    properties = folder / "mm2.properties"
    properties.write_text(PROPERTIES.format(source=source, target=target) + MM2_ALONE + options)
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
        places = committed(admin)
        return len(places) == PARTITIONS and not records(target, COPY, starts=places)

    def found(log: Path) -> object:
        rows = by_partition(target, COPY)
        return {n: len(rows[n]) for n in rows}, ends(), committed(admin), log.read_text(errors="replace")[-3000:]

    for state in ("first", "second"):  # the second goes on where the first stopped: nothing is carried twice
        send(f"{state} before")
        with running(command, folder, state) as log:
            until(copied, partial(found, log))
            send(f"{state} after")
            until(copied, partial(found, log))
            commit(source, ends())
            until(is_at_the_end, partial(found, log))
        assert copied()
    assert sum(ends().values()) == 4 * len(CODECS) * RECORDS


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


def committed(admin: AdminClient) -> dict[int, int]:
    """The group's offsets of the copy; none while there is no such group."""
    [answer] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]).values()
    try:
        rows = answer.result(30).topic_partitions or []
    except KafkaException:
        return {}
    return {row.partition: row.offset for row in rows if row.topic == COPY}
