"""Whole brokers: one alone becomes a quorum of three, by what their options say, and outlives its first voter. Three
that are told of their first voters are one from the start.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import create_topics, describe_quorum
from isthmus.protocol.messages import remove_raft_voter as remove
from isthmus.protocol.primitives import uuid_from_str
from tests.simulation.files import SimDisk
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


DIRECTORIES = ("kj0xpwPMaQ7IW0FXtAcZxA", "4ty-9FFvYG5R9guWnJvMHA", "BJoZpra4JRJggrV9hoo7Gg")


@pytest.mark.parametrize("seed", range(6))
def test_first_voters_begin_together_whatever_crashes_in_its_first_start(seed: int) -> None:
    """In any order, and one that has lost its disk later is another one, which joins."""

    async def scenario(sim: Simulation) -> None:
        sim.machine("admin").start()
        servers = ",".join(f"b{number}:9093" for number in (1, 2, 3))
        hosts = [host(sim, number, servers) for number in (1, 2, 3)]
        first = ",".join(f"{i}@b{i}:9093:{each}" for i, each in enumerate(DIRECTORIES, 1))
        for each in hosts:
            each.options["controller.quorum.initial.controllers"] = first

        async def begin(each: BrokerHost) -> None:
            await sim.sleep(sim.random.uniform(0, 2))
            await each.up(crash_chance=0.8)

        await sim.within(60, "all first voters serve", asyncio.gather(*(begin(each) for each in hosts)))

        async def voters() -> list[tuple[int, bytes]]:
            partition = (await described(sim, hosts[0].address)).topics[0].partitions[0]
            return [(each.replica_id, each.replica_directory_id) for each in partition.current_voters]

        made_ids = [(i, uuid_from_str(each)) for i, each in enumerate(DIRECTORIES, 1)]
        assert await voters() == made_ids

        for each in hosts:
            del each.options["controller.quorum.initial.controllers"]
        hosts[2].kill(power=True)
        machine = hosts[2].machine
        machine.disk = SimDisk(sim, machine.name, machine.disk.random)
        await sim.sleep(5)  # if it led, until the others know of another leader, and do not take it for that one's twin
        await hosts[2].up()
        for _ in range(60):
            found = await voters()
            if len(found) == 3 and found != made_ids:
                break
            await sim.sleep(0.5)
        assert found[:2] == made_ids[:2] and found[2][0] == 3 and found[2] != made_ids[2]

    run_checked(scenario, seed)
