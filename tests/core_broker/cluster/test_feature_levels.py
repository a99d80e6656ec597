"""Levels of features: what a new cluster has, what may change them, and what eligible leader replicas ask for."""

from __future__ import annotations

import pytest

from isthmus.core_broker.cluster.controller import Activate, Operation, UpdateFeatures, Upgrade
from isthmus.core_broker.cluster.controller.create_topics import new_topic
from isthmus.core_broker.cluster.features import encoded_at
from isthmus.core_broker.cluster.image import BROKER_RESOURCE
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import metadata_records as r
from isthmus.protocol.messages.metadata_records import FeatureLevelRecord

from .support import ELR, Cluster

E = ErrorCode
MIN_ISR = "min.insync.replicas"


def level(name: str, to: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=to)


def test_a_new_cluster_has_levels_once_and_one_min_insync_replicas():
    cluster = Cluster(min_insync_replicas="2")
    cluster.run(Activate())
    assert cluster.image.features["metadata.version"] == 33 and cluster.image.features[ELR.name] == 1
    assert cluster.image.broker_configs == {"": {MIN_ISR: "2"}}
    cluster.run(Activate())
    assert not cluster.last


def test_levels_go_up_and_safely_down():
    cluster = Cluster()
    cluster.apply(level("metadata.version", 29))
    assert cluster.run(UpdateFeatures([("metadata.version", 33, Upgrade.UP)])).error_code == E.NONE
    assert cluster.image.features["metadata.version"] == 33
    for kind, words in (
        (Upgrade.UP, "Invalid update version 31 for feature metadata.version. Can't downgrade the version of this "
                     "feature without setting the upgrade type to either safe or unsafe downgrade."),
        (Upgrade.SAFE_DOWN, "Unsupported metadata.version downgrade from 33 to 31. Refusing to perform the requested "
                            "downgrade because it might delete metadata information."),
    ):  # fmt: skip
        result = cluster.run(UpdateFeatures([("metadata.version", 31, kind)]))
        assert (result.error_code, result.error_message) == (E.INVALID_UPDATE_VERSION, words)
    cluster = Cluster()
    cluster.apply(level("metadata.version", 29))
    assert cluster.run(UpdateFeatures([("metadata.version", 24, Upgrade.SAFE_DOWN)])).error_code == E.NONE


VERSIONS = {  # by Kafka's MetadataVersion: of registrations, changes of these, partitions, changes of these
    22: (3, 2, 1, 1),
    23: (3, 2, 2, 2),
    29: (3, 2, 2, 2),
    30: (4, 3, 2, 2),
    33: (4, 3, 2, 2),
}


@pytest.mark.parametrize("metadata_version", VERSIONS)
def test_records_have_the_versions_that_members_of_a_level_read(metadata_version: int) -> None:
    records = [
        r.RegisterBrokerRecord(),
        r.BrokerRegistrationChangeRecord(),
        r.PartitionRecord(),
        r.PartitionChangeRecord(),
    ]
    found = tuple(encoded_at(each, metadata_version)[2] for each in records)
    assert found == VERSIONS[metadata_version]
    assert encoded_at(r.TopicRecord(), metadata_version)[2] == 0


def test_what_a_level_has_no_record_for_is_not_told() -> None:
    cluster = Cluster()
    cluster.apply(level("metadata.version", 29))
    cluster.beat(1, cordoned_log_dirs=[b"d" * 16])
    assert not cluster.last
    cluster.apply(level("metadata.version", 30))
    cluster.beat(1, cordoned_log_dirs=[b"d" * 16])
    assert cluster.image.brokers[1].cordoned_log_dirs == (b"d" * 16,)


def test_a_member_that_does_not_know_a_level_is_named():
    cluster = Cluster()
    cluster.register(2, features={"metadata.version": (7, 30)})
    result = cluster.run(UpdateFeatures([("metadata.version", 33, Upgrade.UP)]))
    assert result.error_message.endswith("Broker 2 only supports versions 7-30")
    result = cluster.run(UpdateFeatures([("no.such", 1, Upgrade.UP)]))
    assert result.error_message.endswith("for feature no.such. Local controller 1 does not support this feature.")


def test_voters_that_are_configured_stay_so():
    cluster = Cluster()
    result = cluster.run(UpdateFeatures([("kraft.version", 1, Upgrade.UP)], kraft_version=0))
    assert result.error_code == E.INVALID_UPDATE_VERSION and "by controller.quorum.voters" in result.error_message
    for level_now in (0, 1):
        same = [("kraft.version", level_now, Upgrade.UP)]
        assert cluster.run(UpdateFeatures(same, kraft_version=level_now)).error_code == E.NONE


def test_all_updates_or_none():
    cluster = Cluster()
    cluster.apply(level("metadata.version", 29))
    cluster.run(UpdateFeatures([("metadata.version", 33, Upgrade.UP), ("no.such", 1, Upgrade.UP)]))
    assert cluster.image.features == {"metadata.version": 29}


def test_with_eligible_leader_replicas_min_insync_replicas_is_the_clusters():
    cluster = Cluster(brokers=2)
    cluster.apply(level("metadata.version", 33))
    set_ = Operation.SET
    cluster.alter("1", (MIN_ISR, set_, "2"), resource_type=BROKER_RESOURCE)
    cluster.run(UpdateFeatures([(ELR.name, 1, Upgrade.UP)]))
    assert cluster.image.broker_configs == {"": {MIN_ISR: "1"}}
    for name, operation, words in (
        ("1", set_, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."),
        ("", Operation.DELETE, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."),
    ):
        item = cluster.alter(name, (MIN_ISR, operation, "3"), resource_type=BROKER_RESOURCE)
        assert (item.error_code, item.error_message) == (E.INVALID_CONFIG, words)


@pytest.mark.parametrize("of_topic", [True, False])
def test_another_min_insync_replicas_clears_what_was_eligible_under_the_last(of_topic):
    cluster = Cluster(brokers=2)
    cluster.apply(level("metadata.version", 33), ELR)
    cluster.assign("t", [1, 2], min_insync_replicas="2")
    cluster.assign("u", [1, 2], min_insync_replicas="2")
    cluster.fence(2)
    assert cluster.partition().elr == cluster.partition("u").elr == (2,)
    if of_topic:
        cluster.alter("t", (MIN_ISR, Operation.SET, "1"))
    else:
        cluster.alter("", (MIN_ISR, Operation.SET, "1"), resource_type=BROKER_RESOURCE)
    assert cluster.partition().elr == () and cluster.partition("u").elr == ((2,) if of_topic else ())
    cluster.create(new_topic("v", configs={MIN_ISR: "1"}))
