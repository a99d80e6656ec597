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


PLANTS: dict[str, Plant] = {
    "committed-without-followers": committed_without_followers,
    "divergence-is-ignored": divergence_is_ignored,
    "elections-forget-the-epoch": elections_forget_the_epoch,
    "old-leaders-go-on": old_leaders_go_on,
    "power-cuts-lose-nothing": power_cuts_lose_nothing,
}
