"""Shards that follow the metadata image: who coordinates what, and where a key is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.coordinators.elections import Elections
from isthmus.core_broker.coordinators.find import partition_for
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import metadata_records as r
from tests.running import in_loop, run_by

TOPIC, ID = "__transaction_state", b"\1" * 16


class Shards:
    """Notes what becomes of each shard; `active` gives the index."""

    topic = TOPIC

    def __init__(self) -> None:
        self.shards: dict[int, Any] = {}

    def elect(self, index: int) -> None:
        self.shards[index] = SimpleNamespace(index=index)

    def resign(self, index: int) -> None:
        self.shards.pop(index, None)

    resign_if_offline = resign

    def active(self, index: int) -> int:
        return index


class Followed:
    """The elections of node 1."""

    def __init__(self) -> None:
        self.image = MetadataImage("cluster")
        self.shards = Shards()
        self.elections: Elections[Any] = Elections(self.shards, self.image, 1)  # type: ignore[arg-type]

    def feed(self, *records: Any) -> None:
        self.elections.on_change(self.image.apply(records, self.image.offset + len(records), 0))

    def create(self, *leaders: int) -> None:
        self.feed(r.TopicRecord(name=TOPIC, topic_id=ID), *(partition(n, leader) for n, leader in enumerate(leaders)))


def partition(index: int, leader: int) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=index, topic_id=ID, replicas=[1, 2], isr=[1, 2], leader=leader, directories=[bytes(16)] * 2
    )


def test_shards_are_the_partitions_that_this_node_leads() -> None:
    followed = Followed()
    followed.create(1, 2, 1)
    assert set(followed.shards.shards) == {0, 2}
    followed.feed(r.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=2))
    followed.feed(r.PartitionChangeRecord(partition_id=1, topic_id=ID, leader=1))
    assert set(followed.shards.shards) == {1, 2}
    followed.feed(r.TopicRecord(name="other", topic_id=b"\2" * 16))
    assert set(followed.shards.shards) == {1, 2}
    followed.feed(r.RemoveTopicRecord(topic_id=ID))
    assert followed.shards.shards == {}


def test_a_key_is_found_anew_when_there_are_more_partitions() -> None:
    followed = Followed()
    with pytest.raises(KafkaError) as caught:
        followed.elections.shard_of("key")
    assert caught.value.code == ErrorCode.NOT_COORDINATOR
    followed.create(1)
    assert followed.elections.shard_of("key") == 0
    followed.feed(*(partition(n, 1) for n in range(1, 50)))
    assert followed.elections.shard_of("key") == partition_for("key", 50) != 0


@run_by(in_loop)
async def test_a_partition_that_goes_offline_and_comes_back_takes_its_shard_along() -> None:
    followed = Followed()
    followed.create(1, 1)
    followed.elections.went_offline(TOPIC, 0)
    followed.elections.went_offline("other", 1)
    assert set(followed.shards.shards) == {0, 1}, "not while its effects may be under way"
    await asyncio.sleep(0)
    assert set(followed.shards.shards) == {1}
    followed.elections.came_back("other", 0)
    assert set(followed.shards.shards) == {1}
    followed.elections.came_back(TOPIC, 0)
    assert set(followed.shards.shards) == {0, 1}
