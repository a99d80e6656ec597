"""Decisions of the controller: Kafka's checks, codes and words, without a loop or a log."""

from __future__ import annotations

import pytest

from isthmus.core_broker.cluster.controller import (
    AllocateProducerIds,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitions,
    CreatePartitionsTopic,
    DeleteTopics,
    Operation,
    RegisterController,
    RegisterMirrorLink,
    UnregisterBroker,
    cluster_ordinal,
    new_topic,
)
from isthmus.core_broker.cluster.features import SUPPORTED
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages.create_partitions import CreatePartitionsAssignment
from isthmus.protocol.messages.delete_topics import DeleteTopicState
from isthmus.protocol.messages.metadata_records import PartitionRecord, UnregisterControllerRecord

from .support import ENDPOINTS, Cluster

E = ErrorCode


def told(item) -> tuple[int, str | None]:
    return item.error_code, item.error_message


def test_create_uses_the_brokers_defaults():
    cluster = Cluster(brokers=3, num_partitions="4", default_replication_factor="2")
    (item,) = cluster.create(new_topic("t"))
    assert (item.error_code, item.num_partitions, item.replication_factor) == (0, 4, 2)
    topic = cluster.image.topics["t"]
    assert topic.id == item.topic_id and list(topic.partitions) == [0, 1, 2, 3]
    for partition in topic.partitions.values():
        assert len(set(partition.replicas)) == 2
        assert partition.leader == partition.replicas[0] and partition.isr == partition.replicas
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)


def test_replicas_and_leaders_are_spread():
    cluster = Cluster(brokers=3)
    cluster.create(new_topic("t", 6, 2))
    leaders = [partition.leader for partition in cluster.image.topics["t"].partitions.values()]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]


def test_validate_only_changes_nothing():
    cluster = Cluster()
    before = len(cluster.records)
    (item,) = cluster.create(new_topic("t", 3), validate_only=True)
    assert (item.error_code, item.num_partitions) == (0, 3)
    assert "t" not in cluster.image.topics and len(cluster.records) == before


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("é", "'é' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a\n", "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ],
)
def test_bad_names(name, reason):
    (item,) = Cluster().create(new_topic(name))
    assert told(item) == (E.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def test_names_that_differ_by_dot_and_underscore_collide():
    cluster = Cluster()
    cluster.create(new_topic("a.b_c"))
    (item,) = cluster.create(new_topic("a_b.c"))
    assert told(item) == (E.INVALID_TOPIC_EXCEPTION, "Topic 'a_b.c' collides with existing topic: a.b_c")
    cluster.run(DeleteTopics(names=["a.b_c"]))
    assert cluster.create(new_topic("a_b.c"))[0].error_code == 0


def test_existing_and_doubled_and_internal_names():
    cluster = Cluster()
    cluster.create(new_topic("old"))
    items = cluster.create(
        new_topic("old"), new_topic("two"), new_topic("new"), new_topic("two"), new_topic("__cluster_metadata")
    )
    assert {item.name: told(item) for item in items} == {
        "old": (E.TOPIC_ALREADY_EXISTS, "Topic 'old' already exists."),
        "new": (E.NONE, None),
        "two": (E.INVALID_REQUEST, "Duplicate topic name."),
        "__cluster_metadata": (E.INVALID_REQUEST, "Creation of internal topic __cluster_metadata is prohibited."),
    }
    assert sorted(cluster.image.topics) == ["new", "old"]


@pytest.mark.parametrize(
    ("partitions", "replicas", "code", "reason"),
    [
        (0, 1, E.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."),
        (-2, 1, E.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."),
        (
            1,
            0,
            E.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            1,
            2,
            E.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because "
            "only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
        ),
        (10_001, 1, E.POLICY_VIOLATION, "Excessively large number of partitions per request."),
    ],
)
def test_counts_that_cannot_be(partitions, replicas, code, reason):
    (item,) = Cluster().create(new_topic("t", partitions, replicas))
    assert told(item) == (code, reason)


def by_hand(assignments, partitions=-1, replicas=-1):
    return CreatableTopic(
        name="t",
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in assignments],
    )


@pytest.mark.parametrize(
    ("topic", "code", "reason"),
    [
        (
            by_hand([(0, [1])], partitions=1),
            E.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            by_hand([(0, [1])], replicas=1),
            E.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            by_hand([(0, [1]), (0, [2])]),
            E.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            by_hand([(0, [1]), (2, [2])]),
            E.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            by_hand([(0, [])]),
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            by_hand([(0, [9])]),
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            by_hand([(0, [1, 1])]),
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            by_hand([(0, [1, 2]), (1, [1])]),
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with "
            "previous partitions, which have 2 replica(s).",
        ),
    ],
)
def test_assignments_by_hand_that_cannot_be(topic, code, reason):
    assert told(Cluster(brokers=2).create(topic)[0]) == (code, reason)


def test_assignment_by_hand():
    cluster = Cluster(brokers=2)
    (item,) = cluster.create(by_hand([(1, [2, 1]), (0, [1, 2])]))
    assert (item.error_code, item.num_partitions, item.replication_factor) == (0, 2, 2)
    assert [p.replicas for p in cluster.image.topics["t"].partitions.values()] == [(1, 2), (2, 1)]


def test_options_of_new_topics():
    cluster = Cluster()
    good = new_topic("good", configs={"retention.ms": "5", "cleanup.policy": "compact"})
    null = new_topic("null")
    null.configs = [*new_topic("", configs={"retention.ms": ""}).configs]
    null.configs[0].value = None
    bad = new_topic("bad", configs={"retention.ms": "soon"})
    strange = new_topic("strange", configs={"no.such": "1"})
    items = {item.name: item for item in cluster.create(good, null, bad, strange)}
    assert items["good"].error_code == 0
    assert cluster.image.topics["good"].configs == {"cleanup.policy": "compact", "retention.ms": "5"}
    assert told(items["null"]) == (E.INVALID_CONFIG, "Null value not supported for topic configs: retention.ms")
    assert items["bad"].error_code == E.INVALID_CONFIG and "retention.ms" in items["bad"].error_message
    assert told(items["strange"]) == (E.INVALID_CONFIG, "Unknown topic config name: no.such")


def test_delete_by_name_and_id():
    cluster = Cluster()
    cluster.create(*[new_topic(name) for name in "abcd"])
    ids = {name: topic.id for name, topic in cluster.image.topics.items()}
    result = cluster.run(
        DeleteTopics(
            states=[
                DeleteTopicState(name="a"),
                DeleteTopicState(topic_id=ids["b"]),
                DeleteTopicState(name="c", topic_id=ids["c"]),
                DeleteTopicState(),
                DeleteTopicState(name="nope"),
                DeleteTopicState(topic_id=b"\x01" * 16),
                DeleteTopicState(name="d"),
                DeleteTopicState(name="d"),
            ]
        )
    )
    assert {(item.name, item.topic_id): item.error_code for item in result.items} == {
        ("a", ids["a"]): E.NONE,
        ("b", ids["b"]): E.NONE,
        ("c", ids["c"]): E.INVALID_REQUEST,
        (None, bytes(16)): E.INVALID_REQUEST,
        ("nope", bytes(16)): E.UNKNOWN_TOPIC_OR_PARTITION,
        (None, b"\x01" * 16): E.UNKNOWN_TOPIC_ID,
        ("d", bytes(16)): E.INVALID_REQUEST,
    }
    assert sorted(cluster.image.topics) == ["c", "d"]


def test_deletion_can_be_turned_off():
    cluster = Cluster(delete_topic_enable="false")
    cluster.create(new_topic("t"))
    result = cluster.run(DeleteTopics(names=["t"]))
    assert [item.error_code for item in result.items] == [E.TOPIC_DELETION_DISABLED]
    assert "t" in cluster.image.topics


def test_recreated_topic_has_a_new_id_and_starts_its_epochs_again():
    cluster = Cluster()
    first = cluster.create(new_topic("t"))[0].topic_id
    cluster.start(1)
    assert cluster.image.topics["t"].partitions[0].leader_epoch == 2
    cluster.run(DeleteTopics(names=["t"]))
    second = cluster.create(new_topic("t"))[0].topic_id
    assert first != second and cluster.image.topics["t"].partitions[0].leader_epoch == 0
    assert cluster.image.topic_by_id(first) is None


def grow(cluster, name, count, assignments=None):
    hand = None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    return cluster.run(CreatePartitions([CreatePartitionsTopic(name=name, count=count, assignments=hand)])).items[0]


def test_more_partitions():
    cluster = Cluster(brokers=2)
    cluster.create(new_topic("t", 2, 2))
    assert told(grow(cluster, "t", 2)) == (E.INVALID_PARTITIONS, "Topic already has 2 partition(s).")
    assert told(grow(cluster, "t", 1)) == (
        E.INVALID_PARTITIONS,
        "The topic t currently has 2 partition(s); 1 would not be an increase.",
    )
    assert told(grow(cluster, "nope", 3)) == (E.UNKNOWN_TOPIC_OR_PARTITION, None)
    assert told(grow(cluster, "t", 4, [[1, 2]])) == (
        E.INVALID_REPLICA_ASSIGNMENT,
        "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
    )
    assert grow(cluster, "t", 4).error_code == 0
    assert grow(cluster, "t", 5, [[2, 1]]).error_code == 0
    partitions = cluster.image.topics["t"].partitions
    assert list(partitions) == [0, 1, 2, 3, 4] and partitions[4].replicas == (2, 1)
    assert all(len(partition.replicas) == 2 for partition in partitions.values())


def test_options_set_deleted_appended_subtracted():
    cluster = Cluster()
    cluster.create(new_topic("t", configs={"retention.ms": "5"}))
    assert (
        cluster.alter("t", ("segment.ms", Operation.SET, "9"), ("retention.ms", Operation.DELETE, None)).error_code == 0
    )
    assert cluster.image.topics["t"].configs == {"segment.ms": "9"}
    cluster.alter("t", ("cleanup.policy", Operation.APPEND, "compact"))
    assert cluster.image.topics["t"].configs["cleanup.policy"] == "delete,compact"
    cluster.alter("t", ("cleanup.policy", Operation.SUBTRACT, "delete"))
    assert cluster.image.topics["t"].configs["cleanup.policy"] == "compact"


def test_alterations_that_cannot_be():
    cluster = Cluster()
    cluster.create(new_topic("t"))
    set_ = Operation.SET
    assert told(cluster.alter("t", ("retention.ms", Operation.APPEND, "1"))) == (
        E.INVALID_CONFIG,
        "Can't APPEND to key retention.ms because its type is not LIST.",
    )
    assert told(cluster.alter("t", ("no.such", Operation.APPEND, "1")))[0] == E.INVALID_CONFIG
    assert told(cluster.alter("nope", ("retention.ms", set_, "1"))) == (
        E.UNKNOWN_TOPIC_OR_PARTITION,
        "The topic 'nope' does not exist.",
    )
    assert cluster.alter("t", ("retention.ms", set_, "x")).error_code == E.INVALID_CONFIG
    assert cluster.alter("t", ("retention.ms", 9, "1")).error_code == E.INVALID_REQUEST  # type: ignore[arg-type]
    assert cluster.alter("1", ("node.id", set_, "2"), resource_type=4).error_code == E.INVALID_REQUEST
    assert cluster.alter("t", ("mirror.link", set_, "l")).error_code == E.INVALID_CONFIG
    assert cluster.image.topics["t"].configs == {}


def test_producer_ids_are_never_given_twice_and_differ_between_clusters():
    cluster = Cluster()
    blocks = [cluster.run(AllocateProducerIds(count)) for count in (1000, 1, 10)]
    first = cluster_ordinal("cluster-x") << 40
    assert [(b.first_producer_id, b.count) for b in blocks] == [(first, 1000), (first + 1000, 1), (first + 1001, 10)]
    assert cluster.image.next_producer_id == first + 1011
    assert cluster_ordinal("cluster-x") != cluster_ordinal("cluster-y")
    assert cluster.run(AllocateProducerIds(broker_id=9)).error_code == E.STALE_BROKER_EPOCH


def test_every_start_raises_the_leader_epochs_of_what_the_broker_leads():
    cluster = Cluster(brokers=2)
    cluster.create(new_topic("t", 4, 1))
    cluster.start(1)
    for partition in cluster.image.topics["t"].partitions.values():
        assert partition.leader_epoch == (2 if partition.leader == 1 else 0)  # none leads, then it leads again
        assert partition.partition_epoch == partition.leader_epoch


def test_a_mirrored_topic_registers_its_link():
    cluster = Cluster()
    options = {"mirror.link": "ewr", "mirror.source.cluster.id": "A", "mirror.source.topic.id": "x"}
    cluster.create(new_topic("ewr.flights", configs=options), new_topic("ewr.weather", configs=options))
    assert cluster.image.links["ewr"].link_epoch == 0 and cluster.image.links["ewr"].source_cluster_id == "A"
    other = {"mirror.link": "ewr", "mirror.source.cluster.id": "B"}
    assert cluster.create(new_topic("x", configs=other))[0].error_code == E.INVALID_CONFIG
    assert cluster.create(new_topic("x", configs={"mirror.link": "ewr"}))[0].error_code == E.INVALID_CONFIG
    assert cluster.create(new_topic("x", configs={"mirror.source.cluster.id": "A"}))[0].error_code == E.INVALID_CONFIG
    assert "x" not in cluster.image.topics


def test_link_epochs_only_rise():
    cluster = Cluster()
    assert cluster.run(RegisterMirrorLink("l", "A")).link_epoch == 0
    assert cluster.run(RegisterMirrorLink("l", "A")).link_epoch == 1
    assert cluster.run(RegisterMirrorLink("l", "A", 5)).link_epoch == 5
    assert cluster.run(RegisterMirrorLink("l", "A", 5)).link_epoch == 5
    assert cluster.run(RegisterMirrorLink("l", "A", 4)).error_code == E.FENCED_LEADER_EPOCH
    assert cluster.run(RegisterMirrorLink("l", "B")).error_code == E.INVALID_CONFIG
    assert cluster.image.links["l"].link_epoch == 5


def test_a_cluster_with_nodes_of_kafka_is_no_mirrors_target() -> None:
    cluster = Cluster(brokers=2)
    cluster.start(2, features=SUPPORTED)
    refused = cluster.run(RegisterMirrorLink("l", "A"))
    assert refused.error_code == E.UNSUPPORTED_VERSION and "here 2" in refused.error_message
    cluster.start(2)
    cluster.run(RegisterController(3, bytes(16), ENDPOINTS, SUPPORTED))
    refused = cluster.run(RegisterMirrorLink("l", "A"))
    assert refused.error_code == E.UNSUPPORTED_VERSION and "here 3" in refused.error_message
    cluster.apply(UnregisterControllerRecord(controller_id=3))
    assert not cluster.run(RegisterMirrorLink("l", "A")).error_code


def test_a_node_of_kafka_does_not_join_a_mirrors_target() -> None:
    cluster = Cluster()
    assert not cluster.register(2, features=SUPPORTED).error_code
    cluster.run(UnregisterBroker(2))
    cluster.run(RegisterMirrorLink("ewr", "A"))
    refused = cluster.register(2, features=SUPPORTED)
    assert refused.error_code == E.UNSUPPORTED_VERSION and "(ewr)" in refused.error_message
    assert cluster.run(RegisterController(3, bytes(16), ENDPOINTS, SUPPORTED)).error_code == E.UNSUPPORTED_VERSION
    assert not cluster.register(2).error_code


def test_decisions_of_one_seed_are_equal():
    def history():
        cluster = Cluster(brokers=3)
        cluster.create(new_topic("a", 5, 2), new_topic("b", 3, 3))
        grow(cluster, "a", 9)
        return cluster.records

    assert history() == history()
    assert sum(isinstance(record, PartitionRecord) for record in history()) == 12
