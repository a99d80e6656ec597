"""Broker options, as stock Kafka describes them: each is one of ours, and nothing of it is told otherwise."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from isthmus.core_broker.config import BROKER_OPTIONS


def test_each_of_kafkas_is_ours(kafka: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    [node_id] = admin.list_topics(timeout=30).brokers
    [described] = admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node_id))]).values()
    names = list(described.result(timeout=30))
    assert len(names) > 300 and "num.partitions" in names  # the control: these are a broker's
    assert sorted(names) == [option.name for option in BROKER_OPTIONS if not (option.own or option.unseen)]
    assert [option.name for option in BROKER_OPTIONS if not (option.doc or option.inert or option.refused)] == []
