"""The simulated disk: a crash loses exactly what was not synced, in any of the ways a disk may lose it."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable

import pytest

from isthmus.core_broker.storage.disk.files import DirectoryLocked
from tests.running import run_by

from .files import SimFiles
from .hosts import ProcessKilled
from .inode import PAGE_BYTES, Inode
from .runner import Simulation, run_checked


def test_a_kill_loses_nothing_and_a_power_cut_loses_what_was_not_synced() -> None:
    async def scenario(sim: Simulation) -> None:
        machine = sim.machine("a")
        files = machine.start().files
        files.makedirs("/data")
        files.sync_directory("/")
        log = files.open("/data/log")
        log.append([b"synced "])
        log.sync()
        files.sync_directory("/data")
        log.append([b"unsynced"])
        machine.kill()
        files = machine.start().files
        assert files.read("/data/log") == b"synced unsynced"
        machine.kill(power=True)
        kept = machine.start().files.read("/data/log")
        assert kept.startswith(b"synced ") and b"synced unsynced".startswith(kept.rstrip(b"\0"))

    for seed in range(30):
        run_checked(scenario, seed)


def test_all_ways_of_losing_a_tail_happen() -> None:
    outcomes = set()
    for seed in range(300):
        inode = Inode(1, "/x")
        inode.write(0, b"a" * 6000)
        inode.sync()
        inode.write(6000, b"b" * 6000)
        how, _ = inode.crash(random.Random(seed))
        data = bytes(inode.data)
        assert data[:6000] == b"a" * 6000, how
        assert set(data[6000:]) <= set(b"b\0")
        outcomes.add(how)
        if how == "torn":
            assert set(data[6000:]) <= set(b"b")
            outcomes.add("torn inside" if 6000 < len(data) < 12000 else "torn at an end")
        if how == "mixed" and b"\0" in data:
            outcomes.add("zeros")
    assert outcomes == {"lost", "kept", "torn", "mixed", "torn inside", "torn at an end", "zeros"}


def test_random_changes_always_leave_the_durable_content_known() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        inode = Inode(1, "/x")
        durable = b""
        for _ in range(60):
            action = chance.random()
            if action < 0.5:
                inode.write(chance.randint(0, len(inode.data)), chance.randbytes(chance.randint(1, 3 * PAGE_BYTES)))
            elif action < 0.7:
                inode.truncate(chance.randint(0, len(inode.data) + PAGE_BYTES))
            elif action < 0.8:
                inode.sync()
                durable = bytes(inode.data)
            assert inode.durable() == durable


def left_by_power_cuts(change: Callable[[SimFiles], None], seeds: int = 60) -> set[tuple[str, ...]]:
    """The names in /d after changes that no sync followed. Before them /d has `one` and `two`, on disk."""
    seen = set()

    async def scenario(sim: Simulation) -> None:
        machine = sim.machine("a")
        files = machine.start().files
        files.makedirs("/d")
        files.sync_directory("/")
        for name in ("one", "two"):
            files.open(f"/d/{name}").sync()
        change(files)
        machine.kill(power=True)
        seen.add(tuple(machine.start().files.listdir("/d")))

    for seed in range(seeds):
        run_checked(scenario, seed)
    return seen


def test_a_power_cut_takes_each_change_of_a_name_by_itself() -> None:
    def change(files: SimFiles) -> None:
        files.rename("/d/one", "/d/uno")
        files.unlink("/d/two")
        files.open("/d/three").append([b"x"])

    assert left_by_power_cuts(change) == {
        tuple(sorted((one, *two, *three)))
        for one in ("one", "uno")
        for two in ((), ("two",))
        for three in ((), ("three",))
    }


def test_changes_of_one_name_keep_their_order() -> None:
    def change(files: SimFiles) -> None:
        files.open("/d/new").append([b"x"])
        files.rename("/d/new", "/d/newer")
        files.unlink("/d/one")
        files.rename("/d/two", "/d/one")

    assert left_by_power_cuts(change) == {
        tuple(sorted((*new, *old)))
        for new in ((), ("new",), ("newer",))
        for old in (("one", "two"), ("two",), ("one",))
    }


def test_the_sync_of_a_directory_covers_neither_its_parent_nor_its_children() -> None:
    seen = set()

    async def scenario(sim: Simulation) -> None:
        machine = sim.machine("a")
        files = machine.start().files
        files.makedirs("/d/e")
        files.open("/d/e/file").append([b"x"])
        files.sync_directory("/d")
        machine.kill(power=True)
        files = machine.start().files
        seen.add((files.exists("/d"), files.exists("/d/e"), files.exists("/d/e/file")))

    for seed in range(40):
        run_checked(scenario, seed)
    assert seen == {(False, False, False), (True, True, False), (True, True, True)}


def test_the_sync_of_a_file_keeps_the_name_of_who_made_it_alone() -> None:
    def change(files: SimFiles) -> None:
        made = files.open("/d/three")
        files.open("/d/three").sync()  # another handle: it has not made it
        files.rename("/d/one", "/d/uno")
        assert made.size == 0

    lost = ("one", "two"), ("two", "uno")
    assert left_by_power_cuts(change) >= {*lost}

    def keep(files: SimFiles) -> None:
        files.open("/d/three").sync()
        files.rename("/d/three", "/d/four")

    assert left_by_power_cuts(keep) == {("one", "three", "two"), ("four", "one", "two")}


def test_write_atomic_leaves_the_old_or_the_new_content_at_every_crash_point() -> None:
    seen: set[object] = set()

    async def scenario(sim: Simulation) -> None:
        machine = sim.machine("a")
        files = machine.start().files
        files.write_atomic("/meta", b"old")
        machine.kill_at_disk_operation(sim.seed)
        try:
            files.write_atomic("/meta", b"new")
        except ProcessKilled:
            seen.add(machine.start().files.read("/meta"))
        else:
            seen.add("finished")
            machine.kill(power=True)
            assert machine.start().files.read("/meta") == b"new"

    for seed in range(1, 20):
        run_checked(scenario, seed)
    assert seen == {b"old", b"new", "finished"}


def test_pooled_calls_complete_on_the_simulated_clock_and_cover_only_what_came_before() -> None:
    lost = 0

    async def scenario(sim: Simulation) -> None:
        nonlocal lost
        machine = sim.machine("a")
        process = machine.start()

        async def body() -> None:
            log = process.files.open("/log")
            log.append([b"before"])
            before = sim.loop.time()
            waiter = asyncio.ensure_future(process.files.run(log.sync))
            await asyncio.sleep(0.001)
            log.append([b"after"])
            await waiter
            assert sim.loop.time() > before

        await process.outcome(body())
        machine.kill(power=True)
        content = machine.start().files.read("/log")
        assert content.startswith(b"before")
        lost += not content.endswith(b"after")

    for seed in range(30):
        run_checked(scenario, seed)
    assert lost > 3


@run_by(run_checked)
async def test_a_dead_process_touches_nothing(sim: Simulation, /) -> None:
    machine = sim.machine("a")
    process = machine.start()
    log = process.files.open("/log")
    pending = process.outcome(process.files.run(log.append, [b"late"]))
    await asyncio.sleep(0)
    machine.kill()
    with pytest.raises(ProcessKilled):
        log.append([b"x"])
    with pytest.raises(ProcessKilled):
        process.files.unlink("/log")
    await asyncio.sleep(1)
    with pytest.raises(ProcessKilled):
        await pending
    assert machine.start().files.read("/log") == b""


def test_full_disk_and_planned_errors() -> None:
    async def scenario(sim: Simulation) -> None:
        machine = sim.machine("a")
        files = machine.start().files
        log = files.open("/log")
        machine.disk.capacity_bytes = 10
        log.append([b"12345"])
        with pytest.raises(OSError) as caught:
            log.append([b"123456"])
        assert caught.value.errno == errno.ENOSPC and log.size == 5
        machine.disk.fail("sync", errno.EIO, containing="log")
        with pytest.raises(OSError):
            log.sync()
        log.sync()  # says all is well, as Linux does; it is not
        machine.kill(power=True)
        assert b"12345".startswith(machine.start().files.read("/log").rstrip(b"\0") if files else b"")

    for seed in range(10):
        run_checked(scenario, seed)


@run_by(run_checked)
async def test_locks_exclude_and_end_with_their_process(sim: Simulation, /) -> None:
    machine = sim.machine("a")
    files = machine.start().files
    held = files.lock("/.lock")
    with pytest.raises(DirectoryLocked):
        files.lock("/.lock")
    held.release()
    files.lock("/.lock")
    machine.kill()
    machine.start().files.lock("/.lock")
