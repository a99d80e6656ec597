"""Answers to requests that nobody could decide, such as when no controller is found in time.

Each is what Kafka's `getErrorResponse` makes of it: the error for everything that was asked for, where the version has
a place for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...protocol.errors import KafkaError
from ...protocol.messages import (
    add_raft_voter,
    create_partitions,
    create_topics,
    delete_topics,
    describe_quorum,
    elect_leaders,
    list_partition_reassignments,
    remove_raft_voter,
    unregister_broker,
    unregister_controller,
    update_features,
)
from ...protocol.messages import (
    alter_partition_reassignments as alter,
)

STATES_SINCE = 6  # DeleteTopics
TOP_LEVEL_ERROR_SINCE = 1  # ElectLeaders


def _create_topics(request: create_topics.Request, version: int, error: KafkaError) -> create_topics.Response:
    return create_topics.Response(
        topics=[
            create_topics.CreatableTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message, configs=[]
            )
            for topic in request.topics
        ]
    )


def _delete_topics(request: delete_topics.Request, version: int, error: KafkaError) -> delete_topics.Response:
    if version < STATES_SINCE:
        asked = [delete_topics.DeleteTopicState(name=name) for name in request.topic_names]
    else:
        asked = request.topics
    return delete_topics.Response(
        responses=[
            delete_topics.DeletableTopicResult(
                name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=error.message
            )
            for topic in asked
        ]
    )


def _create_partitions(
    request: create_partitions.Request, version: int, error: KafkaError
) -> create_partitions.Response:
    return create_partitions.Response(
        results=[
            create_partitions.CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
            for topic in request.topics
        ]
    )


def _elect_leaders(request: elect_leaders.Request, version: int, error: KafkaError) -> elect_leaders.Response:
    return elect_leaders.Response(
        error_code=error.code if version >= TOP_LEVEL_ERROR_SINCE else 0,
        replica_election_results=[
            elect_leaders.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    elect_leaders.PartitionResult(
                        partition_id=index, error_code=error.code, error_message=error.message
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _alter_reassignments(request: alter.Request, version: int, error: KafkaError) -> alter.Response:
    return alter.Response(
        error_code=error.code,
        error_message=error.message,
        responses=[
            alter.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    alter.ReassignablePartitionResponse(
                        partition_index=each.partition_index, error_code=error.code, error_message=error.message
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _at_the_top(response: type[Any]) -> Callable[[Any, int, KafkaError], Any]:
    """For an answer that has the error once, with its message."""
    return lambda request, version, error: response(error_code=error.code, error_message=error.message)


REFUSALS: Mapping[int, Callable[[Any, int, KafkaError], Any]] = {  # by key: (request, version, error) -> answer
    create_topics.API.key: _create_topics,
    delete_topics.API.key: _delete_topics,
    create_partitions.API.key: _create_partitions,
    elect_leaders.API.key: _elect_leaders,
    alter.API.key: _alter_reassignments,
    **{
        module.API.key: _at_the_top(module.Response)
        for module in (
            list_partition_reassignments,
            describe_quorum,
            update_features,
            unregister_broker,
            unregister_controller,
            add_raft_voter,
            remove_raft_voter,
        )
    },
}
