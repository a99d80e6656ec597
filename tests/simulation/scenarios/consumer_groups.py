"""Three or four whole brokers, under consumer groups of KIP-848 whose members come, go, hang and change their minds.

Brokers are killed, cut off and set wrong by their clocks, coordinators move, topics grow, or are deleted and made anew,
the log of the groups is compacted. Of some groups the members change between the classic protocol and the new one, and
the groups with them. What holds: a partition is one member's at a time, by all that its members can know; a member's
epoch never goes back, nor does a group's; a member that has lost a partition commits nothing of it; a committed offset
never goes back or away. Once all is quiet, each partition of the topics that members subscribe to is owned, by one of
those, and the group is Stable; once all have left, it is Empty.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import consumer_group_describe as cgd
from isthmus.protocol.messages import create_partitions, delete_topics, describe_groups, offset_fetch

from ..brokers import Cluster
from ..cluster_faults import Faults
from ..cluster_watch import Watch
from ..consuming import Member
from ..group_ledger import AGAIN, HEARTBEAT_S, NO_OFFSET, SESSION_S, Ledger, Place
from ..late_messages import LateMessages
from ..rare_states import counted
from ..runner import Simulation
from ..wire import ask

TOPICS = {"events": 3, "errors": 2}
MADE_ANEW = "errors"
OFFSETS = "__consumer_offsets"
MIN_INSYNC = 2
MOST_PARTITIONS = 6
SETTLE_S = 300.0
EVENTS = (1, 4)
MIGRATES = 0.5  # of the groups
MORE_FAULTS = ["cut", "elect", "hang", "move", "move", "one_way"]  # of which some move the coordinator
LIMIT_S = 1_500.0


async def consumer_groups(sim: Simulation) -> None:
    sim.loop.kernel.limit_s = LIMIT_S
    is_durable = sim.random.random() < 0.3
    brokers = new_cluster(sim, is_durable)
    with counted(sim.counters):
        await run_groups(sim, brokers, is_durable)


async def run_groups(sim: Simulation, brokers: Cluster, is_durable: bool) -> None:
    chance = sim.random
    await brokers.form()
    for topic, count in TOPICS.items():
        await brokers.make_topic(topic, count, {"min.insync.replicas": str(MIN_INSYNC)})
    watch = Watch(brokers, (OFFSETS, MADE_ANEW), dict.fromkeys(TOPICS, MIN_INSYNC))
    groups = [Group(brokers, f"g{number}") for number in range(chance.randint(1, 3))]
    growth = asyncio.ensure_future(grow(brokers))
    faults = Faults(brokers, {OFFSETS: 1}, is_durable=is_durable)
    faults.kinds += MORE_FAULTS
    late = LateMessages(brokers, {}, (OFFSETS,))
    await asyncio.sleep(chance.uniform(0.5, 6.0))
    for _ in range(chance.randint(*EVENTS)):
        await asyncio.sleep(chance.uniform(0.0, 4.0))
        await watch.unless_broken(late.one() if chance.random() < 0.3 else faults.one())
        for each in groups:
            each.raise_failures()
    faults.end()
    await watch.unless_broken(brokers.up(SETTLE_S))
    await sim.within(SETTLE_S, "topics grow", watch.unless_broken(growth))
    for each in groups:
        each.calm()
    for each in groups:
        await watch.unless_broken(each.settled())
    sim.counters["coordinators"] += groups[0].coordinators
    if chance.random() < 0.5:  # nothing else makes the groups look at their topics again
        await sim.within(SETTLE_S, "topics grow", grow_once(brokers))
        for each in groups:
            await watch.unless_broken(each.settled())
    for each in groups:
        await sim.within(SETTLE_S, "all offsets are told", watch.unless_broken(each.check_offsets()))
    for each in groups:
        await watch.unless_broken(each.end())
    watch.check()


def new_cluster(sim: Simulation, is_durable: bool) -> Cluster:
    chance = sim.random
    options = {
        "durability": "fsync" if is_durable else "page_cache",
        "min.insync.replicas": str(MIN_INSYNC),
        "group.consumer.min.session.timeout.ms": str(int(SESSION_S * 1000)),
        "group.consumer.session.timeout.ms": str(int(SESSION_S * 1000)),
        "group.consumer.min.heartbeat.interval.ms": str(int(HEARTBEAT_S * 1000)),
        "group.consumer.heartbeat.interval.ms": str(int(HEARTBEAT_S * 1000)),
        "group.consumer.assignment.interval.ms": chance.choice(("0", "1000")),
        "group.initial.rebalance.delay.ms": chance.choice(("0", "500")),
        "group.consumer.assignors": chance.choice(("uniform,range", "range,uniform")),
    }
    if chance.random() < 0.5:
        options |= {"log.roll.ms": "2000", "log.cleaner.backoff.ms": "2000", "log.cleaner.min.cleanable.ratio": "0.01"}
    return Cluster(sim, chance.choice((3, 3, 4)), options, voters=3)


async def grow(brokers: Cluster) -> None:
    """Topics grow, and one is deleted and made anew, while all else happens."""
    chance = brokers.sim.random
    for _ in range(chance.randint(0, 2)):
        await asyncio.sleep(chance.uniform(1.0, 12.0))
        await grow_once(brokers)
        if chance.random() < 0.3:
            await make_anew(brokers, MADE_ANEW)


async def grow_once(brokers: Cluster) -> None:
    """A topic gets more partitions, or there is one topic more."""
    chance = brokers.sim.random
    if chance.random() < 0.4:
        await brokers.make_topic(f"extras{chance.randrange(1000)}", 2, {"min.insync.replicas": str(MIN_INSYNC)})
        return
    row = create_partitions.CreatePartitionsTopic(
        name=chance.choice(list(TOPICS)), count=chance.randint(4, MOST_PARTITIONS), assignments=None
    )
    while True:
        answer = await brokers.ask(create_partitions.API, create_partitions.Request(topics=[row], timeout_ms=5000))
        if answer is not None and answer.results[0].error_code in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS):
            brokers.sim.counters["grown"] += not answer.results[0].error_code
            return
        await asyncio.sleep(0.3)


async def make_anew(brokers: Cluster, topic: str) -> None:
    """A topic is deleted, and made again some time later; all that was committed of the old one is gone."""
    request = delete_topics.Request(topic_names=[topic], timeout_ms=5000)
    while True:
        answer = await brokers.ask(delete_topics.API, request)
        gone = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # the answer before may have been lost
        if answer is not None and answer.responses[0].error_code in gone:
            break
        await asyncio.sleep(0.3)
    await asyncio.sleep(brokers.sim.random.choice((0.0, 2.0)) * brokers.sim.random.random())
    await brokers.make_topic(topic, TOPICS[topic], {"min.insync.replicas": str(MIN_INSYNC)})
    brokers.sim.counters["made_anew"] += 1


class Group:
    """A group and its members. coordinators: how many changes of its coordinator were seen while it was described."""

    def __init__(self, brokers: Cluster, group_id: str) -> None:
        self.brokers = brokers
        self.sim = brokers.sim
        self.group_id = group_id
        self.ledger = Ledger(self.sim, group_id, migrates=self.sim.random.random() < MIGRATES)
        self._migrating = self.sim.loop.create_task(self._migrate())
        self.members = [
            Member(brokers, f"{group_id}m{number}", self.ledger) for number in range(self.sim.random.randint(2, 5))
        ]
        self._epoch = 0
        self._state = ""
        self.coordinators = 0
        self._led_in = -1  # the newest leader epoch of its log
        self._watching = self.sim.loop.create_task(self._describe())

    async def _migrate(self) -> None:
        """Members that start speak one protocol or the other, by turns more the one or the other."""
        chance = self.sim.random
        while self.ledger.migrates:
            self.ledger.classic_share = chance.choice((0.0, 0.4, 1.0, 1.0))
            await asyncio.sleep(chance.uniform(2.0, 12.0))

    def raise_failures(self) -> None:
        for task in (self._watching, *(each.keeper for each in self.members)):
            if task.done():
                task.result()

    def calm(self) -> None:
        for each in self.members:
            each.is_enough = True

    async def settled(self) -> None:
        try:
            await self.sim.until(self._is_settled, f"{self.group_id} is shared out", SETTLE_S)
        except AssertionError as error:
            lives = {each.label: each.life for each in self.members}
            state = {name: life and (life.epoch, len(life.owned), len(life.leaving)) for name, life in lives.items()}
            raise AssertionError(f"{error}: it is {self._state}, members are {state}") from None

    def _is_settled(self) -> bool:
        self.raise_failures()
        lives = [each.life for each in self.members]
        image = self.brokers.image()
        if self._state != "Stable" or image is None or any(life is None or life.leaving for life in lives):
            return False
        return sorted(place for life in lives if life for place in life.owned) == sorted(self._wanted(image))

    def _wanted(self, image: MetadataImage) -> set[Place]:
        """All partitions of the topics that somebody subscribes to."""
        found = set()
        for name, topic in image.topics.items():
            if any(name in s.names or re.fullmatch(s.regex, name) for s in (m.subscription for m in self.members)):
                found |= {(topic.id, index) for index in topic.partitions}
        return found

    async def check_offsets(self) -> None:
        """What was acknowledged is still told when all is over."""
        image = self.brokers.image()
        assert image is not None
        for topic_id in sorted({topic_id for topic_id, _ in self.ledger.acked} & image.names_by_id.keys()):
            indexes = sorted(index for each, index in self.ledger.acked if each == topic_id)
            asked = offset_fetch.OffsetFetchRequestTopic(name=image.names_by_id[topic_id], partition_indexes=indexes)
            while True:
                acked = dict(self.ledger.acked)
                answer = await self._coordinated(
                    offset_fetch, offset_fetch.Request(group_id=self.group_id, topics=[asked])
                )
                if answer is not None and not answer.error_code:
                    break
                await asyncio.sleep(0.3)
            for row in answer.topics[0].partitions:
                assert not row.error_code, ErrorCode(row.error_code).name
                place = (topic_id, row.partition_index)
                self.ledger.told(place, row.committed_offset, acked.get(place, NO_OFFSET))

    async def end(self) -> None:
        """All leave."""
        for each in self.members:
            each.is_over = True
        await self.sim.within(
            SETTLE_S, f"the members of {self.group_id} leave", asyncio.gather(*(each.keeper for each in self.members))
        )
        await self.sim.until(lambda: self._state == "Empty", f"{self.group_id} is empty", SETTLE_S)
        self.raise_failures()
        self._watching.cancel()
        self._migrating.cancel()

    async def _describe(self) -> None:
        """Again and again: its epoch never goes back."""
        while True:
            await asyncio.sleep(self.sim.random.uniform(0.1, 1.5))
            known = self._epoch
            self._follow_moves()
            answer = await self._coordinated(cgd, cgd.Request(group_ids=[self.group_id]))
            if self._follow_moves() or answer is None:  # one that was deposed may answer what was true before
                continue
            (row,) = answer.groups
            if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND and self.ledger.migrates:
                await self._describe_classic()
            elif row.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                assert not known, f"{self.group_id} was in epoch {known}, and is gone"
            elif not row.error_code:
                assert row.group_epoch >= known or self.ledger.migrates, (
                    f"{self.group_id} was in epoch {known}, and is in {row.group_epoch}"
                )
                self._epoch, self._state = row.group_epoch, row.group_state
                self.sim.counters["described"] += 1
            else:
                assert row.error_code in AGAIN, ErrorCode(row.error_code).name

    async def _describe_classic(self) -> None:
        """A classic group that is empty makes room for a consumer group, which begins with its first epoch."""
        answer = await self._coordinated(describe_groups, describe_groups.Request(groups=[self.group_id]))
        if self._follow_moves() or answer is None or answer.groups[0].error_code:
            return
        self._state = "Empty" if answer.groups[0].group_state == "Dead" else answer.groups[0].group_state
        self.sim.counters["described_as_classic"] += 1

    async def _coordinated(self, messages: Any, request: Any) -> Any:
        address = await self.brokers.admin.outcome(self.brokers.coordinator(self.group_id))
        return await self.brokers.admin.outcome(ask(address, messages.API, request, attempts=1))

    def _follow_moves(self) -> bool:
        """Whether there was a new coordinator since the last time."""
        led = [held.leader_epoch for _, topic, _, held in self.brokers.partitions() if topic == OFFSETS]
        newest = max(led, default=-1)
        if newest <= self._led_in:
            return False
        self.coordinators += self._led_in >= 0
        self._led_in = newest
        return True
