"""Snapshots of the metadata log: the image they give, what is dropped for them, and crashes at every step."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import random

import pytest

from isthmus.core_broker.cluster.controller import (
    AllocateProducerIds,
    Controller,
    CreatePartitions,
    CreatePartitionsTopic,
    CreateTopics,
    DeleteTopics,
    RegisterBroker,
    RegisterMirrorLink,
    new_topic,
)
from isthmus.core_broker.cluster.image import Endpoint, MetadataImage
from isthmus.core_broker.cluster.metadata_log import DIRECTORY, MetadataLog
from isthmus.core_broker.cluster.metadata_replay import Fold, fold_snapshot
from isthmus.core_broker.cluster.metadata_snapshot import BATCH_RECORDS, encoded, snapshot_name
from isthmus.core_broker.cluster.quorum.member import alone
from isthmus.core_broker.cluster.quorum.quorum import MetadataQuorum
from isthmus.core_broker.config import BrokerConfig
from isthmus.protocol.messages import metadata_records as r
from isthmus.protocol.records import decode_batch, walk
from isthmus.runtime import Runtime
from tests.core_broker.storage.support import BrokenFiles, Died
from tests.running import in_loop, run_by

from .support import join

ALWAYS = {"metadata.log.max.record.bytes.between.snapshots": "1"}
BY_TIME = {"metadata.log.max.snapshot.interval.ms": "1000"}
NEVER: dict[str, str] = {}
SEEDS = itertools.count()  # each start draws ids of its own


class Node:
    """One start of a controller on a data directory."""

    def __init__(self, path, options=NEVER) -> None:
        self.now_ms = 1_000
        self.files = BrokenFiles()
        self.runtime = Runtime(random.Random(next(SEEDS)), lambda: self.now_ms, lambda: 0)
        self.path = path
        self.config = BrokerConfig(options)
        self.image = MetadataImage("cluster-x")

    async def start(self) -> Node:
        self.log = await MetadataLog.open(self.files, str(self.path), self.runtime)
        self.metadata = MetadataQuorum(self.log, self.image, self.runtime, alone(1))
        self.controller = Controller(self.metadata, self.config, self.runtime, "PLAINTEXT")
        await self.metadata.start()
        return self

    async def submit(self, *commands):
        for command in commands:
            if isinstance(command, RegisterBroker):
                await join(self.controller, command)
            else:
                await self.controller.submit_wait(command)
            await asyncio.sleep(0)

    def names(self) -> list[str]:
        directory = self.path / DIRECTORY
        return sorted(each.name for each in directory.iterdir() if each.suffix in (".log", ".checkpoint"))


REGISTER = RegisterBroker(
    1, bytes(range(16)), {"PLAINTEXT": Endpoint("h", 1), "IN": Endpoint("i", 2)}, "cluster-x", "rack"
)
COMMANDS = (
    REGISTER,
    CreateTopics([new_topic("a", 3, configs={"retention.ms": "1", "durability": "fsync"}), new_topic("b.c")]),
    CreateTopics([new_topic("m", configs={"mirror.link": "l", "mirror.source.cluster.id": "A"})]),
    RegisterMirrorLink("l", "A"),
    CreatePartitions([CreatePartitionsTopic(name="a", count=12, assignments=None)]),
    DeleteTopics(names=["b.c"]),
    AllocateProducerIds(),
)


def fold_of(image: MetadataImage, tmp_path) -> MetadataImage:
    found = MetadataImage(image.cluster_id)
    (tmp_path / snapshot_name(image.offset + 1, image.epoch)).write_bytes(encoded(image, 5))
    assert fold_snapshot(BrokenFiles(), str(tmp_path), Fold(found)) == image.offset + 1
    return found


@run_by(in_loop)
async def test_snapshot_of_an_image_folds_to_the_same_image(tmp_path):
    node = await Node(tmp_path / "node").start()
    await node.submit(*COMMANDS)
    topic = node.image.topics["a"]
    node.image.apply(
        [
            r.PartitionChangeRecord(partition_id=2, topic_id=topic.id, leader=-1, isr=[], adding_replicas=[7]),
            r.FeatureLevelRecord(name="f", feature_level=3),
            r.ConfigRecord(resource_type=4, resource_name="", name="num.partitions", value="4"),
            r.ConfigRecord(resource_type=4, resource_name="1", name="x", value=""),
            r.ConfigRecord(resource_type=32, resource_name="g", name="consumer.session.timeout.ms", value="50000"),
        ],
        node.image.offset + 4,
        node.image.epoch,
    )
    assert fold_of(node.image, tmp_path) == node.image
    await node.controller.close()


def test_large_image_is_many_batches_between_two_control_batches(tmp_path):
    image = MetadataImage("c")
    topic_id = bytes(16)
    partitions = [
        r.PartitionRecord(partition_id=n, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0)
        for n in range(3 * BATCH_RECORDS)
    ]
    image.apply([r.TopicRecord(name="t", topic_id=topic_id), *partitions], 9, 4)
    assert fold_of(image, tmp_path) == image
    data = encoded(image, 5)
    found = [header for _, header in walk(data)]
    assert [header.is_control for header in found] == [True, *[False] * 4, True]
    assert [header.base_offset for header in found] == [0, 1, 501, 1001, 1501, 1502]
    kinds = [decode_batch(data, position)[0].key for position, header in walk(data) if header.is_control]
    assert kinds == [b"\0\0\0\3", b"\0\0\0\4"]  # KIP-630: header and footer
    assert {header.partition_leader_epoch for header in found} == {4}


@run_by(in_loop)
async def test_who_fetches_a_snapshot_gets_no_part_of_the_next_one(tmp_path):
    node = await Node(tmp_path, ALWAYS).start()
    await node.submit(REGISTER)
    first = node.log.snapshot
    assert first is not None
    size, data = node.log.read_snapshot(first, 0, 1 << 20)
    assert len(data) == size > 0
    await node.submit(CreateTopics([new_topic("a")]))
    assert node.log.snapshot not in (None, first)
    with pytest.raises(FileNotFoundError):
        node.log.read_snapshot(first, 0, 1 << 20)
    await node.controller.close()


@run_by(in_loop)
async def test_the_log_before_a_snapshot_goes_and_a_start_goes_on_from_it(tmp_path):
    node = await Node(tmp_path, ALWAYS).start()
    await node.submit(*COMMANDS)
    end = node.log.end_offset
    assert node.names() == [snapshot_name(end, 1), f"{end:020d}.log"]
    assert node.log.log.log_start_offset == end
    await node.controller.close()
    again = await Node(tmp_path).start()
    assert again.image == node.image and again.metadata.epoch == 2
    await again.submit(CreateTopics([new_topic("later")]))
    await again.controller.close()
    third = await Node(tmp_path).start()
    assert third.image == again.image and "later" in third.image.topics
    await third.controller.close()


@run_by(in_loop)
async def test_snapshots_come_by_bytes_or_by_time(tmp_path):
    node = await Node(tmp_path, BY_TIME).start()
    await node.submit(*COMMANDS)
    assert node.names() == [f"{0:020d}.log"]
    node.now_ms += 1000
    await node.submit(DeleteTopics(names=["nobody"]))
    assert len(node.names()) == 2
    before = node.names()
    node.now_ms += 1000
    await node.submit(DeleteTopics(names=["nobody"]))  # nothing was written since
    assert node.names() == before
    await node.submit(AllocateProducerIds())
    assert node.names() != before
    await node.controller.close()
    few = await Node(tmp_path, {"metadata.log.max.record.bytes.between.snapshots": "50000"}).start()
    await few.submit(AllocateProducerIds())
    unsnapped = few.log.end_offset
    for _ in range(800):
        await few.submit(AllocateProducerIds())
    ends = [int(name.split("-")[0]) for name in few.names() if name.endswith(".checkpoint")]
    assert len(ends) == 1 and unsnapped + 300 < ends[0] < few.log.end_offset
    await few.controller.close()


@run_by(in_loop)
async def test_records_of_a_long_log_count_from_its_start(tmp_path):
    node = await Node(tmp_path).start()
    await node.submit(*COMMANDS)
    await node.controller.close()
    again = await Node(tmp_path, {"metadata.log.max.record.bytes.between.snapshots": "500"}).start()
    await again.submit(REGISTER)
    assert len(again.names()) == 2
    await again.controller.close()


@run_by(in_loop)
async def test_snapshot_that_the_disk_refuses_leaves_the_log_as_it_is(tmp_path, caplog):
    node = await Node(tmp_path, ALWAYS).start()

    def trap(kind, path):
        if kind == "write_atomic" and path.endswith(".checkpoint"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    node.files.trap = trap
    await node.submit(*COMMANDS)
    assert node.names() == [f"{0:020d}.log"] and "No space left" in caplog.text
    node.files.trap = lambda kind, path: None
    await node.submit(AllocateProducerIds())
    assert node.names()[0].endswith(".checkpoint")
    await node.controller.close()
    again = await Node(tmp_path).start()
    assert again.image == node.image
    await again.controller.close()


@pytest.mark.parametrize("step", range(40))
@run_by(in_loop)
async def test_process_that_dies_in_the_middle_loses_nothing(tmp_path, step):
    node = await Node(tmp_path).start()
    await node.submit(*COMMANDS)
    node.files.die_at(step)
    try:
        await node.metadata.snapshot_if_due(1, 0)
    except Died:
        pass
    else:
        assert step > 5
    again = await Node(tmp_path).start()
    assert again.image == node.image
    await again.submit(AllocateProducerIds())
    await again.metadata.snapshot_if_due(1, 0)
    third = await Node(tmp_path).start()
    assert third.image == again.image and len(third.names()) == 2
    await third.controller.close()
