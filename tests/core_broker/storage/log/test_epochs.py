"""Leader epochs: KIP-101's questions and Kafka's file."""

from __future__ import annotations

import pytest

from isthmus.core_broker.storage.disk.small_files import CheckpointError
from isthmus.core_broker.storage.log.epochs import LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    made = LeaderEpochs()
    for epoch, start in entries:
        made.assign(epoch, start)
    return made


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),  # older than all that is known: where the first begins
        (2, (2, 20)),
        (3, (2, 20)),  # between: the one below, and where the next begins
        (5, (5, 40)),
        (7, (7, 100)),  # the current one: the log's end
        (8, (-1, -1)),  # not known yet
    ],
)
def test_end_offset_of_an_epoch(epoch, answer):
    assert epochs((2, 10), (5, 20), (7, 40)).end_offset_for(epoch, 100) == answer


def test_no_epoch_is_known_in_an_empty_log():
    assert epochs().end_offset_for(0, 0) == (-1, -1)


def test_earlier_epoch_or_start_drops_the_later_ones():
    assert epochs((2, 10), (5, 20), (7, 40), (6, 50)).entries() == [(2, 10), (5, 20), (6, 50)]
    assert epochs((2, 10), (5, 20), (7, 40), (8, 15)).entries() == [(2, 10), (8, 15)]
    assert epochs((2, 10), (-1, 20)).entries() == [(2, 10)]


def test_truncations_from_both_ends():
    known = epochs((2, 10), (5, 20), (7, 40))
    known.truncate_start(25)
    assert known.entries() == [(5, 25), (7, 40)]
    known.truncate_end(40)
    assert known.entries() == [(5, 25)]
    assert known.latest == 5
    known.truncate_end(0)
    assert known.latest == -1


def test_file_is_kafkas():
    data = epochs((0, 0), (3, 17)).encode()
    assert data == b"0\n2\n0 0\n3 17\n"
    assert LeaderEpochs.decode(data, "f").entries() == [(0, 0), (3, 17)]


@pytest.mark.parametrize("data", [b"", b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0 x\n", b"0\nx\n", b"\xff"])
def test_broken_file_is_named(data):
    with pytest.raises(CheckpointError, match="some/file"):
        LeaderEpochs.decode(data, "some/file")
