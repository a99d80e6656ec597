"""What a restart brings (new leader epochs, sessions gone, deleted records still gone), and options that other tests
leave at their defaults: a pair of brokers of their own, and the answers are equal.

Nothing here measures time. How often a leader is elected in a restart differs, so epochs are told as FIRST and NOW.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from integration_tests.brokers import BrokerProcess, running_broker
from integration_tests.peers.peers import Cluster, cluster
from isthmus.protocol.messages import create_topics, delete_topics, describe_topic_partitions
from isthmus.protocol.messages import offset_for_leader_epoch as epochs

from .batches import batch, split
from .comparing import Comparison
from .peer import Case, Peer, Scenario, Scenarios
from .requests import (
    BROKER,
    EARLIEST,
    LATEST,
    SET,
    WAIT_MS,
    alter_request,
    configs_request,
    create_request,
    fetch_request,
    fill,
    metadata_request,
    new_producer,
    new_topic,
    offsets_request,
    options,
    produce_request,
)
from .scenarios import find_coordinator

OPTIONS = {
    "default.replication.factor": 3,
    "delete.topic.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.max.compaction.lag.ms": 1000,
    "log.retention.minutes": 600,
    "max.incremental.fetch.session.cache.slots": 8,
    "max.request.partition.size.limit": 3,
    "num.partitions": 3,
    "offsets.topic.num.partitions": 10,
    "offsets.topic.replication.factor": 3,
}
LONG = "3153600000000"  # retention.ms: a hundred years, within which its records are
OLD = "kept"  # a topic that was there before the restart
RECORDS = 9  # in its first partition before the restart, of which the first STARTS_AT were deleted
STARTS_AT = 2
FIRST, NOW = "<first epoch>", "<the epoch now>"
SCENARIOS = Scenarios()


def before(peer: Peer) -> dict[str, Any]:
    """Make what is to be found after the restart; gives what clients may still hold in their hands then."""
    case = Case(peer, 0, OLD)
    topic_id = case.topic(partitions=2, retention_ms=LONG)
    fill(case, topic_id, 2)
    producer = new_producer(case)
    sent = {"producer_id": producer.producer_id, "producer_epoch": 0, "base_sequence": 0}
    fill(case, topic_id, base_timestamp_ms=case.now_ms(), **sent)  # Kafka forgets producers by their records' time
    case.delete_records(STARTS_AT)
    case.prepare(alter_request("", ("log.segment.bytes", SET, "7654321"), kind=BROKER))
    case.prepare(alter_request(str(peer.node_id), ("log.roll.ms", SET, "7654321"), kind=BROKER))
    session = case.prepare(fetch_request(case, RECORDS, topic_id, session_epoch=0)).session_id
    return {"topic_id": topic_id, "producer_id": producer.producer_id, "session": session}


class Restarted:
    """Both brokers after a restart in order, and what `before` gave of each."""

    def __init__(self, ours: BrokerProcess, stock: Cluster) -> None:
        self.held: dict[str, dict[str, Any]] = {}
        for name, address in (("isthmus", ours.bootstrap), ("stock Kafka", stock.bootstrap)):
            peer = Peer(name, address)
            self.held[name] = before(peer)
            peer.close()
        [node] = stock.nodes
        node.stop()
        node.start(heap="512m")
        assert ours.stop() == 0
        ours.start()
        node.wait()
        self.comparison = Comparison(Peer("isthmus", ours.bootstrap), Peer("stock Kafka", stock.bootstrap))
        for peer in (self.comparison.ours, self.comparison.stock):
            peer.topic_ids[self.held[peer.name]["topic_id"]] = OLD
            peer.held = self.held[peer.name]
            Case(peer, 0, OLD).await_topic(OLD, 2)

    def close(self) -> None:
        self.comparison.close()
        self.comparison.ours.close()
        self.comparison.stock.close()


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    with cluster(properties=OPTIONS, heap="512m") as kafka:
        with running_broker(tmp_path_factory.mktemp("restarted"), OPTIONS) as broker:
            made = Restarted(broker, kafka)
            yield made
            made.close()


def epoch_now(case: Case) -> int:
    """The leader epoch of the old topic's first partition."""
    [topic] = case.prepare(metadata_request(OLD, allow_auto_topic_creation=False)).topics
    [epoch] = [each.leader_epoch for each in topic.partitions if each.partition_index == 0]
    assert epoch > 0
    return int(epoch)


def by_epoch(case: Case) -> Any:
    """Cuts an answer: leader epochs become FIRST and NOW, also in the headers of batches."""
    names = {0: FIRST, epoch_now(case): NOW}

    def renamed(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: renamed(inner, key) for key, inner in value.items()}
        if isinstance(value, list):
            return [renamed(inner, name) for inner in value]
        return names.get(value, value) if name in ("leader_epoch", "epoch") else value

    return renamed


def batch_by_epoch(case: Case) -> Any:
    """Cuts the answer to a fetch of one batch; a producer's are stamped with the time at which they were sent."""
    renamed = by_epoch(case)

    def cut(answer: Any) -> Any:
        [row] = answer["responses"][0]["partitions"]
        [found] = row["records"] = split(row["records"])
        if found["producer_id"] >= 0:
            del found["base_timestamp_ms"], found["max_timestamp_ms"]
        return renamed(answer)

    return cut


# --- A restart ------------------------------------------------------------------------------------------------------


@SCENARIOS.success(3)
def topic_is_there_again(case: Case) -> None:
    case.compare(metadata_request(OLD), only=by_epoch(case))


@SCENARIOS.success(2)
def offsets_are_what_they_were(case: Case) -> None:
    for timestamp in (EARLIEST, LATEST, 0):
        case.compare(offsets_request(OLD, timestamp), only=by_epoch(case))


@SCENARIOS.success(32)
def options_are_what_they_were(case: Case) -> None:
    broker = str(case.peer.node_id)
    names = ["log.segment.bytes", "log.roll.ms", "log.retention.minutes", "log.retention.ms"]
    case.compare(configs_request(OLD, ["retention.ms", "segment.bytes", "segment.ms"], include_synonyms=True))
    case.compare(configs_request(broker, names, BROKER, include_synonyms=True))
    case.compare(configs_request("", names, BROKER, include_synonyms=True))


@SCENARIOS.success(0)
def producers_go_on(case: Case) -> None:
    topic_id, producer_id = case.peer.held["topic_id"], case.peer.held["producer_id"]

    def ask(sequence: int) -> None:
        sent = batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, base_timestamp_ms=case.now_ms())
        case.compare(produce_request(case, sent, topic_id, name=OLD))

    ask(0)  # again
    ask(3)
    ask(9)
    for timestamp in (EARLIEST, LATEST):
        case.see(offsets_request(OLD, timestamp), only=by_epoch(case))
    for offset in (STARTS_AT, 3, 6, RECORDS):
        case.see(fetch_request(case, offset, topic_id, max_bytes=1), only=batch_by_epoch(case))


@SCENARIOS.error(1)
def clients_with_the_old_epoch_are_fenced(case: Case) -> None:
    topic_id = case.peer.held["topic_id"]
    case.name = OLD
    case.compare(fetch_request(case, STARTS_AT, topic_id, current_leader_epoch=0), only=by_epoch(case))
    case.compare(fetch_request(case, 0, topic_id), only=by_epoch(case))
    case.name += "-again"


@SCENARIOS.error(1)
def sessions_are_gone(case: Case) -> None:
    case.compare(fetch_request(case, 0, bytes(16), session_id=case.peer.held["session"], session_epoch=1))


@SCENARIOS.error(2)
def offsets_for_clients_with_the_old_epoch(case: Case) -> None:
    case.compare(offsets_request(OLD, LATEST, epoch=0))
    case.compare(offsets_request(OLD, LATEST, epoch=epoch_now(case)), only=by_epoch(case))


@SCENARIOS.success(23)
def the_old_epoch_ended_at_the_restart(case: Case) -> None:
    now = epoch_now(case)
    for epoch in (0, now, now + 1):
        row = epochs.OffsetForLeaderPartition(partition=1, leader_epoch=epoch)
        case.compare(
            epochs.Request(topics=[epochs.OffsetForLeaderTopic(topic=OLD, partitions=[row])]), only=by_epoch(case)
        )


@SCENARIOS.error(23)
def epochs_for_clients_with_the_old_one(case: Case) -> None:
    row = epochs.OffsetForLeaderPartition(partition=0, leader_epoch=0, current_leader_epoch=0)
    case.compare(epochs.Request(topics=[epochs.OffsetForLeaderTopic(topic=OLD, partitions=[row])]))


# --- Options --------------------------------------------------------------------------------------------------------


@SCENARIOS.error(20)
def topics_cannot_be_deleted(case: Case) -> None:
    case.topic()
    state = delete_topics.DeleteTopicState(name=case.name)
    case.compare(delete_topics.Request(topics=[state], timeout_ms=10_000))


@SCENARIOS.error(20)
def names_of_topics_that_cannot_be_deleted(case: Case) -> None:
    case.version = 3
    case.compare(delete_topics.Request(topic_names=[OLD, case.name], timeout_ms=10_000))
    case.version = 1
    case.compare(delete_topics.Request(topic_names=[OLD, case.name], timeout_ms=10_000))


@SCENARIOS.error(19)
def defaults_that_one_broker_cannot_hold(case: Case) -> None:
    case.compare(create_request(new_topic(case.name, -1, -1)))
    case.compare(create_request(new_topic(case.name, -1, 1)))
    case.await_topic(case.name, 3)


@SCENARIOS.error(19)
def limits_of_compaction_that_contradict_the_brokers(case: Case) -> None:
    for limits in ({"min": "1001"}, {"min": "1000"}, {"min": "1001", "max": "1001"}):
        own = options(**{f"{end}_compaction_lag_ms": value for end, value in limits.items()})
        case.compare(create_request(new_topic(case.name, configs=own), validate_only=True))


@SCENARIOS.error(44)
def limits_that_come_to_contradict_the_brokers(case: Case) -> None:
    case.topic()
    for value in ("1001", "1000"):
        case.compare(alter_request(case.name, ("min.compaction.lag.ms", SET, value)))


@SCENARIOS.error(3)
def topics_that_defaults_do_not_let_be_made(case: Case) -> None:
    case.prepare(metadata_request(case.name))
    case.compare(metadata_request(case.name, allow_auto_topic_creation=False))


@SCENARIOS.error(10)
def a_topic_of_groups_that_cannot_be_made(case: Case) -> None:
    for case.version in range(find_coordinator.Request.API.max_version + 1):
        case.compare(find_coordinator.request(case, case.name))


@SCENARIOS.success(75)
def pages_are_no_larger_than_the_broker_allows(case: Case) -> None:
    case.prepare(create_topics.Request(topics=[new_topic(case.name, 5)], timeout_ms=10_000))
    case.await_topic(case.name, 5)
    asked = [describe_topic_partitions.TopicRequest(name=case.name)]
    case.compare(describe_topic_partitions.Request(topics=asked, response_partition_limit=2000))


@SCENARIOS.success(1)
def sessions_up_to_the_bound(case: Case) -> None:
    topic_id = case.topic()
    for _ in range(10):
        case.compare(fetch_request(case, 0, topic_id, session_epoch=0, max_wait_ms=WAIT_MS))


def cases() -> list[tuple[Scenario, int]]:
    return [(scenario, scenario.versions[-1]) for scenario in SCENARIOS]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case[0].label)
def test_answers_are_equal(case: tuple[Scenario, int], restarted: Restarted) -> None:
    assert restarted.comparison.differences(*case) == []


def test_the_tables_are_what_was_told(restarted: Restarted) -> None:
    assert restarted.comparison.wrong_in_tables(cases()) == []
