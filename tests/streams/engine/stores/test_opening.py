"""Stores are where their tables' specs say."""

from pathlib import Path

import pytest

from isthmus.streams.engine.stores.database import DiskMemory
from isthmus.streams.engine.stores.layout import found
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.stores.opening import Stores
from isthmus.streams.engine.tables import DISK, TableSpec
from isthmus.streams.errors import AppError, StoreCorrupt, StoreError


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


@pytest.mark.parametrize("broken", ["CURRENT", "MANIFEST-*", "*.sst", "a block", "no manifest"])
def test_a_corrupt_directory_is_filled_anew(tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture) -> None:
    stores, spec = Stores("app", tmp_path, lambda: 5), TableSpec("b", store=DISK)
    store = stores.open(spec, 0, "id-0")
    rows = [(b'"%d"' % key, b'"%x"' % (key * 0x9E3779B97F4A7C15 % 2**64)) for key in range(1000)]
    store.restore(rows, 1000, b"marker")
    store.close()
    stores = Stores("app", tmp_path, lambda: 5)  # with an empty cache
    folder = tmp_path / "app/b/0"
    for path in (folder / "rows").glob({"a block": "*.sst", "no manifest": "MANIFEST-*"}.get(broken, broken)):
        data = path.read_bytes()
        path.write_bytes(data[:5000] + bytes(100) + data[5100:] if broken == "a block" else data[:10])
        if broken == "no manifest":
            path.unlink()
    if broken == "a block":  # which is seen when it is read
        store = stores.open(spec, 0, "id-0")
        with pytest.raises(StoreCorrupt, match=f"the next start deletes {folder}"):
            list(store.rows)
        store.close()
    store = stores.open(spec, 0, "id-0")
    assert (store.changelog_offset, store.marker, len(store.rows), dict(store.rows)) == (0, None, 0, {})
    assert f"table b: {folder} is deleted, and its rows are restored from the changelog" in caplog.text
    store.restore(rows, 1000, b"marker")
    store.close()
    assert stores.open(spec, 0, "id-0").changelog_offset == 1000
    assert caplog.text.count("is deleted") == 1


@pytest.mark.parametrize(
    ("said", "way_out"),
    [
        ("IO error: While open a file for lock: rows/LOCK: Permission denied", "let the worker read and write"),
        ("Corruption: IO error: While appending to file: rows/7.log: No space left on device", "make room"),
    ],
)
def test_what_the_machine_refuses_is_an_error_and_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, way_out: str
) -> None:
    stores, spec = Stores("app", tmp_path, lambda: 5), TableSpec("b", store=DISK)
    store = stores.open(spec, 0, "id-0")
    store.restore([(b'"k"', b"1")], 1)
    store.close()

    def refused(_: DiskMemory) -> None:
        raise OSError(said)

    with monkeypatch.context() as patched, pytest.raises(StoreError, match=f"{said}; {way_out}"):
        patched.setattr(DiskMemory, "options", refused)
        stores.open(spec, 0, "id-0")
    assert dict(stores.open(spec, 0, "id-0").rows) == {"k": 1}
