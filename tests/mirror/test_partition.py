"""One mirrored partition: what goes to the target next, and the state people see."""

from isthmus.mirror.partition import CATCHING_UP_AFTER_MS, PartitionMirror, State
from isthmus.protocol import records


def batch(base_offset: int, count: int = 2, epoch: int = 3) -> bytes:
    made = records.build_batch([(0, None, b"v", ())] * count, base_offset=base_offset, partition_leader_epoch=epoch)
    return bytes(made)


def fresh(next_offset: int = 0, epoch: int = -1) -> PartitionMirror:
    mirror = PartitionMirror("t", 0, "a.t", bytes(16), now_ms=0)
    mirror.probe_answered(next_offset, epoch)
    return mirror


def test_whole_batches_go_on_and_a_torn_tail_is_left():
    mirror = fresh()
    whole = batch(0) + batch(2)
    run = mirror.fetched(memoryview(whole + batch(4)[:-1]))
    assert (run.first_offset, run.next_offset, run.epoch, bytes(run.data)) == (0, 4, 3, whole)
    assert (mirror.fetch_offset, mirror.fetch_epoch) == (4, 3)
    assert mirror.next_offset == 0  # nothing is acknowledged yet


def test_batches_below_the_position_are_left_out():
    mirror = fresh(4, 3)
    run = mirror.fetched(memoryview(batch(0) + batch(2) + batch(4)))
    assert bytes(run.data) == batch(4)
    assert mirror.fetched(memoryview(batch(0))) is None


def test_a_batch_that_begins_before_the_position_goes_whole():
    mirror = fresh(5, 3)
    assert mirror.fetched(memoryview(batch(4, 4))).first_offset == 4


def test_offset_holes_are_kept():
    mirror = fresh(2, 3)
    run = mirror.fetched(memoryview(batch(10)))
    assert (run.first_offset, run.next_offset) == (10, 12)


def test_doubt_forgets_what_is_under_way():
    mirror = fresh()
    mirror.fetched(memoryview(batch(0)))
    mirror.in_flight = 1
    mirror.doubt()
    assert not mirror.probed
    mirror.probe_answered(2, 3)  # the append had arrived after all
    assert (mirror.fetch_offset, mirror.append_offset, mirror.next_offset) == (2, 2, 2)


def test_states_follow_the_lag():
    mirror = fresh()
    mirror.source_high_watermark = 4
    mirror.appended(2, 3, now_ms=10)
    assert (mirror.state, mirror.lag_records, mirror.lag_ms(10)) == (State.CATCHING_UP, 2, 10)
    mirror.appended(4, 3, now_ms=20)
    assert (mirror.state, mirror.lag_records, mirror.since_ms) == (State.MIRRORING, 0, 20)
    mirror.source_high_watermark = 6
    mirror.observe(30)
    assert mirror.state is State.MIRRORING  # a moment behind is no catching up
    mirror.observe(21 + CATCHING_UP_AFTER_MS)
    assert mirror.state is State.CATCHING_UP


def test_no_lag_stands_beside_a_source_that_is_not_seen():
    """The lag that was known last stood there for ever, 0 as a rule."""
    mirror = fresh(4, 3)
    mirror.source_high_watermark = 6
    mirror.observe(1)
    told = ("source_high_watermark", "lag_records", "lag_ms")
    assert [mirror.status(10)[each] for each in told] == [6, 2, 10]  # the control
    for state in (State.SOURCE_UNAVAILABLE, State.SOURCE_RECREATED):
        mirror.turn(state, "why", 10)
        assert [mirror.status(20)[each] for each in told] == [-1, -1, -1]
    mirror.turn(State.GAP, "why", 10)
    assert [mirror.status(20)[each] for each in told] == [6, 2, 20]
    assert [fresh().status(20)[each] for each in told] == [-1, -1, -1]


def test_a_held_partition_stays_held():
    mirror = fresh(4, 3)
    mirror.hold(State.DIVERGED, "t-0: the target ends at offset 4 of leader epoch 3, …", now_ms=5)
    mirror.source_high_watermark = 4
    mirror.appended(4, 3, now_ms=9)
    assert mirror.held
    status = mirror.status(10)
    assert (status["state"], status["since_ms"]) == ("DIVERGED", 5)


def test_a_target_that_retention_emptied_is_not_taken_for_a_new_one():
    assert fresh().target_is_empty
    assert not fresh(1_000, -1).target_is_empty  # no epoch is known, but records were there
