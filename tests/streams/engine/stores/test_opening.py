"""Stores are where their tables' specs say."""

from pathlib import Path

import pytest

from isthmus.streams.engine.stores.layout import found
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.stores.opening import Stores
from isthmus.streams.engine.tables import DISK, TableSpec
from isthmus.streams.errors import AppError


def test_a_table_is_in_memory_or_in_its_directory(tmp_path: Path) -> None:
    stores = Stores("app", tmp_path, lambda: 5)
    assert isinstance(stores.open(TableSpec("a"), 0, "id-0"), MemoryStore)
    assert found(tmp_path, "app") == []
    opened = [stores.open(TableSpec("b", store=DISK), partition, f"id-{partition}") for partition in (0, 3)]
    for store in opened:
        store.close()
    assert [
        (each.table, each.partition, each.summary and each.summary.changelog) for each in found(tmp_path, "app")
    ] == [
        ("b", 0, "id-0"),
        ("b", 3, "id-3"),
    ]


def test_a_table_that_cannot_be_is_said_by_name() -> None:
    stores = Stores("app", None, lambda: 5)
    with pytest.raises(AppError, match="table b is on disk: name the directory"):
        stores.open(TableSpec("b", store=DISK), 0, "id-0")
    with pytest.raises(AppError, match="table b: store 'tape' is not known; there are 'memory' and 'disk'"):
        stores.open(TableSpec("b", store="tape"), 0, "id-0")
