"""The checker on transactional histories written by hand: one that is as it should be, and one for each anomaly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from integration_tests.histories import checker
from integration_tests.histories.history import (
    FAIL,
    INFO,
    OK,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Committed,
    FinalRead,
    History,
    Poll,
    Send,
    Start,
    Transaction,
    Write,
)
from integration_tests.histories.transactional_checker import OF_TRANSACTIONS, UNCOMMITTED, anomalies

# Of the partitions of two topics: records in 0 and 1, copies of those of 0 in 2.
LOGS = {
    0: [(0, "a:0"), (1, "a:2"), (3, "b:0"), (5, "c:0"), (7, "d:0"), (9, "end:0")],
    1: [(0, "a:1"), (1, "a:3"), (3, "b:1"), (5, "c:1"), (7, "end:1")],
    2: [(0, "k:0"), (2, "k:1"), (4, "k:2"), (6, "k:4"), (7, "k:5"), (8, "end:2")],
}
ABORTED = ("a:2", "a:3", "k:1", "d:0")


def good() -> History:
    """Of producer a a transaction is committed, the next aborted. b asks for a commit and has no answer, but it counts.
    c takes over b's id. d leaves its own open. k copies: a:0; then b:0 and aborts; again; then c:0 and the end."""
    transactions = [
        Transaction("a", "A", 1.0, [Write(0, 0, 1.1, 0), Write(1, 1, 1.1, 0)], "", {}, 1.2, 1.3, OK),
        Transaction("a", "A", 1.4, [Write(0, 2, 1.5, 1), Write(1, 3, 1.5, 1)], completed_s=1.6),
        Transaction("b", "B", 1.0, [Write(0, 0, 1.5, 3), Write(1, 1, 1.5)], asked_s=2.0, outcome=INFO),
        Transaction("c", "B", 3.0, [Write(0, 0, 3.1, 5), Write(1, 1, 3.1, 5)], "", {}, 3.2, 3.3, OK),
        Transaction("d", "D", 3.0, [Write(0, 0, 3.5, 7)], completed_s=3.6),
        Transaction("k", "K", 1.5, [Write(2, 0, 1.6, 0, (0, 0))], "g", {0: 1}, 1.7, 1.8, OK),
        Transaction("k", "K", 2.2, [Write(2, 1, 2.3, 2, (0, 3))], "g", {0: 4}, completed_s=2.4),
        Transaction("k", "K", 2.5, [Write(2, 2, 2.6, 4, (0, 3))], "g", {0: 4}, 2.7, 2.8, OK),
        Transaction("k", "K", 4.0, [Write(2, 4, 4.1, 6, (0, 5)), Write(2, 5, 4.1)], "g", {0: 10}, 4.2, 4.3, OK),
    ]
    transactions[-1].writes[1].source = (0, 9)
    sends = [Send("end", each, each, 5.0, 5.1, OK, log[-1][0]) for each, log in LOGS.items()]
    starts = [
        Start("a", "A", 0.1, 0.2, OK),
        Start("b", "B", 0.1, 0.2, OK),
        Start("c", "B", 2.5, 2.6, OK),
        Start("k", "K", 0.1, 0.2, OK),
    ]
    committed = {each: [(at, value) for at, value in log if value not in ABORTED] for each, log in LOGS.items()}
    finals = [
        *(FinalRead(each, log[-1][0] + 1, list(log), READ_COMMITTED) for each, log in committed.items()),
        *(FinalRead(each, log[-1][0] + 1, list(log), READ_UNCOMMITTED) for each, log in LOGS.items()),
    ]
    polls = [
        Poll("r", 0, 0, 1.2, 1.4, committed[0][:1]),
        Poll("r", 0, 0, 1.4, 3.5, committed[0][1:3]),
        Poll("r", 1, 0, 3.5, 5.5, committed[0]),
        Poll("k", 0, 0, 1.4, 1.5, committed[0][:1], "g"),
    ]
    told = [
        Committed("w", "g", 0, -1, 0.5, 0.6),
        Committed("w", "g", 0, 1, 2.3, 2.4),
        Committed("w", "g", 0, 10, 5.5, 5.6),
    ]
    return History(sends, polls, committed=told, finals=finals, starts=starts, transactions=transactions)


def committed(history: History, partition: int) -> list[tuple[int, str]]:
    return next(
        each.records for each in history.finals if (each.partition, each.isolation) == (partition, READ_COMMITTED)
    )


def uncommitted(history: History, partition: int) -> list[tuple[int, str]]:
    return next(
        each.records for each in history.finals if (each.partition, each.isolation) == (partition, READ_UNCOMMITTED)
    )


def test_a_good_history_has_no_anomaly() -> None:
    assert anomalies(good()) == {}


# --- Anomalies --------------------------------------------------------------------------------------------------------


def aborted_is_read(history: History) -> None:
    history.polls[1].records.insert(0, (1, "a:2"))


def aborted_is_kept(history: History) -> None:
    committed(history, 0).insert(1, (1, "a:2"))
    committed(history, 1).insert(1, (1, "a:3"))


def left_open_and_kept(history: History) -> None:
    committed(history, 0).insert(-1, (7, "d:0"))


def read_before_the_commit(history: History) -> None:
    history.polls[0].records.append((3, "b:0"))
    del history.polls[1].records[0]


def half_of_a_committed_one(history: History) -> None:
    committed(history, 1).remove((5, "c:1"))


def half_of_an_unknown_one(history: History) -> None:
    committed(history, 1).remove((3, "b:1"))


def half_of_an_aborted_one(history: History) -> None:
    committed(history, 0).insert(1, (1, "a:2"))


def committed_and_gone(history: History) -> None:
    for partition, record in ((0, (5, "c:0")), (1, (5, "c:1"))):
        committed(history, partition).remove(record)
        uncommitted(history, partition).remove(record)
    history.polls.clear()


def read_and_gone(history: History) -> None:
    committed(history, 0).remove((3, "b:0"))
    committed(history, 1).remove((3, "b:1"))


def acknowledged_and_gone(history: History) -> None:
    uncommitted(history, 0).remove((1, "a:2"))


def end_is_gone(history: History) -> None:
    del committed(history, 1)[-1]


def twice(history: History) -> None:
    committed(history, 1).insert(-1, (6, "c:1"))


def two_at_one_offset(history: History) -> None:
    history.polls[0].records[0] = (0, "b:0")


def swapped(history: History) -> None:
    history.transactions[1] = Transaction("c", "B", 3.4, [Write(0, 1, 3.4)], asked_s=3.5, outcome=INFO)
    committed(history, 0)[1:3] = [(3, "c:1"), (5, "c:0")]
    history.transactions[2].writes.clear()
    history.polls.clear()


def back(history: History) -> None:
    history.polls[1].records.insert(0, (0, "a:0"))


def passed_over(history: History) -> None:
    del history.polls[1].records[0]


def commit_of_a_zombie(history: History) -> None:
    history.transactions[2].asked_s = 2.7
    history.transactions[2].outcome = OK


def commit_of_a_zombie_without_answer(history: History) -> None:
    history.transactions[2].asked_s = 2.7


def offset_went_back(history: History) -> None:
    history.committed.append(Committed("w", "g", 0, 4, 5.7, 5.8))


def offset_of_an_aborted_one(history: History) -> None:
    history.transactions[7].offsets = {0: 5}  # else it has the same
    history.committed[1].offset = 4


def offset_before_the_commit(history: History) -> None:
    history.committed[0].offset = 1


def copied_again(history: History) -> None:
    committed(history, 2).insert(1, (2, "k:1"))
    history.transactions[6].outcome, history.transactions[6].asked_s = INFO, 2.35


def not_copied(history: History) -> None:
    history.transactions[7].writes.clear()
    committed(history, 2).remove((4, "k:2"))
    uncommitted(history, 2).remove((4, "k:2"))


def copied_beyond(history: History) -> None:
    history.committed[2].offset = 4


def copies_swapped(history: History) -> None:
    history.transactions[8].writes[0].source, history.transactions[8].writes[1].source = (0, 9), (0, 5)


def stuck(history: History) -> None:
    del committed(history, 0)[-2:]


def hangs(history: History) -> None:
    history.unfinished.append("node 1 ended of itself")


def from_nowhere(history: History) -> None:
    uncommitted(history, 0).append((10, "x:0"))


Change = Callable[[History], None]
PLANTED: list[tuple[str, Change]] = [
    ("aborted read", aborted_is_read),
    ("aborted read", aborted_is_kept),
    ("aborted read", left_open_and_kept),
    ("dirty read", read_before_the_commit),
    ("torn", half_of_a_committed_one),
    ("torn", half_of_an_unknown_one),
    ("torn", half_of_an_aborted_one),
    ("lost write", committed_and_gone),
    ("unseen", end_is_gone),
    ("vanished", read_and_gone),
    ("lost write" + UNCOMMITTED, acknowledged_and_gone),
    ("phantom" + UNCOMMITTED, from_nowhere),
    ("duplicate", twice),
    ("inconsistent offset", two_at_one_offset),
    ("reordered", swapped),
    ("nonmonotonic poll", back),
    ("skipped poll", passed_over),
    ("zombie", commit_of_a_zombie),
    ("zombie", commit_of_a_zombie_without_answer),
    ("committed offset going back", offset_went_back),
    ("aborted offset", offset_of_an_aborted_one),
    ("aborted offset", offset_before_the_commit),
    ("copied twice", copied_again),
    ("offsets without values", not_copied),
    ("values without offsets", copied_beyond),
    ("copies reordered", copies_swapped),
    ("unfinished", stuck),
    ("unfinished", hangs),
]


@pytest.mark.parametrize(("kind", "change"), PLANTED, ids=[change.__name__ for _, change in PLANTED])
def test_each_anomaly_is_found(kind: str, change: Change) -> None:
    history = good()
    change(history)
    assert kind in anomalies(history)


def test_there_is_a_history_for_each_anomaly() -> None:
    under_read_committed = {*OF_TRANSACTIONS, *checker.OF_PARTITIONS, "aborted read"} - {"phantom"}
    assert {kind for kind, _ in PLANTED if UNCOMMITTED not in kind} == under_read_committed


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (half_of_an_unknown_one, {"torn"}),
        (commit_of_a_zombie, {"zombie"}),
        (copied_again, {"copied twice"}),
        (not_copied, {"offsets without values"}),
        (acknowledged_and_gone, {"lost write" + UNCOMMITTED}),
        (offset_of_an_aborted_one, {"aborted offset"}),
    ],
)
def test_an_anomaly_is_not_taken_for_another(change: Change, found: set[str]) -> None:
    history = good()
    change(history)
    assert set(anomalies(history)) == found


@pytest.mark.parametrize("kept", [True, False])
def test_a_commit_without_an_answer_counts_or_does_not(kept: bool) -> None:
    """As a whole. Then it has no copy either."""
    history = good()
    if not kept:
        committed(history, 0).remove((3, "b:0"))
        committed(history, 1).remove((3, "b:1"))
        committed(history, 2).remove((4, "k:2"))
        history.transactions[7].outcome = FAIL
        history.polls.clear()
        history.committed[1].offset = 1
    assert anomalies(history) == {}


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    good().write(tmp_path / "history")
    assert History.read(tmp_path / "history") == good()
