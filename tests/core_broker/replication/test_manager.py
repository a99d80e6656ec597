"""The replica manager follows the metadata image: opens, configures, deletes, and says why something is missing."""

import errno

import pytest

from isthmus.core_broker.config import BrokerConfig, topic_config
from isthmus.core_broker.replication.manager import log_config
from isthmus.core_broker.replication.states import State
from isthmus.core_broker.storage.log.append import Origin
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import metadata_records as r
from tests.core_broker.storage.support import NOW_MS, batch
from tests.running import run_by

from .worlds import ID, OTHER_ID, in_world, partition


def config(name, value):
    return r.ConfigRecord(resource_type=2, resource_name="t", name=name, value=value)


@run_by(in_world)
async def test_partitions_open_with_their_topic_and_go_with_it(world, /, tmp_path):
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


@run_by(in_world)
async def test_leader_epochs_and_options_reach_open_partitions(world, /):
    await world.feed(r.TopicRecord(name="t", topic_id=ID), partition(0))
    change = r.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=1)
    await world.feed(change, change, config("durability", "fsync"), config("retention.ms", "5"))
    opened = world.replicas.get("t", 0)
    assert (opened.leader_epoch, opened.fsync, opened.log.config.retention_ms) == (2, True, 5)


@run_by(in_world)
async def test_a_log_start_is_saved_when_it_is_on_disk(world, /):
    await world.topic(0)
    world.append()
    opened = world.replicas.get("t", 0)
    assert opened.delete_records(-1) == 1
    assert world.replicas.saved_log_start(opened) == 0
    await world.replicas.save_log_starts()
    assert world.replicas.saved_log_start(opened) == 1


@run_by(in_world)
async def test_what_a_deleted_topic_left_is_not_taken_for_the_new_one_s(world, /):
    old = await world.logs.create("t", 0, OTHER_ID, log_config_of(world))
    old.tail.log_start_offset = old.tail.log_end_offset = 7
    await world.feed(r.TopicRecord(name="t", topic_id=ID), partition(0))
    assert world.replicas.get("t", 0).log.log_end_offset == 0


def log_config_of(world):
    return log_config(topic_config({}, world.config), world.config)


def test_log_options_are_those_of_the_topic(tmp_path):
    options = topic_config({"cleanup.policy": "compact,delete", "segment.bytes": "2000000"}, BrokerConfig())
    made = log_config(options, BrokerConfig({"producer.id.expiration.ms": "77"}))
    assert (made.cleanup_policy, made.segment_bytes, made.producer_id_expiration_ms) == (
        "compact,delete",
        2_000_000,
        77,
    )


@run_by(in_world)
async def test_log_that_cannot_be_opened_is_a_storage_error_and_others_serve(world, /, tmp_path):
    (tmp_path / "t-0").write_text("a file where a directory must be")
    await world.feed(r.TopicRecord(name="t", topic_id=ID), partition(0), partition(1))
    with pytest.raises(KafkaError) as caught:
        world.replicas.get("t", 0)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.replicas.get("t", 1).high_watermark == 0
    assert world.replicas.leaderless == {"t": {0}}
    await world.feed(r.RemoveTopicRecord(topic_id=ID))
    assert world.replicas.leaderless == {}


@run_by(in_world)
async def test_who_waits_for_data_of_a_log_that_breaks_is_told_at_once(world, /):
    await world.feed(r.TopicRecord(name="t", topic_id=ID), partition(0), partition(1))
    told = []
    for index in (0, 1):
        world.replicas.get("t", index).wait_for_data(lambda index=index: told.append(index))
    broken = world.replicas.get("t", 0)
    world.refuse(errno.EIO, part="/t-0/")
    with pytest.raises(KafkaError):
        broken.append(batch(), Origin.CLIENT, NOW_MS)
    assert told == [0]
    assert broken.state is State.OFFLINE and "Input/output error" in broken.failure.message


@pytest.mark.parametrize("leader", [1, 2])
@run_by(in_world)
async def test_a_log_that_broke_is_not_served_under_a_later_leader_and_copied_no_more(world, /, leader):
    copied = []
    world.replicas.begun.add(lambda each: copied.append((each.topic, each.index)))
    world.replicas.ended = lambda topic, index: (topic, index) in copied and copied.remove((topic, index))
    first = partition(0, leader=3 - leader)
    first.replicas = first.isr = [1, 2]
    first.directories = [bytes(16), bytes(16)]
    await world.feed(r.TopicRecord(name="t", topic_id=ID), first)
    assert copied == [("t", 0)]
    broken = world.replicas.held("t", 0)
    broken.log.status.fail(OSError(errno.EIO, "Input/output error"), "cannot sync")
    assert copied == [] and broken.state is State.OFFLINE
    await world.feed(r.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=leader))
    later = world.replicas.held("t", 0)
    assert later is not broken and later.state is State.OFFLINE and copied == []
    assert list(world.replicas.offline()) == [("t", 0)]
    assert world.replicas.leaderless == ({"t": {0}} if leader == 1 else {})


@run_by(in_world)
async def test_log_that_failed_while_nobody_served_it_is_not_served(world, /):
    await world.feed(r.TopicRecord(name="t", topic_id=ID), partition(0))
    log = world.replicas.partitions["t"].pop(0).log  # open, and waiting to be served
    log.status.fail(OSError(errno.EIO, "Input/output error"), "cannot sync")
    await world.replicas._open_again([("t", 0)])
    assert world.replicas.why_missing("t", 0).code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.replicas.partitions["t"] == {} and world.replicas.leaderless == {"t": {0}}


@run_by(in_world)
async def test_a_repeated_batch_counts_as_come_in_but_not_as_appended_as_in_kafka(world, /):
    await world.feed(r.TopicRecord(name="t", topic_id=ID), partition(0))
    leader = world.replicas.get("t", 0)
    data = batch(3, producer_id=7, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        assert leader.append(data, Origin.CLIENT, NOW_MS).first_offset == 0
    assert leader.log.log_end_offset == 3
    assert (leader.traffic.messages_in, leader.traffic.bytes_in) == (6, 2 * len(data))


@run_by(in_world)
async def test_partition_led_elsewhere_is_not_opened(world, /, tmp_path):
    await world.feed(r.TopicRecord(name="t", topic_id=ID), partition(0, leader=2))
    assert world.replicas.why_missing("t", 0).code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not (tmp_path / "t-0").exists()
