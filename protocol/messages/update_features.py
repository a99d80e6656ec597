"""UpdateFeatures (key 57): raises or lowers the finalized levels of features, such as metadata.version (KIP-584).

Flexible from the start. v1: how far a level may be lowered, and a trial without effect (KIP-778). v2: one error for
all features, none for each (KIP-1022)."""

from __future__ import annotations

from ..schema import Api, Struct, array, boolean, int8, int16, int32, string


class FeatureUpdate(Struct):
    """max_version_level: below 1 removes the feature. upgrade_type: 1 raises, 2 lowers if nothing is lost, 3 lowers."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


class Request(Struct):
    timeout_ms: int = int32(default=60_000)
    feature_updates: list[FeatureUpdate] = array(FeatureUpdate)
    validate_only: bool = boolean("1+")


class UpdatableFeatureResult(Struct):
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)


API = Api(57, "UpdateFeatures", Request, Response, versions="0-2", flexible="0+")
