"""ElectLeaders: preferred and unclean elections, decided on the image alone."""

import random

import pytest

from isthmus.core_broker.cluster.controller import (
    CreatableReplicaAssignment,
    CreateTopics,
    Election,
    ElectLeaders,
    RegisterBroker,
    View,
    new_topic,
)
from isthmus.core_broker.cluster.image import NO_LEADER, Endpoint, MetadataImage
from isthmus.core_broker.config import BrokerConfig
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages.metadata_records import FenceBrokerRecord, PartitionChangeRecord
from isthmus.runtime import Runtime

E = ErrorCode


class Cluster:
    """Three brokers and a topic t of two partitions on brokers 1, 2 and 3."""

    def __init__(self):
        self.image = MetadataImage("cluster-x")
        self.config = BrokerConfig()
        for broker in (1, 2, 3):
            self.run(RegisterBroker(broker, bytes(16), {"PLAINTEXT": Endpoint("h", 9092)}))
        topic = new_topic("t", -1, -1)
        topic.assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=[1, 2, 3]) for index in (0, 1)
        ]  # fmt: skip
        self.run(CreateTopics([topic]))

    def run(self, command):
        view = View(self.image, self.config, Runtime(random.Random(7), lambda: 0, lambda: 0), self.image.offset + 1)
        decision = command.decide(view)
        self.apply(*decision.records)
        return decision.result

    def apply(self, *records):
        self.image.apply(records, self.image.offset + len(records), 0)

    def change(self, index=0, **change):
        self.apply(PartitionChangeRecord(partition_id=index, topic_id=self.image.topics["t"].id, **change))

    def fence(self, *brokers):
        self.apply(*(FenceBrokerRecord(id=broker, epoch=0) for broker in brokers))

    def elect(self, election, topic="t", index=0):
        (item,) = self.run(ElectLeaders(election, [(topic, [index])])).items
        return item.partitions[0].error_code

    def partition(self, index=0):
        return self.image.topics["t"].partitions[index]


def test_the_preferred_replica_takes_over_when_it_is_in_sync():
    cluster = Cluster()
    cluster.change(leader=2)
    assert cluster.elect(Election.PREFERRED) == E.NONE
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (1, 2)
    assert cluster.elect(Election.PREFERRED) == E.ELECTION_NOT_NEEDED


@pytest.mark.parametrize("trouble", [{"isr": [2, 3]}, None])
def test_a_preferred_replica_that_is_behind_or_gone_does_not(trouble):
    cluster = Cluster()
    cluster.change(leader=2, **(trouble or {}))
    if trouble is None:
        cluster.fence(1)
    assert cluster.elect(Election.PREFERRED) == E.PREFERRED_LEADER_NOT_AVAILABLE
    assert cluster.partition().leader == 2


def test_an_unclean_election_prefers_who_is_in_sync_and_else_takes_any_that_lives():
    cluster = Cluster()
    assert cluster.elect(Election.UNCLEAN) == E.ELECTION_NOT_NEEDED
    cluster.change(leader=NO_LEADER, isr=[2])
    assert cluster.elect(Election.UNCLEAN) == E.NONE
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))
    cluster.change(leader=NO_LEADER)
    cluster.fence(1, 2)
    assert cluster.elect(Election.UNCLEAN) == E.NONE
    assert (cluster.partition().leader, cluster.partition().isr) == (3, (3,))
    cluster.change(leader=NO_LEADER)
    cluster.fence(3)
    assert cluster.elect(Election.UNCLEAN) == E.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_of_all_partitions_only_those_are_told_that_changed_or_could_not():
    cluster = Cluster()
    cluster.change(1, leader=2)
    (item,) = cluster.run(ElectLeaders(Election.PREFERRED, None)).items
    assert [(each.index, each.error_code) for each in item.partitions] == [(1, 0)]


def test_what_is_not_there_and_kinds_of_election_that_are_not():
    cluster = Cluster()
    assert cluster.elect(Election.PREFERRED, topic="no") == E.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.elect(Election.PREFERRED, index=7) == E.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as caught:
        cluster.run(ElectLeaders(5, [("t", [0])]))
    assert caught.value.code == E.INVALID_REQUEST
