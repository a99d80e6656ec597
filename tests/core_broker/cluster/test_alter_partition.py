"""AlterPartition: what of a leader's wish is refused, with which code, and what it completes (KIP-497, 841, 903)."""

from __future__ import annotations

import pytest

from isthmus.core_broker.cluster.controller import AlterPartition, AlterReassignments, WantedIsr
from isthmus.core_broker.cluster.partition_image import RECOVERED, RECOVERING
from isthmus.protocol.errors import ErrorCode

from .support import Cluster

E = ErrorCode


class Led(Cluster):
    """Four brokers; t-0 is on 1, 2 and 3, led by 1, with 3 out of sync."""

    def __init__(self) -> None:
        super().__init__(brokers=4)
        self.assign("t", [1, 2, 3])
        self.change(isr=[1, 2])

    def epoch(self, broker_id: int) -> int:
        return self.image.brokers[broker_id].epoch

    def alter(self, isr, leader=1, index=0, leader_epoch=0, partition_epoch=0, state=RECOVERED, **fields):
        """Epochs as they are, moved by what is given."""
        present = self.partition()
        wanted = WantedIsr(
            index,
            present.leader_epoch + leader_epoch,
            present.partition_epoch + partition_epoch,
            [each if isinstance(each, tuple) else (each, self.epoch(each)) for each in isr],
            state,
        )
        topic_id = fields.get("topic_id", self.image.topics["t"].id)
        broker_epoch = fields.get("broker_epoch", self.epoch(leader))
        result = self.run(AlterPartition(leader, broker_epoch, [(topic_id, [wanted])]))
        return result.error.code if result.error is not None else result.items[0].partitions[0].error_code


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"isr": [1, 2, 3]}, E.NONE),
        ({"isr": [3, 1]}, E.NONE),
        ({"isr": [(1, -1), (2, -1), (3, -1)]}, E.NONE),
        ({"isr": [1], "broker_epoch": 99}, E.STALE_BROKER_EPOCH),
        ({"isr": [1], "topic_id": bytes(16)}, E.UNKNOWN_TOPIC_ID),
        ({"isr": [1], "index": 1}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({"isr": [1], "leader_epoch": 1}, E.NOT_CONTROLLER),
        ({"isr": [1], "partition_epoch": 1}, E.NOT_CONTROLLER),
        ({"isr": [1], "partition_epoch": -1}, E.INVALID_UPDATE_VERSION),
        ({"isr": [1, 2], "leader": 2}, E.INVALID_REQUEST),
        ({"isr": []}, E.INVALID_REQUEST),
        ({"isr": [2, 3]}, E.INVALID_REQUEST),
        ({"isr": [1, 1]}, E.INVALID_REQUEST),
        ({"isr": [1, 4]}, E.INVALID_REQUEST),
        ({"isr": [1], "state": RECOVERING}, E.INVALID_REQUEST),
        ({"isr": [1, (3, 99)]}, E.INELIGIBLE_REPLICA),
    ],
)
def test_codes(wish, code):
    cluster = Led()
    before = cluster.partition()
    assert cluster.alter(**wish) == code
    assert (cluster.partition() == before) == bool(code)


def test_an_old_leader_epoch_is_fenced_before_anything_else_is_looked_at():
    cluster = Led()
    cluster.change(leader=1)
    assert cluster.alter([], leader_epoch=-1) == E.FENCED_LEADER_EPOCH


def test_a_replica_that_is_fenced_or_about_to_stop_may_not_be_in_sync():
    cluster = Led()
    cluster.fence(3)
    assert cluster.alter([1, 2, 3]) == E.INELIGIBLE_REPLICA
    cluster.start(3)
    assert cluster.alter([1, 2, 3]) == E.NONE
    cluster.assign("led-by-3", [3])
    assert cluster.beat(3, want_shut_down=True).in_controlled_shutdown
    assert cluster.partition().isr == (1, 2)
    assert cluster.alter([1, 2, 3]) == E.INELIGIBLE_REPLICA


def test_recovery_ends_before_others_are_in_sync():
    cluster = Led()
    cluster.change(isr=[1], leader=1, leader_recovery_state=RECOVERING)
    assert cluster.alter([1, 2], state=RECOVERING) == E.INVALID_REQUEST
    assert cluster.alter([1, 2], state=RECOVERED) == E.NONE
    assert cluster.partition().leader_recovery_state == RECOVERED


def test_a_shrunk_isr_keeps_the_leader_epoch():
    """Since Kafka 3.6 (KAFKA-15021)."""
    cluster = Led()
    assert cluster.alter([1]) == E.NONE
    assert (cluster.partition().isr, cluster.partition().leader_epoch) == ((1,), 0)


def test_a_complete_reassignment_takes_the_leader_with_it():
    cluster = Led()
    cluster.run(AlterReassignments([("t", [(0, [3, 4])])]))
    moving = cluster.partition()
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ((3, 4, 1, 2), (4,), (1, 2))
    assert cluster.alter([1, 2, 4]) == E.NONE and cluster.partition().is_moving  # 3 stays, and is not in sync
    assert cluster.alter([1, 2, 3, 4]) == E.NEW_LEADER_ELECTED
    moved = cluster.partition()
    assert (moved.replicas, moved.isr, moved.leader) == ((3, 4), (3, 4), 3)
    assert not moved.is_moving and moved.leader_epoch == moving.leader_epoch + 1


def test_a_move_that_takes_the_place_of_another_ends_without_what_that_one_added() -> None:
    cluster = Led()
    cluster.run(AlterReassignments([("t", [(0, [1, 2, 4])])]))
    cluster.run(AlterReassignments([("t", [(0, [1, 2, 3])])]))  # 4 was to come, and is to go
    assert cluster.partition().adding_replicas == cluster.partition().removing_replicas == (4,)
    assert cluster.alter([1, 2, 3]) == E.NONE
    assert not cluster.partition().is_moving
    assert cluster.partition().replicas == (1, 2, 3)


def test_a_move_back_to_all_keeps_those_that_were_to_go() -> None:
    cluster = Led()
    cluster.alter([1, 3])
    cluster.run(AlterReassignments([("t", [(0, [1, 2])])]))
    assert cluster.partition().removing_replicas == (3,)  # it waits for 2
    cluster.run(AlterReassignments([("t", [(0, [1, 2, 3])])]))
    assert not cluster.partition().is_moving
    cluster.alter([1, 3, 2])
    assert cluster.partition().replicas == (1, 2, 3)
