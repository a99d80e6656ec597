"""The cases of groups: members of a few lines, so that what a rebalance or a heartbeat costs is the broker's."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Sequence

import uvloop

from integration_tests.groups.consumer_members import ConsumerMember
from integration_tests.groups.members import Line, Member, coordinated, together
from isthmus.client import Admin, Client

from .cases import Bench, Sample
from .sides import Side

MEMBERS = 50
PARTITIONS_EACH = 2
GROUPS = 1_000
BEAT_S = 5.0  # Kafka's default of `group.consumer.heartbeat.interval.ms`
CONNECTING = 100  # at once: brokers take so many that wait to be accepted
AT_ONCE = {"consumer.assignment.interval.ms": "0"}  # by default changes within a second are gathered
_names = itertools.count()


class Rebalance(Bench):
    """A stable classic group of 50: its leader joins again; until all have an assignment of the next generation."""

    def prepare(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.loop.run_until_complete(self._come())

    async def _come(self) -> None:
        group = f"bench-{next(_names)}"
        lines = await together(Line.to(self.side.address) for _ in range(MEMBERS))
        await coordinated(lines[0], [group])
        self.members = [Member(line, group) for line in lines]
        await together(member.take_part(self.members) for member in self.members)

    def measure(self, seconds: float) -> Sample:
        return self.loop.run_until_complete(self._measure(seconds))

    async def _measure(self, seconds: float) -> Sample:
        took_s = []
        cpu_s = self.side.cpu_seconds()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            leader = next(member for member in self.members if member.leads)
            started = time.perf_counter()
            await together(
                member.settle() if member is leader else member.rejoin_when_told() for member in self.members
            )
            took_s.append(time.perf_counter() - started)
            if len({member.generation for member in self.members}) != 1:
                raise RuntimeError(f"{self.side.name}: members of several generations")
        return _of_rebalances(took_s, self.side.cpu_seconds() - cpu_s)

    def clean(self) -> None:
        _close(self.loop, [member.line for member in self.members])


class ConsumerRebalance(Bench):
    """A stable consumer group of 50 (KIP-848): one leaves, others take over, a new one joins and takes from others."""

    def prepare(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.name = self.topic(MEMBERS * PARTITIONS_EACH)
        self.loop.run_until_complete(self._come())

    async def _come(self) -> None:
        group = f"bench-{next(_names)}"
        await _without_delay(self.side, group)
        lines = await together(Line.to(self.side.address) for _ in range(MEMBERS))
        await coordinated(lines[0], [group])
        self.members = [ConsumerMember(line, group, [self.name]) for line in lines]
        await self._agree(self.members)

    async def _agree(self, members: Sequence[ConsumerMember]) -> None:
        await together(member.follow(members, MEMBERS * PARTITIONS_EACH) for member in members)

    def prepare_sample(self) -> None:
        self.loop.run_until_complete(self._agree(self.members))  # while the other side ran, sessions may have ended

    def measure(self, seconds: float) -> Sample:
        return self.loop.run_until_complete(self._measure(seconds))

    async def _measure(self, seconds: float) -> Sample:
        took_s = []
        cpu_s = self.side.cpu_seconds()
        end = time.monotonic() + seconds
        leaving = itertools.cycle(self.members)
        while time.monotonic() < end:
            member = next(leaving)
            started = time.perf_counter()
            await member.leave()
            await self._agree([each for each in self.members if each is not member])
            await self._agree(self.members)
            took_s.append(time.perf_counter() - started)
        return _of_rebalances(took_s, self.side.cpu_seconds() - cpu_s)

    def clean(self) -> None:
        _close(self.loop, [member.line for member in self.members])
        self.side.delete_topic(self.name)


class ConsumerHeartbeats(Bench):
    """1,000 stable consumer groups of one member, each on a connection with a heartbeat every 5 s, as by default."""

    def prepare(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.name = self.topic()
        self.loop.run_until_complete(self._come())

    async def _come(self) -> None:
        run = next(_names)
        groups = [f"bench-{run}-{number}" for number in range(GROUPS)]
        lines: list[Line] = []
        while len(lines) < GROUPS:
            lines += await together(Line.to(self.side.address) for _ in range(CONNECTING))
        await coordinated(lines[0], groups)
        self.members = [ConsumerMember(line, group, [self.name]) for line, group in zip(lines, groups, strict=True)]
        await self._agree()

    async def _agree(self) -> None:
        await together(member.follow([member], 1) for member in self.members)

    def warm(self, seconds: float) -> None:
        self.loop.run_until_complete(self._beat_without_pause(seconds))

    async def _beat_without_pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await self._agree()

    def prepare_sample(self) -> None:
        self.loop.run_until_complete(self._agree())  # while the other side ran, sessions may have ended

    def measure(self, seconds: float) -> Sample:
        return self.loop.run_until_complete(self._measure(max(seconds, BEAT_S)))

    async def _measure(self, seconds: float) -> Sample:
        late_s: list[float] = []
        running: set[asyncio.Task[None]] = set()
        cpu_s = self.side.cpu_seconds()
        started = time.perf_counter()
        for number in range(int(seconds / BEAT_S * GROUPS)):
            due = started + number * BEAT_S / GROUPS
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            task = asyncio.ensure_future(_timed_beat(self.members[number % GROUPS], due, late_s))
            running.add(task)
            task.add_done_callback(running.discard)
        await together(running)
        took_s = time.perf_counter() - started
        cpu_s = self.side.cpu_seconds() - cpu_s
        hundredths = statistics.quantiles(late_s, n=100)
        return {
            "cpu": cpu_s / took_s * 100,
            "each": cpu_s / len(late_s) * 1e6,
            "p50": hundredths[49] * 1000,
            "p99": hundredths[98] * 1000,
        }

    def clean(self) -> None:
        _close(self.loop, [member.line for member in self.members])
        self.side.delete_topic(self.name)


async def _timed_beat(member: ConsumerMember, due: float, late_s: list[float]) -> None:
    await member.beat()
    late_s.append(time.perf_counter() - due)


async def _without_delay(side: Side, group: str) -> None:
    client = Client(side.address)
    await client.start()
    await Admin(client).alter_group_configs(group, AT_ONCE)
    await client.close()


def _of_rebalances(took_s: list[float], cpu_s: float) -> Sample:
    return {
        "p50": statistics.median(took_s) * 1000,
        "worst": max(took_s) * 1000,
        "cpu": cpu_s / len(took_s) * 1000,
    }


def _close(loop: asyncio.AbstractEventLoop, lines: list[Line]) -> None:
    for line in lines:
        line.close()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
