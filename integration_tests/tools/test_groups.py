"""ConsumerGroupCommand, GroupsCommand and StreamsResetter: run unchanged, compared with Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer

from .conftest import Both
from .tools import Side

pytestmark = pytest.mark.soak  # two JVMs a command: minutes


def fill(both: Both, topic: str, records: int, partitions: int = 1) -> None:
    both("TopicCommand", "--create", "--topic", topic, "--partitions", str(partitions))
    both("ConsoleProducer", "--topic", topic, stdin="".join(f"{n}\n" for n in range(records)))


def read(both: Both, topic: str, group: str, records: int) -> None:
    done = both("ConsoleConsumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages",
                str(records), "--timeout-ms", "15000")  # fmt: skip
    assert len(done.out.splitlines()) == records


def without_member_ids(text: str) -> str:
    """Those of librdkafka's members are of 22 letters of its own choice."""
    return re.sub(r"(?<=\s)[\w+/-]{22}(?=\s)", "MEMBER", text)


@contextmanager
def member(sides: list[Side], topic: str, group: str, **options: str) -> Iterator[None]:
    """A consumer in the group on each side, which has its partitions."""
    consumers = []
    for side in sides:
        consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": group, "client.id": "member", **options})
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        consumers.append(consumer)
    try:
        yield
    finally:
        for consumer in consumers:
            consumer.close()


def test_groups_are_listed_and_described(both: Both, ours: Side, stock: Side) -> None:
    fill(both, "read", 10)
    read(both, "read", "idle", 7)
    assert "idle" in both("ConsumerGroupCommand", "--list", ordered=False).out.splitlines()
    group = ("--group", "idle", "--describe")
    offsets = both("ConsumerGroupCommand", *group).out
    assert "idle read 0 7 10 3 - - -" in offsets
    for what in ("--members", "--state", "--offsets"):
        both("ConsumerGroupCommand", *group, what)
        both("ConsumerGroupCommand", *group, what, "--verbose")
    with member([ours, stock], "read", "busy"):
        assert "busy Stable" in both("ConsumerGroupCommand", "--list", "--state", ordered=False).out
        both("ConsumerGroupCommand", "--list", "--state", "Stable,Empty", ordered=False)
        for what in ("--members", "--state", "--offsets"):
            assert "busy" in both("ConsumerGroupCommand", "--group", "busy", "--describe", what, "--verbose").out
        assert "GroupNotEmptyException" in both("ConsumerGroupCommand", "--group", "busy", "--delete").out
    both("ConsumerGroupCommand", "--describe", "--all-groups", "--state", ordered=False)
    both("GroupsCommand", "--list", ordered=False)
    both("ConsumerGroupCommand", "--group", "none", "--describe")


def test_groups_of_the_consumer_protocol_are_listed_and_described(both: Both, ours: Side, stock: Side) -> None:
    def look(*arguments: str) -> str:
        return both("ConsumerGroupCommand", *arguments, ordered=False, but=without_member_ids).out

    fill(both, "new", 10)
    with member([ours, stock], "new", "of-848", **{"group.protocol": "consumer"}):
        assert "of-848 Consumer" in look("--list", "--type")
        look("--list", "--type", "consumer")
        assert "of-848" not in look("--list", "--type", "classic").splitlines()
        assert "of-848 Stable" in look("--list", "--state")
        for what in ("--members", "--state", "--offsets"):
            look("--group", "of-848", "--describe", what)
            look("--group", "of-848", "--describe", what, "--verbose")
        assert "GroupNotEmptyException" in look("--group", "of-848", "--delete")
        both("GroupsCommand", "--list", ordered=False)
        both("GroupsCommand", "--list", "--protocol", "consumer", ordered=False)
    look("--group", "of-848", "--describe", "--state", "--verbose")
    reset = ("--group", "of-848", "--reset-offsets", "--topic", "new", "--to-earliest")
    assert "of-848 new 0 0" in look(*reset, "--execute")
    look("--group", "of-848", "--describe", "--offsets", "--verbose")
    look("--group", "of-848", "--delete")
    look("--list")


def test_offsets_are_moved_and_removed(both: Both) -> None:
    fill(both, "moved", 20)
    read(both, "moved", "mover", 12)
    reset = ("ConsumerGroupCommand", "--group", "mover", "--reset-offsets", "--topic", "moved")
    for where in (("--to-earliest",), ("--to-latest",), ("--to-offset", "5"), ("--shift-by", "-2"), ("--to-current",),
                  ("--to-datetime", "2000-01-01T00:00:00.000"), ("--by-duration", "PT1000H")):  # fmt: skip
        assert "mover moved 0 " in both(*reset, *where, "--dry-run").out
    assert "mover moved 0 5" in both(*reset, "--to-offset", "5", "--execute").out
    both(*reset, "--to-offset", "99", "--execute")  # past the end: the end
    both(*reset[:-1], "moved:0", "--to-earliest", "--export", "--dry-run")
    both("ConsumerGroupCommand", "--group", "mover", "--describe")
    assert both("ConsumerGroupCommand", "--group", "mover", "--delete-offsets", "--topic", "moved").exit == 0
    both("ConsumerGroupCommand", "--group", "mover", "--delete-offsets", "--topic", "none")
    both("ConsumerGroupCommand", "--group", "mover", "--describe")
    both("ConsumerGroupCommand", "--group", "mover", "--delete")
    both("ConsumerGroupCommand", "--group", "none", "--delete")
    assert "mover" not in both("ConsumerGroupCommand", "--list", ordered=False).out


def test_a_streams_app_is_reset(both: Both) -> None:
    fill(both, "input", 10)
    fill(both, "app-counts-changelog", 3)
    fill(both, "app-by-key-repartition", 3)
    read(both, "input", "app", 6)
    reset = ("StreamsResetter", "--application-id", "app", "--input-topics", "input")
    both(*reset, "--dry-run", ordered=False)
    assert "app-counts-changelog" in both("TopicCommand", "--list").out
    both(*reset, "--to-offset", "2", "--force", ordered=False)
    topics = both("TopicCommand", "--list").out.split()
    assert not [topic for topic in topics if topic.startswith("app-")]
    assert "app input 0 2 10 8" in both("ConsumerGroupCommand", "--group", "app", "--describe").out
    both("StreamsResetter", "--application-id", "app", "--input-topics", "none", ordered=False)
