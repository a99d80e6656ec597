"""The session cache: epochs, its bound, and who goes when there is no slot left (KIP-227)."""

import random
from types import SimpleNamespace

import pytest

from isthmus.core_broker.replication.partition import Partition
from isthmus.core_broker.server._wanted import Wanted
from isthmus.core_broker.server.fetch_sessions import EVICTION_S, NO_SESSION, FetchSessions, next_epoch
from isthmus.core_broker.storage.log._producers import ProducerStates
from isthmus.core_broker.storage.log._segment import Segment
from isthmus.core_broker.storage.log._tail import LogTail
from isthmus.core_broker.storage.log.epochs import LeaderEpochs
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages.fetch import EpochEndOffset, PartitionData


def cache(slots, max_partitions=1000):
    return FetchSessions(slots, max_partitions, random.Random(7))


def partitions(count):
    return {("t", index): Wanted("t", bytes(16), index) for index in range(count)}


def is_there(sessions, session_id):
    try:
        sessions.resume(session_id, 1, False)
    except KafkaError as error:
        return error.code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    return True


def test_a_request_must_name_a_session_its_next_epoch_and_its_kind():
    sessions = cache(2)
    session = sessions.open(partitions(1), False, False, 0.0)
    assert session != NO_SESSION and is_there(sessions, session)
    for session_id, epoch, by_id, code in (
        (session + 1, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (session, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (session, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ):
        with pytest.raises(KafkaError) as caught:
            sessions.resume(session_id, epoch, by_id)
        assert caught.value.code == code
    sessions.close(session)
    assert not is_there(sessions, session)
    assert (next_epoch(1), next_epoch(2**31 - 1)) == (2, 1)


def test_without_a_slot_there_is_no_session():
    assert cache(0).open(partitions(1), False, False, 0.0) == NO_SESSION
    sessions = cache(1)
    first = sessions.open(partitions(1), False, False, 0.0)
    assert sessions.open(partitions(9), False, False, 1.0) == NO_SESSION  # the first has just begun
    assert is_there(sessions, first) and len(sessions) == 1


def test_a_stale_session_goes_first():
    sessions = cache(2)
    old, young = (sessions.open(partitions(5), False, False, at) for at in (0.0, 100.0))
    assert sessions.open(partitions(1), False, False, EVICTION_S) == NO_SESSION
    assert sessions.open(partitions(1), False, False, EVICTION_S + 1) != NO_SESSION
    assert not is_there(sessions, old) and is_there(sessions, young)
    assert sessions.evictions == 1


def used(sessions, size, now_s, privileged=False):
    """A session that has lived long and was used now."""
    session = sessions.open(partitions(size), privileged, False, 0.0)
    sessions.used(sessions.resume(session, 1, False), now_s)
    return session


def test_one_that_has_lived_goes_for_one_of_at_least_as_many_partitions():
    sessions = cache(2)
    now_s = EVICTION_S + 1
    small, large = used(sessions, 3, now_s), used(sessions, 5, now_s)
    assert sessions.open(partitions(2), False, False, now_s) == NO_SESSION
    assert sessions.open(partitions(3), False, False, now_s) == NO_SESSION  # not more than it, by Kafka's order
    assert sessions.open(partitions(4), False, False, now_s) != NO_SESSION
    assert not is_there(sessions, small) and is_there(sessions, large)


def test_followers_take_the_place_of_consumers_and_not_the_other_way_round():
    sessions = cache(1)
    used(sessions, 9, EVICTION_S + 1)
    follower = sessions.open(partitions(1), True, False, EVICTION_S + 1)
    assert follower != NO_SESSION
    sessions.used(sessions.resume(follower, 1, False), 2 * EVICTION_S + 3)
    assert sessions.open(partitions(99), False, False, 2 * EVICTION_S + 3) == NO_SESSION


def test_only_what_is_new_is_told():
    wanted = Wanted("t", bytes(16), 0)

    def told(**data):
        return wanted.tell(PartitionData(**{"high_watermark": 5, "log_start_offset": 0, "records": [], **data}))

    assert told() and not told()
    assert told(high_watermark=6) and not told(high_watermark=6)
    assert told(high_watermark=6, log_start_offset=2) and not told(high_watermark=6, log_start_offset=2)
    assert told(high_watermark=6, log_start_offset=2, records=[b"x"])
    assert told(error_code=1, high_watermark=6, log_start_offset=2)
    assert told(high_watermark=6, log_start_offset=2)  # that the error is over
    assert not told(high_watermark=6, log_start_offset=2)


def test_only_a_partition_that_is_read_to_its_end_is_passed_over():
    tail = LogTail(LogConfig(), ProducerStates(), LeaderEpochs(), Segment(None, "t-0", 0, 0), 0, 0, 0)
    partition = Partition("t", bytes(16), 0, SimpleNamespace(log_start_offset=0, tail=tail, ranges=None))
    partition.core.advance_high_watermark(5)
    wanted = Wanted("t", bytes(16), 0, 4)
    wanted.partition = partition
    nothing = PartitionData(high_watermark=5, log_start_offset=0, records=[])
    assert wanted.tell(nothing) and not wanted.is_idle
    assert not wanted.tell(nothing) and not wanted.is_idle  # a limit left no room for the last record
    wanted.follow(Wanted("t", bytes(16), 0, 5))
    assert not wanted.tell(nothing) and wanted.is_idle
    partition.core.leader_epoch += 1
    assert not wanted.is_idle  # the client may have asked for the epoch before
    assert not wanted.tell(nothing) and wanted.is_idle
    diverged = PartitionData(high_watermark=5, log_start_offset=0, records=[], diverging_epoch=EpochEndOffset())
    assert wanted.tell(diverged) and not wanted.is_idle
    assert not wanted.tell(nothing) and wanted.is_idle
    partition.core.advance_high_watermark(6)
    assert not wanted.is_idle
    assert wanted.tell(PartitionData(high_watermark=6, log_start_offset=0, records=[b"x"]))
    assert not wanted.is_idle  # the client may ask for the same again


def test_partitions_of_all_sessions_are_bounded_together():
    sessions = cache(9, max_partitions=5)
    first = sessions.open(partitions(3), False, False, 0.0)
    assert sessions.open(partitions(3), False, False, 0.0) == NO_SESSION
    second = sessions.open(partitions(2), False, False, 0.0)
    assert (len(sessions), sessions.partitions_count) == (2, 5)
    session = sessions.resume(first, 1, False)
    session.partitions.update(partitions(4))  # one more than there is room for
    with pytest.raises(KafkaError) as caught:
        sessions.used(session, 1.0)
    assert caught.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (is_there(sessions, first), is_there(sessions, second), sessions.partitions_count) == (False, True, 2)
    session = sessions.resume(second, 1, False)
    session.partitions.popitem()
    sessions.used(session, 1.0)
    assert (session.epoch, sessions.partitions_count) == (2, 1)
    sessions.close(second)
    assert sessions.partitions_count == 0
