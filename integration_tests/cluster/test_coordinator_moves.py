"""A group of librdkafka's consumers whose coordinator is killed and comes back, twice.

No committed offset goes back or is lost, each record is processed, and the group goes on: no member joins again, since
the next coordinator knows the generation. The control: after each kill the coordinator is another broker.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.brokers import running_cluster
from integration_tests.waiting import until

TOPIC, GROUP, PARTITIONS, MEMBERS, KILLS = "events", "readers", 6, 3, 2
OFFSETS = "__consumer_offsets"
STEP = 600  # records that are committed before and after each fault
SETTLE_S = 60.0
CALL_S = 5.0


class Log:
    """What members and producer have done, by partition."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ends = threading.Event()
        self.produced: Counter[int] = Counter()
        self.processed: set[tuple[int, int]] = set()  # partition, offset
        self.committed: Counter[int] = Counter()  # the largest offset that a member was told is committed
        self.assignments = 0
        self.problems: list[str] = []


class Member(threading.Thread):
    """Processes, then commits; what it was told is in the log."""

    def __init__(self, bootstrap: str, log: Log) -> None:
        super().__init__(daemon=True)
        self.log = log
        self.consumer = consumer(bootstrap)
        self.start()

    def run(self) -> None:
        self.consumer.subscribe([TOPIC], on_assign=self._assigned)
        while not self.log.ends.is_set():
            messages = [each for each in self.consumer.consume(50, timeout=0.1) if each.error() is None]
            with self.log.lock:
                self.log.processed.update(map(place, messages))
            with contextlib.suppress(KafkaException):  # the coordinator is gone: the next commit has this one in it
                for each in self.consumer.commit(asynchronous=False) if messages else ():
                    if each.error is None:
                        with self.log.lock:
                            self.log.committed[each.partition] = max(self.log.committed[each.partition], each.offset)
        self.consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.log.assignments += 1


class Watcher(threading.Thread):
    """Asks for the group's offsets all the time: none is below what was told before."""

    def __init__(self, bootstrap: str, log: Log) -> None:
        super().__init__(daemon=True)
        self.log = log
        self.reads = 0
        self.consumer = consumer(bootstrap)
        self.start()

    def run(self) -> None:
        floor: Counter[int] = Counter()
        while not self.log.ends.is_set():
            with self.log.lock:
                floor |= self.log.committed
            with contextlib.suppress(KafkaException):
                for each in self.consumer.committed([TopicPartition(TOPIC, n) for n in range(PARTITIONS)], CALL_S):
                    told = max(each.offset, 0)  # below 0 there is none
                    if told < floor[each.partition]:
                        self.log.problems.append(f"{each.partition}: {told} after {floor[each.partition]}")
                    floor[each.partition] = max(floor[each.partition], told)
                self.reads += 1
            self.log.ends.wait(0.02)
        self.consumer.close()


class Sender(threading.Thread):
    def __init__(self, bootstrap: str, log: Log) -> None:
        super().__init__(daemon=True)
        self.log = log
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, "log_level": 0}
        )
        self.start()

    def run(self) -> None:
        number = 0
        while not self.log.ends.is_set():
            self.producer.produce(TOPIC, b"x", partition=number % PARTITIONS, on_delivery=self._told)
            number += 1
            self.producer.poll(0.002)
        self.producer.flush(60)

    def _told(self, error: object, message: Message) -> None:
        if error is None:
            self.log.produced[message.partition() or 0] += 1
        else:
            self.log.problems.append(str(error))


def place(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    return partition, offset


def consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 500,
            "log_level": 0,
        }
    )


def described(bootstrap: str) -> Any:
    """The group as its coordinator describes it; None while none is known. A client that has asked before would go on
    asking the coordinator that it knew."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    with contextlib.suppress(KafkaException, TimeoutError):
        return admin.describe_consumer_groups([GROUP], request_timeout=CALL_S)[GROUP].result(2 * CALL_S)
    return None


def coordinator(bootstrap: str) -> int:
    """Node id; -1 while none is known."""
    found = described(bootstrap)
    return -1 if found is None or found.coordinator is None else found.coordinator.id


def another_coordinator(bootstrap: str, was: int) -> None:
    until(lambda: coordinator(bootstrap) not in (-1, was), "another broker coordinates", SETTLE_S)


def in_sync(admin: AdminClient, topic: str) -> int:
    """How many replicas all partitions have in sync."""
    with contextlib.suppress(KafkaException):
        return min(
            len(each.isrs) for each in admin.list_topics(topic, timeout=CALL_S).topics[topic].partitions.values()
        )
    return 0


def test_a_group_goes_on_while_its_coordinator_is_killed_and_comes_back(tmp_path: Path) -> None:
    log = Log()
    with running_cluster(tmp_path, settings={"broker.session.timeout.ms": 3000}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(20)
        members = [Member(cluster.bootstrap, log) for _ in range(MEMBERS)]
        sender, watcher = Sender(cluster.bootstrap, log), Watcher(cluster.bootstrap, log)

        def goes_on(what: str) -> None:
            wanted = log.committed.total() + STEP
            until(lambda: log.committed.total() >= wanted, lambda: f"{what}: {log.committed}", SETTLE_S)

        def all_work() -> bool:
            found = getattr(described(cluster.bootstrap), "members", ())
            return len(found) == MEMBERS and all(each.assignment.topic_partitions for each in found)

        until(lambda: in_sync(admin, OFFSETS) == 3, "groups have a topic", SETTLE_S)
        until(all_work, "all are members", SETTLE_S)
        goes_on("before")
        assignments = log.assignments
        for turn in range(KILLS):
            was = until(lambda: max(coordinator(cluster.bootstrap), 0), "a coordinator is known", SETTLE_S)
            cluster.brokers[was].kill()
            another_coordinator(cluster.bootstrap, was)
            goes_on(f"after kill {turn}")
            cluster.start()
            until(lambda: in_sync(admin, TOPIC) == 3, "records are in sync", SETTLE_S)
            until(lambda: in_sync(admin, OFFSETS) == 3, "groups are in sync", SETTLE_S)
            goes_on(f"after return {turn}")
        reads, joined = watcher.reads, log.assignments - assignments
        log.ends.set()
        sender.join(70)
        for each in (*members, watcher):
            each.join(30)
        assert not log.problems and reads > KILLS
        assert not joined, "members have joined again"
        rest = read_rest(cluster.bootstrap, log)
        found = {
            index: {offset for partition, offset in log.processed | rest if partition == index}
            for index in range(PARTITIONS)
        }
        assert found == {index: set(range(log.produced[index])) for index in range(PARTITIONS)}


def read_rest(bootstrap: str, log: Log) -> set[tuple[int, int]]:
    """What the group reads, from its committed offsets on, that no member has processed."""
    last = consumer(bootstrap)
    places = last.committed([TopicPartition(TOPIC, n) for n in range(PARTITIONS)], 20)
    assert {each.partition: each.offset for each in places} == dict(log.committed)
    last.assign(places)
    found: set[tuple[int, int]] = set()
    while len(found) < sum(log.produced[each.partition] - each.offset for each in places):
        messages = last.consume(500, timeout=20)
        assert messages, f"{len(found)} records came after the committed offsets"
        found.update(place(each) for each in messages if each.error() is None)
    last.close()
    return found
