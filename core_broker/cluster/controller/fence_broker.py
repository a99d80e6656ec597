"""FenceBroker: a broker whose session is over leads no more, and leaves every ISR."""

from __future__ import annotations

from dataclasses import dataclass

from ....protocol.errors import KafkaError
from .common import Decision, Item, View
from .leadership import fenced


@dataclass(slots=True, frozen=True)
class FenceBroker:
    """Id and epoch as the session had them: a process that registered since is not meant. Result: an Item."""

    broker_id: int
    broker_epoch: int

    def decide(self, view: View) -> Decision:
        broker = view.image.brokers.get(self.broker_id)
        if broker is None or broker.epoch != self.broker_epoch or broker.fenced:
            return Decision(Item())
        if view.sessions.is_valid(broker, view.now_ms):
            return Decision(Item())  # it was heard of again meanwhile
        return Decision(Item(), [*fenced(view, broker)])

    def fail(self, error: KafkaError) -> Item:
        return Item(error.code, error.message)
