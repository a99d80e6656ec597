"""What `isthmus cluster status` and `isthmus quorum status` make of a cluster's answers."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.client import TopicPartition
from isthmus.console.clusters import Facts, quorum_told, told
from isthmus.console.partitions import node_ids, parsed
from isthmus.deploy.errors import DeployError
from isthmus.protocol.messages.describe_cluster import DescribeClusterBroker
from isthmus.protocol.messages.describe_quorum import Listener, Node, PartitionData, ReplicaState
from isthmus.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic


def broker(node: int, fenced: bool = False) -> DescribeClusterBroker:
    return DescribeClusterBroker(broker_id=node, host="h", port=9000 + node, rack=f"r{node}", is_fenced=fenced)


def topic(*partitions: tuple[int, list[int], list[int]]) -> MetadataResponseTopic:
    rows = [
        MetadataResponsePartition(partition_index=i, leader_id=leader, replica_nodes=replicas, isr_nodes=isr)
        for i, (leader, replicas, isr) in enumerate(partitions)
    ]
    return MetadataResponseTopic(name="t", partitions=rows)


def facts(*partitions: tuple[int, list[int], list[int]], **more: Any) -> Facts:
    return Facts("c", 2, [broker(1), broker(2), broker(3, fenced=True)], [topic(*partitions)], **more)


def test_brokers_are_told_with_what_they_lead_and_lack() -> None:
    rows = told(facts((1, [1, 2], [1, 2]), (2, [2, 3, 4], [2])))["brokers"]
    shown = [(row["broker_id"], row["state"], row["leads"], row["replicas"], row["not_in_sync"]) for row in rows]
    assert shown == [
        (1, "active", 1, 1, 0), (2, "active", 1, 2, 0), (3, "fenced", 0, 1, 1), (4, "unknown", 0, 1, 1),
    ]  # fmt: skip
    assert [row["broker_id"] for row in rows if row["controller"]] == [2]
    assert rows[0]["address"] == "h:9001" and rows[3]["address"] is None


def test_each_replica_that_is_not_in_sync_has_its_reason() -> None:
    tps = [TopicPartition("t", i) for i in range(3)]
    ends = {(1, tps[1]): 100, (2, tps[1]): 60, (1, tps[2]): 9, (2, tps[2]): 4}
    one, other = (1, [1, 3, 4], [1]), (1, [1, 2], [1])
    more: dict[str, Any] = {"ends": ends, "adding": {tps[2]: (2,)}, "min_isr": {"t": 3}}
    said = told(facts(one, other, other, (1, [1, 2], [1, 2]), **more))
    assert said["offline"] == [] and said["moving"] == 1
    assert [row["reason"] for row in said["under_replicated"]] == [
        "broker 3 is fenced: it is down, or the controller does not hear of it; broker 4 is not in the cluster",
        "broker 2 lags, 40 records behind",
        "broker 2 is new to it and copies it, 5 records behind",
    ]
    assert [row["min_isr"] for row in said["under_replicated"]] == [3, 2, 2]  # no more than there are replicas


def test_replica_on_a_full_disk_is_told_with_what_the_disk_has() -> None:
    found = facts((1, [1, 2], [1]), (1, [1, 2], [1]), space={2: (1 << 19, 24 << 20)})
    found.topics[0].partitions[0].offline_replicas = [2]
    assert [row["reason"] for row in told(found)["under_replicated"]] == [
        "its log cannot be used on broker 2, whose disk has 0.5 of 24.0 MiB free: see that broker's log",
        "broker 2 lags",
    ]


def test_a_partition_without_a_leader_names_who_may_lead() -> None:
    tps = [TopicPartition("t", i) for i in range(3)]
    said = told(facts((-1, [3], [3]), (-1, [2, 3], []), (-1, [1], [1]), eligible={tps[1]: (3,)}))
    assert said["under_replicated"] == []
    assert [(row["partition"], row["reason"]) for row in said["offline"]] == [
        (0, "broker 3 is fenced: it is down, or the controller does not hear of it"),
        (1, "broker 3 is fenced: it is down, or the controller does not hear of it"),
        (2, "its log cannot be used on broker 1: see that broker's log"),
    ]
    [row] = told(facts((-1, [2, 3], [])))["offline"]
    assert row["reason"] == "no replica that has all committed records is known: start all of its brokers"


def test_voters_and_observers_are_told_with_their_lag() -> None:
    voters = [
        ReplicaState(replica_id=2, log_end_offset=90, last_caught_up_timestamp=4_000),
        ReplicaState(replica_id=1, log_end_offset=100, last_caught_up_timestamp=5_000),
        ReplicaState(replica_id=3, log_end_offset=-1, last_caught_up_timestamp=-1),
    ]
    observers = [ReplicaState(replica_id=9, log_end_offset=100, last_caught_up_timestamp=4_990)]
    said = PartitionData(leader_id=1, leader_epoch=7, high_watermark=95, current_voters=voters, observers=observers)
    found = quorum_told(said, [Node(node_id=1, listeners=[Listener(name="CONTROLLER", host="h", port=1)])])
    assert (found["leader_id"], found["leader_epoch"], found["high_watermark"]) == (1, 7, 95)
    rows = [(row["node_id"], row["role"], row["leader"], row["lag"], row["caught_up"]) for row in found["replicas"]]
    assert rows == [
        (1, "voter", True, 0, "0.0 s ago"), (2, "voter", False, 10, "1.0 s ago"), (3, "voter", False, None, "never"),
        (9, "observer", False, 0, "0.0 s ago"),
    ]  # fmt: skip
    assert [row["address"] for row in found["replicas"]] == ["h:1", None, None, None]


def test_partitions_and_brokers_are_written_as_people_write_them() -> None:
    assert parsed("a-b-12") == TopicPartition("a-b", 12)
    assert node_ids("3, 1,2") == [3, 1, 2]
    for text in ("a", "a-", "-1", "a-b", "a-²"):
        with pytest.raises(DeployError, match="is not TOPIC-PARTITION, such as orders-3"):
            parsed(text)
    for text in ("1;2", "1,", "one"):
        with pytest.raises(DeployError, match="write ids of brokers with commas between"):
            node_ids(text)
