"""Membership in a consumer group by the protocol of KIP-848: one kind of heartbeat, and the coordinator assigns.

`ConsumerMember` decides; here its heartbeats are sent, and the names of topics looked up.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.primitives import uuid_to_str
from .cluster import Client
from .consumer_member import ConsumerMember, Phase
from .coordinator import Coordinator
from .errors import CannotCarry, ClientError
from .holdings import Holdings, Step
from .membership import LEAVE_TIMEOUT_MS, Heart, Polls, Subscription

SESSION_S = 45.0  # group.consumer.min.session.timeout.ms, of which members are not told
FIRST_INTERVAL_S = 5.0  # Kafka's default, until the coordinator has said its own


class ConsumerMembership:
    """A `Membership` of the consumer protocol."""

    def __init__(
        self,
        client: Client,
        group_id: str,
        instance_id: str | None,
        polls: Polls,
        *,
        rebalance_timeout_ms: int,
        server_assignor: str | None = None,
        rack: str = "",
    ) -> None:
        member_id = uuid_to_str(client.runtime.uuid())
        self.client = client
        self.group_id = group_id
        self.instance_id = instance_id
        self.polls = polls
        self.member = ConsumerMember(group_id, member_id, instance_id, rack, rebalance_timeout_ms, server_assignor)
        self.coordinator = Coordinator(client, group_id, client.new_lane("group"))
        self.error: Exception | None = None
        self.changed = asyncio.Event()
        self._heart = Heart(
            client,
            group_id,
            FIRST_INTERVAL_S,
            polls,
            self._beat,
            self._stalled,
            self._failed,
        )

    @property
    def member_id(self) -> str:
        return self.member.member_id

    @property
    def generation(self) -> int:
        return self.member.epoch

    @property
    def holdings(self) -> Holdings:
        return self.member.holdings

    # --- In polls -----------------------------------------------------------------------------------

    @property
    def must_poll(self) -> bool:
        return self.holdings.step() is not None or self.member.phase in (Phase.OUT, Phase.LOST)

    @property
    def unheard_s(self) -> float:
        return self._heart.unheard_s(SESSION_S)

    def subscribe(self, subscription: Subscription) -> None:
        self.member.subscription = subscription
        self._heart.wake()
        self.changed.set()

    def step(self) -> Step | None:
        step = self.member.polled()
        if self.member.phase is Phase.JOINING:
            self._heart.start()
        if self.member.has_news:
            self._heart.wake()
        return step

    def told_of_loss(self, code: int, generation: int) -> None:
        """The next heartbeat decides."""
        self._heart.wake()

    def _failed(self, error: Exception) -> None:
        """The next poll raises it, and the one after that joins."""
        self.error = error
        self.member.refused()
        self.changed.set()

    # --- Heartbeats ---------------------------------------------------------------------------------

    async def _beat(self) -> bool:
        member = self.member
        was_in = member.phase is Phase.IN
        try:
            answer = await self._ask(member.heartbeat())
        except (ClientError, KafkaError):
            member.failed()
            raise
        code = answer.error_code
        self.coordinator.heard(code)
        if member.is_unknown(code):
            member.put_out()
        elif code == ErrorCode.UNRELEASED_INSTANCE_ID and await self._has_released():
            member.failed()  # the next one joins
        elif code:
            member.failed()
            said = answer.error_message or KafkaError.of(code).name
            raise KafkaError.of(code, f"group {self.group_id}: {said}")
        else:
            member.answered(answer)
            self._heart.interval_s = answer.heartbeat_interval_ms / 1000
            if member.nameless:
                member.learn(await self.client.names_of(member.nameless))
        if self.must_poll:
            self.changed.set()
        if member.has_news and (was_in or not code):
            self._heart.wake()
        if member.nameless:
            raise KafkaError.of(
                ErrorCode.UNKNOWN_TOPIC_ID, f"group {self.group_id}: topics assigned, but not known yet"
            )
        return member.phase in (Phase.JOINING, Phase.IN)

    async def _has_released(self) -> bool:
        """Whether a static member that cannot join was kept from it by itself, as after an answer that was lost: then
        it has left for now. From another member nothing is taken."""
        if self.instance_id is None:
            return False
        return not (await self.coordinator.ask(self.member.farewell())).error_code

    async def _ask(self, request: Any) -> Any:
        try:
            return await self.coordinator.ask(request)
        except CannotCarry:
            if request.subscribed_topic_regex != "":
                raise
        request.subscribed_topic_regex = None  # a broker that has no patterns has none to give up
        return await self.coordinator.ask(request)

    async def _stalled(self) -> None:
        await self._say_farewell(LEAVE_TIMEOUT_MS)
        self.member.stalled()
        self.changed.set()

    async def leave(self, timeout_ms: float = LEAVE_TIMEOUT_MS) -> None:
        """A member with an instance id may come back within its session, to the partitions that it had."""
        await self._heart.stop()
        try:
            await self._say_farewell(timeout_ms)
        finally:
            self.member.closed()
            await self.client.close_lane(self.coordinator.lane)

    async def _say_farewell(self, timeout_ms: float) -> None:
        if self.member.phase not in (Phase.JOINING, Phase.IN) or self.coordinator.node is None:
            return
        try:
            async with self.client.operation(f"leaving group {self.group_id}", min(timeout_ms, LEAVE_TIMEOUT_MS)):
                await self.coordinator.ask(self.member.farewell())
        except (ClientError, KafkaError):
            pass  # the end of the session has the same effect, later
