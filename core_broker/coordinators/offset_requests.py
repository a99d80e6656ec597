"""OffsetCommit, OffsetDelete and OffsetFetch.

`offsets.py` has the offsets themselves, and makes records and answers from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import offset_commit as oc
from ...protocol.messages import offset_delete as od
from ...protocol.messages import offset_fetch as of
from ...runtime import Runtime
from ..cluster.image import MetadataImage
from ..config import BrokerConfig
from ..purgatory import Pending, Purgatory
from . import offsets
from .consumer_groups.commits import check_commit, check_fetch
from .group_host import MAX_GROUPS, GroupHost
from .group_shard import GroupShard
from .group_states import State
from .runtime import Shard, client_error


class OffsetRequests:
    """Every method takes the decoded request and its version; gives the answer, or a Pending."""

    def __init__(
        self, host: GroupHost, image: MetadataImage, config: BrokerConfig, runtime: Runtime, purgatory: Purgatory
    ) -> None:
        self._host = host
        self._image = image
        self._config = config
        self._runtime = runtime
        self._purgatory = purgatory

    def offset_commit(self, request: oc.Request, version: int) -> Any:
        now_ms = self._runtime.wall_ms()
        commit = offsets.prepare_commit(
            request, version, self._image, now_ms, self._config["offset.metadata.max.bytes"]
        )  # fmt: skip
        if not commit.accepted:
            return commit.response
        try:
            shard = self._host.shard_of(request.group_id)
            self._check_commit(commit, request, version, shard)
            self._host.shards.write(shard, commit.records)
        except KafkaError as error:
            return commit.fail(client_error(self._host.sure(error.code)))
        return self._host.shards.answer(
            shard, lambda error: commit.fail(error) if error else commit.response, self._host.commit_timeout_ms
        )

    def _check_commit(
        self, commit: offsets.Commit, request: oc.Request, version: int, shard: Shard[GroupShard]
    ) -> None:  # fmt: skip
        """Raises KafkaError where the group refuses a commit of this member."""
        generation = request.generation_id_or_member_epoch
        consumers = shard.state.consumer_groups.get(request.group_id)
        if consumers is not None:
            partitions = ((value.topic_id, key.partition) for key, value in commit.records)
            check_commit(consumers, request.member_id, request.group_instance_id, generation, partitions, version)
            return
        group = shard.state.groups.get(request.group_id)
        if group is None:
            if generation >= 0:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION)
            if shard.state.size >= MAX_GROUPS:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return  # a consumer outside of any group; the group is made when its first offset is replayed
        error = group.check_commit(request.member_id, request.group_instance_id, generation)
        if error:
            raise KafkaError(error)
        if group.state in (State.STABLE, State.PREPARING):
            group.touch(request.member_id)
            self._host.perform(shard, group)

    def offset_delete(self, request: od.Request, version: int) -> Any:
        deletion = offsets.prepare_delete(request, self._image)
        if not request.group_id:
            return od.Response(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            shard = self._host.sure_shard_of(request.group_id)
            tombstones = deletion.decide(shard.state.offsets, self._is_subscribed(shard, request.group_id))
            self._host.shards.write(shard, tombstones, atomic=False)
        except KafkaError as failure:
            return od.Response(error_code=client_error(failure.code))
        return self._host.shards.answer(
            shard,
            lambda error: od.Response(error_code=error) if error else deletion.response,
            self._host.commit_timeout_ms,
        )

    def _is_subscribed(self, shard: Shard[GroupShard], group_id: str) -> Callable[[str], bool]:
        """Whether members of a group read a topic. Raises KafkaError where no offsets are to be deleted now."""
        consumers = shard.state.consumer_groups.get(group_id)
        if consumers is not None:
            return consumers.is_subscribed
        group = shard.state.groups.get(group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete_offsets()
        if error or group is None:
            raise KafkaError(error)
        return group.generation.is_subscribed

    def offset_fetch(self, request: of.Request, version: int) -> Any:
        asked = offsets.asked_groups(request, version)
        answers: list[of.OffsetFetchResponseGroup] = []
        waits: dict[int, Shard[GroupShard]] = {}
        for group in asked:
            try:
                shard = self._host.sure_shard_of(group.group_id)
                consumers = shard.state.consumer_groups.get(group.group_id)
                if consumers is not None:
                    check_fetch(consumers, group.member_id, group.member_epoch)
            except KafkaError as error:
                answers.append(offsets.failed_group(group, version, client_error(error.code)))
                continue
            found = offsets.fetch_group(group, version, shard.state.offsets, self._image, request.require_stable)
            answers.append(found)
            if shard.partition.high_watermark < shard.written:
                waits[shard.index] = shard
        # An offset above the high watermark may still be lost: it must not be given out.
        return self._after(list(waits.values()), asked, lambda: offsets.fetch_response(answers, version), version)

    def _after(
        self,
        shards: list[Shard[GroupShard]],
        asked: list[of.OffsetFetchRequestGroup],
        respond: Callable[[], Any],
        version: int,
    ) -> Any:
        """`respond()` once all that the shards have written is below their high watermarks."""
        if not shards:
            return respond()

        def fail(code: ErrorCode) -> Any:
            return offsets.fetch_response([offsets.failed_group(group, version, code) for group in asked], version)

        left = len(shards)

        def committed(error: KafkaError | None) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                pending.complete(fail(client_error(error.code)))
            elif not left:
                pending.complete(respond())

        pending = Pending(lambda: fail(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        for shard in shards:
            self._host.shards.when_committed(shard, shard.written, committed)
        return self._purgatory.add(pending, self._host.commit_timeout_ms)
