"""A change of the cluster's metadata, or a stop, beside a try to open what wanted room."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

from isthmus.protocol.messages import metadata_records as r
from tests.running import run_by

from .worlds import ID, OTHER_ID, World, at_a_try, during_a_try, in_world, partition, settle


@run_by(in_world)
async def test_topic_that_is_deleted_during_a_try_is_gone(world: World, /) -> None:
    await during_a_try(world, lambda: world.feed(r.RemoveTopicRecord(topic_id=ID)))
    assert world.replicas.offline() == {} and not world.is_looking and not world.returned
    assert world.logs.get("t", 0) is None
    assert not (world.path / "t-0").exists()


@run_by(in_world)
async def test_topic_that_is_deleted_and_made_again_during_a_try_is_the_new_one(world: World, /) -> None:
    async def change() -> None:
        await world.feed(
            r.RemoveTopicRecord(topic_id=ID),
            r.TopicRecord(name="t", topic_id=OTHER_ID),
            partition(0, OTHER_ID),
        )

    await during_a_try(world, change)
    assert world.replicas.get("t", 0).topic_id == OTHER_ID
    assert not world.returned  # the old one's log was not served under the new one's id
    assert world.append() == 0 and world.replicas.offline() == {}


@run_by(in_world)
async def test_leader_epoch_that_rises_during_a_try_is_taken(world: World, /) -> None:
    change = r.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=1)
    await during_a_try(world, lambda: world.feed(change))
    assert world.replicas.get("t", 0).leader_epoch == 1
    assert world.append() == 0


@run_by(in_world)
async def test_options_that_change_during_a_try_hold(world: World, /) -> None:
    gate = await at_a_try(world)
    await world.feed(r.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"))
    gate.is_open.set()
    await world.ended()
    served = world.replicas.get("t", 0)
    assert (served.log.config.retention_ms, served.configs["retention.ms"]) == (5, 5)


@run_by(in_world)
async def test_other_topics_do_not_wait_for_a_try(world: World, /) -> None:
    gate = await at_a_try(world)
    await world.feed(r.TopicRecord(name="u", topic_id=OTHER_ID), partition(0, OTHER_ID))
    assert world.replicas.get("u", 0).high_watermark == 0
    gate.is_open.set()


def test_deletion_takes_the_files_of_what_could_not_be_opened(world: World, tmp_path: Path) -> None:
    async def fill() -> None:
        await world.topic(0)
        world.append()

    world.run(fill)
    after = World(tmp_path)

    async def history() -> None:
        after.refuse(errno.ENOSPC, ("open",))
        await after.topic(0)
        assert (tmp_path / "t-0").exists()
        after.heal()
        await after.feed(r.RemoveTopicRecord(topic_id=ID))
        assert not (tmp_path / "t-0").exists()

    after.run(history)


@run_by(in_world)
async def test_stop_waits_for_the_try_that_is_under_way(world: World, /) -> None:
    gate = await at_a_try(world)
    stopping = asyncio.ensure_future(world.replicas.close())
    await settle()
    assert not stopping.done()
    gate.is_open.set()
    await stopping
    assert not world.is_looking
