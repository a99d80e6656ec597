"""The groups that this broker coordinates: found by their id, given time, and what they ask for is done.

A group's state machine decides and leaves effects: answers, timers, records. Here they are carried out, in order. The
requests are in `membership.py`, `offset_requests.py` and `groups.py`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Hashable

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.group_records import GroupMetadataKey
from ...runtime import Runtime
from ..cluster.controller import Controller
from ..cluster.image import Delta
from ..cluster.topic_names import CONSUMER_OFFSETS
from ..config import BrokerConfig
from ..purgatory import Purgatory
from . import find
from .effects import Cancel, Limits, Reply, Schedule, Store
from .group import Group
from .group_shard import GroupShard
from .runtime import CoordinatorRuntime, Replicas, Shard, told
from .timers import Timers

MAX_GROUPS = 100_000  # of one shard; more are told that there is no coordinator
EXPIRE = ("expire",)

logger = logging.getLogger(__name__)


class GroupHost:
    """Made after the replicas are subscribed to the controller: `start` follows it in turn."""

    def __init__(
        self, controller: Controller, replicas: Replicas, config: BrokerConfig, runtime: Runtime, purgatory: Purgatory
    ) -> None:
        self._controller = controller
        self._image = controller.image
        self._config = config
        self._runtime = runtime
        self._purgatory = purgatory
        self._node_id: int = config["node.id"]
        self._limits = Limits(config["group.max.size"], config["group.initial.rebalance.delay.ms"])
        self._retention_ms: int = config["offsets.retention.minutes"] * 60_000
        self._timers = Timers(self._fired)
        self._shards = CoordinatorRuntime(CONSUMER_OFFSETS, self._new_shard, replicas, runtime, purgatory)

    # --- Life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Coordinate what this broker leads, now and later. Groups are read in the background."""
        self._controller.subscribe(self.on_change)
        self.on_change(self._image.everything())
        self._timers.schedule(EXPIRE, self._config["offsets.retention.check.interval.ms"])

    async def stop(self) -> None:
        await self._shards.stop()
        self._timers.close()

    def on_change(self, delta: Delta) -> None:
        """Follow the metadata image."""
        if CONSUMER_OFFSETS in delta.deleted:
            for index in list(self._shards.shards):
                self._shards.resign(index)
        for index in delta.changed.get(CONSUMER_OFFSETS, ()):
            partition = self._image.partition(CONSUMER_OFFSETS, index)
            if partition is not None and partition.leader == self._node_id:
                self._shards.elect(index)
            else:
                self._shards.resign(index)

    def _new_shard(self, index: int) -> GroupShard:
        def changed(group: Group) -> None:
            shard = self._shards.shards.get(index)
            if shard is not None and shard.failure is None:
                self._perform(shard, group)
            else:
                self._let_go(group)

        return GroupShard(self._new_group, changed)

    def _new_group(self, group_id: str) -> Group:
        return Group(group_id, self._limits, self._runtime.wall_ms, lambda: str(uuid.UUID(bytes=self._runtime.uuid())))

    def _shard_of(self, group_id: str) -> Shard[GroupShard]:
        """Raises KafkaError."""
        topic = self._image.topics.get(CONSUMER_OFFSETS)
        if topic is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{CONSUMER_OFFSETS} does not exist yet")
        return self._shards.active(find.partition_for(group_id, len(topic.partitions)))

    @property
    def _commit_timeout_ms(self) -> int:
        timeout: int = self._config["offsets.commit.timeout.ms"]
        return timeout

    def _group_of(self, group_id: str) -> tuple[Shard[GroupShard], Group]:
        """Raises KafkaError, UNKNOWN_MEMBER_ID for a group that does not exist."""
        shard = self._shard_of(group_id)
        group = shard.state.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} not found.")
        return shard, group

    # --- Effects ------------------------------------------------------------------------------------------------------

    def _perform(self, shard: Shard[GroupShard], group: Group) -> None:
        """Do what the group asks for, until it asks for nothing more."""
        if group.is_busy:
            return  # an answer led straight to the next request; further up its effects are done in their turn
        group.is_busy = True
        try:
            while effects := group.take_effects():
                for effect in effects:
                    match effect:
                        case Reply(token, response):
                            token.complete(response)
                        case Schedule(timer, delay_ms):
                            self._timers.schedule((shard.index, group.group_id, timer), delay_ms)
                        case Cancel(timer):
                            self._timers.cancel((shard.index, group.group_id, timer))
                        case Store():
                            self._store(shard, group, effect)
        finally:
            group.is_busy = False

    def _let_go(self, group: Group) -> None:
        """Of a group that is not coordinated here any more only the answers are given."""
        for effect in group.take_effects():
            if isinstance(effect, Reply):
                effect.token.complete(effect.response)

    def _store(self, shard: Shard[GroupShard], group: Group, store: Store) -> None:
        def done(error: KafkaError | None) -> None:
            if error is not None:
                logger.error("group %s could not be stored: %s", group.group_id, error)
            else:
                logger.info("group %s: generation %d, %d members", group.group_id, group.generation, len(group.members))
            group.stored(store.tag, ErrorCode.NONE if error is None else told(error.code))
            self._perform(shard, group)

        try:
            record = (GroupMetadataKey(group=group.group_id), store.value)
            offset = self._shards.write(shard, [record], replay=False)
        except KafkaError as error:
            done(error)
        else:
            self._shards.when_committed(shard, offset, done)

    def _fired(self, name: Hashable) -> None:
        if name == EXPIRE:
            self._expire()
            return
        assert isinstance(name, tuple)
        index, group_id, timer = name
        shard = self._shards.shards.get(index)
        group = None if shard is None else shard.state.groups.get(group_id)
        if shard is not None and group is not None:
            group.fired(timer)
            self._perform(shard, group)

    def _expire(self) -> None:
        for shard in self._shards.shards.values():
            if shard.failure is None:
                records = shard.state.expire(self._runtime.wall_ms(), self._retention_ms)
                try:
                    self._shards.write(shard, records, atomic=False)
                except KafkaError as error:
                    logger.error("offsets that are too old could not be removed: %s", error)
        self._timers.schedule(EXPIRE, self._config["offsets.retention.check.interval.ms"])
