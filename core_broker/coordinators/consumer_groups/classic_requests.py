"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup where the group is a consumer group.

The requests themselves have been checked (`../member_requests.py`); what they come to is decided in
`classic_members.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages import heartbeat as hb
from ....protocol.messages import join_group as jg
from ....protocol.messages import leave_group as lg
from ....protocol.messages import sync_group as sg
from ..effects import Caller
from ..group_host import GroupHost
from ..group_shard import GroupShard
from ..runtime import Shard, client_error
from . import classic_members as classic
from .decision import Decision
from .group import ConsumerGroup


class ClassicRequests:
    """Every method takes the group and its shard; gives the answer, or a Pending. `refuse(code)` makes the error."""

    def __init__(self, host: GroupHost) -> None:
        self._host = host

    def join(
        self,
        shard: Shard[GroupShard],
        group: ConsumerGroup,
        request: jg.Request,
        caller: Caller,
        refuse: Callable[[int], jg.Response],
        shape: Callable[[jg.Response], jg.Response],
    ) -> Any:
        """shape: fits the answer to the version of the request."""

        def decide() -> Decision:
            decision = classic.join(group, request, caller, self._host.consumer_groups.rules)
            decision.response = shape(decision.response)
            return decision

        return self._decided(shard, group, decide, refuse)

    def sync(self, shard: Shard[GroupShard], group: ConsumerGroup, request: sg.Request) -> Any:
        rules = self._host.consumer_groups.rules
        return self._decided(
            shard, group, lambda: classic.sync(group, request, rules), lambda code: sg.Response(error_code=code)
        )

    def beat(self, shard: Shard[GroupShard], group: ConsumerGroup, request: hb.Request) -> Any:
        rules = self._host.consumer_groups.rules

        def decide() -> Decision:
            return classic.beat(
                group, request.member_id, request.group_instance_id, request.generation_id, hb.Response(), rules
            )  # fmt: skip

        return self._decided(shard, group, decide, lambda code: hb.Response(error_code=code))

    def leave(
        self,
        shard: Shard[GroupShard],
        group: ConsumerGroup,
        leaving: Sequence[lg.MemberIdentity],
        respond: Callable[[int, list[lg.MemberResponse]], lg.Response],
    ) -> Any:
        def decide() -> Decision:
            decision, answers = classic.leave(group, leaving, self._host.consumer_groups.rules)
            decision.response = respond(ErrorCode.NONE, answers)
            return decision

        return self._decided(shard, group, decide, lambda code: respond(code, []))

    def _decided(
        self,
        shard: Shard[GroupShard],
        group: ConsumerGroup,
        decide: Callable[[], Decision],
        refuse: Callable[[int], Any],
    ) -> Any:
        """Commit a decision, and answer once it is safe; that a member has to do something else is told at once."""
        if not self._host.has_session():
            return refuse(ErrorCode.NOT_COORDINATOR)
        try:
            decision = decide()
            self._host.consumer_groups.commit(shard, group.group_id, decision)
        except KafkaError as error:
            return refuse(self._host.sure(client_error(error.code)))
        if decision.response.error_code:
            return decision.response
        return self._host.shards.answer(
            shard, lambda code: refuse(code) if code else decision.response, self._host.commit_timeout_ms
        )
