"""Where a partition's leader is, for clients that asked the wrong broker or know an old epoch (KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ._context import Context

if TYPE_CHECKING:
    from ..replication.partition import Partition

NOBODY = -1


class Leader(NamedTuple):
    """host is None where the leader is not known to be alive."""

    node_id: int
    epoch: int
    host: str | None
    port: int
    rack: str | None


def leader_of(topic: str, index: int, context: Context) -> Leader:
    """As the metadata image has it, with the address that the client's listener has there."""
    partition = context.services.image.partition(topic, index)
    if partition is None:
        return Leader(NOBODY, NOBODY, None, 0, None)
    for node_id, host, port, rack in context.services.endpoints(context.listener):
        if node_id == partition.leader:
            return Leader(node_id, partition.leader_epoch, host, port, rack)
    return Leader(partition.leader, partition.leader_epoch, None, 0, None)


def check_epoch(partition: Partition, current_leader_epoch: int) -> None:
    """`Partition.check_epoch` for requests in which -1 alone means no epoch: any other below 0 is an old one."""
    if current_leader_epoch < NOBODY:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{partition}: leader epoch is {partition.leader_epoch}")
    partition.check_epoch(current_leader_epoch)


def check_session(partition: Partition, context: Context) -> None:
    """Raise NOT_LEADER_OR_FOLLOWER where another node may lead a partition by now, and have more of it."""
    if not context.services.has_session():
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition}: another node may lead it by now")
