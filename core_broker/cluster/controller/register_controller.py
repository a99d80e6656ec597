"""RegisterController, UnregisterController: controllers make their addresses and features known (KIP-919)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata_records import RegisterControllerRecord, UnregisterControllerRecord
from ..features import METADATA_VERSION
from ..image import Endpoint, Levels, endpoint_rows, feature_rows
from .common import Decision, Item, View
from .mirror_links import check_reads_links

CAN_UNREGISTER = 33  # the metadata.version from which on a registration can be taken back


@dataclass(slots=True, frozen=True)
class RegisterController:
    """One process of a controller. Result: an Item."""

    controller_id: int
    incarnation_id: bytes
    endpoints: Mapping[str, Endpoint]
    features: Mapping[str, Levels] = field(default_factory=dict)

    def decide(self, view: View) -> Decision:
        check_reads_links(view.image, self.controller_id, self.features)
        record = RegisterControllerRecord(
            controller_id=self.controller_id,
            incarnation_id=self.incarnation_id,
            end_points=endpoint_rows(self.endpoints),
            features=feature_rows(self.features),
        )
        return Decision(Item(), [record])

    def fail(self, error: KafkaError) -> Item:
        return Item(error.code, error.message)


@dataclass(slots=True, frozen=True)
class UnregisterController:
    """Result: an Item."""

    controller_id: int

    def decide(self, view: View) -> Decision:
        image = view.image
        if image.features.get(METADATA_VERSION, 0) < CAN_UNREGISTER:
            reason = "The current MetadataVersion is too old to support controller unregistration."
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason)
        if self.controller_id not in image.controllers:
            reason = f"Controller ID {self.controller_id} is not currently registered."
            raise KafkaError(ErrorCode.CONTROLLER_ID_NOT_REGISTERED, reason)
        return Decision(Item(), [UnregisterControllerRecord(controller_id=self.controller_id)])

    def fail(self, error: KafkaError) -> Item:
        return Item(error.code, error.message)
