"""Members of consumer groups in a few lines over the wire: what each process of them owns and commits.

A member owns a partition from the answer that gives it until it gives it back, is told that it is fenced, or may have
been taken for gone. It gives partitions back slowly, sometimes never, and commits how far it is in those that it owns.
Members are killed, hang until they are zombies, leave, come back, static ones under the same instance id, in one
protocol or the other, and subscribe to other topics, by name or by regular expression.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import find_coordinator
from isthmus.protocol.messages import offset_commit as oc
from isthmus.protocol.messages import offset_fetch as of

from .brokers import Cluster
from .classic_protocol_member import ClassicProtocolMember
from .consumer_protocol_member import ConsumerProtocolMember, topics_of
from .group_ledger import AGAIN, HEARTBEAT_S, JOINING, NO_OFFSET, SESSION_S, Ledger, Place, ReplacedError
from .hosts import Process, ProcessKilled
from .wire import Wire, connect

ANSWER_TIMEOUT_S = 5.0
REBALANCE_S = (2.0, 20.0)  # of a member, in which it is to give partitions back; not all do in the first
NEVER_GIVES_BACK = 0.1  # of the times that a member is to
COMMIT_VERSION, FETCH_VERSION = 10, 10
STALE = (  # of commits and fetches: a heartbeat will tell what is wrong, or a broker does not know a topic yet
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


@dataclass(slots=True, frozen=True)
class Subscription:
    names: tuple[str, ...] = ()
    regex: str = ""


SUBSCRIPTIONS = (
    Subscription(("events",)),
    Subscription(("events", "errors")),
    Subscription(regex="e.*"),
    Subscription(("errors",), "ev.*"),
)


class Member:
    """lives: of it so far, each on a machine of its own. Of a static member two may run at once, of which the older one
    is a zombie."""

    def __init__(self, cluster: Cluster, label: str, ledger: Ledger) -> None:
        self.cluster = cluster
        self.sim = cluster.sim
        self.label = label
        self.ledger = ledger
        self.is_enough = False  # nothing happens to it any more
        self.is_over = False  # it leaves
        self.lives: list[Life] = []
        chance = self.sim.random
        self.instance = label if chance.random() < 0.4 else None
        self.rebalance_s = chance.choice(REBALANCE_S)
        self.subscription = chance.choice(SUBSCRIPTIONS)
        self.keeper = self.sim.loop.create_task(self._keep())

    @property
    def life(self) -> Life | None:
        """That which is the member now."""
        return self.lives[-1] if self.lives and not self.lives[-1].task.done() else None

    async def _keep(self) -> None:
        chance = self.sim.random
        while not self.is_over:
            life = self.life
            if life is None:
                life = Life(self, len(self.lives))
                self.lives.append(life)
            await self._calm(life, chance.choice((3.0, 8.0, 20.0)))
            if life.task.done():
                life.task.result()  # what it found wrong
            elif not self.is_enough:
                await self._disturb(life)
            if self.is_enough:  # a zombie that was not away for long goes on, and no other life gets its place
                for each in self.lives[:-1]:
                    each.machine.kill()
        for each in self.lives:
            each.is_last = True
        await asyncio.gather(*(each.task for each in self.lives))

    async def _calm(self, life: Life, seconds: float) -> None:
        until_s = self.sim.loop.time() + self.sim.random.uniform(0.2, seconds)
        is_calm = self.is_enough
        while not life.task.done() and not self.is_over and self.is_enough == is_calm:
            if not is_calm and self.sim.loop.time() >= until_s:
                return
            await asyncio.sleep(0.1)

    async def _disturb(self, life: Life) -> None:
        chance = self.sim.random
        match chance.choice(("kill", "zombie", "leave", "subscribe", "hang")):
            case "kill":
                self.sim.counters["members_killed"] += 1
                life.machine.kill()
                await asyncio.sleep(chance.choice((0.1, 2.0, 1.5 * SESSION_S)))
            case "zombie":  # a static one is replaced while it is away
                self.sim.counters["zombies"] += 1
                life.machine.hang(chance.uniform(1.0, 2.5) * SESSION_S)
                if self.instance is not None:
                    self.lives.append(Life(self, len(self.lives)))
            case "hang":
                life.machine.hang(chance.uniform(0.1, 1.0) * SESSION_S)
            case "leave":
                life.is_last = True
                await asyncio.wait([life.task])
                self.sim.counters["members_left"] += 1
                await asyncio.sleep(chance.choice((0.1, 2.0)))
            case _:
                self.sim.counters["subscriptions_changed"] += 1
                self.subscription = chance.choice(SUBSCRIPTIONS)


class Life:
    """One process of a member. owned: what it may read; of that it is to give `leaving` back."""

    def __init__(self, member: Member, number: int) -> None:
        self.member = member
        self.sim = member.sim
        self.ledger = member.ledger
        self.name = f"{member.label}-{number}"
        self.machine = self.sim.machine(self.name)
        self.owned: set[Place] = set()
        self.leaving: set[Place] = set()
        self.is_last = False  # it leaves, and ends
        self.may_be_replaced = False  # another one has its place, or will have, and may not have been told so yet
        self._positions: dict[Place, int] = {}
        self._give_back_s = 0.0  # when
        self._wires: dict[str, Wire] = {}
        self._process = self.machine.start()
        self.random = self._process.runtime.random
        self.is_classic = self.random.random() < self.ledger.classic_share
        self._part = ClassicProtocolMember(self) if self.is_classic else ConsumerProtocolMember(self)
        self.task = self.sim.loop.create_task(self._ending(self._process))

    @property
    def epoch(self) -> int:
        return self._part.epoch

    def has(self, place: Place) -> bool:
        """Whether the partition is its own, by all that it can know; if in doubt it is not."""
        is_there = self._process.alive and not self.may_be_replaced
        return is_there and place in self.owned and self._part.is_sure_of(place)

    async def _ending(self, process: Process) -> None:
        try:
            await process.outcome(self._run())
        except ProcessKilled:
            pass

    async def _run(self) -> None:
        try:
            while not self.is_last:
                if self.epoch == JOINING:
                    await self._part.beat()
                else:
                    await self._work()
                await asyncio.sleep(self.random.uniform(0.0, 2 * HEARTBEAT_S) * self.random.choice((0.1, 1.0)))
            self.owned.clear()
            await self._part.leave()
        except ReplacedError:
            self.sim.counters["replaced"] += 1
        finally:
            self.owned.clear()
            for wire in self._wires.values():
                wire.transport.abort()

    async def _work(self) -> None:
        if self.leaving and self.sim.loop.time() >= self._give_back_s:
            self.owned -= self.leaving
            self.leaving = set()
        if self.owned and self.random.random() < 0.5:
            await self._commit()
        if self.random.random() < 0.7:
            await self._part.beat()

    def joins(self) -> None:
        """It asks to be a member. Where either speaks the classic protocol, the coordinator gives it the place of
        another process of a static member at once, even of a later one."""
        self.may_be_replaced = False
        if self.member.instance is not None:
            for each in self.member.lives:
                each.may_be_replaced |= each is not self and (each.is_classic or self.is_classic)

    def take(self, given: set[Place]) -> bool:
        """What it is to have from now on; whether it has to give something back that it had not before."""
        for place in sorted(given - self.owned):
            self.owned.add(place)
            self.ledger.given(place, self)
            self._positions.pop(place, None)
        leaving = self.owned - given
        is_new = bool(leaving) and not self.leaving
        if is_new:
            self.sim.counters["revocations"] += 1
            self._give_back_s = self.sim.loop.time() + self.random.choice((0.0, 1.0, 4.0)) * self.random.random()
            if not self.is_classic and self.random.random() < NEVER_GIVES_BACK:
                self._give_back_s = math.inf
        self.leaving = leaving
        return is_new

    def lost(self) -> None:
        """It is no member any more, and has nothing."""
        self.sim.counters["fenced"] += 1
        self.sim.counters["fenced_that_never_gave_back"] += bool(self.leaving) and self._give_back_s == math.inf
        self.owned.clear()
        self.leaving = set()
        self._positions.clear()

    # --- Offsets ------------------------------------------------------------------------------------------------------

    async def _commit(self) -> None:
        """Go one step on in a partition, and say so."""
        places = self.owned if self._part.knows_leaving else self.owned - self.leaving
        if not places:
            return
        place = self.random.choice(sorted(places))
        if place not in self._positions and not await self._fetch():
            return
        if place not in self.owned:
            return
        offset = self._positions[place] + 1
        self.ledger.sent[place] = max(offset, self.ledger.sent.get(place, NO_OFFSET))
        row = oc.OffsetCommitRequestPartition(partition_index=place[1], committed_offset=offset, committed_metadata="")
        request = oc.Request(
            group_id=self.ledger.group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self._part.member_id,
            group_instance_id=self.member.instance,
            topics=[oc.OffsetCommitRequestTopic(topic_id=place[0], partitions=[row])],
        )
        owner = self.ledger.owners.get(place)
        answer = await self.coordinated(oc.API, request, COMMIT_VERSION)
        if answer is None:
            return
        code = answer.topics[0].partitions[0].error_code
        assert not code or code in AGAIN + STALE, f"{self.name} was told {ErrorCode(code).name} of its commit"
        if code in STALE:
            self.sim.counters["commits_refused"] += 1
        if not code:
            self._positions[place] = offset
            self.ledger.committed(place, offset, self, owner)

    async def _fetch(self) -> bool:
        """From where to go on, in all that it owns."""
        acked, owned = dict(self.ledger.acked), set(self.owned)
        topics = [
            of.OffsetFetchRequestTopics(topic_id=each.topic_id, partition_indexes=each.partitions)
            for each in topics_of(owned)
        ]
        group = of.OffsetFetchRequestGroup(
            group_id=self.ledger.group,
            member_id=None if self.is_classic else self._part.member_id,
            member_epoch=-1 if self.is_classic else self.epoch,
            topics=topics,
        )
        answer = await self.coordinated(of.API, of.Request(groups=[group], require_stable=True), FETCH_VERSION)
        if answer is None:
            return False
        (told,) = answer.groups
        code = told.error_code
        assert not code or code in AGAIN + STALE, f"{self.name} was told {ErrorCode(code).name} of its offsets"
        if code:
            return False
        for topic in told.topics:
            for row in topic.partitions:
                if row.error_code:
                    assert row.error_code in STALE, ErrorCode(row.error_code).name
                    return False
                place = (topic.topic_id, row.partition_index)
                self.ledger.told(place, row.committed_offset, acked.get(place, NO_OFFSET))
                self._positions.setdefault(place, row.committed_offset)
        return True

    # --- The wire -----------------------------------------------------------------------------------------------------

    async def coordinated(
        self,
        api: Any,
        request: Any,
        version: int = -1,
        timeout_s: float = ANSWER_TIMEOUT_S,
        sending: Callable[[], None] | None = None,
    ) -> Any:
        """The answer of a coordinator, looked for each time; None where there is none, then after a pause. sending: is
        called when the request is sent, which may be long after."""
        asked = find_coordinator.Request(key=self.ledger.group)
        found = await self._ask(self.member.cluster.any_address(), find_coordinator.API, asked)
        if found is None or found.error_code:
            return None
        return await self._ask(f"{found.host}:{found.port}", api, request, version, timeout_s, sending)

    async def _ask(
        self,
        address: str,
        api: Any,
        request: Any,
        version: int = -1,
        timeout_s: float = ANSWER_TIMEOUT_S,
        sending: Callable[[], None] | None = None,
    ) -> Any:
        try:
            wire = self._wires.get(address)
            if wire is None or wire.lost:
                wire = self._wires[address] = await connect(address)
            if sending is not None:
                sending()
            return await asyncio.wait_for(wire.request(api, request, version), timeout_s)
        except (OSError, TimeoutError):
            broken = self._wires.pop(address, None)
            if broken is not None:
                broken.transport.abort()  # what is under way must not arrive after what comes next
            await asyncio.sleep(self.random.uniform(0.02, 0.3))
            return None
