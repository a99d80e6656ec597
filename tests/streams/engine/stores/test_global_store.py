"""What a worker sees of a global table: its own changes at once, then what is committed, whatever comes in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.streams.engine.stores.global_store import GlobalStore, Place
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.stores.opening import Stores
from isthmus.streams.engine.tables import DISK, TableSpec
from isthmus.streams.errors import AppError


def opened(tmp_path: Path, kind: str) -> GlobalStore:
    """A table whose rows of one-letter keys are in partition 0, and of longer ones in partition 1."""
    spec = TableSpec("t", default=int, store=kind, is_global=True)
    stores = Stores("app", tmp_path, lambda: 0)
    committed = [stores.open(spec, n, f"changelog-{n}") for n in range(2)] if kind == DISK else [MemoryStore(spec)]
    return GlobalStore(spec, committed, lambda key: int(len(key) > 3))


@pytest.fixture(params=["memory", DISK])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> GlobalStore:
    return opened(tmp_path, request.param)


def test_rows_of_all_partitions_are_one_mapping_with_own_changes_over_them(store: GlobalStore) -> None:
    store.follow(0, [(b'"a"', b"1"), (b'"b"', b"2")], 2)
    store.follow(1, [(b'"long"', b"3")], 1)
    store.set("a", 10)
    store.set("new", 4)
    store.delete("b")
    list(store.count())
    expected = {"a": 10, "new": 4, "long": 3}
    assert dict(store.rows) == expected and len(store.rows) == 3
    assert [key in store.rows for key in ("a", "b", "long", "none")] == [True, False, True, False]
    assert (store.get("a"), store.get("b")) == (10, 0)
    with pytest.raises(KeyError):
        store.delete("b")
    store.close()


def test_changes_go_to_the_partition_of_their_key_each_row_once(store: GlobalStore) -> None:
    for value in range(3):
        store.set("a", value)
    store.follow(1, [(b'"long"', b"3")], 1)
    store.delete("long")
    assert store.take_changes() == [(b'"a"', b"2", 0), (b'"long"', None, 1)]
    assert not store.has_changes and store.take_changes() == []
    store.close()


def test_an_own_change_hides_what_is_read_until_it_has_come_back(store: GlobalStore) -> None:
    store.set("a", 2)
    store.take_changes()
    store.follow(0, [(b'"a"', b"1")], 5)  # of another worker, before
    assert store.get("a") == 2
    store.confirm([Place(0, 5)])
    store.follow(1, [], 9)
    store.follow(0, [], 5)
    assert store.get("a") == 2
    store.follow(0, [(b'"a"', b"2"), (b'"a"', b"7")], 7)  # and what another one has written since
    assert store.get("a") == 7
    store.close()


def test_a_rollback_forgets_what_is_not_committed_and_nothing_else(store: GlobalStore) -> None:
    store.set("a", 1)
    store.set("b", 1)
    store.take_changes()
    store.confirm([Place(0, 0), Place(0, 1)])
    store.set("a", 2)
    store.take_changes()
    store.set("c", 3)
    store.roll_back()
    assert dict(store.rows) == {"b": 1}, "a's committed value is on its way back, and tasks wait for it"
    assert not store.has_changes
    store.follow(0, [(b'"a"', b"1"), (b'"b"', b"1")], 2)
    assert dict(store.rows) == {"a": 1, "b": 1}
    store.close()


def test_rows_on_disk_are_read_on_from_where_they_are(tmp_path: Path) -> None:
    store = opened(tmp_path, DISK)
    store.follow(0, [(b'"a"', b"1")], 4)
    store.close()
    again = opened(tmp_path, DISK)
    assert (again.start(0), again.start(1), dict(again.rows)) == (4, 0, {"a": 1})
    again.close()


def test_a_view_of_a_topic_cannot_be_written() -> None:
    spec = TableSpec("t", is_global=True, source="rates")
    store = GlobalStore(spec, [MemoryStore(spec)])
    store.follow(0, [(b'"a"', b"1")], 1)
    with pytest.raises(AppError, match="view of topic rates"):
        store.set("a", 2)
    with pytest.raises(AppError, match="view of topic rates"):
        store.delete("a")
    assert dict(store.rows) == {"a": 1}
