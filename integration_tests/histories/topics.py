"""What a history asks about its topics: to be created, to have all replicas in sync and alike, and where they end."""

from __future__ import annotations

import asyncio
import contextlib
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.histories import clusters
from integration_tests.histories.clusters import Cluster
from integration_tests.histories.workers import PARTITIONS, SETTLE_S
from integration_tests.waiting import until


def create(admin: AdminClient, topic: str) -> None:
    """Ask again where the answer is lost, as with a node that was just started again."""

    def created() -> bool:
        try:
            admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(30)
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
        return True

    until(created, f"{topic} is created", SETTLE_S)


async def settled(admin: AdminClient, topic: str) -> str:
    """Wait until all replicas are in sync; what is not so after SETTLE_S, or ""."""
    deadline = time.monotonic() + SETTLE_S
    said = ""
    while time.monotonic() < deadline:
        try:
            told = await asyncio.to_thread(admin.list_topics, topic, 5)
        except KafkaException as error:
            said = str(error)
            continue
        partitions = told.topics[topic].partitions.values()
        behind = [f"partition {each.id}: leader {each.leader}, in sync {each.isrs}" for each in partitions
                  if each.leader < 0 or len(each.isrs) < 3]  # fmt: skip
        if not behind and partitions:
            return ""
        said = "; ".join(behind)
        await asyncio.sleep(0.2)
    return f"not all replicas are in sync after {SETTLE_S:g} s: {said}"


async def differences(cluster: Cluster, topic: str) -> list[str]:
    """Partitions whose replicas do not have the same bytes after SETTLE_S."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        found = []
        for partition in range(PARTITIONS):
            logs = {node: cluster.log(node, topic, partition) for node in clusters.NODES}
            if len(set(logs.values())) > 1:
                sizes = {node: len(log) for node, log in logs.items()}
                found.append(f"partition {partition}: replicas differ; their bytes by node are {sizes}")
        if not found or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.2)


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    """The high watermarks. Asks again where a node does not know the leader yet."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "log_level": 0})
    found: dict[int, int] = {}

    def told() -> bool:
        with contextlib.suppress(KafkaException):
            for partition in range(PARTITIONS):
                found[partition] = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1]
            return True
        return False

    try:
        until(told, f"the ends of {topic} are told", SETTLE_S)
    finally:
        consumer.close()
    return found
