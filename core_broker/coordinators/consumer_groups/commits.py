"""Whether a member of a consumer group may commit or fetch offsets under an epoch. Pure.

A partition stays with its member over many epochs. So a commit under an older epoch is good for the partitions that the
member has had since then (KIP-1251); the others have had another owner meanwhile, or may have.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.errors import ErrorCode, KafkaError
from .group import ConsumerGroup
from .heartbeat import unknown
from .member import Member

EPOCHS_SINCE = 9  # version of OffsetCommit that has member epochs


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    partitions: Iterable[tuple[bytes, int]],
    version: int | None,
) -> None:
    """partitions: those of the commit, by topic id and index. version: of OffsetCommit; None for TxnOffsetCommit.

    Raises KafkaError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, UNSUPPORTED_VERSION, and ILLEGAL_GENERATION to members
    that speak the classic protocol.
    """
    member = committing_member(group, member_id, instance_id, epoch, version)
    if member is not None and epoch != member.epoch:
        check_given(member, epoch, partitions)


def committing_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int, version: int | None
) -> Member | None:  # fmt: skip
    """The member whose partitions are to be looked at; None where anybody may commit. Raises as `check_commit`."""
    if epoch < 0 and not group.members:
        return None  # a consumer or a tool outside of the group, which nobody uses
    if version is None and (epoch, member_id, instance_id) == (-1, "", None):
        return None  # a producer from before KIP-447
    member = group.members.get(member_id)
    if member is None:
        raise unknown(group, member_id)
    if version is not None and version < EPOCHS_SINCE and member.classic is None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
        )
    if epoch > member.epoch:
        raise _stale(member, f"Epoch {epoch} is newer than the member's, {member.epoch}.")
    return member


def check_given(member: Member, epoch: int, partitions: Iterable[tuple[bytes, int]]) -> None:
    """Raises KafkaError for partitions that the member has not had since its epoch was that."""
    for topic_id, partition in partitions:
        since = member.given_at(topic_id, partition)
        if since is None or epoch < since:
            raise _stale(member, f"Epoch {epoch} is older than that at which the member was given the partition.")


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Raises KafkaError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION. Who is no member may fetch, too."""
    if member_id is None and epoch < 0:
        return
    member = None if member_id is None else group.members.get(member_id)
    if member is None:
        raise unknown(group, str(member_id))
    if epoch != member.epoch:
        raise _stale(member, f"Epoch {epoch} is not the member's, {member.epoch}.")


def _stale(member: Member, message: str) -> KafkaError:
    is_classic = member.classic is not None
    return KafkaError(ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH, message)
