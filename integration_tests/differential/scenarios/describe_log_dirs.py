"""DescribeLogDirs (35): sizes of logs. The sizes are equal to the byte: both brokers keep the batches as they came."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import describe_log_dirs as m

from ..peer import Case, Scenarios
from ..requests import fill

SCENARIOS = Scenarios()


def request(*topics: tuple[str, list[int]]) -> m.Request:
    return m.Request(topics=[m.DescribableLogDirTopic(topic=name, partitions=rows) for name, rows in topics])


@SCENARIOS.success(35)
def sizes_of_partitions(case: Case) -> None:
    topic_id = case.topic(partitions=2)
    fill(case, topic_id, 2)
    fill(case, topic_id, 1, partition=1)
    case.compare(request((case.name, [0, 1])), only=sorted_rows)
    case.compare(request((case.name, [1])))


@SCENARIOS.success(35, ends=True)
def sizes_of_all_partitions_with_one_of_ours(case: Case) -> None:
    fill(case, case.topic())

    def ours(answer: dict) -> dict:
        [result] = answer["results"]
        topics = [topic for topic in result["topics"] if topic["name"] == case.name]
        return {**answer, "results": [{**result, "topics": topics}]}

    case.compare(m.Request(topics=None), only=ours)


@SCENARIOS.success(35, ends=True)
def partition_that_is_named_twice(case: Case) -> None:
    fill(case, case.topic())
    case.compare(request((case.name, [0, 0]), (case.name, [0])))


# The API has no error for these: what is not there is left out.
@SCENARIOS.error(35)
def sizes_of_what_is_not_there(case: Case) -> None:
    case.compare(request((case.name, [0])))
    case.topic()
    case.compare(request((case.name, [7])))
    case.compare(request((case.name, [])))
    case.compare(m.Request(topics=[]))
    case.compare(request(("no/name", [0])))
    case.compare(request(("__cluster_metadata", [0])))


def sorted_rows(answer: dict[str, Any]) -> dict[str, Any]:
    """Kafka's order is that of a hash table."""
    for result in answer["results"]:
        for topic in result["topics"]:
            topic["partitions"].sort(key=lambda row: row["partition_index"])
    return answer
