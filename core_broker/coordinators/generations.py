"""The generations of a classic group: how one ends, how the next is formed, and which members are removed.

This is the part of the group's state machine that is not called by requests; `group.py` has those. Nothing here uses a
loop, a log or a clock: what must be done is added to `effects`, in order.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.errors import DecodeError, ErrorCode
from ...protocol.messages import consumer_protocol
from ...protocol.messages import join_group as jg
from ...protocol.messages import sync_group as sg
from ...protocol.messages.group_records import GroupMetadataValue, MemberMetadata
from .effects import JOIN, SYNC, Cancel, Effect, Limits, Reply, Schedule, Store, Timer, Token, session
from .group_states import TABLE, Answer, Event, State
from .members import NOBODY, Member, Members

CONSUMER = "consumer"  # the protocol type of consumers, whose subscriptions can be read


class Generations:
    """See the module. `new_id` makes the random part of a member id; `wall_ms` gives the time of stored states."""

    def __init__(self, group_id: str, limits: Limits, wall_ms: Callable[[], int], new_id: Callable[[], str]) -> None:
        self.group_id = group_id
        self.limits = limits
        self.state = State.EMPTY
        self.previous_state = State.EMPTY
        self.state_since_ms = wall_ms()
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = Members()
        self.pending_join: dict[str, None] = {}  # ids assigned by MEMBER_ID_REQUIRED and not used yet
        self.pending_sync: dict[str, None] = {}  # members of this generation that have not synced
        self.subscriptions: list[bytes] | None = None  # of this generation's members; None before the first generation
        self.effects: list[Effect] = []
        self.is_busy = False  # set by the caller while it performs the effects
        self._wall_ms = wall_ms
        self._new_id = new_id
        self._initial_ms: tuple[int, int] | None = None  # initial delay: this part, and the rest after it
        self._grew = False  # a member joined during the initial delay

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    # --- Answers ------------------------------------------------------------------------------------------------------
    def _refuse_join(self, token: Token, member_id: str, error: ErrorCode) -> None:
        self.effects.append(Reply(token, jg.Response(member_id=member_id, error_code=error)))

    def _generation_for(self, member_id: str, with_members: bool, leader: str | None = None) -> jg.Response:
        return jg.Response(
            member_id=member_id,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader or self.members.leader or NOBODY,
            members=self._joined_members() if with_members else [],
        )

    def _joined_members(self) -> list[jg.JoinGroupResponseMember]:
        return [
            jg.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members
        ]

    def _assignment_of(self, member: Member) -> sg.Response:
        return sg.Response(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )

    def value(self, assignments: dict[str, bytes] | None = None) -> GroupMetadataValue:
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.members.leader,
            current_state_timestamp=self.state_since_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name),
                    assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
                )
                for member in self.members
            ],
        )

    # --- Timers -------------------------------------------------------------------------------------------------------

    def fired(self, timer: Timer) -> None:
        """A timer has expired."""
        if self.state is State.DEAD:
            return
        if timer == JOIN:
            self._join_phase_over()
        elif timer == SYNC:
            self._sync_phase_over()
        else:
            self._session_over(timer[1])

    def _session_over(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member_id in self.pending_join:
            self._remove(member_id)
        elif member is not None and not member.needs_no_heartbeat:
            self._remove(member_id)
            self._on(Event.MEMBER_GONE)
        else:
            return
        self._complete_if_all_joined()

    def _join_phase_over(self) -> None:
        if self._initial_ms is not None:
            delay, left = self._initial_ms
            if self._grew and left:
                self._grew = False
                self._initial_ms = (min(self.limits.initial_rebalance_delay_ms, left), max(left - delay, 0))
                self.effects.append(Schedule(JOIN, self._initial_ms[0]))
                return
        self._complete()

    def _sync_phase_over(self) -> None:
        if self.state in (State.COMPLETING, State.STABLE) and self.pending_sync:
            for member_id in list(self.pending_sync):
                self.effects.append(Cancel(session(member_id)))
                self._remove(member_id)
            self._on(Event.UNSYNCED)

    def _expect(self, member: Member) -> None:
        self.effects.append(Schedule(session(member.member_id), member.session_timeout_ms))

    # --- States -------------------------------------------------------------------------------------------------------

    def _on(self, event: Event) -> ErrorCode | Answer:
        """Apply an event: the group takes the next state from the table. Returns the answer to the event."""
        outcome = TABLE[event, self.state]
        if outcome.to is not None:
            before, self.state = self.state, outcome.to
            self.previous_state = before
            self.state_since_ms = self._wall_ms()
            self._entered(outcome.to, before)
        return outcome.answer

    def _code(self, event: Event) -> ErrorCode:
        """The same for an event whose answer is an error code in every state."""
        answer = self._on(event)
        assert isinstance(answer, ErrorCode), event
        return answer

    def _entered(self, state: State, before: State) -> None:
        match state:
            case State.PREPARING:
                self._begin_join_phase(before)
            case State.COMPLETING:
                self._answer_joins()
            case State.STABLE:
                self._answer_syncs(ErrorCode.NONE)
            case State.EMPTY:
                self.effects.append(Store(self.value(), None))

    # --- Generations --------------------------------------------------------------------------------------------------

    def _begin_join_phase(self, before: State) -> None:
        if before is State.COMPLETING:
            for member in self.members:
                member.assignment = b""
            self._answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        self.pending_sync.clear()
        self.effects.append(Cancel(SYNC))
        if before is State.EMPTY:
            # A new group waits a little, so that its first members share one generation.
            delay = self.limits.initial_rebalance_delay_ms
            self._grew = False
            self._initial_ms = (delay, max(self.members.rebalance_timeout_ms - delay, 0))
            self.effects.append(Schedule(JOIN, delay))
        elif self._all_joined():
            self._complete()
        else:
            self.effects.append(Schedule(JOIN, self.members.rebalance_timeout_ms))

    def _all_joined(self) -> bool:
        return self.members.awaiting_join == len(self.members) and not self.pending_join

    def _maybe_complete(self) -> None:
        """Complete the join phase if all have joined, except for a new group, which waits for its initial delay."""
        if self.previous_state is not State.EMPTY:
            self._complete_if_all_joined()

    def _complete_if_all_joined(self) -> None:
        if self.state is State.PREPARING and self._all_joined():
            self._complete()

    def _complete(self) -> None:
        """End the join phase: the members that joined form the next generation. Static members stay in any case."""
        if self.state is not State.PREPARING:
            return
        self.effects.append(Cancel(JOIN))
        self._initial_ms = None
        for member in self.members:
            if member.awaiting_join is None and member.group_instance_id is None:
                self.effects.append(Cancel(session(member.member_id)))
                self._remove(member.member_id)
        if not self.members.elect_joined() and len(self.members):
            # Only static members are left, and none has joined: wait for one, or for their sessions to end.
            self.effects.append(Schedule(JOIN, self.members.rebalance_timeout_ms))
            return
        self.generation += 1
        self.pending_sync.clear()
        if len(self.members):
            self.protocol_name = self.members.select_protocol()
            self._remember_subscriptions()
            self._on(Event.JOINED)
        else:
            self.protocol_name = None
            self._remember_subscriptions()
            self._on(Event.NONE_LEFT)

    def _remember_subscriptions(self) -> None:
        self.subscriptions = [member.metadata(self.protocol_name) for member in self.members]

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads the topic, or might read it."""
        topics = self.subscribed_topics()
        return self.protocol_type == CONSUMER if topics is None else topic in topics

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members of this generation read; None if unknown."""
        if self.protocol_type != CONSUMER or self.subscriptions is None:
            return None
        topics: set[str] = set()
        for subscription in self.subscriptions:
            try:
                topics.update(consumer_protocol.decode_topics(subscription))
            except DecodeError:
                return None
        return frozenset(topics)

    def _answer_joins(self) -> None:
        for member in self.members:
            token = self.members.await_join(member, None)
            if token is not None:
                is_leader = member.member_id == self.members.leader
                self.effects.append(Reply(token, self._generation_for(member.member_id, is_leader)))
            self._expect(member)
            member.is_new = False
            self.pending_sync[member.member_id] = None
        self.effects.append(Schedule(SYNC, self.members.rebalance_timeout_ms))

    def _answer_syncs(self, error: ErrorCode) -> None:
        for member in self.members:
            token, member.awaiting_sync = member.awaiting_sync, None
            if token is not None:
                answer = sg.Response(error_code=error) if error else self._assignment_of(member)
                self.effects.append(Reply(token, answer))
                # It could not send heartbeats while it waited.
                self._expect(member)

    def _remove(self, member_id: str) -> None:
        """Remove a member; if it waits for an answer, it must join again."""
        member = self.members.get(member_id)
        if member is not None:
            if member.awaiting_join is not None:
                self._refuse_join(self.members.await_join(member, None), NOBODY, ErrorCode.UNKNOWN_MEMBER_ID)
            if member.awaiting_sync is not None:
                token, member.awaiting_sync = member.awaiting_sync, None
                self.effects.append(Reply(token, sg.Response(error_code=ErrorCode.UNKNOWN_MEMBER_ID)))
            self.members.remove(member_id)
        self.pending_join.pop(member_id, None)
        self.pending_sync.pop(member_id, None)

    def close(self, error: ErrorCode) -> None:
        """The group is deleted or has moved to another coordinator: answer all who wait."""
        for member in self.members:
            if member.awaiting_join is not None:
                self._refuse_join(self.members.await_join(member, None), member.member_id, error)
            if member.awaiting_sync is not None:
                token, member.awaiting_sync = member.awaiting_sync, None
                self.effects.append(Reply(token, sg.Response(error_code=error)))
        self._on(Event.CLOSED)
