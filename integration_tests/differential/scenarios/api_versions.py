"""ApiVersions (18); the keys and ranges themselves are compared in test_api_versions.py."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import api_versions

from ..peer import Case, Scenarios

SCENARIOS = Scenarios()


def request(**fields: Any) -> api_versions.Request:
    named = {"client_software_name": "differential", "client_software_version": "1.0"}
    return api_versions.Request(**{**named, **fields})


@SCENARIOS.success(18)
def says_what_it_serves(case: Case) -> None:
    case.compare(request())


@SCENARIOS.success(18, since=3, ends=True)
def names_of_software_that_are_allowed(case: Case) -> None:
    for name in ("a", "9", "a-b.c", "A" * 300):
        case.compare(request(client_software_name=name, client_software_version=name))


@SCENARIOS.success(18, since=5)
def meant_for_this_broker(case: Case) -> None:
    case.compare(request(cluster_id=case.peer.cluster_id, node_id=case.peer.node_id))
    case.compare(request(cluster_id=case.peer.cluster_id))
    case.compare(request(node_id=case.peer.node_id))


@SCENARIOS.error(18, since=3)
def wrong_software_name(case: Case) -> None:
    for name in ("not allowed!", "", "-a", "a-", ".", "ünicode", " a"):
        case.compare(request(client_software_name=name))
        case.compare(request(client_software_version=name))


@SCENARIOS.error(18, since=5)
def meant_for_another_broker(case: Case) -> None:
    case.compare(request(cluster_id="another cluster", node_id=case.peer.node_id))
    case.compare(request(cluster_id=case.peer.cluster_id, node_id=4711))
    case.compare(request(cluster_id="", node_id=-1))
    case.compare(request(cluster_id=None, node_id=-7))
