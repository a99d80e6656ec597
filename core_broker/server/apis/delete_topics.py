"""DeleteTopics (key 20): topics go at once; their files are removed soon after.

v3: TOPIC_DELETION_DISABLED. v4: flexible. v5: error messages. v6: by id as well as by name.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.delete_topics import DeletableTopicResult, Request, Response
from ...cluster.controller.common import Result
from ...cluster.controller.delete_topics import DeletedTopic, DeleteTopics
from ...purgatory import Pending
from .._context import Context
from ..topics import submit

STATES_SINCE = 6
DISABLED_SINCE = 3  # older clients do not know TOPIC_DELETION_DISABLED


def handle(request: Request, context: Context) -> Pending:
    if context.version >= STATES_SINCE:
        command = DeleteTopics(states=request.topics)
    else:
        command = DeleteTopics(names=request.topic_names)
    version = context.version

    def answer(result: Result) -> Response:
        return Response(responses=[_topic(item, version) for item in result.items])

    return submit(command, request.timeout_ms, answer, context)


def _topic(item: DeletedTopic, version: int) -> DeletableTopicResult:
    code, message = item.error_code, item.error_message
    if code == ErrorCode.TOPIC_DELETION_DISABLED:
        message = None  # as Kafka: the code says it all
    if code == ErrorCode.TOPIC_DELETION_DISABLED and version < DISABLED_SINCE:
        code = ErrorCode.INVALID_REQUEST
    return DeletableTopicResult(name=item.name, topic_id=item.topic_id, error_code=code, error_message=message)
