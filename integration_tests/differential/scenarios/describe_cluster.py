"""DescribeCluster (60)."""

from __future__ import annotations

from isthmus.protocol.messages import describe_cluster as m

from ..peer import Case, Scenarios

SCENARIOS = Scenarios()


@SCENARIOS.success(60)
def describes_the_cluster(case: Case) -> None:
    case.compare(m.Request())


@SCENARIOS.success(60)
def describes_the_cluster_with_operations(case: Case) -> None:
    case.compare(m.Request(include_cluster_authorized_operations=True))


@SCENARIOS.success(60, since=2)
def describes_fenced_brokers_too(case: Case) -> None:
    case.compare(m.Request(include_fenced_brokers=True))


@SCENARIOS.error(60, since=1)
def endpoints_that_are_not_here(case: Case) -> None:
    for kind in (2, 3, 0, -1):
        case.compare(m.Request(endpoint_type=kind))
