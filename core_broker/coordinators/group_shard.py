"""One partition of `__consumer_offsets`: the groups that hash to it, and their offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import group_records
from ...protocol.messages.consumer_group_records import ConsumerGroupMetadataKey
from ...protocol.messages.group_records import GroupMetadataKey, OffsetCommitKey
from .consumer_groups.group import KEYS as CONSUMER_GROUP_KEYS
from .consumer_groups.group import ConsumerGroup
from .group import Group
from .group_states import State
from .members import Protocols
from .offsets import Offsets
from .runtime import Record

EXPIRED_A_TURN = 200  # groups, so that a turn of the loop takes some milliseconds


class GroupShard:
    """The `ShardState` of a shard of `__consumer_offsets`.

    groups: the classic ones; an id is of one kind of group only. changed: called with a group that has effects to be
    done. on_loaded: called when all records have been read.
    """

    def __init__(
        self, new_group: Callable[[str], Group], changed: Callable[[Group], None], on_loaded: Callable[[], None]
    ) -> None:
        self.groups: dict[str, Group] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self.offsets = Offsets()
        self.deleted_topics: dict[str, None] = {}  # while the shard was read: their offsets are yet to be removed
        self._to_expire: list[str] = []  # groups that this round of `expire` has not come to
        self._new_group = new_group
        self._changed = changed
        self._on_loaded = on_loaded

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        key, value = record
        return group_records.encode_key(key), None if value is None else group_records.encode_value(value)

    def decode(self, key: Any, value: Any) -> Record | None:
        known = group_records.decode_key(key)
        return None if known is None else (known, group_records.decode_value(known, value))

    def replay(self, key: Any, value: Any, offset: int, producer_id: int) -> None:
        if isinstance(key, OffsetCommitKey):
            self.offsets.replay(key, value, offset, producer_id)
            if value is not None and key.group not in self.consumer_groups:
                self.group(key.group)
        elif isinstance(key, GroupMetadataKey):
            self._remove_classic(key.group)
            if value is not None:
                self.consumer_groups.pop(key.group, None)
                self.group(key.group).load(value)
        elif isinstance(key, CONSUMER_GROUP_KEYS):
            self._replay_consumer_group(key, value)

    def _remove_classic(self, group_id: str) -> None:
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.close(ErrorCode.UNKNOWN_MEMBER_ID)
            self._changed(group)

    def _replay_consumer_group(self, key: Any, value: Any) -> None:
        group_id = key.group_id
        group = self.consumer_groups.get(group_id)
        if group is None:
            if value is None:
                return
            self._remove_classic(group_id)
            group = self.consumer_groups[group_id] = ConsumerGroup(group_id)
        group.replay(key, value)
        if value is None and isinstance(key, ConsumerGroupMetadataKey):
            del self.consumer_groups[group_id]

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed)

    def loaded(self) -> None:
        for group in list(self.groups.values()):
            group.loaded()
            self._changed(group)
        self._on_loaded()

    def unloaded(self) -> None:
        groups, self.groups, self.consumer_groups = self.groups, {}, {}
        for group in groups.values():
            group.close(ErrorCode.NOT_COORDINATOR)
            self._changed(group)

    @property
    def size(self) -> int:
        """How many groups there are."""
        return len(self.groups) + len(self.consumer_groups)

    def group(self, group_id: str) -> Group:
        """The classic group; created if it does not exist."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = self._new_group(group_id)
        return group

    def converted(self, group_id: str, protocols: Mapping[str, Protocols]) -> None:
        """The records of a group have made a classic group of it, see `Group.converted`."""
        group = self.groups[group_id]
        group.converted(protocols)
        self._changed(group)

    def check_delete(self, group_id: str) -> None:
        """Raises KafkaError where a group must not be deleted now: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        consumers, classic = self.consumer_groups.get(group_id), self.groups.get(group_id)
        error = ErrorCode.NONE
        if consumers is not None and consumers.members:
            error = ErrorCode.NON_EMPTY_GROUP
        elif consumers is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND if classic is None else classic.check_delete()
        if error:
            is_known = error != ErrorCode.GROUP_ID_NOT_FOUND
            raise KafkaError(error, "The group is not empty." if is_known else f"Group {group_id} not found.")

    def delete(self, group_id: str) -> list[Record]:
        """Records that remove a group and its offsets."""
        return [*self.offsets.tombstones(group_id), *self._tombstones(group_id)]

    def _tombstones(self, group_id: str) -> list[Record]:
        group = self.consumer_groups.get(group_id)
        return [self.tombstone(group_id)] if group is None else group.tombstones()

    @staticmethod
    def tombstone(group_id: str) -> Record:
        """The record that removes a classic group."""
        return GroupMetadataKey(group=group_id), None

    def expire(self, now_ms: int, retention_ms: int) -> list[Record]:
        """Records that remove expired offsets, and groups without members and offsets, of the next EXPIRED_A_TURN
        groups. `is_expiring` then says whether there are more of this round."""
        if not self._to_expire:
            self._to_expire = [*self.groups, *self.consumer_groups]
        records: list[Record] = []
        for group_id in self._to_expire[:EXPIRED_A_TURN]:
            if (group := self.groups.get(group_id)) is not None:
                records += self._expired_classic(group_id, group, now_ms, retention_ms)
            elif (consumers := self.consumer_groups.get(group_id)) is not None:
                records += self._expired_consumers(group_id, consumers, now_ms, retention_ms)
        del self._to_expire[:EXPIRED_A_TURN]
        return records

    @property
    def is_expiring(self) -> bool:
        return bool(self._to_expire)

    def _expired_classic(self, group_id: str, group: Group, now_ms: int, retention_ms: int) -> list[Record]:
        records = self._expired(group, now_ms, retention_ms)
        left = sum(map(len, self.offsets.of_group(group_id).values())) - len(records)
        is_used = left or self.offsets.pending.has_group(group_id) or group.pending_join
        if group.state is State.EMPTY and not is_used:
            records.append(self.tombstone(group_id))
        return records

    def _expired_consumers(
        self, group_id: str, consumers: ConsumerGroup, now_ms: int, retention_ms: int
    ) -> list[Record]:  # fmt: skip
        records = self.offsets.expired(group_id, now_ms, retention_ms, None, consumers.subscribed_names())
        left = sum(map(len, self.offsets.of_group(group_id).values())) - len(records)
        if not consumers.members and not left and not self.offsets.pending.has_group(group_id):
            records += consumers.tombstones()
        return records

    def _expired(self, group: Group, now_ms: int, retention_ms: int) -> list[Record]:
        if not self.offsets.of_group(group.group_id):
            return []
        topics, since_ms = group.generation.subscribed_topics(), None
        if group.generation.protocol_type is not None:
            if group.state is State.EMPTY:
                since_ms = group.state_since_ms if group.state_since_ms >= 0 else None
            elif group.state is not State.STABLE or topics is None:
                return []  # which topics its members read is unknown
        return self.offsets.expired(group.group_id, now_ms, retention_ms, since_ms, topics or frozenset())

    def without_topics(self, topics: Collection[str]) -> list[Record]:
        """Records that remove all offsets of topics."""
        return self.offsets.of_topics(topics)
