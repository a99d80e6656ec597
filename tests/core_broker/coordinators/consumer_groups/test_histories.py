"""Random histories of a consumer group: members that join, beat, lose answers, leave, vanish and come back; topics that
come, grow and go; coordinators that read the records again.

Whatever happens: a partition has one owner at a time, among the members as the coordinator has them and among what
members themselves believe to have; epochs never go back; and once everything is quiet, all is assigned and stable.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core_broker.coordinators.consumer_groups.group import GroupState
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.messages import consumer_group_heartbeat as chb

from .table import REBALANCE_MS, SESSION_MS, Cluster, Table

REJOIN = (E.FENCED_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID)
TOPICS = ("t", "u", "v")
PATTERNS = ("t|u", "v.*")


class Client:
    """One process of a consumer. It follows the protocol: it gives up what it is told to before it says so."""

    def __init__(self, name: str, instance: str | None = None) -> None:
        self.name = name
        self.instance = instance
        self.lives = 0
        self.epoch = 0  # 0: it is to join
        self.has: set[tuple[bytes, int]] = set()
        self.says_all = False  # it does in its next heartbeat, as it missed an answer
        self.forget()

    @property
    def member_id(self) -> str:
        return f"{self.name}-{self.lives}"

    def forget(self) -> None:
        self.epoch = 0
        self.has = set()
        self.wants: dict[str, object] = {"subscribed_topic_names": ["t", "u"], "subscribed_topic_regex": ""}


class History:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = Cluster(t=3, u=2)
        self.table = Table(self.cluster)
        self.clients = [Client("a"), Client("b"), Client("c"), Client("s", "s"), Client("r", "r")]
        self.epochs: dict[str, int] = {}

    def step(self, who: int, what: int) -> None:
        client = self.clients[who % len(self.clients)]
        if what < 55:
            self.beat(client, is_answered=what >= 8)
        elif what < 62:
            self.table.pass_ms((1, 500, 10_001, SESSION_MS // 2, SESSION_MS, REBALANCE_MS)[what % 6])
        elif what < 70:
            self.leave(client)
        elif what < 76:
            client.lives += 1  # it was killed, and starts anew; a static one has its instance still
            client.forget()
        elif what < 84:
            self.resubscribe(client)
        elif what < 90:
            self.match()
        elif what < 95:
            self.change_topics(what)
        else:
            self.restart()
        self.check()

    # --- Clients ------------------------------------------------------------------------------------------------------

    def ask(self, client: Client, epoch: int, **fields: object) -> chb.Response | None:
        try:
            return self.table.beat(client.member_id, epoch, instance_id=client.instance, **fields)  # type: ignore[arg-type]
        except KafkaError as error:
            if error.code == E.UNRELEASED_INSTANCE_ID:
                return None
            assert error.code in REJOIN, error
            client.forget()
            return None

    def beat(self, client: Client, *, is_answered: bool = True) -> None:
        names: dict[str, list[int]] = {}
        for topic_id, index in self.existing(client):
            names.setdefault(self.cluster.image.names_by_id[topic_id], []).append(index)
        if not client.epoch or client.says_all:
            answer = self.ask(client, client.epoch, has=names, rebalance_timeout_ms=REBALANCE_MS, **client.wants)
        else:
            is_silent = self.random.random() < 0.3  # of what it has
            answer = self.ask(client, client.epoch, has=None if is_silent else names)
        client.says_all = not is_answered
        if answer is None or not is_answered:
            return
        self.take(client, answer)

    def existing(self, client: Client) -> list[tuple[bytes, int]]:
        """What the client has of topics that are still there."""
        return [each for each in sorted(client.has) if each[0] in self.cluster.image.names_by_id]

    def take(self, client: Client, answer: chb.Response) -> None:
        client.epoch = answer.member_epoch
        if answer.assignment is not None:
            told = answer.assignment.topic_partitions
            client.has = {(each.topic_id, index) for each in told for index in each.partitions}

    def leave(self, client: Client) -> None:
        if client.epoch:
            self.ask(client, -2 if client.instance is not None and self.random.random() < 0.6 else -1)
        client.forget()
        client.lives += client.instance is not None

    def resubscribe(self, client: Client) -> None:
        if not client.epoch:
            return
        names = [name for name in TOPICS if self.random.random() < 0.5]
        pattern = self.random.choice(("", "", *PATTERNS))
        client.wants = {"subscribed_topic_names": names, "subscribed_topic_regex": pattern}
        answer = self.ask(client, client.epoch, **client.wants)
        if answer is not None:
            self.take(client, answer)

    # --- The coordinator ----------------------------------------------------------------------------------------------

    def match(self) -> None:
        found = {"t|u": [name for name in ("t", "u") if name in self.cluster.topics.names],
                 "v.*": [name for name in ("v",) if name in self.cluster.topics.names]}  # fmt: skip
        if self.table.patterns:
            self.table.match(**{text: found[text] for text in self.table.patterns})

    def change_topics(self, what: int) -> None:
        name = TOPICS[what % 3]
        if name not in self.cluster.image.topics:
            self.cluster.create(name, self.random.randint(1, 4))
        elif len(self.cluster.image.topics[name].partitions) < 6 and self.random.random() < 0.7:
            self.cluster.grow(name, len(self.cluster.image.topics[name].partitions) + 1)
        elif name != "t":
            self.cluster.delete(name)

    def restart(self) -> None:
        """What another coordinator makes of the records is what this one has, wherever the log's cleaner has been."""
        before = vars(self.table.group)
        self.table.restart(self.random.randint(0, len(self.table.log)))
        after = vars(self.table.group)
        no_records = ("refreshed_at", "_state")
        assert {name: after[name] for name in after if name not in no_records} == {
            name: before[name] for name in before if name not in no_records
        }

    # --- What holds ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        group = self.table.group
        owners: dict[tuple[bytes, int], str] = {}
        for member in group.members.values():
            for assigned in (member.assigned, member.pending_revocation):
                for topic_id, partitions in assigned.items():
                    for index in partitions:
                        assert (topic_id, index) not in owners, (member, owners[topic_id, index])
                        owners[topic_id, index] = member.member_id
                        assert group.partition_epoch(topic_id, index) == member.epoch
        for client in self.clients:
            if client.epoch and client.member_id in group.members:
                for each in self.existing(client):
                    assert owners.get(each) == client.member_id, (client.name, each, owners.get(each))
        assert group.assignment_epoch <= group.epoch
        assert self.epochs.get("group", 0) <= group.epoch
        self.epochs["group"] = group.epoch
        targets = [
            (topic_id, index)
            for target in group.targets.values()
            for topic_id, partitions in target.items()
            for index in partitions
        ]
        assert len(targets) == len(set(targets))
        assert group.targets.keys() <= group.members.keys()

    def settle(self) -> None:
        """All clients are up, and beat until nothing moves; those that are gone are removed."""
        for _ in range(30):
            for client in self.clients:
                self.beat(client)
                self.check()
            self.match()
            self.table.pass_ms(SESSION_MS // 3)
        group = self.table.group
        assert group.state is GroupState.STABLE, [(each.member_id, each.state) for each in group.members.values()]
        assert len(group.members) == len(self.clients)
        wanted = {
            (self.table.id_of(name), index)
            for name in group.subscribed_names()
            if name in self.cluster.image.topics
            for index in self.cluster.image.topics[name].partitions
        }
        assert {each for client in self.clients for each in self.existing(client)} == wanted


STEPS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 99)), max_size=60)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(0, 1000))
def test_one_owner_and_all_is_assigned_in_the_end(steps: list[tuple[int, int]], seed: int) -> None:
    history = History(seed)
    for who, what in steps:
        history.step(who, what)
    history.settle()


@pytest.mark.parametrize("seed", range(20))
def test_long_histories(seed: int) -> None:
    history = History(seed)
    for _ in range(400):
        history.step(history.random.randrange(5), history.random.randrange(100))
    history.settle()
