"""What comes after a partition's files are lost: to readers that had nothing to read (KIP-227), to topics that are
enlarged, deleted and made anew, and to groups that were kept in such a partition. A pair of brokers that lose them as
in `test_storage_errors.py`, and the answers are equal but for what is explained.

Every case about topics has one of its own, of which one partition is lost; so is one of the groups' topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from integration_tests.brokers import running_broker
from integration_tests.peers.peers import cluster
from isthmus.core_broker.coordinators.find import partition_for
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import (
    delete_groups,
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    join_group,
    list_groups,
    offset_commit,
    sync_group,
)

from .batches import batch
from .comparing import Comparison
from .crew import LEADER, PREPARING, STABLE, Crew
from .peer import Case, Peer, Scenario, Scenarios
from .requests import (
    EARLIEST,
    LATEST,
    SET,
    WAIT_MS,
    alter_request,
    create_request,
    fetch_partition,
    fetch_request,
    fill,
    metadata_request,
    new_topic,
    offsets_request,
    produce_request,
)
from .scenarios import alter_replica_log_dirs, create_partitions, delete_topics, offset_delete
from .scenarios import find_coordinator as find
from .scenarios import offset_commit as commit
from .scenarios import offset_fetch as read
from .test_storage_errors import CHECKPOINTS_MS, LOST, SERVED, in_order
from .wire import api

GROUPS_TOPIC = "__consumer_offsets"
GROUPS_PARTITIONS = 10
READ = "read"  # the topic of which groups keep offsets
SCENARIOS = Scenarios()


def group_in(index: int, prefix: str) -> str:
    """A group that is kept in a partition."""
    names = (f"{prefix}-{number}" for number in count())
    return next(name for name in names if partition_for(name, GROUPS_PARTITIONS) == index)


LOST_GROUP, SERVED_GROUP = group_in(LOST, "reader"), group_in(SERVED, "reader")
LOST_CREW = group_in(LOST, "crew")  # has members, of whom one waits for the others


# --- Partitions are lost --------------------------------------------------------------------------------------------


def cases() -> list[tuple[Scenario, int]]:
    return [(scenario, version) for scenario in SCENARIOS for version in scenario.versions]


def cases_of_topics(peer: Peer) -> list[Case]:
    """Those that have a topic, under the names that they will have."""
    return [
        Case(peer, version, f"{api(scenario.key).name.lower()}-v{version}-{scenario.label}")
        for scenario, version in cases()
        if scenario.label.endswith("topic_that_lost_a_partition")
    ]


def begin(peer: Peer) -> None:
    """The topics with records that are older than a segment may be, sessions at their ends, and groups with offsets."""
    for case in cases_of_topics(peer):
        topic_id = case.topic(partitions=2)
        for index in (LOST, SERVED):
            fill(case, topic_id, partition=index)
        peer.held[case.name] = {"topic_id": topic_id}
        if case.name.startswith("fetch"):
            rows = [fetch_partition(3, index) for index in (LOST, SERVED)]
            topic = fetch.FetchTopic(topic=case.name, topic_id=topic_id, partitions=rows)
            session = case.prepare(session_request(0, 0, topic), case.version).session_id
            assert not case.prepare(session_request(session, 1), case.version).responses  # nothing is new
            peer.held[case.name]["session"] = session
    Case(peer, 0, READ).topic()
    for group in (LOST_GROUP, SERVED_GROUP):
        case = Case(peer, 0, group)
        case.coordinator()
        assert has_committed(case)
    peer.held["crew"] = crew = Crew(Case(peer, join_group.API.max_version, READ), LOST_CREW)
    crew.bring(STABLE)
    crew.send(LEADER, crew.join_request(LEADER))
    crew.await_group(PREPARING)
    Case(peer, 0, READ).prepare(alter_request(GROUPS_TOPIC, ("segment.ms", SET, "1")))


def session_request(session_id: int, epoch: int, *topics: fetch.FetchTopic) -> fetch.Request:
    return fetch.Request(
        max_wait_ms=WAIT_MS, max_bytes=1 << 20, session_id=session_id, session_epoch=epoch, topics=list(topics)
    )


def has_committed(case: Case) -> bool:
    """Whether the group that the case is called by could commit an offset; else it has no coordinator."""
    topic = commit.topic(READ, bytes(16), commit.row(0, 40))
    answer = case.prepare(offset_commit.Request(group_id=case.name, topics=[topic]), 8)
    code = answer.topics[0].partitions[0].error_code
    assert code in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR), answer
    return bool(code == ErrorCode.NONE)


def await_lost(peer: Peer) -> None:
    """Append until it is refused; ours needs another segment for it."""
    for case in cases_of_topics(peer):
        now = batch(base_timestamp_ms=case.now_ms())
        request = produce_request(case, now, peer.held[case.name]["topic_id"], partition=LOST)

        def refused(case: Case = case, request: Any = request) -> bool:
            [row] = case.prepare(request).responses[0].partition_responses
            return bool(row.error_code == ErrorCode.KAFKA_STORAGE_ERROR)

        case.wait_until(refused, f"{case.name}-{LOST} is offline")
    case = Case(peer, 0, LOST_GROUP)
    case.wait_until(lambda: not has_committed(case), f"{GROUPS_TOPIC}-{LOST} is offline")
    assert has_committed(Case(peer, 0, SERVED_GROUP))


def lose_ours(peer: Peer, data: Path) -> None:
    begin(peer)
    for name in [GROUPS_TOPIC, *(case.name for case in cases_of_topics(peer))]:
        lost = data / f"{name}-{LOST}"
        lost.rename(data.parent / lost.name)
        lost.touch()
    await_lost(peer)


def lose_stock(peer: Peer, lost: Path, served: Path) -> None:
    for name in [GROUPS_TOPIC, READ, *(case.name for case in cases_of_topics(peer))]:
        rest = [index for index in range(GROUPS_PARTITIONS) if index != LOST or name == READ]
        for path, indexes in ((lost, [LOST]), (served, rest)):  # where they are to be made
            peer.ask(alter_replica_log_dirs.request(str(path), (name, indexes)))
    begin(peer)
    lost.rename(lost.with_name("lost"))
    await_lost(peer)
    for case in [Case(peer, 0, GROUPS_TOPIC), *cases_of_topics(peer)]:

        def known(case: Case = case) -> bool:  # to the controller
            [topic] = case.prepare(metadata_request(case.name)).topics
            return [row.partition_index for row in topic.partitions if row.leader_id < 0] == [LOST]

        case.wait_until(known, f"{case.name}-{LOST} has no leader")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    home = tmp_path_factory.mktemp("stock")
    lost, served = home / "a", home / "b"
    options = {
        "log.dirs": f"{lost},{served}",
        "metadata.log.dir": home / "metadata",
        "replica.high.watermark.checkpoint.interval.ms": CHECKPOINTS_MS,
        "log.flush.offset.checkpoint.interval.ms": CHECKPOINTS_MS,
    }
    ours = {"offsets.topic.num.partitions": GROUPS_PARTITIONS, "group.initial.rebalance.delay.ms": 0}
    with cluster(properties=options, heap="512m") as kafka:
        with running_broker(tmp_path_factory.mktemp("ours"), ours) as broker:
            made = Comparison(Peer("isthmus", broker.bootstrap), Peer("stock Kafka", kafka.bootstrap))
            lose_ours(made.ours, broker.folder / "data")
            lose_stock(made.stock, lost, served)
            yield made
            made.close()
            for peer in (made.ours, made.stock):
                peer.held["crew"].__exit__()
                peer.close()


# --- Sessions -------------------------------------------------------------------------------------------------------


@SCENARIOS.error(1, since=7)
def an_idle_session_of_a_topic_that_lost_a_partition(case: Case) -> None:
    session = case.peer.held[case.name]["session"]
    for epoch in (2, 3):
        case.compare(session_request(session, epoch), only=in_order)


# --- Topics ---------------------------------------------------------------------------------------------------------


def await_deleted(case: Case) -> None:
    def gone() -> bool:
        [topic] = case.prepare(metadata_request(case.name, allow_auto_topic_creation=False)).topics
        return bool(topic.error_code)

    case.wait_until(gone, f"{case.name} is deleted")


def end_of(case: Case, partition: int) -> Any:
    [row] = case.prepare(offsets_request(case.name, LATEST, partition=partition)).topics[0].partitions
    return row


def is_as_new(case: Case) -> None:
    """The case's topic has two partitions without records, and takes some."""
    topic_id = case.topic(partitions=2)
    for index in (LOST, SERVED):
        fill(case, topic_id, partition=index)
        for timestamp in (EARLIEST, LATEST):
            case.see(offsets_request(case.name, timestamp, partition=index))
        case.see(fetch_request(case, 0, topic_id, partition=index))


@SCENARIOS.success(20)
def deletion_of_a_topic_that_lost_a_partition(case: Case) -> None:
    topic_id = case.peer.held[case.name]["topic_id"]
    case.compare(delete_topics.request(case, case.name))
    await_deleted(case)
    case.see(metadata_request(case.name, allow_auto_topic_creation=False))
    case.see(metadata_request(None, topic_id))
    gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    case.wait_until(lambda: end_of(case, SERVED).error_code == gone, f"{case.name} is not served")
    case.see(offsets_request(case.name, LATEST, partition=LOST))
    case.see(fetch_request(case, 0, topic_id, partition=LOST))
    is_as_new(case)


@SCENARIOS.error(19, ends=True)
def creation_of_a_topic_that_lost_a_partition(case: Case) -> None:
    case.compare(create_request(new_topic(case.name)))


@SCENARIOS.success(37)
def growth_of_a_topic_that_lost_a_partition(case: Case) -> None:
    topic_id = case.peer.held[case.name]["topic_id"]
    case.compare(create_partitions.request(create_partitions.wanted(case.name, 2)))
    case.compare(create_partitions.request(create_partitions.wanted(case.name, 3)))
    case.wait_until(lambda: end_of(case, 2).error_code == ErrorCode.NONE, f"{case.name}-2 is served")
    fill(case, topic_id, partition=2)
    for index in (LOST, SERVED, 2):
        case.see(offsets_request(case.name, LATEST, partition=index))
    case.prepare(delete_topics.by_state((case.name, bytes(16))))
    await_deleted(case)
    is_as_new(case)


# --- Groups ---------------------------------------------------------------------------------------------------------


@SCENARIOS.error(10)
def the_coordinator_of_a_group_that_is_lost(case: Case) -> None:
    for group in (LOST_GROUP, SERVED_GROUP):
        case.compare(find.request(case, group))
    if case.version >= 4:
        case.compare(find_coordinator.Request(coordinator_keys=[SERVED_GROUP, LOST_GROUP, LOST_CREW]))


@SCENARIOS.error(8)
def commits_of_a_group_that_is_lost(case: Case) -> None:
    topic_id = case.id_of(READ)
    for group in (LOST_GROUP, SERVED_GROUP):
        wanted = commit.topic(READ, topic_id, commit.row(0, 41))
        case.compare(offset_commit.Request(group_id=group, topics=[wanted]))


@SCENARIOS.error(9)
def offsets_of_a_group_that_is_lost(case: Case) -> None:
    topic_id = case.id_of(READ)
    has_committed(Case(case.peer, 0, SERVED_GROUP))
    for group in (LOST_GROUP, SERVED_GROUP):
        fields = {"group_id": group}
        case.compare(read.request(case, topic_id, [0], READ, **fields))
        if case.version >= 2:
            case.compare(read.everything(case, group))
    if case.version >= 8:
        case.compare(read.everything(case, SERVED_GROUP, LOST_GROUP))


@SCENARIOS.error(47)
def offsets_to_delete_of_a_group_that_is_lost(case: Case) -> None:
    case.compare(offset_delete.request(LOST_GROUP, (READ, [0])))


@SCENARIOS.error(11)
def joins_of_a_group_that_is_lost(case: Case) -> None:
    crew: Crew = case.peer.held["crew"]
    protocols = crew.protocols(LEADER)
    for group in (LOST_GROUP, LOST_CREW, group_in(LOST, "new")):
        for member_id in ("", crew[LEADER].member_id):
            case.compare(
                join_group.Request(
                    group_id=group, session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id=member_id,
                    protocol_type="consumer", protocols=protocols,
                ),
                only=anonymous,
            )  # fmt: skip


def anonymous(answer: Any) -> Any:
    """Without the id that was asked by, of which there is another on each side."""
    answer["member_id"] = "<the same>" if answer["member_id"] else ""
    return answer


@SCENARIOS.error(11, since=join_group.API.max_version)
def the_answer_to_who_waited_in_a_group_that_is_lost(case: Case) -> None:
    crew: Crew = case.peer.held["crew"]
    crew.case = case
    crew.take(LEADER)


@SCENARIOS.error(14)
def syncs_of_a_group_that_is_lost(case: Case) -> None:
    member_id = case.peer.held["crew"][LEADER].member_id
    named = {"protocol_type": "consumer", "protocol_name": "range"} if case.version >= 5 else {}
    case.compare(sync_group.Request(group_id=LOST_CREW, generation_id=1, member_id=member_id, **named))


@SCENARIOS.error(12)
def heartbeats_of_a_group_that_is_lost(case: Case) -> None:
    member_id = case.peer.held["crew"][LEADER].member_id
    case.compare(heartbeat.Request(group_id=LOST_CREW, generation_id=1, member_id=member_id))


@SCENARIOS.error(13)
def leaves_of_a_group_that_is_lost(case: Case) -> None:
    crew: Crew = case.peer.held["crew"]
    case.compare(crew.leave_request(LEADER, version=case.version))


@SCENARIOS.error(15)
def describes_a_group_that_is_lost(case: Case) -> None:
    case.compare(describe_groups.Request(groups=[LOST_GROUP, LOST_CREW, SERVED_GROUP]))


@SCENARIOS.success(16)
def lists_without_a_group_that_is_lost(case: Case) -> None:
    case.compare(list_groups.Request())


@SCENARIOS.error(42)
def deletes_a_group_that_is_lost(case: Case) -> None:
    case.compare(delete_groups.Request(groups_names=[LOST_GROUP, LOST_CREW]))


# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case[0].label}-v{case[1]}")
def test_answers_are_equal(case: tuple[Scenario, int], pair: Comparison) -> None:
    assert pair.differences(*case) == []


def test_the_tables_are_what_was_told(pair: Comparison) -> None:
    assert pair.wrong_in_tables(cases()) == []
