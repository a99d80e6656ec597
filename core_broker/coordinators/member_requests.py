"""The requests of members: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Here the request itself is checked, and its group is found; the group's state machine (`group.py`) does the rest. In a
consumer group `consumer_groups/classic_requests.py` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import heartbeat as hb
from ...protocol.messages import join_group as jg
from ...protocol.messages import leave_group as lg
from ...protocol.messages import sync_group as sg
from ..config import BrokerConfig
from ..purgatory import Pending, Purgatory
from .consumer_groups.classic_requests import ClassicRequests
from .effects import Caller
from .group import Group
from .group_host import MAX_GROUPS, GroupHost
from .group_shard import GroupShard
from .runtime import Shard, client_error

LONGEST_JOIN_MS = 60 * 60 * 1000  # a join or sync that waits longer is answered by COORDINATOR_NOT_AVAILABLE


class MemberRequests:
    """Every method takes the decoded request and its version; gives the answer, or a Pending."""

    def __init__(self, host: GroupHost, config: BrokerConfig, purgatory: Purgatory) -> None:
        self._host = host
        self._config = config
        self._purgatory = purgatory
        self._classic = ClassicRequests(host)

    def join_group(self, request: jg.Request, version: int, client_id: str, client_host: str) -> Any:
        def refuse(error: int, member_id: str = request.member_id) -> jg.Response:
            return _shaped(jg.Response(member_id=member_id, error_code=self._host.sure(error)), version)

        low, high = self._config["group.min.session.timeout.ms"], self._config["group.max.session.timeout.ms"]
        if not request.group_id:
            return refuse(ErrorCode.INVALID_GROUP_ID)
        if not low <= request.session_timeout_ms <= high:
            return refuse(ErrorCode.INVALID_SESSION_TIMEOUT)
        try:
            shard = self._host.shard_of(request.group_id)
        except KafkaError as error:
            return refuse(error.code, "")
        caller = Caller(version, client_id or "", slashed(client_host))
        consumers = shard.state.consumer_groups.get(request.group_id)
        if consumers is not None and consumers.members:
            return self._classic.join(
                shard, consumers, request, caller, lambda code: refuse(code, ""), lambda each: _shaped(each, version)
            )
        group = shard.state.groups.get(request.group_id)
        if group is None:
            try:
                group = self._new_group(request, shard)
            except KafkaError as error:
                return refuse(client_error(error.code))
        token = WaitingRequest(
            lambda: refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE), lambda response: _shaped(self._sure(response), version)
        )
        group.join(request, caller, token)
        self._host.perform(shard, group)
        return self._purgatory.add(token, LONGEST_JOIN_MS)

    def _new_group(self, request: jg.Request, shard: Shard[GroupShard]) -> Group:
        """The group that a first member makes, in place of a consumer group that nobody is in. Raises KafkaError."""
        if request.member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        consumers = shard.state.consumer_groups.get(request.group_id)
        if consumers is not None:
            self._host.shards.write(shard, consumers.tombstones())
        elif shard.state.size >= MAX_GROUPS:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group = shard.state.group(request.group_id)
        group.created()
        return group

    def sync_group(self, request: sg.Request, version: int) -> Any:
        if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            return sg.Response(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.group_id:
            return sg.Response(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            if found := self._host.consumer_group_of(request.group_id):
                return self._classic.sync(*found, request)
            shard, group = self._host.group_of(request.group_id)
        except KafkaError as error:
            return sg.Response(error_code=self._host.sure(error.code))
        late = sg.Response(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        token = WaitingRequest(lambda: late, self._sure)
        group.sync(request, token)
        self._host.perform(shard, group)
        return self._purgatory.add(token, LONGEST_JOIN_MS)

    def heartbeat(self, request: hb.Request, version: int) -> Any:
        if not request.group_id:
            return hb.Response(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            if found := self._host.consumer_group_of(request.group_id):
                return self._classic.beat(*found, request)
            shard, group = self._host.group_of(request.group_id)
        except KafkaError as error:
            # A member cannot be judged while its group is read; Kafka answers the same.
            loading = error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return hb.Response(error_code=ErrorCode.NONE if loading else self._host.sure(error.code))
        code = group.heartbeat(request.member_id, request.group_instance_id, request.generation_id)
        self._host.perform(shard, group)
        return hb.Response(error_code=self._host.sure(code))

    def leave_group(self, request: lg.Request, version: int) -> Any:
        leaving = request.members if version >= 3 else [lg.MemberIdentity(member_id=request.member_id)]

        def respond(error: int, members: list[lg.MemberResponse]) -> lg.Response:
            if version >= 3:
                return lg.Response(error_code=error, members=[] if error else members)
            return lg.Response(error_code=error or members[0].error_code)

        if not request.group_id:
            return respond(ErrorCode.INVALID_GROUP_ID, [])
        try:
            self._host.sure_shard_of(request.group_id)
            if found := self._host.consumer_group_of(request.group_id):
                return self._classic.leave(*found, leaving, respond)
            shard, group = self._host.group_of(request.group_id)
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
        self._host.perform(shard, group)
        return self._host.shards.answer(shard, lambda error: respond(error, members), self._host.commit_timeout_ms)

    def _sure(self, response: Any) -> Any:
        response.error_code = self._host.sure(response.error_code)
        return response


class WaitingRequest(Pending):
    """A join or sync that waits for its group. `shape` fits the group's answer to the version of the request."""

    __slots__ = ("_shape",)

    def __init__(self, on_expire: Callable[[], Any], shape: Callable[[Any], Any]) -> None:
        super().__init__(on_expire)
        self._shape = shape

    def complete(self, answer: Any) -> bool:
        return super().complete(None if answer is None else self._shape(answer))


def _shaped(response: jg.Response, version: int) -> jg.Response:
    """An error names no protocol: null, or before version 7, where the name cannot be null, the empty string."""
    if response.error_code or response.protocol_name is None:
        response.protocol_name = None if version >= 7 else ""
    return response


def slashed(client_host: str) -> str:
    """A client's address with a slash before it, as Kafka has it."""
    return client_host if client_host.startswith("/") else f"/{client_host}"
