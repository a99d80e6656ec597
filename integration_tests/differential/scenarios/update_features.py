"""UpdateFeatures (57): of features that both brokers have, and only in trials."""

from __future__ import annotations

from isthmus.protocol.messages import update_features as m

from ..peer import Case, Scenarios

SCENARIOS = Scenarios()
UPGRADE, SAFE_DOWNGRADE = 1, 2


@SCENARIOS.success(57)
def updates_nothing(case: Case) -> None:
    case.compare(m.Request(timeout_ms=5_000))


@SCENARIOS.success(57, since=1)
def tries_the_level_that_there_is(case: Case) -> None:
    update = m.FeatureUpdate(feature="metadata.version", max_version_level=33, upgrade_type=UPGRADE)
    case.compare(m.Request(timeout_ms=5_000, feature_updates=[update], validate_only=True))


@SCENARIOS.error(57)
def features_that_nobody_knows(case: Case) -> None:
    case.compare(
        m.Request(timeout_ms=5_000, feature_updates=[m.FeatureUpdate(feature="no.such.feature", max_version_level=1)])
    )


@SCENARIOS.error(57, since=1)
def levels_that_cannot_be(case: Case) -> None:
    for name, level, kind in (
        ("no.such.feature", 1, UPGRADE),
        ("metadata.version", 99, UPGRADE),
        ("metadata.version", 30, UPGRADE),
        ("metadata.version", 1, SAFE_DOWNGRADE),
        ("metadata.version", 33, 0),
    ):
        update = m.FeatureUpdate(feature=name, max_version_level=level, upgrade_type=kind)
        case.compare(m.Request(timeout_ms=5_000, feature_updates=[update], validate_only=True))
