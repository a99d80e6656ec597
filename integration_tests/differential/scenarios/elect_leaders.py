"""ElectLeaders (43): with one node all partitions have their preferred leader already."""

from __future__ import annotations

from isthmus.protocol.messages import elect_leaders as m

from ..peer import Case, Scenarios

SCENARIOS = Scenarios()
PREFERRED, UNCLEAN = 0, 1


def request(*topics: tuple[str, list[int]], kind: int = PREFERRED) -> m.Request:
    rows = [m.TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics]
    return m.Request(election_type=kind, topic_partitions=rows, timeout_ms=10_000)


@SCENARIOS.success(43)
def elects_for_no_partitions(case: Case) -> None:
    case.compare(request())


@SCENARIOS.success(43, ends=True)
def elects_for_all_partitions(case: Case) -> None:
    case.topic()

    def ours(answer: dict) -> dict:
        rows = [row for row in answer["replica_election_results"] if row["topic"] == case.name]
        return {**answer, "replica_election_results": rows}

    case.compare(m.Request(topic_partitions=None, timeout_ms=10_000), only=ours)
    if case.version >= 1:
        case.compare(m.Request(topic_partitions=None, election_type=UNCLEAN, timeout_ms=10_000), only=ours)


@SCENARIOS.error(43)
def elections_that_are_not_needed(case: Case) -> None:
    case.topic(partitions=2)
    case.compare(request((case.name, [0, 1])))


@SCENARIOS.error(43)
def elections_within_no_time(case: Case) -> None:
    case.topic()
    for timeout_ms in (0, -1):
        wanted = request((case.name, [0, 7]), (case.name + "-no", [0]))
        wanted.timeout_ms = timeout_ms
        case.compare(wanted)
        case.compare(m.Request(topic_partitions=None, timeout_ms=timeout_ms))
        case.compare(m.Request(topic_partitions=[], timeout_ms=timeout_ms))


@SCENARIOS.error(43, since=1)
def unclean_elections_that_are_not_needed(case: Case) -> None:
    case.topic()
    case.compare(request((case.name, [0]), kind=UNCLEAN))


@SCENARIOS.error(43, ends=True)
def elections_in_what_is_not_there(case: Case) -> None:
    case.compare(request((case.name, [0])))
    case.topic()
    case.compare(request((case.name, [7, 0])))
    case.compare(request((case.name, [])))


@SCENARIOS.error(43, since=1, ends=True)
def unknown_kind_of_election(case: Case) -> None:
    case.topic()
    case.compare(request((case.name, [0]), kind=7))
    case.compare(request(kind=7))
    case.compare(m.Request(topic_partitions=None, election_type=7, timeout_ms=10_000))
