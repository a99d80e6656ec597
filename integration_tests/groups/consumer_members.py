"""Members of consumer groups (KIP-848) as raw frames on asyncio, who follow their coordinator without delay.

A member gives up and takes what an answer says at once, and says so in its next heartbeat.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import consumer_group_heartbeat as wire

from .members import RETRIABLE, Line

JOIN, LEAVE = 0, -1  # epochs that say so
REBALANCE_MS = 60_000
PUT_OUT = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_numbers = itertools.count()


class ConsumerMember:
    """`epoch` and `partitions`, by topic id, are of the last answer."""

    def __init__(self, line: Line, group: str, topics: Sequence[str]) -> None:
        self.line = line
        self.group = group
        self.topics = list(topics)
        self._begin()

    def _begin(self) -> None:
        self.member_id = f"member-{next(_numbers)}"
        self.epoch = JOIN
        self.partitions: dict[bytes, list[int]] = {}
        self._is_told = False  # whether the coordinator knows what this member has now

    async def beat(self) -> None:
        """One heartbeat; a member that was put out, or not yet in, joins with it."""
        request = wire.Request(group_id=self.group, member_id=self.member_id, member_epoch=self.epoch)
        if self.epoch == JOIN:
            request.subscribed_topic_names = self.topics
            request.rebalance_timeout_ms = REBALANCE_MS
        if self.epoch == JOIN or not self._is_told:
            request.topic_partitions = [
                wire.TopicPartitions(topic_id=topic_id, partitions=held) for topic_id, held in self.partitions.items()
            ]
        answer = await self.line.ask(request)
        if answer.error_code in PUT_OUT:
            self._begin()
        elif answer.error_code not in RETRIABLE:
            self._heard(answer)

    def _heard(self, answer: Any) -> None:
        if answer.error_code:
            code = ErrorCode(answer.error_code).name
            raise AssertionError(f"{self.group}: {self.member_id} was told {code}: {answer.error_message}")
        self.epoch = answer.member_epoch
        self._is_told = answer.assignment is None
        if answer.assignment is not None:
            self.partitions = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}

    async def leave(self) -> None:
        """For good; the next heartbeat is of a new member."""
        request = wire.Request(group_id=self.group, member_id=self.member_id, member_epoch=LEAVE)
        answer = await self.line.ask(request)
        if answer.error_code:
            raise AssertionError(f"{self.group}: {self.member_id} could not leave: {answer.error_message}")
        self._begin()

    @property
    def count(self) -> int:
        """Of its partitions."""
        return sum(map(len, self.partitions.values()))

    async def follow(self, everyone: Sequence[ConsumerMember], partitions: int) -> None:
        """Heartbeats, one after the other, until all members are of one epoch and have all partitions between them."""
        while True:
            await self.beat()
            if self._is_told and agree(everyone, partitions):
                return


def agree(members: Sequence[ConsumerMember], partitions: int) -> bool:
    epochs = {member.epoch for member in members}
    return len(epochs) == 1 and JOIN not in epochs and sum(member.count for member in members) == partitions
