"""JoinGroup (11), SyncGroup (14), Heartbeat (12), LeaveGroup (13) and ConsumerGroupHeartbeat (68) in one group: the way
from the classic protocol to that of KIP-848 and back, while members read on.
"""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import consumer_group_describe, describe_groups, join_group, sync_group
from isthmus.protocol.messages.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    encode_assignment,
    encode_subscription,
)

from ..consumers import LEAVE, ONE, TWO, Consumers
from ..crew import COMPLETING, EMPTY, FOLLOWER, LEADER, PREPARING, STABLE, STATIC, Crew
from ..peer import Case, Scenarios
from ..wire import plain

SCENARIOS = Scenarios()


class MixedCrew(Crew):
    """Classic consumers whose subscriptions and assignments are those of real ones, so that a group can be upgraded.

    The leader gives each member one partition, in the order in which they came.
    """

    def protocols(self, name: str, *protocols: str, topics: tuple[str, ...] = ()) -> list[Any]:
        subscription = Subscription(
            topics=list(topics or (self.topic,)),
            owned_partitions=self.share(name),
            generation_id=self[name].generation,
        )
        metadata = encode_subscription(subscription)
        return [join_group.JoinGroupRequestProtocol(name=each, metadata=metadata) for each in protocols or ("range",)]

    def share(self, name: str) -> list[TopicPartition]:
        members = [each.name for each in self.members.values() if each.generation >= 0]
        return [TopicPartition(topic=self.topic, partitions=[members.index(name)])] if name in members else []

    def sync_request(self, name: str, **fields: Any) -> sync_group.Request:
        shares = [
            sync_group.SyncGroupRequestAssignment(
                member_id=each.member_id,
                assignment=encode_assignment(Assignment(assigned_partitions=self.share(each.name))),
            )
            for each in self.members.values()
            if each.generation >= 0
        ]
        return super().sync_request(name, **{"assignments": shares if name == LEADER else [], **fields})

    def beat(self, name: str) -> None:
        self.ask(name, self.heartbeat_request(name))

    def in_newest(self, name: str, request: Any) -> Any:
        """Ask in the newest version, and keep the answer."""
        self[name].connection.send(request, type(request).API.max_version)
        self[name].sent.append(None)
        answer = self.take(name)
        self.case.answers.append({type(request).API.name: self._named(plain(answer, type(request).API.max_version))})
        return answer

    def see_consumers(self, group: Consumers) -> None:
        """Keep what ConsumerGroupDescribe says, and what DescribeGroups does."""
        answer = plain(self.case.prepare(group.describe_request()), consumer_group_describe.API.max_version)
        named = group.in_order(self._named(group.in_order(answer)))
        self.case.answers.append({consumer_group_describe.API.name: named})
        self.see()
        self.case.answers[-1] = {describe_groups.API.name: self.case.answers[-1]}


def classic(case: Case, *names: str) -> tuple[MixedCrew, Consumers]:
    """A classic group with these members, which is stable, and its consumers to come."""
    group = Consumers(case)
    case.group_logs.clear()  # classic members have ids made at random
    crew = MixedCrew(case)
    if names:
        crew.gather(*names)
        crew.assign()
    return crew, group


# --- Upgrades -------------------------------------------------------------------------------------------------------


@SCENARIOS.success(68)
def a_consumer_joins_a_stable_classic_group(case: Case) -> None:
    crew, group = classic(case, LEADER, FOLLOWER)
    with crew:
        group.ask(ONE, group.join_request(ONE))
        crew.see_consumers(group)
        group.ask(ONE)
        crew.see_consumers(group)


@SCENARIOS.success(68)
def a_consumer_joins_an_empty_classic_group(case: Case) -> None:
    crew, group = classic(case)
    with crew:
        crew.bring(EMPTY)
        group.ask(ONE, group.join_request(ONE))
        crew.see_consumers(group)


@SCENARIOS.error(68, ends=True, each=(PREPARING, COMPLETING))
def a_consumer_joins_a_classic_group_that_is_not_stable(case: Case, state: str) -> None:
    crew, group = classic(case)
    with crew:
        crew.bring(state)
        case.compare(group.join_request(ONE), only=without_shares)
        case.see(group.describe_request(), only=without_shares)


def without_shares(answer: Any) -> Any:
    """Who is given what goes by the members' ids, and those of classic members are made at random."""
    if "assignment" in answer:
        return {**answer, "assignment": answer["assignment"] is not None}
    return {**answer, "groups": [{**row, "members": len(row["members"])} for row in answer["groups"]]}


@SCENARIOS.error(68)
def a_consumer_joins_a_group_that_is_none_of_consumers(case: Case) -> None:
    group = Consumers(case)
    case.group_logs.clear()
    with MixedCrew(case) as crew:
        for _ in range(2):
            crew.in_newest(LEADER, crew.join_request(LEADER, protocol_type="connect"))
        group.ask(ONE, group.join_request(ONE))


@SCENARIOS.error(68)
def a_consumer_joins_a_classic_group_with_assignments_of_its_own_kind(case: Case) -> None:
    """What the members were given is not what consumers give each other."""
    group = Consumers(case)
    case.group_logs.clear()
    with Crew(case).bring(STABLE) as crew:
        group.ask(ONE, group.join_request(ONE))
        crew.see()


@SCENARIOS.error(68)
def heartbeats_of_consumers_in_a_classic_group(case: Case) -> None:
    crew, group = classic(case, LEADER)
    with crew:
        for epoch in (1, LEAVE):
            group.ask(ONE, group.beat_request(ONE, member_epoch=epoch))
        crew.see_consumers(group)


@SCENARIOS.success(12, ends=True)
def classic_members_beat_in_a_mixed_group(case: Case) -> None:
    crew, group = classic(case, LEADER, FOLLOWER)
    with crew:
        crew.beat(FOLLOWER)
        group.join(ONE)
        crew.beat(FOLLOWER)
        crew.beat(LEADER)
        crew.ask(LEADER, crew.heartbeat_request(LEADER, generation_id=crew[LEADER].generation + 7))
        crew.ask("nobody", crew.heartbeat_request("nobody", member_id="nobody", generation_id=1))
        crew.see_consumers(group)


@SCENARIOS.success(11, since=4, ends=True)
def classic_members_join_a_mixed_group_again(case: Case) -> None:
    crew, group = classic(case, LEADER, FOLLOWER)
    with crew:
        group.join(ONE)
        for name in (LEADER, FOLLOWER):
            crew.ask(name, crew.join_request(name))
            crew.in_newest(name, crew.sync_request(name))
            crew.in_newest(name, crew.heartbeat_request(name))
        group.beat(ONE)
        crew.see_consumers(group)


@SCENARIOS.success(14, ends=True)
def classic_members_are_told_what_the_broker_assigns(case: Case) -> None:
    crew, group = classic(case, LEADER, FOLLOWER)
    with crew:
        group.join(ONE)
        crew.ask(LEADER, crew.sync_request(LEADER))  # before it joins again
        for name in (LEADER, FOLLOWER):
            crew.in_newest(name, crew.join_request(name))
            crew.ask(name, crew.sync_request(name))
            crew.ask(name, crew.sync_request(name))
        crew.ask(LEADER, crew.sync_request(LEADER, generation_id=crew[LEADER].generation + 1))
        if case.version >= 5:
            crew.ask(LEADER, crew.sync_request(LEADER, protocol_name="sticky"))
            crew.ask(LEADER, crew.sync_request(LEADER, protocol_type="connect"))
        crew.see_consumers(group)


@SCENARIOS.success(11, since=4, ends=True)
def a_classic_consumer_joins_a_consumer_group(case: Case) -> None:
    crew, group = classic(case)
    with crew:
        group.join(ONE)
        group.join(TWO)
        group.settle()
        crew.ask(LEADER, crew.join_request(LEADER))
        crew.ask(LEADER, crew.join_request(LEADER))
        crew.see_consumers(group)
        for name in (ONE, TWO):
            group.beat(name)
            group.beat(name, group.owned_request(name))
        crew.in_newest(LEADER, crew.sync_request(LEADER))
        crew.in_newest(LEADER, crew.heartbeat_request(LEADER))
        crew.see_consumers(group)


@SCENARIOS.error(11, ends=True)
def joins_a_consumer_group_with_what_is_refused(case: Case) -> None:
    crew, group = classic(case)
    with crew:
        group.join(ONE)
        wrong: list[dict[str, Any]] = [
            {"protocol_type": "connect"},
            {"protocols": []},
            {"protocol_type": ""},
            {"member_id": "nobody"},
            {"member_id": ONE},
            {"session_timeout_ms": 1},
        ]
        for fields in wrong:
            crew.ask(LEADER, crew.join_request(LEADER, **fields))
        broken = [join_group.JoinGroupRequestProtocol(name="range", metadata=b"\0")]
        crew.ask(LEADER, crew.join_request(LEADER, protocols=broken))
        crew.see_consumers(group)


@SCENARIOS.success(68)
def a_static_member_changes_to_the_new_protocol(case: Case) -> None:
    crew, group = classic(case, LEADER, STATIC, FOLLOWER)  # all partitions are assigned
    with crew:
        group.ask(STATIC, group.join_request(STATIC))
        crew.see_consumers(group)
        crew.in_newest(STATIC, crew.heartbeat_request(STATIC))


@SCENARIOS.success(11, since=5, ends=True)
def a_static_member_changes_back_to_the_classic_protocol(case: Case) -> None:
    crew, group = classic(case)
    with crew:
        group.join(ONE)
        group.join(STATIC)
        group.settle()
        group.beat(STATIC, group.beat_request(STATIC, member_epoch=-2))
        crew.ask(STATIC, crew.join_request(STATIC))
        crew.see_consumers(group)


# --- Downgrades -----------------------------------------------------------------------------------------------------


@SCENARIOS.success(68)
def the_last_consumer_leaves_a_mixed_group(case: Case) -> None:
    """It is a classic one again."""
    crew, group = classic(case, LEADER, FOLLOWER)
    with crew:
        group.join(ONE)
        group.ask(ONE, group.beat_request(ONE, member_epoch=LEAVE))
        crew.see_consumers(group)
        crew.in_newest(FOLLOWER, crew.heartbeat_request(FOLLOWER))


@SCENARIOS.success(13, ends=True)
def classic_members_leave_a_mixed_group(case: Case) -> None:
    crew, group = classic(case, LEADER, FOLLOWER)
    with crew:
        group.join(ONE)
        for name in (FOLLOWER, LEADER):
            crew.ask(name, crew.leave_request(name, version=case.version))
            crew.see_consumers(group)


@SCENARIOS.success(8, since=1, ends=True)
def classic_members_commit_in_a_mixed_group(case: Case) -> None:
    crew, group = classic(case, LEADER, FOLLOWER)
    topic_id = case.id_of(case.name)
    with crew:
        group.join(ONE)
        members: list[dict[str, Any]] = [{}, {"generation_id_or_member_epoch": 77}, {"member_id": "nobody"}]
        for fields in members:
            crew.ask(LEADER, crew.commit_request(LEADER, topic_id, 40, **fields))


@SCENARIOS.error(69)
def describes_a_group_before_and_after_its_upgrade(case: Case) -> None:
    crew, group = classic(case, LEADER, FOLLOWER)
    with crew:
        case.compare(group.describe_request())
        group.join(ONE)
        crew.see_consumers(group)
