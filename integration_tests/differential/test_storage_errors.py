"""What is said of a partition whose files are gone while the broker runs: a pair of brokers that each lost one, and the
answers are equal but for what is explained. Each request asks for the other partition of the topic as well, which
serves on.

Stock Kafka has two log directories, of which one is renamed away, and takes it offline with all that is in it. Ours has
a file where the directory of the partition was, and finds out when the log is to begin another segment there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.brokers import running_broker
from integration_tests.peers.peers import cluster
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import (
    delete_records,
    describe_log_dirs,
    list_offsets,
    produce,
)
from isthmus.protocol.messages import offset_for_leader_epoch as epochs

from .batches import batch
from .comparing import Comparison
from .peer import Case, Peer, Scenario, Scenarios
from .requests import (
    EARLIEST,
    LATEST,
    WAIT_MS,
    fetch,
    fetch_partition,
    fill,
    metadata_request,
    produce_request,
)
from .scenarios import alter_replica_log_dirs, describe_producers, describe_topic_partitions, elect_leaders

TOPIC = "half"  # of which one partition is lost
LOST, SERVED = 0, 1
CHECKPOINTS_MS = 300  # how often stock Kafka writes into its directories, by which it finds out
SCENARIOS = Scenarios()


# --- A partition is lost --------------------------------------------------------------------------------------------


def begin(peer: Peer) -> Case:
    """The topic, with records that are older than a segment may be."""
    case = Case(peer, 0, TOPIC)
    peer.held = {"topic_id": case.topic(partitions=2)}
    for index in (LOST, SERVED):
        fill(case, peer.held["topic_id"], partition=index)
    return case


def await_lost(case: Case) -> None:
    """Append until it is refused; ours needs another segment for it."""
    now = batch(base_timestamp_ms=case.now_ms())

    def refused() -> bool:
        answer = case.prepare(produce_request(case, now, case.peer.held["topic_id"], partition=LOST))
        return answer.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR

    case.wait_until(refused, f"{TOPIC}-{LOST} is offline")


def lose_ours(peer: Peer, data: Path) -> None:
    case = begin(peer)
    lost = data / f"{TOPIC}-{LOST}"
    lost.rename(data.parent / "lost")
    lost.touch()
    await_lost(case)


def lose_stock(peer: Peer, directories: list[Path]) -> None:
    case = begin(peer)
    [lost] = [each for each in directories if (each / f"{TOPIC}-{LOST}").exists()]
    assert not (lost / f"{TOPIC}-{SERVED}").exists()
    lost.rename(lost.with_name("lost"))
    await_lost(case)

    def known() -> bool:  # to the controller
        [topic] = case.prepare(metadata_request(TOPIC)).topics
        return min(row.leader_id for row in topic.partitions) < 0

    case.wait_until(known, f"{TOPIC}-{LOST} has no leader")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    home = tmp_path_factory.mktemp("stock")
    directories = [home / "a", home / "b"]
    options = {
        "log.dirs": ",".join(map(str, directories)),
        "metadata.log.dir": home / "metadata",
        "replica.high.watermark.checkpoint.interval.ms": CHECKPOINTS_MS,
        "log.flush.offset.checkpoint.interval.ms": CHECKPOINTS_MS,
    }
    with cluster(properties=options, heap="512m") as kafka:
        with running_broker(tmp_path_factory.mktemp("ours")) as broker:
            made = Comparison(Peer("isthmus", broker.bootstrap), Peer("stock Kafka", kafka.bootstrap))
            lose_ours(made.ours, broker.folder / "data")
            lose_stock(made.stock, directories)
            yield made
            made.close()
            made.ours.close()
            made.stock.close()


# --- Records --------------------------------------------------------------------------------------------------------


def both(case: Case) -> bytes:
    """The case is of the topic that is there; gives its id."""
    case.name = TOPIC
    return case.peer.held["topic_id"]


def in_order(answer: Any) -> Any:
    """Kafka puts partitions with errors after the others here, before them there."""
    if isinstance(answer, dict):
        return {key: in_order(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return sorted(map(in_order, answer), key=partition_of)
    return answer


def partition_of(row: Any) -> int:
    numbers = ("index", "partition_index", "partition", "partition_id")
    return next((row[name] for name in numbers if name in row), 0) if isinstance(row, dict) else 0


def without_records(answer: dict[str, Any]) -> Any:
    """Of the partition that is served, to which other scenarios append."""
    for topic in answer["responses"]:
        for row in topic["partitions"]:
            row["records"] = bool(row["records"])
    return in_order(answer)


@SCENARIOS.error(0, since=3)
def appends_to_a_partition_that_is_lost(case: Case) -> None:
    topic_id = both(case)
    for acks in (-1, 1):
        rows = [
            produce.PartitionProduceData(index=index, records=batch(base_timestamp_ms=case.now_ms()))
            for index in (LOST, SERVED)
        ]
        topic = produce.TopicProduceData(name=TOPIC, topic_id=topic_id, partition_data=rows)
        case.compare(produce.Request(acks=acks, timeout_ms=5_000, topic_data=[topic]), only=in_order)


@SCENARIOS.error(0, since=3, ends=True)
def appends_unanswered_to_a_partition_that_is_lost(case: Case) -> None:
    topic_id = both(case)
    case.send(produce_request(case, batch(base_timestamp_ms=case.now_ms()), topic_id, acks=0, partition=LOST))
    case.expect_closed()


@SCENARIOS.error(1)
def fetch_of_a_partition_that_is_lost(case: Case) -> None:
    topic_id = both(case)
    for offset in (0, 999):
        rows = [fetch_partition(offset, LOST), fetch_partition(0, SERVED)]
        topic = fetch.FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=rows)
        case.compare(fetch.Request(max_wait_ms=WAIT_MS, max_bytes=1 << 20, topics=[topic]), only=without_records)


@SCENARIOS.error(2)
def offsets_of_a_partition_that_is_lost(case: Case) -> None:
    both(case)
    for timestamp, epoch in ((EARLIEST, -1), (LATEST, -1), (0, -1), (LATEST, 9)):
        if case.version < 4:
            epoch = -1
        rows = [
            list_offsets.ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
            for index in (LOST, SERVED)
        ]
        topic = list_offsets.ListOffsetsTopic(name=TOPIC, partitions=rows)
        case.compare(list_offsets.Request(replica_id=-1, topics=[topic], timeout_ms=5_000), only=in_order)


@SCENARIOS.error(21)
def records_to_delete_of_a_partition_that_is_lost(case: Case) -> None:
    both(case)
    rows = [delete_records.DeleteRecordsPartition(partition_index=index, offset=1) for index in (LOST, SERVED)]
    topic = delete_records.DeleteRecordsTopic(name=TOPIC, partitions=rows)
    case.compare(delete_records.Request(topics=[topic], timeout_ms=5_000), only=in_order)


@SCENARIOS.error(23)
def epochs_of_a_partition_that_is_lost(case: Case) -> None:
    both(case)
    rows = [epochs.OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in (LOST, SERVED)]
    case.compare(epochs.Request(topics=[epochs.OffsetForLeaderTopic(topic=TOPIC, partitions=rows)]), only=in_order)


@SCENARIOS.error(61)
def producers_of_a_partition_that_is_lost(case: Case) -> None:
    both(case)
    case.compare(describe_producers.request(TOPIC, LOST, SERVED), only=in_order)


# --- Where it is ----------------------------------------------------------------------------------------------------


@SCENARIOS.error(3)
def the_leader_of_a_partition_that_is_lost(case: Case) -> None:
    both(case)
    case.compare(metadata_request(TOPIC), only=in_order)


@SCENARIOS.error(75)
def the_page_of_a_partition_that_is_lost(case: Case) -> None:
    both(case)
    case.compare(describe_topic_partitions.request(TOPIC), only=in_order)


@SCENARIOS.error(43)
def elections_for_a_partition_that_is_lost(case: Case) -> None:
    both(case)
    case.compare(elect_leaders.request((TOPIC, [LOST, SERVED])), only=in_order)
    if case.version >= 1:
        case.compare(elect_leaders.request((TOPIC, [LOST, SERVED]), kind=elect_leaders.UNCLEAN), only=in_order)


@SCENARIOS.error(35)
def the_directory_of_a_partition_that_is_lost(case: Case) -> None:
    both(case)
    topic = describe_log_dirs.DescribableLogDirTopic(topic=TOPIC, partitions=[LOST, SERVED])
    case.compare(describe_log_dirs.Request(topics=[topic]))


@SCENARIOS.error(34)
def a_move_of_a_partition_that_is_lost(case: Case) -> None:
    both(case)
    about = case.prepare(describe_log_dirs.Request(topics=None)).results
    [path] = [each.log_dir for each in about if each.error_code == 0]
    case.compare(alter_replica_log_dirs.request(path, (TOPIC, [LOST, SERVED])), only=in_order)


# --------------------------------------------------------------------------------------------------------------------


def cases() -> list[tuple[Scenario, int]]:
    return [(scenario, version) for scenario in SCENARIOS for version in scenario.versions]


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case[0].label}-v{case[1]}")
def test_answers_are_equal(case: tuple[Scenario, int], pair: Comparison) -> None:
    assert pair.differences(*case) == []


def test_the_tables_are_what_was_told(pair: Comparison) -> None:
    assert pair.wrong_in_tables(cases()) == []
