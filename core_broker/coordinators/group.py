"""One classic group as requests use it: a state machine without a loop, a log or a clock of its own.

Every method takes what happened and adds what must be done to `effects`, in order: answers to send, timers to set, a
record to store. The caller (`group_host.py`) performs the effects, and reports the outcome of a store by `stored`. The
state table is in `group_states.py`. The semantics are Kafka's (KIP-62, 134, 345, 394, 429, 814).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.messages import join_group as jg
from ...protocol.messages import sync_group as sg
from ...protocol.messages.group_records import GroupMetadataValue
from ...protocol.messages.leave_group import MemberIdentity, MemberResponse
from .effects import SYNC, Assigned, Caller, Cancel, Replaced, Reply, Schedule, Store, Token, session
from .generations import CONSUMER, Generations
from .group_states import TABLE, Answer, Event, State
from .members import NOBODY, Member, Protocols, protocols_of

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000  # of a member that cannot send heartbeats yet, as in Kafka
MAX_NAMED_FOR = 1000  # characters of the client id in a member id, which must fit in a protocol string
MAX_PENDING_MEMBERS = 10_000  # assigned ids whose clients have not joined yet


class Group(Generations):
    """A classic group. See the module."""

    # --- What is stored -----------------------------------------------------------------------------------------------

    def load(self, value: GroupMetadataValue) -> None:
        """Take the state of a record: Stable, or Empty without members."""
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
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
        if self.protocol_name is not None or not len(self.members):
            self._remember_subscriptions()

    def loaded(self) -> None:
        """All records are read: from now on members must send heartbeats."""
        for member in self.members:
            self._expect(member)
        if len(self.members) > self.limits.max_size:
            self._on(Event.TOO_LARGE)

    def created(self) -> None:
        """The first join created the group: it exists from now on, even if it never has members."""
        self.effects.append(Store(self.value(), None))

    def stored(self, tag: Any, error: ErrorCode) -> None:
        """A store is committed, or has failed."""
        match tag:
            case Assigned(generation, assignments):
                if self.state is not State.COMPLETING or generation != self.generation:
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
            self._refuse_join(token, NOBODY, ErrorCode.UNKNOWN_SERVER_ERROR)  # this id belongs to no static member
        elif member_id in self.pending_join:
            self._add(member_id, request, caller, token)
        else:
            self._rejoin(request, token)

    def _has_place_for(self, member_id: str) -> bool:
        member = self.members.get(member_id)
        if self.state is State.PREPARING:
            # Only members that joined count, so that the latest are refused if there are too many.
            is_waiting = member is not None and member.awaiting_join is not None
            return is_waiting or self.members.awaiting_join < self.limits.max_size
        if self.state is State.EMPTY:
            return member_id != NOBODY or len(self.pending_join) < MAX_PENDING_MEMBERS
        return member is not None or len(self.members) < self.limits.max_size

    def _supports(self, protocol_type: str, names: Sequence[str]) -> bool:
        if self.state is State.EMPTY:
            return bool(protocol_type and names)
        return protocol_type == self.protocol_type and self.members.share(names)

    def _join_new(self, request: jg.Request, caller: Caller, token: Token) -> None:
        instance_id = request.group_instance_id
        named_for = caller.client_id if instance_id is None else instance_id
        new_id = f"{named_for[:MAX_NAMED_FOR]}-{self._new_id()}"
        if instance_id is not None:
            old_id = self.members.static_id(instance_id)
            if old_id is None:
                self._add(new_id, request, caller, token)
            else:
                self._join_replacing(instance_id, old_id, new_id, request, caller, token)
        elif caller.version >= 4:
            # KIP-394: a member that never gets its id would stay until its session ends. So it gets the id first.
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
            self.protocol_type = request.protocol_type
        self.members.add(member)
        self.pending_join.pop(member_id, None)
        if self.state is State.PREPARING and self.previous_state is State.EMPTY:
            self._grew = True
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
            self.effects.append(Reply(token, self._generation_for(member_id, tells_members)))
        elif isinstance(answer, ErrorCode):
            self._refuse_join(token, member_id, answer)
        else:
            self._maybe_complete()

    def _update(self, member: Member, request: jg.Request, protocols: Protocols, token: Token) -> None:
        rebalance_ms = request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
        self.members.update(member, protocols, rebalance_ms, request.session_timeout_ms)
        before = self.members.await_join(member, token)
        if before is not None:
            # The member repeats its join on another connection; the first answer has no reader.
            self._refuse_join(before, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)

    # --- Static members -----------------------------------------------------------------------------------------------

    def _join_replacing(
        self, instance_id: str, old_id: str, new_id: str, request: jg.Request, caller: Caller, token: Token
    ) -> None:
        """A static member that was restarted takes its place under a new member id (KIP-345)."""
        old_leader = self.members.leader
        member = self._replace(old_id, new_id)
        old_protocols, old_timeouts_ms = member.protocols, (member.rebalance_timeout_ms, member.session_timeout_ms)
        self._update(member, request, protocols_of(request.protocols), token)
        changes = self.state is State.STABLE and self.members.select_protocol() != self.protocol_name
        if self._on(Event.STATIC_CHANGED_REJOIN if changes else Event.STATIC_REJOIN) is Answer.STORED:
            tag = Replaced(
                instance_id, old_id, new_id, old_leader, old_protocols, old_timeouts_ms, caller.version
            )  # fmt: skip
            self.effects.append(Store(self.value(), tag))
        else:
            self._maybe_complete()

    def _replace(self, old_id: str, new_id: str) -> Member:
        """Give a static member a new id; requests that wait under the old id are fenced."""
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
        self._expect(member)
        return member

    def _replaced(self, tag: Replaced, error: ErrorCode) -> None:
        member = self.members.get(tag.new_id)
        if member is None or (self.state is not State.STABLE and not error):
            return  # it has left, or waits for a generation that began meanwhile
        token = self.members.await_join(member, None)
        if error:
            self.members.update(member, tag.old_protocols, *tag.old_timeouts_ms)
            self._replace(tag.new_id, tag.old_id)
            response = self._generation_for(NOBODY, False, tag.old_leader)
            response.error_code = error
        elif tag.version >= 9:
            # KIP-814: the leader needs the members to continue as leader, and must not assign again.
            is_leader = tag.new_id == self.members.leader
            response = self._generation_for(tag.new_id, is_leader)
            response.skip_assignment = is_leader
        else:
            # The answer names the previous leader, so that this member does not act as leader and assign again.
            response = self._generation_for(tag.new_id, False, tag.old_leader)
        if token is not None:
            self.effects.append(Reply(token, response))
            self.touch(member.member_id)

    # --- Sync, heartbeat, leave, commit -------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.NONE  # the state table has the answer
        if instance_id is not None:
            known = self.members.static_id(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _check_generation(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        error = self.check_member(member_id, instance_id)
        is_other = generation != self.generation and self.state is not State.DEAD
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
            self.effects.append(Reply(token, self._assignment_of(member)))
            return
        if member.awaiting_sync is not None:
            self.effects.append(Reply(member.awaiting_sync, sg.Response(error_code=ErrorCode.REBALANCE_IN_PROGRESS)))
        member.awaiting_sync = token
        if answer is Answer.STORED:
            given = {each.member_id: bytes(each.assignment) for each in request.assignments}
            assignments = {each.member_id: given.get(each.member_id, b"") for each in self.members}
            self.effects.append(Store(self.value(assignments), Assigned(self.generation, assignments)))

    def _check_sync(self, request: sg.Request) -> ErrorCode:
        error = self._check_generation(request.member_id, request.group_instance_id, request.generation_id)
        if error:
            return error
        for asked, is_ in ((request.protocol_type, self.protocol_type), (request.protocol_name, self.protocol_name)):
            if asked is not None and is_ is not None and asked != is_:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        error = self._check_generation(member_id, instance_id, generation)
        if error:
            return error
        self.touch(member_id)
        return self._code(Event.HEARTBEAT)

    def touch(self, member_id: str) -> None:
        """The member has sent a request."""
        member = self.members.get(member_id)
        if member is not None:
            self._expect(member)

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
            # An administrator removes a static member whose process does not run any more.
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
        """Whether this member may commit offsets. Generation -1: a consumer without group management."""
        if generation >= 0 or self.state is not State.EMPTY:
            error = self._check_generation(member_id, instance_id, generation)
            if error:
                return error
        return self._code(Event.COMMIT)

    # --- Delete -------------------------------------------------------------------------------------------------------

    def check_delete(self) -> ErrorCode:
        """Whether the group may be deleted now."""
        return self._code(Event.DELETE)

    def check_delete_offsets(self) -> ErrorCode:
        """Whether offsets of topics that `is_subscribed` does not know of may be deleted now."""
        is_consumer = self.protocol_type == CONSUMER
        return self._code(Event.DELETE_OFFSETS if is_consumer else Event.DELETE_OPAQUE_OFFSETS)
