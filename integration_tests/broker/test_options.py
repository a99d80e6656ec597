"""Broker options, as stock Kafka lists them: each is one of ours, or whoever sets it is told what holds here."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from isthmus.core_broker.config import BROKER_OPTIONS
from isthmus.core_broker.kafka_only import instead

OURS = [option.name for option in BROKER_OPTIONS]


def test_each_of_kafkas_is_ours_or_has_a_word(kafka: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    [node_id] = admin.list_topics(timeout=30).brokers
    [described] = admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node_id))]).values()
    names = list(described.result(timeout=30))
    assert len(names) > 300 and "num.partitions" in names  # the control: these are a broker's
    assert [name for name in names if name not in OURS and instead(name) is None] == []
    assert [name for name in OURS if instead(name) is not None] == []
