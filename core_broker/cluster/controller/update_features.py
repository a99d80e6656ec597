"""UpdateFeatures: raises or lowers the finalized level of features, if every member can work at it (KIP-584, KIP-778).

And what a new cluster begins with: `Activate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata_records import ConfigRecord, FeatureLevelRecord
from ..features import (
    ELR_VERSION,
    FEATURES,
    KRAFT_VERSION,
    LATEST,
    METADATA_VERSION,
    SUPPORTED,
    Feature,
    loses_records,
    of_new_cluster,
)
from ..image import BROKER_RESOURCE, Levels, MetadataImage
from .common import Decision, Item, View
from .leadership import MIN_ISR

NOT_SUPPORTED = (0, 0)
STATIC_VOTERS = (
    "It stays as it is in a cluster whose voters are configured on each node, by controller.quorum.voters: voters can "
    "change only in a cluster that began with controller.quorum.bootstrap.servers."
)


class Upgrade(IntEnum):
    """What may become of a level."""

    UP = 1
    SAFE_DOWN = 2  # if no metadata gets lost
    UNSAFE_DOWN = 3


@dataclass(slots=True, frozen=True)
class UpdateFeatures:
    """updates: name, level and kind of update (Upgrade) of features. All of them or none. kraft_version: the level that
    the quorum has, of which the metadata knows nothing. Result: an Item."""

    updates: Sequence[tuple[str, int, int]]
    validate_only: bool = False
    kraft_version: int = FEATURES[KRAFT_VERSION].latest

    def decide(self, view: View) -> Decision:
        image = view.image
        levels = {**image.features, **{name: level for name, level, _ in self.updates}}
        records: list[Any] = []
        for name, level, kind in self.updates:
            self._check(name, level, kind, levels, view)
            if name != KRAFT_VERSION:
                records.append(FeatureLevelRecord(name=name, feature_level=level))
        if any(name == ELR_VERSION and level > 0 for name, level, _ in self.updates):
            records = [*_one_min_isr(view), *records]
        return Decision(Item(), [] if self.validate_only else records)

    def _check(self, name: str, level: int, kind: int, levels: Mapping[str, int], view: View) -> None:
        """Raises KafkaError(INVALID_UPDATE_VERSION)."""
        image = view.image
        if kind not in [*Upgrade]:
            raise _invalid(name, level, "The controller does not support the given upgrade type.")
        if level < 0:
            raise _invalid(name, level, "A feature version cannot be less than 0.")
        _check_members(name, level, view)
        now = self.kraft_version if name == KRAFT_VERSION else image.features.get(name, 0)
        if level < now and kind == Upgrade.UP:
            reason = (
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
                "downgrade."
            )
            raise _invalid(name, level, reason)
        if level > now and kind != Upgrade.UP:
            raise _invalid(name, level, "Can't downgrade to a newer version.")
        if name == METADATA_VERSION:
            _check_metadata_version(now, level, kind)
        elif name == KRAFT_VERSION:
            if level < now:
                raise _invalid(name, level, "Can't downgrade the version of this feature.")
            if level > now:  # Kafka's then takes the voters into its log
                raise _invalid(name, level, STATIC_VOTERS)
        elif name not in FEATURES:
            raise _invalid(name, level, f"Feature {name} not found.")
        else:
            _check_needs(name, level, FEATURES[name], levels.get(METADATA_VERSION, 0))

    def fail(self, error: KafkaError) -> Item:
        return Item(error.code, error.message)


def _check_members(name: str, level: int, view: View) -> None:
    image, own_id = view.image, view.config["node.id"]
    members: list[tuple[str, Mapping[str, Levels]]] = [(f"Local controller {own_id}", SUPPORTED)]
    members += [(f"Broker {each.id}", each.features) for each in image.brokers.values()]
    members += [(f"Controller {each.id}", each.features) for each in image.controllers.values() if each.id != own_id]
    for who, features in members:
        low, high = features.get(name, NOT_SUPPORTED)
        if not low <= level <= high:
            range_ = str(low) if low == high else f"{low}-{high}"
            what = f"only supports versions {range_}" if high else "does not support this feature."
            raise _invalid(name, level, f"{who} {what}")


def _check_metadata_version(now: int, level: int, kind: int) -> None:
    if level < now and loses_records(now, level):
        reason = "Refusing to perform the requested downgrade because it might delete metadata information."
        if kind == Upgrade.UNSAFE_DOWN:
            reason = "Unsafe metadata downgrade is not supported in this version."
        message = f"Unsupported metadata.version downgrade from {now} to {level}. {reason}"
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)


def _check_needs(name: str, level: int, feature: Feature, metadata_version: int) -> None:
    if level and metadata_version < feature.needs:
        raise _invalid(
            name,
            level,
            f"{name} could not be set to {level} because it depends on {METADATA_VERSION} level {feature.needs}",
        )


def _one_min_isr(view: View) -> list[ConfigRecord]:
    """With ELR, min.insync.replicas is the cluster's alone: a broker's own would give partitions another meaning."""
    options = view.image.broker_configs
    records = []
    if MIN_ISR.name not in options.get("", {}):
        records.append(_min_isr("", str(view.config[MIN_ISR.name])))
    return [*records, *(_min_isr(name, None) for name, own in options.items() if name and MIN_ISR.name in own)]


def _min_isr(name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=name, name=MIN_ISR.name, value=value)


def _invalid(name: str, level: int, reason: str) -> KafkaError:
    message = f"Invalid update version {level} for feature {name}. {reason}"
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)


@dataclass(slots=True, frozen=True)
class Activate:
    """The finalized levels of a cluster that has none yet: those of a new one. Result: an Item."""

    metadata_version: int = LATEST

    def decide(self, view: View) -> Decision:
        if is_active(view.image):
            return Decision(Item())
        levels = of_new_cluster(self.metadata_version)
        records: list[Any] = [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]
        return Decision(Item(), [*records, *(_one_min_isr(view) if levels.get(ELR_VERSION) else ())])

    def fail(self, error: KafkaError) -> Item:
        return Item(error.code, error.message)


def is_active(image: MetadataImage) -> bool:
    """Whether the cluster's levels are finalized."""
    return METADATA_VERSION in image.features
