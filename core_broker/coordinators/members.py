"""The members of a classic group: who is in it, which protocols they share, who leads.

Bookkeeping only: `group.py` decides what follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...protocol.messages.group_records import MemberMetadata
from ...protocol.messages.join_group import JoinGroupRequestProtocol
from .java import java_order

NOBODY = ""  # the member id in a request of a client that has none yet
Protocols = tuple[tuple[str, bytes], ...]  # name and metadata, in the member's order of preference


def protocols_of(asked: Sequence[JoinGroupRequestProtocol]) -> Protocols:
    return tuple([(each.name, bytes(each.metadata)) for each in asked])


class Member:
    """awaiting_join, awaiting_sync: tokens of its requests that wait for an answer; None for none."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Any = None
        self.awaiting_sync: Any = None
        self.is_new = False  # has not completed a join, and sends no heartbeats yet

    @property
    def needs_no_heartbeat(self) -> bool:
        """Whether its session does not end now: a member that waits for an answer sends no heartbeats."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """What it sent for a protocol; empty if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def record(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        """It in the group's record, where the group has chosen a protocol."""
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )


class Members:
    """All members by id, in order of arrival. The first leads; when it leaves, the next does."""

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._static: dict[str, str] = {}  # member id by instance id
        self._supported: dict[str, int] = {}  # how many members support a protocol
        self.leader: str | None = None
        self.awaiting_join = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._by_id.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def static_id(self, group_instance_id: str) -> str | None:
        """The present member id of a static member."""
        return self._static.get(group_instance_id)

    def add(self, member: Member) -> None:
        assert member.member_id not in self._by_id
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self._static
            self._static[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._by_id[member.member_id] = member
        self._count(member.protocols, 1)
        self.awaiting_join += member.awaiting_join is not None

    def remove(self, member_id: str) -> Member | None:
        member = self._by_id.pop(member_id, None)
        if member is None:
            return None
        self._count(member.protocols, -1)
        self.awaiting_join -= member.awaiting_join is not None
        if member.group_instance_id is not None:
            self._static.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self._by_id), None)
        return member

    def rename(self, old_id: str, new_id: str) -> Member:
        """Give a static member a new member id, as its process was restarted; gives the member, without its tokens."""
        was_leader = self.leader == old_id
        order = list(self._by_id)
        old = self.remove(old_id)
        assert old is not None
        member = Member(
            new_id,
            old.group_instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        self.add(member)
        self._by_id = {each: self._by_id[each] for each in (new_id if name == old_id else name for name in order)}
        if was_leader:
            self.leader = new_id
        return member

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        if protocols != member.protocols:
            self._count(member.protocols, -1)
            member.protocols = protocols
            self._count(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def await_join(self, member: Member, token: Any) -> Any:
        """Set the token to answer when the join phase ends; gives the one that was set. None: no token."""
        before, member.awaiting_join = member.awaiting_join, token
        self.awaiting_join += (token is not None) - (before is not None)
        return before

    def elect_joined(self) -> bool:
        """Make the leader one of those who joined, if it is not; False when nobody has joined."""
        leader = None if self.leader is None else self._by_id[self.leader]
        if leader is None:
            return False
        if leader.awaiting_join is None:
            joined = next((each for each in self._by_id.values() if each.awaiting_join is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self._by_id.values()), default=0)

    def share(self, names: Sequence[str]) -> bool:
        """Whether all members support one of the protocols."""
        return any(self._supported.get(name, 0) == len(self._by_id) for name in names)

    def select_protocol(self) -> str:
        """Of the protocols that all support, the one preferred by most; among equals the first in Java's order."""
        common = {name for name, count in self._supported.items() if count == len(self._by_id)}
        if len(common) == 1:
            return common.pop()
        votes: dict[str, int] = {}
        for member in self._by_id.values():
            choice = next(name for name, _ in member.protocols if name in common)
            votes[choice] = votes.get(choice, 0) + 1
        return max(java_order(votes), key=lambda name: votes[name])

    def _count(self, protocols: Protocols, step: int) -> None:
        for name in dict.fromkeys(name for name, _ in protocols):
            count = self._supported.get(name, 0) + step
            if count:
                self._supported[name] = count
            else:
                self._supported.pop(name, None)
