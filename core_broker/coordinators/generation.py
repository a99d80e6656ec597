"""The present generation of a classic group: its number, its protocol, and what its members subscribed to.

Also what is made from these: answers to JoinGroup and SyncGroup, and the group's record. `group.py` decides when a
generation ends and the next begins.
"""

from __future__ import annotations

from ...protocol.errors import DecodeError
from ...protocol.messages import consumer_protocol
from ...protocol.messages import join_group as jg
from ...protocol.messages import sync_group as sg
from ...protocol.messages.group_records import GroupMetadataValue
from .members import NOBODY, Member, Members

CONSUMER = "consumer"  # the protocol type of consumers, whose subscriptions can be decoded


class Generation:
    """`members` are the group's, and change while the generation lasts; `protocol_name` and the subscriptions do not.

    number: of the generation; 0 before the first. protocol_type: set by the group when its first member joins; None
    before. protocol_name: None in a generation without members.
    """

    def __init__(self, members: Members) -> None:
        self.number = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self._members = members
        self._subscriptions: list[bytes] | None = None  # None before the first generation

    def begin_next(self) -> None:
        """Begin the next generation, of the present members."""
        self.number += 1
        self.protocol_name = self._members.select_protocol() if len(self._members) else None
        self._remember_subscriptions()

    def load(self, value: GroupMetadataValue) -> None:
        """Take number and protocol from the group's record; its members have been added before."""
        self.number = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self._remember_subscriptions()

    def record(self, state_since_ms: int, assignments: dict[str, bytes] | None = None) -> GroupMetadataValue:
        """The group's record. assignments: by member id, in place of those that the members have now."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.number,
            protocol=self.protocol_name,
            leader=self._members.leader,
            current_state_timestamp=state_since_ms,
            members=[
                member.record(
                    self.protocol_name,
                    member.assignment if assignments is None else assignments.get(member.member_id, b""),
                )
                for member in self._members
            ],
        )

    # --- Answers ------------------------------------------------------------------------------------------------------

    def join_response(self, member_id: str, with_members: bool, leader: str | None = None) -> jg.Response:
        """The answer to a join that is part of this generation. leader: in place of the present one."""
        return jg.Response(
            member_id=member_id,
            generation_id=self.number,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader or self._members.leader or NOBODY,
            members=self._joined_members() if with_members else [],
        )

    def _joined_members(self) -> list[jg.JoinGroupResponseMember]:
        return [
            jg.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self._members
        ]

    def sync_response(self, member: Member) -> sg.Response:
        """The answer to a sync: the member's assignment."""
        return sg.Response(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )

    def contradicts(self, protocol_type: str | None, protocol_name: str | None) -> bool:
        """Whether a request names another protocol than this generation's. None on either side contradicts nothing."""
        pairs = ((protocol_type, self.protocol_type), (protocol_name, self.protocol_name))
        return any(named is not None and own is not None and named != own for named, own in pairs)

    # --- Subscriptions ------------------------------------------------------------------------------------------------

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == CONSUMER

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads the topic. True for every topic where the consumers' subscriptions are unknown."""
        topics = self.subscribed_topics()
        return self.is_of_consumers if topics is None else topic in topics

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members of this generation read; None where that is unknown."""
        if not self.is_of_consumers or self._subscriptions is None:
            return None
        topics: set[str] = set()
        for subscription in self._subscriptions:
            try:
                topics.update(consumer_protocol.decode_topics(subscription))
            except DecodeError:
                return None
        return frozenset(topics)

    def _remember_subscriptions(self) -> None:
        self._subscriptions = [member.metadata(self.protocol_name) for member in self._members]
