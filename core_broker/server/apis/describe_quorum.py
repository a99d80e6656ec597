"""DescribeQuorum (key 55): leader, voters and observers of the metadata log.

v1: when voters were caught up (KIP-836). v2: error messages and the voters' addresses (KIP-853), which are those of
their listeners: there is none for controllers alone. Nothing but `__cluster_metadata-0` can be asked for.
"""

from __future__ import annotations

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
from ...cluster.controller.quorum import Quorum, Replica
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
    quorum = context.services.controller.quorum
    if quorum.leader_id != context.services.node_id:
        row = PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, error_message=NOT_LEADER)
        return Response(error_message="", topics=[TopicData(topic_name=CLUSTER_METADATA, partitions=[row])])
    partition = PartitionData(
        partition_index=0,
        error_message="",
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[_replica(each, context.version) for each in quorum.voters],
        observers=[_replica(each, context.version) for each in quorum.observers],
    )
    return Response(
        error_message="",
        topics=[TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])],
        nodes=_nodes(quorum, context) if context.version >= NODES_SINCE else [],
    )


def _unknown(topic: str, indexes: list[int]) -> TopicData:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rows = [
        PartitionData(partition_index=index, error_code=code, error_message=default_message(code)) for index in indexes
    ]
    return TopicData(topic_name=topic, partitions=rows)


def _replica(replica: Replica, version: int) -> ReplicaState:
    return ReplicaState(
        replica_id=replica.node_id,
        replica_directory_id=replica.directory_id if version >= NODES_SINCE else bytes(16),
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.fetched_ms,
        last_caught_up_timestamp=replica.caught_up_ms,
    )


def _nodes(quorum: Quorum, context: Context) -> list[Node]:
    """The voters by their endpoints. A broker alone has those of its listeners for controllers, or of all others."""
    nodes = []
    for node_id, endpoints in quorum.endpoints:
        told = endpoints or context.services.own_controllers
        listeners = [Listener(name=name, host=host, port=port) for name, host, port in told]
        broker = context.services.image.brokers.get(node_id)
        if not listeners and broker is not None:
            listeners = [Listener(name=n, host=each.host, port=each.port) for n, each in broker.endpoints.items()]
        nodes.append(Node(node_id=node_id, listeners=listeners))
    return nodes
