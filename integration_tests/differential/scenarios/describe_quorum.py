"""DescribeQuorum (55): the one voter of each cluster."""

from __future__ import annotations

from isthmus.protocol.messages import describe_quorum as m

from ..peer import Case, Scenarios

SCENARIOS = Scenarios()


def request(*topics: tuple[str, list[int]]) -> m.Request:
    return m.Request(
        topics=[
            m.TopicRequest(topic_name=name, partitions=[m.PartitionRequest(partition_index=i) for i in indexes])
            for name, indexes in topics
        ]
    )


@SCENARIOS.success(55)
def describes_the_metadata_quorum(case: Case) -> None:
    case.compare(request(("__cluster_metadata", [0])))


@SCENARIOS.error(55)
def quorums_that_are_not_there(case: Case) -> None:
    case.compare(request(("__cluster_metadata", [1])))
    case.compare(request(("__cluster_metadata", [])))
    case.compare(request(("__cluster_metadata", [0, 1])))
    case.compare(request((case.name, [0])))
    case.compare(request(("__cluster_metadata", [0]), (case.name, [0])))
    case.compare(m.Request(topics=[]))
