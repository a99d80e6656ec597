"""A classic group under kills of its members and of its coordinator, in every state that it can be in.

While it goes on: one owner a partition and generation, and what was committed does not go back. In the end those who
are left have come to a stable group, in which every partition has its owner. A group that was deleted stays away.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from isthmus.core_broker.coordinators.group import Group
from isthmus.core_broker.coordinators.group_states import State

from ..hosts import Process
from ..members import GROUP, Consumer, Seen, committed, delete_group, fetched
from ..product import BrokerHost
from ..runner import Simulation
from ..wire import make_topic

TOPIC = "events"
PARTITIONS = 4
SETTLE_S = 300.0
STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable")


def state_of(host: BrokerHost) -> str | None:
    """What state the group is in, as its coordinator knows; None while nobody coordinates it."""
    if host.broker is None or host.broker._groups is None:
        return None
    for shard in host.broker._groups.host.shards.shards.values():
        group: Any = shard.state.groups.get(GROUP)
        if shard.failure is None and group is not None:
            return str(group.state.value)
    return None


class Moments:
    """When the group comes to be in a state, as seen from outside of time: no poll could be so quick."""

    def __init__(self, sim: Simulation, host: BrokerHost) -> None:
        self.sim = sim
        self.host = host
        self._awaited: dict[str, asyncio.Future[None]] = {}

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        real = Group._entered

        def entered(group: Group, state: State, before: State) -> None:
            if group.group_id == GROUP and state.value in self._awaited:
                self._awaited.pop(state.value).set_result(None)
            real(group, state, before)

        with mock.patch.object(Group, "_entered", entered):
            yield

    async def come(self, state: str, within_s: float, *, anew: bool) -> bool:
        """Wait until the group is in a state, or a little longer; False when that does not come to be.

        anew: it is not enough that it is in that state already.
        """
        if anew or state_of(self.host) != state:
            self._awaited[state] = self.sim.loop.create_future()
            try:
                await asyncio.wait_for(self._awaited[state], within_s)
            except TimeoutError:
                self._awaited.pop(state, None)
                return False
        await asyncio.sleep(self.sim.random.choice((0.0, 0.002, 0.02)) * self.sim.random.random())
        return True


async def groups(sim: Simulation) -> None:
    host = BrokerHost(sim, "broker", {"durability": "fsync", "group.initial.rebalance.delay.ms": "100"})
    moments = Moments(sim, host)
    with moments.watched():
        await run_group(sim, host, moments)


async def run_group(sim: Simulation, host: BrokerHost, moments: Moments) -> None:
    chance = sim.random
    await host.up()
    admin = sim.machine("admin").start()
    await admin.outcome(make_topic(host.address, TOPIC, PARTITIONS))
    seen = Seen(sim, TOPIC, PARTITIONS)
    consumers = [
        Consumer(sim, f"c{number}", host, seen, static=chance.random() < 0.4) for number in range(chance.randint(2, 3))
    ]
    for _ in range(chance.randint(2, 3)):
        await asyncio.sleep(chance.uniform(0.1, 6.0))
        await fault(sim, host, consumers, moments)
    for gone in consumers[: chance.randint(0, 1)]:  # for good, and without a word
        gone.wanted = False
        gone.machine.kill()
    left = [consumer for consumer in consumers if consumer.wanted]
    await sim.until(lambda: is_shared_out(host, left), "a stable group that owns every partition", SETTLE_S)
    for consumer in left:
        consumer.wanted, consumer.leaves = False, consumer.instance is None
    await sim.until(lambda: state_of(host) == "Empty", "the end of all members", SETTLE_S)
    await set_by_hand(sim, host, seen, admin)
    seen.check_log(host)
    await deleted(sim, host, admin)


async def set_by_hand(sim: Simulation, host: BrokerHost, seen: Seen, admin: Process) -> None:
    """Nobody is left: what was committed stands over a restart, and so does what an administrator sets then."""
    await crash(sim, host)
    sim.counters["coordinator_in_Empty"] += 1
    await admin.outcome(told(host, seen))
    await sim.until(lambda: state_of(host) == "Empty", "members that a power cut brought back to be gone", SETTLE_S)
    partition = sim.random.randrange(PARTITIONS)
    seen.asked[partition] = [sim.random.randint(0, 5)]
    seen.sent[partition] = max(seen.sent.get(partition, -1), *seen.asked[partition])
    await admin.outcome(committed(host, TOPIC, partition, seen.asked[partition][0]))
    if sim.random.random() < 0.5:
        await crash(sim, host)
    found = await admin.outcome(told(host, seen))
    assert found[partition] == seen.asked[partition][0], "what was set by hand is not what is told"


async def deleted(sim: Simulation, host: BrokerHost, admin: Process) -> None:
    """A group that is said to be deleted stays away, and what it had committed."""
    await admin.outcome(delete_group(host))
    if sim.random.random() < 0.5:
        await crash(sim, host)
        sim.counters["coordinator_in_Dead"] += 1
    found = await admin.outcome(fetched(host, TOPIC, PARTITIONS))
    assert set(found.values()) == {-1}, f"the group was deleted, and its offsets are {found}"
    assert state_of(host) in (None, "Empty"), f"the group was deleted, and is {state_of(host)}"


async def told(host: BrokerHost, seen: Seen) -> dict[int, int]:
    acked = dict(seen.acked)
    found = await fetched(host, TOPIC, PARTITIONS)
    for partition, offset in found.items():
        seen.fetched(partition, offset, acked.get(partition, -1))
    return found


async def fault(sim: Simulation, host: BrokerHost, consumers: list[Consumer], moments: Moments) -> None:
    """A kill of the coordinator or of a member, or a cut, at a moment when the group is in a drawn state."""
    chance = sim.random
    state = chance.choice(STATES[1:])
    changes = chance.random() < 0.7
    if changes:
        chance.choice(consumers).machine.kill()  # so that the group changes its state sooner or later
    if not await moments.come(state, 20.0, anew=changes):
        return
    what = chance.choice(("coordinator", "coordinator", "member", "cut"))
    sim.counters[f"{what}_in_{state}"] += 1
    if what == "member":
        chance.choice(consumers).machine.kill()
    elif what == "cut":
        sim.network.cut()
    else:
        await crash(sim, host)


async def crash(sim: Simulation, host: BrokerHost) -> None:
    """The coordinator is gone, at once or within one of its next writes, and comes back."""
    chance = sim.random
    power = chance.random() < 0.5
    if chance.random() < 0.5:
        host.machine.kill_at_disk_operation(chance.randint(1, 6), power=power)
        await asyncio.sleep(chance.uniform(0.1, 1.0))
    if host.alive:
        host.machine.disk.crash_countdown = 0
        host.kill(power=power)
    host.broker = None
    await asyncio.sleep(chance.choice((0.05, 0.5, 8.0)))
    await host.up(crash_chance=0.2, power=power)


def is_shared_out(host: BrokerHost, consumers: list[Consumer]) -> bool:
    owned = sorted(partition for consumer in consumers for partition in consumer.share)
    generations = {consumer.generation for consumer in consumers}
    return state_of(host) == "Stable" and len(generations) == 1 and owned == list(range(PARTITIONS))
