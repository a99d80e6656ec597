"""What takes more than one node: the same bytes to three of our brokers and to three nodes of stock Kafka.

One history on both, with broker 3 stopped in its middle, and all answers compared; and the codes that only such a
cluster gives (`absent_codes.py` has their names) were really given by stock Kafka. Where Kafka gives no message with an
error, ours may.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from integration_tests.waiting import until
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.messages import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    incremental_alter_configs,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_for_leader_epoch,
    produce,
    unregister_broker,
    update_features,
)

from .absent_codes import THREE_NODES
from .batches import batch
from .trios import SETTLE_S, Trio, both_after, differences

PREFERRED, UNCLEAN = 0, 1
BATCH = batch()
AFTER_FENCING_MS = 10_000  # a broker that hangs is fenced within broker.session.timeout.ms
REPLICA_STATE_SINCE = 15  # version of Fetch
OLD_PRODUCE = range(3)  # versions of Produce for batches of other formats


# --- Requests -------------------------------------------------------------------------------------------------------


def appended(name: str, topic_id: bytes, acks: int = -1, timeout_ms: int = 20_000) -> produce.Request:
    data = produce.PartitionProduceData(index=0, records=BATCH)
    topic = produce.TopicProduceData(name=name, topic_id=topic_id, partition_data=[data])
    return produce.Request(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


def fetched(name: str, topic_id: bytes, **fields: Any) -> fetch.Request:
    wanted = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = fetch.FetchTopic(topic=name, topic_id=topic_id, partitions=[wanted])
    return fetch.Request(max_wait_ms=0, max_bytes=1 << 20, session_epoch=-1, topics=[topic], **fields)


def offsets(name: str, timestamp: int = -1) -> list_offsets.Request:
    wanted = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return list_offsets.Request(
        replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=name, partitions=[wanted])], timeout_ms=5_000
    )


def epochs(name: str) -> offset_for_leader_epoch.Request:
    row = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic=name, partitions=[row])
    return offset_for_leader_epoch.Request(replica_id=-1, topics=[topic])


def deleted(name: str, offset: int, timeout_ms: int = 20_000) -> delete_records.Request:
    row = delete_records.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = delete_records.DeleteRecordsTopic(name=name, partitions=[row])
    return delete_records.Request(topics=[topic], timeout_ms=timeout_ms)


def producers(name: str) -> describe_producers.Request:
    return describe_producers.Request(topics=[describe_producers.TopicRequest(name=name, partition_indexes=[0])])


def moved(name: str, replicas: list[int] | None, **fields: Any) -> alter_partition_reassignments.Request:
    row = alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=replicas)
    topic = alter_partition_reassignments.ReassignableTopic(name=name, partitions=[row])
    return alter_partition_reassignments.Request(topics=[topic], timeout_ms=20_000, **fields)


def moving(name: str | None) -> list_partition_reassignments.Request:
    topic = list_partition_reassignments.ListPartitionReassignmentsTopics(name=name or "", partition_indexes=[0])
    return list_partition_reassignments.Request(topics=None if name is None else [topic], timeout_ms=20_000)


def elected(name: str, kind: int = PREFERRED) -> elect_leaders.Request:
    topic = elect_leaders.TopicPartitions(topic=name, partitions=[0])
    return elect_leaders.Request(election_type=kind, topic_partitions=[topic], timeout_ms=20_000)


def grown(name: str, count: int, *assignment: list[int]) -> create_partitions.Request:
    rows = [create_partitions.CreatePartitionsAssignment(broker_ids=nodes) for nodes in assignment]
    topic = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=rows or None)
    return create_partitions.Request(topics=[topic], timeout_ms=20_000)


def made(name: str, factor: int = -1, assignment: list[int] | None = None) -> create_topics.Request:
    rows = [create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=assignment)] if assignment else []
    topic = create_topics.CreatableTopic(
        name=name, num_partitions=-1 if rows else 1, replication_factor=factor, assignments=rows
    )
    return create_topics.Request(topics=[topic], timeout_ms=20_000, validate_only=True)


def described(*names: str) -> list[Any]:
    return [
        metadata.Request(topics=[metadata.MetadataRequestTopic(name=each) for each in names]),
        describe_topic_partitions.Request(
            topics=[describe_topic_partitions.TopicRequest(name=each) for each in sorted(names)]
        ),
    ]


def log_dirs(name: str) -> describe_log_dirs.Request:
    return describe_log_dirs.Request(topics=[describe_log_dirs.DescribableLogDirTopic(topic=name, partitions=[0])])


QUORUM = describe_quorum.Request(
    topics=[
        describe_quorum.TopicRequest(
            topic_name="__cluster_metadata", partitions=[describe_quorum.PartitionRequest(partition_index=0)]
        )
    ]
)


# --- The history ----------------------------------------------------------------------------------------------------


def history(trio: Trio) -> dict[str, Any]:
    """What both are asked, in this order."""
    until(lambda: trio.alive() == [1, 2, 3], "all brokers are there", SETTLE_S)
    all_three = trio.create("all", [1, 2, 3], retention_ms="-1")
    sole = trio.create("sole", [1], retention_ms="-1")
    for name, topic_id in (("all", all_three), ("sole", sole)):
        trio.every_version(f"append to {name}", 1, appended(name, topic_id, acks=1), OLD_PRODUCE)
        not_led(trio, name, topic_id)
    at_controllers(trio)
    refused_placements(trio)
    moves_of_living_brokers(trio)
    broker_3_stops(trio)
    return trio.answers


def not_led(trio: Trio, name: str, topic_id: bytes) -> None:
    """Node 2 does not lead it: it follows, or has none of it. What it has may be behind, and is not compared."""
    trio.every_version(f"{name} at another than its leader", 2, appended(name, topic_id), OLD_PRODUCE)
    for request in (epochs(name), deleted(name, 1), producers(name)):
        trio.every_version(f"{name} at another than its leader", 2, request)
    trio.every_version(f"{name} at another than its leader", 2, offsets(name))
    old = fetched(name, topic_id, replica_id=3)
    trio.every_version(f"{name} to another follower", 2, old, range(REPLICA_STATE_SINCE, 99))
    new = fetched(name, topic_id, replica_state=fetch.ReplicaState(replica_id=3, replica_epoch=-1))
    trio.every_version(f"{name} to another follower", 2, new, range(REPLICA_STATE_SINCE))
    if name == "sole":
        trio.every_version(f"{name} at another than its leader", 2, fetched(name, topic_id))
        trio.keep("a replica it has not", 2, alter_replica_log_dirs.Request())
        trio.keep("logs it has not", 2, log_dirs(name))
    trio.keep("logs it has", 1, log_dirs(name))


def at_controllers(trio: Trio) -> None:
    """At the listener of a controller that follows, and of brokers for the same."""
    follower = trio.following_controller()
    state = delete_topics.DeleteTopicState(name="all")
    requests = (
        made("x"), delete_topics.Request(topics=[state], timeout_ms=5_000), grown("all", 2), elected("all"),
        incremental_alter_configs.Request(resources=[incremental_alter_configs.AlterConfigsResource(
            resource_type=2, resource_name="all",
            configs=[incremental_alter_configs.AlterableConfig(name="retention.ms", config_operation=0, value="9")],
        )]),
        moved("all", [3, 2, 1]), moving(None), update_features.Request(timeout_ms=5_000, validate_only=True),
        unregister_broker.Request(broker_id=9), QUORUM,
    )  # fmt: skip
    for request in requests:
        trio.keep("it follows", follower, request, controller=True)
    trio.keep("a broker that is not there", 2, unregister_broker.Request(broker_id=9))
    for node in (1, 2, 3):
        trio.keep("all brokers", node, describe_cluster.Request())


def refused_placements(trio: Trio) -> None:
    trio.keep("a factor above the brokers", 2, made("x", 4))
    trio.keep("an unknown broker", 2, made("x", assignment=[1, 9]))
    trio.keep("a broker twice", 3, made("x", assignment=[1, 1]))
    trio.keep("no replicas", 3, grown("all", 2, []))
    trio.keep("another factor", 3, grown("all", 2, [1, 2]))
    trio.keep("an unknown broker", 3, grown("all", 2, [1, 2, 9]))
    for what, replicas in (("an unknown broker", [1, 9]), ("a broker twice", [1, 1]), ("nowhere", [])):
        trio.keep(what, 2, moved("sole", replicas))
    trio.keep("nothing to take back", 2, moved("sole", None))
    trio.keep("no such topic", 2, moved("none", [1]))
    trio.keep("another factor", 3, moved("sole", [1, 2], allow_replication_factor_change=False))
    trio.keep("it leads", 2, elected("all"))
    trio.keep("it has a leader", 2, elected("sole", UNCLEAN))
    trio.keep("no such topic", 3, elected("none"))


def moves_of_living_brokers(trio: Trio) -> None:
    """A copy to another broker, and another order of replicas, whose first then leads by an election."""
    trio.create("moved", [1, 2])
    trio.keep("to 3", 1, moved("moved", [1, 3]))
    until(lambda: not trio.ask(1, moving(None)).topics, "the copy is made", SETTLE_S)
    until(lambda: sorted(trio.partitions("moved")[0].isr_nodes) == [1, 3], "it is in sync", SETTLE_S)
    trio.keep("the other order", 2, moved("moved", [3, 1]))
    until(lambda: trio.partitions("moved", 2)[0].replica_nodes == [3, 1], "the order is known", SETTLE_S)
    trio.keep("the first leads", 2, elected("moved"))
    until(lambda: trio.partitions("moved")[0].leader_id == 3, "it leads", SETTLE_S)
    for request in described("moved"):
        trio.keep("after a move", 1, request)


def broker_3_stops(trio: Trio) -> None:
    trio.elect_another_than(3)
    strict = trio.create("strict", [1, 2, 3], min_insync_replicas="3", retention_ms="-1")
    waits = trio.create("waits", [1, 3], retention_ms="-1")
    shrinks = trio.create("shrinks", [1, 3], min_insync_replicas="2", retention_ms="-1")
    trio.create("led", [3, 1])
    trio.create("gone", [3])
    trio.create("target", [1, 2])
    trio.keep("all in sync", 1, appended("strict", strict))
    trio.keep("all in sync", 1, appended("waits", waits))
    trio.signal(3, signal.SIGSTOP)
    try:
        trio.keep("a follower hangs", 1, appended("waits", waits, timeout_ms=300))
        trio.keep("a follower hangs", 1, deleted("waits", 2, timeout_ms=300))
        trio.keep("too few in sync after the append", 1, appended("shrinks", shrinks, timeout_ms=AFTER_FENCING_MS))
        until(lambda: trio.alive(1) == trio.alive(2) == [1, 2], "broker 3 is fenced", SETTLE_S)
        until(partial(refuses, trio, appended("strict", strict, timeout_ms=300)), "it left the ISR", SETTLE_S)
        until(lambda: trio.partitions("led")[0].leader_id == 1, "1 leads", SETTLE_S)
        trio.every_version("too few in sync", 1, appended("strict", strict), range(12))
        trio.keep("no more", 1, deleted("waits", 1))
        for request in described("led", "gone", "strict"):
            trio.keep("one is fenced", 2, request)
        trio.keep("one is fenced", 2, describe_cluster.Request(include_fenced_brokers=True), 2)
        trio.keep("the preferred is fenced", 2, elected("led"))
        trio.keep("nobody to elect", 2, elected("gone"))
        trio.keep("nobody to elect, not even one that lacks records", 2, elected("gone", UNCLEAN))
        trio.keep("its leader is fenced", 1, offsets("gone"))
        trio.keep("a factor above those that live", 1, made("x", 3), 4)
        trio.keep("to one that is fenced", 1, moved("target", [1, 3]))
        trio.keep("under way", 2, moving(None))
        trio.keep("under way", 2, moving("target"))
        for request in described("target"):
            trio.keep("while it moves", 1, request)
        trio.keep("taken back", 1, moved("target", None))
        trio.keep("nothing is under way", 2, moving(None))
    finally:
        trio.signal(3, signal.SIGCONT)


def refuses(trio: Trio, request: produce.Request) -> bool:
    answer = trio.ask(1, request)
    return bool(answer.responses[0].partition_responses[0].error_code == E.NOT_ENOUGH_REPLICAS)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Trio, Trio]]:
    """Ours and stock Kafka's, after the history."""
    with both_after(history, tmp_path_factory.mktemp("three")) as made:
        yield made


def test_answers_are_equal(both: tuple[Trio, Trio]) -> None:
    assert list(both[0].answers) == list(both[1].answers)
    wrong = differences(*both)
    assert wrong == [], "\n".join(wrong)


def test_these_codes_were_given(both: tuple[Trio, Trio]) -> None:
    given = dict.fromkeys(both[1].codes)
    assert [(key, code) for key, codes in THREE_NODES.items() for code in codes if (key, code) not in given] == []
