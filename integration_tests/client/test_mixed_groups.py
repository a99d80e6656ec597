"""Groups in which our consumer is with those of Java and librdkafka: by the protocol of KIP-848, and cooperative ones.

What all members write shows that no partition was assigned to one while another had it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
import uvloop

from integration_tests.brokers import running_broker
from integration_tests.clients.members import Member, overlaps, wait_until
from integration_tests.clients.records import create_topics
from integration_tests.peers.peers import kafka_cluster
from isthmus.client import Client, Consumer
from isthmus.protocol.errors import ErrorCode, KafkaError

PARTITIONS = 6
RECORDS = 120
SESSION_MS = 6_000
JOIN_S = 90.0  # JVMs and interpreters start at once, on few cores
LIBRARIES = ("isthmus", "java", "confluent")
OPTIONS = {
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.min.session.timeout.ms": 1_000,
    "group.initial.rebalance.delay.ms": 0,
}


@pytest.fixture(scope="module", params=["kafka", "isthmus"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "kafka":
        with kafka_cluster(properties=OPTIONS, heap="512m") as made:
            yield made
    else:
        with running_broker(tmp_path_factory.mktemp("mixed"), OPTIONS) as broker:
            yield broker.bootstrap


class Group:
    """A topic, and members that read it."""

    def __init__(self, bootstrap: str, name: str, folder: Path) -> None:
        self.bootstrap, self.name, self.folder = bootstrap, name, folder
        self.members: list[Member] = []  # that run
        self.gone: list[Member] = []
        self.sent: list[str] = []
        self._made = 0
        create_topics(bootstrap, [name], PARTITIONS)

    def start(self, library: str, topic: str | None = None, **options: str) -> Member:
        self._made += 1
        name = f"{library}-{self._made}"
        member = Member(library, self.bootstrap, self.name, topic or self.name, self.folder, name, **options)
        self.members.append(member)
        return member

    def end(self, member: Member, by_kill: bool = False) -> None:
        self.members.remove(member)
        self.gone.append(member)
        if by_kill:
            member.kill()
        else:
            member.stop()

    def send(self, count: int = RECORDS) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap})
        for _ in range(count):
            producer.produce(self.name, f"{len(self.sent)}", partition=len(self.sent) % PARTITIONS)
            self.sent.append(f"{len(self.sent)}")
        assert producer.flush(20) == 0

    def shared(self, timeout_s: float = JOIN_S) -> None:
        """Wait until each has its part, none has what another has, and all is read."""
        wait_until(
            lambda: (
                sorted(p for each in self.members for p in each.owned()) == list(range(PARTITIONS))
                and all(len(each.owned()) >= PARTITIONS // len(self.members) for each in self.members)
                and {value for each in (*self.members, *self.gone) for value in each.values()} == {*self.sent}
            ),
            timeout_s, f"shared by {len(self.members)}", self.members,
        )  # fmt: skip
        assert overlaps((*self.members, *self.gone)) == []


@pytest.fixture
def group(bootstrap: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    made = Group(bootstrap, "".join(each if each.isalnum() else "-" for each in request.node.name), tmp_path)
    yield made
    for each in (*made.members, *made.gone):
        each.kill()


def rebalances(member: Member) -> list[dict[str, object]]:
    return [event for event in member.events() if event["name"].startswith("partitions_")]


@pytest.mark.parametrize("victim", LIBRARIES)
def test_members_of_three_clients_share_and_take_over_from_one_that_is_killed(group: Group, victim: str) -> None:
    group.send()
    for library in LIBRARIES:
        group.start(library, protocol="consumer")
    group.shared()
    group.end(next(each for each in group.members if each.path.stem.startswith(victim)), by_kill=True)
    group.send()
    group.shared(timeout_s=SESSION_MS / 1000 + 30)
    for each in list(group.members)[1:]:
        group.end(each)
        group.send()
        group.shared()


@pytest.mark.parametrize("leader", LIBRARIES)
def test_a_cooperative_group_of_three_clients_keeps_what_it_can(group: Group, leader: str) -> None:
    """Whoever assigns, which is who came first."""
    for library in sorted(LIBRARIES, key=lambda each: each != leader):
        group.start(library, assignor="cooperative-sticky")
        group.send()
        group.shared()
    for each in group.members:
        for event in each.events():
            if event["name"] == "partitions_revoked":
                gone = {tp["partition"] for tp in event["partitions"]}
                assert not gone & each.owned(), "taken away and given back"
    group.end(group.members[0], by_kill=True)
    group.send()
    group.shared()


def test_members_of_both_protocols_share_while_a_group_goes_over_to_the_new_one_and_back(group: Group) -> None:
    first = group.start("isthmus")
    second = group.start("java")
    group.send()
    group.shared()
    third = group.start("isthmus", protocol="consumer")
    group.send()
    group.shared()
    group.end(first)
    group.end(second)
    fourth = group.start("confluent", protocol="consumer")
    group.send()
    group.shared()
    group.start("isthmus", assignor="cooperative-sticky")
    group.end(third)
    group.end(fourth)
    group.send()
    group.shared()


def test_a_static_member_that_restarts_has_its_partitions_back_and_nobody_else_notices(group: Group) -> None:
    members = [group.start(each, protocol="consumer", instance=each) for each in LIBRARIES]
    group.send()
    group.shared()
    ours, *others = members
    owned, noticed = ours.owned(), [rebalances(each) for each in others]
    group.end(ours)
    again = group.start("isthmus", protocol="consumer", instance="isthmus")
    wait_until(lambda: again.owned() == owned, JOIN_S, "the same partitions", group.members)
    assert [rebalances(each) for each in others] == noticed
    group.send()
    group.shared()


def test_the_place_of_a_static_member_that_was_killed_is_free_when_its_session_has_ended(group: Group) -> None:
    """Until then its successor is refused, and may poll on."""
    killed = group.start("isthmus", protocol="consumer", instance="one")
    group.send()
    group.shared()
    group.end(killed, by_kill=True)

    async def successor() -> list[int]:
        client = Client(group.bootstrap)
        await client.start()
        consumer = Consumer(client, group.name, group_protocol="consumer", group_instance_id="one")
        await consumer.subscribe([group.name])
        refused = []
        while len(consumer.assignment()) < PARTITIONS:
            try:
                await consumer.poll(500)
            except KafkaError as error:
                refused.append(error.code)
                await asyncio.sleep(0.2)
        await consumer.close()
        await client.close()
        return refused

    assert {*uvloop.run(successor())} == {ErrorCode.UNRELEASED_INSTANCE_ID}


def test_topics_that_match_a_pattern_are_read_when_they_come(group: Group) -> None:
    """The broker matches, for our client as for librdkafka."""
    members = [group.start(each, f"^{group.name}.*", protocol="consumer") for each in ("isthmus", "confluent")]
    group.send()
    group.shared()
    later = f"{group.name}-later"
    create_topics(group.bootstrap, [later, f"not-{group.name}"], 2)

    def topics() -> set[str]:
        return {
            tp["topic"]
            for each in members
            for event in each.events()
            if event["name"] == "partitions_assigned"
            for tp in event["partitions"]
        }

    wait_until(lambda: later in topics(), JOIN_S, "the topic that came later", members)
    assert topics() == {group.name, later}
    assert overlaps(members) == []
