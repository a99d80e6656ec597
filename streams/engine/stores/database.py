"""One RocksDB database: bytes by bytes, in their order. The only place that knows `rocksdict`, which is loaded when it
is first used.

Options come from `DiskMemory`, which all stores of a process share. Whatever RocksDB says becomes a StoreError that
has the directory and the way out. A write is one batch in RocksDB's own log, which is not synced: kill -9 loses
nothing, a crash of the machine the last batches, each as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import AppError, StoreCorrupt, StoreError
from .layout import mark_corrupt

if TYPE_CHECKING:
    import rocksdict

BLOCK_CACHE_BYTES = 256 << 20  # of a process, and in it what its databases have in memory that is not yet in a table
WRITE_BUFFERS_BYTES = 128 << 20
WRITE_BUFFER_BYTES = 32 << 20  # of one database, then it is written as a table
ARENA_BLOCK_BYTES = 64 << 10  # the least of a write buffer: a worker may have hundreds, most of them nearly empty
CACHED_ROWS = 400_000  # of a process: values that need not be decoded again
CACHED_ROWS_MIN = 1_000  # of a store, however many there are
OPEN_FILES = 256  # of one database
BLOOM_BITS = 10  # a key that is not there costs a read in 1 of 100 cases
INFO_LOG_BYTES = 1 << 20
_NO_ROOM = ("No space left", "File too large", "Disk quota")
_NO_RIGHTS = ("Permission denied", "Read-only file system", "Operation not permitted")
_MISSING = "No such file or directory"  # RocksDB makes the directory: a file that another one names is not there
SCANNED_ROWS = 512  # read at a time while one iterates


class DiskMemory:
    """What all stores on disk of a process share, so that together they have one bound.

    block_cache_bytes: RocksDB's cache; write_buffers_bytes of it are for rows that are not yet in a table.
    cached_rows: decoded values, divided among the open stores.
    """

    def __init__(
        self,
        block_cache_bytes: int = BLOCK_CACHE_BYTES,
        write_buffers_bytes: int = WRITE_BUFFERS_BYTES,
        cached_rows: int = CACHED_ROWS,
    ) -> None:
        rocks = _rocksdict()
        self._cache = rocks.Cache(block_cache_bytes)
        self._buffers = rocks.WriteBufferManager.new_write_buffer_manager_with_cache(
            write_buffers_bytes, False, self._cache
        )
        self._cached_rows = cached_rows
        self._stores = 0
        self.cached_rows_each = cached_rows

    def join(self) -> None:
        self._share(1)

    def leave(self) -> None:
        self._share(-1)

    def _share(self, more: int) -> None:
        self._stores += more
        self.cached_rows_each = max(CACHED_ROWS_MIN, self._cached_rows // max(1, self._stores))

    def used_bytes(self) -> int:
        """Of the block cache, the write buffers in it."""
        return self._cache.get_usage()

    def options(self) -> rocksdict.Options:
        rocks = _rocksdict()
        tables = rocks.BlockBasedOptions()
        tables.set_block_cache(self._cache)
        tables.set_bloom_filter(BLOOM_BITS, False)
        tables.set_cache_index_and_filter_blocks(True)
        tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options = rocks.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(tables)
        options.set_write_buffer_manager(self._buffers)
        options.set_write_buffer_size(WRITE_BUFFER_BYTES)
        options.set_arena_block_size(ARENA_BLOCK_BYTES)
        options.set_compression_type(rocks.DBCompressionType.lz4())
        options.set_max_open_files(OPEN_FILES)
        options.set_keep_log_file_num(1)
        options.set_max_log_file_size(INFO_LOG_BYTES)
        return options


def _rocksdict() -> Any:
    try:
        import rocksdict
    except ImportError as error:
        raise AppError(
            "tables on disk need the package rocksdict: pip install 'isthmus[streams]', or keep the tables in memory"
        ) from error
    return rocksdict


class Database:
    """Opened by its constructor. What reads or writes raises StoreError if RocksDB fails."""

    def __init__(self, path: Path, memory: DiskMemory) -> None:
        self.path = path
        self._rocks = _rocksdict()
        try:
            self._db: rocksdict.Rdict = self._rocks.Rdict(str(path), memory.options())
        except Exception as error:  # rocksdict has no class for what RocksDB says
            raise self._failed("opened", error) from error

    def get(self, key: bytes) -> bytes | None:
        try:
            return self._db.get(key)
        except Exception as error:
            raise self._failed("read", error) from error

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        try:
            return self._db.get(keys)  # type: ignore[arg-type, return-value]
        except Exception as error:
            raise self._failed("read", error) from error

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """All or nothing, whenever the process or the machine stops. None: the key goes."""
        batch = self._rocks.WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in changes:
            if value is None:
                delete(key)
            else:
                put(key, value)
        try:
            self._db.write(batch)
        except Exception as error:
            raise self._failed("written", error) from error

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """In the order of keys. What is written meanwhile may be in it or not."""
        start = b""
        while page := self._page(self._db.items, start):
            yield from page
            start = _behind(page[-1][0])

    def key_pages(self) -> Iterator[list[bytes]]:
        """As `items`, some at a time."""
        start = b""
        while page := self._page(self._db.keys, start):
            yield page
            start = _behind(page[-1])

    def about(self) -> int:
        """How many keys there are, at most; one that was written several times may count as often."""
        return self._db.property_int_value("rocksdb.estimate-num-keys") or 0

    def _page(self, read: Callable[..., Iterator[Any]], start: bytes) -> list[Any]:
        """RocksDB stays open as long as one of its iterators does, so none outlives a call. Where a block cannot be
        read, rocksdict's iterator ends as if there were no more rows."""
        try:
            page = list(islice(read(from_key=start), SCANNED_ROWS))
            if not page:
                end = self._db.iter()
                end.seek(start)
                end.status()  # raises what it has ended by
        except Exception as error:
            raise self._failed("read", error) from error
        return page

    def close(self) -> None:
        """Whatever cannot be put in tables now is still in RocksDB's log, and a write that failed has said so."""
        with suppress(Exception):
            self._db.close()

    def _failed(self, what: str, error: Exception) -> StoreError:
        said, directory = str(error), self.path.parent
        failed = f"the database {self.path} could not be {what}: {said}"
        if any(each in said for each in _NO_ROOM):
            return StoreError(
                f"{failed}; make room and start the worker again: nothing is lost, what is not here is restored from "
                "the changelog"
            )
        if any(each in said for each in _NO_RIGHTS):
            return StoreError(f"{failed}; let the worker read and write {directory}")
        if "Corruption" in said or (what == "opened" and _MISSING in said):
            mark_corrupt(directory)
            return StoreCorrupt(
                f"{failed}; the next start deletes {directory} and restores its rows from the changelog"
            )
        return StoreError(f"{failed}; delete {directory}: its rows are restored from the changelog")


def _behind(key: bytes) -> bytes:
    """The next key that there can be."""
    return key + b"\0"
