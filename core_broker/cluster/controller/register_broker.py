"""RegisterBroker: a process of a broker joins the cluster. It is fenced until its first heartbeats show that it knows
the cluster's state.

Each process is an incarnation of its own, and gets a new broker epoch: the offset of its registration. What the last
one led gets a new leader, or none for now, so that leader epochs grow: a broker that crashed may have lost the end of
its logs, and those that know the old epoch then find out that records are gone (KIP-101).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata_records import RegisterBrokerRecord
from ....protocol.primitives import uuid_to_str
from ..features import METADATA_VERSION
from ..image import Endpoint, Levels, MetadataImage, endpoint_rows, feature_rows
from .common import Decision, Item, View
from .leadership import restarted
from .mirror_links import check_reads_links

RESERVED_DIRECTORIES = 100  # ids below that name none
NEVER = -1


@dataclass(slots=True)
class RegisteredBroker(Item):
    broker_epoch: int = -1


@dataclass(slots=True, frozen=True)
class RegisterBroker:
    """One process of a broker. endpoints: advertised addresses by listener. Result: a RegisteredBroker.

    cluster_id: as the broker has it. previous_epoch: the broker epoch that it had when it last stopped cleanly; NEVER
    if it did not, or cannot say (it is older than KIP-966).
    """

    broker_id: int
    incarnation_id: bytes
    endpoints: Mapping[str, Endpoint]
    cluster_id: str
    rack: str | None = None
    features: Mapping[str, Levels] = field(default_factory=dict)
    log_dirs: Sequence[bytes] = ()
    previous_epoch: int = NEVER

    def decide(self, view: View) -> Decision:
        image = view.image
        if self.cluster_id != image.cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"Expected cluster ID {image.cluster_id}, but got cluster ID {self.cluster_id}",
            )
        existing = image.brokers.get(self.broker_id)
        is_same = existing is not None and existing.incarnation_id == self.incarnation_id
        if existing is not None and not is_same and view.sessions.is_valid(existing, view.now_ms):
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                "Another broker is registered with that broker id. If the broker was recently restarted this should "
                "self-resolve once the heartbeat manager expires the broker's session.",
            )
        self._check_directories(image)
        self._check_features(image)
        check_reads_links(image, self.broker_id, self.features)
        record = RegisterBrokerRecord(
            broker_id=self.broker_id,
            incarnation_id=self.incarnation_id,
            broker_epoch=view.next_offset,
            end_points=endpoint_rows(self.endpoints),
            features=feature_rows(self.features),
            rack=self.rack,
            log_dirs=list(self.log_dirs),
        )
        records: list[Any] = []
        if existing is not None and is_same:
            record.broker_epoch = existing.epoch
            record.fenced = existing.fenced
            record.in_controlled_shutdown = existing.in_controlled_shutdown
        else:
            was_clean = existing is not None and self.previous_epoch == existing.epoch
            records += restarted(view, self.broker_id, was_clean)
        return Decision(RegisteredBroker(broker_epoch=record.broker_epoch), [*records, record])

    def _check_directories(self, image: MetadataImage) -> None:
        """Raises KafkaError(INVALID_REGISTRATION)."""
        if image.has_directories and not self.log_dirs:
            raise _invalid("No directories specified in request")
        if any(int.from_bytes(each) < RESERVED_DIRECTORIES for each in self.log_dirs):
            raise _invalid("Reserved directory ID in request")
        if len(dict.fromkeys(self.log_dirs)) != len(self.log_dirs):
            raise _invalid("Duplicate directory ID in request")
        for other in image.brokers.values():
            for directory in self.log_dirs:
                if other.id != self.broker_id and directory in other.log_dirs:
                    raise _invalid(f"Broker {other.id} is already registered with directory {uuid_to_str(directory)}")

    def _check_features(self, image: MetadataImage) -> None:
        """Raises KafkaError if the broker cannot work at the cluster's levels."""
        for name, (low, high) in self.features.items():
            _check_level(name, image.features.get(name, 0), low, high)
        if METADATA_VERSION in image.features and METADATA_VERSION not in self.features:
            raise _invalid(f"Request features do not contain '{METADATA_VERSION}'")
        for name, level in image.features.items():
            if name not in self.features:
                _check_level(name, level, 0, 0)

    def fail(self, error: KafkaError) -> RegisteredBroker:
        return RegisteredBroker(error.code, error.message)


def _check_level(name: str, level: int, low: int, high: int) -> None:
    if not low <= level <= high and not (name == METADATA_VERSION and level == 0):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Unable to register because the broker does not support finalized version {level} of {name}. The broker "
            f"wants a version between {low} and {high}, inclusive.",
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGISTRATION, message)
