"""ListPartitionReassignments (key 46): partitions that are on their way to other brokers; null asks for all."""

from __future__ import annotations

from ....protocol.messages.list_partition_reassignments import (
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    Request,
    Response,
)
from ...cluster.partition_image import PartitionImage
from .._context import Context


def handle(request: Request, context: Context) -> Response:
    image = context.services.image
    if request.topics is None:
        asked = {name: list(topic.partitions) for name, topic in image.topics.items()}
    else:
        asked = {topic.name: topic.partition_indexes for topic in request.topics}
    found = []
    for name, indexes in asked.items():
        partitions = [(index, image.partition(name, index)) for index in indexes]
        rows = [_row(index, each) for index, each in partitions if each is not None and _is_moving(each)]
        if rows:
            found.append(OngoingTopicReassignment(name=name, partitions=rows))
    return Response(topics=found)


def _is_moving(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def _row(index: int, partition: PartitionImage) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )
