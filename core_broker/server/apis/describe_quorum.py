"""DescribeQuorum (key 55): leader, voters and observers of the metadata log.

v1: when voters were caught up (KIP-836). v2: error messages and the voters' addresses (KIP-853), which are those of
their listeners: there is none for controllers alone. Nothing but `__cluster_metadata-0` can be asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.errors import ErrorCode
from ....protocol.messages.describe_quorum import (
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    Request,
    Response,
    TopicData,
)
from ...cluster.controller.common import default_message
from ...cluster.quorum.calls import now_ms
from ...cluster.raft.leader import Progress
from ...cluster.topic_names import CLUSTER_METADATA
from .._context import Context

NODES_SINCE = 2  # and directory ids
NOT_LEADER = (
    "For requests intended only for the leader, this error indicates that the broker is not the current leader. For "
    "requests intended for any replica, this error indicates that the broker is not a replica of the topic partition."
)


def handle(request: Request, context: Context) -> Response:
    asked = [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in request.topics]
    if asked != [(CLUSTER_METADATA, [0])]:
        return Response(error_message="", topics=[_unknown(topic, indexes) for topic, indexes in asked])
    quorum = context.services.quorum
    if quorum.leader_id != context.services.node_id:
        row = PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, error_message=NOT_LEADER)
        return Response(error_message="", topics=[TopicData(topic_name=CLUSTER_METADATA, partitions=[row])])
    voters, observers = quorum.progress
    partition = PartitionData(
        partition_index=0,
        error_message="",
        leader_id=quorum.leader_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=_replicas(voters.values(), context),
        observers=_replicas(observers.values(), context),
    )
    return Response(
        error_message="",
        topics=[TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])],
        nodes=_nodes(context) if context.version >= NODES_SINCE else [],
    )


def _unknown(topic: str, indexes: list[int]) -> TopicData:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rows = [
        PartitionData(partition_index=index, error_code=code, error_message=default_message(code)) for index in indexes
    ]
    return TopicData(topic_name=topic, partitions=rows)


def _replicas(found: Iterable[Progress], context: Context) -> list[ReplicaState]:
    return [_replica(each, context) for each in sorted(found, key=lambda each: each.key)]


def _replica(progress: Progress, context: Context) -> ReplicaState:
    """Times are wall times, -1 if there was none; those of this node, the leader, are now."""
    quorum = context.services.quorum
    wall_ms, at_present_ms = context.services.runtime.wall_ms(), now_ms()
    row = ReplicaState(
        replica_id=progress.key.id,
        replica_directory_id=progress.key.directory_id if context.version >= NODES_SINCE else bytes(16),
    )
    if row.replica_id == quorum.member.key.id:
        row.log_end_offset = quorum.log.end_offset
        row.last_fetch_timestamp = row.last_caught_up_timestamp = wall_ms
    else:
        row.log_end_offset = progress.end_offset
        row.last_fetch_timestamp, row.last_caught_up_timestamp = (
            -1 if at_ms < 0 else wall_ms - (at_present_ms - at_ms)
            for at_ms in (progress.fetched_ms, progress.caught_up_ms)
        )
    return row


def _nodes(context: Context) -> list[Node]:
    """The voters by their endpoints. A broker alone that has none for controllers has those of all its listeners."""
    services = context.services
    nodes = []
    for voter in services.quorum.voters.voters:
        listeners = [Listener(name=name, host=host, port=port) for name, host, port in voter.endpoints]
        broker = services.image.brokers.get(voter.key.id)
        if not listeners and broker is not None:
            listeners = [Listener(name=n, host=each.host, port=each.port) for n, each in broker.endpoints.items()]
        nodes.append(Node(node_id=voter.key.id, listeners=listeners))
    return nodes
