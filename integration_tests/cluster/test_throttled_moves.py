"""Replicas that move under a throttle, by Kafka's own tool and by ours: it is set, seen, and lifted at the end."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from integration_tests.brokers import BrokerProcess, running_cluster
from integration_tests.console.commands import isthmus, said
from integration_tests.peers.peers import run
from integration_tests.waiting import until

TOPIC, RECORDS, VALUE_BYTES = "big", 120, 50_000


def throttles(admin: AdminClient) -> dict[str, str]:
    resources = [ConfigResource(ResourceType.TOPIC, TOPIC)]
    resources += [ConfigResource(ResourceType.BROKER, str(number)) for number in (1, 2, 3)]
    return {
        f"{resource.name}:{name}": entry.value
        for resource in resources
        for name, entry in admin.describe_configs([resource])[resource].result(20).items()
        if "replication.throttled" in name and entry.value
    }


def lag(broker: BrokerProcess) -> float:
    """How many records of the topic a follower lacks, by its metrics; that of the partition is the largest."""
    [where] = re.findall(r"metrics and health at (http://[^/]+/metrics)", broker.log)
    with urllib.request.urlopen(where, timeout=10) as answer:
        told = answer.read().decode()
    [own] = re.findall(
        rf'^kafka_server_fetcherlagmetrics_consumerlag{{topic="{TOPIC}",partition="0"}} (\S+)$', told, re.MULTILINE
    )
    [largest] = re.findall(r"^kafka_server_replicafetchermanager_maxlag (\S+)$", told, re.MULTILINE)
    assert own == largest
    return float(own)


def test_a_throttle_is_set_and_lifted(tmp_path: Path) -> None:
    with running_cluster(tmp_path, settings={"metrics.listener": "127.0.0.1:0"}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1]])])[TOPIC].result(20)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for _ in range(RECORDS):
            producer.produce(TOPIC, bytes(VALUE_BYTES))
        assert producer.flush(30) == 0
        at = ("-b", cluster.bootstrap)

        wanted = tmp_path / "moves.json"
        wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": [2]}]}))
        tool = ("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--bootstrap-server", cluster.bootstrap)
        file = ("--reassignment-json-file", str(wanted))
        run(*tool, *file, "--execute", "--throttle", "400000")
        assert throttles(admin) == {
            f"{TOPIC}:leader.replication.throttled.replicas": "0:1",
            f"{TOPIC}:follower.replication.throttled.replicas": "0:2",
            **{f"{n}:{side}.replication.throttled.rate": "400000" for n in (1, 2) for side in ("leader", "follower")},
        }
        [row] = json.loads(said(isthmus("partition", "list-moves", "--json", *at, folder=tmp_path)))
        assert (row["adding"], row["removing"], row["throttle"]) == ([2], [1], 400_000)  # it is not done yet
        assert 0 < lag(cluster.brokers[2]) <= RECORDS

        def verified() -> bool:
            told = run(*tool, *file, "--verify")
            return f"Reassignment of partition {TOPIC}-0 is completed" in told.stdout

        until(verified, "the tool finds the move completed", 90)
        assert throttles(admin) == {}

        said(isthmus("partition", "move", f"{TOPIC}-0", "--to", "3", "--throttle", "5000000", *at, folder=tmp_path))
        assert throttles(admin) == {}
        [partition] = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.values()
        assert partition.replicas == [3]
