"""A follower that cuts its log off waits for its disk. If it is elected meanwhile, the log is a leader's: nothing of it
goes. This broker is 1."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from isthmus.core_broker.replication.partition import Partition
from isthmus.core_broker.storage.log.append import Origin
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import metadata_records as r
from isthmus.runtime import system
from tests.running import run_by

from .worlds import BATCH, ID, Gate, World, in_world, settle

Cut = Callable[[Partition], Awaitable[None]]


@pytest.mark.parametrize("leader", [1, 3])
@pytest.mark.parametrize(
    "cut", [lambda held: held.truncate_to(0), lambda held: held.begin_again_at(7)], ids=["truncate", "begin again"]
)
@run_by(in_world)
async def test_nothing_is_cut_off_once_another_leader_is_known(world: World, /, cut: Cut, leader: int) -> None:
    await world.feed(
        r.TopicRecord(name="t", topic_id=ID),
        r.PartitionRecord(
            partition_id=0, topic_id=ID, replicas=[1, 2, 3], isr=[1, 2, 3], leader=2, leader_epoch=0, partition_epoch=0,
            directories=[bytes(16)] * 3,
        ),
    )  # fmt: skip
    held = world.replicas.held("t", 0)
    held.append(BATCH, Origin.REPLICATION, system().wall_ms())
    gate = Gate(world.files)
    cutting = asyncio.ensure_future(cut(held))
    await gate.is_reached.wait()
    await world.feed(r.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=leader))
    now = world.replicas.held("t", 0)
    assert now.leads == (leader == 1) and now.log is held.log
    gate.is_open.set()
    with pytest.raises(KafkaError) as caught:
        await cutting
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await settle()
    assert (now.log.log_start_offset, now.log.log_end_offset) == (0, 1)
