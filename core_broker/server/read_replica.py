"""Which replica a consumer shall read from: one in its own rack (KIP-392), by the rules of Kafka's selector.

Without `replica.selector.class` every consumer reads from the leader, as in Kafka. With it, a leader in another rack
names an in-sync follower in the consumer's: of several the one that has most, then the one that was last caught up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..replication.partition import Partition
    from ._context import Context

NOBODY = -1
SELECTOR, RACK = "replica.selector.class", "broker.rack"


def foreign_rack(rack: str, config: Mapping[str, Any]) -> str:
    """The rack that a consumer shall be sent to, if there is a replica; empty when it may read here."""
    return rack if rack and config[SELECTOR] is not None and rack != config[RACK] else ""


def preferred(partition: Partition, rack: str, offset: int, context: Context) -> int:
    """The follower in a rack that has an offset, as far as this leader knows; NOBODY if there is none."""
    leadership, brokers = partition.leadership, context.services.image.brokers
    if leadership is None:
        return NOBODY
    best = (-1, 0.0, NOBODY)
    for found in leadership.readable(offset):
        broker = brokers.get(found[-1])
        if broker is not None and not broker.fenced and broker.rack == rack and context.listener in broker.endpoints:
            best = max(best, found)
    return best[-1]
