"""DescribeGroups (15), in each state of a group."""

from __future__ import annotations

from isthmus.protocol.messages.describe_groups import Request

from ..crew import COMPLETING, EMPTY, LEADER, PREPARING, STABLE, Crew
from ..peer import Case, Scenarios
from .offset_fetch import committed

SCENARIOS = Scenarios()


@SCENARIOS.success(15, each=(EMPTY, PREPARING, COMPLETING, STABLE))
def describes_a_group_in_each_state(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        crew.ask("administrator", Request(groups=[crew.group]))


@SCENARIOS.success(15, ends=True)
def describes_a_group_of_offsets_alone(case: Case) -> None:
    committed(case, 40)
    case.compare(Request(groups=[case.name]))


@SCENARIOS.success(15, ends=True)
def describes_several_groups(case: Case) -> None:
    committed(case, 40)
    with Crew(case, case.name + "-other") as crew:
        crew.gather(LEADER)
        crew.ask("administrator", Request(groups=[crew.group, case.name, case.name + "-unknown"]))
        crew.ask("administrator", Request(groups=[]))


@SCENARIOS.success(15, since=3, ends=True)
def what_may_be_done_to_groups(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        wanted = [crew.group, case.name + "-unknown", ""]
        crew.ask("administrator", Request(groups=wanted, include_authorized_operations=True))


@SCENARIOS.error(15)
def describes_an_unknown_group(case: Case) -> None:
    case.coordinator()
    case.compare(Request(groups=[case.name]))
    case.compare(Request(groups=[""]))


@SCENARIOS.error(15, ends=True)
def describes_a_group_that_was_deleted(case: Case) -> None:
    from .delete_groups import request as delete

    committed(case, 40)
    case.prepare(delete(case.name))
    case.compare(Request(groups=[case.name]))


@SCENARIOS.success(15, ends=True)
def groups_named_twice(case: Case) -> None:
    committed(case, 40)
    case.compare(Request(groups=[case.name, case.name]))
