"""Membership in a classic consumer group: join, sync, heartbeat, leave; the leader assigns.

All changes of the assignment happen inside `join`, which the consumer calls from its polls, as Kafka's Java client
does: user callbacks never run in parallel with the user's own code. Heartbeats continue by themselves, even while a
rebalance waits for the user's poll. A member has its own connection to the coordinator, since a JoinGroup delays the
requests after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..protocol.errors import DecodeError, ErrorCode, KafkaError
from ..protocol.messages import consumer_protocol as wire
from ..protocol.messages import find_coordinator, heartbeat, join_group, leave_group, sync_group
from .assignors import ASSIGNORS
from .cluster import REQUEST_TIMEOUT_MS, Client
from .errors import ClientClosed, ClientError, ConnectionLost
from .operation import API_TIMEOUT_MS, SILENT_S
from .types import TopicPartition

log = logging.getLogger("isthmus.client")

PROTOCOL_TYPE = "consumer"
SAY_AFTER_S = 3.0  # without a coordinator: shorter times, such as a restart of its broker, are not logged
LEAVE_TIMEOUT_MS = 5_000
LOOK_S = 30.0  # how often the leader checks for new partitions of the group's topics
LOOK_MISSING_S = 2.0  # the same while a topic is missing
COORDINATOR_GONE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
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
        self.lane = client.new_lane("group")
        self.topics: list[str] = []
        self.assigned: list[TopicPartition] = []  # from the last join
        self.counts: dict[str, int] | None = None  # as leader: partitions by topic at the last assignment
        self.member_id = ""
        self.generation = -1  # -1 before the first join, and after removal
        self.coordinator: int | None = None
        self.must_join = True
        self.error: Exception | None = None
        self.changed = asyncio.Event()  # the next poll has something to do
        self._heart: asyncio.Task[None] | None = None
        self._lost_at: float | None = None  # loop time since which no coordinator was found
        self._is_logged = False  # that was logged

    # --- The coordinator ----------------------------------------------------------------------------

    def heard(self, code: int) -> None:
        """Note whether an answer of the coordinator shows that it still is, or again is, the coordinator."""
        if code in COORDINATOR_GONE:
            self._lost(KafkaError.of(code).name)
            return
        if self._is_logged:
            seconds = asyncio.get_running_loop().time() - (self._lost_at or 0.0)
            log.warning("group %s has a coordinator again, after %.0f s", self.group_id, seconds)
        self._lost_at, self._is_logged = None, False

    def _lost(self, why: object) -> None:
        """Look up the coordinator again. That may take for ever, so it is logged, once."""
        self.coordinator = None
        now = asyncio.get_running_loop().time()
        if self._lost_at is None:
            self._lost_at = now
        elif now - self._lost_at >= SAY_AFTER_S and not self._is_logged:
            self._is_logged = True
            log.warning(
                "group %s has no coordinator (%s): waiting for one. Its partition of __consumer_offsets may be "
                "offline, or its broker down",
                self.group_id,
                why,
            )

    async def find(self, timeout_ms: float = API_TIMEOUT_MS) -> int:
        """The coordinator's node. Raises KafkaError if there is none within the time."""
        if self.coordinator is not None:
            return self.coordinator
        request = self._question()
        async with self.client.operation(f"coordinator of group {self.group_id}", timeout_ms) as operation:
            while True:
                try:
                    [found] = (await self.client.ask_any(request, operation.patience_s)).coordinators
                    if not found.error_code:
                        self.client.nodes[found.node_id] = f"{found.host}:{found.port}"
                        self.coordinator = found.node_id
                        return found.node_id
                    told = found.error_message or KafkaError.of(found.error_code).name
                    error = KafkaError.of(found.error_code, f"group {self.group_id}: {told}")
                except ClientError as failed:
                    if not failed.retriable:
                        raise
                    told = str(failed)
                    error = KafkaError.of(
                        ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {self.group_id} has no coordinator: {told}"
                    )
                if error.retriable:
                    self._lost(told)
                await operation.again(error)

    def _question(self) -> Any:
        return find_coordinator.Request(coordinator_keys=[self.group_id])

    async def _watch(self, node: int, lane: str) -> None:
        """The coordinator owes an answer. As soon as the group has another one, nothing is waited for any more."""
        attempt = 0
        while True:
            try:
                [found] = (await self.client.ask_any(self._question(), SILENT_S)).coordinators
            except (ClientError, KafkaError):
                pass  # nobody can tell now
            else:
                connection = self.client.open_connection(node, lane)
                if not found.error_code and found.node_id != node and connection is not None:
                    now = f"node {found.node_id} coordinates group {self.group_id} now"
                    connection.close(ConnectionLost(f"{connection.address} owes an answer, and {now}"))
                    return
            await self.client.back_off(attempt)
            attempt += 1

    async def ask(
        self,
        message: Any,
        timeout_ms: float = REQUEST_TIMEOUT_MS,
        most_version: int | None = None,
        lane: str | None = None,
    ) -> Any:
        """Send a request to the coordinator, which is first looked up if it is unknown; both within the time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        node = await self.find(timeout_ms)
        remaining_ms = (deadline - loop.time()) * 1000
        lane = lane or self.lane
        watch: asyncio.Task[None] | None = None

        def begin_to_watch() -> None:
            nonlocal watch
            watch = loop.create_task(self._watch(node, lane), name=f"{self.client.client_id} watches {self.group_id}")

        timer = loop.call_later(SILENT_S, begin_to_watch)
        try:
            return await self.client.request(message, node, remaining_ms, lane, most_version)
        except ClientError as error:
            self._lost(error)
            raise
        finally:
            timer.cancel()
            if watch is not None:
                watch.cancel()

    # --- Membership ---------------------------------------------------------------------------------

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
        answer = await self.ask(request, self.rebalance_timeout_ms + 30_000)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = await self.ask(self._with_member_id(request), self.rebalance_timeout_ms + 30_000)
        self.heard(answer.error_code)
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
        self.heard(synced.error_code)
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
                code = (await self.ask(request, self.session_timeout_ms)).error_code
                self.heard(code)
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
            if self.member_id and self.instance_id is None and self.coordinator is not None:
                identity = leave_group.MemberIdentity(member_id=self.member_id)
                request = leave_group.Request(group_id=self.group_id, members=[identity])
                what = f"leaving group {self.group_id}"
                async with self.client.operation(what, min(timeout_ms, LEAVE_TIMEOUT_MS)):
                    await self.ask(request, lane="main")  # on the member's own one it may wait behind a JoinGroup
        except (ClientError, KafkaError):
            pass  # the end of the session has the same effect, later
        finally:
            self.member_id, self.generation = "", -1
            await self.client.close_lane(self.lane)


def _wire_assignment(member: str, topics: Mapping[str, list[int]]) -> Any:
    parts = [wire.TopicPartition(topic=topic, partitions=partitions) for topic, partitions in topics.items()]
    return sync_group.SyncGroupRequestAssignment(
        member_id=member, assignment=wire.encode_assignment(wire.Assignment(assigned_partitions=parts), 1)
    )
