"""What a check says of a leader-epoch-checkpoint, seen from the log's batches: after a stop, and after a kill."""

from __future__ import annotations

import pytest

from isthmus.core_broker.storage.check.epoch_check import complaint
from isthmus.core_broker.storage.check.findings import Known, PartitionReport


def report(*epochs: tuple[int, int], end: int = 100) -> PartitionReport:
    return PartitionReport("t-0", log_end_offset=end, segments=1, epochs=list(epochs))


def said_of_no_file(known: Known, *epochs: tuple[int, int]) -> str | None:
    return complaint(None, [first for _, first in epochs], report(*epochs), known)


@pytest.mark.parametrize(
    ("recovery_point", "epochs", "is_missing"),
    [
        (None, [(0, 0)], False),  # killed before any checkpoint
        (0, [(0, 0), (3, 40)], False),
        (
            10,
            [(0, 10)],
            False,
        ),  # retention has taken what was synced; the next start reads the rest and writes the file
        (10, [(0, 9)], True),  # the recovery point rises after the file is written
        (10, [(0, 0), (3, 40)], True),
        (100, [(0, 0)], True),
        (100, [], False),
    ],
)
def test_file_that_is_not_there_after_a_kill_is_missed_where_a_sync_has_written_it(
    recovery_point: int | None, epochs: list[tuple[int, int]], is_missing: bool
) -> None:
    found = said_of_no_file(Known(clean=False, recovery_point=recovery_point), *epochs)
    assert found == ("it is missing" if is_missing else None)


@pytest.mark.parametrize("recovery_point", [None, 0, 100])
def test_file_that_is_not_there_after_a_stop_is_missed_wherever_the_recovery_point_is(
    recovery_point: int | None,
) -> None:
    known = Known(clean=True, recovery_point=recovery_point)
    assert said_of_no_file(known, (0, 0)) == "it is missing"
    assert said_of_no_file(known) is None  # a log that was never written to has none


@pytest.mark.parametrize(("clean", "wrong"), [(True, "it has no entry"), (False, None)])
def test_file_without_entries(clean: bool, wrong: str | None) -> None:
    known = Known(clean=clean, recovery_point=100)
    assert complaint([], [0], report((0, 0)), known) == wrong
    assert complaint([], [], report(end=0), known) is None


@pytest.mark.parametrize(("clean", "is_wrong"), [(True, True), (False, False)])
def test_entry_past_the_end_is_what_a_kill_may_leave(clean: bool, is_wrong: bool) -> None:
    found = complaint([(0, 0), (3, 101)], [0], report((0, 0)), Known(clean=clean, recovery_point=50, compacted=True))
    assert (found is not None and "past the end 100" in found) == is_wrong


@pytest.mark.parametrize(
    ("known", "entries", "wrong"),
    [
        (Known(clean=True, compacted=False), [(0, 0), (3, 40)], None),
        (Known(clean=True, compacted=False), [(0, 0), (3, 39)], "it has epoch 3 from offset 39 on"),
        (Known(clean=True, compacted=False), [(0, 0), (3, 40), (5, 100)], None),  # a leader that wrote nothing yet
        (Known(clean=True, compacted=False), [(0, 0), (2, 30), (3, 40)], "but the log has no batch of this epoch"),
        (Known(clean=False, compacted=False, recovery_point=40), [(0, 0), (3, 39)], None),  # read again by the start
        (Known(clean=False, compacted=False, recovery_point=41), [(0, 0), (3, 39)], "it has epoch 3 from offset 39 on"),
        (Known(clean=True, compacted=True), [(0, 0), (3, 35)], None),  # its first batches are compacted away
        (Known(clean=True, compacted=True), [(0, 0), (3, 29)], "it has epoch 3 from offset 29 on"),
    ],
)
def test_entries_begin_where_their_batches_do(known: Known, entries: list[tuple[int, int]], wrong: str | None) -> None:
    found = complaint(entries, [0, 30], report((0, 0), (3, 40)), known)
    assert found is None if wrong is None else found is not None and wrong in found
