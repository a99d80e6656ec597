"""Rows in memory: what changed is what is written, and what is written is what was set."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.engine.serialization import Serializers
from isthmus.streams.engine.serialized_rows import SerializedCodec
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.table_codec import TableCodec
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.errors import AppError

SPEC = TableSpec("t")
CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 3) | st.lists(st.integers())))


def change(store: MemoryStore, key: str, value: Any) -> None:
    if value is not None:
        store.set(key, value)
    elif key in store.rows:
        store.delete(key)


@given(st.lists(CHANGES, max_size=4))
def test_what_was_taken_restores_the_rows_at_each_time(rounds):
    live, copy = MemoryStore(SPEC), MemoryStore(SPEC)
    for changes in rounds:
        for key, value in changes:
            change(live, key, value)
        taken = live.take_changes()
        assert len(taken) == len({key for key, _ in taken})  # the last value alone
        copy.restore(taken, 5)
        assert copy.rows == live.rows
        assert live.take_changes() == []


def test_a_value_that_is_changed_in_place_and_not_set_again_is_written_as_it_was_set():
    store = MemoryStore(SPEC)
    value: list[Any] = [1]
    store.set("k", value)
    value.append(object())
    assert store.take_changes() == [(b'"k"', b"[1]")]


def test_a_missing_row_is_a_new_default_or_an_error():
    store = MemoryStore(TableSpec("t", list))
    assert store.get("k") == [] and store.get("k") is not store.get("k") and not store.rows
    with pytest.raises(KeyError):
        MemoryStore(SPEC).get("k")
    with pytest.raises(KeyError):
        store.delete("k")
    assert store.take_changes() == []


def test_a_refused_value_changes_nothing():
    store = MemoryStore(SPEC)
    store.set("k", 1)
    store.take_changes()
    with pytest.raises(AppError, match="the value of key 'k' cannot be stored"):
        store.set("k", object())
    with pytest.raises(AppError, match="cannot be stored"):
        store.set(float("nan"), 1)
    assert store.rows == {"k": 1} and store.take_changes() == []


def test_it_must_be_filled_again_to_go_back():
    store = MemoryStore(SPEC)
    store.restore([(b'"k"', b"1"), (b'"gone"', None)], 9, None)
    assert (store.rows, store.changelog_offset, store.take_changes()) == ({"k": 1}, 9, [])
    assert store.roll_back() is False
    store.confirm(12, b"marker")
    assert (store.changelog_offset, store.marker) == (12, b"marker")
    store.restore([], 14)
    assert (store.changelog_offset, store.marker) == (14, b"marker")  # there was none between
    store.restore([], 15, b"next")
    assert store.marker == b"next"
    store.close()
    assert not store.rows


def test_a_copy_has_a_row_whose_value_is_written_as_nothing():
    """As the serializer `raw` writes an empty text."""
    spec = TableSpec("t", codec=SerializedCodec(TableCodec(), value=Serializers().value_coder(None, "raw")))
    live, copy = MemoryStore(spec), MemoryStore(spec)
    for value in (b"before", b""):
        live.set("k", value)
        copy.restore(live.take_changes(), 5)
        assert copy.look("k") == value
