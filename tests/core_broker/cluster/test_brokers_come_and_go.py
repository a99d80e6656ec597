"""Registration, heartbeats, fencing and controlled shutdown, and what they mean for partitions."""

from __future__ import annotations

from copy import deepcopy

import pytest

from isthmus.core_broker.cluster.controller import FenceBroker, Sessions, UnregisterBroker
from isthmus.core_broker.cluster.controller.loop import is_from_elr, is_unclean
from isthmus.core_broker.cluster.partition_image import NO_LEADER, RECOVERED, RECOVERING
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages.metadata_records import FeatureLevelRecord, PartitionChangeRecord

from .support import ELR, Cluster

E = ErrorCode


def three(elr: bool = False, **configs: str) -> Cluster:
    """Three brokers and t-0 on all of them, led by 1."""
    cluster = Cluster(brokers=3)
    if elr:
        cluster.apply(ELR)
    cluster.assign("t", [1, 2, 3], **configs)
    return cluster


def state(cluster: Cluster) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Leader, ISR, ELR, last known leader."""
    found = cluster.partition()
    return found.leader, found.isr, found.elr, found.last_known_elr


# --- registration -----------------------------------------------------------------------------------------------------


def test_a_new_process_is_fenced_at_a_new_epoch_until_it_knows_of_it():
    cluster = three()
    epoch = cluster.register(1).broker_epoch
    assert epoch == cluster.image.offset - len(cluster.last) + 1
    assert cluster.image.brokers[1].fenced and state(cluster)[:2] == (2, (2, 3))
    assert cluster.beat(1, metadata_offset=epoch - 1).is_fenced
    result = cluster.beat(1, metadata_offset=epoch)
    assert result.is_caught_up and not result.is_fenced and not cluster.image.brokers[1].fenced


def test_a_process_that_was_fenced_leads_again_once_it_knows_of_that():
    cluster = three()
    known = cluster.image.offset
    cluster.fence(1)
    assert cluster.beat(1, metadata_offset=known).is_fenced and cluster.image.brokers[1].fenced
    assert not cluster.beat(1, metadata_offset=cluster.image.offset).is_fenced


def test_the_same_process_may_register_again_and_keeps_its_epoch():
    cluster = three()
    before = cluster.image.brokers[1]
    cluster.register(1, incarnation_id=before.incarnation_id, rack="moved")
    after = cluster.image.brokers[1]
    assert (after.epoch, after.fenced, after.rack) == (before.epoch, False, "moved")
    assert len(cluster.last) == 1


def test_a_second_process_is_refused_while_the_first_is_heard_of():
    cluster = three()
    cluster.sessions.heard(cluster.image.brokers[1], 0)
    cluster.now_ms = 9_000
    assert cluster.register(1).error_code == E.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms = 9_001
    assert cluster.register(1).error_code == E.NONE


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"cluster_id": "other"}, E.INCONSISTENT_CLUSTER_ID, "Expected cluster ID cluster-x, but got cluster ID other"),
        ({"log_dirs": []}, E.INVALID_REGISTRATION, "No directories specified in request"),
        ({"log_dirs": [bytes(16)]}, E.INVALID_REGISTRATION, "Reserved directory ID in request"),
        ({"log_dirs": [b"d" * 16] * 2}, E.INVALID_REGISTRATION, "Duplicate directory ID in request"),
        ({"features": {}}, E.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'"),
        (
            {"features": {"metadata.version": (7, 29)}},
            E.UNSUPPORTED_VERSION,
            "Unable to register because the broker does not support finalized version 30 of metadata.version. The "
            "broker wants a version between 7 and 29, inclusive.",
        ),
        (
            {"features": {"metadata.version": (7, 33)}},
            E.UNSUPPORTED_VERSION,
            "Unable to register because the broker does not support finalized version 1 of eligible.leader.replicas."
            "version. The broker wants a version between 0 and 0, inclusive.",
        ),
    ],
)
def test_who_is_not_let_in(fields, code, message):
    cluster = three(elr=True)
    cluster.apply(FeatureLevelRecord(name="metadata.version", feature_level=30))
    sound = {"features": {"metadata.version": (7, 33), ELR.name: (0, 1)}, "log_dirs": [b"d" * 16]}
    result = cluster.register(7, **sound | fields)
    assert (result.error_code, result.error_message) == (code, message) and 7 not in cluster.image.brokers
    assert cluster.register(7, **sound).error_code == E.NONE
    assert cluster.register(8, **sound).error_message.startswith("Broker 7 is already registered with directory")


def test_after_an_unclean_stop_a_replica_is_not_eligible_any_more():
    """KIP-966: it may have lost what it had not synced."""
    for was_clean, elr in ((True, (1,)), (False, ())):
        cluster = three(elr=True, min_insync_replicas="3")
        epoch = cluster.image.brokers[1].epoch
        cluster.fence(1)
        assert state(cluster) == (2, (2, 3), (1,), ())
        cluster.register(1, previous_epoch=epoch if was_clean else -1)
        assert state(cluster) == (2, (2, 3), elr, ())


# --- the end of sessions ----------------------------------------------------------------------------------------------


def test_the_last_in_sync_replica_stays_so_and_leads_again():
    cluster = three()
    cluster.fence(1)
    assert state(cluster)[:2] == (2, (2, 3)) and cluster.partition().leader_epoch == 1
    cluster.fence(3)
    assert state(cluster)[:2] == (2, (2,)) and cluster.partition().leader_epoch == 1
    cluster.fence(2)
    assert state(cluster)[:2] == (NO_LEADER, (2,))
    cluster.beat(1)
    assert state(cluster)[:2] == (NO_LEADER, (2,))
    cluster.beat(2)
    assert state(cluster)[:2] == (2, (2,)) and cluster.partition().leader_epoch == 3


def test_a_replica_out_of_sync_leads_only_where_the_topic_allows_it():
    cluster = three(unclean_leader_election_enable="true")
    cluster.fence(1, 3)
    cluster.beat(1)
    assert state(cluster)[:2] == (2, (2,))
    cluster.fence(2)
    assert state(cluster)[:2] == (1, (1,)) and cluster.partition().leader_recovery_state == RECOVERING


def test_eligible_replicas_lead_when_nobody_in_sync_does():
    cluster = three(elr=True, min_insync_replicas="2")
    cluster.fence(1, 2)
    assert state(cluster) == (3, (3,), (2,), ())  # with 2 and 3 in sync, nothing can be missing on 1 or not
    cluster.fence(3)
    assert state(cluster) == (NO_LEADER, (), (2, 3), (3,))
    cluster.beat(1)
    assert state(cluster)[0] == NO_LEADER
    before = deepcopy(cluster.image)
    cluster.beat(2)
    assert state(cluster) == (2, (2,), (3,), ()) and cluster.partition().leader_recovery_state == RECOVERED
    assert sum(is_from_elr(each, before) for each in cluster.last) == 1
    assert not any(is_unclean(each, before) for each in cluster.last)


def test_the_last_leader_comes_back_where_no_replica_is_eligible():
    cluster = three(elr=True)
    cluster.fence(2, 3, 1)
    assert state(cluster) == (NO_LEADER, (), (1,), (1,))
    cluster.register(1)  # after an unclean stop
    assert state(cluster) == (NO_LEADER, (), (), (1,))
    cluster.beat(2)
    assert state(cluster)[0] == NO_LEADER
    cluster.beat(1)
    assert state(cluster) == (1, (1,), (), ()) and cluster.partition().leader_recovery_state == RECOVERING


def test_only_partitions_of_the_broker_are_touched():
    cluster = three()
    cluster.assign("u", [2, 3])
    cluster.fence(1)
    changed = [each for each in cluster.last if isinstance(each, PartitionChangeRecord)]
    assert [each.topic_id for each in changed] == [cluster.image.topics["t"].id]


def test_who_was_heard_of_again_or_registered_anew_is_not_fenced():
    cluster = three()
    broker = cluster.image.brokers[1]
    cluster.sessions.heard(broker, 0)
    cluster.run(FenceBroker(1, broker.epoch))
    assert not cluster.last
    cluster.sessions = Sessions()
    cluster.start(1)
    cluster.run(FenceBroker(1, broker.epoch))
    assert not cluster.last and not cluster.image.brokers[1].fenced


def test_a_broker_that_is_unregistered_leaves_isr_and_elr_but_not_the_replicas():
    cluster = three(elr=True, min_insync_replicas="3")
    cluster.fence(1)
    assert state(cluster)[2] == (1,)
    cluster.run(UnregisterBroker(2))
    assert 2 not in cluster.image.brokers and state(cluster)[:2] == (3, (3,))
    assert cluster.partition().replicas == (1, 2, 3)
    assert cluster.run(UnregisterBroker(2)).error_code == E.BROKER_ID_NOT_REGISTERED


# --- heartbeats -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [-1, 99])
def test_a_stale_epoch_is_refused(epoch):
    cluster = three()
    assert cluster.beat(1, broker_epoch=epoch).error_code == E.STALE_BROKER_EPOCH


def test_a_stop_waits_until_nothing_is_led_and_all_others_know_it():
    cluster = three()

    def beat(broker_id: int, **fields):
        broker = cluster.image.brokers[broker_id]
        offset = fields.get("metadata_offset", cluster.image.offset)
        cluster.sessions.heard(broker, 0, metadata_offset=offset)
        result = cluster.beat(broker_id, **fields)
        cluster.sessions.answered(broker_id, result.is_fenced, result.in_controlled_shutdown, cluster.image.offset)
        return result.in_controlled_shutdown, result.should_shut_down

    before = cluster.image.offset
    assert beat(2) == beat(3) == (False, False)
    assert beat(1, want_shut_down=True) == (True, False)
    assert state(cluster)[:2] == (2, (2, 3)) and not cluster.image.brokers[1].fenced
    assert beat(1, want_shut_down=True) == (True, False)  # 2 and 3 have not told that they know
    beat(2)
    beat(3, metadata_offset=before)
    assert beat(1, want_shut_down=True) == (True, False)
    beat(3)
    assert beat(1, want_shut_down=True) == (False, True)
    assert cluster.image.brokers[1].fenced


def test_who_leads_nothing_or_is_fenced_may_stop_at_once():
    cluster = three()
    assert cluster.beat(3, want_shut_down=True).should_shut_down
    assert cluster.beat(3, want_shut_down=True).should_shut_down
    assert cluster.beat(2, want_fence=True).is_fenced and cluster.image.brokers[2].fenced


def test_partitions_leave_a_directory_that_is_offline():
    cluster = Cluster(brokers=2)
    cluster.start(3, log_dirs=[b"a" * 16, b"b" * 16])
    cluster.assign("t", [3, 1], [3, 1])
    for index, directory in enumerate((b"a" * 16, b"b" * 16)):
        cluster.change(index=index, directories=[directory, bytes(16)])
    cluster.beat(3, offline_log_dirs=[b"a" * 16])
    assert [each.leader for each in cluster.image.topics["t"].partitions.values()] == [1, 3]
    assert cluster.image.brokers[3].log_dirs == (b"b" * 16,)
