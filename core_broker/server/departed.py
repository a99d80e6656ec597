"""Brokers that died a moment ago. Metadata names them among the brokers for a while longer.

librdkafka drops what it has of a broker that is no longer named. If the same answer names the new leader of a partition
that the dead one led, it may drop the partition on its way to the new leader, and finds that out a second later. So the
new leader is told first, and the end of the old one later. Until a broker is fenced its clients see the same, as with
Kafka.
"""

from __future__ import annotations

import asyncio

from ..cluster.image import Delta, MetadataImage

# librdkafka asks for the leaders that it misses every second. No longer, since a broker that was only cut off may come
# back with what it knew.
LINGER_S = 1.2


class Departed:
    """A node has one. Bounded by the number of registered brokers."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._living: dict[int, None] = {}
        self._until_s: dict[int, float] = {}  # by broker id

    def metadata_changed(self, delta: Delta) -> None:
        for broker_id in delta.brokers:
            broker = self._image.brokers.get(broker_id)
            was_alive = broker_id in self._living
            self._living.pop(broker_id, None)
            self._until_s.pop(broker_id, None)
            if broker is not None and broker.is_active:
                self._living[broker_id] = None
            elif was_alive and broker is not None and broker.fenced:
                self._until_s[broker_id] = _now_s() + LINGER_S

    def is_named(self, broker_id: int) -> bool:
        until_s = self._until_s.get(broker_id)
        if until_s is None:
            return False
        if _now_s() < until_s:
            return True
        del self._until_s[broker_id]
        return False


def _now_s() -> float:
    return asyncio.get_running_loop().time()
