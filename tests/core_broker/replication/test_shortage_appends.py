"""Partitions that serve what they have and take no appends for want of room."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from isthmus.protocol.messages import metadata_records as r
from tests.running import run_by

from .worlds import BATCH, ID, Gate, World, in_world, settle


@run_by(in_world)
async def test_partition_that_takes_no_appends_is_told_as_offline_until_there_is_space(
    world: World, /, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await world.topic(0, 1)
    world.append()
    world.refuse(errno.ENOSPC, part="/t-0")
    for _ in range(3):
        world.refusal()
    (key, reason), *others = world.replicas.offline().items()
    assert key == ("t", 0) and not others
    assert "takes no appends" in reason and "No space left on device" in reason
    assert caplog.text.count("t-0 takes no appends while this lasts: cannot append to") == 1
    assert world.append(1) == 0
    assert world.replicas.get("t", 0).read(0, 1000).size_bytes == len(BATCH)  # it is read as ever
    await world.tick()
    assert list(world.replicas.offline()) == [("t", 0)] and world.replicas.leaderless == {}  # it is read as ever
    world.heal()
    await world.tick()  # nobody has appended
    assert world.replicas.offline() == {}
    assert "t-0 takes appends again" in caplog.text
    assert world.append() == 1
    assert sorted(path.name for path in (world.path / "t-0").iterdir() if path.suffix == ".tmp") == []


@run_by(in_world)
async def test_append_that_goes_through_ends_it_at_once(world: World, /) -> None:
    await world.topic(0)
    world.refuse(errno.EMFILE)
    world.refusal()
    world.heal()
    assert world.append() == 0
    assert world.replicas.offline() == {}
    await world.tick()
    assert not world.is_looking
    assert not [path for _, path in world.files.calls if path.endswith("space.tmp")]


@run_by(in_world)
async def test_as_much_is_tried_as_was_refused(world: World, /, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for less would only have the next append refused, and told, again."""
    tried = []

    async def try_space(sync: Any, size_bytes: int) -> None:
        tried.append(size_bytes)

    monkeypatch.setattr("isthmus.core_broker.storage.log.syncing.LogSync.try_space", try_space)
    await world.topic(0)
    world.refuse(errno.ENOSPC)
    world.refusal()
    await world.tick()
    assert tried == [len(BATCH)]


@run_by(in_world)
async def test_try_that_finds_the_disk_broken_takes_the_partition_offline(world: World, /) -> None:
    await world.topic(0)
    world.refuse(errno.ENOSPC)
    world.refusal()
    world.refuse(errno.EIO)
    await world.tick()
    world.heal()
    assert "Input/output error" in world.replicas.offline()["t", 0] and world.replicas.leaderless == {"t": {0}}
    assert "Input/output error" in world.refusal().message
    assert not world.is_looking


@run_by(in_world)
async def test_broken_disk_is_told_once_and_not_as_want_of_space(
    world: World, /, caplog: pytest.LogCaptureFixture
) -> None:
    await world.topic(0)
    world.refuse(errno.EIO)
    world.refusal()
    assert "takes no appends" not in caplog.text
    assert caplog.text.count("t-0 is offline until the broker starts again") == 1
    assert not world.is_looking


@run_by(in_world)
async def test_thousand_that_take_no_appends_cost_one_try_a_turn(world: World, /) -> None:
    await world.topic(*range(1000))
    world.refuse(errno.ENOSPC)
    for index in range(1000):
        world.refusal(index)
    before = len(world.files.calls)
    await world.tick()
    assert len([1 for kind, _ in world.files.calls[before:] if kind == "append"]) == 1
    world.heal()
    await world.tick()
    await world.ended()
    assert world.replicas.offline() == {}


@run_by(in_world)
async def test_deleted_partition_is_not_tried(world: World, /) -> None:
    await world.topic(0)
    world.refuse(errno.ENOSPC)
    world.refusal()
    world.heal()
    await world.feed(r.RemoveTopicRecord(topic_id=ID))
    await world.tick()
    assert not world.is_looking
    assert not [path for _, path in world.files.calls if path.endswith("space.tmp")]


@pytest.mark.parametrize("what", ["was deleted", "broke", "took an append"])
@run_by(in_world)
async def test_partition_that_refuses_no_more_when_its_try_ends_is_not_said_to_be_online_again(
    world: World, /, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await world.topic(0)
    world.refuse(errno.ENOSPC)
    world.refusal()
    assert caplog.text.count("t-0 takes no appends while this lasts") == 1
    world.heal()
    gate = Gate(world.files)
    await world.tick()
    assert gate.is_reached.is_set()
    partition = world.replicas.get("t", 0)
    changing = None
    if what == "was deleted":
        changing = asyncio.ensure_future(world.feed(r.RemoveTopicRecord(topic_id=ID)))
        await settle()
    elif what == "broke":
        partition.log.status.fail(OSError(errno.EIO, "Input/output error"), "cannot sync")
    else:
        assert world.append() == 0
    state = partition.state
    said = caplog.text.count("t-0 takes appends again")
    assert said == (what == "took an append")  # by the append itself
    gate.is_open.set()
    if changing is not None:
        await changing
    await settle()
    assert partition.state is state and not world.is_looking
    assert caplog.text.count("t-0 takes appends again") == said
