"""Power cuts at any disk operation: what the controller or a group was told to be done, is done for good."""

from __future__ import annotations

import itertools
from operator import attrgetter
from typing import Any

import pytest

from isthmus.core_broker.cluster.controller import (
    AllocateProducerIds,
    CreatePartitions,
    CreatePartitionsTopic,
    CreateTopics,
    DeleteTopics,
    RegisterMirrorLink,
    new_topic,
)
from isthmus.core_broker.purgatory import Pending
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.messages import find_coordinator as fc
from isthmus.protocol.messages import offset_commit as oc
from isthmus.protocol.messages import offset_fetch as of
from tests.simulation.hosts import ProcessKilled
from tests.simulation.product import BrokerHost
from tests.simulation.runner import Simulation, run

NAMES = ("a", "b", "c")


class Ledger:
    """What was answered, and what may or may not have been done when the power went."""

    def __init__(self) -> None:
        self.topics: dict[str, bytes] = {}
        self.doubtful: set[str] = set()  # names with a command that was never answered
        self.partitions: dict[str, int] = {}
        self.producer_ids: list[tuple[int, int]] = []
        self.link_epoch = -1
        self.offset = -1  # of group g in topic a, the last that was answered
        self.asked_offset = -1
        self.epochs: dict[tuple[bytes, int], int] = {}


class Crashes:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.chance = sim.random
        options = {"durability": "fsync", "metadata.log.max.record.bytes.between.snapshots": "500"}
        self.host = BrokerHost(sim, "broker", options)
        self.ledger = Ledger()

    async def inside(self, work: Any) -> Any:
        async def call() -> Any:
            answer = work()
            return answer if isinstance(answer, Pending) else await answer if hasattr(answer, "__await__") else answer

        answer = await self.host.machine.process.outcome(call())  # type: ignore[union-attr]
        if isinstance(answer, Pending):
            await self.sim.until(lambda: answer.done or not self.host.alive, "an answer")
            if not answer.done:
                raise ProcessKilled
            return answer.answer
        return answer

    async def submit(self, command: Any) -> Any:
        return await self.inside(lambda: self.host.broker._controller.submit_wait(command))  # type: ignore[union-attr]

    async def ask(self, method: str, *given: Any) -> Any:
        """given: what the method takes, the request and its version."""
        return await self.inside(lambda: attrgetter(method)(self.host.broker._groups)(*given))  # type: ignore[union-attr]

    async def life(self) -> None:
        """Work until the power goes."""
        await self.ask("finder.find_coordinator", fc.Request(key="g"), 3)
        self.host.machine.kill_at_disk_operation(self.chance.randint(1, 25), power=True)
        while True:
            await self.one(self.chance.choice(NAMES))

    async def one(self, name: str) -> None:
        ledger = self.ledger
        match self.chance.randrange(6):
            case 0:
                ledger.doubtful.add(name)
                count = self.chance.randint(1, 3)
                (item,) = (await self.submit(CreateTopics([new_topic(name, count)]))).items
                ledger.doubtful.discard(name)
                assert item.error_code in (E.NONE, E.TOPIC_ALREADY_EXISTS)
                assert (item.error_code == E.NONE) == (name not in ledger.topics)
                if item.error_code == E.NONE:
                    ledger.topics[name], ledger.partitions[name] = item.topic_id, count
            case 1 if name != "a":
                ledger.doubtful.add(name)
                (item,) = (await self.submit(DeleteTopics(names=[name]))).items
                ledger.doubtful.discard(name)
                assert (item.error_code == E.NONE) == (name in ledger.topics)
                ledger.topics.pop(name, None)
            case 2 if name in ledger.topics:
                count = ledger.partitions[name] + 1
                growth = CreatePartitions([CreatePartitionsTopic(name=name, count=count, assignments=None)])
                ledger.partitions[name] = count  # at most
                assert (await self.submit(growth)).items[0].error_code in (E.NONE, E.INVALID_PARTITIONS)
            case 3:
                block = await self.submit(AllocateProducerIds(10))
                ledger.producer_ids.append((block.first_producer_id, block.count))
            case 4:
                link = await self.submit(RegisterMirrorLink("l", "A"))
                assert link.link_epoch > ledger.link_epoch
                ledger.link_epoch = link.link_epoch
            case 5 if "a" in ledger.topics:
                await self.commit()

    async def commit(self) -> None:
        ledger = self.ledger
        ledger.asked_offset += 1
        offset = ledger.asked_offset
        row = oc.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = oc.Request(group_id="g", topics=[oc.OffsetCommitRequestTopic(name="a", partitions=[row])])
        code = (await self.ask("offset_requests.offset_commit", request, 8)).topics[0].partitions[0].error_code
        assert code in (E.NONE, E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR)
        if code == E.NONE:
            ledger.offset = offset

    async def check(self) -> None:
        """After a start: everything that was answered is there, in an image that Kafka would call sound."""
        ledger = self.ledger
        image = self.host.broker._controller.image  # type: ignore[union-attr]
        for name in NAMES:
            topic = image.topics.get(name)
            if name in ledger.doubtful:
                ledger.topics.pop(name, None)
                if topic is not None:
                    ledger.topics[name], ledger.partitions[name] = topic.id, len(topic.partitions)
            else:
                assert (None if topic is None else topic.id) == ledger.topics.get(name), name
        ledger.doubtful.clear()
        for name in ledger.topics:
            topic = image.topics[name]
            assert list(topic.partitions) == list(range(len(topic.partitions)))
            for index, partition in topic.partitions.items():
                assert partition.leader == 1 and self.host.broker._replicas.get(name, index)  # type: ignore[union-attr]
                before = ledger.epochs.get((topic.id, index), -1)
                assert partition.leader_epoch > before, "a start that did not raise the leader epoch"
                ledger.epochs[topic.id, index] = partition.leader_epoch
            ledger.partitions[name] = len(topic.partitions)
        taken = sorted(ledger.producer_ids)
        assert all(first + count <= second for (first, count), (second, _) in itertools.pairwise(taken))
        link = image.links.get("l")
        assert (-1 if link is None else link.link_epoch) >= ledger.link_epoch
        ledger.link_epoch = -1 if link is None else link.link_epoch
        if "a" in ledger.topics:
            await self.check_offset()

    async def check_offset(self) -> None:
        await self.ask("finder.find_coordinator", fc.Request(key="g"), 3)
        shards = self.host.broker._groups.host.shards.shards  # type: ignore[union-attr]
        await self.sim.until(lambda: shards and all(s.failure is None for s in shards.values()), "groups loaded")
        wanted = [of.OffsetFetchRequestTopic(name="a", partition_indexes=[0])]
        answer = await self.ask("offset_requests.offset_fetch", of.Request(group_id="g", topics=wanted), 7)
        found = answer.topics[0].partitions[0]
        assert self.ledger.offset <= found.committed_offset <= self.ledger.asked_offset
        self.ledger.offset = found.committed_offset


async def crashes(sim: Simulation) -> None:
    world = Crashes(sim)
    for _ in range(8):
        await world.host.up(crash_chance=0.4)
        await world.check()
        try:
            await world.life()
        except ProcessKilled:
            pass
        world.host.broker = None
        sim.counters["lives"] += 1


@pytest.mark.parametrize("seed", range(15))
def test_what_was_answered_outlives_power_cuts(seed):
    result = run(seed, crashes)
    assert result.error is None, f"seed {seed}\n{result.error}"
