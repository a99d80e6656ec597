"""A cluster that is only an image: each decision is applied at once. And brokers that join a controller."""

from __future__ import annotations

import random
from typing import Any

from isthmus.core_broker.cluster.controller import (
    BrokerHeartbeat,
    Controller,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopics,
    FenceBroker,
    IncrementalAlterConfigs,
    Operation,
    RegisterBroker,
    Sessions,
    View,
    new_topic,
)
from isthmus.core_broker.cluster.features import REGISTERED
from isthmus.core_broker.cluster.image import Endpoint, MetadataImage
from isthmus.core_broker.cluster.partition_image import PartitionImage
from isthmus.core_broker.config import BrokerConfig
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from isthmus.protocol.messages.metadata_records import FeatureLevelRecord, PartitionChangeRecord
from isthmus.runtime import Runtime

ENDPOINTS = {"PLAINTEXT": Endpoint("h", 9092)}
ELR = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)


async def join(controller: Controller, register: RegisterBroker | None = None) -> Any:
    """A broker registers and is unfenced. The result of the registration."""
    register = register or RegisterBroker(1, controller.runtime.uuid(), ENDPOINTS, controller.image.cluster_id)
    result = await controller.submit_wait(register)
    if not result.error_code:
        offset = controller.image.offset
        await controller.submit_wait(BrokerHeartbeat(register.broker_id, result.broker_epoch, offset))
    return result


class Cluster:
    """An image and the decisions made on it, with brokers 1 to `brokers`. Sessions are those that a test makes."""

    def __init__(self, brokers: int = 1, **options: str) -> None:
        self.image = MetadataImage("cluster-x")
        self.config = BrokerConfig({name.replace("_", "."): text for name, text in options.items()})
        self.runtime = Runtime(random.Random(7), lambda: 0, lambda: 0)
        self.sessions = Sessions()
        self.now_ms = 0.0
        self.records: list[Any] = []
        self.last: list[Any] = []  # records of the last decision
        self.starts = 0
        for broker_id in range(1, brokers + 1):
            self.start(broker_id)

    def register(self, broker_id: int, **fields: Any) -> Any:
        """A new process of a broker; it stays fenced."""
        self.starts += 1
        given: dict[str, Any] = {
            "incarnation_id": self.starts.to_bytes(16),
            "endpoints": ENDPOINTS,
            "cluster_id": "cluster-x",
            "features": REGISTERED,
        }
        return self.run(RegisterBroker(broker_id, **given | fields))

    def start(self, broker_id: int, **fields: Any) -> Any:
        """A new process of a broker, which is unfenced at once."""
        result = self.register(broker_id, **fields)
        self.beat(broker_id)
        return result

    def beat(self, broker_id: int, **fields: Any) -> Any:
        """A heartbeat of a broker that knows all."""
        broker = self.image.brokers[broker_id]
        offset = fields.pop("metadata_offset", self.image.offset)
        return self.run(BrokerHeartbeat(broker_id, fields.pop("broker_epoch", broker.epoch), offset, **fields))

    def fence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.run(FenceBroker(broker_id, self.image.brokers[broker_id].epoch))

    def run(self, command: Any) -> Any:
        view = View(self.image, self.config, self.runtime, self.image.offset + 1, self.sessions, self.now_ms)
        self.last = []
        try:
            decision = command.decide(view)
        except KafkaError as error:
            return command.fail(error)
        self.last = decision.records
        self.apply(*decision.records)
        return decision.result

    def apply(self, *records: Any) -> None:
        if records:
            self.records += records
            self.image.apply(records, self.image.offset + len(records), 0)

    def create(self, *topics: CreatableTopic, validate_only: bool = False) -> Any:
        return self.run(CreateTopics(topics, validate_only)).items

    def assign(self, name: str, *replicas: list[int], **configs: str) -> None:
        """A topic with these replicas, by partition."""
        topic = new_topic(name, configs={key.replace("_", "."): text for key, text in configs.items()})
        topic.assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(replicas)
        ]
        (item,) = self.create(topic)
        assert not item.error_code, item

    def alter(self, name: str, *changes: tuple[str, Operation, str | None], resource_type: int = 2) -> Any:
        configs = [AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
        resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
        return self.run(IncrementalAlterConfigs([resource])).items[0]

    def partition(self, topic: str = "t", index: int = 0) -> PartitionImage:
        return self.image.topics[topic].partitions[index]

    def change(self, topic: str = "t", index: int = 0, **change: Any) -> None:
        """Apply a change of a partition, whoever would decide it."""
        self.apply(PartitionChangeRecord(partition_id=index, topic_id=self.image.topics[topic].id, **change))
