"""The group coordinator: takes requests, returns answers or Pendings. Classic groups only, not KIP-848's.

Joins and commits are in `membership.py` and `offset_requests.py`. Here are the requests of administrators, and
FindCoordinator.
"""

from __future__ import annotations

from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import delete_groups as dlg
from ...protocol.messages import describe_groups as dsg
from ...protocol.messages import find_coordinator as fc
from ...protocol.messages import list_groups as lsg
from ..cluster.controller import CreateTopics, new_topic
from ..cluster.topic_names import CONSUMER_OFFSETS
from ..purgatory import Pending
from ..replication.waiting import when_reached
from . import find, inspection
from .group_shard import GroupShard
from .group_states import State
from .membership import Membership
from .offset_requests import OffsetRequests
from .runtime import Shard, client_error


class GroupCoordinator(Membership, OffsetRequests):
    """Every request method takes the decoded request, its version, the client's id and host."""

    def counts(self) -> dict[State, int]:
        """The number of groups in each state, of those coordinated here."""
        return inspection.counts(list(self._shards.shards.values()))

    @property
    def offsets_count(self) -> int:
        """The number of offsets kept here, of all groups and partitions."""
        return sum(len(shard.state.offsets) for shard in self._shards.shards.values())

    def unread(self) -> dict[int, str]:
        """Partitions of __consumer_offsets whose groups are not available yet, and why."""
        return self._shards.unread()

    def describe_groups(self, request: dsg.Request, version: int, client_id: str, client_host: str) -> Any:
        return inspection.describe(request, version, lambda group_id: self._shard_of(group_id).state)

    def list_groups(self, request: lsg.Request, version: int, client_id: str, client_host: str) -> Any:
        return inspection.listed(request, [self._shards.shards[index] for index in sorted(self._shards.shards)])

    def delete_groups(self, request: dlg.Request, version: int, client_id: str, client_host: str) -> Any:
        """Answered once the tombstones of all groups are committed, in whichever shards they are."""
        results = [self._delete(group_id) for group_id in dict.fromkeys(request.groups_names)]
        response = dlg.Response(results=[result for _, result in results])
        waits = [
            (shard.partition, shard.written, result)
            for shard, result in results
            if shard is not None and not result.error_code and shard.partition.high_watermark < shard.written
        ]
        if not waits:
            return response

        def settle() -> dlg.Response:
            for partition, end, result in waits:
                if partition.high_watermark < end:
                    failure = partition.failure
                    result.error_code = client_error(ErrorCode.REQUEST_TIMED_OUT if failure is None else failure.code)
            return response

        ends = ((partition, end) for partition, end, _ in waits)
        return when_reached(ends, settle, self._purgatory, self._commit_timeout_ms)

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
            result.error_code, result.error_message = client_error(error.code), error.message
        return shard, result

    def find_coordinator(
        self,
        request: fc.Request,
        version: int,
        client_id: str = "",
        client_host: str = "",
        listener: str | None = None,
    ) -> Any:
        """listener: that of the request; the answer has addresses of this listener. Default: the first."""
        name = listener or next(iter(self._image.brokers[self._node_id].endpoints))
        kind = find.kind_error(request, version)

        def respond() -> fc.Response:
            leaderless = self._replicas.leaderless.get(CONSUMER_OFFSETS, ())

            def look(key: str) -> find.Found:
                return find.Found(kind) if kind else find.find(self._image, key, name, leaderless)

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
