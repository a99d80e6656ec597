"""Bootstrap: the first active controller of a new cluster finalizes its features (KIP-778)."""

from __future__ import annotations

from dataclasses import dataclass

from ....protocol.errors import KafkaError
from ....protocol.messages.metadata_records import FeatureLevelRecord
from ..features import NEW_CLUSTER
from .common import Decision, Item, View


@dataclass(slots=True, frozen=True)
class Bootstrap:
    """Result: an Item. A cluster that has levels keeps them."""

    def decide(self, view: View) -> Decision:
        if view.image.features:
            return Decision(Item())
        return Decision(
            Item(), [FeatureLevelRecord(name=name, feature_level=level) for name, level in NEW_CLUSTER.items()]
        )

    def fail(self, error: KafkaError) -> Item:
        return Item(error.code, error.message)
