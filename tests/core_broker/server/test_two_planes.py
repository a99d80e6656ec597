"""A node with a listener for clients and one for controllers: what is served at each, and what each is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from isthmus.client.connection import Connection, connect
from isthmus.core_broker.server.dispatch import SERVED, SERVED_BY_CONTROLLERS
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


def test_only_the_broker_s_listeners_are_told_to_clients() -> None:
    from isthmus.protocol.messages import metadata

    async def work(client: Connection, _: Connection) -> None:
        answer: Any = await client.request(metadata.API, metadata.Request(topics=[]), 5_000)
        assert [(each.host, each.port) for each in answer.brokers] == [("broker", 9092)]

    on_a_node(work)
