"""Our controller and Kafka's decide the same, record for record, in random histories of a cluster.

Both get each command, with the same state. What is compared: the records, the answer, and the error with its words.
Both then apply our records.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest

from integration_tests.cluster.oracle.oracle import Oracle, Refused
from isthmus.core_broker.cluster.controller import (
    AlterPartition,
    AlterReassignments,
    AssignDirectories,
    BalanceLeaders,
    BrokerHeartbeat,
    Election,
    ElectLeaders,
    ElectUncleanLeaders,
    FenceBroker,
    RegisterBroker,
    UnregisterBroker,
    UpdateFeatures,
    WantedIsr,
)
from isthmus.core_broker.cluster.features import KRAFT_VERSION, LATEST, METADATA_VERSION, SUPPORTED
from isthmus.protocol.messages import metadata_records as r
from tests.core_broker.cluster.support import ELR, ENDPOINTS, Cluster

SEEDS = range(60)
STEPS = 80
BROKERS = (1, 2, 3, 4, 5)
SESSION_MS = 9_000
LEVEL = r.FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    found = Oracle(tmp_path_factory.mktemp("oracle"))
    yield found
    found.close()


class Both:
    """A cluster under our controller and under Kafka's."""

    def __init__(self, oracle: Oracle, chance: random.Random, has_elr: bool) -> None:
        self.ours = Cluster(brokers=0)
        self.kafka = oracle
        self.chance = chance
        self.topics = 0
        self.incarnations = 0
        oracle.ask("new", cluster_id="cluster-x", session_ms=SESSION_MS)
        self.ours.apply(LEVEL, *([ELR] if has_elr else []))
        self.kafka.apply(self.ours.records, 0)

    @property
    def image(self) -> Any:
        return self.ours.image

    def same(self, command: Any, answer: Any, do: str, **fields: Any) -> Any:
        """Both decide; what they decide is compared and applied. answer: of our result, what Kafka answers."""
        next_offset = self.image.offset + 1
        before = {topic.id: topic for topic in self.image.topics.values()}
        result = self.ours.run(command)
        told = (getattr(result, "error_code", 0), getattr(result, "error_message", None))
        if getattr(result, "error", None) is not None:
            told = (result.error.code, result.error.message)
        try:
            records, theirs = self.kafka.ask(do, **fields)
        except Refused as error:
            assert told == (error.code, error.message), command
            return result
        assert told == (0, None), (command, records)
        assert in_order(self.ours.last) == in_order(self.mended(records, before)), command
        assert answer(result) == theirs, command
        self.kafka.apply(self.ours.last, next_offset)
        return result

    def mended(self, records: list[Any], before: dict[bytes, Any]) -> list[Any]:
        """Kafka's records without what is no replica any more in elr and last_known_elr: a difference on purpose."""
        found = []
        for record in records:
            if isinstance(record, r.PartitionChangeRecord):
                old = before[record.topic_id].partitions[record.partition_id]
                new = old.merged(record)
                elr = tuple(each for each in new.elr if each in new.replicas)
                last = tuple(each for each in new.last_known_elr if each in new.replicas)
                record.eligible_leader_replicas = None if elr == old.elr else list(elr)
                record.last_known_elr = None if last == old.last_known_elr else list(last)
                empty = r.PartitionChangeRecord(partition_id=record.partition_id, topic_id=record.topic_id)
                if record == empty:
                    continue
            found.append(record)
        return found

    def register(self) -> None:
        broker_id = self.chance.choice(BROKERS)
        existing = self.image.brokers.get(broker_id)
        stops = existing is not None and self.ours.sessions.shutdown_offset(existing) is not None
        # Kafka forgets that a process is about to stop if it registers again.
        self.incarnations += stops or self.chance.random() < 0.9
        previous = (
            existing.epoch if existing is not None and self.chance.random() < 0.5 else self.chance.choice((-1, 3))
        )
        low = 0 if self.chance.random() < 0.95 else 2
        features = {**SUPPORTED, ELR.name: (low, low + 1)}
        directories = [bytes([broker_id, number, *[7] * 14]) for number in range(1 + broker_id % 2)]
        if self.chance.random() < 0.04:
            directories = self.chance.choice(
                ([], [directories[0]] * 2, [bytes(15) + b"\x05"], [bytes([1, 0, *[7] * 14])])
            )
        command = RegisterBroker(
            broker_id,
            self.incarnations.to_bytes(16),
            ENDPOINTS,
            self.chance.choice((None, "a", "b")),
            features,
            directories,
            "cluster-x" if self.chance.random() < 0.97 else "other",
            previous,
        )
        self.same(
            command,
            lambda result: result.broker_epoch,
            "register",
            broker_id=broker_id,
            cluster_id=command.cluster_id,
            incarnation_id=command.incarnation_id,
            rack=command.rack,
            features=features,
            log_dirs=directories,
            previous_epoch=previous,
            next_offset=self.image.offset + 1,
        )

    def beat(self, broker_id: int, **fields: Any) -> None:
        broker = self.image.brokers.get(broker_id)
        if broker is not None and self.ours.sessions.shutdown_offset(broker) is not None:
            # Kafka forgets what a broker knows when its registration changes, until its next heartbeat.
            for other in self.image.brokers.values():
                if not other.fenced and self.ours.sessions.shutdown_offset(other) is None:
                    self.beat(other.id)
        command = BrokerHeartbeat(
            broker_id,
            fields.pop("broker_epoch", 7 if broker is None else broker.epoch),
            fields.pop("metadata_offset", self.image.offset),
            **fields,
        )
        if broker is not None and broker.epoch == command.broker_epoch:
            self.ours.sessions.heard(broker, self.ours.now_ms, metadata_offset=command.metadata_offset)
        result = self.same(
            command,
            lambda found: [
                found.is_caught_up, found.is_fenced, found.in_controlled_shutdown, found.should_shut_down
            ],
            "heartbeat",
            **{name: getattr(command, name) for name in BrokerHeartbeat.__slots__},
        )  # fmt: skip
        if broker is not None and not result.error_code:
            offset = self.image.offset
            self.ours.sessions.answered(broker_id, result.is_fenced, result.in_controlled_shutdown, offset)
            if result.in_controlled_shutdown:
                self.kafka.ask("shutting_down", broker_id=broker_id, offset=offset)

    def heartbeat(self) -> None:
        if not self.image.brokers:
            return
        broker_id = self.chance.choice(list(self.image.brokers))
        broker = self.image.brokers[broker_id]
        fields: dict[str, Any] = {}
        match self.chance.randrange(12):
            case 0:
                fields["want_fence"] = True
            case 1 | 2:
                fields["want_shut_down"] = True
            case 3:
                fields["metadata_offset"] = broker.epoch - 1
            case 4:
                fields["broker_epoch"] = broker.epoch - 1
            case 5:
                fields["offline_log_dirs"] = self.chance.sample(broker.log_dirs, 1)
            case 6:
                fields["cordoned_log_dirs"] = self.chance.sample(broker.log_dirs, self.chance.randrange(2))
        self.beat(broker_id, **fields)

    def all_live(self) -> None:
        for broker_id in list(self.image.brokers):
            self.beat(broker_id)

    def silence(self) -> None:
        """One broker is not heard of any more."""
        alive = [each for each in self.image.brokers.values() if not each.fenced]
        if not alive:
            return
        dead = self.chance.choice(alive)
        self.ours.now_ms += SESSION_MS + 1
        self.kafka.ask("time", ms=self.ours.now_ms)
        for each in alive:
            if each is not dead:
                self.ours.sessions.heard(each, self.ours.now_ms)
                self.kafka.ask("heard", broker_id=each.id, broker_epoch=each.epoch)
        before = {topic.id: topic for topic in self.image.topics.values()}
        fenced = {each.id for each in self.image.brokers.values() if each.fenced}
        theirs: list[Any] = []
        goes_on = True
        while goes_on:
            records, goes_on = self.kafka.ask("expire")
            theirs += [] if records and records[-1].broker_id in fenced else records  # fenced once more
        ours: list[Any] = []
        start = self.image.offset + 1
        for broker_id, epoch in self.ours.sessions.expired(self.ours.now_ms):
            self.ours.run(FenceBroker(broker_id, epoch))
            ours += self.ours.last
        assert in_order(ours) == in_order(self.mended(theirs, before))
        self.kafka.apply(ours, start)

    def create(self) -> None:
        if len(self.image.topics) > 6 or not any(each.is_active for each in self.image.brokers.values()):
            return
        self.topics += 1
        replicas = []
        for _ in range(self.chance.randint(1, 3)):
            ids = self.chance.sample(list(self.image.brokers), self.chance.randint(1, min(3, len(self.image.brokers))))
            active = [each for each in ids if self.image.is_active(each) and self.image.brokers[each].takes_partitions]
            if active and all(self.image.brokers[each].takes_partitions for each in ids):
                replicas.append(ids)
        if not replicas:
            return
        factor = len(replicas[0])
        start = self.image.offset + 1
        self.ours.assign(
            f"t{self.topics}",
            *[ids for ids in replicas if len(ids) == factor],
            min_insync_replicas=str(self.chance.randint(1, 3)),
            unclean_leader_election_enable=self.chance.choice(("true", "false", "false")),
        )
        self.kafka.apply(self.ours.last, start)

    def some_partition(self) -> tuple[Any, int, Any] | None:
        if not self.image.topics:
            return None
        topic = self.chance.choice(list(self.image.topics.values()))
        index = self.chance.choice(list(topic.partitions))
        return topic, index, topic.partitions[index]

    def alter_partition(self) -> None:
        found = self.some_partition()
        if found is None:
            return
        topic, index, partition = found
        chance = self.chance
        leader = partition.leader if chance.random() < 0.95 else chance.choice(BROKERS)
        broker = self.image.brokers.get(leader)
        broker_epoch = -1 if broker is None else broker.epoch - (chance.random() < 0.05)
        wanted = [each for each in partition.replicas if each == partition.leader or chance.random() < 0.75]
        if chance.random() < 0.1:
            wanted = chance.choice(([], [*wanted, wanted[0]] if wanted else [], [*wanted, 9], wanted[1:]))
        if chance.random() < 0.3:
            chance.shuffle(wanted)
        isr = []
        for each in wanted:
            known = self.image.brokers.get(each)
            epochs = (-1,) if known is None else (known.epoch, known.epoch, known.epoch, -1, known.epoch - 1)
            isr.append((each, chance.choice(epochs)))
        row = WantedIsr(
            index if chance.random() < 0.97 else 99,
            partition.leader_epoch + chance.choice((0,) * 18 + (1, -1)),
            partition.partition_epoch + chance.choice((0,) * 18 + (1, -1)),
            isr,
            chance.choice((0, 0, 0, 1)) if partition.leader_recovery_state else chance.choice((0,) * 9 + (1,)),
        )
        topic_id = topic.id if chance.random() < 0.97 else bytes(16)
        rows = [{name: getattr(row, name) for name in WantedIsr.__slots__}]
        self.same(
            AlterPartition(leader, broker_epoch, [(topic_id, [row])]),
            lambda result: [altered(each) for item in result.items for each in item.partitions],
            "alter_partition",
            broker_id=leader,
            broker_epoch=broker_epoch,
            topics=[{"topic_id": topic_id, "partitions": rows}],
        )

    def catch_up(self) -> None:
        """The leader takes in all replicas that may be in sync, as happens after a while."""
        found = self.some_partition()
        if found is None or found[2].leader == -1:
            return
        topic, index, partition = found
        isr = [(each, -1) for each in partition.replicas if self.image.is_active(each)]
        row = WantedIsr(index, partition.leader_epoch, partition.partition_epoch, isr)
        leader = self.image.brokers.get(partition.leader)
        if leader is None:
            return
        rows = [{name: getattr(row, name) for name in WantedIsr.__slots__}]
        self.same(
            AlterPartition(leader.id, leader.epoch, [(topic.id, [row])]),
            lambda result: [altered(each) for item in result.items for each in item.partitions],
            "alter_partition",
            broker_id=leader.id,
            broker_epoch=leader.epoch,
            topics=[{"topic_id": topic.id, "partitions": rows}],
        )

    def reassign(self) -> None:
        found = self.some_partition()
        if found is None:
            return
        topic, index, partition = found
        chance = self.chance
        replicas = chance.sample(BROKERS, chance.randint(1, 3))
        if chance.random() < 0.1:
            replicas = chance.choice(([], [9], [*replicas, replicas[0]]))
        wanted = None if chance.random() < (0.4 if partition.is_moving else 0.05) else replicas
        may_change = chance.random() < 0.8
        name = topic.name if chance.random() < 0.97 else "nope"
        index = index if chance.random() < 0.97 else 99
        self.same(
            AlterReassignments([(name, [(index, wanted)])], may_change),
            lambda result: [
                [each.index, each.error_code, each.error_message] for item in result.items for each in item.partitions
            ],
            "reassign",
            may_change_factor=may_change,
            topics=[{"name": name, "partitions": [{"index": index, "replicas": wanted}]}],
        )

    def elect(self) -> None:
        found = self.some_partition()
        if found is None:
            return
        topic, index, _ = found
        election = self.chance.choice((Election.PREFERRED, Election.PREFERRED, Election.UNCLEAN))
        self.same(
            ElectLeaders(election, [(topic.name, [index])]),
            lambda result: [[each.index, each.error_code] for item in result.items for each in item.partitions],
            "elect",
            election=int(election),
            topics=[{"name": topic.name, "partitions": [index]}],
        )

    def balance(self) -> None:
        self.same(BalanceLeaders(), lambda result: None, "balance")
        self.same(ElectUncleanLeaders(), lambda result: None, "elect_unclean")

    def assign_directories(self) -> None:
        found = self.some_partition()
        if found is None or not self.image.brokers:
            return
        topic, index, partition = found
        broker = self.chance.choice(list(self.image.brokers.values()))
        epoch = broker.epoch - (self.chance.random() < 0.05)
        directory = self.chance.choice((*broker.log_dirs, *broker.log_dirs, bytes([broker.id, 9, *[7] * 14])))
        topic_id = topic.id if self.chance.random() < 0.95 else bytes([9] * 16)
        index = index if self.chance.random() < 0.95 else 99
        self.same(
            AssignDirectories(broker.id, epoch, [(directory, topic_id, [index])]),
            lambda result: [[each.index, each.error_code] for item in result.items for each in item.partitions],
            "assign_dirs",
            broker_id=broker.id,
            broker_epoch=epoch,
            directories=[{"id": directory, "topics": [{"topic_id": topic_id, "partitions": [index]}]}],
        )

    def update_features(self) -> None:
        """Levels that may be refused; those that are not are only tried."""
        name, highest = self.chance.choice([*((name, high) for name, (_, high) in SUPPORTED.items()), ("no.such", 1)])
        if name == KRAFT_VERSION:
            return  # the quorum's
        level, kind = (
            self.chance.choice((-1, 0, 1, highest - 1, highest, highest + 1, 17, 29)),
            self.chance.randint(1, 3),
        )
        result = self.ours.run(UpdateFeatures([(name, level, kind)], validate_only=True))
        ours = [result.error_code, result.error_message]
        _, theirs = self.kafka.ask("update_features", updates=[[name, level, kind]], validate_only=True)
        assert ours == theirs, (name, level, kind)

    def unregister(self) -> None:
        broker_id = self.chance.choice((*BROKERS, 9))
        self.same(UnregisterBroker(broker_id), lambda result: None, "unregister", broker_id=broker_id)


def altered(item: Any) -> list[Any]:
    row = [item.index, item.error_code]
    if not item.error_code:
        after = item.partition
        row += [after.leader, after.leader_epoch, after.partition_epoch, after.leader_recovery_state, list(after.isr)]
    return row


def in_order(records: list[Any]) -> list[Any]:
    """Changes of partitions that follow each other may do so in any order."""
    found: list[Any] = []
    for kind, each in groupby(records, type):
        some = list(each)
        if kind is r.PartitionChangeRecord:
            some.sort(key=lambda record: (record.topic_id, record.partition_id))
        found += some
    return found


ODDS = {
    Both.register: 8, Both.heartbeat: 14, Both.all_live: 10, Both.silence: 6, Both.create: 8, Both.alter_partition: 18,
    Both.catch_up: 14, Both.reassign: 10, Both.elect: 6, Both.balance: 4, Both.unregister: 2,
    Both.assign_directories: 4, Both.update_features: 3,
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_both_controllers_decide_the_same(oracle: Oracle, seed: int) -> None:
    chance = random.Random(seed)
    both = Both(oracle, chance, has_elr=seed % 2 == 0)
    for _ in range(5):
        both.register()
    both.all_live()
    both.create()
    for step in chance.choices(list(ODDS), list(ODDS.values()), k=STEPS):
        step(both)
