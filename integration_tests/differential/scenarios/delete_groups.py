"""DeleteGroups (42), in each state of a group; what is left afterwards."""

from __future__ import annotations

from isthmus.protocol.messages.delete_groups import Request

from ..crew import COMPLETING, EMPTY, NEWCOMER, PREPARING, STABLE, Crew
from ..peer import Case, Scenarios
from .offset_commit import see_offsets
from .offset_fetch import committed

SCENARIOS = Scenarios()


def request(*groups: str) -> Request:
    return Request(groups_names=list(groups))


@SCENARIOS.success(42)
def deletes_a_group_of_offsets_alone(case: Case) -> None:
    committed(case, 40, 41)
    case.compare(request(case.name))
    see_offsets(case)
    with Crew(case) as crew:
        crew.see()
    case.compare(request(case.name))  # and it is gone


@SCENARIOS.success(42, ends=True)
def deletes_a_group_that_had_members(case: Case) -> None:
    topic_id = case.topic()
    with Crew(case).bring(EMPTY) as crew:
        committed(case, 40, topic_id=topic_id)
        crew.ask("administrator", request(crew.group))
        crew.see()
        see_offsets(case)
        crew.gather(NEWCOMER)  # a group of the same name begins at its first generation
        crew.see()
        crew.ask(NEWCOMER, request(crew.group))


@SCENARIOS.success(42, ends=True)
def deletes_several_groups(case: Case) -> None:
    topic_id = committed(case, 40, group=case.name + "-a")
    committed(case, 40, group=case.name + "-b", topic_id=topic_id)
    with Crew(case, case.name + "-c").bring(STABLE) as crew:
        names = [crew.group, case.name + "-b", case.name + "-unknown", case.name + "-a", case.name + "-a"]
        crew.ask("administrator", request(*names))
    case.compare(request())


@SCENARIOS.error(42, ends=True, each=(PREPARING, COMPLETING, STABLE))
def deletes_a_group_with_members(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        crew.ask("administrator", request(crew.group))
        crew.see()


@SCENARIOS.error(42)
def deletes_an_unknown_group(case: Case) -> None:
    case.coordinator()
    case.compare(request(case.name))
    case.compare(request(case.name, ""))
