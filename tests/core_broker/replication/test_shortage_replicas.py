"""Replicas that lack space: when they are given up, and when they are used again. This broker is 1."""

from __future__ import annotations

import errno

import pytest

from isthmus.core_broker.replication import shortage
from isthmus.core_broker.replication.shortage import Space
from isthmus.core_broker.replication.states import State
from isthmus.core_broker.storage.log.append import Origin
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.messages import metadata_records as r
from isthmus.runtime import system
from tests.running import run_by

from .worlds import BATCH, ID, World, in_world, settle


async def replicated(world: World, leader: int) -> None:
    """t-0 is on brokers 1 and 2."""
    await world.feed(
        r.TopicRecord(name="t", topic_id=ID),
        r.PartitionRecord(
            partition_id=0, topic_id=ID, replicas=[1, 2], isr=[1, 2], leader=leader, leader_epoch=0,
            partition_epoch=0, directories=[bytes(16), bytes(16)],
        ),
    )  # fmt: skip


def copy(world: World) -> None:
    world.replicas.held("t", 0).append(BATCH, Origin.REPLICATION, system().wall_ms())


def refused(world: World, leader: int) -> None:
    world.refuse(errno.ENOSPC)
    with pytest.raises(KafkaError):
        world.append() if leader == 1 else copy(world)


@pytest.mark.parametrize(
    ("leader", "state", "found"),
    [
        (1, State.READ_ONLY, [Space.UNSURE, Space.UNSURE, Space.NONE]),
        (2, State.STALLED, [Space.UNSURE, Space.NONE, Space.NONE]),
    ],
)
@run_by(in_world)
async def test_follower_is_given_up_before_the_leader(
    world: World, /, leader: int, state: State, found: list[Space]
) -> None:
    changes: list[Space] = []
    world.replicas.space_changed.add(lambda topic, index: changes.append(world.replicas.space(topic, index)))
    await replicated(world, leader)
    assert world.replicas.space("t", 0) is Space.ENOUGH
    refused(world, leader)
    assert world.replicas.held("t", 0).state is state
    assert "No space left" in world.replicas.offline()["t", 0]
    assert world.replicas.space("t", 0) is found[0]
    await world.tick(2)
    assert changes == found[1:]


@pytest.mark.parametrize("leader", [1, 2])
@run_by(in_world)
async def test_replica_that_was_given_up_is_used_again_when_space_has_lasted(
    world: World, /, leader: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await replicated(world, leader)
    refused(world, leader)
    await world.tick(2)
    world.heal()
    await world.tick()
    assert world.replicas.held("t", 0).state is (State.LEADING if leader == 1 else State.FOLLOWING)
    assert world.replicas.offline() == {} and world.replicas.space("t", 0) is Space.UNSURE
    refused(world, leader)
    assert world.replicas.space("t", 0) is Space.NONE  # it was given up already
    world.heal()
    monkeypatch.setattr(shortage, "SPACE_LASTS_S", 0.0)
    await settle()  # the refusal has it tried at once
    await world.ended()
    assert world.replicas.space("t", 0) is Space.ENOUGH


@pytest.mark.parametrize("leader", [1, 2])
@run_by(in_world)
async def test_append_that_goes_through_before_a_try_in_vain_changes_nothing(world: World, /, leader: int) -> None:
    await replicated(world, leader)
    refused(world, leader)
    world.heal()
    world.append() if leader == 1 else copy(world)
    assert world.replicas.offline() == {} and world.replicas.held("t", 0).reason is None
    await world.tick()
    assert world.replicas.space("t", 0) is Space.ENOUGH and not world.is_looking


@run_by(in_world)
async def test_leader_that_gave_up_still_lacks_space_as_a_follower(world: World, /) -> None:
    await replicated(world, leader=1)
    refused(world, leader=1)
    await world.tick(2)
    await world.feed(r.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=2, isr=[2]))
    partition = world.replicas.held("t", 0)
    assert partition.state is State.STALLED and world.replicas.space("t", 0) is Space.NONE
    assert "No space left" in world.replicas.offline()["t", 0]
    world.heal()
    await world.tick()
    assert partition.state is State.FOLLOWING
