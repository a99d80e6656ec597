"""What rows of tables cost, in memory and on disk: `python -m benchmarks.stores [CASE...] [--keys 1000000]`.

Each case has a process of its own and prints a JSON line, all times in CPU-seconds of that process, which has RocksDB's
threads in it.

    count-memory, count-disk     get and set of a count for events with random keys, a checkpoint every 20,000 events;
                                 `first` while the keys are new, `again` once they are there
    hot-disk                     the same over 10,000 of the keys, which are cached
    restore-memory, restore-disk a changelog of as many keys, 20,000 rows at a time
    rocksdb, lmdb, sqlite        the same count of bytes with these alone, 5,000 at a time (lmdb has to be installed)
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from isthmus.runtime import system
from isthmus.streams.engine.stores.database import Database, DiskMemory
from isthmus.streams.engine.stores.disk import DiskStore
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.stores.store import Store
from isthmus.streams.engine.tables import TableSpec

CHECKPOINT_EVENTS = 20_000
BATCH_ROWS = 5_000
HOT_KEYS = 10_000
MB = 1e6
SPEC = TableSpec("counts", default=int)
Figures = dict[str, float]


class Watch:
    """CPU-seconds, seconds and memory since it was made."""

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()  # the events: lists of millions, which every full collection would go through
        self.rss = _rss_bytes()
        self.cpu_s, self.wall_s = time.process_time(), time.perf_counter()

    def figures(self, name: str, events: int) -> Figures:
        cpu_s, wall_s = time.process_time() - self.cpu_s, time.perf_counter() - self.wall_s
        return {
            f"{name}_per_cpu_s": round(events / cpu_s),
            f"{name}_per_s": round(events / wall_s),
            f"{name}_us": round(cpu_s / events * 1e6, 2),
        }

    def memory_mb(self) -> float:
        gc.collect()
        return round((_rss_bytes() - self.rss) / MB, 1)


def _rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def key(number: int) -> str:
    return f"user-{number:08d}"


def shuffled(count: int, seed: int) -> list[str]:
    numbers = list(range(count))
    random.Random(seed).shuffle(numbers)
    return [key(number) for number in numbers]


def on_disk(folder: Path) -> DiskStore:
    return DiskStore(SPEC, folder / "t", "counts-0", DiskMemory(), system().wall_ms)


def count(store: Store, events: list[str]) -> None:
    """As `table[key] += 1` does, and the commits."""
    for start in range(0, len(events), CHECKPOINT_EVENTS):
        for each in events[start : start + CHECKPOINT_EVENTS]:
            store.set(each, store.get(each) + 1)
        store.take_changes()
        store.confirm(start + CHECKPOINT_EVENTS, b"marker")


def counting(store: Store, keys: int, folder: Path | None) -> Figures:
    first, again = shuffled(keys, 1), shuffled(keys, 2)
    watch = Watch()
    count(store, first)
    found = watch.figures("first", keys)
    watch_again = Watch()
    count(store, again)
    found |= watch_again.figures("again", keys)
    found["memory_mb"] = watch.memory_mb()
    assert len(store.rows) == keys and store.get(first[0]) == 2
    if folder:
        found["disk_mb"] = round(disk_bytes(folder) / MB, 1)
    store.close()
    return found


def hot(keys: int, folder: Path) -> Figures:
    store = on_disk(folder)
    count(store, shuffled(keys, 1))
    chance = random.Random(3)
    events = [key(chance.randrange(HOT_KEYS)) for _ in range(keys)]
    watch = Watch()
    count(store, events)
    found = watch.figures("hot", keys)
    store.close()
    return found


def restoring(store: Store, keys: int) -> Figures:
    rows = [(SPEC.encode_key(each), SPEC.encode_value(each, at)) for at, each in enumerate(shuffled(keys, 1))]
    watch = Watch()
    for start in range(0, keys, CHECKPOINT_EVENTS):
        store.restore(rows[start : start + CHECKPOINT_EVENTS], start + CHECKPOINT_EVENTS)
    for _ in store.count():
        pass
    found = watch.figures("rows", keys)
    found["memory_mb"] = watch.memory_mb()
    assert len(store.rows) == keys
    store.close()
    return found


# --- The databases alone --------------------------------------------------------------------------------------------

Get = Callable[[bytes], Any]
Write = Callable[[list[tuple[bytes, bytes]]], None]


def alone(keys: int, folder: Path, get: Get, write: Write) -> Figures:
    found: Figures = {}
    for name, seed in (("first", 1), ("again", 2)):
        events = [SPEC.encode_key(each) for each in shuffled(keys, seed)]
        watch = Watch()
        for start in range(0, keys, BATCH_ROWS):
            some = events[start : start + BATCH_ROWS]
            for each in some:
                get(each)
            write([(each, b"12345") for each in some])
        found |= watch.figures(name, keys)
    found["disk_mb"] = round(disk_bytes(folder) / MB, 1)
    return found


def rocksdb(keys: int, folder: Path) -> Figures:
    database = Database(folder / "rows", DiskMemory())
    found = alone(keys, folder, database.get, database.write)
    database.close()
    return found


def lmdb(keys: int, folder: Path) -> Figures:
    environment = importlib.import_module("lmdb").open(str(folder), map_size=64 << 30, sync=False)
    reading = [environment.begin()]

    def write(rows: list[tuple[bytes, bytes]]) -> None:
        reading.pop().abort()  # what a reader sees stays on disk
        with environment.begin(write=True) as transaction:
            transaction.cursor().putmulti(rows)
        reading.append(environment.begin())

    return alone(keys, folder, lambda each: reading[0].get(each), write)


def sqlite(keys: int, folder: Path) -> Figures:
    import sqlite3

    connection = sqlite3.connect(folder / "rows", isolation_level=None)
    for pragma in ("journal_mode=wal", "synchronous=off", "cache_size=-262144"):
        connection.execute(f"pragma {pragma}")
    connection.execute("create table rows(key blob primary key, value blob) without rowid")

    def get(each: bytes) -> Any:
        return connection.execute("select value from rows where key=?", (each,)).fetchone()

    def write(rows: list[tuple[bytes, bytes]]) -> None:
        connection.execute("begin")
        connection.executemany("insert or replace into rows values(?,?)", rows)
        connection.execute("commit")

    return alone(keys, folder, get, write)


CASES: dict[str, Callable[[int, Path], Figures]] = {
    "count-memory": lambda keys, _: counting(MemoryStore(SPEC), keys, None),
    "count-disk": lambda keys, folder: counting(on_disk(folder), keys, folder),
    "hot-disk": hot,
    "restore-memory": lambda keys, _: restoring(MemoryStore(SPEC), keys),
    "restore-disk": lambda keys, folder: restoring(on_disk(folder), keys),
    "rocksdb": rocksdb,
    "lmdb": lmdb,
    "sqlite": sqlite,
}


def _run(names: list[str], keys: int, directory: str | None) -> Iterator[int]:
    for name in names:
        folder = Path(tempfile.mkdtemp(prefix="isthmus-stores-", dir=directory))
        try:
            yield subprocess.call([sys.executable, "-m", "benchmarks.stores", name, f"--keys={keys}", f"--in={folder}"])
        finally:
            shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stores", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; default: all but lmdb")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--directory", help="where to put the data (default: the system's for temporary files)")
    parser.add_argument("--in", dest="folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := [name for name in given.cases if name not in CASES]:
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    if given.folder:
        (name,) = given.cases
        print(json.dumps({"case": name, "keys": given.keys, **CASES[name](given.keys, given.folder)}), flush=True)
        return 0
    return max(_run(given.cases or [name for name in CASES if name != "lmdb"], given.keys, given.directory))


if __name__ == "__main__":
    sys.exit(main())
