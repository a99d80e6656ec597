"""Rows in memory and on disk do the same, whatever is done to them, and both what a model of three dicts does."""

import shutil
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from isthmus.streams.engine.migration import Migration
from isthmus.streams.engine.serialization import Serializers
from isthmus.streams.engine.serialized_rows import SerializedCodec
from isthmus.streams.engine.steps import STEP_ROWS
from isthmus.streams.engine.stores.database import Database, DiskMemory
from isthmus.streams.engine.stores.disk import CACHED_VALUE_BYTES, DiskStore
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.stores.store import Store
from isthmus.streams.engine.table_codec import TableCodec
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.engine.versions import rewritten
from isthmus.streams.errors import AppError, ChangeRefused

SPEC = TableSpec("t")
RAW = TableSpec("t", codec=SerializedCodec(TableCodec(), key=Serializers().key_coder(None, "raw")))
GONE, REFUSED = object(), object()
KEYS = st.sampled_from([None, True, 1, 1.0, 2, 0.5, "a", "1", b"a", "ü", (), (1, "a"), (True, b"a"), ((1,), "a")])
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3), st.binary(max_size=3),
    st.lists(st.integers(), max_size=2), st.tuples(st.integers()),
    st.dictionaries(st.integers(), st.text(max_size=3), max_size=2),
    st.sampled_from(["x" * 2 * CACHED_VALUE_BYTES, [0] * CACHED_VALUE_BYTES]),
)  # fmt: skip


class Machine(RuleBasedStateMachine):
    spec = SPEC

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="isthmus-stores-"))
        self.clock_ms = 0
        self.memory = DiskMemory(1 << 20, 1 << 20, cached_rows=8)
        self.memory.cached_rows_each = 8  # so few that values leave the cache
        self.disk = self.opened()
        self.dict: Store = MemoryStore(self.spec)
        self.committed: dict[Any, Any] = {}
        self.under_way: dict[Any, Any] = {}
        self.changed: dict[Any, Any] = {}
        self.offset = 0
        self.marker: bytes | None = None

    def opened(self) -> DiskStore:
        store = DiskStore(self.spec, self.folder / "store", "changelog-0", self.memory, lambda: self.clock_ms)
        self.memory.cached_rows_each = 8
        return store

    def teardown(self) -> None:
        self.disk.close()
        shutil.rmtree(self.folder)

    def seen(self) -> dict[Any, Any]:
        rows = {**self.committed, **self.under_way, **self.changed}
        return {key: value for key, value in rows.items() if value is not GONE}

    def refill(self) -> None:
        """Memory after a roll back or restart: what is committed, from the changelog."""
        self.under_way, self.changed = {}, {}
        self.dict = MemoryStore(self.spec)
        self.dict.restore(
            [(self.spec.encode_key(key), self.spec.encode_value(key, value)) for key, value in self.committed.items()],
            self.offset,
            self.marker,
        )
        list(self.dict.settle())

    def known(self, key: Any) -> Any:
        """The canonical key; REFUSED for what is none."""
        try:
            return self.spec.canonical_key(key)
        except AppError:
            return REFUSED

    @rule(key=KEYS, value=VALUES)
    def set(self, key: Any, value: Any) -> None:
        if (known := self.known(key)) is REFUSED:
            for store in (self.disk, self.dict):
                with pytest.raises(AppError):
                    store.set(key, value)
            return
        self.disk.set(key, value)
        self.dict.set(key, value)
        self.changed[known] = value

    @rule(key=KEYS)
    def get(self, key: Any) -> None:
        for store in (self.disk, self.dict):
            if (known := self.known(key)) in self.seen():
                got = store.get(key)
                assert got == self.seen()[known] and type(got) is type(self.seen()[known])
                assert store.rows[key] == got and key in store.rows
            else:
                assert key not in store.rows
                with pytest.raises(KeyError):
                    store.get(key)
                with pytest.raises(KeyError):
                    store.rows[key]

    @rule(key=KEYS)
    def delete(self, key: Any) -> None:
        there = (known := self.known(key)) in self.seen()
        for store in (self.disk, self.dict):
            if there:
                store.delete(key)
            else:
                with pytest.raises(AppError if known is REFUSED else KeyError):
                    store.delete(key)
        if there:
            self.changed[known] = GONE

    @precondition(lambda self: not self.under_way)
    @rule()
    def take(self) -> None:
        changes = self.disk.take_changes()
        assert changes == self.dict.take_changes()
        assert changes == [
            (self.spec.encode_key(key), None if value is GONE else self.spec.encode_value(key, value))
            for key, value in self.changed.items()
        ]
        self.under_way, self.changed = self.changed, {}

    @rule(records=st.integers(1, 9))
    def confirm(self, records: int) -> None:
        self.offset += records
        self.marker = b"%d" % self.offset
        self.disk.confirm(self.offset, self.marker)
        self.dict.confirm(self.offset, self.marker)
        self.committed |= self.under_way
        self.committed = {key: value for key, value in self.committed.items() if value is not GONE}
        self.under_way = {}

    @precondition(lambda self: not self.under_way and not self.changed)
    @rule(given=st.lists(st.tuples(KEYS, VALUES | st.just(GONE)), max_size=6), marked=st.booleans())
    def restore(self, given: list[tuple[Any, Any]], marked: bool) -> None:
        rows = [(known, value) for key, value in given if (known := self.known(key)) is not REFUSED]
        self.offset += len(rows)
        marker = b"%d" % self.offset if marked else None
        self.marker = marker or self.marker
        for store in (self.disk, self.dict):
            store.restore(
                (
                    (self.spec.encode_key(key), None if value is GONE else self.spec.encode_value(key, value))
                    for key, value in rows
                ),
                self.offset,
                marker,
            )
            list(store.settle())
            list(store.count())
        self.committed |= dict(rows)
        self.committed = {key: value for key, value in self.committed.items() if value is not GONE}

    @rule()
    def roll_back(self) -> None:
        assert self.disk.roll_back()
        assert not self.dict.roll_back()
        self.refill()

    @rule(passed_ms=st.integers(0, 60_000))
    def reopen(self, passed_ms: int) -> None:
        self.clock_ms += passed_ms
        self.disk.close()
        self.disk = self.opened()
        list(self.disk.count())
        self.refill()

    @invariant()
    def is_the_same(self) -> None:
        seen = self.seen()
        for store in (self.disk, self.dict):
            assert len(store.rows) == len(seen)
            assert dict(store.rows.items()) == seen
            assert (store.changelog_offset, store.marker) == (self.offset, self.marker)
            assert sorted(map(repr, store.rows)) == sorted(map(repr, seen))
        assert sorted(map(repr, self.disk.rows.values())) == sorted(map(repr, seen.values()))


class RawMachine(Machine):
    """With keys that become others, "a" b"a"."""

    spec = RAW


TestStores = Machine.TestCase
TestStoresOfRawKeys = RawMachine.TestCase
TestStores.settings = TestStoresOfRawKeys.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def stores(folder: Path, spec: TableSpec = SPEC) -> list[Store]:
    return [MemoryStore(spec), DiskStore(spec, folder / "t", "changelog-0", DiskMemory(), lambda: 0)]


def test_a_key_or_value_that_cannot_be_restored_is_refused_with_nothing_changed(tmp_path: Path) -> None:
    for store in stores(tmp_path):
        for key, value in ((object(), 1), (float("nan"), 1), ("k", object()), ("k", [{1, 2}])):
            with pytest.raises(AppError, match="table t: "):
                store.set(key, value)
        assert not store.rows and store.take_changes() == []
        store.close()


def test_a_row_is_found_by_all_keys_that_its_own_stands_for_also_before_it_is_committed(tmp_path: Path) -> None:
    for store in stores(tmp_path, RAW):
        store.set("a", 1)
        store.take_changes()
        store.confirm(1, b"marker")
        store.set(b"a", 2)
        assert (store.get("a"), store.get(b"a")) == (2, 2)
        store.close()


def test_a_missing_row_has_a_new_default(tmp_path: Path) -> None:
    spec = TableSpec("t", default=list)
    disk = DiskStore(spec, tmp_path / "t", "changelog-0", DiskMemory(), lambda: 0)
    for store in (MemoryStore(spec), disk):
        first = store.get("k")
        first.append(1)
        assert store.get("k") == [] and "k" not in store.rows
        store.close()


def test_a_row_that_cannot_be_read_counts_only_if_it_is_still_there_when_all_was_restored() -> None:
    spec = TableSpec("t", codec=TableCodec(None, date))
    first, second, bad = b'!{"date":"2026-01-01"}', b'!{"date":"2026-01-02"}', b'!{"gone":{}}'
    store = MemoryStore(spec)
    store.restore([(b'"a"', first), (b'"b"', first)], 2)
    store.restore([(b'"a"', second), (b'"b"', bad)], 4)
    store.restore([(b'"b"', None), (b'"c"', first)], 6)
    assert store.look("a") == date(2026, 1, 2)
    list(store.settle())
    assert dict(store.rows) == {"a": date(2026, 1, 2), "c": date(2026, 1, 1)}
    store.restore([(b'"c"', bad)], 7)
    with pytest.raises(ChangeRefused, match='row of key "c"'):
        list(store.settle())


def test_a_migration_of_many_rows_comes_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for: list[int] = []
    monkeypatch.setattr(
        Database, "get_many", lambda self, keys: looked_for.append(len(keys)) or [self.get(key) for key in keys]
    )
    keys = range(2 * STEP_ROWS + 5)
    changes = [(b"%d" % key, b"2" if key else None) for key in keys]
    for store in stores(tmp_path):
        store.restore([(b"%d" % key, b"1") for key in keys], 1, b"marker")
        list(store.count())
        assert len(list(store.migrate(changes))) >= 3
        assert dict(store.rows) == dict.fromkeys(keys[1:], 2) and len(store.rows) == len(keys) - 1
        assert sorted(store.take_changes()) == sorted(changes)
        store.close()
    assert looked_for == [STEP_ROWS, STEP_ROWS, 5]


def test_rows_that_a_migration_does_not_change_take_steps_too() -> None:
    rows = [(b"%d" % key, b"1") for key in range(3)]
    assert list(rewritten(SPEC, [Migration(1, 2, lambda key, value: value)], rows)) == [None] * 6
