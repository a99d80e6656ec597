"""The target's side of a mirror alone: workers of a few lines race each other on several connections.

They ask where the log ends and send what follows, several appends at once, not all on one connection, and do not stop
when one fails. Whatever arrives late, twice or first, the target is a prefix of the source.
"""

from __future__ import annotations

import asyncio
from typing import Any

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import create_topics, mirror_append
from isthmus.protocol.primitives import uuid_to_str
from isthmus.protocol.records import build_batch

from ..history import Batch, batches_of, check_prefix
from ..hosts import Process
from ..network import Link
from ..product import BrokerHost
from ..runner import Simulation
from ..wire import Wire, ask, connect

TOPIC = "copy"
SOURCE_ID = bytes(range(16))
SETTLE_S = 300.0


def make_source(sim: Simulation) -> list[Batch]:
    """Batches of rising epochs, with a hole here and there, as compaction leaves them."""
    chance = sim.random
    offset, epoch, data = 0, 0, b""
    for _ in range(chance.randint(20, 60)):
        rows = [(sim.wall_start_ms, None, chance.randbytes(chance.choice((10, 3000))), ())] * chance.randint(1, 4)
        data += build_batch(rows, "none", base_offset=offset, partition_leader_epoch=epoch)
        offset += len(rows) + (chance.randint(1, 5) if chance.random() < 0.1 else 0)
        epoch += chance.random() < 0.1
    return batches_of(data)


def request_for(batches: list[Batch], previous: Batch | None, end: int) -> mirror_append.Request:
    """The append of `batches` at `end`, after `previous`; a probe where there are none."""
    part = mirror_append.MirrorAppendPartition(
        index=0,
        source_leader_epoch=batches[-1].leader_epoch if batches else -1,
        previous_leader_epoch=previous.leader_epoch if previous else -1,
        range_from=end,
        records=b"".join(batch.data for batch in batches) or None,
    )
    topic = mirror_append.MirrorAppendTopic(name=TOPIC, source_topic_id=SOURCE_ID, partitions=[part])
    return mirror_append.Request(link_id="a-b", source_cluster_id="a", timeout_ms=5000, topics=[topic])


async def make_topic(address: str) -> None:
    given = {"mirror.link": "a-b", "mirror.source.cluster.id": "a", "mirror.source.topic.id": uuid_to_str(SOURCE_ID)}
    configs = [create_topics.CreatableTopicConfig(name=name, value=value) for name, value in given.items()]
    topic = create_topics.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, configs=configs)
    while True:
        answer = await ask(address, create_topics.API, create_topics.Request(topics=[topic], timeout_ms=5000))
        if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        await asyncio.sleep(0.3)


async def work(process: Process, address: str, source: list[Batch]) -> None:
    """Mirror until the target has all of the source."""
    chance = process.runtime.random
    ends = {batch.last_offset + 1: number + 1 for number, batch in enumerate(source)}
    while True:
        answer = await ask(address, mirror_append.API, request_for([], None, -1))
        part = answer.topics[0].partitions[0]
        if part.error_code:
            await asyncio.sleep(0.2)
            continue
        at, end = ends.get(part.next_offset, 0), part.next_offset
        if at == len(source):
            return
        wires: list[Wire] = []
        try:
            wires = [await connect(address) for _ in range(2)]
            answers: list[asyncio.Future[Any]] = []
            for _ in range(4):
                some = source[at : at + chance.randint(1, 3)]
                if not some:
                    break
                request = request_for(some, source[at - 1] if at else None, end)
                answers.append(chance.choice(wires).request(mirror_append.API, request))
                at, end = at + len(some), some[-1].last_offset + 1
                await asyncio.sleep(chance.choice((0.0, 0.002)))
            await asyncio.wait(answers, timeout=8.0)
        except OSError:
            await asyncio.sleep(chance.uniform(0.05, 0.3))
        finally:
            for wire in wires:
                wire.transport.abort()


async def wire_mirror(sim: Simulation) -> None:
    chance = sim.random
    sim.network.default = Link(latency_s=(0.0002, 0.01), spike_chance=0.05)
    target = BrokerHost(sim, "dst", {"durability": chance.choice(("page_cache", "fsync"))})
    await target.up()
    source = make_source(sim)
    admin = sim.machine("admin").start()
    await admin.outcome(make_topic(target.address))
    running = []
    for number in range(chance.randint(1, 3)):
        process = sim.machine(f"worker{number}").start()
        running.append(process.outcome(work(process, target.address, source)))
    for _ in range(chance.randint(1, 3)):
        await asyncio.sleep(chance.uniform(0.01, 0.3))
        if chance.random() < 0.5:
            sim.network.cut()
        else:
            target.kill(power=chance.random() < 0.7)
            await asyncio.sleep(chance.uniform(0.0, 0.3))
            await target.up(crash_chance=0.2)
        check_prefix(target.partition(TOPIC), source, "the target")
    await asyncio.wait_for(asyncio.gather(*running), SETTLE_S)
    # They may have ended before a power cut took the end of what they had brought.
    last = sim.machine("last").start()
    await asyncio.wait_for(last.outcome(work(last, target.address, source)), SETTLE_S)
    found = target.partition(TOPIC)
    check_prefix(found, source, "the target")
    assert len(found) == len(source), f"{len(found)} of {len(source)} batches arrived"
    sim.counters["mirrored_batches"] += len(found)
