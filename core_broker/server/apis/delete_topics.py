"""DeleteTopics (key 20): topics go at once; their files are removed soon after.

v4: flexible. v5: error messages. v6: by id as well as by name.
"""

from __future__ import annotations

from ....protocol.messages.delete_topics import DeletableTopicResult, Request, Response
from ...cluster.controller.common import Result
from ...cluster.controller.delete_topics import DeleteTopics
from ...purgatory import Pending
from ..context import Context
from ..topics import submit

STATES_SINCE = 6


def handle(request: Request, context: Context) -> Pending:
    if context.version >= STATES_SINCE:
        command = DeleteTopics(states=request.topics)
    else:
        command = DeleteTopics(names=request.topic_names)
    return submit(command, request.timeout_ms, _answer, context)


def _answer(result: Result) -> Response:
    return Response(
        responses=[
            DeletableTopicResult(
                name=item.name, topic_id=item.topic_id, error_code=item.error_code, error_message=item.error_message
            )
            for item in result.items
        ]
    )
