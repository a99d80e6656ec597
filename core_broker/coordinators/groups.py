"""The group coordinator: requests in, answers or Pendings out. Classic groups and consumer groups (KIP-848).

A `GroupCoordinator` holds its parts:

    host             group_host.py         the groups and their shards; does what a group's state machine asks for
    member_requests  member_requests.py    JoinGroup, SyncGroup, Heartbeat, LeaveGroup
    consumer_group_requests  consumer_groups/requests.py  ConsumerGroupHeartbeat, ConsumerGroupDescribe
    offset_requests  offset_requests.py    OffsetCommit, OffsetDelete, OffsetFetch
    txn_offsets      txn_offset_requests.py TxnOffsetCommit
    finder           find.py               FindCoordinator

DescribeGroups, ListGroups and DeleteGroups are handled here, and the metrics' figures are counted.
"""

from __future__ import annotations

from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import delete_groups as dlg
from ...protocol.messages import describe_groups as dsg
from ...protocol.messages import list_groups as lsg
from ...runtime import Runtime
from ..auto_creation import AutoCreation
from ..cluster.controller import Controller
from ..config import BrokerConfig
from ..purgatory import Purgatory
from ..replication.waiting import ALL, when_acknowledged
from . import inspection
from .consumer_groups.group import GroupState
from .consumer_groups.requests import ConsumerGroupRequests
from .find import CoordinatorFinder
from .group_host import GroupHost
from .group_shard import GroupShard
from .group_states import State
from .member_requests import MemberRequests
from .offset_requests import OffsetRequests
from .runtime import Replicas, Shard, client_error
from .txn_offset_requests import TxnOffsetRequests


class GroupCoordinator:
    """Every method of a request takes the decoded request and its version; gives the answer, or a Pending."""

    def __init__(
        self,
        controller: Controller,
        replicas: Replicas,
        config: BrokerConfig,
        runtime: Runtime,
        purgatory: Purgatory,
        creation: AutoCreation,
    ) -> None:
        self.host = host = GroupHost(controller, replicas, config, runtime, purgatory)
        self.member_requests = MemberRequests(host, config, purgatory)
        self.consumer_group_requests = ConsumerGroupRequests(host, controller.image, config, purgatory)
        self.offset_requests = OffsetRequests(host, controller.image, config, runtime, purgatory)
        self.txn_offsets = TxnOffsetRequests(host, controller.image, config, runtime, purgatory)
        self.finder = CoordinatorFinder(creation, controller.image, replicas, config, purgatory)
        self._purgatory = purgatory

    def counts(self) -> dict[State, int]:
        """How many of the classic groups coordinated here are in each state."""
        return inspection.counts(list(self.host.shards.shards.values()))

    def consumer_counts(self) -> dict[GroupState, int]:
        """The same of consumer groups."""
        return inspection.consumer_counts(list(self.host.shards.shards.values()))

    @property
    def offsets_count(self) -> int:
        """How many offsets are kept here, of all groups and partitions."""
        return sum(len(shard.state.offsets) for shard in self.host.shards.shards.values())

    def unread(self) -> dict[int, str]:
        """Why groups cannot be used yet, by partition of `__consumer_offsets`."""
        return self.host.shards.unread()

    def describe_groups(self, request: dsg.Request, version: int) -> Any:
        return inspection.describe(request, version, lambda group_id: self.host.sure_shard_of(group_id).state)

    def list_groups(self, request: lsg.Request, version: int) -> Any:
        return inspection.listed(request, [self.host.shards.shards[index] for index in sorted(self.host.shards.shards)])

    def delete_groups(self, request: dlg.Request, version: int) -> Any:
        """Answered once the tombstones of all groups are committed, in whatever shards they are."""
        results = [self._delete(group_id) for group_id in dict.fromkeys(request.groups_names)]
        response = dlg.Response(results=[result for _, result in results])
        waits = [
            (shard.partition, shard.written, result)
            for shard, result in results
            if shard is not None and not result.error_code and shard.partition.high_watermark < shard.written
        ]
        if not waits:
            return response

        def answer() -> dlg.Response:
            for partition, end, result in waits:
                if partition.high_watermark < end:
                    failure = partition.failure
                    result.error_code = client_error(ErrorCode.REQUEST_TIMED_OUT if failure is None else failure.code)
            return response

        ends = ((partition, end) for partition, end, _ in waits)
        return when_acknowledged(ends, ALL, answer, self._purgatory, self.host.commit_timeout_ms)

    def _delete(self, group_id: str) -> tuple[Shard[GroupShard] | None, dlg.DeletableGroupResult]:
        result = dlg.DeletableGroupResult(group_id=group_id)
        shard = None
        try:
            shard = self.host.sure_shard_of(group_id)
            shard.state.check_delete(group_id)
            self.host.shards.write(shard, shard.state.delete(group_id), atomic=False)
        except KafkaError as error:
            result.error_code, result.error_message = client_error(error.code), error.message
        return shard, result
