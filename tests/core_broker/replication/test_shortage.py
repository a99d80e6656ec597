"""Partitions that want room come back when there is some; all of them cost what one costs while there is none."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from isthmus.core_broker.pauses import RETRY_MOST_S
from isthmus.core_broker.replication.shortage import FIRST_TRY_S, OPENED_AT_ONCE
from isthmus.protocol.messages import metadata_records as r
from tests.core_broker.storage.support import place
from tests.running import run_by

from .worlds import World, heal_in_vain, in_world, settle


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("kind", ["makedirs", "open", "append", "sync_directory"])
@run_by(in_world)
async def test_partition_that_could_not_be_made_for_want_of_room_comes_back(
    world: World, /, kind: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world.refuse(number, (kind,), part=place(str(world.path)) if kind == "sync_directory" else "/t-")
    await world.topic(0)
    assert os.strerror(number) in world.refusal().message
    assert os.strerror(number) in world.replicas.offline()["t", 0] and world.replicas.leaderless == {"t": {0}}
    assert f"t-0 is offline until the shortage is over: {world.refusal().message}" in caplog.text
    await world.tick()
    assert world.refusal() and not world.returned
    world.heal()
    await world.tick()
    assert world.append() == 0
    assert world.replicas.offline() == world.replicas.leaderless == {} and world.returned == [("t", 0)]
    assert "t-0 is online again" in caplog.text
    assert caplog.text.count("is offline") == 1  # the second refusal said nothing new
    await settle()
    assert not world.is_looking


@run_by(in_world)
async def test_control_what_is_broken_is_not_tried_again(world: World, /, caplog: pytest.LogCaptureFixture) -> None:
    world.refuse(errno.EIO)
    await world.topic(0)
    await heal_in_vain(world, caplog)


def test_a_log_that_is_there_and_could_not_be_opened_has_its_records_when_it_comes_back(
    world: World, tmp_path: Path
) -> None:
    async def fill() -> None:
        await world.topic(0)
        assert [world.append() for _ in range(3)] == [0, 1, 2]

    world.run(fill)
    after = World(tmp_path)

    async def history() -> None:
        after.refuse(errno.EMFILE, ("open",))
        await after.topic(0)
        assert "Too many open files" in after.refusal().message
        after.heal()
        await after.tick()
        assert after.replicas.get("t", 0).high_watermark == 3
        assert after.append() == 3

    after.run(history)


@run_by(in_world)
async def test_name_of_a_directory_that_a_first_try_left_is_synced(world: World, /) -> None:
    """Else a power cut takes the partition with all that was synced in it."""
    world.refuse(errno.ENOSPC, ("sync_directory",), part=place(str(world.path)))
    await world.topic(0)
    world.heal()
    before = len(world.files.calls)
    await world.tick()
    assert ("sync_directory", str(world.path)) in world.files.calls[before:]
    world.append()
    before = len(world.files.calls)
    await world.replicas.get("t", 0).log.sync()
    assert ("sync", f"{world.path}/t-0/partition.metadata") in world.files.calls[before:]


@run_by(in_world)
async def test_thousand_partitions_cost_one_try_a_turn_and_come_back_together(world: World, /) -> None:
    world.refuse(errno.ENOSPC)
    await world.topic(*range(1000))
    assert len(world.replicas.offline()) == 1000
    for _ in range(3):
        before = len(world.files.calls)
        await world.tick()
        assert len([1 for kind, _ in world.files.calls[before:] if kind == "append"]) == 1
    world.heal()
    jobs = []
    pool = world.files.run

    async def counted(work: Any, *arguments: Any) -> Any:
        jobs.append(work)
        return await pool(work, *arguments)

    world.files.run = counted  # type: ignore[method-assign]
    await world.tick()
    await world.ended()
    assert world.replicas.offline() == {} and len(world.returned) == 1000
    assert len(jobs) == 1 + -(-999 // OPENED_AT_ONCE)


@run_by(in_world)
async def test_one_that_finds_no_room_does_not_keep_others_from_being_tried(world: World, /) -> None:
    world.refuse(errno.ENOSPC)
    await world.topic(0, 1, 2)
    world.refuse(errno.ENOSPC, part="/t-0")  # a file system of its own, say
    await world.tick(2)
    assert list(world.replicas.offline()) == [("t", 0)]
    world.heal()
    await world.tick()
    assert world.replicas.offline() == {}


@run_by(in_world)
async def test_tries_are_ever_rarer_but_never_end(world: World, /) -> None:
    world.refuse(errno.ENOSPC)
    await world.topic(0)
    await world.tick(9)
    assert world.pauses.lengths_s == [FIRST_TRY_S * 2**n for n in range(8)] + [RETRY_MOST_S] * 2
    world.heal()
    await world.tick()
    assert world.replicas.offline() == {}


@run_by(in_world)
async def test_options_and_epochs_that_changed_meanwhile_hold(world: World, /) -> None:
    world.refuse(errno.ENOSPC)
    await world.topic(0)
    await world.feed(r.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"))
    world.heal()
    await world.tick()
    served = world.replicas.get("t", 0)
    assert (served.log.config.retention_ms, served.configs["retention.ms"]) == (5, 5)
