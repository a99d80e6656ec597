"""ListGroups (16): states and types of groups, and filters by them."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages.list_groups import Request

from ..crew import COMPLETING, EMPTY, PREPARING, STABLE, Crew
from ..peer import Case, Scenarios
from .offset_fetch import committed

SCENARIOS = Scenarios()


def listed(case: Case, **fields: list[str]) -> None:
    """Compares what the list says of the case's own groups."""

    def own(answer: dict[str, Any]) -> dict[str, Any]:
        rows = [group for group in answer["groups"] if group["group_id"].startswith(case.name)]
        return {**answer, "groups": sorted(rows, key=lambda row: row["group_id"])}

    case.compare(Request(**fields), only=own)


def one_of_each(case: Case) -> list[Crew]:
    committed(case, 40, group=case.name + "-offsets")
    return [Crew(case, f"{case.name}-{state}").bring(state) for state in (EMPTY, PREPARING, COMPLETING, STABLE)]


@SCENARIOS.success(16)
def lists_groups(case: Case) -> None:
    crews = one_of_each(case)
    listed(case)
    for crew in crews:
        crew.__exit__()


@SCENARIOS.success(16, since=4, ends=True)
def lists_groups_by_state(case: Case) -> None:
    crews = one_of_each(case)
    for states in (
        [EMPTY],
        [PREPARING],
        [COMPLETING],
        [STABLE],
        ["stable"],
        ["STABLE", " Empty "],
        [EMPTY, EMPTY],
        ["Dead"],
        ["Assigning"],
        ["Reconciling", STABLE],
    ):
        listed(case, states_filter=states)
    for crew in crews:
        crew.__exit__()


@SCENARIOS.success(16, since=5, ends=True)
def lists_groups_by_type(case: Case) -> None:
    crews = one_of_each(case)
    for types in (["classic"], ["Classic"], ["consumer"], ["share"], ["streams"], ["consumer", "CLASSIC"]):
        listed(case, types_filter=types)
        listed(case, types_filter=types, states_filter=[STABLE])
    for crew in crews:
        crew.__exit__()


@SCENARIOS.error(16, since=4)
def lists_groups_by_what_is_no_state(case: Case) -> None:
    with Crew(case).bring(STABLE):
        listed(case, states_filter=["No such state"])
        listed(case, states_filter=[""])
        listed(case, states_filter=["No such state", STABLE])


@SCENARIOS.error(16, since=5)
def lists_groups_by_what_is_no_type(case: Case) -> None:
    with Crew(case).bring(STABLE):
        listed(case, types_filter=["no such type"])
        listed(case, types_filter=["unknown"])
        listed(case, types_filter=["unknown", "classic"])
        listed(case, types_filter=[""])
