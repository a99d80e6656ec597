"""What `isthmus topic describe` says of offsets that a leader does not tell."""

from __future__ import annotations

import asyncio

from isthmus.client import TopicPartition
from isthmus.console.topics import offsets_told
from tests.client.scripted import ScriptedBroker, World, simulate, started_client
from tests.running import run_by

TPS = [TopicPartition("t", number) for number in range(4)]


@run_by(simulate)
async def test_a_leader_that_hangs_is_named_soon_and_the_others_tell_their_offsets(world: World, /) -> None:
    await ScriptedBroker(world, 2).start()
    world.add_topic("t", len(TPS))
    for number, leader in ((1, 2), (2, 2), (3, -1)):
        world.move("t", number, leader)
    world.log("t", 0).start, world.log("t", 0).end = 3, 7
    client = await started_client(world)
    await client.refresh_metadata(["t"])
    world.brokers[2].hangs = True
    began = asyncio.get_running_loop().time()
    found, troubles = await offsets_told(client, TPS)
    assert asyncio.get_running_loop().time() - began < 5
    assert found == {TPS[0]: (3, 7)}
    assert troubles == [
        "partition 3 without a leader: `isthmus cluster status` says why",
        "broker 2 (broker2:9092) leads partitions 1, 2, whose offsets are not known: offsets: not done within 3000 ms: "
        "no answer came: is a broker overloaded or hung?",
    ]
    world.brokers[2].hangs = False
    found, troubles = await offsets_told(client, TPS[:3])
    assert found == {TPS[0]: (3, 7), TPS[1]: (0, 0), TPS[2]: (0, 0)} and not troubles
