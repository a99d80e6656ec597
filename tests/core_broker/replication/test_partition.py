"""A partition moves its high watermark by its durability and wakes who waits, once."""

import asyncio
from types import SimpleNamespace

import pytest

from isthmus.core_broker.config import BrokerConfig, topic_config
from isthmus.core_broker.replication._core import Traffic
from isthmus.core_broker.replication.leadership import Leadership
from isthmus.core_broker.replication.partition import Partition
from isthmus.protocol.errors import ErrorCode, KafkaError
from tests.running import in_loop, run_by

from .memory_log import tail_without_transactions


class FakeLog:
    """Counts offsets; `sync` ends when the test says so."""

    def __init__(self):
        self.log_start_offset = self.log_end_offset = 0
        self.needs_flush = False
        self.failure = None
        self.epoch = -1
        self.tail = tail_without_transactions()
        self.ranges = None
        self.syncs = []

    def append(self, records, origin, leader_epoch, wall_ms, expected_next_offset=None, *options):
        first = self.log_end_offset
        self.log_end_offset += records
        count = self.log_end_offset - first
        return SimpleNamespace(
            first_offset=first, next_offset=self.log_end_offset, size_bytes=70 * count, records_count=count
        )

    def assign_epoch(self, epoch):
        self.epoch = epoch

    async def sync(self):
        done = asyncio.get_running_loop().create_future()
        self.syncs.append(done)
        await done

    def read(self, offset, max_bytes, upper, min_one, may_wait):
        return upper


def make(**options):
    log = FakeLog()
    leadership = Leadership(1, 0, 30_000, lambda broker, epoch: True, lambda: 1.0)
    partition = Partition("t", b"\0" * 16, 0, log, leadership=leadership)
    partition.configure(topic_config({name.replace("_", "."): text for name, text in options.items()}, BrokerConfig()))
    return partition, log


async def turns(n=5):
    for _ in range(n):
        await asyncio.sleep(0)


def test_page_cache_moves_the_high_watermark_at_once():
    partition, _ = make()
    seen = []
    partition.wait_for_high_watermark(2, lambda: seen.append("two"))
    partition.wait_for_data(lambda: seen.append("data"))
    partition.append(1, 0, 0)
    assert partition.high_watermark == 1
    assert seen == ["data"]
    partition.append(1, 0, 0)
    assert seen == ["data", "two"]


@run_by(in_loop)
async def test_fsync_moves_it_after_the_sync_and_commits_in_groups():
    partition, log = make(durability="fsync")
    seen = []
    partition.append(1, 0, 0)
    partition.wait_for_high_watermark(1, lambda: seen.append(1))
    await turns()
    for end in (2, 3, 4):
        partition.append(1, 0, 0)
        partition.wait_for_high_watermark(end, lambda end=end: seen.append(end))
    assert (partition.high_watermark, seen, len(log.syncs)) == (0, [], 1)
    log.syncs[0].set_result(None)
    await turns()
    assert (partition.high_watermark, seen, len(log.syncs)) == (1, [1], 2)
    log.syncs[1].set_result(None)
    await turns()
    assert (partition.high_watermark, seen, len(log.syncs)) == (4, [1, 2, 3, 4], 2)


@run_by(in_loop)
async def test_flush_messages_holds_the_high_watermark_back_until_synced():
    partition, log = make(flush_messages="1")
    log.needs_flush = True
    partition.append(1, 0, 0)
    await turns()
    assert partition.high_watermark == 0
    log.syncs[0].set_result(None)
    await turns()
    assert partition.high_watermark == 1


@run_by(in_loop)
async def test_failed_sync_takes_the_partition_offline_and_tells_all():
    partition, log = make(durability="fsync")
    seen = []
    partition.append(1, 0, 0)
    partition.wait_for_high_watermark(1, lambda: seen.append("end"))
    partition.wait_for_data(lambda: seen.append("data"))
    await turns()
    log.syncs[0].set_exception(OSError(5, "Input/output error"))
    await turns()
    assert seen == ["end", "data"]
    assert partition.high_watermark == 0
    with pytest.raises(KafkaError) as caught:
        partition.append(1, 0, 0)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "t-0" in caught.value.message


def test_cancelled_waits_are_not_called():
    partition, _ = make()
    seen = []
    partition.wait_for_high_watermark(1, lambda: seen.append(1))()
    partition.wait_for_data(lambda: seen.append(2))()
    partition.append(1, 0, 0)
    assert seen == []


def test_waiting_for_what_is_there_already_calls_at_once():
    partition, _ = make()
    partition.append(3, 0, 0)
    seen = []
    partition.wait_for_high_watermark(3, lambda: seen.append(3))
    assert seen == [3]


def test_other_leader_epochs_are_fenced():
    partition, log = make()
    partition.begin_epoch(5)
    assert log.epoch == 5
    partition.check_epoch(5)
    partition.check_epoch(-1)
    with pytest.raises(KafkaError) as caught:
        partition.check_epoch(4)
    assert caught.value.code == ErrorCode.FENCED_LEADER_EPOCH
    with pytest.raises(KafkaError) as caught:
        partition.check_epoch(6)
    assert caught.value.code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_mirrored_log_is_given_no_epoch_of_ours():
    partition, log = make(mirror_link="l")
    partition.begin_epoch(5)
    assert (partition.leader_epoch, log.epoch) == (5, -1)


def test_read_committed_ends_at_the_first_open_transaction():
    partition, log = make()
    partition.append(10, 0, 0)
    assert partition.last_stable_offset == 10
    log.tail.producers.unstable.begin(4)
    assert partition.last_stable_offset == 4
    assert partition.read(0, 100) == 10
    assert partition.read(0, 100, read_committed=True) == 4


def test_who_reads_committed_transactions_waits_until_one_ends():
    partition, log = make()
    unstable, seen = log.tail.producers.unstable, []
    unstable.begin(0)
    partition.wait_for_stable(lambda: seen.append(1))
    partition.append(3, 0, 0)
    assert seen == []
    unstable.end(0, 3)
    partition.append(1, 0, 0)
    assert (seen, partition.last_stable_offset) == ([1], 4)
    partition.wait_for_stable(lambda: seen.append(2))
    partition.append(1, 0, 0)
    assert seen == [1, 2]


def test_closing_lets_go_of_all_who_wait():
    partition, _ = make()
    seen = []
    partition.wait_for_high_watermark(1, lambda: seen.append(1))
    partition.wait_for_data(lambda: seen.append(2))
    partition.wait_for_stable(lambda: seen.append(3))
    partition.close(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "deleted"))
    assert seen == [1, 2, 3]
    with pytest.raises(KafkaError, match="deleted"):
        partition.append(1, 0, 0)


def test_what_goes_in_is_counted_and_so_is_what_fails():
    partition, log = make()
    partition.append(3, 0, 0)
    partition.append(2, 0, 0)
    traffic = partition.traffic
    assert (traffic.appends, traffic.failed_appends, traffic.messages_in, traffic.bytes_in) == (2, 0, 5, 350)

    for code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD):

        def refuse(records, *rest, code=code):
            raise KafkaError(code, "refused")

        log.append = refuse
        with pytest.raises(KafkaError):
            partition.append(b"0123456789", 0, 0)
    assert (traffic.appends, traffic.failed_appends, traffic.messages_in, traffic.bytes_refused) == (5, 1, 5, 10)
    total = Traffic()
    total.add(traffic)
    total.add(traffic)
    assert (total.messages_in, traffic.messages_in) == (10, 5)


def test_follower_that_begins_before_what_was_deleted_joins_once_it_does_not():
    partition, log = make()
    partition.place(1, [1, 2], [1])
    partition.append(9, 0, 0)
    log.log_start_offset = 5  # records were deleted while the follower was dead
    assert partition.follower_fetched(2, 9, 0, 0) is None
    change = partition.follower_fetched(2, 9, 5, 0)
    assert change is not None and change.isr == (1, 2)


def test_follower_joins_with_all_that_the_leader_had_when_it_began_to_lead():
    """That may be committed, though a new leader does not know it yet."""
    partition, _ = make()
    partition.place(1, [1, 2, 3], [1, 2])
    partition.append(9, 0, 0)
    partition.leadership.epoch_start = 9
    assert partition.follower_fetched(3, 8, 0, 0) is None and partition.high_watermark == 0
    change = partition.follower_fetched(3, 9, 0, 0)
    assert change is not None and change.isr == (1, 2, 3)


def test_nothing_is_committed_while_fewer_are_in_sync_than_min_insync_replicas():
    partition, _ = make(min_insync_replicas="2")
    partition.place(1, [1, 2], [1])
    partition.append(9, 0, 0)
    assert partition.high_watermark == 0
    partition.follower_fetched(2, 9, 0, 0)
    assert partition.high_watermark == 0  # it has asked to be in sync
    partition.place(2, [1, 2], [1, 2])
    partition.follower_fetched(2, 9, 0, 0)
    assert partition.high_watermark == 9
