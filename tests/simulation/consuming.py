"""Members of consumer groups (KIP-848) in a few lines over the wire, and the ledger of what they own and commit.

A member owns a partition from the answer that gives it until it sends a heartbeat without it, is told that it is
fenced, or has not been heard for as long as its coordinator waits for it. It gives partitions back slowly, and commits
how far it is in those that it owns. Members are killed, hang until they are zombies, leave, come back, static ones
under the same instance id, and subscribe to other topics, by name or by regular expression.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import consumer_group_heartbeat as chb
from isthmus.protocol.messages import find_coordinator
from isthmus.protocol.messages import offset_commit as oc
from isthmus.protocol.messages import offset_fetch as of
from isthmus.protocol.primitives import uuid_to_str

from .brokers import Cluster
from .hosts import Process, ProcessKilled
from .runner import Simulation
from .wire import Wire, connect

SESSION_S = 6.0  # of all members, by the options of the cluster
HEARTBEAT_S = 1.0
ANSWER_TIMEOUT_S = 5.0
REBALANCE_S = (2.0, 20.0)  # of a member, in which it is to give partitions back; not all do in the first
COMMIT_VERSION, FETCH_VERSION, HEARTBEAT_VERSION = 10, 10, 1
JOINING, LEAVING, PAUSED = 0, -1, -2  # epochs that members send
NO_OFFSET = -1
AGAIN = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
)
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)  # by a heartbeat: it begins anew
REPLACED = (ErrorCode.FENCED_INSTANCE_ID,)
STALE = (  # of commits and fetches: a heartbeat will tell what is wrong, or a broker does not know a topic yet
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
Place = tuple[bytes, int]  # topic id and partition


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


class ReplacedError(Exception):
    """Another life of a static member has taken its place."""


@dataclass(slots=True)
class Ledger:
    """What the members of one group have been told. acked: the furthest committed offset that was acknowledged."""

    sim: Simulation
    group: str
    owners: dict[Place, Life] = field(default_factory=dict)  # who was given it last
    acked: dict[Place, int] = field(default_factory=dict)
    sent: dict[Place, int] = field(default_factory=dict)

    def given(self, place: Place, life: Life) -> None:
        before = self.owners.get(place)
        if before is not None and before is not life:
            assert not before.has(place), (
                f"{name(place)} of {self.group} is {before.name}'s in epoch {before.epoch}, and is given to "
                f"{life.name} in epoch {life.epoch}"
            )
            self.sim.counters["handed_over"] += 1
        self.owners[place] = life

    def told(self, place: Place, offset: int, acked_before: int) -> None:
        """A committed offset was read. acked_before: what had been acknowledged when it was asked for."""
        assert offset >= acked_before, f"{name(place)} of {self.group}: {offset} is told after {acked_before}"
        assert offset <= self.sent.get(place, NO_OFFSET), f"{name(place)} of {self.group}: {offset} was never committed"
        self.acked[place] = max(offset, self.acked.get(place, NO_OFFSET))

    def committed(self, place: Place, offset: int, life: Life, owner_then: Life | None) -> None:
        """owner_then: who had been given the partition last when the commit was sent."""
        assert owner_then is life, (
            f"{life.name} has committed {offset} of {name(place)} of {self.group} though it is "
            f"{owner_then and owner_then.name}'s"
        )
        self.acked[place] = max(offset, self.acked.get(place, NO_OFFSET))
        self.sim.counters["commits"] += 1


def name(place: Place) -> str:
    return f"{uuid_to_str(place[0])}-{place[1]}"


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
    """One process of a member. epoch: JOINING until it is a member. owned: what it may read; of that it is to give
    `leaving` back."""

    def __init__(self, member: Member, number: int) -> None:
        self.member = member
        self.sim = member.sim
        self.ledger = member.ledger
        self.name = f"{member.label}-{number}"
        self.machine = self.sim.machine(self.name)
        self.epoch = JOINING
        self.owned: set[Place] = set()
        self.leaving: set[Place] = set()
        self.is_last = False  # it leaves, and ends
        self.latest_epoch = JOINING
        self._positions: dict[Place, int] = {}
        self._give_back_s = 0.0  # when
        self._heard_s = 0.0  # when the last heartbeat was sent that was answered
        self._unanswered_s: float | None = None  # when the first heartbeat was sent after it
        self._revoked_s: float | None = None  # from when it may be counted for how long it takes to give back
        self._told: set[Place] | None = None  # what the coordinator knows that it has; None: unsure
        self._subscribed: Subscription | None = None
        self._wires: dict[str, Wire] = {}
        self._process = self.machine.start()
        self.random = self._process.runtime.random
        self.member_id = f"{self.name}-{self.random.randrange(1 << 32):08x}"
        self.task = self.sim.loop.create_task(self._ending(self._process))

    def has(self, place: Place) -> bool:
        """Whether the partition is its own, by all that it can know; if in doubt it is not."""
        if place not in self.owned or not self._process.alive:
            return False
        until_s = self._heard_s + SESSION_S
        for since_s in (self._unanswered_s, self._revoked_s):
            if since_s is not None:
                until_s = min(until_s, since_s + self.member.rebalance_s)
        return self.sim.loop.time() < until_s

    async def _ending(self, process: Process) -> None:
        try:
            await process.outcome(self._run())
        except ProcessKilled:
            pass

    async def _run(self) -> None:
        try:
            while not self.is_last:
                if self.epoch == JOINING:
                    await self._heartbeat()
                else:
                    await self._work()
                await asyncio.sleep(self.random.uniform(0.0, 2 * HEARTBEAT_S) * self.random.choice((0.1, 1.0)))
            await self._leave()
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
            await self._heartbeat()

    # --- Heartbeats ---------------------------------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        subscription = self.member.subscription
        is_full = self._told is None
        request = chb.Request(
            group_id=self.ledger.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.member.instance,
        )
        if is_full or subscription != self._subscribed:
            request.subscribed_topic_names = list(subscription.names)
            request.subscribed_topic_regex = subscription.regex
        if is_full:
            request.rebalance_timeout_ms = int(self.member.rebalance_s * 1000)
        owned = set(self.owned)
        if is_full or owned != self._told or self.random.random() < 0.3:
            request.topic_partitions = _topics(owned)
        now_s = self.sim.loop.time()
        if self._unanswered_s is None:
            self._unanswered_s = now_s
        self._told = None  # unless it is answered
        answer = await self._coordinated(chb.API, request, HEARTBEAT_VERSION)
        if answer is None:
            return
        code = answer.error_code
        if code in REPLACED:
            raise ReplacedError
        if code in FENCED:
            self.sim.counters["fenced"] += 1
            self._begin_anew()
            return
        if code == ErrorCode.UNRELEASED_INSTANCE_ID and self.epoch == JOINING:
            self.sim.counters["unreleased"] += 1
            return
        assert not code or code in AGAIN, f"{self.name} was told {ErrorCode(code).name}: {answer.error_message}"
        if not code and self.sim.loop.time() < now_s + SESSION_S:  # one that hung takes an old answer for a lost one
            self._heard_s, since_s, self._unanswered_s = now_s, self._unanswered_s, None
            self._told, self._subscribed = owned, subscription
            self._take(answer, since_s)

    def _take(self, answer: chb.Response, since_s: float) -> None:
        assert answer.member_epoch >= self.latest_epoch, (
            f"{self.name} of {self.ledger.group} was in epoch {self.latest_epoch}, and is in {answer.member_epoch}"
        )
        self.epoch = self.latest_epoch = answer.member_epoch
        if answer.assignment is not None:
            given = {(each.topic_id, index) for each in answer.assignment.topic_partitions for index in each.partitions}
            for place in sorted(given - self.owned):
                self.owned.add(place)
                self.ledger.given(place, self)
                self._positions.pop(place, None)
            leaving = self.owned - given
            if leaving and not self.leaving:
                self.sim.counters["revocations"] += 1
                self._give_back_s = self.sim.loop.time() + self.random.choice((0.0, 1.0, 4.0)) * self.random.random()
                self._revoked_s = since_s
            self.leaving = leaving
        if not self.leaving:
            self._revoked_s = None

    def _begin_anew(self) -> None:
        self.epoch = JOINING
        self.owned.clear()
        self.leaving = set()
        self._told = self._unanswered_s = self._revoked_s = None
        self._positions.clear()

    async def _leave(self) -> None:
        """A static member comes back, unless all is over."""
        epoch = PAUSED if self.member.instance is not None and not self.member.is_over else LEAVING
        is_known = self.epoch != JOINING
        self.owned.clear()
        request = chb.Request(
            group_id=self.ledger.group,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.member.instance,
        )
        while is_known:
            answer = await self._coordinated(chb.API, request, HEARTBEAT_VERSION)
            if answer is not None and answer.error_code not in AGAIN:
                known = (ErrorCode.NONE, *FENCED, *REPLACED)
                assert answer.error_code in known, ErrorCode(answer.error_code).name
                return

    # --- Offsets ------------------------------------------------------------------------------------------------------

    async def _commit(self) -> None:
        """Go one step on in a partition, and say so."""
        place = self.random.choice(sorted(self.owned))
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
            member_id=self.member_id,
            group_instance_id=self.member.instance,
            topics=[oc.OffsetCommitRequestTopic(topic_id=place[0], partitions=[row])],
        )
        owner = self.ledger.owners.get(place)
        answer = await self._coordinated(oc.API, request, COMMIT_VERSION)
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
            for each in _topics(owned)
        ]
        group = of.OffsetFetchRequestGroup(
            group_id=self.ledger.group, member_id=self.member_id, member_epoch=self.epoch, topics=topics
        )
        answer = await self._coordinated(of.API, of.Request(groups=[group], require_stable=True), FETCH_VERSION)
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

    async def _coordinated(self, api: Any, request: Any, version: int) -> Any:
        """The answer of a coordinator, looked for each time; None where there is none, then after a pause."""
        asked = find_coordinator.Request(key=self.ledger.group)
        found = await self._ask(self.member.cluster.any_address(), find_coordinator.API, asked, -1)
        if found is None or found.error_code:
            return None
        return await self._ask(f"{found.host}:{found.port}", api, request, version)

    async def _ask(self, address: str, api: Any, request: Any, version: int) -> Any:
        try:
            wire = self._wires.get(address)
            if wire is None or wire.lost:
                wire = self._wires[address] = await connect(address)
            return await asyncio.wait_for(wire.request(api, request, version), ANSWER_TIMEOUT_S)
        except (OSError, TimeoutError):
            broken = self._wires.pop(address, None)
            if broken is not None:
                broken.transport.abort()  # what is under way must not arrive after what comes next
            await asyncio.sleep(self.random.uniform(0.02, 0.3))
            return None


def _topics(places: set[Place]) -> list[chb.TopicPartitions]:
    ids = sorted({topic_id for topic_id, _ in places})
    return [
        chb.TopicPartitions(topic_id=each, partitions=sorted(index for topic_id, index in places if topic_id == each))
        for each in ids
    ]
