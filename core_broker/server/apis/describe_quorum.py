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
from ...cluster.controller.quorum import Voter
from ...cluster.topic_names import CLUSTER_METADATA
from .._context import Context

NODES_SINCE = 2


def handle(request: Request, context: Context) -> Response:
    asked = [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in request.topics]
    if asked != [(CLUSTER_METADATA, [0])]:
        return Response(error_message="", topics=[_unknown(topic, indexes) for topic, indexes in asked])
    quorum = context.services.controller.quorum
    partition = PartitionData(
        partition_index=0,
        error_message="",
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[_voter(voter) for voter in quorum.voters],
    )
    return Response(
        error_message="",
        topics=[TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])],
        nodes=[_node(voter, context) for voter in quorum.voters] if context.version >= NODES_SINCE else [],
    )


def _unknown(topic: str, indexes: list[int]) -> TopicData:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rows = [
        PartitionData(partition_index=index, error_code=code, error_message=default_message(code)) for index in indexes
    ]
    return TopicData(topic_name=topic, partitions=rows)


def _voter(voter: Voter) -> ReplicaState:
    return ReplicaState(
        replica_id=voter.node_id,
        log_end_offset=voter.log_end_offset,
        last_fetch_timestamp=voter.caught_up_ms,
        last_caught_up_timestamp=voter.caught_up_ms,
    )


def _node(voter: Voter, context: Context) -> Node:
    broker = context.services.image.brokers.get(voter.node_id)
    endpoints = {} if broker is None else broker.endpoints
    return Node(
        node_id=voter.node_id,
        listeners=[Listener(name=name, host=each.host, port=each.port) for name, each in endpoints.items()],
    )
