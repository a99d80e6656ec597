"""Random histories of five brokers: registrations, heartbeats, silences, changes of ISRs, moves, elections.

Half of what is asked is wrong in some way. Who looks at the steps is a `Judge`: a fast test checks invariants, an
integration test asks Kafka's own controller for the same decisions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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
from isthmus.core_broker.cluster.image import MetadataImage, TopicImage
from isthmus.protocol.messages import metadata_records as r

from .support import ELR, ENDPOINTS, Cluster

BROKERS = (1, 2, 3, 4, 5)
SESSION_MS = 9_000
LEVEL = r.FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST)


@dataclass(frozen=True)
class Step:
    """A command and what became of it. before: the topics, by id, before its records were applied."""

    command: Any
    result: Any
    answer: Callable[[Any], Any]
    do: str
    fields: Mapping[str, Any]
    before: Mapping[bytes, TopicImage]
    records: Sequence[Any]


class Judge(Protocol):
    """Who looks at a history. Each method may raise AssertionError."""

    def decided(self, history: History, step: Step) -> None: ...

    def expired(
        self, history: History, records: Sequence[Any], fenced: Sequence[int], before: Mapping[bytes, TopicImage]
    ) -> None:
        """Sessions were over. fenced: the brokers that were fenced before."""

    def applied(self, records: Sequence[Any], offset: int) -> None:
        """Records were applied, the first of which is at `offset`."""

    def told(self, do: str, **fields: Any) -> None:
        """Something happened that is no decision."""


class History:
    """A cluster under our controller, whose life is drawn by `chance`. judge: who looks at each step."""

    def __init__(self, judge: Judge, chance: random.Random, has_elr: bool) -> None:
        self.ours = Cluster(brokers=0)
        self.judge = judge
        self.chance = chance
        self.topics = 0
        self.incarnations = 0
        self.ours.apply(LEVEL, *([ELR] if has_elr else []))
        judge.applied(self.ours.records, 0)

    def live(self, steps: int) -> None:
        """Five brokers join, and then so many things happen."""
        for _ in BROKERS:
            self.register()
        self.all_live()
        self.create()
        for step in self.chance.choices(list(ODDS), list(ODDS.values()), k=steps):
            step(self)

    @property
    def image(self) -> MetadataImage:
        return self.ours.image

    def decide(self, command: Any, answer: Callable[[Any], Any], do: str, **fields: Any) -> Any:
        """Decide and apply. answer: of the result, what Kafka answers; do, fields: the same command to Oracle.java."""
        offset = self.image.offset + 1
        before = {topic.id: topic for topic in self.image.topics.values()}
        result = self.ours.run(command)
        self.judge.decided(self, Step(command, result, answer, do, fields, before, self.ours.last))
        if self.ours.last:
            self.judge.applied(self.ours.last, offset)
        return result

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
            rack=self.chance.choice((None, "a", "b")),
            features=features,
            log_dirs=directories,
            cluster_id="cluster-x" if self.chance.random() < 0.97 else "other",
            previous_epoch=previous,
        )
        self.decide(
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
        result = self.decide(
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
                self.judge.told("shutting_down", broker_id=broker_id, offset=offset)

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
        self.judge.told("time", ms=self.ours.now_ms)
        for each in alive:
            if each is not dead:
                self.ours.sessions.heard(each, self.ours.now_ms)
                self.judge.told("heard", broker_id=each.id, broker_epoch=each.epoch)
        before = {topic.id: topic for topic in self.image.topics.values()}
        fenced = [each.id for each in self.image.brokers.values() if each.fenced]
        offset = self.image.offset + 1
        records: list[Any] = []
        for broker_id, epoch in self.ours.sessions.expired(self.ours.now_ms):
            self.ours.run(FenceBroker(broker_id, epoch))
            records += self.ours.last
        self.judge.expired(self, records, fenced, before)
        self.judge.applied(records, offset)

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
        self.judge.applied(self.ours.last, start)

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
        self.decide(
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
        self.decide(
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
        self.decide(
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
        self.decide(
            ElectLeaders(election, [(topic.name, [index])]),
            lambda result: [[each.index, each.error_code] for item in result.items for each in item.partitions],
            "elect",
            election=int(election),
            topics=[{"name": topic.name, "partitions": [index]}],
        )

    def balance(self) -> None:
        self.decide(BalanceLeaders(), lambda result: None, "balance")
        self.decide(ElectUncleanLeaders(), lambda result: None, "elect_unclean")

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
        self.decide(
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
        self.decide(
            UpdateFeatures([(name, level, kind)], validate_only=True),
            lambda result: [result.error_code, result.error_message],
            "update_features",
            updates=[[name, level, kind]],
            validate_only=True,
        )

    def unregister(self) -> None:
        broker_id = self.chance.choice((*BROKERS, 9))
        self.decide(UnregisterBroker(broker_id), lambda result: None, "unregister", broker_id=broker_id)


def altered(item: Any) -> list[Any]:
    row = [item.index, item.error_code]
    if not item.error_code:
        after = item.partition
        row += [after.leader, after.leader_epoch, after.partition_epoch, after.leader_recovery_state, list(after.isr)]
    return row


ODDS = {
    History.register: 8,
    History.heartbeat: 14,
    History.all_live: 10,
    History.silence: 6,
    History.create: 8,
    History.alter_partition: 18,
    History.catch_up: 14,
    History.reassign: 10,
    History.elect: 6,
    History.balance: 4,
    History.unregister: 2,
    History.assign_directories: 4,
    History.update_features: 3,
}
