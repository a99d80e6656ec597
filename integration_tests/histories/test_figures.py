"""Silences and recoveries of a small history: partition 0 is led by a node that is killed, partition 1 by another."""

from __future__ import annotations

from integration_tests.histories import figures
from integration_tests.histories.history import FAIL, OK, Fault, History, Send


def history() -> History:
    sends = [
        Send("a", 0, 0, 0.0, 0.1, OK, 0),
        Send("a", 0, 1, 0.9, 1.1, OK, 1),  # sent before the kill
        Send("a", 0, 2, 1.2, 3.0, OK, 2),
        Send("a", 1, 3, 1.5, 1.6, OK, 0),
        Send("a", 1, 4, 2.5, 2.6, OK, 1),
        Send("a", 1, 5, 3.8),
        Send("a", 1, 6, 4.0, 4.0, FAIL),
        Send("a", 0, 7, 4.0, 4.2, OK, 3),
    ]
    return History(sends, faults=[Fault("kill", 1, [0], 1.0, 2.0), Fault("pause", 2, [1], 3.5, 4.5)])


def test_what_was_sent_is_counted_by_its_outcome() -> None:
    told = figures.counts(history())
    assert (told["sent"], told["acknowledged"], told["failed"], told["indeterminate"]) == (8, 6, 1, 1)


def test_the_longest_silence_of_a_partition_counts() -> None:
    assert figures.longest_silences_s(history()) == {"kill": 1.9, "pause": 0.5}


def test_a_recovery_ends_with_the_acknowledgement_of_a_later_send() -> None:
    assert figures.recoveries_s(history()) == [2.0]
    assert figures.recoveries_s(history(), "pause") == []


def test_faults_that_overlap_are_one() -> None:
    both = history()
    both.faults[1].began_s = 1.9
    assert list(figures.longest_silences_s(both)) == ["kill + pause"]
    assert figures.recoveries_s(both) == []
