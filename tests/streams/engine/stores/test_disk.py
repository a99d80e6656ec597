"""Rows on disk beyond what `test_stores.py` has of all stores: what the directory holds, and what it refuses."""

import builtins
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest

from isthmus.streams.engine.stores.database import SCANNED_ROWS, Database, DiskMemory
from isthmus.streams.engine.stores.disk import CACHED_VALUE_BYTES, MARKER, META, SUMMARY_INTERVAL_MS, DiskStore
from isthmus.streams.engine.stores.layout import FORMAT, ROWS, UNCOUNTED, read_summary
from isthmus.streams.engine.stores.store import Change
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.errors import AppError, StoreError

SPEC = TableSpec("t", default=int)


def opened(directory: Path, changelog: str = "topic-0", memory: DiskMemory | None = None) -> DiskStore:
    return DiskStore(SPEC, directory, changelog, memory or DiskMemory(), lambda: 1000)


def changed_meta(directory: Path, **facts: Any) -> None:
    database = Database(directory / ROWS, DiskMemory())
    meta = orjson.loads(database.get(META) or b"{}")
    database.write([(META, orjson.dumps({**meta, **facts}))])
    database.close()


def test_only_committed_rows_are_in_the_database(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.set("committed", 1)
    store.take_changes()
    store.confirm(5, b"marker")
    store.set("under way", 2)
    store.take_changes()
    store.set("changed", 3)
    store.close()
    store = opened(tmp_path)
    assert (dict(store.rows), store.changelog_offset, len(store.rows)) == ({"committed": 1}, 5, 1)
    store.close()


def test_changes_made_while_others_are_under_way_hide_them_and_stay(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for key in ("kept", "raised", "gone"):
        store.set(key, 1)
    store.take_changes()
    store.set("raised", 2)
    store.delete("gone")
    assert dict(store.rows) == {"kept": 1, "raised": 2}
    store.confirm(1, b"marker")
    assert dict(store.rows) == {"kept": 1, "raised": 2} and len(store.rows) == 2
    assert sorted(store.take_changes()) == [(b'"gone"', None), (b'"raised"', b"2")]
    store.close()


def test_a_value_that_is_changed_in_place_is_not_changed_before_it_is_set(tmp_path: Path) -> None:
    store = opened(tmp_path)
    value = [1]
    store.set("k", value)
    value.append(2)
    store.get("k").append(3)
    assert store.get("k") == [1]
    store.take_changes()
    store.confirm(1, b"marker")
    store.get("k").append(3)
    assert store.get("k") == [1] and store.rows["k"] == [1]
    store.close()
    store = opened(tmp_path)  # where it is read from the database
    for _ in range(2):
        store.get("k").append(3)
        assert store.get("k") == [1] and store.rows["k"] == [1]
    store.close()


def test_iteration_goes_over_more_rows_than_are_read_at_once_and_bears_changes(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for key in range(2 * SCANNED_ROWS + 1):
        store.set(key, key)
    store.take_changes()
    store.confirm(1, b"marker")
    seen = []
    for key in store.rows:
        seen.append(key)
        store.set(key, -1)
        store.take_changes()
        store.confirm(1, b"marker")
    assert sorted(seen) == list(range(2 * SCANNED_ROWS + 1))
    assert set(store.rows.values()) == {-1}
    rows = iter(store.rows)
    next(rows)
    store.close()  # an iteration that is under way does not keep the directory
    opened(tmp_path).close()


def test_a_migration_is_a_change_until_it_is_committed(tmp_path: Path) -> None:
    def rewrite(rows: Iterable[tuple[bytes, bytes]]) -> list[Change]:
        assert sorted(rows) == [(b'"gone"', b"1"), (b'"kept"', b"2"), (b'"other"', b"3")]
        return [(b'"gone"', None), (b'"other"', b"30"), (b'"new"', b"4"), (b'"newer"', b"5")]

    for _ in range(2):  # the first time it is not committed
        store = opened(tmp_path)
        store.restore([(b'"gone"', b"1"), (b'"kept"', b"2"), (b'"other"', b"3")], 3, b"marker")
        list(store.count())
        list(store.migrate(rewrite(store.encoded())))
        after = {"kept": 2, "other": 30, "new": 4, "newer": 5}
        assert dict(store.rows) == after and len(store.rows) == 4
        store.close()
    store = opened(tmp_path)
    list(store.count())
    list(store.migrate(rewrite(store.encoded())))
    assert store.take_changes() == rewrite([(b'"gone"', b"1"), (b'"kept"', b"2"), (b'"other"', b"3")])
    store.confirm(9, b"marker")
    store.close()
    store = opened(tmp_path)
    assert dict(store.rows) == after and len(store.rows) == 4
    store.close()


def test_rows_on_disk_have_no_last_one(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with pytest.raises(AppError, match="the rows of table t are on disk, where none is the last"):
        reversed(store.rows)  # type: ignore[call-overload]
    store.close()


def test_what_is_cached_is_bounded_over_all_stores(tmp_path: Path) -> None:
    memory = DiskMemory(cached_rows=4000)
    store, other = opened(tmp_path / "a", memory=memory), opened(tmp_path / "b", memory=memory)
    assert memory.cached_rows_each == 2000
    for key in range(5000):
        store.set(key, key)
    store.set("long", "x" * (CACHED_VALUE_BYTES + 1))
    store.take_changes()
    store.confirm(1, b"marker")
    for key in range(5000):
        store.get(key)
    assert len(store.get("long")) == CACHED_VALUE_BYTES + 1
    assert 1000 <= len(store._cached) + len(store._cached_before) <= 2000
    assert "long" not in store._cached
    other.close()
    assert memory.cached_rows_each == 4000
    store.close()


def test_what_is_cached_is_what_was_committed_last(tmp_path: Path) -> None:
    memory = DiskMemory(cached_rows=1000)
    store = opened(tmp_path, memory=memory)
    for key in range(600):  # some of them in each generation
        store.set(key, 1)
    store.take_changes()
    store.confirm(1, b"marker")
    store.restore([(b"%d" % key, b"2") for key in range(600)], 2)
    assert {store.get(key) for key in range(600)} == {2}
    long = "x" * (CACHED_VALUE_BYTES + 1)
    for key in range(600):
        store.set(key, long)
    store.take_changes()
    store.confirm(3, b"marker")
    assert {store.get(key) for key in range(600)} == {long}
    store.close()


def test_what_was_rolled_back_is_not_written_by_the_next_checkpoint(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.set("under way", 1)
    store.take_changes()
    store.set("changed", 1)
    store.roll_back()
    store.set("after", 1)
    store.take_changes()
    store.confirm(1, b"marker")
    store.close()
    store = opened(tmp_path)
    assert dict(store.rows) == {"after": 1}
    store.close()


def test_rows_are_counted_when_all_are_there_and_looked_for_only_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_for: list[int] = []
    monkeypatch.setattr(
        Database, "get_many", lambda self, keys: looked_for.append(len(keys)) or [self.get(key) for key in keys]
    )
    many, gone = 2 * SCANNED_ROWS, [(b"%d" % key, None) for key in range(10)]
    store = opened(tmp_path)
    store.restore([(b"%d" % key, b"1") for key in range(many)], 1, b"marker")
    store.restore(gone + [(b'"k"', b"2")], 2)
    store.close()  # in the middle of it
    assert (summary := read_summary(tmp_path)) and (summary.changelog_offset, summary.rows) == (2, None)
    store = opened(tmp_path)
    store.restore([(b'"k"', b"3")], 3)
    assert not looked_for
    assert len(list(store.count())) > 1 and len(store.rows) == many - 9
    store.restore([(b'"k"', None)], 4)  # of a copy that follows
    store.restore([(b"%d" % key, b"2") for key in range(2 * many)], 5)
    assert looked_for == [1, 2 * many] and len(store.rows) == 2 * many
    store.close()
    store = opened(tmp_path)
    assert len(store.rows) == 2 * many and list(store.count()) == []
    store.close()


@pytest.mark.parametrize("restores", [False, True])
def test_each_write_leaves_a_whole_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restores: bool) -> None:
    """A process may die after any write, not only where the next kill -9 hits it."""
    store = opened(tmp_path)
    real_write = Database.write

    def last_write(database: Database, changes: Any) -> None:
        real_write(database, changes)
        raise StoreError("dead")

    monkeypatch.setattr(Database, "write", last_write)
    with pytest.raises(StoreError, match="dead"):
        if restores:
            store.restore([(b'"k"', b"1")], 7, b"marker")
        else:
            store.set("k", 1)
            store.take_changes()
            store.confirm(7, b"marker")
    monkeypatch.undo()
    store.close()
    store = opened(tmp_path)
    list(store.count())
    assert (dict(store.rows), len(store.rows), store.changelog_offset, store.marker) == ({"k": 1}, 1, 7, b"marker")
    store.close()


def test_many_small_stores_take_little_memory_and_are_not_flushed_for_it(tmp_path: Path) -> None:
    memory = DiskMemory(write_buffers_bytes=8 << 20)
    stores = [opened(tmp_path / str(number), memory=memory) for number in range(12)]
    for offset in range(1, 4):
        for store in stores:
            store.set("k", offset)
            store.take_changes()
            store.confirm(offset, b"marker")
    assert memory.used_bytes() < 12 * (256 << 10)
    assert not list(tmp_path.rglob("*.sst"))
    for store in stores:
        store.close()


def test_a_directory_in_use_is_refused_and_free_again_after_close(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(StoreError, match=r"is used by another store \(process \d+\).*state directory of its own"):
        opened(tmp_path)
    first.close()
    opened(tmp_path).close()


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            {"format": UNCOUNTED + 1},
            f"has format {UNCOUNTED + 1}; this release reads and writes format {FORMAT}.*Delete it",
        ),
        ({"changelog": "other-0"}, "has the rows of another changelog: other-0, and the table's is topic-0"),
    ],
)
def test_a_directory_of_another_format_or_changelog_is_refused(
    tmp_path: Path, facts: dict[str, Any], said: str
) -> None:
    opened(tmp_path).close()
    changed_meta(tmp_path, **facts)
    for _ in range(2):  # and is not left locked
        with pytest.raises(StoreError, match=f"table t: {tmp_path} {said}"):
            opened(tmp_path)


def test_a_database_with_rows_of_no_known_offset_is_refused(tmp_path: Path) -> None:
    database = Database(tmp_path / ROWS, DiskMemory())
    database.write([(b"k", b"v")])
    database.close()
    with pytest.raises(StoreError, match=r"nothing says up to which offset\. Delete it"):
        opened(tmp_path)


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.close()
    store.close()
    for use in (lambda: store.get("k"), lambda: store.confirm(1, b"marker"), lambda: store.restore([], 1)):
        with pytest.raises(StoreError, match="is closed"):
            use()


def test_the_summary_follows_after_a_while_and_at_close(tmp_path: Path) -> None:
    clock = [0]
    store = DiskStore(SPEC, tmp_path, "topic-0", DiskMemory(), lambda: clock[0])
    store.set("k", 1)
    store.take_changes()
    store.confirm(1, b"marker")
    assert (summary := read_summary(tmp_path)) and summary.changelog_offset == 0
    clock[0] += SUMMARY_INTERVAL_MS
    store.confirm(2, b"marker")
    assert (summary := read_summary(tmp_path)) and (summary.changelog_offset, summary.rows) == (2, 1)
    store.confirm(3, b"marker")
    store.close()
    assert (summary := read_summary(tmp_path)) and summary.changelog_offset == 3


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name == "rocksdict":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(AppError, match=r"pip install 'isthmus\[streams\]'"):
        DiskMemory()


class RawKeys(TableSpec):
    """A table whose keys are written as they are."""

    def encode_key(self, key: Any) -> bytes:
        return bytes(key)

    def decode_key(self, data: bytes) -> Any:
        return data


def test_no_row_s_key_is_taken_for_what_the_store_says_of_itself(tmp_path: Path) -> None:
    spec = RawKeys("t")
    store = DiskStore(spec, tmp_path, "topic-0", DiskMemory(), lambda: 0)
    keys = [META, MARKER, b"\0" + META, b"\0", b"", b"k"]
    for key in keys:
        store.set(key, 1)
    changes = store.take_changes()
    store.confirm(1, b"marker")
    for _ in range(2):
        assert sorted(store.rows) == sorted(keys) and len(store.rows) == len(keys)
        assert [store.get(key) for key in keys] == [1] * len(keys)
        store.restore(changes, 2)
        assert (store.changelog_offset, store.marker) == (2, b"marker")
        store.close()
        store = DiskStore(spec, tmp_path, "topic-0", DiskMemory(), lambda: 0)
    store.close()
