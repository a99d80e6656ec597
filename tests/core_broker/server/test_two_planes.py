"""A node with a listener for clients and one for controllers: what is served at each, and what each is told."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from isthmus.client.connection import Connection, connect
from isthmus.core_broker.cluster.features import SUPPORTED
from isthmus.core_broker.server.dispatch import SERVED, SERVED_BY_CONTROLLERS
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import api_versions, create_topics, metadata
from tests.simulation.product import BrokerHost
from tests.simulation.runner import Simulation, run_checked

OPTIONS = {
    "listeners": "PLAINTEXT://broker:9092,CONTROLLER://broker:9093",
    "controller.listener.names": "CONTROLLER",
}


def on_a_node(work: Callable[[Connection, Connection], Awaitable[None]], **options: str) -> None:
    """Run `work(connection of a client, connection of a controller)`."""

    async def asks() -> None:
        client, controller = [await connect(f"broker:{port}", "test", 5_000) for port in (9092, 9093)]
        await work(client, controller)
        client.close()
        controller.close()

    async def main(sim: Simulation) -> None:
        await BrokerHost(sim, "broker", OPTIONS | options).start()
        await sim.machine("client").start().outcome(asks())

    run_checked(main)


def test_each_listener_serves_its_own_keys() -> None:
    async def work(client: Connection, controller: Connection) -> None:
        assert client.versions == SERVED
        assert controller.versions == SERVED_BY_CONTROLLERS

    on_a_node(work)


@pytest.mark.parametrize("port", [0, 1])
def test_each_listener_tells_what_works_here_and_what_the_cluster_has_finalized(port: int) -> None:
    async def work(*connections: Connection) -> None:
        answers = {}
        for version in range(api_versions.API.max_version + 1):
            request = api_versions.Request(client_software_name="t", client_software_version="1")
            answers[version] = await connections[port].request(api_versions.API, request, 5_000, version)
        told = {
            version: {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
            for version, answer in answers.items()
        }
        assert [told[version] for version in range(3)] == [{}] * 3
        assert told[3] == {"metadata.version": (7, 33)}  # one that begins at 0 is not read by clients of that time
        assert told[4] == told[5] == dict(SUPPORTED)
        finalized = {each.name: each.max_version_level for each in answers[4].finalized_features}
        others = {"eligible.leader.replicas.version": 1, "group.version": 1, "kraft.version": 1, "transaction.version": 2}
        assert finalized == {"metadata.version": 33, **others}
        assert answers[4].finalized_features_epoch >= 0

    on_a_node(work)


def test_only_the_broker_s_listeners_are_told_to_clients() -> None:
    async def work(client: Connection, _: Connection) -> None:
        answer: Any = await client.request(metadata.API, metadata.Request(topics=[]), 5_000)
        assert [(each.host, each.port) for each in answer.brokers] == [("broker", 9092)]

    on_a_node(work)


@pytest.mark.parametrize("options", [{}, OPTIONS])
def test_a_controller_whose_log_has_failed_says_so_at_once(options: dict[str, str]) -> None:
    """With a listener of its own, too, by which others could reach it."""

    async def main(sim: Simulation) -> None:
        host = BrokerHost(sim, "broker", options)
        await host.start()

        async def asks() -> None:
            client = await connect("broker:9092", "test", 5_000)
            host.machine.disk.fail("sync", errno.EIO, containing="__cluster_metadata")
            for name in ("under-way", "later"):
                topic = create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                request = create_topics.Request(topics=[topic], timeout_ms=30_000)
                answer = await client.request(create_topics.API, request, 60_000)
                assert answer.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
                assert "the metadata log cannot be written" in answer.topics[0].error_message
            client.close()

        await sim.machine("client").start().outcome(asks())

    run_checked(main)
