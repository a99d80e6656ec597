"""Planted bugs of clusters: rules of the controller taken out; see `controls.py`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any
from unittest import mock

Plant = Callable[[contextlib.ExitStack], None]


def _replace(stack: contextlib.ExitStack, target: object, attribute: str, value: object) -> None:
    stack.enter_context(mock.patch.object(target, attribute, value))


def elections_forget_the_epoch(stack: contextlib.ExitStack) -> None:
    """A new leader has the leader epoch of the last one."""
    from isthmus.core_broker.cluster.partition_image import PartitionImage

    real = PartitionImage.merged

    def merged(self: Any, record: Any) -> Any:
        return dataclasses.replace(real(self, record), leader_epoch=self.leader_epoch)

    _replace(stack, PartitionImage, "merged", merged)


def _without(stack: contextlib.ExitStack, *codes: str) -> None:
    """AlterPartition goes on where one of these errors would be answered."""
    from isthmus.core_broker.cluster.controller.alter_partition import AlterPartition
    from isthmus.protocol.errors import ErrorCode

    real = AlterPartition._why_not
    forgiven = [ErrorCode[code] for code in codes]

    def why_not(self: Any, wanted: Any, partition: Any, image: Any) -> int:
        code = real(self, wanted, partition, image)
        return ErrorCode.NONE if code in forgiven else code

    _replace(stack, AlterPartition, "_why_not", why_not)


def old_changes_are_taken(stack: contextlib.ExitStack) -> None:
    """A change of in-sync replicas is made though it is based on an older state of the partition."""
    _without(stack, "INVALID_UPDATE_VERSION")


def changes_of_old_leaders_are_taken(stack: contextlib.ExitStack) -> None:
    """Whoever led a partition once may say who is in sync."""
    _without(stack, "FENCED_LEADER_EPOCH", "INVALID_REQUEST", "INVALID_UPDATE_VERSION")


def anybody_may_be_in_sync(stack: contextlib.ExitStack) -> None:
    """Fenced brokers and earlier processes of a broker may be in sync, too (KIP-841, KIP-903)."""
    from isthmus.core_broker.cluster.controller import alter_partition
    from isthmus.core_broker.replication.manager import ReplicaManager

    _replace(stack, alter_partition, "_may_be_in_sync", lambda image, broker_id, epoch: True)
    _replace(stack, ReplicaManager, "_may_join", lambda self, topic, index, broker_id, broker_epoch: True)


def broker_epochs_are_not_checked(stack: contextlib.ExitStack) -> None:
    """What an earlier process of a broker had counts for the present one (KIP-903)."""
    from isthmus.core_broker.cluster.controller import alter_partition
    from isthmus.core_broker.cluster.image import NO_EPOCH
    from isthmus.core_broker.replication.manager import ReplicaManager

    def is_active(image: Any, broker_id: int, epoch: int) -> bool:
        return bool(image.is_active(broker_id))

    real = ReplicaManager._may_join

    def may_join(self: Any, topic: str, index: int, broker_id: int, broker_epoch: int) -> bool:
        return real(self, topic, index, broker_id, NO_EPOCH)

    _replace(stack, alter_partition, "_may_be_in_sync", is_active)
    _replace(stack, ReplicaManager, "_may_join", may_join)


def elections_are_always_unclean(stack: contextlib.ExitStack) -> None:
    """Whoever is alive may lead, though the topic does not allow that."""
    from isthmus.core_broker.cluster.controller import leadership

    _replace(stack, leadership, "allows_unclean", lambda view, topic: True)


def those_that_left_may_not_lead(stack: contextlib.ExitStack) -> None:
    """The eligible leader replicas are not asked when the in-sync replicas are gone (KIP-966)."""
    from isthmus.core_broker.cluster.controller import partition_change

    real = partition_change._elect

    def elect(partition: Any, replicas: Any, isr: Any, elr: Any, rules: Any) -> Any:
        return real(dataclasses.replace(partition, last_known_elr=()), replicas, isr, (), rules)

    _replace(stack, partition_change, "_elect", elect)


def those_that_lost_stay_eligible(stack: contextlib.ExitStack) -> None:
    """A broker that has lost the end of its logs may lead nevertheless."""
    from isthmus.core_broker.cluster.controller import register_broker

    real = register_broker.restarted
    _replace(stack, register_broker, "restarted", lambda view, broker_id, was_clean: real(view, broker_id, True))


def restarts_change_nothing(stack: contextlib.ExitStack) -> None:
    """A new process of a broker is in sync wherever the last one was."""
    from isthmus.core_broker.cluster.controller import register_broker

    _replace(stack, register_broker, "restarted", lambda view, broker_id, was_clean: [])


def fenced_brokers_stay_in_sync(stack: contextlib.ExitStack) -> None:
    """A broker that is not heard of stays in sync and leads on: nobody can write what waits for it."""
    from isthmus.core_broker.cluster.controller import fence_broker

    real = fence_broker.fenced
    _replace(stack, fence_broker, "fenced", lambda view, broker: real(view, broker)[-1:])


def fenced_brokers_need_not_know_it(stack: contextlib.ExitStack) -> None:
    """A broker that hung is unfenced before it knows that it was fenced, and that others lead what it led."""
    from isthmus.core_broker.cluster.controller.broker_heartbeat import BrokerHeartbeat

    real = BrokerHeartbeat._next

    def after(self: Any, now: Any, broker: Any, view: Any, is_caught_up: bool) -> Any:
        return real(self, now, dataclasses.replace(broker, fenced_at=-1), view, is_caught_up)

    _replace(stack, BrokerHeartbeat, "_next", after)


def moves_do_not_wait(stack: contextlib.ExitStack) -> None:
    """A reassignment ends at once: the replicas that go are gone before those that come are in sync."""
    from isthmus.core_broker.cluster.controller import partition_change

    def ended(replicas: Any, adding: Any, removing: Any, isr: Any) -> Any:
        staying = tuple(each for each in replicas if each not in removing)
        return staying, tuple(each for each in staying if each in isr or each in adding)

    _replace(stack, partition_change, "_ended_reassignment", ended)


def moves_never_end(stack: contextlib.ExitStack) -> None:
    """The replicas that are to go stay, though those that come are in sync."""
    from isthmus.core_broker.cluster.controller import partition_change

    _replace(stack, partition_change, "_ended_reassignment", lambda replicas, adding, removing, isr: None)


def controllers_decide_too_soon(stack: contextlib.ExitStack) -> None:
    """A new controller decides before it has applied what was committed before it."""
    from isthmus.core_broker.cluster.quorum.quorum import MetadataQuorum

    _replace(stack, MetadataQuorum, "is_leader", property(lambda self: self._leads_from is not None))


def controllers_commit_alone(stack: contextlib.ExitStack) -> None:
    """What a controller has decided counts before a majority of the quorum has it."""
    from isthmus.core_broker.cluster.raft.leader import Leader

    def high_watermark(self: Any) -> int | None:
        end: int = self.progress_of(self.me).end_offset
        return end if end > self.start_offset else None

    _replace(stack, Leader, "high_watermark", high_watermark)


def levels_that_some_do_not_know(stack: contextlib.ExitStack) -> None:
    """A level of a feature is finalized though a broker does not know it."""
    from isthmus.core_broker.cluster.controller import update_features

    _replace(stack, update_features, "_check_members", lambda name, level, view: None)


def snapshots_leave_out_who_is_in_sync(stack: contextlib.ExitStack) -> None:
    """A snapshot of the metadata says that all replicas of a partition are in sync."""
    from isthmus.core_broker.cluster import metadata_snapshot

    real = metadata_snapshot._partition

    def partition(topic_id: bytes, index: int, found: Any) -> Any:
        return real(topic_id, index, dataclasses.replace(found, isr=found.replicas))

    _replace(stack, metadata_snapshot, "_partition", partition)


def snapshots_leave_out_topics(stack: contextlib.ExitStack) -> None:
    """A snapshot of the metadata lacks its newest topic."""
    from isthmus.core_broker.cluster import metadata_snapshot

    real = metadata_snapshot.image_records

    def image_records(image: Any) -> Any:
        newest = next(reversed(image.topics), None)
        lost = None if newest is None else image.topics[newest].id
        return [each for each in real(image) if lost is None or getattr(each, "topic_id", None) != lost]

    _replace(stack, metadata_snapshot, "image_records", image_records)


PLANTS: dict[str, Plant] = {
    "anybody-may-be-in-sync": anybody_may_be_in_sync,
    "broker-epochs-are-not-checked": broker_epochs_are_not_checked,
    "changes-of-old-leaders-are-taken": changes_of_old_leaders_are_taken,
    "controllers-commit-alone": controllers_commit_alone,
    "controllers-decide-too-soon": controllers_decide_too_soon,
    "elections-are-always-unclean": elections_are_always_unclean,
    "elections-forget-the-epoch": elections_forget_the_epoch,
    "fenced-brokers-need-not-know-it": fenced_brokers_need_not_know_it,
    "fenced-brokers-stay-in-sync": fenced_brokers_stay_in_sync,
    "levels-that-some-do-not-know": levels_that_some_do_not_know,
    "moves-do-not-wait": moves_do_not_wait,
    "moves-never-end": moves_never_end,
    "old-changes-are-taken": old_changes_are_taken,
    "restarts-change-nothing": restarts_change_nothing,
    "snapshots-leave-out-topics": snapshots_leave_out_topics,
    "snapshots-leave-out-who-is-in-sync": snapshots_leave_out_who_is_in_sync,
    "those-that-left-may-not-lead": those_that_left_may_not_lead,
    "those-that-lost-stay-eligible": those_that_lost_stay_eligible,
}
