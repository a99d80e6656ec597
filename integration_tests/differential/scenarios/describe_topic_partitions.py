"""DescribeTopicPartitions (75): pages and cursors."""

from __future__ import annotations

from isthmus.protocol.messages import describe_topic_partitions as m

from ..peer import Case, Scenarios

SCENARIOS = Scenarios()


def request(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> m.Request:
    return m.Request(
        topics=[m.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else m.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


@SCENARIOS.success(75)
def describes_partitions(case: Case) -> None:
    case.topic(partitions=3)
    case.compare(request(case.name))


@SCENARIOS.success(75)
def describes_partitions_page_by_page(case: Case) -> None:
    a, b = case.name + "-a", case.name + "-b"
    case.topic("-a", partitions=3)
    case.topic("-b", partitions=2)
    for limit in (1, 2, 3, 4, 5, 6, 0, -1):
        case.compare(request(b, a, limit=limit))
    for cursor in ((a, 0), (a, 2), (a, 3), (a, 9), (b, 1)):
        case.compare(request(b, a, limit=3, cursor=cursor))


@SCENARIOS.success(75)
def describes_all_partitions_from_a_cursor_on(case: Case) -> None:
    case.topic()
    case.compare(request(limit=1, cursor=(case.name, 0)), only=without_cursor)
    case.compare(request(limit=1, cursor=(case.name[:-1], 5)), only=without_cursor)  # that is no topic's name


@SCENARIOS.success(75)
def topic_that_is_named_twice(case: Case) -> None:
    case.topic()
    case.compare(request(case.name, case.name))


@SCENARIOS.error(75)
def partitions_of_what_is_not_there(case: Case) -> None:
    case.topic()
    case.compare(request(case.name + "-no", case.name, "no/name"))
    case.compare(request(case.name + "-no", case.name, limit=1))


@SCENARIOS.error(75)
def partitions_of_a_topic_without_a_name(case: Case) -> None:
    case.compare(request(""))
    case.compare(request("", case.name + "-no"))


@SCENARIOS.error(75)
def cursors_that_point_nowhere(case: Case) -> None:
    case.topic()
    case.compare(request(case.name, cursor=(case.name + "-no", 0)))
    case.compare(request(case.name, cursor=(case.name, -1)))
    case.compare(request(case.name + "-b", case.name, case.name, cursor=(case.name + "-no", 0)))
    case.compare(request(cursor=(case.name, -1)))
    case.compare(request(case.name + "-no", cursor=(case.name + "-no", 0)))


def without_cursor(answer: dict) -> dict:
    """The next topic belongs to another scenario."""
    return {**answer, "next_cursor": None}
