"""From what a member has to its target assignment: revoke before assign, one owner of a partition at a time (KIP-848).

A member moves in steps, one a heartbeat at most: it gives back what it must; it goes to the target's epoch with what is
free; it gets what others have released since. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ....protocol.errors import ErrorCode, KafkaError
from .member import Assigned, Member, MemberState, Target

NOBODY = -1  # the epoch of a partition that no member has

Owned = Mapping[bytes, frozenset[int]]  # what a member says it has, by topic id


def next_step(
    member: Member,
    target_epoch: int,
    target: Target,
    subscribed: Collection[bytes],
    partition_epoch: Callable[[bytes, int], int],
    owned: Owned | None,
    has_new_subscription: bool,
) -> Member:
    """The member after its next step, or the same member if there is none to make.

    subscribed: ids of the topics that it wants now. partition_epoch: under which a member has a partition, or NOBODY.
    owned: None where the member does not say. Raises KafkaError, FENCED_MEMBER_EPOCH.
    """
    step = _Step(member, target_epoch, target, subscribed, partition_epoch, owned)
    match member.state:
        case MemberState.STABLE:
            if member.epoch != target_epoch:
                return step.towards_target(member.epoch)
            return step.without_unsubscribed() if has_new_subscription else member
        case MemberState.UNREVOKED_PARTITIONS:
            if not step.still_has(member.pending_revocation):
                return step.towards_target(member.epoch)
            return step.without_unsubscribed() if has_new_subscription else member
        case MemberState.UNRELEASED_PARTITIONS:
            return step.towards_target(member.epoch)
        case MemberState.UNKNOWN:
            if owned is not None and not owned:
                return step.towards_target(target_epoch)
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. The member must abandon all its partitions and "
                "rejoin.",
            )


class _Step:
    def __init__(
        self,
        member: Member,
        target_epoch: int,
        target: Target,
        subscribed: Collection[bytes],
        partition_epoch: Callable[[bytes, int], int],
        owned: Owned | None,
    ) -> None:
        self._member = member
        self._target_epoch = target_epoch
        self._target = target
        self._subscribed = subscribed
        self._partition_epoch = partition_epoch
        self._owned = owned

    def still_has(self, revoked: Assigned) -> bool:
        """Whether the member has any of these, as far as it says."""
        if self._owned is None:
            return True
        return any(not partitions.isdisjoint(revoked.get(topic_id, ())) for topic_id, partitions in self._owned.items())

    def without_unsubscribed(self) -> Member:
        """The member gives back the topics that it does not want any more, without waiting for a new target."""
        member = self._member
        kept, revoked = {}, dict(member.pending_revocation)
        for topic_id, partitions in member.assigned.items():
            if topic_id in self._subscribed:
                kept[topic_id] = partitions
            else:
                revoked[topic_id] = {**revoked.get(topic_id, {}), **partitions}
        if len(kept) == len(member.assigned):
            return member
        if revoked and self.still_has(revoked):
            return member.moved_to(member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
        return member.moved_to(member.epoch, member.state, kept, member.pending_revocation)

    def towards_target(self, epoch: int) -> Member:
        """epoch: that the member keeps while it has partitions to give back."""
        member = self._member
        kept: dict[bytes, Mapping[int, int]] = {}
        revoked: dict[bytes, Mapping[int, int]] = {}
        given: dict[bytes, dict[int, int]] = {}
        waits = False
        for topic_id in dict.fromkeys([*self._target, *member.assigned]):
            wanted = self._target.get(topic_id, frozenset()) if topic_id in self._subscribed else frozenset()
            current = member.assigned.get(topic_id, {})
            if stays := {index: since for index, since in current.items() if index in wanted}:
                kept[topic_id] = stays
            if leaves := {index: since for index, since in current.items() if index not in wanted}:
                revoked[topic_id] = leaves
            missing = [index for index in sorted(wanted) if index not in current]
            free = [index for index in missing if self._is_free(topic_id, index)]
            waits |= len(free) < len(missing)
            if free:
                given[topic_id] = dict.fromkeys(free, self._target_epoch)
        if revoked and self.still_has(revoked):
            return member.moved_to(epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
        for topic_id, partitions in given.items():
            kept[topic_id] = {**kept.get(topic_id, {}), **partitions}
        state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
        return member.moved_to(self._target_epoch, state, kept, {})

    def _is_free(self, topic_id: bytes, partition: int) -> bool:
        """Whether no other member has it. What the member itself was to give back, it may have again."""
        is_own = partition in self._member.pending_revocation.get(topic_id, ())
        return is_own or self._partition_epoch(topic_id, partition) == NOBODY
