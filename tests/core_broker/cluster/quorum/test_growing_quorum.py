"""Whole brokers: one alone becomes a quorum of three, by what their options say, and outlives its first voter."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import create_topics, describe_quorum
from isthmus.protocol.messages import remove_raft_voter as remove
from tests.simulation.product import BrokerHost
from tests.simulation.runner import Simulation, run_checked
from tests.simulation.wire import ask

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def host(sim: Simulation, number: int, servers: str) -> BrokerHost:
    name = f"b{number}"
    return BrokerHost(
        sim,
        name,
        {
            "node.id": str(number),
            "cluster.id": CLUSTER_ID,
            "listeners": f"PLAINTEXT://{name}:9092,CONTROLLER://{name}:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": servers,
            "controller.quorum.auto.join.enable": "true",
        },
    )


async def described(sim: Simulation, address: str) -> Any:
    topic = describe_quorum.TopicRequest(
        topic_name="__cluster_metadata", partitions=[describe_quorum.PartitionRequest(partition_index=0)]
    )
    message = describe_quorum.Request(topics=[topic])
    return await sim.machine("admin").process.outcome(ask(address, describe_quorum.API, message))


async def made(sim: Simulation, address: str, name: str) -> int:
    topic = create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    message = create_topics.Request(topics=[topic], timeout_ms=5_000)
    answer = await sim.machine("admin").process.outcome(ask(address, create_topics.API, message))
    return answer.topics[0].error_code


def test_broker_alone_becomes_a_quorum_of_three() -> None:
    async def scenario(sim: Simulation) -> None:
        sim.machine("admin").start()
        first = host(sim, 1, "b1:9093")
        await first.up()
        others = [host(sim, number, "b1:9093,b2:9093,b3:9093") for number in (2, 3)]
        for each in others:
            await each.up()
        voters: list[int] = []

        async def look(address: str) -> bool:
            nonlocal voters
            partition = (await described(sim, address)).topics[0].partitions[0]
            voters = [each.replica_id for each in partition.current_voters]
            return voters == [1, 2, 3]

        for _ in range(120):
            if await look(first.address):
                break
            await sim.sleep(0.5)
        assert voters == [1, 2, 3]
        answer = await described(sim, others[0].address)  # forwarded to the controller
        assert [node.listeners[0].host for node in answer.nodes] == ["b1", "b2", "b3"]
        first.kill(power=True)
        for _ in range(60):
            if await made(sim, others[0].address, "t") in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                break
            await sim.sleep(0.5)
        assert await made(sim, others[1].address, "t") == ErrorCode.TOPIC_ALREADY_EXISTS
        [lost] = [each for each in (await described(sim, others[0].address)).topics[0].partitions[0].current_voters
                  if each.replica_id == 1]  # fmt: skip
        request = remove.Request(cluster_id=None, voter_id=1, voter_directory_id=lost.replica_directory_id)
        answer = await sim.machine("admin").process.outcome(ask(others[1].address, remove.API, request))
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)

    run_checked(scenario)
