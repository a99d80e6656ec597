"""A group of several members under comparison: each on its own connection, so that one waits while others go on.

Answers name members instead of their ids, which are made at random, and list them in one order: Kafka's is that of a
hash table. What is sent by `send` and `ask` goes in the version under test and is compared; the rest is preparation.
"""

from __future__ import annotations

from typing import Any, Self

from isthmus.protocol.messages import (
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    sync_group,
)
from isthmus.protocol.messages.consumer_protocol import Subscription, encode_subscription
from isthmus.protocol.schema import Struct

from .peer import CLOSED, Case
from .wire import Connection, plain

MEMBER_ID_REQUIRED = 79
SESSION_MS = 30_000
LEADER, FOLLOWER, STATIC, NEWCOMER = "leader", "follower", "static", "newcomer"
EMPTY, PREPARING, COMPLETING, STABLE, DEAD = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"


class Member:
    """One consumer's process: its connection, and who it is in the group."""

    def __init__(self, name: str, address: str, instance: str | None) -> None:
        self.name = name
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.connection = Connection(address)
        self.sent: list[int | None] = []  # versions; None for what is not compared


class Crew:
    """The group of a case, with members by name; STATIC is a static member."""

    def __init__(self, case: Case, group: str | None = None) -> None:
        self.case = case
        self.group = case.name if group is None else group
        self.topic = case.name  # what all members read
        self.members: dict[str, Member] = {}
        self.names: dict[str, str] = {}  # of all member ids that there were
        case.coordinator(self.group)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members.values():
            member.connection.close()

    def __getitem__(self, name: str) -> Member:
        if name not in self.members:
            instance = name if name.startswith(STATIC) else None
            self.members[name] = Member(name, self.case.peer.address, instance)
        return self.members[name]

    # --- What is compared ---------------------------------------------------------------------------------------------

    def send(self, name: str, request: Struct) -> None:
        self[name].connection.send(request, self.case.version)
        self[name].sent.append(self.case.version)

    def take(self, name: str) -> Any:
        """The answer to what was sent first and not taken yet; None when the connection was closed instead."""
        member = self[name]
        version = member.sent.pop(0)
        try:
            answer = member.connection.receive()
        except ConnectionError:
            assert version is not None
            self.case.answers.append(CLOSED)
            return None
        if isinstance(answer, join_group.Response):
            self._joined(member, answer)
        if version is not None:
            self.case.answers.append(self._named(plain(answer, version)))
        return answer

    def ask(self, name: str, request: Struct) -> Any:
        self.send(name, request)
        return self.take(name)

    def see(self) -> None:
        """Keep what DescribeGroups says of the group now, in its newest version."""
        answer = self.case.prepare(describe_groups.Request(groups=[self.group]))
        self.case.answers.append(self._named(plain(answer, describe_groups.API.max_version)))

    def _named(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._named(each) for key, each in value.items()}
        if isinstance(value, list):
            rows = [self._named(each) for each in value]
            has_ids = bool(rows) and isinstance(rows[0], dict) and "member_id" in rows[0]
            return sorted(rows, key=lambda row: str(row["member_id"])) if has_ids else rows
        return f"<{self.names[value]}>" if isinstance(value, str) and value in self.names else value

    def _joined(self, member: Member, answer: join_group.Response) -> None:
        if answer.member_id and answer.member_id != member.member_id:
            again = "".join(" again" for known in self.names.values() if known.split(" again")[0] == member.name)
            self.names[answer.member_id] = member.name + again
        if answer.error_code in (0, MEMBER_ID_REQUIRED):
            member.member_id, member.generation = answer.member_id, answer.generation_id

    # --- Preparation --------------------------------------------------------------------------------------------------

    def bring(self, state: str) -> Crew:
        """The group in a state, with a leader, a follower and a static member but where it is empty."""
        if state == EMPTY:
            self.gather(LEADER)
            self.case.prepare(self.leave_request(LEADER))
            self.await_group(EMPTY, 0)
            return self
        self.gather(LEADER, FOLLOWER, STATIC)
        if state != COMPLETING:
            self.assign()
        if state == PREPARING:
            self.enter(NEWCOMER)
            self.await_group(PREPARING, 4)
        return self

    def gather(self, first: str, *others: str) -> None:
        """All in one generation; the first leads; nobody has asked for its assignment yet."""
        self.enter(first)
        self.take(first)
        for count, name in enumerate(others, 2):
            self.enter(name)
            self.await_group(PREPARING, count)
        if others:
            self.enter(first)
            for name in (first, *others):
                assert self.take(name).error_code == 0

    def enter(self, name: str) -> None:
        """Join, without waiting for the answer."""
        member = self[name]
        if not member.member_id and member.instance is None:
            answer = self.case.prepare(self.join_request(name))
            assert answer.error_code == MEMBER_ID_REQUIRED, answer
            self._joined(member, answer)
        self._prepare(name, self.join_request(name))

    def assign(self, *missing: str) -> None:
        """Everyone but `missing` asks for its assignment and is given one; the leader sees to all."""
        names = [name for name, member in self.members.items() if member.generation >= 0 and name not in missing]
        for name in sorted(names, key=LEADER.__eq__):  # the leader comes last
            self._prepare(name, self.sync_request(name))
        for name in names:
            assert self.take(name).error_code == 0

    def _prepare(self, name: str, request: Struct) -> None:
        self[name].connection.send(request, type(request).API.max_version)
        self[name].sent.append(None)

    def await_group(self, state: str, members: int | None = None) -> None:
        """Wait until the group is in a state, and has so many members."""
        request = describe_groups.Request(groups=[self.group])

        def there() -> bool:
            [group] = self.case.prepare(request).groups
            return group.group_state == state and members in (None, len(group.members))

        self.case.wait_until(there, f"{self.group} {state} with {members} members")

    # --- Requests -----------------------------------------------------------------------------------------------------

    def join_request(self, name: str, **fields: Any) -> join_group.Request:
        member = self[name]
        settings = {
            "group_id": self.group,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": SESSION_MS,
            "member_id": member.member_id,
            "group_instance_id": member.instance,
            "protocol_type": "consumer",
            "protocols": self.protocols(name),
        }
        return join_group.Request(**{**settings, **fields})

    def protocols(self, name: str, *protocols: str, topics: tuple[str, ...] = ()) -> list:
        """The member's subscription, the same under each protocol."""
        read = Subscription(topics=list(topics or (self.topic,)), user_data=name.encode())
        metadata = encode_subscription(read, 0)
        return [
            join_group.JoinGroupRequestProtocol(name=each, metadata=metadata)
            for each in protocols or ("range", "sticky")
        ]

    def sync_request(self, name: str, **fields: Any) -> sync_group.Request:
        member = self[name]
        shares = [
            sync_group.SyncGroupRequestAssignment(member_id=each.member_id, assignment=f"for {each.name}".encode())
            for each in self.members.values()
            if each.generation >= 0
        ]
        settings = {
            "group_id": self.group,
            "generation_id": member.generation,
            "member_id": member.member_id,
            "group_instance_id": member.instance,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": shares if name == LEADER else [],
        }
        return sync_group.Request(**{**settings, **fields})

    def heartbeat_request(self, name: str, **fields: Any) -> heartbeat.Request:
        member = self[name]
        settings = {
            "group_id": self.group,
            "generation_id": member.generation,
            "member_id": member.member_id,
            "group_instance_id": member.instance,
        }
        return heartbeat.Request(**{**settings, **fields})

    def leave_request(self, *names: str, version: int | None = None) -> leave_group.Request:
        """Of all of them; before version 3 of the one."""
        members = [self[name] for name in names]
        if version is not None and version < 3:
            return leave_group.Request(group_id=self.group, member_id=members[0].member_id)
        rows = [
            leave_group.MemberIdentity(member_id=each.member_id, group_instance_id=each.instance, reason="done")
            for each in members
        ]
        return leave_group.Request(group_id=self.group, members=rows)

    def commit_request(self, name: str | None, topic_id: bytes, offset: int = 42, **fields: Any) -> Struct:
        """By a member, or by nobody."""
        row = offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=0, committed_metadata="note"
        )
        topic = offset_commit.OffsetCommitRequestTopic(name=self.topic, topic_id=topic_id, partitions=[row])
        settings: dict[str, Any] = {"group_id": self.group, "topics": [topic]}
        if name is not None:
            member = self[name]
            settings |= {
                "generation_id_or_member_epoch": member.generation,
                "member_id": member.member_id,
                "group_instance_id": member.instance,
            }
        return offset_commit.Request(**{**settings, **fields})
