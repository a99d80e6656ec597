"""What was fetched is given out a few record batches at a time, every event once, offsets right after each."""

import pytest

from isthmus.client import FetchedBatches, TopicPartition
from isthmus.protocol import records
from isthmus.streams.engine.codecs import codec
from isthmus.streams.errors import RecordError
from isthmus.streams.runtime.backlog import Backlog

TP = TopicPartition("t", 3)


def fetched(*batches: tuple[int, int], next_offset: int) -> FetchedBatches:
    """batches: (base offset, records)."""
    data = b"".join(
        bytes(records.build_batch([(0, None, b"%d" % (base + i), ()) for i in range(count)], base_offset=base))
        for base, count in batches
    )
    return FetchedBatches(TP, memoryview(data), batches[0][0] if batches else 0, next_offset, next_offset, next_offset)


def drained(backlog: Backlog, most: int) -> list[tuple[list[int], int]]:
    taken = []
    while not backlog.empty:
        some = backlog.ahead(most)
        assert backlog.ahead(most) == some  # until they are passed
        next_offset = backlog.passed(len(some))
        assert [event.offset for event in some] == [event.value for event in some]
        taken.append(([event.offset for event in some], next_offset))
    return taken


def test_whole_batches_are_decoded_until_there_is_enough():
    backlog = Backlog(fetched((0, 2), (2, 2), (10, 1), next_offset=11), codec("json"), 0)
    assert drained(backlog, 3) == [([0, 1, 2], 3), ([3], 4), ([10], 11)]


def test_a_large_batch_is_given_in_parts():
    backlog = Backlog(fetched((5, 7), next_offset=12), codec("json"), 5)
    assert drained(backlog, 3) == [([5, 6, 7], 8), ([8, 9, 10], 11), ([11], 12)]


def test_what_was_not_passed_is_given_again():
    backlog = Backlog(fetched((5, 4), next_offset=9), codec("json"), 5)
    assert [event.offset for event in backlog.ahead(3)] == [5, 6, 7]
    assert (backlog.passed(1), drained(backlog, 100)) == (6, [([6, 7, 8], 9)])


def test_records_below_the_position_are_left_out_and_holes_at_the_end_are_passed():
    backlog = Backlog(fetched((0, 4), next_offset=9), codec("json"), 2)
    assert drained(backlog, 100) == [([2, 3], 9)]
    assert drained(Backlog(fetched((0, 4), next_offset=4), codec("json"), 6), 100) == [([], 6)]


def test_a_batch_that_cannot_be_read_is_named():
    good = fetched((0, 3), next_offset=3)
    data = bytearray(good.records)
    data[-1] ^= 1
    broken = FetchedBatches(TP, memoryview(data), 0, 3, 3, 3)
    with pytest.raises(RecordError, match="t-3 from offset 0 on: "):
        Backlog(broken, codec("json"), 0).ahead(10)
