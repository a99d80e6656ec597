"""Offsets of consumers that manage themselves, committed again about when they grow old, under kills of the broker.

An offset is told for as long as it is to live, to the millisecond, and is gone soon after: a commit that comes while
offsets are removed is one that stays. A group without offsets is no group any more.
"""

from __future__ import annotations

import asyncio

from isthmus.protocol.messages import find_coordinator, list_groups

from ..members import committed, fetched
from ..product import BrokerHost
from ..runner import Simulation
from ..wire import ask, make_topic

TOPIC = "events"
PARTITIONS = 3
GROUPS = ("a", "b")
RETENTION_S = 60.0  # offsets.retention.minutes=1, the least there is
SLACK_S = 2.0  # of a request under way, and of a restart at the wrong moment


class Keeper:
    """One group's offsets: when each was committed, by the time of the world."""

    def __init__(self, sim: Simulation, host: BrokerHost, group: str, check_s: float) -> None:
        self.sim = sim
        self.host = host
        self.group = group
        self.check_s = check_s
        self.offset = 0
        self.known: dict[int, tuple[int, float, float]] = {}  # partition -> offset, when it was sent and acknowledged

    async def live(self, rounds: int) -> None:
        chance = self.sim.random
        for _ in range(rounds):
            await asyncio.sleep(chance.uniform(0.0, 15.0))
            if self.known and chance.random() < 0.6:
                await self.race()
            else:
                await self.commit(chance.randrange(PARTITIONS))
            await self.look()

    async def race(self) -> None:
        """Commit the oldest offset again just when it is to go, or is being looked for."""
        chance = self.sim.random
        partition, (_, sent, _) = min(self.known.items(), key=lambda each: each[1][1])
        when = sent + RETENTION_S + chance.choice((-0.01, 0.01, self.check_s)) * chance.random()
        await asyncio.sleep(max(0.0, when - self.sim.loop.time()))
        await self.commit(partition)
        await asyncio.sleep(chance.choice((0.0, 0.1, 1.0)))

    async def commit(self, partition: int) -> None:
        self.offset += 1
        sent = self.sim.loop.time()
        await committed(self.host, TOPIC, partition, self.offset, self.group)
        self.known[partition] = self.offset, sent, self.sim.loop.time()
        self.sim.counters["commits"] += 1

    async def look(self) -> None:
        asked = self.sim.loop.time()
        found = await fetched(self.host, TOPIC, PARTITIONS, self.group)
        answered = self.sim.loop.time()
        for partition, (offset, sent, acked) in list(self.known.items()):
            told = found[partition]
            if answered < sent + RETENTION_S:
                assert told == offset, f"{self.group}/{partition}: {told} is told, {offset} is to live on"
                self.sim.counters["told"] += 1
            elif asked > acked + RETENTION_S + self.check_s + SLACK_S and self.has_checked(acked):
                assert told == -1, f"{self.group}/{partition}: {told} was to be gone"
                self.sim.counters["gone"] += 1
                del self.known[partition]
            else:
                assert told in (offset, -1), f"{self.group}/{partition}: {told} is told, not {offset}"

    def has_checked(self, acked: float) -> bool:
        """Whether the broker has had the time for it since it was started last."""
        return self.sim.loop.time() > max(self.started, acked + RETENTION_S) + self.check_s + SLACK_S

    started = 0.0


async def offset_expiry(sim: Simulation) -> None:
    chance = sim.random
    check_s = chance.choice((0.5, 5.0, 15.0))
    options = {
        "durability": "fsync",
        "offsets.retention.minutes": "1",
        "offsets.retention.check.interval.ms": str(int(check_s * 1000)),
    }
    host = BrokerHost(sim, "broker", options)
    await host.up()
    app = sim.machine("app").start()
    await app.outcome(make_topic(host.address, TOPIC, PARTITIONS))
    await app.outcome(found(host))
    keepers = [Keeper(sim, host, group, check_s) for group in GROUPS]
    running = [app.outcome(keeper.live(chance.randint(3, 6))) for keeper in keepers]
    for _ in range(chance.randint(0, 3)):
        await asyncio.sleep(chance.uniform(0.0, 60.0))
        host.machine.kill_at_disk_operation(chance.randint(1, 10), power=chance.random() < 0.5)
        await asyncio.sleep(chance.uniform(0.0, 5.0))
        if host.alive:
            host.machine.disk.crash_countdown = 0
            host.kill(power=chance.random() < 0.5)
        host.broker = None
        await host.up(crash_chance=0.2)
        for keeper in keepers:
            keeper.started = sim.loop.time()
    await asyncio.gather(*running)
    await asyncio.sleep(RETENTION_S + 2 * check_s + SLACK_S)
    for keeper in keepers:
        await app.outcome(keeper.look())
        assert not keeper.known, f"{keeper.group}: {keeper.known} was to be gone"
    assert await app.outcome(listed(host)) == [], "groups without offsets are there still"


async def found(host: BrokerHost) -> None:
    """The topic of groups is there."""
    while (await ask(host.address, find_coordinator.API, find_coordinator.Request(key="a"))).error_code:
        await asyncio.sleep(0.1)


async def listed(host: BrokerHost) -> list[str]:
    answer = await ask(host.address, list_groups.API, list_groups.Request())
    assert not answer.error_code
    return [group.group_id for group in answer.groups]
