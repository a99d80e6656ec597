"""Planted bugs: each is a change to the product, inside this process only, that the scenarios must find."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from . import (
    cluster_plants,
    consumer_group_plants,
    controller_plants,
    directory_plants,
    group_plants,
    growth_plants,
    pipeline_plants,
    quorum_plants,
    retention_plants,
    session_plants,
    stream_plants,
    transaction_plants,
)

Plant = Callable[[contextlib.ExitStack], None]


@contextlib.contextmanager
def planted(name: str | None) -> Iterator[None]:
    """The product with the bug `name` in it; unchanged for None."""
    with contextlib.ExitStack() as stack:
        if name is not None:
            PLANTS[name](stack)
        yield


def _replace(stack: contextlib.ExitStack, target: object, attribute: str, value: object) -> None:
    stack.enter_context(mock.patch.object(target, attribute, value))


def recovery_without_crc(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.storage.log import scanning
    from isthmus.core_broker.storage.startup import recovery

    def scanned(file: Any, scan: Any) -> Iterator[Any]:
        for position, header in scanning.headers(file, 0, False):
            scan.take(file.pread(scanning.HEADER_SIZE, position), file.size - position, header[4])
            yield scan

    _replace(stack, recovery, "scanned", scanned)


def producers_not_recovered(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.storage.log import truncation
    from isthmus.core_broker.storage.log._producers import ProducerStates
    from isthmus.core_broker.storage.startup import recovery

    def forget(*_: Any) -> ProducerStates:
        return ProducerStates()

    _replace(stack, recovery, "load_producers", forget)
    _replace(stack, recovery, "follow_batch", forget)
    _replace(stack, truncation, "load_producers", forget)


def ack_before_write(stack: contextlib.ExitStack) -> None:
    """A producer is answered at once; its records are written a little later."""
    import asyncio

    from isthmus.core_broker.replication.partition import Partition
    from isthmus.core_broker.storage.log.append import Origin
    from isthmus.core_broker.storage.log.log import AppendInfo

    real = Partition.append
    unwritten: Counter[Any] = Counter()  # partition -> records

    def write(partition: Any, data: bytes, count: int, wall_ms: int) -> None:
        unwritten[partition] -= count
        with contextlib.suppress(Exception):
            real(partition, data, Origin.CLIENT, wall_ms)

    def append(self: Any, records: Any, origin: Any, wall_ms: int, *offset: int | None, **options: Any) -> Any:
        if origin is not Origin.CLIENT:
            return real(self, records, origin, wall_ms, *offset, **options)
        data = bytes(records)
        count = int.from_bytes(data[23:27], "big") + 1
        first = self.log.log_end_offset + unwritten[self]
        unwritten[self] += count
        asyncio.get_running_loop().call_later(0.003, write, self, data, count, wall_ms)
        # Its end is the high watermark, or the answer would wait until that has reached the records' own end.
        return AppendInfo(first, first + count - 1, self.high_watermark, -1, -1, 0, count, len(data), False)

    _replace(stack, Partition, "append", append)


def append_without_expected_offset(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.replication.partition import Partition

    real = Partition.append

    def append(self: Any, records: Any, origin: Any, wall_ms: int, expected_next_offset: int | None = None) -> Any:
        return real(self, records, origin, wall_ms, None)

    _replace(stack, Partition, "append", append)


def answers_out_of_order(stack: contextlib.ExitStack) -> None:
    """A produce request that has to wait no longer holds up the answers to those behind it."""
    from isthmus.core_broker.server.due import Due, DueAnswers

    def complete(self: Any, due: Due, answer: Any) -> list[Due]:
        due.pending, due.answer = None, answer
        there = [each for each in self if each.pending is None]
        for each in there:
            self.remove(each)
        return there

    _replace(stack, DueAnswers, "complete", complete)


def cleaned_segment_not_synced(stack: contextlib.ExitStack) -> None:
    """What compaction wrote takes the place of what it read before it is on disk."""
    from isthmus.core_broker.storage.log._segment import Segment
    from isthmus.core_broker.storage.upkeep import cleaning

    class Careless(Segment):
        def sync(self, files: Any, is_closed: bool) -> None:
            pass

    _replace(stack, cleaning, "Segment", Careless)


class _Unsynced:
    """A log as the cleaner sees it, which says that it has synced and saved its recovery point."""

    def __init__(self, log: Any) -> None:
        object.__setattr__(self, "_log", log)
        object.__setattr__(self, "status", self)

    async def sync(self) -> None:
        pass

    async def save_points(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._log, name, value)


def compaction_before_sync(stack: contextlib.ExitStack) -> None:
    """Old values go while the new ones may be in the page cache alone, and no recovery point vouches for the holes."""
    from isthmus.core_broker.storage.upkeep.cleaner import Cleaner

    real = Cleaner._clean
    _replace(stack, Cleaner, "_clean", lambda self, log, plan: real(self, _Unsynced(log), plan))  # type: ignore[arg-type]


def interrupted_swap_thrown_away(stack: contextlib.ExitStack) -> None:
    """A start takes every file that a compaction left for rubbish."""
    from isthmus.core_broker.storage.log import swap_files

    def recover(files: Any, directory: str) -> bool:
        for name in files.listdir(directory):
            if name.endswith((swap_files.SWAP, swap_files.CLEANED)):
                files.unlink(f"{directory}/{name}")
        return False

    _replace(stack, swap_files, "recover", recover)


def producers_compacted_away(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.storage.log.compaction_swap import CompactionSwap

    _replace(stack, CompactionSwap, "last_records", lambda self: {})


def written_again_in_place(stack: contextlib.ExitStack) -> None:
    """After a failed sync the same pages are written once more."""
    from isthmus.core_broker.storage.startup.recovery import _Loader

    def write_over(self: _Loader, segment: Any) -> None:
        file = segment.file
        file.pwrite(file.pread(file.size, 0), 0)
        file.sync()

    _replace(stack, _Loader, "_copy", write_over)


def restart_believes_the_page_cache(stack: contextlib.ExitStack) -> None:
    """A start after a failed sync takes what it reads for what is on the disk."""
    from isthmus.core_broker.storage.log.syncing import SYNC_FAILED
    from isthmus.core_broker.storage.startup.recovery import _Loader

    _replace(stack, _Loader, "_write_again", lambda self: self.files.unlink(f"{self.directory}/{SYNC_FAILED}"))


def return_believes_the_page_cache(stack: contextlib.ExitStack) -> None:
    """A partition that comes back by itself after a failed sync takes what it reads for what is on the disk."""
    from isthmus.core_broker.storage.log.syncing import SYNC_FAILED
    from isthmus.core_broker.storage.manager import LogManager

    real = LogManager.let_go

    async def let_go(self: LogManager, topic: str, index: int) -> None:
        await real(self, topic, index)
        self.files.unlink(f"{self.data_dir}/{topic}-{index}/{SYNC_FAILED}")

    _replace(stack, LogManager, "let_go", let_go)


def tombstones_at_once(stack: contextlib.ExitStack) -> None:
    """A tombstone goes with the first compaction that meets it, before its readers have."""
    from isthmus.core_broker.storage.upkeep import cleaning

    real = cleaning.filter_batch

    def filter_batch(buf: Any, position: int, header: Any, offsets: Any, now_ms: int, horizon_ms: int) -> Any:
        found = real(buf, position, header, offsets, now_ms, now_ms)
        data = memoryview(found.data or buf[position : position + header.size_bytes])
        return real(data, 0, cleaning.read_header(data), offsets, now_ms, now_ms) if found.kept else found

    _replace(stack, cleaning, "filter_batch", filter_batch)


def undecided_compacted(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.storage.manager import LogManager

    _replace(stack, LogManager, "_last_stable_offset", lambda self, key, log: log.log_end_offset)


# name -> how it is planted; which scenario finds it is in found_by.py
PLANTS: dict[str, Plant] = {
    **cluster_plants.PLANTS,
    **consumer_group_plants.PLANTS,
    **controller_plants.PLANTS,
    **directory_plants.PLANTS,
    **group_plants.PLANTS,
    **growth_plants.PLANTS,
    **pipeline_plants.PLANTS,
    **quorum_plants.PLANTS,
    **retention_plants.PLANTS,
    **session_plants.PLANTS,
    **stream_plants.PLANTS,
    **transaction_plants.PLANTS,
    "ack-before-write": ack_before_write,
    "answers-out-of-order": answers_out_of_order,
    "append-without-expected-offset": append_without_expected_offset,
    "cleaned-segment-not-synced": cleaned_segment_not_synced,
    "compaction-before-sync": compaction_before_sync,
    "interrupted-swap-thrown-away": interrupted_swap_thrown_away,
    "producers-compacted-away": producers_compacted_away,
    "producers-not-recovered": producers_not_recovered,
    "recovery-without-crc": recovery_without_crc,
    "restart-believes-the-page-cache": restart_believes_the_page_cache,
    "return-believes-the-page-cache": return_believes_the_page_cache,
    "tombstones-at-once": tombstones_at_once,
    "undecided-compacted": undecided_compacted,
    "written-again-in-place": written_again_in_place,
}
