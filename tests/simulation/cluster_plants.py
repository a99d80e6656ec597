"""Planted bugs of clusters: rules of replication and of the controller taken out; see `controls.py`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

Plant = Callable[[contextlib.ExitStack], None]


def _replace(stack: contextlib.ExitStack, target: object, attribute: str, value: object) -> None:
    stack.enter_context(mock.patch.object(target, attribute, value))


def committed_without_followers(stack: contextlib.ExitStack) -> None:
    """A leader commits what it alone has."""
    from isthmus.core_broker.replication.leadership import Leadership

    _replace(stack, Leadership, "committed_end", lambda self, kept_end, leader_end: kept_end)


def joins_behind(stack: contextlib.ExitStack) -> None:
    """A follower is in sync as soon as it fetches, whatever it lacks."""
    from isthmus.core_broker.replication.leadership import Leadership

    def joins(self: Any, broker_id: int, high_watermark: int, leader_epoch: int) -> Any:
        if self._change is not None or broker_id in self.isr or broker_id not in self.followers:
            return None
        return self._ask((*self.isr, broker_id), leader_epoch)

    _replace(stack, Leadership, "joins", joins)


def divergence_is_ignored(stack: contextlib.ExitStack) -> None:
    """A follower appends to a log that has left its leader's."""
    from isthmus.core_broker.replication.fetching import Copy

    def wanted(self: Any) -> tuple[int, int, int, int]:
        log = self.partition.log
        return log.log_end_offset, self.partition.leader_epoch, -1, log.log_start_offset

    _replace(stack, Copy, "wanted", wanted)


def power_cuts_lose_nothing(stack: contextlib.ExitStack) -> None:
    """A broker that comes back after a power cut says that it has all it had."""
    from tests.simulation.files import SimFiles

    _replace(stack, SimFiles, "boot_id", lambda self: "the same")


def last_one_wins(stack: contextlib.ExitStack) -> None:
    """A replica that is not in sync leads where nobody else is there, though the topic does not allow it."""
    from isthmus.core_broker.cluster.controller import leadership

    _replace(stack, leadership, "allows_unclean", lambda view, topic: True)


def isr_of_an_old_state(stack: contextlib.ExitStack) -> None:
    """The controller takes a leader's in-sync replicas, whatever has happened since the leader looked."""
    from isthmus.core_broker.cluster.controller.alter_partition import AlterPartition
    from isthmus.protocol.errors import ErrorCode

    def why_not(self: Any, wanted: Any, partition: Any, image: Any) -> int:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition is None else ErrorCode.NONE

    _replace(stack, AlterPartition, "_why_not", why_not)


def min_insync_is_ignored(stack: contextlib.ExitStack) -> None:
    """acks=all are those of whoever is in sync, be it the leader alone."""
    from isthmus.core_broker.replication.partition import Partition

    real = Partition._count_replicas

    def count(self: Any) -> None:
        self.min_insync_replicas = 1
        real(self)

    _replace(stack, Partition, "_count_replicas", count)


def old_leaders_go_on(stack: contextlib.ExitStack) -> None:
    """A broker that leads no more goes on as if it did, under its old epoch."""
    from isthmus.core_broker.replication.manager import ReplicaManager

    real = ReplicaManager._follow

    def follow(self: Any, partition: Any, topic: Any, index: int) -> None:
        if partition.leads and topic.partitions[index].leader != self._node_id:
            return
        real(self, partition, topic, index)

    _replace(stack, ReplicaManager, "_follow", follow)


def elections_forget_the_epoch(stack: contextlib.ExitStack) -> None:
    """A new leader has the leader epoch of the last one."""
    from isthmus.core_broker.cluster.partition_image import PartitionImage

    real = PartitionImage.merged

    def merged(self: Any, record: Any) -> Any:
        import dataclasses

        return dataclasses.replace(real(self, record), leader_epoch=self.leader_epoch)

    _replace(stack, PartitionImage, "merged", merged)


def commits_more_than_it_has(stack: contextlib.ExitStack) -> None:
    """A follower that starts takes all of its log for committed."""
    from isthmus.core_broker.replication.partition import Partition

    real = Partition.recover

    def recover(self: Any, high_watermark: int) -> None:
        real(self, self.log.log_end_offset)

    _replace(stack, Partition, "recover", recover)


def never_leaves(stack: contextlib.ExitStack) -> None:
    """A fenced broker stays in sync and may lead."""
    from isthmus.core_broker.cluster.controller import broker_heartbeat, fence_broker

    def fenced(view: Any, broker: Any) -> list[Any]:
        return []

    _replace(stack, fence_broker, "fenced", fenced)
    _replace(stack, broker_heartbeat, "fenced", fenced)


PLANTS: dict[str, Plant] = {
    "commits-more-than-it-has": commits_more_than_it_has,
    "committed-without-followers": committed_without_followers,
    "divergence-is-ignored": divergence_is_ignored,
    "elections-forget-the-epoch": elections_forget_the_epoch,
    "isr-of-an-old-state": isr_of_an_old_state,
    "joins-behind": joins_behind,
    "last-one-wins": last_one_wins,
    "min-insync-is-ignored": min_insync_is_ignored,
    "never-leaves": never_leaves,
    "old-leaders-go-on": old_leaders_go_on,
    "power-cuts-lose-nothing": power_cuts_lose_nothing,
}
