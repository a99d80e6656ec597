"""Fills a store until it is killed: `python -m integration_tests.streams.dying_store restore|confirm DIRECTORY`.

Each checkpoint is a function of its number, which is also its offset, so that what a directory must have follows from
the offset that it says. A line with the offset is written when a checkpoint is in the store.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

from isthmus.runtime import system
from isthmus.streams.engine.stores.database import DiskMemory
from isthmus.streams.engine.stores.disk import DiskStore
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.errors import StoreError

SPEC = TableSpec("counts", default=int)
KEYS = 1_000
ROWS = 200  # that a checkpoint changes
MEMORY_BYTES = 1 << 20  # so little that tables are written and compacted meanwhile


def changes(offset: int) -> Iterator[tuple[int, str | None]]:
    chance = random.Random(offset)
    for at in range(ROWS):
        yield chance.randrange(KEYS), None if chance.random() < 0.3 else f"{offset}-{at}" * 10


def rows_at(offset: int) -> dict[int, str]:
    rows: dict[int, str] = {}
    for each in range(1, offset + 1):
        for key, value in changes(each):
            rows.pop(key, None)
            if value is not None:
                rows[key] = value
    return rows


def opened(directory: Path) -> DiskStore:
    memory = DiskMemory(MEMORY_BYTES, MEMORY_BYTES)
    store = DiskStore(SPEC, directory, "topic-0", memory, system().wall_ms)
    for _ in store.count():
        pass
    return store


def restore(store: DiskStore, offset: int) -> None:
    store.restore(
        [
            (SPEC.encode_key(key), None if value is None else SPEC.encode_value(key, value))
            for key, value in changes(offset)
        ],
        offset,
        b"%d" % offset,
    )


def confirm(store: DiskStore, offset: int) -> None:
    for key, value in changes(offset):
        if value is not None:
            store.set(key, value)
        elif key in store.rows:
            store.delete(key)
    store.take_changes()
    store.set("never committed", offset)
    store.confirm(offset, b"%d" % offset)
    store.roll_back()


def main(how: str, directory: str) -> int:
    store = opened(Path(directory))
    step = {"restore": restore, "confirm": confirm}[how]
    print(store.changelog_offset, flush=True)
    try:
        while True:
            step(store, store.changelog_offset + 1)
            print(store.changelog_offset, flush=True)
    except StoreError as error:
        print(f"refused: {error}", flush=True)
        return 3


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
