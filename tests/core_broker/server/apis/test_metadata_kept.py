"""Metadata of topics is encoded once, and again when a topic is another one."""

import pytest

from isthmus.core_broker.cluster.controller import (
    BrokerHeartbeat,
    CreatePartitions,
    CreatePartitionsTopic,
    DeleteTopics,
    RegisterBroker,
)
from isthmus.core_broker.server.encoded_topics import ALL_TOPIC_OPERATIONS, VERSIONS_KEPT
from isthmus.protocol.messages import metadata
from isthmus.protocol.messages.metadata import API, TOPIC
from isthmus.protocol.messages.metadata_records import PartitionChangeRecord
from tests.running import run_by

from .serving import serve


@pytest.fixture
def encoded(monkeypatch):
    """The names of topics in the order in which they are encoded."""
    names = []
    real = type(TOPIC).encode_bytes

    def encode_bytes(codec, message, version):
        if codec is TOPIC:
            names.append(message.name)
        return real(codec, message, version)

    monkeypatch.setattr(type(TOPIC), "encode_bytes", encode_bytes)
    return names


async def told(serving, names=None, version=API.max_version, **more):
    """The decoded rows of an answer, by name."""
    topics = None if names is None else [metadata.MetadataRequestTopic(name=name) for name in names]
    answer = await serving.ask(metadata.Request(topics=topics, allow_auto_topic_creation=False, **more), version)
    data = b"".join(map(bytes, API.encode_response(answer, version)))
    rows = API.decode_response(data, 0, version).topics
    return {row.name: row for row in rows}


def counts(rows):
    return {name: len(row.partitions) for name, row in rows.items()}


@run_by(serve)
async def test_a_topic_is_encoded_once_and_again_when_it_has_changed(serving, /, encoded):
    for name in ("a", "b"):
        await serving.topic(name, partitions=3)
    assert counts(await told(serving)) == {"a": 3, "b": 3}
    assert encoded == ["a", "b"]
    assert counts(await told(serving)) == {"a": 3, "b": 3}
    assert counts(await told(serving, ["b"])) == {"b": 3}
    assert encoded == ["a", "b"]
    more = CreatePartitionsTopic(name="b", count=5, assignments=None)
    await serving.controller.submit_wait(CreatePartitions([more]))
    assert counts(await told(serving)) == {"a": 3, "b": 5}
    assert encoded == ["a", "b", "b"]


@run_by(serve)
async def test_a_topic_of_the_same_name_is_another_one(serving, /, encoded):
    first = await serving.topic("a")
    assert (await told(serving))["a"].topic_id == first
    await serving.controller.submit_wait(DeleteTopics(names=["a"]))
    assert await told(serving) == {}
    second = await serving.topic("a")
    assert first != second == (await told(serving))["a"].topic_id
    assert encoded == ["a", "a"]


@pytest.mark.parametrize("version", range(API.max_version + 1))
@run_by(serve)
async def test_what_is_kept_is_what_would_be_encoded_now(serving, /, version):
    await serving.topic("a", partitions=2)
    asked = {"include_topic_authorized_operations": True} if version >= 8 else {}
    for _ in range(2):
        (row,) = (await told(serving, ["a"], version, **asked)).values()
        expected = metadata.MetadataResponseTopic(
            name="a",
            partitions=[
                metadata.MetadataResponsePartition(
                    partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1],
                    **({"leader_epoch": 0} if version >= 7 else {}),
                )
                for index in range(2)
            ],
            **({"topic_id": serving.image.topics["a"].id} if version >= 10 else {}),
            **({"topic_authorized_operations": ALL_TOPIC_OPERATIONS} if version >= 8 else {}),
        )  # fmt: skip
        assert row == expected


@run_by(serve)
async def test_operations_are_told_to_who_asks_for_them_alone(serving, /):
    await serving.topic("a")
    for asked in (False, True, False):
        row = (await told(serving, ["a"], include_topic_authorized_operations=asked))["a"]
        assert (row.topic_authorized_operations == ALL_TOPIC_OPERATIONS) == asked


@run_by(serve)
async def test_what_is_kept_is_bounded(serving, /):
    await serving.topic("stays")
    for number in range(20):
        await serving.topic(f"t{number}")
        await told(serving)
        await serving.controller.submit_wait(DeleteTopics(names=[f"t{number}"]))
    kept = serving.context.services.encoded_topics
    assert len(kept.of_version(API.max_version, False)) <= 5
    for version in range(API.max_version + 1):
        await told(serving, version=version)
    assert len(kept._versions) == VERSIONS_KEPT


@run_by(serve)
async def test_replicas_of_a_broker_that_is_gone_are_offline(serving, /, encoded):
    await serving.topic("a")
    await serving.controller.submit_wait(RegisterBroker(2, bytes(16), {}, serving.image.cluster_id))
    image = serving.image
    change = PartitionChangeRecord(partition_id=0, topic_id=image.topics["a"].id, replicas=[1, 2, 3])
    image.apply([change], image.offset + 1, image.epoch)
    assert (await told(serving))["a"].partitions[0].offline_replicas == [2, 3]
    await serving.controller.submit_wait(BrokerHeartbeat(2, image.brokers[2].epoch, image.offset))
    for _ in range(2):
        assert (await told(serving))["a"].partitions[0].offline_replicas == [3]
    assert encoded == ["a", "a"]
