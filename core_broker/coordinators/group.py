"""One classic group: a state machine without a loop, a log or a clock of its own.

A method is called for each request and for each timer. What must be done about it is appended to `effects`, in order:
answers to give, timers to set, a record to store. The caller does them (`group_host.py`) and reports the outcome of a
store by `stored`. `group_states.py` has the table of states and events; the semantics are Kafka's (KIP-62, 134, 345,
394, 429, 814).

A `Group` holds its parts:

    members         members.py          who is in it, which protocols they share, who leads
    generation      generation.py       number, protocol and subscriptions; answers and records made from them
    initial delay   initial_delay.py    how long a new group waits for more members
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.messages import join_group as jg
from ...protocol.messages import sync_group as sg
from ...protocol.messages.group_records import GroupMetadataValue
from ...protocol.messages.leave_group import MemberIdentity, MemberResponse
from .effects import (
    JOIN,
    SYNC,
    Assigned,
    Caller,
    Cancel,
    Effect,
    Limits,
    Replaced,
    Reply,
    Schedule,
    Store,
    Timer,
    Token,
    session,
)
from .generation import Generation
from .group_states import TABLE, Answer, Event, State
from .initial_delay import InitialDelay
from .members import NOBODY, Member, Members, Protocols, protocols_of

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000  # of a member that sends no heartbeats yet, as in Kafka
MAX_ID_PREFIX = 1000  # characters of a client's id in a member id, which must fit in a string of the protocol
MAX_PENDING_MEMBERS = 10_000  # ids given out whose owners have not joined yet


class Group:
    """`new_id` makes the random part of a member id; `wall_ms` stamps the times of state changes, which are stored."""

    def __init__(self, group_id: str, limits: Limits, wall_ms: Callable[[], int], new_id: Callable[[], str]) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.previous_state = State.EMPTY
        self.state_since_ms = wall_ms()
        self.members = Members()
        self.generation = Generation(self.members)
        self.pending_join: dict[str, None] = {}  # ids given out (MEMBER_ID_REQUIRED), not used yet
        self.pending_sync: dict[str, None] = {}  # members of this generation that have not synced
        self.effects: list[Effect] = []
        self.is_busy = False  # set by the caller while it does the effects
        self._max_size = limits.max_size
        self._initial_delay = InitialDelay(limits.initial_rebalance_delay_ms)
        self._wall_ms = wall_ms
        self._new_id = new_id

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    # --- What is stored -----------------------------------------------------------------------------------------------

    def load(self, value: GroupMetadataValue) -> None:
        """Become what a record says: Stable, or Empty without members."""
        self.state_since_ms = value.current_state_timestamp
        for stored in value.members:
            rebalance_timeout = stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout
            self.members.add(
                Member(
                    stored.member_id,
                    stored.group_instance_id,
                    stored.client_id,
                    stored.client_host,
                    rebalance_timeout,
                    stored.session_timeout,
                    ((value.protocol or "", bytes(stored.subscription)),),
                    bytes(stored.assignment),
                )
            )
        if value.leader is not None and value.leader in self.members:
            self.members.leader = value.leader
        self.state = State.STABLE if len(self.members) else State.EMPTY
        self.previous_state = self.state
        self.generation.load(value)

    def loaded(self) -> None:
        """All records have been read: the sessions of the members begin."""
        for member in self.members:
            self._start_session_timer(member)
        if len(self.members) > self._max_size:
            self._on(Event.TOO_LARGE)

    def converted(self, protocols: Mapping[str, Protocols]) -> None:
        """The group was a consumer group until now: its members are to join again.

        protocols: those of each member, which the record does not have.
        """
        for member in self.members:
            self.members.update(
                member, protocols[member.member_id], member.rebalance_timeout_ms, member.session_timeout_ms
            )
            self._start_session_timer(member)
        self._on(Event.STALE)

    def refuse_waiting(self, error: ErrorCode) -> None:
        """Answer all requests that wait, as the group becomes a consumer group."""
        for member in self.members:
            self._refuse_waiting(member, member.member_id, error)

    def created(self) -> None:
        """Store the empty group: a group exists from its first join on, even if that fails."""
        self._store(None)

    def _store(self, tag: Any, assignments: dict[str, bytes] | None = None) -> None:
        self.effects.append(Store(self.generation.record(self.state_since_ms, assignments), tag))

    def stored(self, tag: Any, error: ErrorCode) -> None:
        """A store is committed, or has failed."""
        match tag:
            case Assigned(generation, assignments):
                if self.state is not State.COMPLETING or generation != self.generation.number:
                    return  # another generation has begun
                if error:
                    self._answer_syncs(error)
                    self._on(Event.NOT_ASSIGNED)
                    return
                for member in self.members:
                    member.assignment = assignments.get(member.member_id, b"")
                self._on(Event.ASSIGNED)
            case Replaced():
                self._replaced(tag, error)

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
        step_ms = self._initial_delay.next_step()
        if step_ms is None:
            self._complete()
        else:
            self.effects.append(Schedule(JOIN, step_ms))

    def _sync_phase_over(self) -> None:
        if self.state in (State.COMPLETING, State.STABLE) and self.pending_sync:
            for member_id in list(self.pending_sync):
                self.effects.append(Cancel(session(member_id)))
                self._remove(member_id)
            self._on(Event.UNSYNCED)

    def _start_session_timer(self, member: Member) -> None:
        self.effects.append(Schedule(session(member.member_id), member.session_timeout_ms))

    def touch(self, member_id: str) -> None:
        """Restart the session timer of a member, if there is one."""
        member = self.members.get(member_id)
        if member is not None:
            self._start_session_timer(member)

    # --- States -------------------------------------------------------------------------------------------------------

    def _on(self, event: Event) -> ErrorCode | Answer:
        """Enter the state that the table has for the event, if any; gives the table's answer to the event."""
        outcome = TABLE[event, self.state]
        if outcome.to is not None:
            before, self.state = self.state, outcome.to
            self.previous_state = before
            self.state_since_ms = self._wall_ms()
            self._entered(outcome.to, before)
        return outcome.answer

    def _code(self, event: Event) -> ErrorCode:
        """`_on` for an event whose answer is an error code in every state."""
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
                self._store(None)

    # --- From one generation to the next ------------------------------------------------------------------------------

    def _begin_join_phase(self, before: State) -> None:
        if before is State.COMPLETING:
            for member in self.members:
                member.assignment = b""
            self._answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        self.pending_sync.clear()
        self.effects.append(Cancel(SYNC))
        if before is State.EMPTY:
            self.effects.append(Schedule(JOIN, self._initial_delay.begin(self.members.rebalance_timeout_ms)))
        elif self._all_joined():
            self._complete()
        else:
            self.effects.append(Schedule(JOIN, self.members.rebalance_timeout_ms))

    def _all_joined(self) -> bool:
        return self.members.awaiting_join == len(self.members) and not self.pending_join

    def _maybe_complete(self) -> None:
        """Complete the join phase if all have joined; a new group still waits for the end of its initial delay."""
        if self.previous_state is not State.EMPTY:
            self._complete_if_all_joined()

    def _complete_if_all_joined(self) -> None:
        if self.state is State.PREPARING and self._all_joined():
            self._complete()

    def _complete(self) -> None:
        """End the join phase. The next generation has those who joined, and the static members that did not."""
        if self.state is not State.PREPARING:
            return
        self.effects.append(Cancel(JOIN))
        self._initial_delay.end()
        for member in self.members:
            if member.awaiting_join is None and member.group_instance_id is None:
                self.effects.append(Cancel(session(member.member_id)))
                self._remove(member.member_id)
        if not self.members.elect_joined() and len(self.members):
            # Only static members are left, and none has joined: wait until one joins, or their sessions end.
            self.effects.append(Schedule(JOIN, self.members.rebalance_timeout_ms))
            return
        self.pending_sync.clear()
        self.generation.begin_next()
        self._on(Event.JOINED if len(self.members) else Event.NONE_LEFT)

    def _answer_joins(self) -> None:
        for member in self.members:
            token = self.members.await_join(member, None)
            if token is not None:
                is_leader = member.member_id == self.members.leader
                self.effects.append(Reply(token, self.generation.join_response(member.member_id, is_leader)))
            self._start_session_timer(member)
            member.is_new = False
            self.pending_sync[member.member_id] = None
        self.effects.append(Schedule(SYNC, self.members.rebalance_timeout_ms))

    def _answer_syncs(self, error: ErrorCode) -> None:
        for member in self.members:
            token, member.awaiting_sync = member.awaiting_sync, None
            if token is not None:
                answer = sg.Response(error_code=error) if error else self.generation.sync_response(member)
                self.effects.append(Reply(token, answer))
                self._start_session_timer(member)  # it sent no heartbeats while it waited

    def _remove(self, member_id: str) -> None:
        """Remove a member, or an id that was given out. A request of the member that waits is refused."""
        member = self.members.get(member_id)
        if member is not None:
            self._refuse_waiting(member, NOBODY, ErrorCode.UNKNOWN_MEMBER_ID)
            self.members.remove(member_id)
        self.pending_join.pop(member_id, None)
        self.pending_sync.pop(member_id, None)

    def close(self, error: ErrorCode) -> None:
        """The group is deleted, or coordinated elsewhere from now on: refuse all requests that wait."""
        self.refuse_waiting(error)
        self._on(Event.CLOSED)

    def _refuse_waiting(self, member: Member, named_id: str, error: ErrorCode) -> None:
        """Refuse the member's join and sync, where they wait. named_id: the member id in the answer to the join."""
        if member.awaiting_join is not None:
            self._refuse_join(self.members.await_join(member, None), named_id, error)
        if member.awaiting_sync is not None:
            token, member.awaiting_sync = member.awaiting_sync, None
            self.effects.append(Reply(token, sg.Response(error_code=error)))

    def _refuse_join(self, token: Token, member_id: str, error: ErrorCode) -> None:
        self.effects.append(Reply(token, jg.Response(member_id=member_id, error_code=error)))

    # --- Join ---------------------------------------------------------------------------------------------------------

    def join(self, request: jg.Request, caller: Caller, token: Token) -> None:
        member_id = request.member_id
        names = [protocol.name for protocol in request.protocols]
        if self.state is State.DEAD:
            self._refuse_join(token, member_id, self._code(Event.JOIN))
        elif not self._has_place_for(member_id):
            self._remove(member_id)
            self._refuse_join(token, NOBODY, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not self._supports(request.protocol_type, names):
            self._refuse_join(token, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif member_id == NOBODY:
            self._join_new(request, caller, token)
        elif member_id in self.pending_join and request.group_instance_id is not None:
            self._refuse_join(token, NOBODY, ErrorCode.UNKNOWN_SERVER_ERROR)  # the id was given to a dynamic member
        elif member_id in self.pending_join:
            self._add(member_id, request, caller, token)
        else:
            self._rejoin(request, token)

    def _has_place_for(self, member_id: str) -> bool:
        member = self.members.get(member_id)
        if self.state is State.PREPARING:
            # Only those who have joined count: when there are too many, the last to join are refused.
            is_waiting = member is not None and member.awaiting_join is not None
            return is_waiting or self.members.awaiting_join < self._max_size
        if self.state is State.EMPTY:
            return member_id != NOBODY or len(self.pending_join) < MAX_PENDING_MEMBERS
        return member is not None or len(self.members) < self._max_size

    def _supports(self, protocol_type: str, names: Sequence[str]) -> bool:
        if self.state is State.EMPTY:
            return bool(protocol_type and names)
        return protocol_type == self.generation.protocol_type and self.members.share(names)

    def _join_new(self, request: jg.Request, caller: Caller, token: Token) -> None:
        instance_id = request.group_instance_id
        prefix = caller.client_id if instance_id is None else instance_id
        new_id = f"{prefix[:MAX_ID_PREFIX]}-{self._new_id()}"
        if instance_id is not None:
            old_id = self.members.static_id(instance_id)
            if old_id is None:
                self._add(new_id, request, caller, token)
            else:
                self._join_replacing(instance_id, old_id, new_id, request, caller, token)
        elif caller.version >= 4:
            # KIP-394: a client that loses the answer would leave a member behind. It is given its id first.
            self.pending_join[new_id] = None
            self.effects.append(Schedule(session(new_id), request.session_timeout_ms))
            self._refuse_join(token, new_id, ErrorCode.MEMBER_ID_REQUIRED)
        else:
            self._add(new_id, request, caller, token)

    def _add(self, member_id: str, request: jg.Request, caller: Caller, token: Token) -> None:
        rebalance_ms = request.rebalance_timeout_ms if caller.version >= 1 else request.session_timeout_ms
        member = Member(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.client_host,
            rebalance_ms,
            request.session_timeout_ms,
            protocols_of(request.protocols),
        )
        member.is_new = True
        member.awaiting_join = token
        if not len(self.members):
            self.generation.protocol_type = request.protocol_type
        self.members.add(member)
        self.pending_join.pop(member_id, None)
        self._initial_delay.member_joined()
        self.effects.append(Schedule(session(member_id), NEW_MEMBER_JOIN_TIMEOUT_MS))
        self._on(Event.JOIN)
        self._maybe_complete()

    def _rejoin(self, request: jg.Request, token: Token) -> None:
        member_id = request.member_id
        error = self.check_member(member_id, request.group_instance_id)
        member = self.members.get(member_id)
        if error or member is None:
            self._refuse_join(token, member_id, error)
            return
        protocols = protocols_of(request.protocols)
        if protocols != member.protocols:
            event = Event.CHANGED_REJOIN
        else:
            event = Event.LEADER_REJOIN if member_id == self.members.leader else Event.REJOIN
        if TABLE[event, self.state].answer is Answer.LATER:
            self._update(member, request, protocols, token)
        answer = self._on(event)
        if answer is Answer.GENERATION:
            tells_members = self.state is State.COMPLETING and member_id == self.members.leader
            self.effects.append(Reply(token, self.generation.join_response(member_id, tells_members)))
        elif isinstance(answer, ErrorCode):
            self._refuse_join(token, member_id, answer)
        else:
            self._maybe_complete()

    def _update(self, member: Member, request: jg.Request, protocols: Protocols, token: Token) -> None:
        rebalance_ms = request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
        self.members.update(member, protocols, rebalance_ms, request.session_timeout_ms)
        before = self.members.await_join(member, token)
        if before is not None:
            # It has sent another join, on another connection: nobody reads the answer to the first.
            self._refuse_join(before, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)

    # --- Static members -----------------------------------------------------------------------------------------------

    def _join_replacing(
        self, instance_id: str, old_id: str, new_id: str, request: jg.Request, caller: Caller, token: Token
    ) -> None:
        """A static member whose process was restarted takes its place under a new member id (KIP-345)."""
        old_leader = self.members.leader
        member = self._replace(old_id, new_id)
        old_protocols, old_timeouts_ms = member.protocols, (member.rebalance_timeout_ms, member.session_timeout_ms)
        self._update(member, request, protocols_of(request.protocols), token)
        changes = self.state is State.STABLE and self.members.select_protocol() != self.generation.protocol_name
        if self._on(Event.STATIC_CHANGED_REJOIN if changes else Event.STATIC_REJOIN) is Answer.STORED:
            tag = Replaced(
                instance_id, old_id, new_id, old_leader, old_protocols, old_timeouts_ms, caller.version
            )  # fmt: skip
            self._store(tag)
        else:
            self._maybe_complete()

    def _replace(self, old_id: str, new_id: str) -> Member:
        """Rename a static member; requests that wait under the old id are fenced."""
        old = self.members.get(old_id)
        assert old is not None
        fenced = ErrorCode.FENCED_INSTANCE_ID
        if old.awaiting_join is not None:
            response = jg.Response(member_id=old_id, error_code=fenced, protocol_name=None, protocol_type=None)
            self.effects.append(Reply(self.members.await_join(old, None), response))
        if old.awaiting_sync is not None:
            self.effects.append(
                Reply(old.awaiting_sync, sg.Response(error_code=fenced, protocol_name=None, protocol_type=None))
            )
        if old_id in self.pending_sync:
            self.pending_sync = {new_id if each == old_id else each: None for each in self.pending_sync}
        self.effects.append(Cancel(session(old_id)))
        member = self.members.rename(old_id, new_id)
        self._start_session_timer(member)
        return member

    def _replaced(self, tag: Replaced, error: ErrorCode) -> None:
        member = self.members.get(tag.new_id)
        if member is None or (self.state is not State.STABLE and not error):
            return  # it left, or another generation has begun, which its join is part of
        token = self.members.await_join(member, None)
        if error:
            self.members.update(member, tag.old_protocols, *tag.old_timeouts_ms)
            self._replace(tag.new_id, tag.old_id)
            response = self.generation.join_response(NOBODY, False, tag.old_leader)
            response.error_code = error
        elif tag.version >= 9:
            # KIP-814: the leader needs the list of members, and must not assign anew.
            is_leader = tag.new_id == self.members.leader
            response = self.generation.join_response(tag.new_id, is_leader)
            response.skip_assignment = is_leader
        else:
            # It is given the old leader's id, or it would take itself for the leader and assign anew.
            response = self.generation.join_response(tag.new_id, False, tag.old_leader)
        if token is not None:
            self.effects.append(Reply(token, response))
            self.touch(member.member_id)

    # --- Sync, heartbeat, leave, commit -------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.NONE  # the table has the answer, which is the same for all
        if instance_id is not None:
            known = self.members.static_id(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _check_generation(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        error = self.check_member(member_id, instance_id)
        is_other = generation != self.generation.number and self.state is not State.DEAD
        return ErrorCode.ILLEGAL_GENERATION if not error and is_other else error

    def sync(self, request: sg.Request, token: Token) -> None:
        answer: ErrorCode | Answer = self._check_sync(request)
        if not answer:
            is_leader = request.member_id == self.members.leader
            answer = self._on(Event.LEADER_SYNC if is_leader else Event.SYNC)
        member = self.members.get(request.member_id)
        if isinstance(answer, ErrorCode) or member is None:
            self.effects.append(Reply(token, sg.Response(error_code=answer)))
            return
        self.pending_sync.pop(member.member_id, None)
        if not self.pending_sync:
            self.effects.append(Cancel(SYNC))
        if answer is Answer.ASSIGNMENT:
            self.effects.append(Reply(token, self.generation.sync_response(member)))
            return
        if member.awaiting_sync is not None:
            self.effects.append(Reply(member.awaiting_sync, sg.Response(error_code=ErrorCode.REBALANCE_IN_PROGRESS)))
        member.awaiting_sync = token
        if answer is Answer.STORED:
            given = {each.member_id: bytes(each.assignment) for each in request.assignments}
            assignments = {each.member_id: given.get(each.member_id, b"") for each in self.members}
            self._store(Assigned(self.generation.number, assignments), assignments)

    def _check_sync(self, request: sg.Request) -> ErrorCode:
        error = self._check_generation(request.member_id, request.group_instance_id, request.generation_id)
        if not error and self.generation.contradicts(request.protocol_type, request.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return error

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        error = self._check_generation(member_id, instance_id, generation)
        if error:
            return error
        self.touch(member_id)
        return self._code(Event.HEARTBEAT)

    def leave(self, leaving: Sequence[MemberIdentity]) -> list[MemberResponse]:
        answers = []
        for each in leaving:
            error = self._leave(each.member_id, each.group_instance_id)
            answers.append(
                MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=error)
            )
        if any(answer.error_code == ErrorCode.NONE for answer in answers):
            self._on(Event.MEMBER_GONE)
            self._maybe_complete()
        return answers

    def _leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if member_id == NOBODY and instance_id is not None:
            # How an administrator removes a static member whose process is gone.
            member_id = self.members.static_id(instance_id) or NOBODY
        if member_id in self.pending_join:
            self.effects.append(Cancel(session(member_id)))
            self._remove(member_id)
            return ErrorCode.NONE
        error = self.check_member(member_id, instance_id)
        if not error:
            self.effects.append(Cancel(session(member_id)))
            self._remove(member_id)
        return error

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether offsets may be committed under this identity. Generation -1: a consumer outside of the group."""
        if generation >= 0 or self.state is not State.EMPTY:
            error = self._check_generation(member_id, instance_id, generation)
            if error:
                return error
        return self._code(Event.COMMIT)

    def check_transactional_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """The same in a transaction, which may end a rebalance later. Who names no member is not fenced (KIP-447)."""
        names_member = generation >= 0 or member_id != NOBODY or instance_id is not None
        if names_member and (generation >= 0 or self.state is not State.EMPTY):
            error = self._check_generation(member_id, instance_id, generation)
            if error:
                return error
        return self._code(Event.TRANSACTIONAL_COMMIT)

    # --- Delete -------------------------------------------------------------------------------------------------------

    def check_delete(self) -> ErrorCode:
        """Whether the group may be deleted now."""
        return self._code(Event.DELETE)

    @property
    def is_unused(self) -> bool:
        """Whether a group of another kind may take its place: nobody is in it, its offsets stay."""
        return self.state is State.EMPTY

    def check_delete_offsets(self) -> ErrorCode:
        """Whether offsets of topics that no member is subscribed to may be deleted now."""
        return self._code(Event.DELETE_OFFSETS if self.generation.is_of_consumers else Event.DELETE_OPAQUE_OFFSETS)
