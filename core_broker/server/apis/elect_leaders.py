"""ElectLeaders (key 43): preferred replicas, or any live ones where there is no leader, are made leaders.

v1: kinds of election, an error for the whole answer. v2: flexible. Null asks for all partitions.
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.elect_leaders import PartitionResult, ReplicaElectionResult, Request, Response
from ...cluster.controller.common import Result
from ...cluster.controller.elect_leaders import ElectLeaders
from .._context import Context
from ..topics import submit

TOP_LEVEL_ERROR_SINCE = 1


def handle(request: Request, context: Context) -> Any:
    version = context.version
    topics = request.topic_partitions
    if topics is not None and not topics:
        return Response()  # in whatever time, and of any kind
    asked = None if topics is None else [(topic.topic, topic.partitions) for topic in topics]

    def answer(result: Result) -> Response:
        response = Response(replica_election_results=_rows(result))
        if result.error is not None and version >= TOP_LEVEL_ERROR_SINCE:
            response.error_code = result.error.code
        return response

    return submit(ElectLeaders(request.election_type, asked), request.timeout_ms, answer, context)


def _rows(result: Result) -> list[ReplicaElectionResult]:
    return [
        ReplicaElectionResult(
            topic=item.topic,
            partition_result=[
                PartitionResult(partition_id=each.index, error_code=each.error_code, error_message=each.error_message)
                for each in item.partitions
            ],
        )
        for item in result.items
    ]
