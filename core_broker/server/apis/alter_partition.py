"""AlterPartition (key 56): the leader of a partition says who is in sync with it.

v2: topics by id. v3: the ISR with the epochs of its brokers; before, they are not compared.
"""

from __future__ import annotations

from ....protocol.messages.alter_partition import PartitionData, PartitionResult, Request, Response, TopicResult
from ...cluster.controller.alter_partition import ANY_EPOCH, AlteredPartition, AlterPartition, WantedIsr
from ...cluster.controller.common import Result
from ...purgatory import Pending
from .._context import Context
from ..topics import CONTROLLER_TIMEOUT_MS, submit

WITH_EPOCHS = 3


def handle(request: Request, context: Context) -> Pending | Response:
    if not request.topics:
        return Response()
    with_epochs = context.version >= WITH_EPOCHS
    command = AlterPartition(
        request.broker_id,
        request.broker_epoch,
        [(topic.topic_id, [_wanted(each, with_epochs) for each in topic.partitions]) for topic in request.topics],
    )
    return submit(command, CONTROLLER_TIMEOUT_MS, _answer, context)


def _wanted(row: PartitionData, with_epochs: bool) -> WantedIsr:
    if with_epochs:
        isr = [(each.broker_id, each.broker_epoch) for each in row.new_isr_with_epochs]
    else:
        isr = [(each, ANY_EPOCH) for each in row.new_isr]
    return WantedIsr(row.partition_index, row.leader_epoch, row.partition_epoch, isr, row.leader_recovery_state)


def _answer(result: Result) -> Response:
    if result.error is not None:
        return Response(error_code=result.error.code)
    return Response(
        topics=[
            TopicResult(topic_id=item.topic_id, partitions=[_row(each) for each in item.partitions])
            for item in result.items
        ]
    )


def _row(item: AlteredPartition) -> PartitionResult:
    after = item.partition
    if after is None:
        return PartitionResult(partition_index=item.index, error_code=item.error_code)
    return PartitionResult(
        partition_index=item.index,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=list(after.isr),
        leader_recovery_state=after.leader_recovery_state,
        partition_epoch=after.partition_epoch,
    )
