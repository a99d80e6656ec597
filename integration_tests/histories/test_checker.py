"""The checker on histories written by hand: one that is as it should be, and one for each anomaly."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest

from integration_tests.histories.checker import OF_HISTORIES, OF_PARTITIONS, anomalies
from integration_tests.histories.history import FAIL, INFO, OK, Commit, Committed, Fault, FinalRead, History, Poll, Send


def good() -> History:
    """Two producers, a consumer that seeks back once, and a group: a:0 b:0 a:1 a:2 b:1; a:2 was not acknowledged."""
    log = [(0, "a:0"), (1, "b:0"), (2, "a:1"), (4, "a:2"), (5, "b:1")]  # offsets need not be contiguous
    sends = [
        Send("a", 0, 0, 1.0, 1.1, OK, 0),
        Send("b", 0, 0, 1.0, 1.2, OK, 1),
        Send("a", 0, 1, 1.3, 1.4, OK, 2),
        Send("a", 0, 2, 1.5),
        Send("b", 0, 1, 1.6, 1.7, OK, 5),
        Send("b", 0, 2, 1.8, 1.8, FAIL),
        Send("b", 0, 3, 1.9),
    ]
    polls = [
        Poll("r", 0, 0, 1.0, 1.5, log[:2]),
        Poll("r", 0, 0, 1.5, 1.6, log[2:4]),
        Poll("r", 1, 0, 1.6, 1.8, log[1:]),
        Poll("m", 0, 0, 1.0, 1.8, log[:4], "g"),
    ]
    commits = [
        Commit("m", "g", 0, 2, 1.5, 1.6, OK),
        Commit("m", "g", 0, 5, 1.9, 2.0, OK),
    ]
    committed = [Committed("w", "g", 0, 2, 1.7, 1.8), Committed("w", "g", 0, 5, 2.1, 2.2)]
    return History(sends, polls, commits, committed, [FinalRead(0, 6, log)])


def test_a_good_history_has_no_anomaly() -> None:
    assert anomalies(good()) == {}


def lost(history: History) -> None:
    del history.finals[0].records[2]
    history.polls.clear()
    history.commits.clear()


def cut_off(history: History) -> None:
    del history.finals[0].records[4]
    history.polls.clear()
    history.commits.clear()


def never_read(history: History) -> None:
    history.finals.clear()


def vanished(history: History) -> None:
    del history.finals[0].records[3]  # a:2 was read, but not acknowledged
    history.commits.clear()


def doubled(history: History) -> None:
    history.finals[0].records.append((6, "a:0"))
    history.sends[0].worker = "b"  # the order is another matter
    history.finals[0].records[0] = (0, "b:0")
    del history.finals[0].records[1]
    history.finals[0].records.append((7, "b:1"))
    history.polls.clear()
    history.commits.clear()


def two_at_one_offset(history: History) -> None:
    history.sends[0].offset = 1
    history.sends[1].offset = 0


def swapped(history: History) -> None:
    history.finals[0].records[2:4] = [(2, "a:2"), (4, "a:1")]
    history.sends[2].offset = 4
    history.polls.clear()
    history.commits.clear()


def from_nowhere(history: History) -> None:
    history.finals[0].records.append((6, "c:0"))


def of_a_failed_send(history: History) -> None:
    history.finals[0].records.append((6, "b:2"))


def of_another_partition(history: History) -> None:
    history.sends[3].partition = 1


def back(history: History) -> None:
    history.polls[1].records[:0] = [(1, "b:0")]


def within_a_poll(history: History) -> None:
    history.polls[0].records.reverse()


def passed_over(history: History) -> None:
    del history.polls[1].records[0]


def went_back(history: History) -> None:
    history.committed[1].offset = 2


def forgotten(history: History) -> None:
    history.committed[1].offset = -1


def passed_by(history: History) -> None:
    del history.polls[3].records[0]


def hangs(history: History) -> None:
    history.unfinished.append("node 1 ended of itself")


Change = Callable[[History], None]
PLANTED: list[tuple[str, Change]] = [
    ("lost write", lost),
    ("unseen", cut_off),
    ("unseen", never_read),
    ("vanished", vanished),
    ("duplicate", doubled),
    ("inconsistent offset", two_at_one_offset),
    ("reordered", swapped),
    ("phantom", from_nowhere),
    ("phantom", of_a_failed_send),
    ("phantom", of_another_partition),
    ("nonmonotonic poll", back),
    ("nonmonotonic poll", within_a_poll),
    ("skipped poll", passed_over),
    ("committed offset going back", went_back),
    ("committed offset going back", forgotten),
    ("passed by the group", passed_by),
    ("unfinished", hangs),
]


@pytest.mark.parametrize(("kind", "change"), PLANTED, ids=[change.__name__ for _, change in PLANTED])
def test_each_anomaly_is_found(kind: str, change: Change) -> None:
    history = good()
    change(history)
    assert kind in anomalies(history)


def test_there_is_a_history_for_each_anomaly() -> None:
    assert {kind for kind, _ in PLANTED} == {*OF_PARTITIONS, *OF_HISTORIES}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lost, {"lost write"}),
        (cut_off, {"unseen"}),
        (from_nowhere, {"phantom"}),
        (went_back, {"committed offset going back"}),
    ],
)
def test_an_anomaly_is_not_taken_for_another(change: Change, found: set[str]) -> None:
    history = good()
    change(history)
    assert set(anomalies(history)) == found


def test_a_commit_without_an_answer_may_come_into_force_later() -> None:
    history = good()
    history.committed[1].offset = 3
    assert set(anomalies(history)) == {"committed offset going back"}
    history.commits.append(Commit("m", "g", 0, 3, 1.0, outcome=INFO))
    assert anomalies(history) == {}


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    history = good()
    history.faults.append(Fault("kill", 1, [0], 2.0, 3.0))
    history.note("a", "refused")
    history.write(tmp_path / "history")
    assert History.read(tmp_path / "history") == history == copy.deepcopy(history)
