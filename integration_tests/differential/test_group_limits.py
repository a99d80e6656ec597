"""What groups do when a limit or a time is reached: a pair of brokers with small ones, and the answers are equal.

Nothing here measures time: what is to come is waited for, and what is told afterwards is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from integration_tests.brokers import running_broker
from integration_tests.peers.peers import cluster
from isthmus.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    describe_transactions,
    end_txn,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from isthmus.protocol.schema import Struct

from . import consumers, error_codes
from .comparing import Comparison
from .consumers import Consumers
from .crew import COMPLETING, EMPTY, FOLLOWER, LEADER, NEWCOMER, PREPARING, STABLE, STATIC, Crew
from .normalise import normalised, unexplained
from .peer import Case, Peer, Scenario, Scenarios
from .scenarios import offset_commit as commit
from .scenarios.offset_commit import see_offsets
from .scenarios.offset_fetch import committed
from .wire import plain

LIMITS = {
    "group.max.size": 4,
    "group.min.session.timeout.ms": 100,
    "group.max.session.timeout.ms": 60_000,
    "group.initial.rebalance.delay.ms": 0,
    "offset.metadata.max.bytes": 10,
    "offsets.retention.check.interval.ms": 100,
    "offsets.topic.num.partitions": 10,
    "group.consumer.max.size": 3,
    "group.consumer.min.session.timeout.ms": 100,
    "group.consumer.min.heartbeat.interval.ms": 10,
}
SOON_MS = 400
SCENARIOS = Scenarios()


# --- Before anybody has looked for a coordinator --------------------------------------------------------------------

FIRST: list[Struct] = [
    join_group.Request(group_id="g", session_timeout_ms=1000, rebalance_timeout_ms=1000, protocol_type="consumer"),
    sync_group.Request(group_id="g", generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range"),
    heartbeat.Request(group_id="g", generation_id=1, member_id="m"),
    leave_group.Request(group_id="g", members=[leave_group.MemberIdentity(member_id="m")]),
    offset_fetch.Request(groups=[offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)]),
    offset_delete.Request(group_id="g", topics=[]),
    describe_groups.Request(groups=["g"]),
    list_groups.Request(),
    delete_groups.Request(groups_names=["g"]),
    consumer_group_heartbeat.Request(
        group_id="g", member_id="m", rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
    ),
    consumer_group_describe.Request(group_ids=["g"]),
    init_producer_id.Request(transactional_id="t", transaction_timeout_ms=1000),
    add_offsets_to_txn.Request(transactional_id="t", group_id="g"),
    end_txn.Request(transactional_id="t"),
    describe_transactions.Request(transactional_ids=["t"]),
    list_transactions.Request(),
    find_coordinator.Request(coordinator_keys=["g"]),  # the last: from then on there is one
]


def told_first(peer: Peer) -> dict[str, Any]:
    """What each request is told while there is no topic for groups, nor for transactions, by the name of its API."""
    case = Case(peer, 0, "first")
    topic_id = case.topic()
    topic = commit.topic(case.name, topic_id, commit.row(0, 1))
    row = txn_offset_commit.TxnOffsetCommitRequestPartition(committed_metadata="")
    pending = txn_offset_commit.TxnOffsetCommitRequestTopic(topic_id=topic_id, partitions=[row])
    added = add_partitions_to_txn.AddPartitionsToTxnTopic(name=case.name, partitions=[0])
    adding = add_partitions_to_txn.AddPartitionsToTxnTransaction(transactional_id="t", topics=[added])
    asked = [
        offset_commit.Request(group_id="g", topics=[topic]),
        add_partitions_to_txn.Request(transactions=[adding]),
        txn_offset_commit.Request(transactional_id="t", group_id="g", topics=[pending]),
        *FIRST,
    ]
    return {type(each).API.name: normalised(plain(peer.ask(each), type(each).API.max_version), peer) for each in asked}


class Pair:
    """Both brokers, and what they said first."""

    def __init__(self, ours: Peer, stock: Peer) -> None:
        self.ours, self.stock = ours, stock
        self.first = told_first(ours), told_first(stock)
        self.comparison = Comparison(ours, stock)
        for api in (
            offset_commit.API,
            add_partitions_to_txn.API,
            txn_offset_commit.API,
            *(type(each).API for each in FIRST),
        ):
            self.comparison.note_codes(api.key, error_codes.FIRST, self.first[1][api.name])


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with cluster(properties=LIMITS, heap="512m") as kafka:
        with running_broker(tmp_path_factory.mktemp("limits"), LIMITS) as broker:
            made = Pair(Peer("isthmus", broker.bootstrap), Peer("stock Kafka", kafka.bootstrap))
            yield made
            made.comparison.close()
            made.ours.close()
            made.stock.close()


@pytest.mark.parametrize(
    "name", ["OffsetCommit", "AddPartitionsToTxn", "TxnOffsetCommit", *(type(each).API.name for each in FIRST)]
)
def test_what_is_told_before_there_is_a_coordinator(name: str, pair: Pair) -> None:
    ours, stock = (first[name] for first in pair.first)
    assert unexplained(name, ours, stock, error_codes.FIRST, pair.comparison.explained) == []


def test_control_a_coordinator_comes_when_it_is_looked_for(pair: Pair) -> None:
    for peer in (pair.ours, pair.stock):
        Case(peer, 0, "g").coordinator()
        assert peer.ask(find_coordinator.Request(coordinator_keys=["g"])).coordinators[0].error_code == 0
        answer = normalised(plain(peer.ask(FIRST[2]), heartbeat.API.max_version), peer)
        assert answer != pair.first[peer is pair.stock]["Heartbeat"]


def lasting(case: Case) -> Crew:
    """A group that is not tidied away while it is empty, since it has an offset."""
    committed(case, 1)
    return Crew(case)


# --- Groups that are full -------------------------------------------------------------------------------------------


@SCENARIOS.error(11)
def joins_a_full_group(case: Case) -> None:
    with lasting(case) as crew:
        crew.gather(LEADER, "b", "c", "d")
        for name in ("late", LEADER):
            crew.ask(name, crew.join_request(name))
        crew.assign()
        crew.ask("late", crew.join_request("late"))
        crew.send(LEADER, crew.join_request(LEADER))
        crew.await_group(PREPARING, 4)
        crew.see()


@SCENARIOS.error(11, since=5)
def a_static_member_joins_a_full_group(case: Case) -> None:
    with lasting(case) as crew:
        crew.gather(LEADER, "b", "c", STATIC)
        crew.assign()
        crew.ask("static late", crew.join_request("static late"))
        crew.ask(STATIC, crew.join_request(STATIC, member_id=""))  # there is no room even for one who comes back
        crew.see()


# --- Members that are lost ------------------------------------------------------------------------------------------


def brief(crew: Crew, *names: str, session_ms: int = SOON_MS) -> None:
    """These members are to be heard of soon, or never again."""
    ask = crew.join_request

    def request(name: str, **fields: Any) -> join_group.Request:
        return ask(name, **({"session_timeout_ms": session_ms} if name in names else {}), **fields)

    crew.join_request = request  # type: ignore[method-assign]


@SCENARIOS.success(12)
def a_member_is_lost_from_a_stable_group(case: Case) -> None:
    with lasting(case) as crew:
        brief(crew, FOLLOWER)
        crew.bring(STABLE)
        crew.await_group(PREPARING, 2)
        crew.ask(FOLLOWER, crew.heartbeat_request(FOLLOWER))
        crew.ask(LEADER, crew.heartbeat_request(LEADER))
        crew.enter(STATIC)
        crew.enter(LEADER)
        crew.take(STATIC)
        crew.take(LEADER)
        crew.see()


@SCENARIOS.success(12)
def a_static_member_is_lost(case: Case) -> None:
    with lasting(case) as crew:
        brief(crew, STATIC)
        crew.bring(STABLE)
        crew.await_group(PREPARING, 2)
        crew.see()


@SCENARIOS.success(12)
def the_leader_is_lost_while_its_assignments_are_awaited(case: Case) -> None:
    with lasting(case) as crew:
        brief(crew, LEADER)
        crew.bring(COMPLETING)
        crew.send("waits", crew.sync_request(FOLLOWER))
        crew.await_group(PREPARING, 2)
        crew.take("waits")
        crew.see()


@SCENARIOS.success(12)
def the_last_member_is_lost(case: Case) -> None:
    with lasting(case) as crew:
        brief(crew, LEADER)
        crew.gather(LEADER)
        crew.assign()
        crew.await_group(EMPTY, 0)
        crew.ask(LEADER, crew.heartbeat_request(LEADER))
        crew.see()


@SCENARIOS.success(11, since=4)
def one_that_was_given_an_id_is_lost(case: Case) -> None:
    with lasting(case) as crew:
        brief(crew, NEWCOMER)
        crew.bring(STABLE)
        crew.ask(NEWCOMER, crew.join_request(NEWCOMER))
        crew.enter(LEADER)
        crew.await_group(PREPARING, 3)
        crew.enter(FOLLOWER)
        crew.enter(STATIC)
        for name in (LEADER, FOLLOWER, STATIC):
            crew.take(name)  # once nobody is waited for any more
        crew.ask(NEWCOMER, crew.join_request(NEWCOMER))


# --- Phases that take too long --------------------------------------------------------------------------------------


def hasty(crew: Crew) -> None:
    """All members give the others little time to join."""
    ask = crew.join_request
    crew.join_request = lambda name, **fields: ask(name, rebalance_timeout_ms=SOON_MS, **fields)  # type: ignore[method-assign]


@SCENARIOS.success(11, since=1)
def who_does_not_come_is_left_behind(case: Case) -> None:
    with lasting(case) as crew:
        hasty(crew)
        crew.bring(STABLE)
        crew.send(FOLLOWER, crew.join_request(FOLLOWER, protocols=crew.protocols(FOLLOWER, topics=("other",))))
        crew.take(FOLLOWER)  # leads now; the static member is there still
        crew.see()


@SCENARIOS.success(14)
def who_does_not_ask_for_its_assignment_is_let_go(case: Case) -> None:
    with lasting(case) as crew:
        hasty(crew)
        crew.bring(COMPLETING)
        crew.send(LEADER, crew.sync_request(LEADER))
        crew.take(LEADER)
        crew.await_group(PREPARING, 1)
        crew.ask(FOLLOWER, crew.sync_request(FOLLOWER))
        crew.see()


@SCENARIOS.success(14)
def a_leader_that_brings_no_assignments_is_let_go(case: Case) -> None:
    with lasting(case) as crew:
        hasty(crew)
        crew.bring(COMPLETING)
        crew.send(FOLLOWER, crew.sync_request(FOLLOWER))
        crew.take(FOLLOWER)
        crew.see()


# --- Offsets that grow old ------------------------------------------------------------------------------------------


@SCENARIOS.success(9)
def offsets_that_were_to_live_for_a_while(case: Case) -> None:
    topic_id = case.topic(partitions=2)
    case.coordinator()
    rows = commit.request(case, topic_id, commit.row(0, 1), retention_time_ms=1)
    case.prepare(rows, 2)
    case.prepare(commit.request(case, topic_id, commit.row(1, 2)))
    await_offsets(case, 1)
    see_offsets(case)
    with Crew(case) as crew:
        crew.see()


@SCENARIOS.success(9)
def a_group_goes_with_its_last_offset(case: Case) -> None:
    topic_id = case.topic()
    case.coordinator()
    case.prepare(commit.request(case, topic_id, commit.row(0, 1), retention_time_ms=1), 2)
    await_offsets(case, 0)
    with Crew(case) as crew:
        crew.await_group("Dead")
        crew.see()


@SCENARIOS.success(9)
def offsets_of_topics_that_members_read_stay(case: Case) -> None:
    topic_id, other_id = case.topic(), case.topic("-other")
    with Crew(case) as crew:
        crew.gather(STATIC)
        member = crew[STATIC]
        case.prepare(crew.sync_request(STATIC))
        crew.await_group(STABLE)
        for name, each in ((case.name, topic_id), (case.name + "-other", other_id)):
            request = commit.Request(
                group_id=crew.group,
                member_id=member.member_id,
                generation_id_or_member_epoch=member.generation,
                retention_time_ms=1,
                topics=[commit.topic(name, each, commit.row(0, 1))],
            )
            case.prepare(request, 2)
        await_offsets(case, 1)
        see_offsets(case)


@SCENARIOS.success(9)
def an_empty_group_without_offsets_goes(case: Case) -> None:
    with Crew(case) as crew:
        crew.gather(STATIC)  # comes in without an id, in one step
        case.prepare(crew.leave_request(STATIC))
        crew.await_group("Dead")
        crew.see()


def await_offsets(case: Case, count: int) -> None:
    wanted = offset_fetch.Request(groups=[offset_fetch.OffsetFetchRequestGroup(group_id=case.name, topics=None)])

    def there() -> bool:
        return sum(len(topic.partitions) for topic in case.prepare(wanted, 9).groups[0].topics) == count

    case.wait_until(there, f"{count} offsets left")


@SCENARIOS.error(8)
def metadata_is_too_large(case: Case) -> None:
    topic_id = case.topic(partitions=2)
    case.coordinator()
    case.compare(commit.request(case, topic_id, commit.row(0, 1, "x" * 10), commit.row(1, 1, "x" * 11)))


@SCENARIOS.error(11)
def sessions_have_bounds(case: Case) -> None:
    with lasting(case) as crew:
        for session_ms in (99, 60_001, 100, 60_000):
            crew.ask(f"{session_ms}", crew.join_request(f"{session_ms}", session_timeout_ms=session_ms))


# --------------------------------------------------------------------------------------------------------------------


# --- Consumer groups ------------------------------------------------------------------------------------------------


def soon_over(case: Case) -> Consumers:
    """A consumer group whose members are lost soon after their last heartbeat."""
    group = Consumers(case)
    group.set_option("consumer.heartbeat.interval.ms", SOON_MS // 4)
    group.set_option("consumer.session.timeout.ms", SOON_MS)
    return group


@SCENARIOS.error(68)
def joins_a_full_consumer_group(case: Case) -> None:
    group = Consumers(case)
    for name in ("a", "b", STATIC):
        group.join(name)
    group.ask("late", group.join_request("late"))
    group.ask("static late", group.join_request("static late"))
    group.ask("a", group.join_request("a"))
    group.beat(STATIC, group.beat_request(STATIC, member_epoch=-2))
    group.ask(STATIC, group.join_request(STATIC, member_id="again"))
    group.see()


@SCENARIOS.error(68)
def a_consumer_that_is_silent_is_lost(case: Case) -> None:
    group = soon_over(case)
    group.join("a")
    case.prepare(group.commit_request("a"))  # so that the group outlives its members
    case.wait_until(lambda: group.state() == consumers.EMPTY, "the member is lost")
    group.see()
    group.ask("a")
    group.ask("a", group.join_request("a"))


@SCENARIOS.success(68)
def a_static_consumer_that_does_not_come_back_is_lost(case: Case) -> None:
    group = soon_over(case)
    group.join(STATIC)
    case.prepare(group.commit_request(STATIC))
    group.beat(STATIC, group.beat_request(STATIC, member_epoch=-2))
    group.see()
    case.wait_until(lambda: group.state() == consumers.EMPTY, "the member is lost")
    group.see()


@SCENARIOS.error(68)
def a_consumer_that_gives_up_no_partitions_is_lost(case: Case) -> None:
    """Within its own rebalance timeout, however often it is heard of."""
    group = Consumers(case)
    group.join("a", rebalance_timeout_ms=SOON_MS)
    group.settle()
    group.join("b")
    case.wait_until(lambda: case.prepare(group.beat_request("a")).error_code != 0, "the member is lost")
    group.ask("a")
    group.see()
    group.ask("b")


@SCENARIOS.error(69)
def an_empty_consumer_group_goes_with_its_last_offset(case: Case) -> None:
    """A group without members and offsets is tidied away."""
    group = Consumers(case)
    group.join("a")
    group.leave("a")
    wanted = group.describe_request()
    case.wait_until(lambda: case.prepare(wanted).groups[0].error_code != 0, "the group is gone")
    case.compare(wanted)


def cases() -> list[tuple[Scenario, int]]:
    return [(scenario, scenario.versions[-1]) for scenario in SCENARIOS]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case[0].label)
def test_answers_are_equal(case: tuple[Scenario, int], pair: Pair) -> None:
    assert pair.comparison.differences(*case) == []


def test_the_tables_are_what_was_told(pair: Pair) -> None:
    assert pair.comparison.wrong_in_tables(cases(), {error_codes.FIRST}) == []
