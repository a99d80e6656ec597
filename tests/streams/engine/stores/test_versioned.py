"""Versioned rows do what Kafka's do, in memory, on disk and after every restart; and forget what nobody can ask for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.streams.engine.stores.database import DiskMemory
from isthmus.streams.engine.stores.disk import DiskStore
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.stores.store import Store
from isthmus.streams.engine.stores.versioned import NEVER, Version, VersionedRows
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.errors import AppError
from tests.streams.engine.stores.kafka_versioned import CASES, HISTORY_MS, WITHOUT_HISTORY

SPEC = TableSpec("prices")


def step(rows: VersionedRows, what: str, *rest: Any) -> None:
    match what, rest:
        case "put", (key, None, time_ms, valid_to_ms):
            late = valid_to_ms is None
            before = rows.get(key)
            rows.delete(key, time_ms)
            assert not late or rows.get(key) == before
        case "put", (key, value, time_ms, valid_to_ms):
            assert rows.put(key, value, time_ms) == valid_to_ms
        case "delete", (key, time_ms, had):
            version = rows.delete(key, time_ms)
            assert (version and version[:2]) == had
        case "latest", (key, value, time_ms):
            assert rows.get(key) == (None if value is None else Version(value, time_ms, NEVER))
        case "get", (key, as_of_ms, expected):
            assert rows.get(key, as_of_ms) == expected
        case "versions", (key, from_ms, to_ms, expected):
            assert list(rows.versions(key, from_ms, to_ms)) == expected
        case _:
            raise AssertionError(what)


def memory(_: Path) -> Store:
    return MemoryStore(SPEC)


def disk(folder: Path) -> Store:
    return DiskStore(SPEC, folder, "prices-0", DiskMemory(), lambda: 0)


def versioned(store: Store, history_ms: int) -> VersionedRows:
    rows = VersionedRows(store, history_ms)
    list(rows.read())
    return rows


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", [memory, disk])
@pytest.mark.parametrize("restarted", [False, True])
def test_as_kafka_s(name: str, kind: Callable[[Path], Store], restarted: bool, tmp_path: Path) -> None:
    store = kind(tmp_path)
    history_ms = 0 if name == WITHOUT_HISTORY else HISTORY_MS
    rows = versioned(store, history_ms)
    for each in CASES[name]:
        step(rows, *each)
        if restarted:
            store.take_changes()
            store.confirm(store.changelog_offset + 1, b"marker")
            rows = versioned(store, history_ms)
    store.close()


def puts() -> Any:
    return st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 9), st.integers(0, 60)), max_size=25)


def expected(history: dict[int, Any], as_of: int) -> Version | None:
    times = sorted(history)
    at = max((time for time in times if time <= as_of), default=None)
    if at is None or history[at] is None:
        return None
    return Version(history[at], at, min((time for time in times if time > at), default=NEVER))


@settings(max_examples=200, deadline=None)
@given(puts(), st.integers(0, 30), st.integers(0, 3))
def test_as_a_history_that_forgets_nothing(
    puts: list[tuple[str, int | None, int]], history_ms: int, every: int
) -> None:
    """What may be asked for is right, whatever was deleted meanwhile; what nobody may ask for is deleted."""
    store = MemoryStore(SPEC)
    rows = versioned(store, history_ms)
    model: dict[str, dict[int, Any]] = {"a": {}, "b": {}}
    now = 0
    for number, (key, value, time) in enumerate(puts):
        if time >= now - history_ms:
            model[key][time] = value
        now = max(now, time)
        if value is None:
            rows.delete(key, time)
        else:
            assert (rows.put(key, value, time) is None) == (time < now - history_ms)
        if every and number % every == 0:
            rows.expire()
        for name, history in model.items():
            for as_of in range(now - history_ms, now + 2):
                assert rows.get(name, as_of) == expected(history, as_of)
    rows.put("clock", 1, 1000)
    rows.expire()
    living = [(name,) for name, history in model.items() if expected(history, now)]
    assert sorted(store.rows) == [*living, ("clock",)]


def test_a_put_of_a_value_that_cannot_be_restored_changes_nothing() -> None:
    rows = versioned(MemoryStore(SPEC), 100)
    rows.put("k", 1, 50)
    for time_ms in (40, 50, 60):
        with pytest.raises(AppError):
            rows.put("k", object(), time_ms)
    assert list(rows.versions("k", 0, 100)) == [(1, 50, NEVER)]
    assert rows.stream_time_ms == 50


def test_a_tombstone_of_a_key_that_never_was_goes_also_after_a_restart() -> None:
    store = MemoryStore(SPEC)
    versioned(store, 100).delete("k", 0)
    rows = versioned(store, 100)
    rows.put("clock", 1, 1000)
    assert rows.expire() == 1 and list(store.rows) == [("clock",)]


def test_equal_keys_are_one_key() -> None:
    rows = versioned(MemoryStore(SPEC), 100)
    rows.put(True, "one", 1)
    rows.put(1.0, "uno", 2)
    assert rows.get(1) == ("uno", 2, NEVER) and rows.get(True, 1) == ("one", 1, 2)


def test_deleted_keys_and_old_versions_go_a_few_at_a_time() -> None:
    store = MemoryStore(SPEC)
    rows = versioned(store, 100)
    for key in range(10):
        rows.put(key, "old", 0)
        rows.put(key, "new", 10)
        if key % 2:
            rows.delete(key, 20)
    rows.put("clock", 1, 1000)
    assert [rows.expire(limit=4), rows.expire(limit=4), rows.expire(limit=4)] == [4, 4, 2]
    assert sorted(store.rows, key=repr) == [("clock",), *((key,) for key in range(0, 10, 2))]
    assert all(rows.get(key) == ("new", 10, NEVER) for key in range(0, 10, 2))
