"""FindCoordinator (10): of one group and of many."""

from __future__ import annotations

from isthmus.protocol.messages.find_coordinator import Request

from ..peer import Case, Scenarios

SCENARIOS = Scenarios()


def request(case: Case, key: str, key_type: int = 0) -> Request:
    if case.version < 4:
        return Request(key=key, key_type=key_type)
    return Request(coordinator_keys=[key], key_type=key_type)


@SCENARIOS.success(10)
def finds_a_groups_coordinator(case: Case) -> None:
    case.coordinator()
    case.compare(request(case, case.name))


@SCENARIOS.success(10, since=4)
def finds_many(case: Case) -> None:
    case.coordinator()
    case.compare(Request(coordinator_keys=["a", "b", "", "a"]))
    case.compare(Request(coordinator_keys=[]))


@SCENARIOS.success(10)
def finds_for_an_empty_name(case: Case) -> None:
    case.coordinator()
    case.compare(request(case, ""))


@SCENARIOS.success(10, ends=True)
def finds_for_any_name(case: Case) -> None:
    case.coordinator()
    for name in ("polygenelubricants", "Ünïcode 🙂", "a/b c", "x" * 10_000):
        case.compare(request(case, name))


@SCENARIOS.error(10, since=1)
def unknown_kind_of_coordinator(case: Case) -> None:
    for kind in (9, -1, 127):
        case.compare(request(case, case.name, kind))
