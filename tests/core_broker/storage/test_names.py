"""Names after a power cut: what was promised is there, and what is removed or replaced goes in a safe order.

The simulated disk loses each change of a name by itself. A test with `at_every_cut` ends the power at each operation of
a piece of work, several times with other losses, and looks at what the next start finds.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from isthmus.core_broker.storage.disk.small_files import CLEAN_SHUTDOWN
from isthmus.core_broker.storage.log import swap_files
from isthmus.core_broker.storage.log._segment import Segment
from isthmus.core_broker.storage.log.epochs import EPOCH_CHECKPOINT
from isthmus.core_broker.storage.log.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from isthmus.core_broker.storage.log.index_files import AbortedTransaction
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.log.snapshots import write_snapshot
from isthmus.core_broker.storage.log.transactions import TransactionIndex
from isthmus.core_broker.storage.manager import LogManager
from isthmus.core_broker.storage.startup.opening import open_log
from isthmus.protocol.errors import ErrorCode, KafkaError
from tests.running import run_by
from tests.simulation.hosts import Machine, Process, ProcessKilled
from tests.simulation.runner import Simulation, run

from .support import NOW_MS, append, at, batch

DIRECTORY = "/data/t-0"
SEEDS = 30  # draws of what a power cut takes
CONFIG = LogConfig(segment_bytes=200, index_interval_bytes=50, retention_ms=-1)

Work = Callable[[Process], Awaitable[Any]]


def after_power_cuts(work: Callable[[Machine], Awaitable[None]], seeds: int = SEEDS) -> None:
    async def scenario(sim: Simulation) -> None:
        await work(sim.machine("a"))

    for seed in range(seeds):
        result = run(seed, scenario)
        assert result.error is None, f"seed {seed}: {result.error}"


def at_every_cut(prepare: Work, work: Work, look: Work, seeds: int = 6) -> None:
    """`work` after `prepare`, cut at its n-th operation, for each n, then `look`, which may be cut once, too."""
    point, finished = 0, 0
    while not finished:
        point += 1

        async def scenario(sim: Simulation, point: int = point) -> None:
            nonlocal finished
            machine = sim.machine("a")
            process = machine.start()
            await process.outcome(prepare(process))
            for each, number in ((work, point), (look, sim.random.randint(1, 12))):
                machine.kill_at_disk_operation(number)
                try:
                    await machine.process.outcome(each(machine.process))
                except ProcessKilled:
                    machine.start()
                else:
                    finished += each is work
            machine.disk.crash_countdown = 0
            await machine.process.outcome(look(machine.process))

        for seed in range(seeds):
            result = run(1000 * point + seed, scenario)
            assert result.error is None, f"cut at operation {point}, seed {seed}: {result.error}"


def suffixes(files: Any, base: int) -> list[str]:
    """Which files of a segment are there."""
    return [suffix for suffix in SEGMENT_SUFFIXES if files.exists(f"{DIRECTORY}/{file_name(base, suffix)}")]


def closed_segment(files: Any, base: int, size: int = 10, has_aborted: bool = True) -> None:
    """Ten offsets in one batch, with three or all four files, synced but for the names."""
    segment = Segment.create(files, DIRECTORY, base, NOW_MS)
    data = at(batch(10, size=size), base)
    segment.file.append([data])
    segment.note(0, len(data), base + 9, NOW_MS, 1)
    if has_aborted:
        TransactionIndex.append(files, segment, AbortedTransaction(7, base, base + size, base))
    segment.close_indexes(files)
    segment.sync(files, True)


# --- What a call has promised -----------------------------------------------------------------------------------------


@run_by(after_power_cuts)
async def test_what_was_synced_is_there_by_name_from_the_data_directory_on(machine: Machine, /) -> None:
    process = machine.start()
    log = await open_log(process.files, DIRECTORY, CONFIG)
    append(log, batch())
    await log.sync()
    machine.kill(power=True)
    assert (await open_log(machine.start().files, DIRECTORY, CONFIG)).log_end_offset == 1


@run_by(after_power_cuts)
async def test_a_directory_that_a_killed_process_made_is_there_by_name_too(machine: Machine, /) -> None:
    machine.start().files.makedirs(DIRECTORY.rpartition("/")[0])
    machine.kill()
    process = machine.start()
    manager = LogManager(process.files, "/data", process.runtime)
    await manager.open(1)
    machine.kill(power=True)
    assert machine.start().files.exists("/data/meta.properties")


async def opened(machine: Machine) -> LogManager:
    process = machine.start()
    manager = LogManager(process.files, "/data", process.runtime)
    await manager.open(1)
    return manager


@run_by(after_power_cuts)
async def test_a_partition_is_there_when_it_was_made(machine: Machine, /) -> None:
    manager = await opened(machine)
    log = await manager.create("t", 0, b"i" * 16, CONFIG)
    append(log, batch())
    await log.sync()
    machine.kill(power=True)
    manager = await opened(machine)
    assert manager.found() == [("t", 0)] and manager.topic_id("t", 0) == b"i" * 16


@pytest.mark.parametrize("operations", range(1, 10))
@run_by(after_power_cuts)
async def test_a_partition_that_a_killed_process_made_is_there_when_its_log_is_synced(
    machine: Machine, /, operations: int
) -> None:
    """The process ends within `create` or after it. The next one finds what it made in the page cache."""
    manager = await opened(machine)
    machine.kill_at_disk_operation(operations, power=False)
    try:
        await machine.process.outcome(manager.create("t", 0, b"i" * 16, CONFIG))
    except ProcessKilled:
        machine.sim.counters["killed"] += 1
    else:
        machine.kill()
    machine.disk.crash_countdown = 0
    manager = await opened(machine)
    log = await manager.create("t", 0, b"i" * 16, CONFIG)
    append(log, batch())
    await log.sync()
    machine.kill(power=True)
    manager = await opened(machine)
    assert manager.found() == [("t", 0)]
    assert (await manager.create("t", 0, b"i" * 16, CONFIG)).log_end_offset == 1


@pytest.mark.parametrize("left", [INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX])
@run_by(after_power_cuts, seeds=1)
async def test_a_producer_is_told_of_its_loss_whichever_name_is_left(machine: Machine, /, left: str) -> None:
    """None of the names was on disk. The power cut has taken the segment and left a file that was made after it."""
    manager = await opened(machine)
    log = await manager.create("t", 0, b"i" * 16, CONFIG)
    append(log, batch(3, producer_id=7, producer_epoch=0, base_sequence=0))
    log.active_segment.write_indexes(machine.process.files)
    write_snapshot(machine.process.files, DIRECTORY, 3, log.producers)
    machine.kill()
    files = machine.start().files
    for name in files.listdir(DIRECTORY):
        if not name.endswith(left):
            files.unlink(f"{DIRECTORY}/{name}")
    files.sync_directory(DIRECTORY)
    machine.kill(power=True)
    log = await (await opened(machine)).create("t", 0, b"i" * 16, CONFIG)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    with pytest.raises(KafkaError) as told:
        append(log, batch(producer_id=7, producer_epoch=0, base_sequence=3))
    assert told.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, batch(producer_id=8, producer_epoch=0, base_sequence=0))  # one that has lost nothing


@run_by(after_power_cuts)
async def test_a_partition_is_gone_when_it_was_deleted(machine: Machine, /) -> None:
    manager = await opened(machine)
    await manager.create("t", 0, b"i" * 16, CONFIG)
    await manager.delete("t", 0)
    machine.kill(power=True)
    assert (await opened(machine)).found() == []


@run_by(after_power_cuts)
async def test_a_clean_stop_is_believed_once(machine: Machine, /) -> None:
    process = machine.start()
    manager = LogManager(process.files, "/data", process.runtime)
    await manager.open(1)
    log = await manager.create("t", 0, b"i" * 16, CONFIG)
    for _ in range(3):
        append(log, batch())
    await manager.close()
    machine.kill(power=True)

    process = machine.start()
    assert process.files.exists(f"/data/{CLEAN_SHUTDOWN}")
    assert {*SEGMENT_SUFFIXES[:3]} == {*suffixes(process.files, 0)}
    assert process.files.exists(f"{DIRECTORY}/{EPOCH_CHECKPOINT}")
    manager = LogManager(process.files, "/data", process.runtime)
    await manager.open(1)
    assert manager.was_clean
    machine.kill(power=True)
    assert not machine.start().files.exists(f"/data/{CLEAN_SHUTDOWN}")


@run_by(after_power_cuts)
async def test_the_indexes_of_a_closed_segment_are_there_when_the_log_is_synced(machine: Machine, /) -> None:
    files = machine.start().files
    log = await open_log(files, DIRECTORY, CONFIG)
    append(log, batch())
    await log.sync()  # the directory, too: before there are indexes
    TransactionIndex.append(files, log.active_segment, AbortedTransaction(7, 0, 0, 0))
    append(log, batch(size=100))
    await log.syncing.sync_closed()
    assert log.recovery_point == 1
    machine.kill(power=True)
    assert suffixes(machine.start().files, 0) == [*SEGMENT_SUFFIXES]


@run_by(after_power_cuts)
async def test_the_aborted_transactions_of_the_active_segment_are_there_when_the_log_is_synced(
    machine: Machine, /
) -> None:
    files = machine.start().files
    log = await open_log(files, DIRECTORY, CONFIG)
    append(log, batch())
    await log.sync()  # the directory, too: before there is such an index
    TransactionIndex.append(files, log.active_segment, AbortedTransaction(7, 0, 0, 0))
    append(log, batch())
    await log.sync()
    append(log, batch(size=100))  # closes it: all of it is before the recovery point, so that a start believes it
    machine.kill(power=True)
    assert TRANSACTION_INDEX_SUFFIX in suffixes(machine.start().files, 0)


# --- The order of removals --------------------------------------------------------------------------------------------


def test_retention_leaves_no_gap_and_no_segment_without_its_aborted_transactions() -> None:
    bases = [0, 10, 20, 30]
    with_aborted = 20

    async def prepare(process: Process) -> None:
        process.files.makedirs(DIRECTORY)
        for base in bases:
            closed_segment(process.files, base, has_aborted=base == with_aborted)
        process.files.sync_directory(DIRECTORY)
        process.files.sync_directory("/data")
        process.files.sync_directory("/")

    async def work(process: Process) -> None:
        log = await open_log(process.files, DIRECTORY, CONFIG, recovery_point=40, clean=True)
        log.advance_start(30)
        await log.enforce_retention(40, NOW_MS)
        assert log.segments_count == 1

    async def look(process: Process) -> None:
        found = [base for base in bases if LOG_SUFFIX in suffixes(process.files, base)]
        assert found == bases[-len(found) :]
        assert with_aborted not in found or TRANSACTION_INDEX_SUFFIX in suffixes(process.files, with_aborted)

    at_every_cut(prepare, work, look)


# --- Compaction -------------------------------------------------------------------------------------------------------

OLD_BYTES, NEW_BYTES = 10, 20  # a record's


async def two_old_segments(process: Process) -> None:
    process.files.makedirs(DIRECTORY)
    closed_segment(process.files, 0, size=OLD_BYTES)
    closed_segment(process.files, 10, size=OLD_BYTES)
    for path in (DIRECTORY, "/data", "/"):
        process.files.sync_directory(path)


def new_and_old(process: Process) -> tuple[Segment, list[Segment]]:
    files = process.files
    old = []
    for base in (0, 10):
        segment = Segment.open_trusted(files, DIRECTORY, base, NOW_MS, base + 10)
        assert segment is not None
        old.append(segment)
    new = Segment.create(files, DIRECTORY, 0, NOW_MS, swap_files.CLEANED)
    data = at(batch(20, size=NEW_BYTES), 0)
    new.file.append([data])
    new.file.sync()  # as of a large one: the names of its indexes come after it
    new.note(0, len(data), 19, NOW_MS, 1)
    TransactionIndex.append(files, new, AbortedTransaction(7, 0, NEW_BYTES, 0))
    new.write_indexes(files)
    new.sync(files, True)
    return new, old


async def all_old_or_all_new(process: Process) -> None:
    files = process.files
    swap_files.recover(files, DIRECTORY)
    names = files.listdir(DIRECTORY)
    assert not [name for name in names if name.endswith((swap_files.CLEANED, swap_files.SWAP))]
    logs = [name for name in names if name.endswith(LOG_SUFFIX)]
    is_new = files.size(f"{DIRECTORY}/{logs[0]}") == len(batch(20, size=NEW_BYTES))
    assert logs == [file_name(base, LOG_SUFFIX) for base in ((0,) if is_new else (0, 10))]
    for base in (0,) if is_new else (0, 10):
        # Indexes of offsets and times can be made anew; what is known of aborted transactions cannot.
        assert TRANSACTION_INDEX_SUFFIX in suffixes(files, base)
        segment = Segment(files.open(f"{DIRECTORY}/{file_name(base, LOG_SUFFIX)}"), DIRECTORY, base, NOW_MS)
        (aborted,) = TransactionIndex.read(files, segment)
        assert aborted.last_offset == base + (NEW_BYTES if is_new else OLD_BYTES)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            if suffix in suffixes(files, base):
                trusted = Segment.open_trusted(files, DIRECTORY, base, NOW_MS, None)
                assert trusted is None or trusted.last_offset == base + (19 if is_new else 9)


def test_a_compaction_leaves_the_old_segments_or_the_new_one() -> None:
    async def work(process: Process) -> None:
        new, old = new_and_old(process)
        swap_files.decide(process.files, new, old)
        swap_files.finish(process.files, new, old)

    at_every_cut(two_old_segments, work, all_old_or_all_new)


@run_by(after_power_cuts)
async def test_a_compaction_is_not_decided_while_a_file_of_it_may_be_lost(machine: Machine, /) -> None:
    process = machine.start()
    await two_old_segments(process)
    new, old = new_and_old(process)
    machine.disk.fail("syncdir", errno.EIO, after=1)
    with pytest.raises(OSError):
        swap_files.decide(process.files, new, old)  # all has its new name, and none of that is on disk
    machine.kill(power=True)
    await all_old_or_all_new(machine.start())


@pytest.mark.parametrize("renames", [1, 3, 4])
def test_a_compaction_that_is_given_up_leaves_the_old_segments(renames: int) -> None:
    """The disk refuses one of the four renames, or the sync of the directory after them."""

    async def work(process: Process) -> None:
        new, old = new_and_old(process)
        if renames < 4:
            process.machine.disk.fail("rename", errno.EIO, after=renames)
        else:
            process.machine.disk.fail("syncdir", errno.EIO, after=1)
        with pytest.raises(OSError):
            swap_files.decide(process.files, new, old)
        swap_files.discard(process.files, new)
        machine = process.machine
        assert not [
            name for name in process.files.listdir(DIRECTORY) if name.endswith((swap_files.CLEANED, swap_files.SWAP))
        ]
        machine.disk.crash_point(process)

    at_every_cut(two_old_segments, work, all_old_or_all_new)
