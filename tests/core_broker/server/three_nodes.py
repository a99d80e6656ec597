"""A cluster of three nodes on simulated machines, each broker and controller, and connections to all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from isthmus.client.connection import Connection, connect
from isthmus.core_broker.server.services import Services
from isthmus.protocol.schema import Struct
from tests.simulation.product import BrokerHost
from tests.simulation.runner import Simulation, run_checked

IDS = (1, 2, 3)
PORT, CONTROLLER_PORT = 9092, 9093
OPTIONS = {
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": ",".join(f"{node_id}@n{node_id}:{CONTROLLER_PORT}" for node_id in IDS),
    "cluster.id": "MkU3OEVBNTcwNTJENDM2Qk",
    "auto.create.topics.enable": "true",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


class ThreeNodes:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.hosts = {
            node_id: BrokerHost(
                sim,
                f"n{node_id}",
                OPTIONS
                | {
                    "node.id": str(node_id),
                    "broker.rack": f"rack-{node_id}",
                    "listeners": f"PLAINTEXT://n{node_id}:{PORT},CONTROLLER://n{node_id}:{CONTROLLER_PORT}",
                },
            )
            for node_id in IDS
        }
        self._open: list[Connection] = []

    def services(self, node_id: int) -> Services:
        broker = self.hosts[node_id].broker
        assert broker is not None
        services: Services = broker._server.services
        return services

    @property
    def leader(self) -> int:
        """The active controller."""
        [found] = [each for each in IDS if self.hosts[each].alive and self.services(each).quorum.is_leader]
        return found

    @property
    def others(self) -> list[int]:
        return [each for each in IDS if self.hosts[each].alive and each != self.leader]

    async def connect(self, node_id: int, port: int = PORT) -> Connection:
        connection = await connect(f"n{node_id}:{port}", "test", 5_000)
        self._open.append(connection)
        return connection

    async def ask(self, node_id: int, request: Struct, version: int | None = None, port: int = PORT) -> Any:
        connection = await self.connect(node_id, port)
        return await connection.request(type(request).API, request, 60_000, version)

    def close(self) -> None:
        for connection in self._open:
            connection.close()


def on_three_nodes(work: Callable[[ThreeNodes], Awaitable[None]], seed: int = 1) -> None:
    """Run `work(nodes)` on a client's machine, once all nodes serve."""

    async def main(sim: Simulation) -> None:
        nodes = ThreeNodes(sim)
        await asyncio.gather(*(host.start() for host in nodes.hosts.values()))
        await sim.machine("client").start().outcome(work(nodes))
        nodes.close()

    run_checked(main, seed)
