"""What happens to a cluster: crashes, cuts, disks, clocks, and what administrators do, one after the other.

A run draws which kinds of events it has. What may lose data does so only where the rest of the cluster has all of it:
a power cut under `durability=page_cache`, and a disk that is replaced, come while everything is in sync.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from isthmus.core_broker.cluster.features import LATEST, METADATA_VERSION
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import alter_partition_reassignments as moves
from isthmus.protocol.messages import elect_leaders, remove_raft_voter, unregister_broker, update_features
from isthmus.protocol.primitives import uuid_to_str

from .brokers import CLUSTER_ID, Cluster
from .network import Link

ALWAYS = ("kill", "power")
KINDS = (
    "all", "bad_disk", "chase", "clock", "cut", "drain", "elect", "flap", "full", "grow", "hang", "late_answers",
    "move", "one_way", "reset", "roll", "shortage", "slow_disk", "slow_network", "swap", "voter",
)  # fmt: skip
LONGEST_HANG_S = 15.0
SHORT_HANG_S = 3.0  # nobody is fenced for it
LATEST_S = 9.0  # of a message: longer than anybody waits for a member of the quorum
LONG_CUT_S = 40.0  # longer than anybody waits for the controller
IN_SYNC_S = 15.0  # until all are, so that one of them may lose its disk
CHASE_S = 6.0  # until a partition has another leader, or a broker serves again
DRAIN_S = 20.0  # until a broker has no replica any more
ROOM_BYTES = 3_000  # at most, on a disk that is filling up


class Faults:
    """topics: name to number of partitions, of those that may be moved. is_durable: nothing acknowledged is only in a
    page cache."""

    def __init__(self, cluster: Cluster, topics: dict[str, int], *, is_durable: bool) -> None:
        self.cluster = cluster
        self.sim = cluster.sim
        self.chance = cluster.sim.random
        self.topics = topics
        self.is_durable = is_durable
        kinds = self.chance.sample(KINDS, self.chance.randint(0, 7))  # with none there are crashes alone
        self.kinds = [*ALWAYS, *kinds, *kinds]
        if is_durable:  # all may lose their power at once
            self.kinds += ["all", "slow_disk"]
        if cluster.releases.level:
            self.kinds += [*self.kinds[:1], "upgrade", "upgrade"]
        self._ends: list[Callable[[], None]] = []  # of what lasts

    async def one(self) -> None:
        """One event; after it, most of those that are down start again."""
        kind = self.chance.choice(self.kinds)
        self.sim.trace.add("event", kind)
        self.sim.counters[f"event_{kind}"] += 1
        await getattr(self, f"_{kind}")()
        await asyncio.sleep(self.chance.uniform(0.0, 4.0))
        for each in self.cluster.hosts:
            if self.chance.random() < 0.7:
                self.cluster.begin(each)

    def end(self) -> None:
        """All faults are over."""
        self.sim.network.heal()
        for end in self._ends:
            end()
        self._ends = []

    def _lasts(self, seconds: float, end: Callable[[], None]) -> None:
        self._ends.append(end)
        self.sim.loop.call_later(seconds, end)

    def _any(self) -> int:
        """A broker; more often one that leads something, or the quorum."""
        leaders = [number for number, _, _, held in self.cluster.partitions() if held.leads]
        return self.chance.choice(leaders if leaders and self.chance.random() < 0.5 else list(self.cluster.hosts))

    def _may_lose(self) -> bool:
        """Whether one broker may lose what is only in its page cache, or its disk."""
        return not self.cluster.dead and self.cluster.are_in_sync()

    # --- Crashes ------------------------------------------------------------------------------------------------------

    async def _kill(self) -> None:
        self.cluster.kill(self._any(), power=False)

    async def _power(self) -> None:
        loses = self.is_durable or self._may_lose()
        self.cluster.kill(self._any(), power=loses)
        if loses and self.chance.random() < 0.5:  # the others have all, but nobody may lead before one of them is back
            for each in self.cluster.hosts:
                self.cluster.kill(each, power=False)

    async def _chase(self) -> None:
        """Whoever leads a partition is killed soon after it has begun to, again and again, while another one hangs
        or has messages late: what only some have is of several epochs."""
        key = self._any_partition()
        late = self._leader_of(key, leads=False)
        if late is not None and self.chance.random() < 0.5:
            self.cluster.hosts[late].machine.hang(SHORT_HANG_S)
        elif late is not None:
            towards = [
                link for pair, link in self.sim.network.links.items() if pair[1] == self.cluster.hosts[late].name
            ]
            self._slow_down(towards, (0.2, 1.0))
        for _ in range(self.chance.randint(2, 3)):
            until_s = self.sim.loop.time() + CHASE_S
            while (leader := self._leader_of(key)) is None and self.sim.loop.time() < until_s:
                await asyncio.sleep(0.05)
            if leader is None:
                return
            await asyncio.sleep(self.chance.uniform(0.0, 0.5))
            self.cluster.kill(leader, power=False)
            if self.chance.random() < 0.5:
                self.cluster.begin(leader)

    async def _flap(self) -> None:
        """A follower dies again as soon as it is back, while what its leader says may be late."""
        key = self._any_partition()
        leader, follower = self._leader_of(key), self._leader_of(key, leads=False)
        if leader is None or follower is None:
            return
        if self.chance.random() < 0.7:
            name = self.cluster.hosts[leader].name
            links = [link for (sender, _), link in self.sim.network.links.items() if sender == name]
            self._slow_down(links, (0.0002, self.chance.choice((0.3, 1.5))))
        for _ in range(self.chance.randint(2, 3)):
            self.cluster.kill(follower, power=False)
            self.cluster.begin(follower)
            until_s = self.sim.loop.time() + CHASE_S
            while not self.cluster.serves(follower) and self.sim.loop.time() < until_s:
                await asyncio.sleep(0.02)
            await asyncio.sleep(self.chance.choice((0.0, 0.1, 1.0)) * self.chance.random())

    def _any_partition(self) -> tuple[str, int]:
        name = self.chance.choice(list(self.topics))
        return name, self.chance.randrange(self.topics[name])

    def _leader_of(self, key: tuple[str, int], *, leads: bool = True) -> int | None:
        """A broker that runs and leads a partition, or follows."""
        found = [
            number
            for number, name, index, held in self.cluster.partitions()
            if (name, index) == key and held.leads == leads and self.cluster.hosts[number].alive
        ]
        return self.chance.choice(found) if found else None

    async def _all(self) -> None:
        share = self.chance.choice((0.0, 0.7, 1.0)) if self.is_durable else 0.0
        for each in self.cluster.hosts:
            self.cluster.kill(each, power=self.chance.random() < share)

    async def _hang(self) -> None:
        number, seconds = self._any(), self.chance.choice((0.5, 3.0, 6.0, LONGEST_HANG_S))
        self.cluster.hosts[number].machine.hang(seconds)
        if seconds < LONGEST_HANG_S and self.chance.random() < 0.5 and self.cluster.serves(number):
            await asyncio.sleep(seconds)
            await self.cluster.stop(number)  # it may be fenced

    async def _roll(self) -> None:
        """Restart one after the other, in order."""
        for number in list(self.cluster.hosts):
            if self.cluster.serves(number):
                await self.cluster.stop(number)
                self.cluster.begin(number)
                with_patience = self.sim.until(lambda each=number: self.cluster.serves(each), "it serves", 30.0)
                try:
                    await with_patience
                except AssertionError:  # another fault lasts
                    return
        self.sim.counters["rolled"] += 1

    # --- The network --------------------------------------------------------------------------------------------------

    async def _cut(self, both_ways: bool = True) -> None:
        hosts = self.cluster.hosts
        apart = [self._any()]
        if len(hosts) > 3 and self.chance.random() < 0.5:
            apart = self.chance.sample(list(hosts), 2)
        one = [hosts[each].name for each in apart]
        others = [host.name for each, host in hosts.items() if each not in apart]
        self.sim.network.partition(one, others, both_ways=both_ways)
        lasts_s = LONG_CUT_S if self.chance.random() < 0.05 else self.chance.uniform(0.5, 15.0)
        await asyncio.sleep(lasts_s)
        self.sim.network.heal()

    async def _one_way(self) -> None:
        await self._cut(both_ways=False)

    async def _reset(self) -> None:
        self.sim.network.cut()

    async def _slow_network(self) -> None:
        """Messages from and to one broker are late."""
        name = self.cluster.hosts[self._any()].name
        worst_s = self.chance.choice((0.05, 0.3, 1.5))
        self._slow_down([link for pair, link in self.sim.network.links.items() if name in pair], (0.0002, worst_s))

    async def _late_answers(self) -> None:
        """What one broker sends to others is later than they wait: they ask again, and what they asked is done
        twice."""
        name = self.cluster.hosts[self._any()].name
        links = [link for (sender, _), link in self.sim.network.links.items() if sender == name]
        self._slow_down(links, self.chance.choice(((1.0, 3.0), (0.0002, LATEST_S))))

    def _slow_down(self, links: list[Link], latency_s: tuple[float, float]) -> None:
        """For a while."""
        usual = Link().latency_s

        def set_latency(latency_s: tuple[float, float]) -> None:
            for link in links:
                link.latency_s = latency_s

        set_latency(latency_s)
        self._lasts(self.chance.uniform(2.0, 20.0), lambda: set_latency(usual))

    # --- Disks and clocks ---------------------------------------------------------------------------------------------

    async def _slow_disk(self) -> None:
        disk = self.cluster.hosts[self._any()].machine.disk
        disk.slowness = self.chance.choice((10.0, 60.0))  # a sync that stalls takes 24 s at most
        self._lasts(self.chance.uniform(2.0, 20.0), lambda: setattr(disk, "slowness", 1.0))

    async def _full(self) -> None:
        disk = self.cluster.hosts[self._any()].machine.disk
        if self.chance.random() < 0.3:  # a volume that has promised more than it has
            disk.fail("sync", errno.ENOSPC, containing=f"/{self.chance.choice(list(self.topics))}-", after=1)
        capacity_bytes, disk.capacity_bytes = disk.capacity_bytes, disk.used_bytes + self.chance.randint(0, ROOM_BYTES)
        self._lasts(
            self.chance.uniform(0.5, 15.0),
            lambda: setattr(disk, "capacity_bytes", max(disk.capacity_bytes, capacity_bytes)),
        )

    async def _bad_disk(self) -> None:
        """A broker cannot write to a partition, until it is started again; it may lose what it has of it."""
        if not self._may_lose():
            return
        number = self._any()
        disk = self.cluster.hosts[number].machine.disk
        disk.fail("append", errno.EIO, containing=f"/{self.chance.choice(list(self.topics))}-", after=1)
        await asyncio.sleep(self.chance.uniform(0.5, 5.0))
        self.cluster.kill(number, power=False)

    async def _clock(self) -> None:
        """Set right in the end: a leader whose clock is an hour behind refuses what is sent now."""
        machine = self.cluster.hosts[self._any()].machine
        by_ms = self.chance.choice((-1, 1)) * self.chance.choice((50, 5_000, 3_600_000, 100_000_000))
        machine.jump(by_ms)
        self._ends.append(lambda: machine.jump(-by_ms))

    async def _swap(self) -> None:
        """A broker comes back with an empty disk."""
        for each in self.cluster.hosts:
            self.cluster.begin(each)
        until_s = self.sim.loop.time() + IN_SYNC_S
        while not self._may_lose() and self.sim.loop.time() < until_s:
            await asyncio.sleep(0.5)
        number = self._any()
        if number in self.cluster.first_voters and not (self.cluster.is_dynamic and self._are_voters_whole()):
            free = [each for each in self.cluster.hosts if each not in self.cluster.first_voters]
            if not free:
                return  # a voter would have forgotten its votes
            number = self.chance.choice(free)
        if not self._may_lose():
            return
        self.cluster.kill(number, power=True)
        self.cluster.hosts[number].machine.disk.replace()
        await asyncio.sleep(self.chance.uniform(0.0, 8.0))
        self.cluster.begin(number)

    def _are_voters_whole(self) -> bool:
        """Whether all the first voters are voters, with the disks that they have now."""
        keys = {key.id: uuid_to_str(key.directory_id) for key in self.cluster.voters()}
        directories = {}
        for number in self.cluster.first_voters:
            broker = self.cluster.hosts[number].broker
            directories[number] = None if broker is None or broker._logs is None else broker._logs.directory_id
        return keys == directories

    # --- What administrators do ---------------------------------------------------------------------------------------

    async def _elect(self) -> None:
        rows = [elect_leaders.TopicPartitions(topic=name, partitions=list(range(n))) for name, n in self.topics.items()]
        await self.cluster.ask(elect_leaders.API, elect_leaders.Request(topic_partitions=rows, timeout_ms=3000))

    async def _move(self) -> None:
        """Move some partitions to other brokers, or take that back."""
        for _ in range(self.chance.randint(1, 3)):
            name = self.chance.choice(list(self.topics))
            index = self.chance.randrange(self.topics[name])
            replicas = self.chance.sample(list(self.cluster.hosts), 3)
            await self._reassign(name, index, None if self.chance.random() < 0.15 else replicas)
            await asyncio.sleep(self.chance.uniform(0.0, 1.0))

    async def _reassign(self, name: str, index: int, replicas: list[int] | None) -> int:
        row = moves.ReassignablePartition(partition_index=index, replicas=replicas)
        topic = moves.ReassignableTopic(name=name, partitions=[row])
        answer = await self.cluster.ask(moves.API, moves.Request(topics=[topic], timeout_ms=3000))
        if answer is None or answer.error_code:
            return ErrorCode.REQUEST_TIMED_OUT if answer is None else int(answer.error_code)
        code = int(answer.responses[0].partitions[0].error_code)
        self.sim.counters["moves"] += not code
        return code

    async def _grow(self) -> None:
        """One broker more, which is given replicas."""
        number = max(self.cluster.hosts) + 1
        if number > 9:
            return
        self.cluster.add(number)
        self.cluster.begin(number)
        await asyncio.sleep(self.chance.uniform(0.5, 3.0))
        await self._move()

    async def _drain(self) -> None:
        """A broker that is no voter gives its replicas away and leaves, or comes back with its disk or an empty one."""
        free = [each for each in self.cluster.hosts if each not in self.cluster.first_voters]
        if not free or len(self.cluster.hosts) <= 3:
            return
        number = self.chance.choice(free)
        left = [each for each in self.cluster.hosts if each != number]
        until_s = self.sim.loop.time() + DRAIN_S
        while self.sim.loop.time() < until_s:
            has = self._replicas_of(number)
            if not has:
                break
            for name, index, replicas, is_moving in has:
                others = [each for each in left if each not in replicas]
                if not is_moving and others:
                    staying = [each for each in replicas if each != number]
                    await self._reassign(name, index, [*staying, self.chance.choice(others)][:3])
            await asyncio.sleep(0.5)
        else:
            return
        if self.cluster.serves(number):
            await self.cluster.stop(number)
        self.cluster.kill(number, power=False)
        answer = await self.cluster.ask(unregister_broker.API, unregister_broker.Request(broker_id=number))
        is_out = answer is not None and not answer.error_code
        self.sim.counters["unregistered"] += is_out
        if is_out and self.chance.random() < 0.4:  # one that stays registered holds up an upgrade for good
            await self.cluster.retire(number)
        elif self.chance.random() < 0.5:
            self.cluster.hosts[number].machine.disk.replace()
        else:
            self.sim.counters["came_back_with_its_disk"] += 1

    def _replicas_of(self, number: int) -> list[tuple[str, int, list[int], bool]]:
        """(topic, index, replicas, is moving) of what a broker has, by any other's metadata; or may have, if nobody can
        tell."""
        found: list[tuple[str, int, list[int], bool]] = []
        for name, count in self.topics.items():
            for index in range(count):
                views = [view for each in self.cluster.hosts if (view := self.cluster.view(each, name, index))]
                newest = max(views, key=lambda view: view.partition_epoch, default=None)
                if newest is None:
                    found.append((name, index, [], True))
                elif number in newest.replicas:
                    found.append((name, index, list(newest.replicas), newest.is_moving))
        return found

    async def _voter(self) -> None:
        """A voter is removed from the quorum; it asks to be one again by itself. Not while another has lost its disk:
        the rest might be no majority for ever, as `isthmus quorum remove` would say."""
        voters = self.cluster.voters()
        if not self.cluster.is_dynamic or len(voters) < 2 or not self._are_voters_whole():
            return
        key = self.chance.choice(voters)
        request = remove_raft_voter.Request(cluster_id=CLUSTER_ID, voter_id=key.id, voter_directory_id=key.directory_id)
        answer = await self.cluster.ask(remove_raft_voter.API, request)
        self.sim.counters["voters_removed"] += answer is not None and not answer.error_code

    async def _upgrade(self) -> None:
        """Some brokers get this release, one after the other, and somebody tries to finalize its levels."""
        old = [number for number, host in self.cluster.hosts.items() if self.cluster.releases.of(host.name) < LATEST]
        for number in old[: self.chance.randint(1, 3)]:
            await self.upgrade(number)
        await self.finalize()

    async def upgrade(self, number: int) -> None:
        """Start a broker again with the software of this release."""
        if self.cluster.serves(number):
            await self.cluster.stop(number)
        self.cluster.kill(number, power=False)
        del self.cluster.releases.level[self.cluster.hosts[number].name]
        self.sim.counters["upgraded"] += 1
        self.cluster.begin(number)
        await asyncio.sleep(self.chance.uniform(0.0, 3.0))

    async def finalize(self) -> bool:
        """Ask for the levels of this release; whether they are finalized. Not while a broker does not know them."""
        update = update_features.FeatureUpdate(feature=METADATA_VERSION, max_version_level=LATEST)
        older = [each for each in self.cluster.hosts if self._is_older(each)]
        answer = await self.cluster.ask(update_features.API, update_features.Request(feature_updates=[update]))
        if answer is None or answer.error_code:
            self.sim.counters["levels_refused"] += answer is not None
            return False
        older = [each for each in older if self._is_older(each)]
        assert not older, f"metadata.version is {LATEST} now, which brokers {older} do not know"
        self.sim.counters["levels_finalized"] += 1
        return True

    def _is_older(self, number: int) -> bool:
        host = self.cluster.hosts.get(number)
        return host is not None and self.cluster.serves(number) and self.cluster.releases.of(host.name) < LATEST

    async def finish_upgrade(self) -> None:
        """All get this release, and its levels are finalized."""
        for name in list(self.cluster.releases.level):
            for number in [each for each, host in self.cluster.hosts.items() if host.name == name]:
                await self.upgrade(number)
        while not await self.finalize():
            await asyncio.sleep(0.5)

    async def _shortage(self) -> None:
        """Two at once have little room left."""
        await self._full()
        await self._full()
