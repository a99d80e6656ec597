"""Three nodes whose clocks are an hour apart: what they agree on does not hang on any clock but the loop's."""

from __future__ import annotations

import asyncio

from isthmus.protocol.messages import create_topics, list_offsets, produce
from isthmus.protocol.records import build_batch
from tests.simulation.runner import Simulation, run_checked

from .three_nodes import IDS, ThreeNodes

HOUR_MS = 3_600_000


def test_a_cluster_whose_clocks_are_an_hour_apart_works_as_any_other() -> None:
    async def main(sim: Simulation) -> None:
        nodes = ThreeNodes(sim)
        for node_id, host in nodes.hosts.items():
            host.machine.clock_skew_ms = (node_id - 2) * HOUR_MS
        await asyncio.gather(*(host.start() for host in nodes.hosts.values()))
        await sim.machine("client").start().outcome(work(nodes))
        nodes.close()

    async def work(nodes: ThreeNodes) -> None:
        topic = create_topics.CreatableTopic(name="t", num_partitions=3, replication_factor=3)
        answer = await nodes.ask(1, create_topics.Request(topics=[topic], timeout_ms=20_000))
        assert answer.topics[0].error_code == 0
        served = [nodes.services(each).replicas.partitions for each in IDS]
        await nodes.sim.until(lambda: all("t" in each for each in served), "the topic on all nodes")
        image = nodes.services(1).image
        loop = asyncio.get_running_loop()
        began = loop.time()
        for index, partition in image.topics["t"].partitions.items():
            rows = [produce.PartitionProduceData(index=index, records=build_batch([(1, None, b"v", ())]))]
            topics = [produce.TopicProduceData(name="t", topic_id=image.topics["t"].id, partition_data=rows)]
            made = await nodes.ask(partition.leader, produce.Request(acks=-1, timeout_ms=20_000, topic_data=topics))
            assert made.responses[0].partition_responses[0].error_code == 0
        assert loop.time() - began < 5.0
        await asyncio.sleep(60.0)  # sessions, ISRs, snapshots and the quorum's timers go on
        assert all(not each.fenced for each in image.brokers.values())
        assert all(len(each.isr) == 3 for each in image.topics["t"].partitions.values())
        nodes.hosts[nodes.leader].kill()
        alive = [each for each in IDS if nodes.hosts[each].alive]
        left = nodes.services(alive[0]).image
        await nodes.sim.until(
            lambda: all(each.leader in alive for each in left.topics["t"].partitions.values()), "others lead", 20.0
        )
        for index, partition in left.topics["t"].partitions.items():
            wanted = list_offsets.ListOffsetsPartition(partition_index=index, timestamp=-1)
            asked = list_offsets.Request(
                replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name="t", partitions=[wanted])]
            )
            told = await nodes.ask(partition.leader, asked)
            assert told.topics[0].partitions[0].offset == 1

    run_checked(main, 1)
