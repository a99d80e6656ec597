"""The groups that this broker coordinates: their shards follow the metadata image, and their effects are done.

A group's state machine (`group.py`) leaves effects: answers, timers, records. Here they are done, in order. Requests
are handled by those who use a host: `member_requests.py`, `offset_requests.py` and `groups.py`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.group_records import GroupMetadataKey
from ...protocol.primitives import uuid_to_str
from ...runtime import Runtime
from ..cluster.controller import Controller
from ..cluster.image import Delta
from ..cluster.topic_names import CONSUMER_OFFSETS
from ..config import BrokerConfig
from ..group_options import value_in_force
from ..purgatory import Purgatory
from ..replication.partition import Partition
from .consumer_groups.assignors import ASSIGNORS
from .consumer_groups.decision import GroupOptions, Policy, Rules
from .consumer_groups.group import ConsumerGroup
from .consumer_groups.host import ConsumerGroups
from .consumer_groups.topics import Topics
from .effects import Cancel, Limits, Reply, Schedule, Store
from .elections import Elections
from .group import Group
from .group_shard import GroupShard
from .runtime import CoordinatorRuntime, Producer, Record, Replicas, Shard, client_error
from .timers import Timers

MAX_GROUPS = 100_000  # of one shard; a request that would make one more is refused
EXPIRE = "expire"
EXPIRE_ON_MS = 1  # between two turns of a round
ASSIGNMENT_INTERVAL = "group.consumer.assignment.interval.ms"
NO_OPTIONS: Mapping[str, str] = MappingProxyType({})  # of a group's own
OF_LATER_GROUPS = (  # the errors of members and groups that a later coordinator may know
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
)

logger = logging.getLogger(__name__)


class GroupHost:
    """`shards` are the partitions of `__consumer_offsets` that this broker leads.

    `start` subscribes to the controller, and must do so after the replicas have: they open the partitions first.

    has_session: whether no other node can coordinate them by now. One that was cut off has the groups of that time in
    its memory. What it writes is refused by its followers, but what it only tells nobody would refuse.
    """

    def __init__(
        self, controller: Controller, replicas: Replicas, config: BrokerConfig, runtime: Runtime, purgatory: Purgatory
    ) -> None:
        self._controller = controller
        self._image = controller.image
        self._config = config
        self._runtime = runtime
        self._limits = Limits(config["group.max.size"], config["group.initial.rebalance.delay.ms"])
        self._retention_ms: int = config["offsets.retention.minutes"] * 60_000
        self._check_interval_ms: int = config["offsets.retention.check.interval.ms"]
        self._timers = Timers(self._fired)
        self._default_options = self._options(NO_OPTIONS)
        self._own_options: dict[str, GroupOptions] = {}  # of groups that have options in the image
        self.shards = CoordinatorRuntime(CONSUMER_OFFSETS, self._new_shard, replicas, runtime, purgatory)
        self.elections = Elections(self.shards, self._image, config["node.id"])
        self._topics = Topics(controller.image)
        rules = Rules(
            topics=self._topics,
            assignors={name: ASSIGNORS[name] for name in config["group.consumer.assignors"]},
            options=self._options_of,
            max_size=config["group.consumer.max.size"],
            classic_max_size=config["group.max.size"],
            migration=Policy(config["group.consumer.migration.policy"].upper()),
            wall_ms=runtime.wall_ms,
            new_id=lambda: uuid_to_str(runtime.uuid()),
        )
        self.consumer_groups = ConsumerGroups(self.shards, self._timers, rules)
        self.has_session: Callable[[], bool] = lambda: True

    # --- Life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Coordinate the partitions that this broker leads, now and later. They are read in the background."""
        self._controller.subscribe(self.on_change)
        self.on_change(self._image.everything())

    async def stop(self) -> None:
        await self.consumer_groups.stop()
        await self.shards.stop()
        self._timers.close()

    def on_change(self, delta: Delta) -> None:
        """Follow a change of the metadata image."""
        self._topics.on_change(delta)
        for group_id in delta.group_options:
            self._own_options.pop(group_id, None)
        self.elections.on_change(delta)
        if delta.deleted:
            self._forget_topics(delta.deleted)

    def _forget_topics(self, names: Collection[str]) -> None:
        """Remove the offsets of deleted topics, so that a new topic of the same name has none."""
        for shard in self.shards.shards.values():
            if shard.failure is None:
                self._remove(shard, shard.state.without_topics(names))
            else:
                shard.state.deleted_topics.update(dict.fromkeys(names))

    def _loaded(self, index: int) -> None:
        shard = self.shards.shards[index]
        deleted, shard.state.deleted_topics = shard.state.deleted_topics, {}
        self._remove(shard, shard.state.without_topics(deleted))
        self.consumer_groups.loaded(shard)
        self._timers.schedule((shard, EXPIRE), self._check_interval_ms)

    def _remove(self, shard: Shard[GroupShard], tombstones: Sequence[Record]) -> None:
        try:
            self.shards.write(shard, tombstones, atomic=False)
        except KafkaError as error:
            logger.error("%s: expired or deleted offsets could not be removed: %s", shard.partition, error)

    def _new_shard(self, index: int) -> GroupShard:
        def changed(group: Group) -> None:
            shard = self.shards.shards.get(index)
            if shard is not None and shard.failure is None:
                self.perform(shard, group)
            else:
                self._let_go(group)

        return GroupShard(self._new_group, changed, lambda: self._loaded(index))

    def _options_of(self, group_id: str) -> GroupOptions:
        interval_ms = self._config[ASSIGNMENT_INTERVAL]
        if interval_ms != self._default_options.assignment_interval_ms:  # the others are of the broker's start
            self._default_options = self._options(NO_OPTIONS)
            self._own_options.clear()
        own = self._image.group_configs.get(group_id)
        if own is None:
            return self._default_options
        options = self._own_options.get(group_id)
        if options is None:
            options = self._own_options[group_id] = self._options(own)
        return options

    def _options(self, own: Mapping[str, str]) -> GroupOptions:
        return GroupOptions(
            session_timeout_ms=value_in_force("consumer.session.timeout.ms", own, self._config),
            heartbeat_interval_ms=value_in_force("consumer.heartbeat.interval.ms", own, self._config),
            assignment_interval_ms=value_in_force("consumer.assignment.interval.ms", own, self._config),
        )

    def _new_group(self, group_id: str) -> Group:
        return Group(group_id, self._limits, self._runtime.wall_ms, lambda: str(uuid.UUID(bytes=self._runtime.uuid())))

    def shard_of(self, group_id: str) -> Shard[GroupShard]:
        """The shard that a group belongs to. Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, …"""
        return self.elections.shard_of(group_id)

    def sure_shard_of(self, group_id: str) -> Shard[GroupShard]:
        """The same for what is only told: NOT_COORDINATOR, too, where another node may be the coordinator by now."""
        shard = self.shard_of(group_id)
        if not self.has_session():
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "another node may be the coordinator by now")
        return shard

    def sure(self, error: int) -> int:
        """The code to answer a member with: one that a later coordinator knows must not take itself for unknown, and a
        static member ends for ever if it is told that another one has taken its place."""
        return ErrorCode.NOT_COORDINATOR if error in OF_LATER_GROUPS and not self.has_session() else error

    @property
    def commit_timeout_ms(self) -> int:
        timeout: int = self._config["offsets.commit.timeout.ms"]
        return timeout

    def group_of(self, group_id: str) -> tuple[Shard[GroupShard], Group]:
        """A group and its shard. Raises KafkaError, UNKNOWN_MEMBER_ID for a group that does not exist."""
        shard = self.shard_of(group_id)
        group = shard.state.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} not found.")
        return shard, group

    def consumer_group_of(self, group_id: str) -> tuple[Shard[GroupShard], ConsumerGroup] | None:
        """A consumer group and its shard; None for another kind of group. Raises KafkaError where there is no shard."""
        shard = self.shard_of(group_id)
        group = shard.state.consumer_groups.get(group_id)
        return None if group is None else (shard, group)

    def complete_transaction(
        self,
        index: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int,
    ) -> tuple[Partition, int]:
        """End a producer's transaction in a shard: its offsets count, or are forgotten.

        Gives the partition, and the offset that its high watermark must reach. Raises KafkaError as
        `CoordinatorRuntime.active` and `Partition.write_marker`.
        """
        shard = self.shards.active(index)
        producer = Producer(producer_id, producer_epoch)
        offset = self.shards.complete_transaction(shard, producer, coordinator_epoch, committed, transaction_version)
        return shard.partition, offset

    # --- Effects ------------------------------------------------------------------------------------------------------

    def perform(self, shard: Shard[GroupShard], group: Group) -> None:
        """Do the effects of a group, and those that come of them, until there are none."""
        if not group.effects or group.is_busy:
            return  # none, or an answer led to the next request at once: the call that gave it does these too
        group.is_busy = True
        try:
            while effects := group.take_effects():
                for effect in effects:
                    if isinstance(effect, Schedule):  # not by `match`, which costs as much as the effect
                        self._timers.schedule((shard, (group, effect.timer)), effect.delay_ms)
                    elif isinstance(effect, Reply):
                        effect.token.complete(effect.response)
                    elif isinstance(effect, Cancel):
                        self._timers.cancel((shard, (group, effect.timer)))
                    else:
                        self._store(shard, group, effect)
        finally:
            group.is_busy = False

    def _let_go(self, group: Group) -> None:
        """The same for a group that is no longer coordinated here: only the answers are given."""
        for effect in group.take_effects():
            if isinstance(effect, Reply):
                effect.token.complete(effect.response)

    def _store(self, shard: Shard[GroupShard], group: Group, store: Store) -> None:
        if shard.state.groups.get(group.group_id) is not group:
            return  # an answer led to a request that has made another kind of group of it

        def done(error: KafkaError | None) -> None:
            if error is not None:
                logger.error("group %s could not be stored: %s", group.group_id, error)
            else:
                number, members = group.generation.number, len(group.members)
                logger.info("group %s: generation %d, %d members", group.group_id, number, members)
            group.stored(store.tag, ErrorCode.NONE if error is None else client_error(error.code))
            self.perform(shard, group)

        try:
            record = (GroupMetadataKey(group=group.group_id), store.value)
            offset = self.shards.write(shard, [record], replay=False)
        except KafkaError as error:
            done(error)
        else:
            self.shards.when_committed(shard, offset, done)

    def _fired(self, name: Hashable) -> None:
        assert isinstance(name, tuple)
        shard: Shard[GroupShard] = name[0]
        what: Any = name[1]
        if self.shards.shards.get(shard.index) is not shard:
            return  # the shard is another broker's now, or was read again
        if what == EXPIRE:
            self._remove(shard, shard.state.expire(self._runtime.wall_ms(), self._retention_ms))
            self._timers.schedule(name, EXPIRE_ON_MS if shard.state.is_expiring else self._check_interval_ms)
            return
        if isinstance(what[0], str):
            self.consumer_groups.fired(shard, *what)
            return
        group: Group = what[0]
        if shard.state.groups.get(group.group_id) is group:
            group.fired(what[1])
            self.perform(shard, group)
