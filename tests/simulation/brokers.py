"""A cluster of simulated machines, each with one broker; some of them are voters of the metadata quorum, too.

Its faults are in `cluster_faults.py`, what must hold all the time in `cluster_watch.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.cluster.partition_image import PartitionImage
from isthmus.core_broker.cluster.raft.voters import ReplicaKey
from isthmus.core_broker.start_errors import StartError
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import create_topics, find_coordinator, metadata

from .history import batches_of
from .hosts import Process
from .members import GROUP
from .network import Link
from .product import BrokerHost
from .releases import Releases
from .runner import Simulation
from .wire import ask, produce_by_wire
from .workload import Stored, Workload, values_in

CONTROLLER_PORT = 9093
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
FORM_S = 60.0  # in which a new cluster serves
RESTART_S = (0.2, 1.0)  # until a supervisor starts a broker again that has refused to start
BOOTSTRAP = "controller.quorum.bootstrap.servers"


class Cluster:
    """Brokers 1 to `size`; the first `voters` of them are the quorum (all, if it is 0).

    is_dynamic: the voters are in the log, and can be changed (KIP-853): broker 1 begins alone, and the others join it.
    """

    def __init__(
        self,
        sim: Simulation,
        size: int = 3,
        options: Mapping[str, str] | None = None,
        *,
        voters: int = 0,
        is_dynamic: bool = False,
    ) -> None:
        self.sim = sim
        self.is_dynamic = is_dynamic
        self.releases = Releases()
        self.options = dict(options or {})
        self.first_voters = list(range(1, (voters or size) + 1))
        self.hosts: dict[int, BrokerHost] = {}
        self.lost_power_s: dict[int, float] = {}  # when last, by broker
        self.admin: Process = sim.machine("admin").start()
        self._starting: dict[int, asyncio.Task[None]] = {}
        for number in range(1, size + 1):
            self.add(number)

    def add(self, number: int) -> None:
        """One machine more, whose broker is not started yet. Only the first voters are controllers."""
        name = f"b{number}"
        is_controller = number in self.first_voters
        options = {
            "node.id": str(number),
            "cluster.id": CLUSTER_ID,
            "listeners": f"PLAINTEXT://{name}:9092",
            "controller.listener.names": "CONTROLLER",
            "default.replication.factor": "3",
            "offsets.topic.replication.factor": "3",
            **self.options,
        }
        if is_controller:
            options["listeners"] += f",CONTROLLER://{name}:{CONTROLLER_PORT}"
        else:
            options["process.roles"] = "broker"
        if self.is_dynamic:
            options[BOOTSTRAP] = ",".join(f"b{each}:{CONTROLLER_PORT}" for each in self.first_voters)
            if is_controller:
                options["controller.quorum.auto.join.enable"] = "true"
        else:
            voters = [f"{each}@b{each}:{CONTROLLER_PORT}" for each in self.first_voters]
            options["controller.quorum.voters"] = ",".join(voters)
        self.hosts[number] = BrokerHost(self.sim, name, options)
        for other in self.hosts.values():
            self.sim.network.links[name, other.name] = Link()
            self.sim.network.links[other.name, name] = Link()

    # --- Life ---------------------------------------------------------------------------------------------------------

    async def form(self) -> None:
        """Start a new cluster, and wait until it serves."""
        if self.is_dynamic:
            first = self.hosts[1]
            all_servers, first.options[BOOTSTRAP] = first.options[BOOTSTRAP], f"b1:{CONTROLLER_PORT}"
            await first.up()
            for number in self.hosts:
                self.begin(number)
            await self.sim.until(self._is_formed, "all controllers are voters", FORM_S)
            await self.stop(1)
            first.options[BOOTSTRAP] = all_servers
        await self.up(FORM_S)

    def _is_formed(self) -> bool:
        return sorted(key.id for key in self.voters()) == self.first_voters

    async def up(self, within_s: float) -> None:
        """Start all that do not run, and wait until they serve."""
        for number in self.hosts:
            self.begin(number)
        await self.sim.within(within_s, "all brokers serve", asyncio.gather(*self._starting.values()))

    def begin(self, number: int) -> None:
        """Start one in the background, again until it serves: it may need the others."""
        running = self._starting.get(number)
        if (running is None or running.done()) and not self.hosts[number].alive:
            self._starting[number] = self.sim.loop.create_task(self._start(self.hosts[number]))

    async def _start(self, host: BrokerHost) -> None:
        while True:
            try:
                await host.up()
                return
            except StartError as error:  # such as for a disk that is full
                self.sim.counters["starts_refused"] += 1
                self.sim.notes.append(f"{self.sim.loop.time():.3f} {host.name}: {error}")
                host.kill()
                await asyncio.sleep(self.sim.random.uniform(*RESTART_S))

    def kill(self, number: int, *, power: bool) -> None:
        running = self._starting.get(number)
        if running is not None and not running.done():
            running.cancel()
        if power:
            self.lost_power_s[number] = self.sim.loop.time()
        self.hosts[number].kill(power=power)

    async def stop(self, number: int) -> None:
        """Stop one in the controlled way."""
        host = self.hosts[number]
        assert host.broker is not None and host.machine.process is not None
        await host.machine.process.outcome(host.broker.stop())
        host.kill()

    async def retire(self, number: int) -> None:
        """Stop one, which has no replica any more, and take it out for good."""
        if self.serves(number):
            await self.stop(number)
        self.kill(number, power=False)
        del self.hosts[number], self._starting[number]

    def serves(self, number: int) -> bool:
        return number in self.hosts and self.hosts[number].broker is not None

    @property
    def dead(self) -> list[int]:
        return [number for number, host in self.hosts.items() if not host.alive]

    def voters(self) -> list[ReplicaKey]:
        """As the leader of the quorum has them committed; none while there is no leader."""
        for host in self.hosts.values():
            controller = None if host.broker is None else host.broker._controller
            quorum = None if controller is None else controller.metadata
            if quorum is not None and quorum.is_leader and quorum.raft is not None:
                if quorum.raft.voters.last_offset < quorum.high_watermark:
                    return [voter.key for voter in quorum.voters.voters]
        return []

    # --- What clients do ----------------------------------------------------------------------------------------------

    def any_address(self) -> str:
        return self.sim.random.choice(list(self.hosts.values())).address

    async def ask(self, api: Any, message: Any) -> Any:
        """What any broker answers an administrator; None if there is none in time."""
        return await self.admin.outcome(ask(self.any_address(), api, message, attempts=2))

    async def make_topic(self, name: str, partitions: int, options: Mapping[str, str]) -> None:
        topic = create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=3,
            configs=[create_topics.CreatableTopicConfig(name=key, value=value) for key, value in options.items()],
        )
        while True:
            answer = await self.ask(create_topics.API, create_topics.Request(topics=[topic], timeout_ms=5000))
            if answer is not None and answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            await asyncio.sleep(0.3)

    def produce(self, workload: Workload, *, count: int, partition: int, rest_s: float = 0.0) -> asyncio.Future[None]:
        machine = self.sim.machine(workload.name)
        process = machine.start()
        target = Leader(self, workload.topic, partition)
        pause_s = self.sim.random.choice((0.005, 0.05))
        return process.outcome(
            produce_by_wire(
                self.sim, machine, workload, target, count=count, partition=partition, pause_s=pause_s, rest_s=rest_s
            )
        )

    async def leader(self, topic: str, partition: int) -> tuple[str, int]:
        """Address and epoch of a partition's leader, as a broker tells it; if none is told, any broker and -1."""
        request = metadata.Request(topics=[metadata.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        address = self.any_address()
        answer = await ask(address, metadata.API, request, attempts=1)
        if answer is not None:
            for row in answer.topics[0].partitions:
                if row.partition_index == partition:
                    for broker in answer.brokers:
                        if broker.node_id == row.leader_id:
                            return f"{broker.host}:{broker.port}", row.leader_epoch
        return address, -1

    async def coordinator(self, group: str) -> str:
        """The address of a group's coordinator, as a broker tells it; of any broker if none is told."""
        address = self.any_address()
        answer = await ask(address, find_coordinator.API, find_coordinator.Request(key=group), attempts=1)
        return address if answer is None or answer.error_code else f"{answer.host}:{answer.port}"

    # --- What all have ------------------------------------------------------------------------------------------------

    def partitions(self) -> list[tuple[int, str, int, Any]]:
        """(broker, topic, index, Partition) of all that are open on brokers that run."""
        found = []
        for number, host in self.hosts.items():
            if host.broker is not None and host.broker._replicas is not None:
                for topic, indexes in host.broker._replicas.partitions.items():
                    found += [(number, topic, index, held) for index, held in indexes.items()]
        return found

    def image(self) -> MetadataImage | None:
        """The newest metadata that a broker has."""
        images = [
            host.broker._replicas._image
            for host in self.hosts.values()
            if host.broker is not None and host.broker._replicas is not None
        ]
        return max(images, key=lambda image: image.offset, default=None)

    def view(self, number: int, topic: str, index: int) -> PartitionImage | None:
        """A partition by the metadata that a broker has."""
        broker = self.hosts[number].broker
        return None if broker is None or broker._replicas is None else broker._replicas._image.partition(topic, index)

    def are_in_sync(self) -> bool:
        """Whether all replicas of all partitions are in sync, as their leaders and all others know it."""
        if not all(self.serves(number) for number in self.hosts):
            return False
        return all(len(held.isr) >= len(held.replicas) for _, _, _, held in self.partitions())

    def why_not_settled(self, topic: str, index: int) -> str:
        """Why not all replicas of a partition are in sync and the same; empty if they are."""
        views: dict[Any, None] = {}
        holders = []
        for number, host in self.hosts.items():
            if host.broker is None or host.broker._replicas is None:
                return f"broker {number} does not serve: {host.broker and host.broker.doing}"
            image = self.view(number, topic, index)
            if image is None:
                return f"broker {number} does not know it"
            views[image] = None
            if index in host.broker._replicas.partitions.get(topic, {}):
                holders.append(number)
        if len(views) != 1:
            return f"brokers know different states: {list(views)}"
        (view,) = views
        if view.leader < 0 or view.is_moving or sorted(view.isr) != sorted(view.replicas):
            return f"it is {view}"
        if sorted(view.replicas) != holders:
            return f"{holders} have it, replicas are {view.replicas}"
        logs = {number: held.log for number, name, held_index, held in self.partitions()
                if (name, held_index) == (topic, index)}  # fmt: skip
        starts = {each: log.log_start_offset for each, log in logs.items()}
        if len(dict.fromkeys(starts.values())) != 1:
            return f"it begins at different offsets: {starts}"
        if len(dict.fromkeys(self._served_bytes(each, topic, index, starts[each]) for each in holders)) != 1:
            return f"the bytes of {holders} differ"
        return ""

    def _served_bytes(self, number: int, topic: str, index: int, start: int) -> bytes:
        """What a broker has of a partition from its log start on; a replica that came later has nothing before."""
        host = self.hosts[number]
        if not start:
            return host.partition_bytes(topic, index)
        return b"".join(batch.data for batch in host.partition(topic, index) if batch.last_offset >= start)

    async def settled(self, topics: Mapping[str, int], within_s: float) -> None:
        """Wait until all replicas of all partitions are in sync and have the same bytes, whoever leads.

        topics: name to number of partitions.
        """
        keys = [(topic, index) for topic, count in topics.items() for index in range(count)]

        def is_so() -> bool:
            return not any(self.why_not_settled(*key) for key in keys)

        try:
            await self.sim.until(is_so, "all replicas are in sync and the same", within_s)
        except AssertionError as error:
            reasons = [f"{key}: {why}" for key in keys if (why := self.why_not_settled(*key))]
            raise AssertionError(f"{error}: {reasons}") from None

    def stored(self, topic: str, partitions: int) -> list[Stored]:
        """What all replicas have in the end; `settled` before."""
        found = []
        for index in range(partitions):
            holder = next(number for number, name, held, _ in self.partitions() if (name, held) == (topic, index))
            found += values_in(batches_of(self.hosts[holder].partition_bytes(topic, index)), index)
        return found


class Leader:
    """Where a producer finds its partition's leader: asked for again for each connection."""

    def __init__(self, cluster: Cluster, topic: str, partition: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition = partition

    async def address(self) -> str:
        return (await self._cluster.leader(self._topic, self._partition))[0]


class Coordinator:
    """Where the members of a group find its coordinator: asked for again for each connection."""

    def __init__(self, cluster: Cluster, group: str = GROUP) -> None:
        self._cluster = cluster
        self._group = group

    async def address(self) -> str:
        return await self._cluster.coordinator(self._group)
