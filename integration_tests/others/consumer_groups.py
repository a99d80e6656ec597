"""Consumers of other people in groups by the protocol of KIP-848: they join, leave, and are killed, and so is the
broker that coordinates them.

Each member commits what it has read. So no record is lost, none is read by two of which neither was killed, and no
partition is given to one while another has it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient

from integration_tests.clients.members import Member, overlaps, wait_until
from integration_tests.clients.records import create_topics

from .clients import go
from .processes import GROUP, Brokers

PARTITIONS, RECORDS = 6, 300  # records: of each step
SETTINGS = {  # a member that is killed is missed soon
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 500,
}
SHARED_WITHIN_S = 90.0  # JVMs start on a busy machine
# By the names that `Member` has for them.
GROUPS = (("java",) * 3, ("confluent",) * 3, ("franz-go",) * 3, ("java", "confluent", "franz-go"))
# In groups of KIP-848 franz-go 1.19.5 gives up all partitions, without a commit, when a heartbeat does not arrive, and
# never looks for another coordinator when it is answered NOT_COORDINATOR (`manage848`, `handleCoordinatorReq`): what it
# has read is read again, of stock Kafka, too. With it no broker is killed.
GIVES_UP = "franz-go"


class _Group:
    """A topic, and members that read it."""

    def __init__(self, bootstrap: str, name: str, programs: Path, folder: Path) -> None:
        self.bootstrap, self.name, self.programs, self.folder = bootstrap, name, programs, folder
        self.members: list[Member] = []  # that run
        self.gone: list[Member] = []
        self.sent: list[str] = []
        create_topics(bootstrap, [name], PARTITIONS)

    @property
    def all(self) -> list[Member]:
        return [*self.members, *self.gone]

    def start(self, library: str) -> None:
        match library:
            case "java":
                options = {"protocol": "consumer"}
            case "confluent":
                options = {"protocol": "consumer", "commits": "yes"}
            case _:
                options = {"program": go("member")(self.programs)[0]}
        name = f"{library}-{len(self.all)}"
        self.members.append(Member(library, self.bootstrap, self.name, self.name, self.folder, name, **options))

    def end(self, by_kill: bool) -> None:
        """Of the member that has been there longest."""
        member = self.members.pop(0)
        self.gone.append(member)
        if by_kill:
            member.kill()
        else:
            member.stop()

    def send(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for _ in range(RECORDS):
            producer.produce(self.name, f"{len(self.sent)}", partition=len(self.sent) % PARTITIONS)
            self.sent.append(f"{len(self.sent)}")
        assert producer.flush(20) == 0

    def is_shared(self) -> None:
        """Wait until each member has its part, none has what another has, and all is read."""
        wait_until(
            lambda: (
                sorted(n for each in self.members for n in each.owned()) == list(range(PARTITIONS))
                and all(len(each.owned()) == PARTITIONS // len(self.members) for each in self.members)
                and {value for each in self.all for value in each.read()} == {*self.sent}
            ),
            SHARED_WITHIN_S, f"shared by {len(self.members)}", self.members,
        )  # fmt: skip

    def check(self) -> None:
        assert overlaps(self.all) == []
        readers: dict[str, list[Member]] = defaultdict(list)
        for member in self.all:
            for value, times in Counter(member.read()).items():
                assert times == 1, f"{member.path.stem} has read {value} {times} times"
                readers[value].append(member)
        for value, found in readers.items():
            unharmed = [each.path.stem for each in found if each.killed_at_ms is None]
            assert len(unharmed) <= 1, f"{value} was read by {unharmed}"


def share(brokers: Brokers, bootstrap: str, libraries: Sequence[str], programs: Path, folder: Path) -> None:
    """A member of each library, one after the other; then the first is killed, then the broker that coordinates them; a
    new one comes, the second leaves.

    AssertionError where a partition has two readers, or a record none.
    """
    group = _Group(bootstrap, f"group-of-{'-'.join(libraries)}", programs, folder)
    try:
        for library in libraries:
            group.start(library)
            group.send()
            group.is_shared()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        [found] = admin.describe_consumer_groups([group.name]).values()
        assert found.result(30).type == ConsumerGroupType.CONSUMER
        group.end(by_kill=True)
        group.send()
        group.is_shared()
        if GIVES_UP not in libraries:
            group.send()
            brokers.restart(bootstrap, GROUP, group.name)
            group.send()
            group.is_shared()
        group.start(libraries[0])
        group.send()
        group.is_shared()
        group.end(by_kill=False)
        group.send()
        group.is_shared()
        group.check()
    finally:
        for each in group.all:
            each.kill()
