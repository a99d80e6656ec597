"""UnregisterBroker: a broker that will not come back is forgotten. Its replicas stay assigned to it; who wants them
elsewhere drains it first."""

from __future__ import annotations

from dataclasses import dataclass

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata_records import UnregisterBrokerRecord
from .common import Decision, Item, View
from .leadership import unregistered


@dataclass(slots=True, frozen=True)
class UnregisterBroker:
    """Result: an Item."""

    broker_id: int

    def decide(self, view: View) -> Decision:
        broker = view.image.brokers.get(self.broker_id)
        if broker is None:
            reason = f"Broker ID {self.broker_id} is not currently registered"
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, reason)
        record = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
        return Decision(Item(), [*unregistered(view, broker.id), record])

    def fail(self, error: KafkaError) -> Item:
        return Item(error.code, error.message)
