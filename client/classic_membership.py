"""Membership in a classic consumer group: join, sync, heartbeat, leave; the leader assigns.

Members rebalance eagerly (all partitions are given up before a join) or, if all their assignors allow it, cooperatively
(KIP-429): they go on with what they hold, give up what an assignment takes from them, and join once more, so that it
can be given to others. A member has its own connection to the coordinator, and joins on one of its own, since a
JoinGroup delays the requests after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..protocol.errors import DecodeError, ErrorCode, KafkaError
from ..protocol.messages import consumer_protocol as wire
from ..protocol.messages import heartbeat, join_group, leave_group, sync_group
from .assignors import Assignor, Member, Share, checked, chosen
from .cluster import Client
from .coordinator import COORDINATOR_GONE, Coordinator
from .errors import ClientError
from .holdings import Holdings, Step, Take
from .membership import LEAVE_TIMEOUT_MS, Heart, Polls, Subscription
from .patterns import check_pattern, matching
from .types import TopicPartition

PROTOCOL_TYPE = "consumer"
LOOK_S = 30.0  # how often topics are looked at: for new partitions by the leader, for a pattern by all
LOOK_MISSING_S = 2.0  # the same while a topic is missing
JOIN_ANEW = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
PUT_OUT = JOIN_ANEW | {ErrorCode.FENCED_INSTANCE_ID}


class _Given(NamedTuple):
    """What a member was given by the group's leader, through this assignor."""

    assignor: Assignor
    partitions: dict[TopicPartition, bytes]
    user_data: bytes


class ClassicMembership:
    """A `Membership` of the classic protocol."""

    def __init__(
        self,
        client: Client,
        group_id: str,
        instance_id: str | None,
        polls: Polls,
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        heartbeat_interval_ms: int,
        assignors: Sequence[str | Assignor],
        rack: str = "",
    ) -> None:
        self.client = client
        self.group_id = group_id
        self.instance_id = instance_id
        self.polls = polls
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.assignors = chosen(assignors)
        self.is_cooperative = all(each.is_cooperative for each in self.assignors.values())
        self.rack = rack
        self.subscription = Subscription()
        self.topics: list[str] = []  # that it subscribes to, by name or pattern
        self.counts: dict[str, int] | None = None  # as leader: partitions by topic at the last assignment
        self.member_id = ""
        self.generation = -1  # -1 before the first join, and after removal
        self.coordinator = Coordinator(client, group_id, client.new_lane("group"))
        self.holdings = Holdings()
        self.must_join = True
        self.error: Exception | None = None
        self.changed = asyncio.Event()
        self._untold: _Given | None = None  # what the assignor is yet to be told
        self._joins_again = False  # after the present assignment, so that others get what was given up
        self._joining: asyncio.Task[None] | None = None  # over many polls perhaps
        self._looked_at = 0.0  # loop time
        self._heart = Heart(
            client,
            group_id,
            heartbeat_interval_ms / 1000,
            polls,
            self._beat,
            self._stalled,
            self._failed,
        )

    # --- In polls -----------------------------------------------------------------------------------

    @property
    def must_poll(self) -> bool:
        return self.must_join or self._joining is not None or self.holdings.step() is not None

    @property
    def unheard_s(self) -> float:
        # One that joins sends no heartbeats, and is kept as long as the group waits for others.
        joins_ms = 0 if self._joining is None else self.rebalance_timeout_ms
        return self._heart.unheard_s((self.session_timeout_ms + joins_ms) / 1000)

    def subscribe(self, subscription: Subscription) -> None:
        if subscription.pattern is not None:
            check_pattern(subscription.pattern)
        self.subscription = subscription
        self.topics = list(subscription.topics)
        self._must_join()

    def step(self) -> Step | None:
        if self.must_join and self._joining is None:
            self.holdings.shall_hold(self._kept())
            if (step := self.holdings.step()) is None:
                name = f"{self.client.client_id} joins {self.group_id}"
                self._joining = asyncio.get_running_loop().create_task(self._join(), name=name)
                self._joining.add_done_callback(self._join_ended)
            return step
        step = self.holdings.step()
        if step is None and self._joins_again:
            self._joins_again = False
            self._must_join()
            return self.step()
        if isinstance(step, Take):
            self._tell_assignor()
        return step

    def _tell_assignor(self) -> None:
        if (given := self._untold) is not None:
            given.assignor.on_assignment(list(given.partitions), given.user_data)
            self._untold = None

    def rejoin(self) -> None:
        self._must_join()

    def _kept(self) -> Mapping[TopicPartition, bytes]:
        """What is held on through the next join: nothing that the last assignment takes away, else a member whose polls
        are rare would keep it for ever, when each poll finds that there is another rebalance."""
        if not self.is_cooperative:
            return {}
        return {tp: topic_id for tp, topic_id in self.holdings.kept.items() if tp.topic in self.topics}

    def told_of_loss(self, code: int, generation: int) -> None:
        if code in PUT_OUT and generation == self.generation:
            self._put_out(code)
            self._must_join()

    def _put_out(self, code: int) -> None:
        """The group has removed this member (an error of PUT_OUT): nothing is committed until a poll has joined again.
        A fenced member keeps its id: a join without it would remove the present owner of its instance id."""
        self.generation = -1
        if code in JOIN_ANEW:
            self.member_id = ""
        self.holdings.lose()
        self._untold = None

    def _must_join(self) -> None:
        self.must_join = True
        self.changed.set()

    def _failed(self, error: Exception) -> None:
        """The next poll raises it, and the one after that joins."""
        self.error = error
        self._must_join()

    # --- Joining ------------------------------------------------------------------------------------

    async def _join(self) -> None:
        """Join and, as leader, assign. Retries until it is a member, or has lost what it held."""
        await self._heart.stop()
        attempt = 0
        while not self.holdings.is_lost:
            self.must_join = self._joins_again = False  # from here on, another `subscribe` requires another join
            self._untold = None
            try:
                given = await self._join_once()
            except (ClientError, KafkaError) as error:
                if not error.retriable:
                    raise
                given = None
            if given is not None:
                held = self.holdings.held
                self._joins_again = any(tp not in given.partitions for tp in held)
                self.holdings.shall_hold(given.partitions, must_tell=True)
                self._untold = given
                self._looked_at = asyncio.get_running_loop().time()
                self._heart.start()
                return
            await self.client.back_off(attempt)
            attempt = min(attempt + 1, 4)
        self.must_join = True

    def _join_ended(self, join: asyncio.Task[None]) -> None:
        self._joining = None
        if not join.cancelled() and (error := join.exception()) is not None:
            assert isinstance(error, Exception)
            self._failed(error)
        self.changed.set()

    async def _join_once(self) -> _Given | None:
        """One attempt. None: try again. Raises KafkaError for errors that a retry cannot solve."""
        if self.subscription.pattern is not None:
            self.topics = await matching(self.client, self.subscription.pattern)
        request = join_group.Request(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                join_group.JoinGroupRequestProtocol(
                    name=name, metadata=wire.encode_subscription(self._subscription(each.user_data()))
                )
                for name, each in self.assignors.items()
            ],
        )
        lane = f"{self.coordinator.lane} join" if self.holdings.held else self.coordinator.lane
        try:
            return await self._join_and_sync(request, lane)
        finally:
            if lane != self.coordinator.lane:
                await self.client.close_lane(lane)

    def _subscription(self, user_data: bytes) -> Any:
        owned: dict[str, list[int]] = {}
        for tp in sorted(self.holdings.held):
            owned.setdefault(tp.topic, []).append(tp.partition)
        return wire.Subscription(
            topics=sorted(self.topics),
            user_data=user_data or None,
            owned_partitions=[wire.TopicPartition(topic=name, partitions=each) for name, each in owned.items()],
            generation_id=self.generation,
            rack_id=self.rack or None,
        )

    async def _join_and_sync(self, request: Any, lane: str) -> _Given | None:
        timeout_ms = self.rebalance_timeout_ms + 30_000
        answer = await self.coordinator.ask(request, timeout_ms, lane=lane)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = request.member_id = answer.member_id
            answer = await self.coordinator.ask(request, timeout_ms, lane=lane)
        self.coordinator.heard(answer.error_code)
        if answer.error_code:
            self._not_in(answer.error_code, "join")
            return None
        self.member_id, self.generation = answer.member_id, answer.generation_id
        assignor = self.assignors[answer.protocol_name]
        assignments = []
        self.counts = None
        if answer.leader == self.member_id:
            members = self._members(answer.members)
            self.counts = await self._count(members)
            if not answer.skip_assignment:
                shares = checked(assignor, members, self.counts)
                assignments = [_wire_assignment(member, share) for member, share in shares.items()]
        sync = sync_group.Request(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=answer.protocol_name,
            assignments=assignments,
        )
        synced = await self.coordinator.ask(sync, timeout_ms, lane=lane)
        self.coordinator.heard(synced.error_code)
        if synced.error_code:
            self._not_in(synced.error_code, "sync")
            return None
        found = wire.decode_assignment(synced.assignment)
        tps = sorted(TopicPartition(each.topic, p) for each in found.assigned_partitions for p in each.partitions)
        return _Given(assignor, dict.fromkeys(tps, b""), bytes(found.user_data or b""))

    def _not_in(self, code: int, what: str) -> None:
        if code in JOIN_ANEW:
            self._put_out(code)
        elif code != ErrorCode.REBALANCE_IN_PROGRESS:
            told = KafkaError.of(code).name
            if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                told += f": the others have none of this member's assignors, which are {', '.join(self.assignors)}"
            error = KafkaError.of(code, f"group {self.group_id}, {what}: {told}")
            if not error.retriable:
                raise error

    def _members(self, joined: Iterable[Any]) -> dict[str, Member]:
        """What each member wants and has, in the order in which Kafka's assignors take the members."""
        order = sorted(joined, key=lambda m: (m.group_instance_id is None, m.group_instance_id or m.member_id))
        members: dict[str, Member] = {}
        try:
            for member in order:
                said = wire.decode_subscription(member.metadata)
                owned = [TopicPartition(each.topic, p) for each in said.owned_partitions for p in each.partitions]
                members[member.member_id] = Member(
                    said.topics,
                    owned,
                    said.generation_id,
                    member.group_instance_id,
                    bytes(said.user_data or b""),
                    said.rack_id or "",
                )
        except DecodeError as error:
            raise KafkaError.of(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {self.group_id}: a member's subscription: {error}"
            ) from error
        return members

    async def _count(self, members: Mapping[str, Member]) -> dict[str, int]:
        """Partition counts of all subscribed topics; 0 for those that do not exist."""
        topics = sorted({topic for each in members.values() for topic in each.topics})
        await self.client.refresh_metadata(topics)
        return {topic: len(self.client.partitions(topic)) for topic in topics}

    # --- Staying ------------------------------------------------------------------------------------

    async def _beat(self) -> bool:
        """Until a rebalance or a lost membership; then the next poll joins again."""
        generation = self.generation
        request = heartbeat.Request(
            group_id=self.group_id,
            generation_id=generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        code = (await self.coordinator.ask(request, self.session_timeout_ms)).error_code
        self.coordinator.heard(code)
        if code in COORDINATOR_GONE:
            raise KafkaError.of(code, f"group {self.group_id}, heartbeat")
        if not code:
            await self._look()
            return True
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_join()  # and go on: the session must last until the user polls
            return True
        self.told_of_loss(code, generation)
        if code not in JOIN_ANEW:
            raise KafkaError.of(code, f"group {self.group_id}, heartbeat")
        return False

    async def _look(self) -> None:
        """Join again, which starts a rebalance, when a topic of the group has grown or was created (the leader), or
        when other topics match the pattern."""
        now = asyncio.get_running_loop().time()
        is_due = now - self._looked_at >= (LOOK_S if all((self.counts or {}).values()) else LOOK_MISSING_S)
        if not is_due or self.must_join:
            return
        self._looked_at = now
        if self.subscription.pattern is not None:
            found = await matching(self.client, self.subscription.pattern)
            if found != self.topics:
                self.topics = found
                self._must_join()
        if self.counts is not None:
            await self.client.refresh_metadata(list(self.counts))
            if any(len(self.client.partitions(topic)) != count for topic, count in self.counts.items()):
                self._must_join()

    async def _stalled(self) -> None:
        await self._send_leave(LEAVE_TIMEOUT_MS)
        self._put_out(ErrorCode.UNKNOWN_MEMBER_ID)
        self._must_join()

    # --- Leaving ------------------------------------------------------------------------------------

    async def leave(self, timeout_ms: float = LEAVE_TIMEOUT_MS) -> None:
        """Of a member with an instance id the session goes on, so that it may come back."""
        joining = self._joining
        if joining is not None:
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
        await self._heart.stop()
        try:
            await self._send_leave(timeout_ms)
        finally:
            self.member_id, self.generation = "", -1
            await self.client.close_lane(self.coordinator.lane)

    async def _send_leave(self, timeout_ms: float) -> None:
        if not self.member_id or self.instance_id is not None or self.coordinator.node is None:
            return
        identity = leave_group.MemberIdentity(member_id=self.member_id)
        request = leave_group.Request(group_id=self.group_id, members=[identity])
        try:
            async with self.client.operation(f"leaving group {self.group_id}", min(timeout_ms, LEAVE_TIMEOUT_MS)):
                await self.coordinator.ask(request, lane="main")  # on the member's own one it may wait for a JoinGroup
        except (ClientError, KafkaError):
            pass  # the end of the session has the same effect, later


def _wire_assignment(member: str, share: Share) -> Any:
    topics, user_data = share
    parts = [wire.TopicPartition(topic=topic, partitions=list(partitions)) for topic, partitions in topics.items()]
    assignment = wire.Assignment(assigned_partitions=parts, user_data=user_data or None)
    return sync_group.SyncGroupRequestAssignment(member_id=member, assignment=wire.encode_assignment(assignment, 1))
