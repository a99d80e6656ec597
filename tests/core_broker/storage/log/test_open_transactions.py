"""Transactions of producers here: what may be written to them, what may end them, and where readers must stop."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core_broker.storage.log._producers import (
    ALL_STABLE,
    VERIFICATIONS_MAX,
    ProducerStates,
    UnstableTransactions,
)
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.log.transactions import end_marker
from isthmus.protocol.errors import ErrorCode, KafkaError

from ..support import NOW_MS, append, batch, open_log, run

E = ErrorCode
CLIENT, COORDINATOR = Origin.CLIENT, Origin.COORDINATOR


def send(log, sequence=0, pid=7, epoch=0, count=1, transactional=True, guard=None, origin=CLIENT):
    data = batch(count, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=transactional)
    return append(log, data, origin=origin, guard=guard)


def verify(log, pid=7, epoch=0, sequence=0, bumps=True):
    return log.begin_verification(pid, epoch, sequence, bumps, NOW_MS)


def end(log, pid=7, epoch=1, commit=True, coordinator_epoch=0, version=2, now_ms=NOW_MS):
    log.producers.check_marker(pid, epoch, coordinator_epoch, version)
    return append(log, end_marker(pid, epoch, commit, coordinator_epoch, now_ms), origin=COORDINATOR)


def refusal(act, *args, **more):
    with pytest.raises(KafkaError) as caught:
        act(*args, **more)
    return caught.value.code


# --- data -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", [CLIENT, COORDINATOR])
def test_the_first_batch_needs_a_verification_and_the_next_ones_none(files, tmp_path, origin):
    log = open_log(files, tmp_path)
    sequences = (0, 1) if origin is CLIENT else (-1, -1)
    assert refusal(send, log, sequences[0], origin=origin) == E.INVALID_TXN_STATE
    send(log, sequences[0], origin=origin, guard=verify(log))
    assert verify(log, sequence=sequences[1]) is None
    send(log, sequences[1], origin=origin)
    assert log.first_undecided_offset == 0


def test_nothing_verifies_where_that_is_switched_off(files, tmp_path):
    log = open_log(files, tmp_path, LogConfig(transaction_partition_verification_enable=False))
    send(log)
    assert log.first_undecided_offset == 0


def test_a_marker_in_between_makes_the_verification_void(files, tmp_path):
    log = open_log(files, tmp_path)
    guard = verify(log, bumps=False)
    end(log, epoch=0, version=0)
    assert refusal(send, log, guard=guard) == E.INVALID_TXN_STATE
    assert verify(log, bumps=False) is not guard


def test_a_marker_with_the_epoch_of_the_next_transaction_leaves_that_ones_verification(files, tmp_path):
    log = open_log(files, tmp_path)
    send(log, guard=verify(log))
    guard = verify(log, epoch=1)  # it begins while the first one is being ended
    end(log, epoch=1)
    send(log, epoch=1, guard=guard)
    other = verify(log, pid=8, epoch=1)
    end(log, pid=8, epoch=2)  # of neither
    assert refusal(send, log, pid=8, epoch=2, guard=other) == E.INVALID_TXN_STATE


def test_an_open_transaction_counts_under_its_epoch_alone(files, tmp_path):
    log = open_log(files, tmp_path)
    send(log, epoch=1, guard=verify(log, epoch=1))
    assert refusal(send, log, epoch=2) == E.INVALID_TXN_STATE
    assert refusal(send, log, 1, epoch=0) == E.INVALID_PRODUCER_EPOCH
    assert refusal(verify, log, epoch=0) == E.INVALID_PRODUCER_EPOCH


def test_what_is_not_of_the_transaction_is_refused_while_it_is_open(files, tmp_path):
    log = open_log(files, tmp_path)
    send(log, guard=verify(log))
    assert refusal(send, log, 1, transactional=False) == E.INVALID_TXN_STATE
    end(log)
    send(log, epoch=1, transactional=False)


def test_a_repeated_batch_of_an_ended_transaction_is_known(files, tmp_path):
    log = open_log(files, tmp_path)
    first = send(log, guard=verify(log, bumps=False))
    end(log, epoch=0, version=0)
    again = send(log)
    assert again.duplicate and again.first_offset == first.first_offset


def test_a_transaction_of_its_own_epoch_begins_with_sequence_0(files, tmp_path):
    log = open_log(files, tmp_path)
    assert refusal(send, log, 5, guard=verify(log, sequence=5)) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 5, pid=8, guard=verify(log, pid=8, sequence=5, bumps=False))
    end(log, epoch=1)
    assert refusal(send, log, 5, epoch=1, guard=verify(log, epoch=1)) == E.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_no_batch_comes_before_an_earlier_one_that_waits_for_the_same_verification(files, tmp_path):
    log = open_log(files, tmp_path)
    guard = verify(log, sequence=4, bumps=False)
    assert verify(log, sequence=2, bumps=False) is guard
    assert refusal(send, log, 4, guard=guard) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 2, guard=guard)
    guard = verify(log, pid=8, sequence=2, bumps=False)
    verify(log, pid=8, epoch=1, sequence=3, bumps=False)  # the lowest of the new epoch counts
    send(log, 3, pid=8, epoch=1, guard=guard)


def test_several_batches_are_checked_as_if_each_had_been_written(files, tmp_path):
    log = open_log(files, tmp_path)
    header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": -1}
    both = batch(1, transactional=True, **header) + batch(1, transactional=True, **header)
    append(log, both, origin=COORDINATOR, guard=verify(log))
    assert log.first_undecided_offset == 0
    mixed = batch(1, transactional=True, **header) + batch(1, **header)
    assert refusal(append, log, mixed, origin=COORDINATOR) == E.INVALID_TXN_STATE


def test_the_oldest_of_too_many_verifications_is_forgotten_and_so_are_old_ones():
    states = ProducerStates()
    first = states.begin_verification(0, 0, 0, True, NOW_MS)
    for pid in range(1, VERIFICATIONS_MAX + 1):
        states.begin_verification(pid, 0, 0, True, NOW_MS)
    assert len(states.guards) == VERIFICATIONS_MAX
    with pytest.raises(KafkaError):
        states.check(0, 0, 0, 0, True, first)
    states.expire(NOW_MS + 5, 5)
    assert not states.guards


# --- markers ----------------------------------------------------------------------------------------------------------


def test_a_marker_of_an_older_coordinator_is_fenced(files, tmp_path):
    log = open_log(files, tmp_path)
    end(log, coordinator_epoch=3)
    assert refusal(end, log, epoch=2, coordinator_epoch=2) == E.TRANSACTION_COORDINATOR_FENCED
    assert end(log, epoch=2, coordinator_epoch=3).last_offset == 1


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [
        (0, 4, E.INVALID_PRODUCER_EPOCH),
        (0, 5, None),
        (0, 6, None),
        (2, 4, E.INVALID_PRODUCER_EPOCH),
        (2, 5, E.INVALID_PRODUCER_EPOCH),
        (2, 6, None),
        (3, 5, E.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_marker_has_the_producers_epoch_or_from_version_2_on_the_next(files, tmp_path, version, epoch, code):
    log = open_log(files, tmp_path)
    send(log, epoch=5, guard=verify(log, epoch=5))
    if code is None:
        end(log, epoch=epoch, version=version)
        assert (log.first_undecided_offset, log.producers.get(7).epoch) == (None, epoch)
    else:
        assert refusal(end, log, epoch=epoch, version=version) == code


def test_a_marker_that_was_written_may_come_again(files, tmp_path):
    log = open_log(files, tmp_path)
    send(log, guard=verify(log))
    end(log, epoch=1)
    end(log, epoch=1)
    send(log, pid=8, epoch=32767, guard=verify(log, pid=8, epoch=32767))
    end(log, pid=8, epoch=32767)  # there is no next epoch
    assert log.first_undecided_offset is None


@pytest.mark.parametrize("clean", [True, False])
def test_a_transaction_that_was_left_open_can_be_ended_after_a_start(files, tmp_path, clean):
    log = open_log(files, tmp_path)
    send(log, pid=8, guard=verify(log, pid=8))
    send(log, guard=verify(log))
    if clean:
        run(log.close())
    again = open_log(files, tmp_path, clean=clean)
    assert again.stable_offset(2) == 0
    send(again, 1, pid=8)  # it goes on
    end(again, pid=8, commit=False, version=0, epoch=0)
    assert (again.stable_offset(4), again.first_undecided_offset) == (1, 1)
    end(again)
    assert again.stable_offset(5) == 5
    assert again.aborted_transactions(0, 5) == [(8, 0)]


def test_what_a_marker_leaves_of_its_producer(files, tmp_path):
    log = open_log(files, tmp_path)
    send(log, guard=verify(log), count=2)
    end(log, epoch=0, version=0, coordinator_epoch=4, now_ms=NOW_MS + 9)
    entry = log.producers.get(7)
    assert (entry.coordinator_epoch, entry.transaction_start, entry.last_sequence) == (4, -1, 1)
    assert entry.last_timestamp == NOW_MS + 9
    send(log, 2, guard=verify(log, sequence=2))
    assert (entry.last_timestamp, entry.transaction_start) == (NOW_MS, 3)
    end(log, coordinator_epoch=4)
    assert (entry.epoch, entry.last_sequence) == (1, -1)


# --- the stable offset ------------------------------------------------------------------------------------------------


def test_an_ended_transaction_is_stable_once_its_marker_is_committed(files, tmp_path):
    log = open_log(files, tmp_path)
    append(log, batch(2))
    send(log, guard=verify(log))
    end(log)
    append(log, batch(3))
    assert [log.stable_offset(high_watermark) for high_watermark in (1, 2, 3, 4, 7)] == [1, 2, 2, 4, 7]


def test_deleted_records_are_no_part_of_a_transaction(files, tmp_path):
    log = open_log(files, tmp_path)
    send(log, guard=verify(log))
    append(log, batch(4))
    log.advance_start(3)
    assert log.stable_offset(5) == 3


STEPS = st.lists(st.one_of(st.just("begin"), st.integers(0, 50), st.just("commit")), max_size=60)


@settings(max_examples=500, deadline=None)
@given(STEPS, st.randoms())
def test_the_first_unstable_offset_is_the_least_of_all(steps, chance):
    """Steps are: a transaction begins, one of those that are open ends, the high watermark moves."""
    unstable = UnstableTransactions()
    still_open, ended = [], {}  # first offsets; markers of those
    end_offset = high_watermark = 0
    for step in steps:
        if step == "commit":
            high_watermark = chance.randint(high_watermark, end_offset)
            unstable.commit(high_watermark)
        elif step == "begin":
            still_open.append(end_offset)
            unstable.begin(end_offset)
            end_offset += 1
        elif still_open:
            first = still_open.pop(step % len(still_open))
            ended[first] = end_offset
            unstable.end(first, end_offset)
            end_offset += 1
        ended = {first: marker for first, marker in ended.items() if marker >= high_watermark}
        assert unstable.first == min([*still_open, *ended], default=ALL_STABLE)
        assert unstable.first_open == min(still_open, default=ALL_STABLE)
