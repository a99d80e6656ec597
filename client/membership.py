"""Membership in a classic consumer group: join, sync, heartbeat, leave; the leader assigns by range.

Everything that changes the assignment happens inside `ensure`, which the consumer calls from its polls, as Kafka's
Java client does: user callbacks never run beside the user's own code. Heartbeats go on by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import consumer_protocol as wire
from ..protocol.messages import find_coordinator, heartbeat, join_group, leave_group, sync_group
from .cluster import Client
from .errors import ClientError
from .types import TopicPartition

PROTOCOL_TYPE = "consumer"
LANE = "group"
COORDINATOR_GONE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
JOIN_ANEW = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


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
    ) -> None:
        self.client = client
        self.group_id = group_id
        self.instance_id = instance_id
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.heartbeat_interval_s = heartbeat_interval_ms / 1000
        self.topics: list[str] = []
        self.member_id = ""
        self.generation = -1
        self.coordinator: int | None = None
        self.must_join = True
        self.error: Exception | None = None
        self.changed = asyncio.Event()  # something for the next poll to do
        self._heart: asyncio.Task[None] | None = None

    async def find(self) -> int:
        """The node that coordinates the group. Raises KafkaError when there is none for long."""
        for attempt in range(40):
            if self.coordinator is not None:
                return self.coordinator
            try:
                request = find_coordinator.Request(coordinator_keys=[self.group_id])
                answer = await self.client.request(request, lane=LANE)
                [found] = answer.coordinators
                if not found.error_code:
                    self.client.nodes[found.node_id] = f"{found.host}:{found.port}"
                    self.coordinator = found.node_id
                    return found.node_id
                error = KafkaError.of(
                    found.error_code, f"group {self.group_id}: {found.error_message or 'no coordinator'}"
                )
                if not error.retriable:
                    raise error
            except ClientError:
                pass
            await self.client.back_off(attempt)
        raise KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {self.group_id} has no coordinator")

    async def ask(self, message: Any, timeout_ms: float = 30_000, most_version: int | None = None) -> Any:
        """A request to the coordinator, which is looked up anew after it was lost."""
        node = await self.find()
        try:
            return await self.client.request(message, node, timeout_ms, LANE, most_version)
        except ClientError:
            self.coordinator = None
            raise

    async def join(self) -> list[TopicPartition]:
        """Join, and as leader assign; the partitions that are this member's. Tries until it is in."""
        self._stop_heart()
        attempt = 0
        while True:
            try:
                assigned = await self._join_once()
            except ClientError:
                assigned = None
            if assigned is not None:
                self.must_join = False
                self._heart = asyncio.get_running_loop().create_task(self._beat(), name=f"heart of {self.member_id}")
                return assigned
            await self.client.back_off(attempt)
            attempt = min(attempt + 1, 4)

    async def _join_once(self) -> list[TopicPartition] | None:
        """None: not now, try again. Raises KafkaError for what trying again cannot help."""
        subscription = wire.Subscription(topics=sorted(self.topics))
        request = join_group.Request(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                join_group.JoinGroupRequestProtocol(name="range", metadata=wire.encode_subscription(subscription, 1))
            ],
        )
        answer = await self.ask(request, self.rebalance_timeout_ms + 30_000)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = await self.ask(self._with_member_id(request), self.rebalance_timeout_ms + 30_000)
        if answer.error_code:
            self._not_in(answer.error_code, "join")
            return None
        self.member_id, self.generation = answer.member_id, answer.generation_id
        assignments = []
        if answer.leader == self.member_id and not answer.skip_assignment:
            assignments = await self._assign({each.member_id: each.metadata for each in answer.members})
        synced = await self.ask(
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
        if synced.error_code:
            self._not_in(synced.error_code, "sync")
            return None
        found = wire.decode_assignment(synced.assignment).assigned_partitions
        return sorted(TopicPartition(each.topic, p) for each in found for p in each.partitions)

    def _with_member_id(self, request: Any) -> Any:
        request.member_id = self.member_id
        return request

    def _not_in(self, code: int, what: str) -> None:
        if code in COORDINATOR_GONE:
            self.coordinator = None
        elif code in JOIN_ANEW:
            self.member_id, self.generation = "", -1
        elif code != ErrorCode.REBALANCE_IN_PROGRESS:
            error = KafkaError.of(code, f"group {self.group_id}, {what}: {ErrorCode(code).name}")
            if not error.retriable:
                raise error

    async def _assign(self, members: Mapping[str, bytes]) -> list[Any]:
        """The leader's work: partitions by range for every member."""
        wanted = {member: wire.decode_subscription(data).topics for member, data in members.items()}
        topics = sorted({topic for each in wanted.values() for topic in each})
        await self.client.refresh_metadata(topics)
        counts = {topic: len(self.client.partitions(topic)) for topic in topics}
        return [
            sync_group.SyncGroupRequestAssignment(
                member_id=member,
                assignment=wire.encode_assignment(
                    wire.Assignment(
                        assigned_partitions=[
                            wire.TopicPartition(topic=topic, partitions=partitions)
                            for topic, partitions in each.items()
                        ]
                    ),
                    1,
                ),
            )
            for member, each in by_range(wanted, counts).items()
        ]

    async def _beat(self) -> None:
        """Heartbeats until a rebalance or a lost membership; then the next poll joins again."""
        request = heartbeat.Request(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        while True:
            await asyncio.sleep(self.heartbeat_interval_s)
            try:
                code = (await self.ask(request, self.session_timeout_ms)).error_code
            except ClientError:
                continue
            except KafkaError as error:
                self.error = error
                break
            if code in COORDINATOR_GONE:
                self.coordinator = None
            elif code in JOIN_ANEW:
                self.member_id, self.generation = "", -1
                break
            elif code == ErrorCode.REBALANCE_IN_PROGRESS:
                break
            elif code:
                self.error = KafkaError.of(code, f"group {self.group_id}, heartbeat: {ErrorCode(code).name}")
                break
        self.must_join = True
        self.changed.set()

    def _stop_heart(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
            self._heart = None

    async def leave(self) -> None:
        """Stop; a member without an instance id leaves the group at once."""
        heart = self._heart
        self._stop_heart()
        if heart is not None:
            await asyncio.gather(heart, return_exceptions=True)
        if self.member_id and self.instance_id is None and self.coordinator is not None:
            identity = leave_group.MemberIdentity(member_id=self.member_id)
            try:
                await self.ask(leave_group.Request(group_id=self.group_id, members=[identity]), 5_000)
            except (ClientError, KafkaError):
                pass  # the session's end does the same, later
        self.member_id, self.generation = "", -1


def by_range(wanted: Mapping[str, Iterable[str]], counts: Mapping[str, int]) -> dict[str, dict[str, list[int]]]:
    """Kafka's range assignor: each topic's partitions in runs, over its members in the order of their ids."""
    found: dict[str, dict[str, list[int]]] = {member: {} for member in wanted}
    for topic in sorted(counts):
        members = sorted(member for member, topics in wanted.items() if topic in topics)
        if not members or not counts[topic]:
            continue
        each, more = divmod(counts[topic], len(members))
        start = 0
        for i, member in enumerate(members):
            size = each + (1 if i < more else 0)
            if size:
                found[member][topic] = list(range(start, start + size))
            start += size
    return found
