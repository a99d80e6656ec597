"""Members of a quorum on simulated machines: the real host, log and wire messages, with a network that can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from isthmus.client.errors import ConnectionLost, RequestTimeout
from isthmus.core_broker.cluster.controller import Controller
from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.cluster.metadata_log import MetadataLog
from isthmus.core_broker.cluster.quorum.member import Member
from isthmus.core_broker.cluster.quorum.quorum import MetadataQuorum
from isthmus.core_broker.cluster.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from isthmus.core_broker.config import BrokerConfig
from isthmus.core_broker.purgatory import Pending
from isthmus.protocol.messages import api_versions
from isthmus.protocol.schema import Api
from tests.simulation.files import SimDisk
from tests.simulation.hosts import ProcessKilled
from tests.simulation.runner import Simulation

PORT = 9093
LATENCY_S = 0.001


def endpoint(node_id: int) -> Endpoint:
    return Endpoint("CONTROLLER", f"node{node_id}", PORT)


class Node:
    """A machine with one member, one life after the other."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.id = node_id
        self.machine = world.sim.machine(f"node{node_id}")
        self.options: dict[str, str] = {}
        self.quorum: MetadataQuorum | None = None
        self.controller: Controller | None = None
        self.seen: list[str] = []  # topics whose creation reactions were told of, in this life

    async def start(self) -> None:
        process = self.machine.start()
        await process.outcome(self._start(process))

    async def _start(self, process: Any) -> None:
        self.seen = []
        log = await MetadataLog.open(process.files, "/data", process.runtime)
        member = self.world.member(self.id)
        quorum = MetadataQuorum(log, MetadataImage("c"), process.runtime, member, LocalPeers(self.world, self))
        self.controller = Controller(quorum, BrokerConfig(self.options), process.runtime, "PLAINTEXT")
        self.controller.subscribe(lambda delta: self.seen.extend(delta.created))
        self.quorum = quorum
        await quorum.start()

    def kill(self, power: bool = False) -> None:
        self.machine.kill(power=power)
        self.quorum = self.controller = None
        self.world.broke(self.id)

    def give_empty_disk(self) -> None:
        """The machine comes back with nothing: its directory has another id."""
        self.kill()
        self.world.disks[self.id] += 1
        self.machine.disk = SimDisk(self.world.sim, self.machine.name, self.machine.random)

    async def stop(self) -> None:
        assert self.controller is not None
        await self.run(self.controller.close())
        self.kill()

    async def run(self, work: Any) -> Any:
        assert self.machine.process is not None
        return await self.machine.process.outcome(work)

    async def submit(self, command: Any) -> Any:
        assert self.controller is not None
        return await self.run(self.controller.submit_wait(command))

    @property
    def topics(self) -> list[str]:
        return [] if self.quorum is None else list(self.quorum.image.topics)


class World:
    """All are voters by their configuration. Or they join: the first begins alone, and the others ask to be added."""

    def __init__(self, sim: Simulation, ids: Sequence[int], joins: bool = False) -> None:
        self.sim = sim
        self.joins = joins
        self.disks = dict.fromkeys(ids, 0)  # how often each was given an empty one
        self.voters = VoterSet.of(Voter(ReplicaKey(each), (endpoint(each),)) for each in ids)
        self.nodes = {each: Node(self, each) for each in ids}
        self.cuts: dict[tuple[int, int], None] = {}
        self.under_way: dict[asyncio.Future[Any], tuple[int, int]] = {}

    def member(self, node_id: int) -> Member:
        key = ReplicaKey(node_id, bytes([node_id]) * 15 + bytes([self.disks[node_id]]))
        own = (endpoint(node_id),)
        if not self.joins:
            return Member(key, self.voters, own, cluster_id="c")
        servers = [endpoint(each) for each in self.nodes]
        if node_id == min(self.nodes):
            return Member(key, VoterSet.of([Voter(ReplicaKey(node_id), own)]), own, servers, cluster_id="c", grows=True)
        return Member(key, VoterSet(), own, servers, cluster_id="c", joins=True)

    async def start(self) -> None:
        for node in self.nodes.values():
            await node.start()

    async def leader(self, among: Sequence[int] | None = None, timeout_s: float = 20.0) -> Node:
        """The node that leads and may decide."""

        def leading() -> list[Node]:
            ids = list(self.nodes) if among is None else among
            return [each for i in ids if (each := self.nodes[i]).quorum is not None and each.quorum.is_leader]

        await self.sim.until(lambda: bool(leading()), "a leader", timeout_s)
        return max(leading(), key=lambda node: node.quorum.epoch)  # type: ignore[union-attr]

    def cut(self, *ids: int) -> None:
        """Cut these off from the others, both ways."""
        for one in ids:
            for other in self.nodes:
                if other not in ids:
                    self.cuts[one, other] = self.cuts[other, one] = None

    def heal(self) -> None:
        self.cuts.clear()

    def broke(self, node_id: int) -> None:
        """Connections to a process that has died break at once."""
        for future, (_, target) in list(self.under_way.items()):
            if target == node_id and not future.done():
                future.set_exception(ConnectionLost("the process is gone"))


class LocalPeers:
    """Requests of one node, as bytes, to the others' hosts."""

    def __init__(self, world: World, node: Node) -> None:
        self.world = world
        self.node = node

    async def request(self, target: Endpoint, api: Api, message: Any, timeout_ms: float, least_version: int = 0) -> Any:
        world, there = self.world, int(target.host.removeprefix("node"))
        await asyncio.sleep(LATENCY_S)
        way = self.node.id, there
        if way in world.cuts:
            await asyncio.sleep(timeout_ms / 1000)
            raise RequestTimeout("cut off")
        other = world.nodes[there]
        if other.quorum is None:
            raise ConnectionLost("nobody listens")
        if api.key == api_versions.API.key:
            level = api_versions.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            return api_versions.Response(supported_features=[level])
        data = b"".join(map(bytes, api.encode_request(message, api.max_version)))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        world.under_way[future] = way
        assert other.machine.process is not None
        other.machine.process.spawn(self._serve(other, api, data, future))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                answer = await future
        except TimeoutError:
            raise RequestTimeout("no answer") from None
        finally:
            del world.under_way[future]
        await asyncio.sleep(LATENCY_S)
        return api.decode_response(memoryview(answer), 0, api.max_version)

    async def _serve(self, other: Node, api: Api, data: bytes, future: asyncio.Future[Any]) -> None:
        if other.quorum is None:
            return
        request = api.decode_request(memoryview(data), 0, api.max_version)
        answer = other.quorum.handle(request)

        def done(message: Any) -> None:
            if (other.id, self.node.id) in self.world.cuts or future.done() or message is None:
                return
            future.set_result(b"".join(map(bytes, api.encode_response(message, api.max_version))))

        if isinstance(answer, Pending):
            answer.when_done(done)
        else:
            done(answer)

    async def close(self) -> None:
        pass


__all__ = ["Node", "ProcessKilled", "World", "endpoint"]
