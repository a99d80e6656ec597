"""Requests to consumer groups over a real log: what is refused, answers when safe, restarts, timeouts, other kinds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from isthmus.core_broker.cluster.controller import DeleteTopics, UpdateFeatures
from isthmus.core_broker.cluster.controller.incremental_alter_configs import IncrementalAlterConfigs
from isthmus.core_broker.cluster.controller.update_features import Upgrade
from isthmus.core_broker.cluster.topic_names import CONSUMER_OFFSETS
from isthmus.core_broker.coordinators.find import partition_for
from isthmus.core_broker.purgatory import Pending
from isthmus.core_broker.replication.partition import Partition
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.messages import consumer_group_describe as cgd
from isthmus.protocol.messages import consumer_group_heartbeat as chb
from isthmus.protocol.messages import delete_groups as dlg
from isthmus.protocol.messages import describe_groups as dsg
from isthmus.protocol.messages import incremental_alter_configs as iac
from isthmus.protocol.messages import list_groups as lsg
from isthmus.protocol.messages import offset_commit as oc
from isthmus.protocol.messages import offset_fetch as of
from tests.core_broker.coordinators.desk import FSYNC, Desk, delete_request, simulated, txn_request
from tests.running import run_by

VERSION = 1
SESSION_S = 45
AT_ONCE = {"group.consumer.assignment.interval.ms": "0"}


def request(member_id: str, epoch: int, *, group: str = "g", **fields: Any) -> chb.Request:
    return chb.Request(group_id=group, member_id=member_id, member_epoch=epoch, **fields)


def joining(member_id: str, *topics: str, group: str = "g", **fields: Any) -> chb.Request:
    names = list(topics) or None if "subscribed_topic_regex" in fields else list(topics or ("t",))
    fields = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], "subscribed_topic_names": names, **fields}
    return request(member_id, 0, group=group, **fields)


async def beat(desk: Desk, member_id: str, epoch: int, **fields: Any) -> chb.Response:
    response: chb.Response = await desk.ask(request(member_id, epoch, **fields), VERSION)
    return response


async def join(desk: Desk, member_id: str, *topics: str, **fields: Any) -> chb.Response:
    response: chb.Response = await desk.ask(joining(member_id, *topics, **fields), VERSION)
    assert response.error_code == E.NONE, response.error_message
    return response


async def described(desk: Desk, group: str = "g") -> cgd.DescribedGroup:
    return (await desk.ask(cgd.Request(group_ids=[group]), 1)).groups[0]


async def commit(desk: Desk, member_id: str, epoch: int, *, group: str = "g", topic: str = "t") -> E:
    partition = oc.OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    asked = oc.Request(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=[oc.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    return E((await desk.ask(asked, 9)).topics[0].partitions[0].error_code)


# --- What is refused --------------------------------------------------------------------------------------------------

GOOD = {"rebalance_timeout_ms": 1, "topic_partitions": [], "subscribed_topic_names": ["t"]}
TOPIC_ID = bytes(15) + b"\1"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (request("m", 0, group="", **GOOD), "GroupId can't be empty."),
        (request("m", 0, group=" ", **GOOD), "GroupId can't be empty."),
        (request("", 0, **GOOD), "MemberId can't be empty."),
        (request("m", 0, **{**GOOD, "instance_id": ""}), "InstanceId can't be empty."),
        (request("m", 0, **{**GOOD, "rack_id": ""}), "RackId can't be empty."),
        (request("m", 0, **{**GOOD, "rebalance_timeout_ms": -1}), "RebalanceTimeoutMs must be provided"),
        (request("m", 0, **{**GOOD, "topic_partitions": None}), "TopicPartitions must be empty when"),
        (request("m", 0, **{**GOOD, "topic_partitions": [chb.TopicPartitions()]}), "TopicPartitions must be empty"),
        (request("m", 0, **{**GOOD, "subscribed_topic_names": None}), "Either SubscribedTopicNames or"),
        (request("m", -2), "InstanceId can't be null."),
        (request("m", -3), "MemberEpoch is invalid."),
    ],
)
def test_requests_that_are_wrong_whatever_the_group_is(wrong: chb.Request, said: str) -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.ask(wrong, VERSION)
        assert answer.error_code == E.INVALID_REQUEST and said in answer.error_message
        assert answer.member_id is None and answer.assignment is None

    simulated(scenario, AT_ONCE)


@run_by(simulated, options=AT_ONCE)
async def test_requests_that_a_group_refuses(desk: Desk, /) -> None:
    async def code(asked: chb.Request, version: int = VERSION) -> E:
        return E((await desk.ask(asked, version)).error_code)

    assert await code(request("m", 1)) == await code(request("m", -1)) == E.GROUP_ID_NOT_FOUND
    assert await code(joining("m", server_assignor="sticky")) == E.UNSUPPORTED_ASSIGNOR
    assert await code(joining("m", subscribed_topic_regex="[")) == E.INVALID_REGULAR_EXPRESSION
    assert await code(request("", 1), 0) == E.INVALID_REQUEST
    assert (await described(desk)).error_code == E.GROUP_ID_NOT_FOUND  # none of these makes a group
    made = await desk.ask(joining(""), 0)
    assert made.error_code == E.NONE and len(made.member_id) == 22
    assert await code(request("m", 1)) == E.UNKNOWN_MEMBER_ID
    assert await code(request(made.member_id, 9)) == E.FENCED_MEMBER_EPOCH


@run_by(simulated, options=AT_ONCE)
async def test_a_cluster_without_the_feature_has_no_consumer_groups(desk: Desk, /) -> None:
    await join(desk, "m")
    await desk.submit(UpdateFeatures([("group.version", 0, Upgrade.SAFE_DOWN)]))
    assert (await beat(desk, "m", 2)).error_code == E.UNSUPPORTED_VERSION
    assert (await described(desk)).error_code == E.UNSUPPORTED_VERSION


def test_a_broker_that_is_not_to_speak_the_protocol_refuses_it() -> None:
    async def scenario(desk: Desk) -> None:
        assert (await desk.ask(joining("m"), VERSION)).error_code == E.UNSUPPORTED_VERSION

    simulated(scenario, {"group.coordinator.rebalance.protocols": "classic"})


@run_by(simulated, options=AT_ONCE)
async def test_where_another_node_may_be_the_coordinator_nobody_is_told_anything(desk: Desk, /) -> None:
    await join(desk, "m")
    desk.has_session = False
    assert (await beat(desk, "m", 2)).error_code == E.NOT_COORDINATOR
    assert (await beat(desk, "x", 2)).error_code == E.NOT_COORDINATOR
    assert (await described(desk)).error_code == E.NOT_COORDINATOR
    assert await commit(desk, "m", 1) == E.NOT_COORDINATOR
    desk.has_session = True
    assert (await beat(desk, "m", 2)).error_code == E.NONE


# --- Groups that last -------------------------------------------------------------------------------------------------


@run_by(simulated, options=AT_ONCE)
async def test_members_share_a_topic_and_a_new_coordinator_knows_them(desk: Desk, /) -> None:
    topic_id = desk.groups.host.consumer_groups.rules.topics.id_of("t")
    first = await join(desk, "a", rack_id="r", instance_id="s")
    assert [(each.topic_id, each.partitions) for each in first.assignment.topic_partitions] == [(topic_id, [0, 1])]
    await join(desk, "b")
    await desk.restart()
    has = [chb.TopicPartitions(topic_id=topic_id, partitions=[0])]
    assert (await beat(desk, "a", 2, instance_id="s", topic_partitions=has)).member_epoch == 3
    group = await described(desk)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 3, 3)
    assert (await beat(desk, "b", 3)).assignment.topic_partitions[0].partitions == [1]
    group = await described(desk)
    assert (group.group_state, group.assignor_name, group.authorized_operations) == ("Stable", "uniform", -(1 << 31))
    one, other = group.members
    assert (one.member_id, one.instance_id, one.rack_id, one.member_epoch, one.member_type) == ("a", "s", "r", 3, 1)
    assert (one.client_id, one.client_host, one.subscribed_topic_names) == ("c", "/1.2.3.4", ["t"])
    for member, partition in ((one, 0), (other, 1)):
        for assignment in (member.assignment, member.target_assignment):
            [found] = assignment.topic_partitions
            assert (found.topic_id, found.topic_name, found.partitions) == (topic_id, "t", [partition])


@run_by(simulated, options=AT_ONCE)
async def test_sessions_go_on_under_a_new_coordinator(desk: Desk, /) -> None:
    await join(desk, "a")
    await join(desk, "b")
    await desk.restart()
    await desk.sim.sleep(SESSION_S - 1)
    await beat(desk, "b", 3)
    await desk.sim.sleep(2)
    assert [each.member_id for each in (await described(desk)).members] == ["b"]
    assert (await beat(desk, "a", 2)).error_code == E.UNKNOWN_MEMBER_ID
    await desk.sim.sleep(SESSION_S)
    assert (await described(desk)).group_state == "Empty"


@run_by(simulated, options=AT_ONCE)
async def test_a_pattern_is_matched_soon_after_the_heartbeat(desk: Desk, /) -> None:
    await desk.create("t2")
    assert (await join(desk, "a", subscribed_topic_regex="t.*")).member_epoch == 1
    await desk.sim.sleep(0.1)
    answer = await beat(desk, "a", 1)
    assert len(answer.assignment.topic_partitions) == 2
    assert (await described(desk)).members[0].subscribed_topic_regex == "t.*"


@run_by(simulated, options=AT_ONCE)
async def test_a_deleted_topic_is_not_described_any_more(desk: Desk, /) -> None:
    await desk.create("u")
    await join(desk, "a", "t", "u")
    assert await commit(desk, "a", 2, topic="u") == E.NONE
    await desk.submit(DeleteTopics(["u"]))
    [member] = (await described(desk)).members
    assert [each.topic_name for each in member.assignment.topic_partitions] == ["t"]
    assert (await desk.fetched(topic="u"))[0] == -1


# --- Kinds of groups --------------------------------------------------------------------------------------------------


@run_by(simulated, options=AT_ONCE)
async def test_groups_are_listed_by_type_and_state(desk: Desk, /) -> None:
    await join(desk, "a")
    await join(desk, "b", group="left")
    await beat(desk, "b", -1, group="left")
    await desk.member("classic")

    async def listed(types: list[str], states: list[str]) -> list[tuple[str, str, str, str]]:
        answer = await desk.ask(lsg.Request(types_filter=types, states_filter=states), 5)
        return sorted((each.group_id, each.group_type, each.protocol_type, each.group_state) for each in answer.groups)

    consumer, left = ("g", "consumer", "consumer", "Stable"), ("left", "consumer", "consumer", "Empty")
    classic = ("classic", "classic", "consumer", "Stable")
    assert await listed([], []) == [classic, consumer, left]
    assert await listed(["Consumer"], []) == [consumer, left]
    assert await listed(["classic"], []) == await listed([" CLASSIC "], ["stable"]) == [classic]
    assert await listed([], ["Stable"]) == [classic, consumer]
    assert await listed(["share"], []) == []
    assert sum(desk.groups.counts().values()) == 1 and sum(desk.groups.consumer_counts().values()) == 2


@run_by(simulated, options=AT_ONCE)
async def test_each_kind_of_group_is_described_by_its_own_request(desk: Desk, /) -> None:
    await join(desk, "a")
    await desk.member("classic")
    other = await described(desk, "classic")
    assert (other.error_code, other.error_message) == (E.GROUP_ID_NOT_FOUND, "Group classic is not a consumer group.")
    assert (await described(desk, "")).error_code == E.INVALID_GROUP_ID
    [found] = (await desk.ask(dsg.Request(groups=["g"]), 6)).groups
    assert (found.error_code, found.error_message) == (E.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")
    assert found.group_state == "Dead"


@run_by(simulated, options=AT_ONCE)
async def test_offsets_outlive_the_kind_of_a_group_that_nobody_is_in(desk: Desk, /) -> None:
    assert await desk.commit(5) == E.NONE  # the group is a classic one
    await join(desk, "a")
    assert await desk.fetched() == (5, -1, "")
    await desk.restart()
    assert await desk.fetched() == (5, -1, "")
    assert [each.group_type for each in (await desk.ask(lsg.Request(), 5)).groups] == ["consumer"]


@run_by(simulated, options=AT_ONCE)
async def test_a_group_is_deleted_when_nobody_is_in_it(desk: Desk, /) -> None:
    await join(desk, "a")
    await commit(desk, "a", 2)

    async def deleted() -> E:
        return E((await desk.ask(dlg.Request(groups_names=["g"]), 2)).results[0].error_code)

    assert await deleted() == E.NON_EMPTY_GROUP
    await beat(desk, "a", -1)
    assert await deleted() == E.NONE
    assert await deleted() == E.GROUP_ID_NOT_FOUND
    await desk.restart()
    assert (await described(desk)).error_code == E.GROUP_ID_NOT_FOUND
    assert await desk.fetched() == (-1, -1, "")
    assert (await join(desk, "a")).member_epoch == 2


@run_by(simulated, options=AT_ONCE)
async def test_offsets_are_fenced_by_epochs(desk: Desk, /) -> None:
    await join(desk, "a")
    assert await commit(desk, "a", 2) == E.NONE
    assert await commit(desk, "a", 1) == E.STALE_MEMBER_EPOCH
    assert await commit(desk, "x", 2) == E.UNKNOWN_MEMBER_ID

    async def fetched(member: str | None, epoch: int) -> E:
        asked = of.OffsetFetchRequestGroup(group_id="g", member_id=member, member_epoch=epoch)
        return E((await desk.ask(of.Request(groups=[asked]), 9)).groups[0].error_code)

    assert await fetched("a", 2) == await fetched(None, -1) == E.NONE
    assert await fetched("a", 1) == E.STALE_MEMBER_EPOCH


@run_by(simulated, options=AT_ONCE)
async def test_offsets_in_transactions_are_fenced_by_epochs(desk: Desk, /) -> None:
    await join(desk, "a")

    async def committed(version: int, member: str = "a", epoch: int = 2) -> E:
        asked = txn_request(5, member=member, generation=epoch)
        asked.topics[0].topic_id = desk.groups.host.consumer_groups.rules.topics.id_of("t")
        return E((await desk.ask(asked, version)).topics[0].partitions[0].error_code)

    for version, stale in ((5, E.ILLEGAL_GENERATION), (6, E.STALE_MEMBER_EPOCH)):
        assert await committed(version) == E.NONE
        assert await committed(version, "", -1) == E.NONE  # who names no member is not asked for one
        assert await committed(version, "x") == E.UNKNOWN_MEMBER_ID
        for epoch in (-1, 1, 3):
            assert await committed(version, epoch=epoch) == stale
    await desk.end(7)
    assert await desk.fetched() == (5, -1, "")


@run_by(simulated, options=AT_ONCE)
async def test_offsets_of_topics_that_are_read_are_kept(desk: Desk, /) -> None:
    await desk.create("u")
    await join(desk, "a", "t", "u")
    await commit(desk, "a", 2)
    await commit(desk, "a", 2, topic="u")
    await beat(desk, "a", 2, subscribed_topic_names=["t"])
    answer = await desk.ask(delete_request("g", ("t", 0), ("u", 0)), 0)
    codes = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
    assert codes == {"t": E.GROUP_SUBSCRIBED_TO_TOPIC, "u": E.NONE}
    assert (await desk.fetched(topic="u"))[0] == -1 and (await desk.fetched())[0] == 7


def test_offsets_that_nobody_reads_expire_and_an_empty_group_goes_with_its_last() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.create("u")
        await join(desk, "a", "t", "u", instance_id="s")
        await commit(desk, "a", 2)
        await commit(desk, "a", 2, topic="u")
        moved = await beat(desk, "a", 2, instance_id="s", subscribed_topic_names=["t"], topic_partitions=[])
        assert moved.member_epoch == 3
        for _ in range(4):
            await desk.sim.sleep(30)
            await beat(desk, "a", 3, instance_id="s")
        assert (await desk.fetched(topic="u"))[0] == -1 and (await desk.fetched())[0] == 7
        await beat(desk, "a", -1, instance_id="s")
        await desk.sim.sleep(20)
        assert (await described(desk)).error_code == E.GROUP_ID_NOT_FOUND

    simulated(scenario, {**AT_ONCE, "offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "10000"})


# --- Answers when safe ------------------------------------------------------------------------------------------------


def test_a_heartbeat_that_is_written_is_answered_once_it_is_safe() -> None:
    async def scenario(desk: Desk) -> None:
        pending = await desk.start_asking(joining("a"), VERSION)
        assert isinstance(pending, Pending) and not pending.done
        told = await desk.start_asking(cgd.Request(group_ids=["g"]), 1)
        assert isinstance(told, Pending) and not told.done
        await desk.sim.until(lambda: pending.done and told.done, "both are on disk")
        assert pending.answer.member_epoch == 2 and told.answer.groups[0].group_state == "Stable"
        count = len(desk.groups.host._image.topics[CONSUMER_OFFSETS].partitions)
        names = map(str, range(100 * count))
        beside = next(name for name in names if partition_for(name, count) == partition_for("g", count))
        joins = await desk.start_asking(joining("a", group=beside), VERSION)
        assert isinstance(joins, Pending)
        assert not isinstance(await desk.start_asking(request("a", 2), VERSION), Pending), "it waits for nobody"

    simulated(scenario, {**AT_ONCE, **FSYNC})


@contextlib.contextmanager
def too_few_in_sync(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing can be written."""

    def refuse(partition: Partition) -> None:
        raise KafkaError(E.NOT_ENOUGH_REPLICAS)

    with monkeypatch.context() as patched:
        patched.setattr(Partition, "check_in_sync", refuse)
        yield


def test_a_heartbeat_that_cannot_be_written_leaves_the_group_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(desk: Desk) -> None:
        await join(desk, "a")

        with too_few_in_sync(monkeypatch):
            answer = await desk.ask(joining("b"), VERSION)
            assert answer.error_code == E.COORDINATOR_NOT_AVAILABLE and answer.assignment is None
        assert [each.member_id for each in (await described(desk)).members] == ["a"]

    simulated(scenario, AT_ONCE)


def test_a_member_that_is_heard_stays_even_if_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(desk: Desk) -> None:
        await join(desk, "a")

        with too_few_in_sync(monkeypatch):
            for _ in range(4):
                answer = await beat(desk, "a", 2, subscribed_topic_names=["u"])
                assert answer.error_code == E.COORDINATOR_NOT_AVAILABLE
                await desk.sim.sleep(SESSION_S / 3)
        await desk.sim.sleep(SESSION_S / 3)
        assert [each.member_id for each in (await described(desk)).members] == ["a"]

    simulated(scenario, AT_ONCE)


# --- A group's own options --------------------------------------------------------------------------------------------


@run_by(simulated, options=AT_ONCE)
async def test_a_group_goes_by_its_own_options(desk: Desk, /) -> None:
    own = {"consumer.session.timeout.ms": "60000", "consumer.heartbeat.interval.ms": "15000"}
    configs = [iac.AlterableConfig(name=name, value=value) for name, value in own.items()]
    await desk.submit(
        IncrementalAlterConfigs([iac.AlterConfigsResource(resource_type=32, resource_name="g", configs=configs)])
    )
    assert (await join(desk, "a")).heartbeat_interval_ms == 15_000
    assert (await join(desk, "b", group="other")).heartbeat_interval_ms == 5_000
    await desk.sim.sleep(SESSION_S + 5)
    assert len((await described(desk)).members) == 1 and not (await described(desk, "other")).members
    await desk.sim.sleep(60 - SESSION_S)
    assert not (await described(desk)).members
    configs[1].value = "10000"
    await desk.submit(
        IncrementalAlterConfigs([iac.AlterConfigsResource(resource_type=32, resource_name="g", configs=configs)])
    )
    assert (await join(desk, "a")).heartbeat_interval_ms == 10_000


@run_by(simulated, options=AT_ONCE)
async def test_the_interval_of_assignments_may_be_changed(desk: Desk, /) -> None:
    assert [(await join(desk, name)).member_epoch for name in ("a", "b")] == [2, 3]
    config = iac.AlterableConfig(name="group.consumer.assignment.interval.ms", value="15000")
    await desk.submit(
        IncrementalAlterConfigs([iac.AlterConfigsResource(resource_type=4, resource_name="", configs=[config])])
    )
    assert (await join(desk, "c")).member_epoch == 3
