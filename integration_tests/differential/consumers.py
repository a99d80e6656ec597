"""A consumer group (KIP-848) under comparison, with members by name, who choose their own ids: their names.

Each heartbeat is answered at once, so all members ask on the case's connection. The group computes its target
assignment as soon as it changes, unless it is told to wait. What `ask` sends goes in the version under test and is
compared; the rest is preparation.
"""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    incremental_alter_configs,
    offset_commit,
    offset_fetch,
)

from .peer import Case
from .requests import SET, alter_request

GROUP = 32  # kind of resource
REBALANCE_MS = 300_000
JOIN, LEAVE, LEAVE_FOR_NOW = 0, -1, -2  # epochs of heartbeats
EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"
STATES = (EMPTY, ASSIGNING, RECONCILING, STABLE)
ONE, TWO, STATIC, LATE = "one", "two", "static", "late"
AT_ONCE_MS, NEVER_MS = 0, 15_000  # of consumer.assignment.interval.ms
INTERVAL = "consumer.assignment.interval.ms"
TELLS_INSTANCE, FETCHES_GROUPS = 7, 8  # versions of OffsetCommit and OffsetFetch
CHOOSES_ID = 1  # the version of heartbeats from which on members choose their ids, and may subscribe by a pattern


class Consumer:
    """A member: its epoch, and the partitions that it has by topic id; `instance` makes it a static one."""

    def __init__(self, name: str, instance: str | None) -> None:
        self.member_id = name
        self.instance = instance
        self.epoch = JOIN
        self.owned: dict[bytes, list[int]] = {}

    def take(self, answer: consumer_group_heartbeat.Response | None) -> None:
        """Go on with what an answer says, if it is no error."""
        if answer is None or answer.error_code:
            return
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {each.topic_id: sorted(each.partitions) for each in answer.assignment.topic_partitions}

    def owns(self) -> list[consumer_group_heartbeat.TopicPartitions]:
        return [
            consumer_group_heartbeat.TopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in self.owned.items()
        ]


class Consumers:
    """The group of a case. All read the case's topic, of three partitions, unless they say otherwise.

    Topics that are there before the group are known to its coordinator once this is made.
    """

    def __init__(self, case: Case, group: str = "", *, partitions: int = 3, interval_ms: int = AT_ONCE_MS) -> None:
        self.case = case
        self.group = group or case.name
        self.members: dict[str, Consumer] = {}
        if case.name not in case.topics:
            case.topic(partitions=partitions)
        case.coordinator(self.group)
        case.group_logs[self.group] = None
        self._fences = 0
        self.set_option(INTERVAL, interval_ms)

    def __getitem__(self, name: str) -> Consumer:
        if name not in self.members:
            self.members[name] = Consumer(name, name if name.startswith(STATIC) else None)
        return self.members[name]

    def set_option(self, name: str, value: int) -> None:
        """An option of the group, once the coordinator goes by it.

        Stock Kafka tells of an option a moment before it goes by it, but takes one change of metadata after another.
        """
        self._fences += 1
        for group, option, number in ((self.group, name, value), (f"{self.group}-fence", INTERVAL, self._fences)):
            [answer] = self.case.prepare(alter_request(group, (option, SET, str(number)), kind=GROUP)).responses
            assert answer.error_code == 0, answer
            self.case.await_options(group, GROUP, **{option: str(number)})

    # --- What is compared ---------------------------------------------------------------------------------------------

    def ask(self, name: str, request: consumer_group_heartbeat.Request | None = None) -> Any:
        """A heartbeat that tells nothing new, unless there is another request."""
        answer = self.case.compare(self.beat_request(name) if request is None else request, only=self.in_order)
        self[name].take(answer)
        return answer

    def see(self) -> None:
        """Keep what ConsumerGroupDescribe says of the group now, in its newest version."""
        self.case.see(self.describe_request(), only=self.in_order)

    def in_order(self, value: Any) -> Any:
        """An answer with members by id, topics by name and partitions by number: Kafka's orders are of hash tables."""
        if isinstance(value, dict):
            return {key: self.in_order(each) for key, each in value.items()}
        if not isinstance(value, list):
            return value
        rows = [self.in_order(each) for each in value]
        if all(isinstance(row, int) for row in rows) or all(isinstance(row, str) for row in rows):
            return sorted(rows)
        if rows and isinstance(rows[0], dict):
            names = self.case.peer.topic_ids
            return sorted(rows, key=lambda row: str(row.get("member_id") or names.get(row.get("topic_id"), "")))
        return rows

    # --- Preparation --------------------------------------------------------------------------------------------------

    def beat(self, name: str, request: consumer_group_heartbeat.Request | None = None) -> Any:
        answer = self.case.prepare(self.beat_request(name) if request is None else request)
        assert answer.error_code == 0, answer
        self[name].take(answer)
        return answer

    def join(self, name: str, **fields: Any) -> None:
        self.beat(name, self.join_request(name, **fields))

    def settle(self) -> None:
        """Let all members give up and take partitions until the group is stable."""

        def stable() -> bool:
            for name in self.members:
                self.beat(name, self.beat_request(name, topic_partitions=self[name].owns()))
            return self.state() == STABLE

        self.case.wait_until(stable, f"{self.group} is stable")

    def leave(self, name: str) -> None:
        self.beat(name, self.beat_request(name, member_epoch=LEAVE))
        del self.members[name]

    def state(self) -> str:
        return str(self.case.prepare(self.describe_request()).groups[0].group_state)

    def bring(self, state: str) -> Consumers:
        """The group in a state, with two members and a static one but where it is empty.

        In RECONCILING and ASSIGNING a fourth member has come, whose partitions others have, or nobody knows yet.
        """
        if state == EMPTY:
            self.join(ONE)
            self.leave(ONE)
        else:
            for name in (ONE, TWO, STATIC):
                self.join(name)
            self.settle()
        if state in (ASSIGNING, RECONCILING):
            if state == ASSIGNING:
                self.set_option(INTERVAL, NEVER_MS)
            self.join(LATE)
        assert self.state() == state, self.state()
        return self

    # --- Requests -----------------------------------------------------------------------------------------------------

    def beat_request(self, name: str, **fields: Any) -> consumer_group_heartbeat.Request:
        """That nothing has changed."""
        member = self[name]
        settings = {
            "group_id": self.group,
            "member_id": member.member_id,
            "member_epoch": member.epoch,
            "instance_id": member.instance,
            "topic_partitions": None,
        }
        return consumer_group_heartbeat.Request(**{**settings, **fields})

    def join_request(self, name: str, **fields: Any) -> consumer_group_heartbeat.Request:
        """All that there is to tell, as it is told at first."""
        settings = {
            "member_epoch": JOIN,
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": [self.case.name],
            "topic_partitions": [],
        }
        return self.beat_request(name, **{**settings, **fields})

    def owned_request(self, name: str, *partitions: int, **fields: Any) -> consumer_group_heartbeat.Request:
        """That the member has these partitions of the case's topic, or all that it was given."""
        owned = self[name].owns()
        if partitions:
            topic_id = self.case.id_of(self.case.name)
            owned = [consumer_group_heartbeat.TopicPartitions(topic_id=topic_id, partitions=list(partitions))]
        return self.beat_request(name, **{"topic_partitions": owned, **fields})

    def describe_request(self, *groups: str, **fields: Any) -> consumer_group_describe.Request:
        return consumer_group_describe.Request(group_ids=list(groups or (self.group,)), **fields)

    def commit_request(self, name: str, offset: int = 42, **fields: Any) -> offset_commit.Request:
        member = self[name]
        row = offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=0, committed_metadata="note"
        )
        topic = offset_commit.OffsetCommitRequestTopic(
            name=self.case.name, topic_id=self.case.id_of(self.case.name), partitions=[row]
        )
        settings: dict[str, Any] = {
            "group_id": self.group,
            "topics": [topic],
            "generation_id_or_member_epoch": member.epoch,
            "member_id": member.member_id,
            "group_instance_id": member.instance if self.case.version >= TELLS_INSTANCE else None,
        }
        return offset_commit.Request(**{**settings, **fields})

    def fetch_request(self, name: str, **fields: Any) -> offset_fetch.Request:
        """All offsets of the group, for a member; before version 8 some, for anybody."""
        member = self[name]
        settings: dict[str, Any] = {
            "group_id": self.group,
            "member_id": member.member_id,
            "member_epoch": member.epoch,
            "topics": None,
        }
        if self.case.version < FETCHES_GROUPS:
            topic = offset_fetch.OffsetFetchRequestTopic(name=self.case.name, partition_indexes=[0, 1])
            return offset_fetch.Request(group_id=self.group, topics=[topic])
        return offset_fetch.Request(groups=[offset_fetch.OffsetFetchRequestGroup(**{**settings, **fields})])


def options_request(group: str, *rows: tuple[str, int, str | None]) -> incremental_alter_configs.Request:
    return alter_request(group, *rows, kind=GROUP)
