"""RegisterBroker: a broker joins the cluster, and its partitions get a new leader epoch.

Each start raises the leader epochs, since a broker that crashed may have lost the end of its logs. Clients and
followers that know the old epoch then find out that records are gone (KIP-101).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....protocol.errors import KafkaError
from ....protocol.messages.metadata_records import BrokerEndpoint, PartitionChangeRecord, RegisterBrokerRecord
from ..image import NO_LEADER, Endpoint
from .common import Decision, Item, View


@dataclass(slots=True)
class RegisteredBroker(Item):
    broker_epoch: int = -1


@dataclass(slots=True, frozen=True)
class RegisterBroker:
    """One start of a broker. endpoints: advertised addresses by listener. Result: a RegisteredBroker."""

    broker_id: int
    incarnation_id: bytes
    endpoints: Mapping[str, Endpoint]
    rack: str | None = None

    def decide(self, view: View) -> Decision:
        records: list[Any] = [
            RegisterBrokerRecord(
                broker_id=self.broker_id,
                incarnation_id=self.incarnation_id,
                broker_epoch=view.next_offset,
                end_points=[
                    BrokerEndpoint(name=name, host=each.host, port=each.port, security_protocol=each.security_protocol)
                    for name, each in self.endpoints.items()
                ],
                rack=self.rack,
                fenced=False,
            )
        ]
        for topic in view.image.topics.values():
            for index, partition in topic.partitions.items():
                # Kafka's controller takes the last replica out of the ISR when its broker stops (KIP-966).
                is_only_copy = partition.replicas == (self.broker_id,)
                may_lead = partition.leader == NO_LEADER and (self.broker_id in partition.isr or is_only_copy)
                if partition.leader == self.broker_id or may_lead:
                    change = PartitionChangeRecord(partition_id=index, topic_id=topic.id, leader=self.broker_id)
                    if self.broker_id not in partition.isr:
                        change.isr = [self.broker_id]
                    records.append(change)
        return Decision(RegisteredBroker(broker_epoch=view.next_offset), records)

    def fail(self, error: KafkaError) -> RegisteredBroker:
        return RegisteredBroker(error.code, error.message)
