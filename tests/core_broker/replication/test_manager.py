"""The replica manager follows the metadata image: opens, configures, deletes, and says why something is missing."""

import asyncio
import errno

import pytest

from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.config import BrokerConfig
from isthmus.core_broker.replication.manager import ReplicaManager, log_config
from isthmus.core_broker.replication.states import State
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.manager import LogManager
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import metadata_records as r
from isthmus.runtime import system
from tests.core_broker.storage.support import NOW_MS, BrokenFiles, batch

ID, OTHER_ID = b"\1" * 16, b"\2" * 16


def partition(index, topic_id=ID, leader=1):
    return r.PartitionRecord(
        partition_id=index, topic_id=topic_id, replicas=[leader], isr=[leader], leader=leader, leader_epoch=0,
        partition_epoch=0, directories=[bytes(16)],
    )  # fmt: skip


class World:
    """A manager over a data directory, fed with records."""

    def __init__(self, path, files=None):
        self.files = files or RealFiles(2)
        self.image = MetadataImage("cluster")
        self.logs = LogManager(self.files, str(path), system())
        self.config = BrokerConfig()
        self.replicas = ReplicaManager(self.image, self.logs, self.config, system(), 1)

    async def feed(self, *records):
        await self.replicas.apply(self.image.apply(records, self.image.offset + len(records), 0))

    def run(self, history):
        async def main():
            await self.logs.open(1)
            await history()
            await self.logs.close()

        asyncio.run(main())
        self.files.close()


def config(name, value):
    return r.ConfigRecord(resource_type=2, resource_name="t", name=name, value=value)


def test_partitions_open_with_their_topic_and_go_with_it(tmp_path):
    world = World(tmp_path)

    async def history():
        await world.feed(r.TopicRecord(name="t", topic_id=ID), partition(0), partition(1))
        assert sorted(world.replicas.partitions["t"]) == [0, 1]
        assert world.replicas.get("t", 1).topic_id == ID
        assert (tmp_path / "t-1").is_dir()
        told = []
        world.replicas.get("t", 0).wait_for_data(lambda: told.append(1))
        await world.feed(r.RemoveTopicRecord(topic_id=ID))
        assert told == [1]
        assert not (tmp_path / "t-1").exists()
        with pytest.raises(KafkaError) as caught:
            world.replicas.get("t", 0)
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    world.run(history)


def test_leader_epochs_and_options_reach_open_partitions(tmp_path):
    world = World(tmp_path)

    async def history():
        await world.feed(r.TopicRecord(name="t", topic_id=ID), partition(0))
        change = r.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=1)
        await world.feed(change, change, config("durability", "fsync"), config("retention.ms", "5"))
        opened = world.replicas.get("t", 0)
        assert (opened.leader_epoch, opened.fsync, opened.log.config.retention_ms) == (2, True, 5)

    world.run(history)


def test_what_a_deleted_topic_left_is_not_taken_for_the_new_one_s(tmp_path):
    world = World(tmp_path)

    async def history():
        old = await world.logs.create("t", 0, OTHER_ID, log_config_of(world))
        old.tail.log_start_offset = old.tail.log_end_offset = 7
        await world.feed(r.TopicRecord(name="t", topic_id=ID), partition(0))
        assert world.replicas.get("t", 0).log.log_end_offset == 0

    world.run(history)


def log_config_of(world):
    from isthmus.core_broker.config import topic_config

    return log_config(topic_config({}, world.config), world.config)


def test_log_options_are_those_of_the_topic(tmp_path):
    from isthmus.core_broker.config import topic_config

    options = topic_config({"cleanup.policy": "compact,delete", "segment.bytes": "2000000"}, BrokerConfig())
    made = log_config(options, BrokerConfig({"producer.id.expiration.ms": "77"}))
    assert (made.cleanup_policy, made.segment_bytes, made.producer_id_expiration_ms) == (
        "compact,delete",
        2_000_000,
        77,
    )


def test_log_that_cannot_be_opened_is_a_storage_error_and_others_serve(tmp_path):
    world = World(tmp_path)

    async def history():
        (tmp_path / "t-0").write_text("a file where a directory must be")
        await world.feed(r.TopicRecord(name="t", topic_id=ID), partition(0), partition(1))
        with pytest.raises(KafkaError) as caught:
            world.replicas.get("t", 0)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert world.replicas.get("t", 1).high_watermark == 0
        assert world.replicas.leaderless == {"t": {0}}
        await world.feed(r.RemoveTopicRecord(topic_id=ID))
        assert world.replicas.leaderless == {}

    world.run(history)


def test_who_waits_for_data_of_a_log_that_breaks_is_told_at_once(tmp_path):
    files = BrokenFiles()
    world = World(tmp_path, files)

    def refuse(kind, path):
        if kind == "append" and "/t-0/" in path:
            raise OSError(errno.EIO, "Input/output error")

    async def history():
        await world.feed(r.TopicRecord(name="t", topic_id=ID), partition(0), partition(1))
        told = []
        for index in (0, 1):
            world.replicas.get("t", index).wait_for_data(lambda index=index: told.append(index))
        broken = world.replicas.get("t", 0)
        files.trap = refuse
        with pytest.raises(KafkaError):
            broken.append(batch(), Origin.CLIENT, NOW_MS)
        assert told == [0]
        assert broken.state is State.OFFLINE and "Input/output error" in broken.failure.message

    world.run(history)


def test_log_that_failed_while_nobody_served_it_is_not_served(tmp_path):
    world = World(tmp_path)

    async def history():
        await world.feed(r.TopicRecord(name="t", topic_id=ID), partition(0))
        log = world.replicas.partitions["t"].pop(0).log  # open, and waiting to be served
        log.status.fail(OSError(errno.EIO, "Input/output error"), "cannot sync")
        await world.replicas._open_again([("t", 0)])
        assert world.replicas.why_missing("t", 0).code == ErrorCode.KAFKA_STORAGE_ERROR
        assert world.replicas.partitions["t"] == {} and world.replicas.leaderless == {"t": {0}}

    world.run(history)


def test_a_repeated_batch_counts_as_come_in_but_not_as_appended_as_in_kafka(tmp_path):
    world = World(tmp_path)

    async def history():
        await world.feed(r.TopicRecord(name="t", topic_id=ID), partition(0))
        leader = world.replicas.get("t", 0)
        data = batch(3, producer_id=7, producer_epoch=0, base_sequence=0)
        for _ in range(2):
            assert leader.append(data, Origin.CLIENT, NOW_MS).first_offset == 0
        assert leader.log.log_end_offset == 3
        assert (leader.traffic.messages_in, leader.traffic.bytes_in) == (6, 2 * len(data))

    world.run(history)


def test_partition_led_elsewhere_is_not_opened(tmp_path):
    world = World(tmp_path)

    async def history():
        await world.feed(r.TopicRecord(name="t", topic_id=ID), partition(0, leader=2))
        assert world.replicas.why_missing("t", 0).code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not (tmp_path / "t-0").exists()

    world.run(history)
