"""Tables of what the scenarios see: which rules they miss when they are taken out, and which rare states they reach."""

from __future__ import annotations

from collections.abc import Iterator

from .batch import Summary, run_seeds
from .found_by import FOUND_BY, NOT_SEEN, SEEN_AT
from .probes import RARE
from .rare_states import STATES

MOST_SEEDS = {"cluster": 400}  # in which a planted bug is to be found; in the other scenarios 200
MOST = 200


def seeds_of(plant: str) -> list[int]:
    """In which a planted bug is to be found: first those that have seen it last."""
    known = SEEN_AT.get(plant, ())
    seeds = range(MOST_SEEDS.get((FOUND_BY | NOT_SEEN)[plant], MOST))
    return [*known, *(seed for seed in seeds if seed not in known)]


def rules(scenarios: list[str], processes: int) -> Iterator[str]:
    """A line for each planted bug of these scenarios: how many seeds are needed to see it, and by what."""
    for plant, scenario in (FOUND_BY | NOT_SEEN).items():
        if scenario in scenarios:
            seeds = sorted(seeds_of(plant))
            found = run_seeds(scenario, seeds, plant=plant, processes=processes, stop_at_failure=True).failed
            if found:
                lines = (found[0].error or "").strip().splitlines()
                yield f"{plant:44} {scenario:10} {found[0].seed + 1:4} {lines[-1][:100]}"
            else:
                yield f"{plant:44} {scenario:10} not in {len(seeds)}"


def states(summary: Summary) -> Iterator[str]:
    """A line for each rare state of the scenario: in how many runs it was seen, and how often."""
    names = STATES.get(summary.scenario, ())
    for name in names:
        counter = f"{RARE}{name}"
        yield f"{summary.runs_with[counter]:5} of {summary.runs} {summary.counters[counter]:7} {name}"
    reached = sum(summary.runs_with[f"{RARE}{name}"] > 0 for name in names)
    yield f"{summary.scenario}: {reached} of {len(names)} rare states reached"
