"""ConsumerGroupDescribe (69), and what the APIs of classic groups tell of consumer groups and do to them."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import (
    delete_groups,
    describe_groups,
    heartbeat,
    leave_group,
    list_groups,
    offset_delete,
    sync_group,
)

from ..consumers import EMPTY, GROUP, LATE, ONE, STABLE, STATES, STATIC, TWO, Consumers, options_request
from ..crew import Crew
from ..peer import Case, Scenarios
from ..requests import DELETE, SET, configs_request
from . import offset_commit as commit
from .offset_fetch import committed

SCENARIOS = Scenarios()


# --- ConsumerGroupDescribe ------------------------------------------------------------------------------------------


@SCENARIOS.success(69, each=STATES)
def describes_a_consumer_group_in_each_state(case: Case, state: str) -> None:
    group = Consumers(case).bring(state)
    case.compare(group.describe_request(), only=group.in_order)


@SCENARIOS.success(69)
def describes_several_consumer_groups(case: Case) -> None:
    group = Consumers(case).bring(STABLE)
    other = Consumers(case, case.name + "-other")
    other.join(ONE, rack_id="r1", server_assignor="range")
    unknown = case.name + "-unknown"
    case.compare(group.describe_request(other.group, unknown, group.group), only=by_group(group))
    case.compare(group.describe_request("", group.group), only=by_group(group))
    case.compare(type(group.describe_request())(group_ids=[]))


@SCENARIOS.success(69)
def consumer_groups_named_twice(case: Case) -> None:
    group = Consumers(case).bring(STABLE)
    case.compare(group.describe_request(group.group, group.group), only=by_group(group))


def by_group(group: Consumers) -> Any:
    """Cuts an answer: groups by id, since Kafka's order is that of the partitions they are kept in."""

    def cut(answer: Any) -> Any:
        rows = sorted(answer["groups"], key=lambda row: str(row["group_id"]))
        return group.in_order({**answer, "groups": rows})

    return cut


@SCENARIOS.success(69)
def what_may_be_done_to_consumer_groups(case: Case) -> None:
    group = Consumers(case).bring(STABLE)
    wanted = group.describe_request(group.group, case.name + "-unknown", include_authorized_operations=True)
    case.compare(wanted, only=by_group(group))


@SCENARIOS.error(69)
def describes_what_is_no_consumer_group(case: Case) -> None:
    with Crew(case, case.name + "-classic").bring(STABLE):
        committed(case, 40)
        group = Consumers(case, case.name + "-fence")
        for name in (case.name, case.name + "-classic", case.name + "-unknown", ""):
            case.compare(group.describe_request(name))


# --- Classic APIs ---------------------------------------------------------------------------------------------------


@SCENARIOS.error(15, each=STATES)
def describes_a_consumer_group_as_a_classic_one(case: Case, state: str) -> None:
    Consumers(case).bring(state)
    case.compare(describe_groups.Request(groups=[case.name]))


@SCENARIOS.success(16)
def lists_consumer_groups(case: Case) -> None:
    for state in STATES:
        Consumers(case, f"{case.name}-{state}").bring(state)
    with Crew(case, case.name + "-classic").bring(STABLE):
        filters: list[dict[str, list[str]]] = [{}]
        if case.version >= 4:
            filters += [
                {"states_filter": [state]} for state in (*STATES, "assigning", "Reconciling ", "No such state")
            ]  # fmt: skip
            filters.append({"states_filter": ["Assigning", "Reconciling"]})
        if case.version >= 5:
            filters += [{"types_filter": types} for types in (["consumer"], ["Consumer", "classic"], ["classic"])]
            filters.append({"types_filter": ["consumer"], "states_filter": ["Stable"]})
            filters.append({"types_filter": ["share"], "states_filter": ["Stable"]})
        for each in filters:
            case.compare(list_groups.Request(**each), only=own_groups(case))


def own_groups(case: Case) -> Any:
    def cut(answer: Any) -> Any:
        rows = [row for row in answer["groups"] if row["group_id"].startswith(case.name)]
        return {**answer, "groups": sorted(rows, key=lambda row: str(row["group_id"]))}

    return cut


@SCENARIOS.error(42, each=STATES)
def deletes_a_consumer_group(case: Case, state: str) -> None:
    group = Consumers(case).bring(state)
    case.compare(delete_groups.Request(groups_names=[case.name]))
    group.see()


@SCENARIOS.success(42, ends=True)
def deletes_a_consumer_group_with_offsets(case: Case) -> None:
    group = Consumers(case)
    group.join(ONE)
    assert case.prepare(group.commit_request(ONE)).topics[0].partitions[0].error_code == 0
    group.leave(ONE)
    case.compare(delete_groups.Request(groups_names=[case.name]))
    group.see()


@SCENARIOS.error(47, each=(STABLE, EMPTY))
def deletes_offsets_of_a_consumer_group(case: Case, state: str) -> None:
    """Those of a topic that members read are kept."""
    other = case.topic("-other")
    topic_id = case.topic(partitions=3)
    committed(case, 40, topic_id=topic_id)
    request = commit.request(case, other, commit.row(0, 41))
    request.topics[0].name = case.name + "-other"
    assert case.prepare(request).topics[0].partitions[0].error_code == 0
    Consumers(case).bring(state)
    topics = [
        offset_delete.OffsetDeleteRequestTopic(
            name=name,
            partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)],
        )
        for name in (case.name, case.name + "-other", case.name + "-unknown")
    ]
    case.compare(offset_delete.Request(group_id=case.name, topics=topics), only=by_name)


def by_name(answer: Any) -> Any:
    return {**answer, "topics": sorted(answer["topics"], key=lambda row: str(row["name"]))}


@SCENARIOS.error(12, ends=True, each=STATES)
def classic_heartbeats_in_a_consumer_group(case: Case, state: str) -> None:
    group = Consumers(case).bring(state)
    for member in (ONE, "nobody", ""):
        case.compare(heartbeat.Request(group_id=case.name, generation_id=group[ONE].epoch, member_id=member))


@SCENARIOS.error(14, ends=True, each=(STABLE, EMPTY))
def classic_syncs_in_a_consumer_group(case: Case, state: str) -> None:
    group = Consumers(case).bring(state)
    for member in (ONE, "nobody"):
        request = sync_group.Request(
            group_id=case.name,
            generation_id=group[ONE].epoch,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
        )
        case.compare(request)


@SCENARIOS.success(13, ends=True, each=(STABLE, EMPTY))
def members_are_removed_from_a_consumer_group(case: Case, state: str) -> None:
    """As an administrator does it, by id or as static members."""
    group = Consumers(case).bring(state)
    if case.version < 3:
        for member in ("nobody", TWO, ONE):
            case.compare(leave_group.Request(group_id=case.name, member_id=member))
    else:
        rows: list[dict[str, Any]] = [
            {"member_id": "nobody"},
            {"member_id": ONE},
            {"member_id": "", "group_instance_id": STATIC},
            {"member_id": "", "group_instance_id": "nobody"},
            {"member_id": TWO, "group_instance_id": STATIC},
        ]
        for some in (rows[:2], rows[2:]):  # of one request Kafka removes them in the order of a hash table
            members = [leave_group.MemberIdentity(reason="out", **fields) for fields in some]
            case.compare(leave_group.Request(group_id=case.name, members=members))
    group.see()


# --- Options --------------------------------------------------------------------------------------------------------


@SCENARIOS.success(32)
def options_of_a_consumer_group(case: Case) -> None:
    group = Consumers(case)
    names = ["consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "consumer.assignment.interval.ms"]
    case.compare(configs_request(case.name, names, GROUP, include_synonyms=True))
    group.set_option("consumer.heartbeat.interval.ms", 6_000)
    case.compare(configs_request(case.name, names, GROUP, include_synonyms=True))
    case.compare(configs_request(case.name + "-unknown", names, GROUP))


@SCENARIOS.error(44)
def options_of_a_consumer_group_that_are_refused(case: Case) -> None:
    Consumers(case)
    for name, value in (
        ("consumer.session.timeout.ms", "1"),
        ("consumer.session.timeout.ms", "60001"),
        ("consumer.session.timeout.ms", "x"),
        ("consumer.heartbeat.interval.ms", "4999"),
        ("consumer.heartbeat.interval.ms", "15001"),
        ("consumer.heartbeat.interval.ms", "-1"),
        ("consumer.assignment.interval.ms", "15001"),
        ("consumer.assignment.interval.ms", "-1"),
        ("no.such.option", "1"),
        ("consumer.session.timeout.ms", "50000"),
    ):
        case.compare(options_request(case.name, (name, SET, value)))
    case.compare(options_request(case.name, ("consumer.session.timeout.ms", DELETE, None)))
    case.compare(options_request("", ("consumer.session.timeout.ms", SET, "50000")))


@SCENARIOS.success(68)
def heartbeats_come_as_often_as_the_groups_option_says(case: Case) -> None:
    group = Consumers(case)
    group.set_option("consumer.heartbeat.interval.ms", 6_000)
    group.ask(ONE, group.join_request(ONE))
    group.set_option("consumer.heartbeat.interval.ms", 7_000)
    group.ask(ONE)


@SCENARIOS.success(69, ends=True)
def describes_members_of_every_kind(case: Case) -> None:
    group = Consumers(case)
    group.join(LATE, rack_id="r1")
    group.join(STATIC, server_assignor="range")
    group.beat(STATIC, group.beat_request(STATIC, member_epoch=-2))
    case.compare(group.describe_request(), only=group.in_order)
