"""Rows expire by event time, and only those whose time is over are touched."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.engine.stores.database import DiskMemory
from isthmus.streams.engine.stores.disk import DiskStore
from isthmus.streams.engine.stores.expiry import TTL_STEPS, ExpiringRows, TimeIndex
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.errors import AppError

SPEC = TableSpec("t", default=int)
TTL_MS = 640  # steps of 10 ms


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(-30, 30), st.booleans())), st.integers(1, 7), st.integers(1, 4)
)
def test_an_index_gives_the_keys_whose_step_is_over_by_time(
    steps: list[tuple[int, int, bool]], step_ms: int, limit: int
) -> None:
    index = TimeIndex(step_ms)
    model: dict[int, int] = {}
    for key, time_ms, adds in steps:
        if key in model:
            index.discard(key, model.pop(key))
        if adds:
            index.add(key, time_ms)
            model[key] = time_ms
        before_ms = time_ms - 10
        got: list[int] = []
        while some := index.expire(before_ms, limit):
            assert len(some) <= limit
            got += some
        over = [key for key, at in model.items() if (at // step_ms + 1) * step_ms <= before_ms]
        assert sorted(got) == sorted(over)
        assert [model[key] // step_ms for key in got] == sorted(model[key] // step_ms for key in got)
        for key in got:
            del model[key]
        assert len(index) == len(model)


def test_with_steps_of_a_millisecond_all_before_a_time_expire() -> None:
    index = TimeIndex()
    for start_ms in (20, 0, 10):
        index.add(("key", start_ms), start_ms)
    assert index.expire(20) == [("key", 0), ("key", 10)]
    assert index.expire(20) == []
    assert index.expire(21) == [("key", 20)]


def test_a_row_expires_a_ttl_after_it_was_set_last() -> None:
    store = MemoryStore(SPEC)
    rows = ExpiringRows(store, TTL_MS)
    rows.set("early", 1, 0)
    rows.set("late", 1, 0)
    rows.set("late", 2, 300)
    rows.set("late", 3, 100)  # out of order: it does not make the row older
    assert rows.advance(TTL_MS) == []
    with_step = TTL_MS + TTL_MS // TTL_STEPS
    assert rows.get("early") == 0 and rows.get("late") == 3  # over at once, though it is deleted with its step
    assert rows.advance(with_step) == ["early"] and dict(rows.items()) == {"late": 3}
    assert rows.advance(300 + TTL_MS - 1) == [] and rows.get("late") == 3
    assert rows.advance(300 + with_step) == ["late"] and not store.rows
    assert store.take_changes() == [(b'"early"', None), (b'"late"', None)]


def test_a_row_that_would_have_expired_is_not_set() -> None:
    rows = ExpiringRows(MemoryStore(SPEC), TTL_MS)
    rows.advance(1000)
    assert not rows.set("k", 1, 1000 - TTL_MS)
    assert rows.get("k") == 0
    assert rows.set("k", 1, 1001 - TTL_MS)
    assert rows.get("k") == 1


def test_a_missing_or_expired_row_is_a_key_error_without_a_default() -> None:
    store = MemoryStore(TableSpec("t"))
    rows = ExpiringRows(store, TTL_MS)
    rows.set("k", None, 0)
    assert rows.get("k") is None
    rows.advance(TTL_MS)
    for use in (rows.get, rows.delete, rows.get):
        with pytest.raises(KeyError):
            use("k")
    assert rows.advance(2 * TTL_MS) == []  # it was deleted


def test_a_refused_value_changes_nothing() -> None:
    rows = ExpiringRows(MemoryStore(SPEC), TTL_MS)
    rows.set("k", 1, 0)
    with pytest.raises(AppError):
        rows.set("k", object(), TTL_MS - 1)
    assert rows.advance(TTL_MS + TTL_MS // TTL_STEPS) == ["k"]


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_index_is_that_of_the_rows_after_a_restart_and_a_roll_back(tmp_path: Path, on_disk: bool) -> None:
    store: Any = MemoryStore(SPEC)
    if on_disk:
        store = DiskStore(SPEC, tmp_path, "t-0", DiskMemory(), lambda: 0)
    rows = ExpiringRows(store, TTL_MS)
    rows.set("a", 1, 0)
    rows.set(True, 2, 500)
    rows.delete("a")
    rows.set("b", 3, 100)
    changes = store.take_changes()
    store.confirm(1, b"marker")
    if on_disk:
        rows.advance(5000)
        rows.set("rolled back", 4, 5000)
        assert store.roll_back()
        rows.rebuild()
    else:
        store = MemoryStore(SPEC)
        store.restore(changes, 1)
        rows = ExpiringRows(store, TTL_MS)
    assert rows.stream_time_ms == 500
    assert rows.advance(50_000) == ["b", 1]
    store.close()
