"""The group coordinator: requests in, answers or Pendings out.

It finds the shard and the group of a request, lets the group's state machine decide, and does what the group asks
for: answers, timers, records. Classic groups only; the group type of KIP-848 is not there yet.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Hashable
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import delete_groups as dlg
from ...protocol.messages import describe_groups as dsg
from ...protocol.messages import find_coordinator as fc
from ...protocol.messages import heartbeat as hb
from ...protocol.messages import join_group as jg
from ...protocol.messages import leave_group as lg
from ...protocol.messages import list_groups as lsg
from ...protocol.messages import offset_commit as oc
from ...protocol.messages import offset_fetch as of
from ...protocol.messages import sync_group as sg
from ...protocol.messages.group_records import GroupMetadataKey
from ...runtime import Runtime
from ..cluster.controller import Controller, CreateTopics, new_topic
from ..cluster.image import Delta
from ..cluster.topic_names import CONSUMER_OFFSETS
from ..config import BrokerConfig
from ..purgatory import Pending, Purgatory
from . import find, inspection, offsets
from .effects import Caller, Cancel, Limits, Reply, Schedule, Store
from .group import Group
from .group_shard import GroupShard
from .group_states import State
from .runtime import CoordinatorRuntime, Replicas, Shard, told
from .timers import Timers

MAX_GROUPS = 100_000  # on this broker; more are told that there is no coordinator
LONGEST_JOIN_MS = 60 * 60 * 1000  # a join or sync that nobody answered by then is told to ask again
EXPIRE = ("expire",)

logger = logging.getLogger(__name__)


class GroupCoordinator:
    """Every request method takes the decoded request, its version, the client's id and host.

    Made after the replicas are subscribed to the controller: `start` follows it in turn.
    """

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

    # --- Join, sync, heartbeat, leave ---------------------------------------------------------------------------------

    def join_group(self, request: jg.Request, version: int, client_id: str, client_host: str) -> Any:
        def refuse(error: int) -> jg.Response:
            return _join_told(jg.Response(member_id=request.member_id, error_code=error), version)

        low, high = self._config["group.min.session.timeout.ms"], self._config["group.max.session.timeout.ms"]
        if not request.group_id:
            return refuse(ErrorCode.INVALID_GROUP_ID)
        if not low <= request.session_timeout_ms <= high:
            return refuse(ErrorCode.INVALID_SESSION_TIMEOUT)
        try:
            shard = self._shard_of(request.group_id)
        except KafkaError as error:
            return refuse(error.code)
        group = shard.state.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                return refuse(ErrorCode.UNKNOWN_MEMBER_ID)
            if len(shard.state.groups) >= MAX_GROUPS:
                return refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            group = shard.state.group(request.group_id)
        token = Token(lambda: refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE), lambda told: _join_told(told, version))
        group.join(request, Caller(version, client_id or "", _host(client_host)), token)
        self._perform(shard, group)
        return self._purgatory.add(token, LONGEST_JOIN_MS)

    def sync_group(self, request: sg.Request, version: int, client_id: str, client_host: str) -> Any:
        if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            return sg.Response(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.group_id:
            return sg.Response(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            shard, group = self._group_of(request.group_id)
        except KafkaError as error:
            return sg.Response(error_code=error.code)
        late = sg.Response(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        token = Token(lambda: late, lambda told: told)
        group.sync(request, token)
        self._perform(shard, group)
        return self._purgatory.add(token, LONGEST_JOIN_MS)

    def heartbeat(self, request: hb.Request, version: int, client_id: str, client_host: str) -> Any:
        if not request.group_id:
            return hb.Response(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            shard, group = self._group_of(request.group_id)
        except KafkaError as error:
            # While groups are read, a member is as well as it was.
            loading = error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return hb.Response(error_code=ErrorCode.NONE if loading else error.code)
        code = group.heartbeat(request.member_id, request.group_instance_id, request.generation_id)
        self._perform(shard, group)
        return hb.Response(error_code=code)

    def leave_group(self, request: lg.Request, version: int, client_id: str, client_host: str) -> Any:
        leaving = request.members if version >= 3 else [lg.MemberIdentity(member_id=request.member_id)]

        def respond(error: int, members: list[lg.MemberResponse]) -> lg.Response:
            if version >= 3:
                return lg.Response(error_code=error, members=[] if error else members)
            return lg.Response(error_code=error or members[0].error_code)

        if not request.group_id:
            return respond(ErrorCode.INVALID_GROUP_ID, [])
        try:
            shard, group = self._group_of(request.group_id)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_MEMBER_ID:
                return respond(error.code, [])
            unknown = [
                lg.MemberResponse(
                    member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=error.code
                )
                for each in leaving
            ]
            return respond(ErrorCode.NONE, unknown)
        members = group.leave(leaving)
        self._perform(shard, group)
        return self._shards.answer(shard, lambda error: respond(error, members), self._commit_timeout_ms)

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

    # --- Offsets ------------------------------------------------------------------------------------------------------

    def offset_commit(self, request: oc.Request, version: int, client_id: str, client_host: str) -> Any:
        now_ms = self._runtime.wall_ms()
        commit = offsets.prepare_commit(
            request, version, self._image, now_ms, self._config["offset.metadata.max.bytes"]
        )  # fmt: skip
        if not commit.accepted:
            return commit.response
        try:
            shard = self._shard_of(request.group_id)
            self._check_commit(request, version, shard)
            self._shards.write(shard, commit.records)
        except KafkaError as error:
            return commit.fail(told(error.code))
        return self._shards.answer(
            shard, lambda error: commit.fail(error) if error else commit.response, self._commit_timeout_ms
        )

    def _check_commit(self, request: oc.Request, version: int, shard: Shard[GroupShard]) -> None:
        """Raises KafkaError when the group does not take a commit from this member."""
        generation = request.generation_id_or_member_epoch
        group = shard.state.groups.get(request.group_id)
        if group is None:
            if generation >= 0:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION)
            if len(shard.state.groups) >= MAX_GROUPS:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return  # a consumer that manages itself; the group comes to be with its first offset
        error = group.check_commit(request.member_id, request.group_instance_id, generation)
        if error:
            raise KafkaError(error)
        if group.state in (State.STABLE, State.PREPARING):
            group.touch(request.member_id)
            self._perform(shard, group)

    def offset_fetch(self, request: of.Request, version: int, client_id: str, client_host: str) -> Any:
        asked = offsets.asked_groups(request, version)
        answers: list[of.OffsetFetchResponseGroup] = []
        waits: dict[int, Shard[GroupShard]] = {}
        for group in asked:
            try:
                shard = self._shard_of(group.group_id)
            except KafkaError as error:
                answers.append(offsets.failed_group(group, version, told(error.code)))
                continue
            answers.append(offsets.fetch_group(group, version, shard.state.offsets, self._image))
            if shard.partition.high_watermark < shard.written:
                waits[shard.index] = shard
        # An offset that is not safe yet might be told and then be gone.
        return self._after(list(waits.values()), asked, lambda: offsets.fetch_response(answers, version), version)

    def _after(
        self,
        shards: list[Shard[GroupShard]],
        asked: list[of.OffsetFetchRequestGroup],
        respond: Callable[[], Any],
        version: int,
    ) -> Any:
        """`respond()` when all that the shards have written is safe."""
        if not shards:
            return respond()

        def fail(code: ErrorCode) -> Any:
            return offsets.fetch_response([offsets.failed_group(group, version, code) for group in asked], version)

        left = len(shards)

        def safe(error: KafkaError | None) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                pending.complete(fail(told(error.code)))
            elif not left:
                pending.complete(respond())

        pending = Pending(lambda: fail(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        for shard in shards:
            self._shards.when_committed(shard, shard.written, safe)
        return self._purgatory.add(pending, self._commit_timeout_ms)

    # --- Describe, list, delete, find ---------------------------------------------------------------------------------

    def describe_groups(self, request: dsg.Request, version: int, client_id: str, client_host: str) -> Any:
        return inspection.describe(request, version, lambda group_id: self._shard_of(group_id).state)

    def list_groups(self, request: lsg.Request, version: int, client_id: str, client_host: str) -> Any:
        return inspection.listed(request, [self._shards.shards[index] for index in sorted(self._shards.shards)])

    def delete_groups(self, request: dlg.Request, version: int, client_id: str, client_host: str) -> Any:
        results = [self._delete(group_id) for group_id in dict.fromkeys(request.groups_names)]
        waits = {shard.index: shard for shard, _ in results if shard is not None}
        response = dlg.Response(results=[result for _, result in results])
        for shard in waits.values():
            if shard.partition.high_watermark < shard.written:
                return self._shards.answer(shard, lambda error: response, self._commit_timeout_ms)
        return response

    def _delete(self, group_id: str) -> tuple[Shard[GroupShard] | None, dlg.DeletableGroupResult]:
        result = dlg.DeletableGroupResult(group_id=group_id)
        shard = None
        try:
            shard = self._shard_of(group_id)
            group = shard.state.groups.get(group_id)
            if group is None:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            if error := group.check_delete():
                raise KafkaError(error, "The group is not empty.")
            self._shards.write(shard, shard.state.delete(group_id), atomic=False)
        except KafkaError as error:
            result.error_code, result.error_message = told(error.code), error.message
        return shard, result

    def find_coordinator(
        self,
        request: fc.Request,
        version: int,
        client_id: str = "",
        client_host: str = "",
        listener: str | None = None,
    ) -> Any:
        """listener: the one the request came by; its addresses are told. The first is taken if it is not said."""
        name = listener or next(iter(self._image.brokers[self._node_id].endpoints))
        kind = find.kind_error(request, version)

        def respond() -> fc.Response:
            def look(key: str) -> find.Found:
                return find.Found(kind) if kind else find.find(self._image, key, name)

            return find.respond(request, version, look)

        if kind or CONSUMER_OFFSETS in self._image.topics:
            return respond()
        pending = Pending(respond)

        def created(result: Any) -> None:
            pending.complete(respond())

        self._controller.submit(CreateTopics([self._topic()]), created)
        return self._purgatory.add(pending, self._config["request.timeout.ms"])

    def _topic(self) -> Any:
        return new_topic(
            CONSUMER_OFFSETS,
            self._config["offsets.topic.num.partitions"],
            self._config["offsets.topic.replication.factor"],
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(self._config["offsets.topic.segment.bytes"]),
            },
        )


class Token(Pending):
    """A join or sync that waits for its group. `shape` fits the group's answer to the request's version."""

    __slots__ = ("_shape",)

    def __init__(self, on_expire: Callable[[], Any], shape: Callable[[Any], Any]) -> None:
        super().__init__(on_expire)
        self._shape = shape

    def complete(self, answer: Any) -> bool:
        return super().complete(None if answer is None else self._shape(answer))


def _join_told(response: jg.Response, version: int) -> jg.Response:
    """A refusal names no protocol; before version 7 the name cannot be null."""
    if response.error_code or response.protocol_name is None:
        response.protocol_name = None if version >= 7 else ""
    return response


def _host(client_host: str) -> str:
    """As Kafka writes it."""
    return client_host if client_host.startswith("/") else f"/{client_host}"
