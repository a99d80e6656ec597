"""The image as a fold: any grouping of the same records gives the same image, and deltas tell what changed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core_broker.cluster.controller import (
    AllocateProducerIds,
    CreatePartitions,
    CreatePartitionsTopic,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    RegisterMirrorLink,
    new_topic,
)
from isthmus.core_broker.cluster.image import InconsistentRecord, MetadataImage
from isthmus.protocol.messages import metadata_records as r
from isthmus.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource

from .support import Cluster

NAMES = st.sampled_from(["a", "b", "a.b", "a_b"])


def options(name: str, operation: int) -> AlterConfigsResource:
    config = AlterableConfig(name="retention.ms", config_operation=operation, value="7")
    return AlterConfigsResource(resource_type=2, resource_name=name, configs=[config])


COMMANDS = st.one_of(
    st.builds(lambda name, n: CreateTopics([new_topic(name, n)]), NAMES, st.integers(1, 3)),
    st.builds(lambda name: DeleteTopics(names=[name]), NAMES),
    st.builds(
        lambda name, n: CreatePartitions([CreatePartitionsTopic(name=name, count=n, assignments=None)]),
        NAMES,
        st.integers(1, 5),
    ),
    st.builds(lambda name, op: IncrementalAlterConfigs([options(name, op)]), NAMES, st.integers(0, 1)),
    st.builds(lambda: AllocateProducerIds()),
    st.builds(lambda name: RegisterMirrorLink(name, "A"), NAMES),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(COMMANDS, max_size=15), st.integers(1, 7))
def test_the_fold_does_not_depend_on_how_records_are_batched(commands, batch):
    cluster = Cluster(brokers=2)
    for command in commands:
        cluster.run(command)
    whole, parts = MetadataImage("cluster-x"), MetadataImage("cluster-x")
    encoded = [r.decode(r.encode(record)) for record in cluster.records]
    whole.apply(encoded, len(encoded) - 1, 0)
    for start in range(0, len(encoded), batch):
        some = encoded[start : start + batch]
        parts.apply(some, start + len(some) - 1, 0)
    assert whole == parts == cluster.image
    assert {topic.id for topic in whole.topics.values()} == set(whole.names_by_id)
    delta = whole.everything()
    assert delta.created == whole.topics


def test_a_delta_tells_what_changed():
    cluster = Cluster()
    start = len(cluster.records)
    cluster.create(new_topic("kept", 2), new_topic("gone"))
    cluster.run(DeleteTopics(names=["gone"]))
    image = MetadataImage("x")
    image.apply(cluster.records[:start], start - 1, 0)
    delta = image.apply(cluster.records[start:], len(cluster.records) - 1, 0)
    assert list(delta.created) == ["kept"] and list(delta.changed["kept"]) == [0, 1] and not delta.deleted
    assert delta.created["kept"].partitions[1].leader == 1

    kept = cluster.image.topics["kept"]
    cluster.run(IncrementalAlterConfigs([options("kept", 0)]))
    delta = image.apply(cluster.records[-1:], image.offset + 1, 0)
    assert list(delta.reconfigured) == ["kept"] and not delta.created and not delta.changed

    cluster.run(DeleteTopics(names=["kept"]))
    cluster.create(new_topic("kept"))
    delta = image.apply(cluster.records[-3:], image.offset + 3, 0)
    assert delta.deleted["kept"].id == kept.id and delta.created["kept"].id != kept.id
    assert list(delta.changed["kept"]) == [0]


@pytest.mark.parametrize(
    "record",
    [
        r.PartitionRecord(partition_id=0, topic_id=b"\x01" * 16),
        r.RemoveTopicRecord(topic_id=b"\x01" * 16),
        r.ConfigRecord(resource_type=2, resource_name="nope", name="a", value="b"),
        r.UnregisterBrokerRecord(broker_id=9),
        r.ProducerIdsRecord(next_producer_id=0),
    ],
)
def test_records_that_do_not_fit_are_told(record):
    with pytest.raises(InconsistentRecord):
        MetadataImage("x").apply([record], 0, 0)


def test_an_image_that_was_read_is_not_changed_by_later_records():
    cluster = Cluster()
    cluster.create(new_topic("t", 2))
    before = cluster.image.topics["t"]
    partitions = dict(before.partitions)
    cluster.start(1)
    cluster.run(CreatePartitions([CreatePartitionsTopic(name="t", count=5, assignments=None)]))
    assert before.partitions == partitions and len(cluster.image.topics["t"].partitions) == 5


def test_partitions_stand_in_order_whatever_the_order_of_their_records():
    topic_id = b"\x01" * 16
    image = MetadataImage("x")
    records = [r.TopicRecord(name="t", topic_id=topic_id)]
    records += [r.PartitionRecord(partition_id=index, topic_id=topic_id, leader=1) for index in (2, 0, 1)]
    image.apply(records, 3, 0)
    assert list(image.topics["t"].partitions) == [0, 1, 2]
