"""OffsetCommit, OffsetDelete and OffsetFetch: the requests about a group's offsets.

`offsets.py` stores the offsets and builds the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import offset_commit as oc
from ...protocol.messages import offset_delete as od
from ...protocol.messages import offset_fetch as of
from ..purgatory import Pending
from . import offsets
from .group_host import MAX_GROUPS, GroupHost
from .group_shard import GroupShard
from .group_states import State
from .runtime import Shard, client_error


class OffsetRequests(GroupHost):
    """Every method takes the decoded request, its version, the client's id and host."""

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
            return commit.fail(client_error(error.code))
        return self._shards.answer(
            shard, lambda error: commit.fail(error) if error else commit.response, self._commit_timeout_ms
        )

    def _check_commit(self, request: oc.Request, version: int, shard: Shard[GroupShard]) -> None:
        """Raises KafkaError if the group does not accept a commit from this member."""
        generation = request.generation_id_or_member_epoch
        group = shard.state.groups.get(request.group_id)
        if group is None:
            if generation >= 0:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION)
            if len(shard.state.groups) >= MAX_GROUPS:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return  # a consumer without group management; its first offset creates the group
        error = group.check_commit(request.member_id, request.group_instance_id, generation)
        if error:
            raise KafkaError(error)
        if group.state in (State.STABLE, State.PREPARING):
            group.touch(request.member_id)
            self._perform(shard, group)

    def offset_delete(self, request: od.Request, version: int, client_id: str, client_host: str) -> Any:
        deletion = offsets.prepare_delete(request, self._image)
        if not request.group_id:
            return od.Response(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            shard = self._shard_of(request.group_id)
            group = shard.state.groups.get(request.group_id)
            error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete_offsets()
            if error or group is None:
                return od.Response(error_code=error)
            self._shards.write(shard, deletion.decide(shard.state.offsets, group.is_subscribed), atomic=False)
        except KafkaError as failure:
            return od.Response(error_code=client_error(failure.code))
        return self._shards.answer(
            shard,
            lambda error: od.Response(error_code=error) if error else deletion.response,
            self._commit_timeout_ms,
        )

    def offset_fetch(self, request: of.Request, version: int, client_id: str, client_host: str) -> Any:
        asked = offsets.asked_groups(request, version)
        answers: list[of.OffsetFetchResponseGroup] = []
        waits: dict[int, Shard[GroupShard]] = {}
        for group in asked:
            try:
                shard = self._shard_of(group.group_id)
            except KafkaError as error:
                answers.append(offsets.failed_group(group, version, client_error(error.code)))
                continue
            answers.append(offsets.fetch_group(group, version, shard.state.offsets, self._image))
            if shard.partition.high_watermark < shard.written:
                waits[shard.index] = shard
        # An offset that is not committed to the log yet might be lost after it was returned.
        return self._after(list(waits.values()), asked, lambda: offsets.fetch_response(answers, version), version)

    def _after(
        self,
        shards: list[Shard[GroupShard]],
        asked: list[of.OffsetFetchRequestGroup],
        respond: Callable[[], Any],
        version: int,
    ) -> Any:
        """The answer of `respond()`, when all that the shards have written is committed."""
        if not shards:
            return respond()

        def fail(code: ErrorCode) -> Any:
            return offsets.fetch_response([offsets.failed_group(group, version, code) for group in asked], version)

        left = len(shards)

        def safe(error: KafkaError | None) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                pending.complete(fail(client_error(error.code)))
            elif not left:
                pending.complete(respond())

        pending = Pending(lambda: fail(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        for shard in shards:
            self._shards.when_committed(shard, shard.written, safe)
        return self._purgatory.add(pending, self._commit_timeout_ms)
