"""Consumers of a few lines that keep to the protocol of classic groups, and what must hold of all that they saw.

Each owns partitions by turns and commits how far it is in them, one step at a time. Whatever is killed: in a
generation a partition has one owner; what was committed does not go back, unless an administrator asked for it; what
was acknowledged is what others are told afterwards.
"""

from __future__ import annotations

import asyncio
from typing import Any

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import (
    delete_groups,
    find_coordinator,
    group_records,
    heartbeat,
    join_group,
    leave_group,
)
from isthmus.protocol.messages import offset_commit as oc
from isthmus.protocol.messages import offset_fetch as of
from isthmus.protocol.messages import sync_group as sg
from isthmus.protocol.messages.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from isthmus.protocol.messages.group_records import OffsetCommitKey
from isthmus.protocol.records import decode_batch

from .hosts import Process, ProcessKilled
from .product import BrokerHost
from .runner import Simulation
from .wire import Fixed, Target, Wire, ask, connect

GROUP = "g"
ANSWER_TIMEOUT_S = 40.0  # longer than any rebalance
FIND_AGAIN = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
)
JOIN_AGAIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
FORGOTTEN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


class Seen:
    """What all consumers of the group were told, and the checks on it."""

    def __init__(self, sim: Simulation, topic: str, partitions: int) -> None:
        self.sim = sim
        self.topic = topic
        self.partitions = partitions
        self.owners: dict[tuple[int, int], str] = {}  # by generation and partition
        self.acked: dict[int, int] = {}  # the furthest that was acknowledged, by partition
        self.sent: dict[int, int] = {}
        self.asked: dict[int, list[int]] = {}  # where an administrator set partitions to

    def assigned(self, generation: int, owner: str, partitions: list[int]) -> None:
        for partition in partitions:
            known = self.owners.setdefault((generation, partition), owner)
            assert known == owner, f"{partition} is {known}'s and {owner}'s in generation {generation}"

    def fetched(self, partition: int, offset: int, acked_before: int) -> None:
        """acked_before: what had been acknowledged when it was asked for."""
        floor = min([acked_before, *self.asked.get(partition, ())])
        assert offset >= floor, f"{partition} was committed up to {acked_before}, and {offset} is told"
        assert offset <= self.sent.get(partition, -1), f"{partition}: {offset} was never committed"

    def committed(self, partition: int, offset: int) -> None:
        self.acked[partition] = max(self.acked.get(partition, -1), offset)
        self.sim.counters["commits"] += 1

    def check_log(self, host: BrokerHost) -> None:
        """In the log too, offsets of a partition only rise, but where they were set by hand."""
        last: dict[int, int] = {}
        for batch in host.partition("__consumer_offsets"):
            for record in decode_batch(batch.data):
                key = group_records.decode_key(record.key)
                if not isinstance(key, OffsetCommitKey) or key.group != GROUP:
                    continue
                value = group_records.decode_value(key, record.value)
                assert value is not None, f"{key.partition}: the offset was removed"
                before = last.get(key.partition, -1)
                allowed = value.offset >= before or value.offset in self.asked.get(key.partition, ())
                assert allowed, f"{key.partition}: {value.offset} is written after {before}"
                last[key.partition] = value.offset


class Consumer:
    """A machine that runs one consumer, one life after the other. `share` is what it owns now.

    place: where its coordinator is; in a cluster, that may change.
    """

    def __init__(self, sim: Simulation, name: str, place: BrokerHost | Target, seen: Seen, *, static: bool) -> None:
        self.sim = sim
        self.name = name
        self.moves = not isinstance(place, BrokerHost)
        self.place = Fixed(place.address) if isinstance(place, BrokerHost) else place
        self.seen = seen
        self.instance = name if static else None
        self.machine = sim.machine(name)
        self.wanted = True  # it is to be running
        self.leaves = False  # before it ends
        self.session_ms = sim.random.choice((6_000, 10_000))
        self.generation = -1
        self.share: list[int] = []
        self.keeper = sim.loop.create_task(self._keep())

    async def _keep(self) -> None:
        while self.wanted:
            process = self.machine.start()
            self.member_id, self.generation, self.share = "", -1, []
            try:
                await process.outcome(self._live(process))
            except ProcessKilled:
                self.sim.counters["members_killed"] += 1
            if self.machine.process is not None and self.machine.process.alive:
                self.machine.kill()
            await asyncio.sleep(self.sim.random.uniform(0.1, 12.0))  # sometimes longer than its session
        self.generation, self.share = -1, []

    async def _live(self, process: Process) -> None:
        self.random = process.runtime.random
        while self.wanted:
            try:
                wire = await connect(await self.place.address())
            except OSError:
                await asyncio.sleep(self.random.uniform(0.05, 1.0))
                continue
            try:
                await self._converse(wire)
            except (ConnectionError, TimeoutError):
                self.sim.counters["reconnects"] += 1
            finally:
                wire.transport.abort()

    async def _ask(self, wire: Wire, api: Any, request: Any) -> Any:
        return await asyncio.wait_for(wire.request(api, request), ANSWER_TIMEOUT_S)

    async def _converse(self, wire: Wire) -> None:
        """Until the connection fails or the consumer is to end."""
        while (await self._ask(wire, find_coordinator.API, find_coordinator.Request(key=GROUP))).error_code:
            await asyncio.sleep(0.1)
        while self.wanted:
            if self.generation < 0 and not await self._join(wire):
                await asyncio.sleep(self.random.uniform(0.02, 0.3))
                continue
            if not await self._work(wire):
                self.generation, self.share = -1, []
        if self.leaves and self.member_id:
            row = leave_group.MemberIdentity(member_id=self.member_id)
            await self._ask(wire, leave_group.API, leave_group.Request(group_id=GROUP, members=[row]))

    def _told(self, code: int) -> bool:
        """Take an answer's error; True when there is none."""
        if code in FORGOTTEN:
            self.member_id = ""
        elif code in FIND_AGAIN and self.moves:
            raise ConnectionResetError(f"look for the coordinator again: {ErrorCode(code).name}")
        elif code and code not in FIND_AGAIN + JOIN_AGAIN:
            raise AssertionError(f"{self.name} was told {ErrorCode(code).name}")
        return not code

    async def _join(self, wire: Wire) -> bool:
        metadata = encode_subscription(Subscription(topics=[self.seen.topic]))
        request = join_group.Request(
            group_id=GROUP,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=15_000,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        joined = await self._ask(wire, join_group.API, request)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return False
        if not self._told(joined.error_code):
            return False
        self.member_id = joined.member_id
        members = sorted(each.member_id for each in joined.members)
        shares = [
            sg.SyncGroupRequestAssignment(member_id=member_id, assignment=self._share(members, number))
            for number, member_id in enumerate(members)
        ]
        answer = await self._ask(
            wire,
            sg.API,
            sg.Request(
                group_id=GROUP,
                generation_id=joined.generation_id,
                member_id=self.member_id,
                group_instance_id=self.instance,
                assignments=shares,
            ),
        )
        if not self._told(answer.error_code):
            return False
        rows = decode_assignment(bytes(answer.assignment)).assigned_partitions
        share = [partition for row in rows for partition in row.partitions]
        self.seen.assigned(joined.generation_id, self.instance or self.member_id, share)
        positions = await self._positions(wire, share)
        if positions is None:
            return False
        self.generation, self.share, self.positions = joined.generation_id, share, positions
        self.sim.counters["assignments"] += 1
        return True

    def _share(self, members: list[str], number: int) -> bytes:
        partitions = [each for each in range(self.seen.partitions) if each % len(members) == number]
        return encode_assignment(
            Assignment(assigned_partitions=[TopicPartition(topic=self.seen.topic, partitions=partitions)])
        )

    async def _positions(self, wire: Wire, partitions: list[int]) -> dict[int, int] | None:
        acked = dict(self.seen.acked)
        topic = of.OffsetFetchRequestTopic(name=self.seen.topic, partition_indexes=partitions)
        answer = await self._ask(wire, of.API, of.Request(group_id=GROUP, topics=[topic], require_stable=True))
        if not self._told(answer.error_code):
            return None
        found = {row.partition_index: row.committed_offset for each in answer.topics for row in each.partitions}
        for partition, offset in found.items():
            self.seen.fetched(partition, offset, acked.get(partition, -1))
        return found

    async def _work(self, wire: Wire) -> bool:
        """A heartbeat or a commit, after a while; False when it is to join again."""
        hangs = self.random.random() < 0.01
        await asyncio.sleep(self.session_ms / 1000 * 2 if hangs else self.random.uniform(0.0, 2.5))
        if self.random.random() < 0.5 or not self.share:
            request = heartbeat.Request(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
            )
            code = (await self._ask(wire, heartbeat.API, request)).error_code
            if code == ErrorCode.REBALANCE_IN_PROGRESS and self.random.random() < 0.5:
                await self._commit(wire)  # the last chance before partitions are given away
            return self._told(code) or code in FIND_AGAIN
        code = await self._commit(wire)
        return self._told(code) or code in FIND_AGAIN

    async def _commit(self, wire: Wire) -> int:
        """Go one step on in a partition, and say so; the answer's error."""
        if not self.share:
            return 0
        partition = self.random.choice(self.share)
        offset = self.positions[partition] + 1
        self.seen.sent[partition] = max(self.seen.sent.get(partition, -1), offset)
        row = oc.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
        request = oc.Request(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[oc.OffsetCommitRequestTopic(name=self.seen.topic, partitions=[row])],
        )
        code: int = (await self._ask(wire, oc.API, request)).topics[0].partitions[0].error_code
        if not code:
            self.positions[partition] = offset
            self.seen.committed(partition, offset)
        return code


async def committed(host: BrokerHost, topic: str, partition: int, offset: int, group: str = GROUP) -> None:
    """Commit as no member, on whatever life of the broker takes it; AssertionError when it is refused."""
    row = oc.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
    request = oc.Request(group_id=group, topics=[oc.OffsetCommitRequestTopic(name=topic, partitions=[row])])
    code = FIND_AGAIN[0]
    while code in FIND_AGAIN:
        answer = await ask(host.address, oc.API, request)
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
    assert not code, code.name


async def delete_group(host: BrokerHost, group: str = GROUP) -> None:
    """On whatever life of the broker does it; AssertionError when it is refused."""
    code = FIND_AGAIN[0]
    while code in FIND_AGAIN:
        answer = await ask(host.address, delete_groups.API, delete_groups.Request(groups_names=[group]))
        code = ErrorCode(answer.results[0].error_code)
    assert code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND), code.name  # the answer before may have been lost


async def fetched(host: BrokerHost, topic: str, partitions: int, group: str = GROUP) -> dict[int, int]:
    """Committed offsets by partition, from whatever life of the broker answers; -1 where there is none."""
    asked = of.OffsetFetchRequestTopic(name=topic, partition_indexes=list(range(partitions)))
    while True:
        answer = await ask(host.address, of.API, of.Request(group_id=group, topics=[asked]))
        if answer.error_code not in FIND_AGAIN:
            break
    assert not answer.error_code, ErrorCode(answer.error_code).name
    return {row.partition_index: row.committed_offset for each in answer.topics for row in each.partitions}
