"""AllocateProducerIds: assigns blocks of producer ids, each id only once.

Mirrored batches keep their producer ids, so two clusters must not use the same ids. The 16 bits above bit 40 are the
cluster's ordinal, derived from its id; the lower bits are a counter from the metadata log.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata_records import ProducerIdsRecord
from .common import Decision, Item, View, registered

BLOCK_SIZE = 1000
COUNTER_BITS = 40
OWN = NO_EPOCH = -1


@dataclass(slots=True)
class ProducerIdBlock(Item):
    """Ids `first_producer_id` to `first_producer_id + count - 1`."""

    first_producer_id: int = -1
    count: int = 0


@dataclass(slots=True, frozen=True)
class AllocateProducerIds:
    """A block of ids for a broker; for the controller's own if none is named. Result: a ProducerIdBlock.

    broker_epoch: as the broker says it. None if it is not asked for, because the broker and the controller are one.
    """

    count: int = BLOCK_SIZE
    broker_id: int = OWN
    broker_epoch: int | None = None

    def decide(self, view: View) -> Decision:
        brokers = view.image.brokers
        broker_id, epoch = self.broker_id, self.broker_epoch
        if broker_id == OWN:
            broker_id = view.config["node.id"]
        if epoch is None:
            epoch = brokers[broker_id].epoch if broker_id in brokers else NO_EPOCH
        registered(view.image, broker_id, epoch)
        first = max(view.image.next_producer_id, cluster_ordinal(view.image.cluster_id) << COUNTER_BITS)
        if (first + self.count) >> COUNTER_BITS != first >> COUNTER_BITS:
            reason = f"cluster {view.image.cluster_id} has assigned all its producer ids"
            return Decision(self.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)))
        record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=epoch, next_producer_id=first + self.count)
        return Decision(ProducerIdBlock(first_producer_id=first, count=self.count), [record])

    def fail(self, error: KafkaError) -> ProducerIdBlock:
        return ProducerIdBlock(error.code, error.message)


def cluster_ordinal(cluster_id: str) -> int:
    """16 bits of a cluster's id."""
    return zlib.crc32(cluster_id.encode()) & 0xFFFF
