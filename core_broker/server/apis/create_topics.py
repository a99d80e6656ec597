"""CreateTopics (key 19): new topics, answered when their partitions can be written to.

v1: validate only. v4: -1 partitions or replicas are the broker's defaults. v5: partitions, replicas and options in the
answer. v7: topic ids.
"""

from __future__ import annotations

from ....protocol.messages.create_topics import CreatableTopicConfigs, CreatableTopicResult, Request, Response
from ...cluster.controller.common import Result
from ...cluster.controller.create_topics import CreatedTopic, CreateTopics
from ...described import source_at_creation, topic_entries
from ...purgatory import Pending
from .._context import Context
from ..topics import submit


def handle(request: Request, context: Context) -> Pending:
    given = {
        topic.name: {config.name: config.value for config in topic.configs if config.value is not None}
        for topic in request.topics
    }
    command = CreateTopics(request.topics, request.validate_only)

    def answer(result: Result) -> Response:
        return Response(topics=[_topic(item, given.get(item.name, {}), context) for item in result.items])

    return submit(command, request.timeout_ms, answer, context)


def _topic(item: CreatedTopic, given: dict[str, str], context: Context) -> CreatableTopicResult:
    if item.error_code:
        return CreatableTopicResult(
            name=item.name, error_code=item.error_code, error_message=item.error_message, configs=[]
        )
    return CreatableTopicResult(
        name=item.name,
        topic_id=item.topic_id,
        error_message=None,
        num_partitions=item.num_partitions,
        replication_factor=item.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.option.name,
                value=given.get(entry.option.name, entry.value),  # as it was given
                read_only=entry.read_only,
                config_source=source_at_creation(entry.option, given, context.services.config),
            )
            for entry in topic_entries(given, context.services.config)
        ],
    )
