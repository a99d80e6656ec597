"""The plan of faults depends on the seed alone, keeps to its time, and over some seeds has all faults, and pairs."""

from __future__ import annotations

from integration_tests.histories.nemesis import FAULTS, Planned, plan

SECONDS = 60.0
SEEDS = range(40)


def overlaps(planned: list[Planned]) -> list[tuple[str, str]]:
    return [
        (first.kind, second.kind)
        for index, first in enumerate(planned)
        for second in planned[index + 1 :]
        if second.at_s < first.end_s
    ]


def test_a_seed_has_one_plan() -> None:
    assert plan(7, SECONDS) == plan(7, SECONDS) != plan(8, SECONDS)


def test_faults_end_in_time_and_are_at_most_two_at_once() -> None:
    for seed in SEEDS:
        planned = plan(seed, SECONDS)
        assert max(each.end_s for each in planned) <= SECONDS
        for each in planned:
            assert sum(other.at_s <= each.at_s < other.end_s for other in planned) <= 2


def test_consecutive_seeds_begin_with_each_fault() -> None:
    assert [plan(seed, 9.0)[0].kind for seed in range(len(FAULTS))] == list(FAULTS)


def test_all_faults_occur_in_pairs() -> None:
    pairs = [pair for seed in SEEDS for pair in overlaps(plan(seed, SECONDS))]
    assert {kind for pair in pairs for kind in pair} == set(FAULTS)
    assert len({tuple(sorted(pair)) for pair in pairs}) > 2 * len(FAULTS)
