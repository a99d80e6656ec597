"""Membership in a classic consumer group: join, sync, heartbeat, leave; the leader assigns.

All changes of the assignment happen inside `join`, which the consumer calls from its polls, as Kafka's Java client
does: user callbacks never run in parallel with the user's own code. Heartbeats continue by themselves, even while a
rebalance waits for the user's poll. A member has its own connection to the coordinator, since a JoinGroup delays the
requests after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..protocol.errors import DecodeError, ErrorCode, KafkaError
from ..protocol.messages import consumer_protocol as wire
from ..protocol.messages import heartbeat, join_group, leave_group, sync_group
from .assignors import ASSIGNORS
from .cluster import Client
from .coordinator import COORDINATOR_GONE, Coordinator
from .errors import ClientClosed, ClientError
from .types import TopicPartition

PROTOCOL_TYPE = "consumer"
LEAVE_TIMEOUT_MS = 5_000
LOOK_S = 30.0  # how often the leader checks for new partitions of the group's topics
LOOK_MISSING_S = 2.0  # the same while a topic is missing
JOIN_ANEW = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
PUT_OUT = JOIN_ANEW | {ErrorCode.FENCED_INSTANCE_ID}


class Membership:
    """One member of one group."""

    def __init__(
        self,
        client: Client,
        group_id: str,
        instance_id: str | None,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        heartbeat_interval_ms: int,
        assignors: Sequence[str] = ("range", "roundrobin"),
    ) -> None:
        for name in assignors:
            if name not in ASSIGNORS:
                raise ClientError(f"there is no assignor {name}: choose from {', '.join(ASSIGNORS)}")
        self.client = client
        self.group_id = group_id
        self.instance_id = instance_id
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.heartbeat_interval_s = heartbeat_interval_ms / 1000
        self.assignors = list(assignors)
        self.topics: list[str] = []
        self.assigned: list[TopicPartition] = []  # from the last join
        self.counts: dict[str, int] | None = None  # as leader: partitions by topic at the last assignment
        self.member_id = ""
        self.generation = -1  # -1 before the first join, and after removal
        self.coordinator = Coordinator(client, group_id, client.new_lane("group"))
        self.must_join = True
        self.error: Exception | None = None
        self.changed = asyncio.Event()  # the next poll has something to do
        self._heart: asyncio.Task[None] | None = None

    @property
    def is_member(self) -> bool:
        """Whether, as far as is known, the group has this member."""
        return self.generation >= 0

    def subscribe(self, topics: Sequence[str]) -> None:
        """Join for these topics with the next poll, or with a join in progress."""
        self.topics = list(topics)
        self._must_join()

    def put_out(self, code: int) -> None:
        """The group has removed this member (an error of PUT_OUT): nothing is committed until a poll has joined again.
        A fenced member keeps its id: a join without it would remove the present owner of its instance id."""
        self.generation = -1
        if code in JOIN_ANEW:
            self.member_id = ""
        self._must_join()

    async def join(self) -> None:
        """Join and, as leader, assign. `assigned` then has this member's partitions. Retries until it is a member."""
        await self._stop_heart()
        attempt = 0
        while True:
            self.must_join = False  # from here on, another `subscribe` requires another join
            try:
                assigned = await self._join_once()
            except (ClientError, KafkaError) as error:
                if not error.retriable:
                    self.must_join = True
                    raise
                assigned = None
            if assigned is not None:
                self.assigned = assigned
                self._heart = asyncio.get_running_loop().create_task(self._beat(), name=f"heart of {self.member_id}")
                return
            await self.client.back_off(attempt)
            attempt = min(attempt + 1, 4)

    async def _join_once(self) -> list[TopicPartition] | None:
        """One attempt. None: try again. Raises KafkaError for errors that a retry cannot solve."""
        subscription = wire.encode_subscription(wire.Subscription(topics=sorted(self.topics)), 1)
        request = join_group.Request(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                join_group.JoinGroupRequestProtocol(name=name, metadata=subscription) for name in self.assignors
            ],
        )
        answer = await self.coordinator.ask(request, self.rebalance_timeout_ms + 30_000)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = await self.coordinator.ask(self._with_member_id(request), self.rebalance_timeout_ms + 30_000)
        self.coordinator.heard(answer.error_code)
        if answer.error_code:
            self._not_in(answer.error_code, "join")
            return None
        self.member_id, self.generation = answer.member_id, answer.generation_id
        assignments = []
        self.counts = None
        if answer.leader == self.member_id:
            wanted = self._wanted(answer.members)
            self.counts = await self._count(wanted)
            if not answer.skip_assignment:
                shares = ASSIGNORS[answer.protocol_name](wanted, self.counts)
                assignments = [_wire_assignment(member, topics) for member, topics in shares.items()]
        synced = await self.coordinator.ask(
            sync_group.Request(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=answer.protocol_name,
                assignments=assignments,
            ),
            self.rebalance_timeout_ms + 30_000,
        )
        self.coordinator.heard(synced.error_code)
        if synced.error_code:
            self._not_in(synced.error_code, "sync")
            return None
        found = wire.decode_assignment(synced.assignment).assigned_partitions
        return sorted(TopicPartition(each.topic, p) for each in found for p in each.partitions)

    def _with_member_id(self, request: Any) -> Any:
        request.member_id = self.member_id
        return request

    def _not_in(self, code: int, what: str) -> None:
        if code in JOIN_ANEW:
            self.member_id, self.generation = "", -1
        elif code != ErrorCode.REBALANCE_IN_PROGRESS:
            error = KafkaError.of(code, f"group {self.group_id}, {what}: {KafkaError.of(code).name}")
            if not error.retriable:
                raise error

    def _wanted(self, members: Iterable[Any]) -> dict[str, list[str]]:
        """Each member's subscription, in the order in which Kafka's assignors take the members."""
        order = sorted(members, key=lambda m: (m.group_instance_id is None, m.group_instance_id or m.member_id))
        try:
            return {member.member_id: wire.decode_subscription(member.metadata).topics for member in order}
        except DecodeError as error:
            raise KafkaError.of(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {self.group_id}: a member's subscription: {error}"
            ) from error

    async def _count(self, wanted: Mapping[str, Iterable[str]]) -> dict[str, int]:
        """Partition counts of all subscribed topics; 0 for those that do not exist."""
        topics = sorted({topic for each in wanted.values() for topic in each})
        await self.client.refresh_metadata(topics)
        return {topic: len(self.client.partitions(topic)) for topic in topics}

    async def _beat(self) -> None:
        """Send heartbeats until a rebalance or a lost membership; then the next poll joins again."""
        request = heartbeat.Request(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        loop = asyncio.get_running_loop()
        looked_at = loop.time()
        while True:
            await asyncio.sleep(self.heartbeat_interval_s)
            try:
                code = (await self.coordinator.ask(request, self.session_timeout_ms)).error_code
                self.coordinator.heard(code)
                if self.counts is not None and not code:
                    pause_s = LOOK_S if all(self.counts.values()) else LOOK_MISSING_S
                    if loop.time() - looked_at >= pause_s:
                        looked_at = loop.time()
                        await self._look_for_partitions()
            except ClientClosed as error:
                self.error = error
                break
            except ClientError:
                continue
            except KafkaError as error:
                if error.retriable:  # for example, no coordinator for long
                    continue
                self.error = error
                break
            if code in COORDINATOR_GONE:
                continue
            if code in PUT_OUT:
                self.put_out(code)
            if code in JOIN_ANEW:
                break
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                self._must_join()  # continue: the session must last until the user polls
            elif code:
                self.error = KafkaError.of(code, f"group {self.group_id}, heartbeat")
                break
        self._must_join()

    def _must_join(self) -> None:
        self.must_join = True
        self.changed.set()

    async def _look_for_partitions(self) -> None:
        """As leader, join again when a topic has grown or was created; this starts a rebalance."""
        assert self.counts is not None
        await self.client.refresh_metadata(list(self.counts))
        if any(len(self.client.partitions(topic)) != count for topic, count in self.counts.items()):
            self._must_join()

    async def _stop_heart(self) -> None:
        heart, self._heart = self._heart, None
        if heart is not None:
            heart.cancel()
            await asyncio.gather(heart, return_exceptions=True)

    async def leave(self, timeout_ms: float = LEAVE_TIMEOUT_MS) -> None:
        """Stop. A member without an instance id leaves the group at once. Without time the request is sent, but its
        answer is not awaited."""
        await self._stop_heart()
        try:
            if self.member_id and self.instance_id is None and self.coordinator.node is not None:
                identity = leave_group.MemberIdentity(member_id=self.member_id)
                request = leave_group.Request(group_id=self.group_id, members=[identity])
                what = f"leaving group {self.group_id}"
                async with self.client.operation(what, min(timeout_ms, LEAVE_TIMEOUT_MS)):
                    await self.coordinator.ask(
                        request, lane="main"
                    )  # on the member's own one it may wait behind a JoinGroup
        except (ClientError, KafkaError):
            pass  # the end of the session has the same effect, later
        finally:
            self.member_id, self.generation = "", -1
            await self.client.close_lane(self.coordinator.lane)


def _wire_assignment(member: str, topics: Mapping[str, list[int]]) -> Any:
    parts = [wire.TopicPartition(topic=topic, partitions=partitions) for topic, partitions in topics.items()]
    return sync_group.SyncGroupRequestAssignment(
        member_id=member, assignment=wire.encode_assignment(wire.Assignment(assigned_partitions=parts), 1)
    )
