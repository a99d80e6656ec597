"""A group on a table: its effects are done by hand, time passes when told, and stores end when told."""

from __future__ import annotations

import itertools
from typing import Any

from isthmus.core_broker.coordinators.effects import Caller, Cancel, Limits, Reply, Schedule, Store, Timer
from isthmus.core_broker.coordinators.group import Group
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import join_group as jg
from isthmus.protocol.messages import sync_group as sg
from isthmus.protocol.messages.group_records import GroupMetadataValue
from isthmus.protocol.messages.leave_group import MemberIdentity

DELAY_MS = 3000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Table:
    """`answers[token]` is what was replied; `stored` what the group's record says now."""

    def __init__(self, *, delay_ms: int = DELAY_MS, max_size: int = 2**31 - 1, hold_stores: bool = False) -> None:
        self.now_ms = 0
        self.limits = Limits(max_size, delay_ms)
        self.hold_stores = hold_stores
        self.timers: dict[Timer, int] = {}
        self.answers: dict[int, Any] = {}
        self.held: list[Store] = []
        self.stored: GroupMetadataValue | None = None
        self.tokens = itertools.count(1)
        self.ids = itertools.count(1)
        self.group = self.new_group()

    def new_group(self) -> Group:
        return Group("g", self.limits, lambda: self.now_ms, lambda: f"id{next(self.ids)}")

    def settle(self) -> None:
        while effects := self.group.take_effects():
            for effect in effects:
                match effect:
                    case Reply(token, response):
                        assert token not in self.answers, "answered twice"
                        self.answers[token] = response
                    case Schedule(timer, delay_ms):
                        self.timers[timer] = self.now_ms + delay_ms
                    case Cancel(timer):
                        self.timers.pop(timer, None)
                    case Store():
                        self.held.append(effect)
                        if not self.hold_stores:
                            self.finish_store()

    def finish_store(self, error: ErrorCode = ErrorCode.NONE) -> None:
        store = self.held.pop(0)
        if not error:
            self.stored = store.value
        self.group.stored(store.tag, error)
        self.settle()

    def pass_ms(self, ms: int) -> None:
        """Let time pass, firing what falls due in order."""
        until = self.now_ms + ms
        while self.timers:
            timer = min(self.timers, key=lambda each: self.timers[each])
            if self.timers[timer] > until:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(timer))
            self.group.fired(timer)
            self.settle()
        self.now_ms = until

    def restart(self) -> None:
        """The coordinator crashes and reads the record again."""
        self.timers.clear()
        self.held.clear()
        self.group = self.new_group()
        if self.stored is not None:
            self.group.load(self.stored)
        self.group.loaded()
        self.settle()

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"m"),),
        version: int = 9,
        kind: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client_id: str = "c",
    ) -> int:
        """The token that stands for the answer."""
        request = jg.Request(
            group_id="g",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=kind,
            protocols=[jg.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        )
        token = next(self.tokens)
        self.group.join(request, Caller(version, client_id, "/h"), token)
        self.settle()
        return token

    def member(self, **options: Any) -> tuple[str, int]:
        """A new dynamic member, through MEMBER_ID_REQUIRED: its id and the token of its join."""
        first = self.answers[self.join(**options)]
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(first.member_id, **options)

    def sync(
        self, member_id: str, generation: int | None = None, assignments: dict[str, bytes] | None = None, **fields: Any
    ) -> int:
        token = next(self.tokens)
        given = [sg.SyncGroupRequestAssignment(member_id=i, assignment=a) for i, a in (assignments or {}).items()]
        request = sg.Request(
            group_id="g",
            generation_id=self.group.generation.number if generation is None else generation,
            member_id=member_id,
            assignments=given,
            **fields,
        )
        self.group.sync(request, token)
        self.settle()
        return token

    def heartbeat(self, member_id: str, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        number = self.group.generation.number if generation is None else generation
        number = self.group.generation.number if generation is None else generation
        code = self.group.heartbeat(member_id, instance, number)
        self.settle()
        return code

    def leave(self, *members: tuple[str, str | None]) -> list[int]:
        answers = self.group.leave([MemberIdentity(member_id=i, group_instance_id=s) for i, s in members])
        self.settle()
        return [answer.error_code for answer in answers]

    def stable(self, count: int, **options: Any) -> list[str]:
        """That many members, each with an assignment of its own; the first leads."""
        ids = [self.member(**options)[0] for _ in range(count)]
        self.pass_ms(2 * DELAY_MS + 1 if count > 1 else DELAY_MS + 1)
        self.sync_all(ids)
        return ids

    def sync_all(self, ids: list[str]) -> list[int]:
        leader = self.group.members.leader
        assert leader in ids
        tokens = [self.sync(i) for i in ids if i != leader]
        return [*tokens, self.sync(leader, assignments={i: i.encode() for i in ids})]

    def code(self, token: int) -> ErrorCode | None:
        """The error of an answer; None while it waits."""
        answer = self.answers.get(token)
        return None if answer is None else ErrorCode(answer.error_code)
