"""What a changelog says when it is read back, and what a run leaves or removes of the runs before it."""

import pytest

from isthmus.streams.engine.changelog import (
    END,
    ROW,
    ChangelogRecord,
    Restored,
    Restorer,
    begin_marker,
    end_marker,
    place,
    row_key,
    row_record,
)
from isthmus.streams.engine.places import RUNS_MAX, Places
from isthmus.streams.errors import ChangelogError

OLD, NEW = b"o" * 8, b"n" * 8


def begin(run: bytes) -> list[ChangelogRecord]:
    return [begin_marker("app", run)]


def rows(run: bytes, number: int, slot: int = 0, **values: str | None) -> list[ChangelogRecord]:
    where = place(run, slot)
    return [
        row_record(where, b"t\0" + k.encode(), None if v is None else v.encode(), number) for k, v in values.items()
    ]


def marker(run: bytes, number: int, of: list[ChangelogRecord], **earlier: int) -> list[ChangelogRecord]:
    runs = {name.encode() * 8: last for name, last in earlier.items()}
    return [end_marker("app", run, number, of, {"in": {0: number * 10}}, {"in": "id"}, runs)]


def checkpoint(run: bytes, number: int, slot: int = 0, **values: str | None) -> list[ChangelogRecord]:
    return rows(run, number, slot, **values) + marker(run, number, rows(run, number, slot, **values))


def read(*parts: list[ChangelogRecord]) -> Restored:
    restorer = Restorer("app", "app-changelog-0")
    for part in parts:
        for record in part:
            restorer.feed(*record)
    return restorer.end()


def table(restored: Restored) -> dict[str, str]:
    return {key[2:].decode(): value.decode() for key, value in restored.rows.items()}


def test_rows_count_once_their_marker_stands():
    said = read(begin(OLD), checkpoint(OLD, 1, a="1", b="1"), checkpoint(OLD, 2, 1, a="2", b=None), rows(OLD, 3, a="9"))
    assert table(said) == {"a": "2"}
    assert (said.number, said.positions, said.topic_ids) == (2, {"in": {0: 20}}, {"in": "id"})
    assert said.newest == {b"t\0a": place(OLD, 1), b"t\0b": place(OLD, 1)}
    assert said.others == {b"t\0a": (place(OLD, 0),), b"t\0b": (place(OLD, 0),)}


def test_a_checkpoint_that_an_old_run_closes_after_a_new_one_began_does_not_count():
    torn = rows(OLD, 2, 1, a="zombie")
    log = [begin(OLD), checkpoint(OLD, 1, a="1"), torn, begin(NEW), marker(OLD, 2, torn)]
    new = rows(NEW, 2, b="2")
    said = read(*log, new, marker(NEW, 2, new, o=1), checkpoint(OLD, 3, c="zombie"))
    assert table(said) == {"a": "1", "b": "2"}
    assert (said.begun, said.runs) == (NEW, {OLD: 1, NEW: 2})


@pytest.mark.parametrize("fault", ["changed", "doubled", "lost"])
def test_a_row_of_the_last_checkpoint_that_is_changed_doubled_or_lost_is_damage(fault):
    first, second, end = checkpoint(OLD, 1, a="1", b="2")
    log = {
        "changed": [first._replace(value=b"9"), second, end],
        "doubled": [first, first, second, end],
        "lost": [second, end],
    }[fault]
    with pytest.raises(ChangelogError, match="app-changelog-0: checkpoint 1 closes 2 rows"):
        read(begin(OLD), log)


def test_a_changelog_of_an_earlier_release_is_refused():
    old = [
        (b"\0marker\0begin" + OLD, b'{"format":1,"kind":"begin","app":"app","run":"00"}', None),
        (b"t\0a", b"1", OLD),
    ]
    for record in old:
        with pytest.raises(ChangelogError, match=r"an earlier release wrote it.*Give the app another id"):
            Restorer("app", "app-changelog-0").feed(*record)


def successor(log: list[ChangelogRecord], run: bytes, **changes: str | None) -> list[ChangelogRecord]:
    """What a run writes that goes on from a changelog: a checkpoint with these changes, and what it removes then."""
    restored = read(log)
    places = Places(run)
    places.take_over(restored)
    number = restored.number + 1
    values = [(b"t\0" + k.encode(), None if v is None else v.encode()) for k, v in changes.items()]
    written = places.write(values, number)
    end = end_marker("app", run, number, written, {}, {}, places.earlier)
    superseded, deleted = places.confirm()
    return [begin_marker("app", run), *written, end, *superseded, *deleted]


def test_a_run_leaves_rows_of_earlier_runs_where_they_are_but_for_the_run_that_has_fewest_of_too_many():
    log: list[ChangelogRecord] = []
    runs = [bytes([number]) * 8 for number in range(RUNS_MAX + 2)]
    for run in runs[:-1]:
        own = {f"{run[0]}-{number}": "1" for number in range(1 if run == runs[7] else 3)}
        log += successor(log, run, **own)
    want = table(read(log))
    assert len(want) == 3 * len(runs) - 5
    last = successor(log, runs[-1], new="2")
    assert table(read(log, last)) == {**want, "new": "2"}
    written = [row_key(record.key) for record in last if record.header]
    assert written == [b"t\0007-0", b"t\0new"]
    assert set(read(log, last).runs) == set(runs)  # the start after this one leaves it out
    log += last
    assert set(read(log, successor(log, OLD)).runs) == {*runs, OLD} - {runs[7]}


def test_a_run_removes_markers_and_rows_of_earlier_runs_that_are_not_needed():
    log = [*begin(OLD), *checkpoint(OLD, 1, a="1", b="1"), *checkpoint(OLD, 2, 1, b=None), *rows(OLD, 3, c="never")]
    removed = [record.key for record in successor(log, NEW, a="2") if record.value is None]
    assert {key for key in removed if not key.startswith(ROW)} == {b"\0b" + OLD, END + OLD + b"0", END + OLD + b"1"}
    rows_removed = [key for key in removed if key.startswith(ROW)]
    assert sorted(rows_removed) == sorted(
        [place(OLD, 0) + b"t\0a", place(OLD, 0) + b"t\0b", place(OLD, 1) + b"t\0b", place(OLD, 0) + b"t\0c"]
    )
    assert removed[-1] == place(OLD, 1) + b"t\0b"  # that it was deleted is kept until the value is gone
