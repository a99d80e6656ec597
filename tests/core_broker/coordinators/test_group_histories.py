"""Random histories of a group: clients that join, sync, beat, leave, vanish and come back; stores that fail; restarts.

Whatever happens: one generation at a time, one leader and one set of members a generation, one assignment a member
and generation, nobody waits without the group knowing, and nobody is lost who kept to the protocol.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core_broker.coordinators.group_states import State
from isthmus.protocol.errors import ErrorCode as E

from .table import DELAY_MS, REBALANCE_MS, SESSION_MS, Table

PROTOCOLS = ((("range", b"1"),), (("range", b"2"), ("sticky", b"")), (("sticky", b""), ("range", b"1")))


class Client:
    """One process of a consumer: what it was told, and what it waits for."""

    def __init__(self, instance: str | None) -> None:
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.join_token: int | None = None
        self.sync_token: int | None = None
        self.sync_generation = -1


class History:
    """Five processes and a group. A step is who and what, both numbers; most steps follow the protocol."""

    def __init__(self) -> None:
        self.table = Table(hold_stores=True)
        self.all = [Client(None), Client(None), Client(None), Client("s1"), Client("s2")]
        self.assigned: dict[tuple[int, str], bytes] = {}
        self.rosters: dict[int, tuple[str, ...]] = {}
        self.top_generation = 0

    def step(self, who: int, what: int) -> None:
        client = self.all[who]
        if what < 40:
            self._follow(client)
        elif what < 50:
            self.finish_store(E.NONE)
        elif what < 53:
            self.finish_store(E.NOT_COORDINATOR)
        elif what < 65:
            self.table.pass_ms((1, 500, DELAY_MS, SESSION_MS - 1, SESSION_MS, REBALANCE_MS)[what % 6])
        elif what < 75:
            self.join(client, PROTOCOLS[what % 3], (3, 5, 9)[what % 3])
        elif what < 80:
            self.sync(client)
        elif what < 88:
            self.beat(client)
        elif what < 93:
            self.leave(client)
        elif what < 98:
            self.all[who] = Client(client.instance)  # killed, and started again
        else:
            self.restart()
        self.check()

    def check(self) -> None:
        self.answers_are_consistent()
        self.the_group_is_sound()
        self.everything_that_waits_is_known_and_will_end()

    def join(self, client, protocols, version):
        client.sync_token = None
        instance = client.instance if version >= 5 else None
        client.join_token = self.table.join(client.member_id, instance=instance, protocols=protocols, version=version)

    def sync(self, client):
        if not client.member_id or client.generation < 0:
            return
        client.join_token = None
        members = [member.member_id for member in self.table.group.members]
        given = {i: f"{i}@{client.generation}".encode() for i in members}
        client.sync_generation = client.generation
        client.sync_token = self.table.sync(client.member_id, client.generation, given)

    def beat(self, client):
        if client.join_token is None and client.sync_token is None:
            code = self.table.heartbeat(client.member_id, client.generation, client.instance)
            if code in (E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID):
                client.member_id, client.generation = "", -1

    def leave(self, client):
        if client.member_id:
            self.table.leave((client.member_id, None))
            client.member_id, client.generation = "", -1

    def finish_store(self, error):
        if self.table.held:
            self.table.finish_store(error)

    def restart(self):
        self.table.restart()
        self.top_generation = self.table.group.generation.number  # what was not stored is forgotten
        self.assigned = {key: value for key, value in self.assigned.items() if key[0] <= self.top_generation}
        self.rosters = {key: value for key, value in self.rosters.items() if key <= self.top_generation}
        for client in self.all:
            client.join_token = client.sync_token = None

    def answers_are_consistent(self):
        for client in self.all:
            self._read_join(client)
            self._read_sync(client)

    def _read_join(self, client):
        answer = self.table.answers.get(client.join_token)
        if answer is None:
            return
        client.join_token = None
        if answer.error_code == E.MEMBER_ID_REQUIRED:
            client.member_id, client.generation = answer.member_id, -1
        elif answer.error_code == E.NONE:
            client.member_id, client.generation = answer.member_id, answer.generation_id
            if answer.members:
                roster = tuple(sorted(m.member_id for m in answer.members))
                known = self.rosters.setdefault(answer.generation_id, roster)
                assert len(known) == len(roster), "two sets of members in one generation"
                assert answer.member_id in roster
        else:
            client.generation = -1
            if answer.error_code in (E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID):
                client.member_id = ""

    def _read_sync(self, client):
        answer = self.table.answers.get(client.sync_token)
        if answer is None:
            return
        client.sync_token = None
        if answer.error_code == E.NONE:
            key = (client.sync_generation, client.member_id)
            assert self.assigned.setdefault(key, answer.assignment) == answer.assignment, "two assignments"
            of_generation = answer.assignment.endswith(f"@{client.sync_generation}".encode())
            assert of_generation or not answer.assignment, "another generation's assignment"

    def the_group_is_sound(self):
        group = self.table.group
        members = list(group.members)
        assert group.generation.number >= self.top_generation
        self.top_generation = group.generation.number
        assert (group.state is State.EMPTY) <= (not members)
        assert (group.state in (State.STABLE, State.COMPLETING)) <= bool(members)
        assert (group.members.leader in group.members) if members else group.members.leader is None
        assert group.members.awaiting_join == sum(member.awaiting_join is not None for member in members)
        instances = [m.group_instance_id for m in members if m.group_instance_id is not None]
        assert len(instances) == len(set(instances))
        assert all(group.members.static_id(i) for i in instances)
        assert not set(group.pending_join) & {member.member_id for member in members}
        assert set(group.pending_sync) <= {member.member_id for member in members}
        if group.generation.protocol_name is not None and group.state in (State.STABLE, State.COMPLETING):
            assert all(group.generation.protocol_name in [name for name, _ in member.protocols] for member in members)

    def everything_that_waits_is_known_and_will_end(self):
        group = self.table.group
        waiting = {m.awaiting_join for m in group.members} | {m.awaiting_sync for m in group.members}
        for client in self.all:
            for token in (client.join_token, client.sync_token):
                assert token is None or token in self.table.answers or token in waiting, "nobody will answer this"
        if group.state is State.PREPARING:
            assert ("join", "") in self.table.timers, "nothing ends the join phase"
        for member in group.members:
            assert member.needs_no_heartbeat or ("session", member.member_id) in self.table.timers
        for member_id in group.pending_join:
            assert ("session", member_id) in self.table.timers

    def end(self) -> None:
        """However it went: processes that keep to the protocol come to a stable group with one assignment each."""
        self.table.hold_stores = False
        while self.table.held:
            self.table.finish_store()
        self.answers_are_consistent()
        self.all = [Client(client.instance) for client in self.all]
        self.table.pass_ms(10 * REBALANCE_MS)  # who they were before is forgotten
        assert not len(self.table.group.members) and not self.table.group.pending_join
        for _ in range(40):
            for client in self.all:
                self._follow(client)
                self.check()
            self.table.pass_ms(1000)
            self.answers_are_consistent()
            group = self.table.group
            if group.state is State.STABLE and {client.generation for client in self.all} == {group.generation.number}:
                break
        assert group.state is State.STABLE
        assert sorted(m.member_id for m in group.members) == sorted(client.member_id for client in self.all)
        for client in self.all:
            token = self.table.sync(client.member_id, client.generation)
            assert self.table.answers[token].assignment == f"{client.member_id}@{group.generation.number}".encode()

    def _follow(self, client):
        if client.join_token is not None or client.sync_token is not None:
            return
        if client.generation < 0:
            client.join_token = self.table.join(client.member_id, instance=client.instance)
        else:
            code = self.table.heartbeat(client.member_id, client.generation, client.instance)
            if code != E.NONE:
                client.generation = -1
                if code in (E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID):
                    client.member_id = ""
            elif client.sync_generation != client.generation:
                self.sync(client)
        self.answers_are_consistent()


STEPS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 99)), max_size=120)


@settings(max_examples=120, deadline=None)
@given(STEPS)
def test_histories(steps):
    history = History()
    for who, what in steps:
        history.step(who, what)
    history.end()


@pytest.mark.parametrize("seed", range(60))
def test_long_histories(seed):
    """Longer than what a search finds by itself, so that the rare comes up too."""
    chance = random.Random(seed)
    history = History()
    for _ in range(400):
        history.step(chance.randrange(5), chance.randrange(100))
    history.end()
