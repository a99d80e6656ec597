"""200 seeds of most scenarios hold; the faults in them really happened; planted bugs are found.

`make simulate SEEDS=…` runs more of them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from .batch import Summary, run_seeds
from .controls import PLANTS, planted
from .found_by import FOUND_BY, NOT_SEEN
from .invariants import INVARIANTS
from .scenarios import SCENARIOS
from .tables import seeds_of

SEEDS = int(os.environ.get("SIMULATION_SEEDS", "200"))
# Of SEEDS: more of what matters most, fewer where a seed takes long or little has changed.
SHARE = {
    "cluster": 1.5, "consumer-groups": 0.3, "diverged": 0.5, "groups": 0.5, "mirror": 0.5, "offset-expiry": 0.5,
    "producers": 0.5, "stream-cluster": 0.12, "stream-growth": 0.07, "stream-pipelines": 0.12,
    "streams": 1.04, "transactions": 1.5, "zombies": 0.15,
}  # fmt: skip
PROCESSES = 2
AT_FIRST = 4  # seeds of a planted bug that are run one by one: most are seen by then

# scenario -> counter -> in how large a part of the runs it must have counted: a calm run proves nothing
LIVELY = {
    "broker-start": {"kills_at_start": 0.5, "power_cuts": 0.8},
    "cluster": {  # about half of what was seen
        "acked": 0.95,
        "batches_read": 0.3,
        "clock_jumps": 0.02,
        "commits": 0.25,
        "deletions": 0.15,
        "disk_ENOSPC": 0.05,
        "disks_replaced": 0.01,
        "hangs": 0.08,
        "kills": 0.5,
        "levels_finalized": 0.08,
        "looks": 1.0,
        "moves": 0.1,
        "partitions": 0.06,
        "power_cuts": 0.2,
        "rare: partition: a log is cut off": 0.18,
        "rolled": 0.04,
        "unregistered": 0.02,
        "upgraded": 0.08,
    },
    "cold-fetches": {
        "found_cold": 0.95,
        "records_read": 0.95,
        "sessions_lost": 0.3,
        "fault_cut": 0.3,
        "power_cuts": 0.2,
    },
    "compaction": {
        "rounds": 0.5,
        "checked_holes": 0.6,
        "crashes_with_loss": 0.6,
        "truncations": 0.2,
        "retentions": 0.1,
        "clean_closes": 0.3,
    },
    "consumer-groups": {  # about half of what was seen
        "commits": 0.95,
        "commits_refused": 0.1,
        "coordinators": 0.3,
        "described": 0.5,
        "grown": 0.1,
        "fenced": 0.4,
        "handed_over": 0.9,
        "fenced_that_never_gave_back": 0.08,
        "handed_by_classic": 0.2,
        "handed_to_classic": 0.2,
        "kills": 0.6,
        "made_anew": 0.12,
        "members_killed": 0.6,
        "members_left": 0.6,
        "rare: group: a classic group becomes a consumer group": 0.2,
        "rare: group: a consumer group becomes a classic group": 0.15,
        "rare: group: a group has gone over and back": 0.08,
        "rare: group: a member is removed, as it did not give back in time": 0.2,
        "rare: group: a new coordinator has classic members in a consumer group": 0.08,
        "replaced": 0.1,
        "revocations": 0.5,
        "subscriptions_changed": 0.6,
        "zombies": 0.6,
    },
    "cuts": {"cuts": 0.8, "partitions": 0.3, "acked": 1.0},
    "data-directory": {
        "checked_clean": 0.5,
        "volume_syncs": 0.5,
        "deleted": 0.9,
        "left_by_deletions": 0.1,
        "crashes_with_loss": 0.4,
    },
    "disk-faults": {
        "disk_EIO": 0.15,
        "disk_ENOSPC": 0.3,
        "wanted_room_at_a_sync": 0.03,
        "power_cuts": 1.0,
        "acked": 0.95,
    },
    "diverged": {"partitions_diverged": 0.2, "partitions_mirrored_on": 0.2, "power_cuts": 1.0},
    "echo": {"cuts": 0.3, "crashes_with_loss": 0.35},
    "fetch-sessions": {"left_out": 0.5, "sessions_lost": 0.3, "resets": 0.05, "fault_cut": 0.4, "power_cuts": 0.2},
    "groups": {
        "coordinator_in_CompletingRebalance": 0.2,
        "coordinator_in_Dead": 0.3,
        "coordinator_in_Empty": 1.0,
        "coordinator_in_PreparingRebalance": 0.2,
        "coordinator_in_Stable": 0.2,
        "member_in_CompletingRebalance": 0.08,
        "member_in_PreparingRebalance": 0.08,
        "member_in_Stable": 0.08,
        "commits": 0.95,
    },
    "log": {"crashes_with_loss": 0.8, "crashes_torn": 0.6, "truncations": 0.2, "clean_closes": 0.3},
    "mirror": {"fault_double": 0.2, "fault_target": 0.4, "fault_source": 0.3, "mirrored_batches": 1.0},
    "offset-expiry": {"told": 0.95, "gone": 0.9, "power_cuts": 0.4},
    "producers": {
        "power_cuts": 0.5,
        "kills": 0.3,
        "crashes_that_lost_acked": 0.05,
        "told_of_loss": 0.02,
        "acked": 0.95,
    },
    "quorum": {
        "LostLeadership": 0.3,
        "Truncate": 0.1,
        "WriteSnapshot": 0.2,
        "crashes_with_loss": 0.2,
        "one_way_cuts": 0.5,
        "voters_NONE": 0.2,
        "disks_lost": 0.15,
        "acked": 0.95,
    },
    "retention": {"retained_away": 0.5, "deleted_on_request": 0.5, "power_cuts": 0.6, "kills": 0.5},
    "stream-cluster": {  # about half of what was seen
        "aborted_inputs": 0.08,
        "fault_kill": 0.3,
        "fault_leave": 0.15,
        "fault_worker": 0.2,
        "grown": 0.15,
        "hung": 0.2,
        "killed_leader_of___consumer_offsets": 0.04,
        "killed_leader_of___transaction_state": 0.04,
        "looks": 1.0,
        "lost_tasks": 0.08,
        "processed": 1.0,
        "went_back": 0.08,
        "workers_left": 0.15,
    },
    "stream-growth": {  # less than what was seen; of 14 seeds, those without one vary
        "aborted_inputs": 0.1,
        "fault_grow": 0.4,
        "fault_kill": 0.08,
        "fault_restore": 0.15,
        "grown_clicks": 0.2,
        "grown_pairs": 0.15,
        "hung": 0.1,
        "in_app-clicks-copartitioned": 0.2,
        "in_app-site-via-site-repartition": 0.7,
        "in_via": 0.7,
        "kills": 0.7,
        "logins_late": 0.7,
        "looks": 1.0,
        "lost_tasks": 0.15,
        "processed": 1.0,
        "repeated_outputs": 0.08,
        "restored": 0.15,
        "rows_ended": 0.7,
        "went_back": 0.3,
    },
    "stream-pipelines": {  # about half of what was seen
        "aborted_inputs": 0.2,
        "at_least_once": 0.4,
        "bridged": 0.9,
        "classic": 0.2,
        "compacted": 0.2,
        "consumer": 0.2,
        "copies_taken": 0.08,
        "dead_letters": 0.8,
        "disk": 0.2,
        "disk_batches_lost": 0.04,
        "disk_reopened": 0.2,
        "duplicates": 0.9,
        "exactly_once": 0.4,
        "fault_broker": 0.1,
        "fault_leave": 0.1,
        "fault_worker": 0.15,
        "grown": 0.04,
        "hung": 0.25,
        "hung_at_commit": 0.04,
        "kills": 0.5,
        "late": 0.9,
        "looks": 1.0,
        "lost_tasks": 0.1,
        "memory": 0.1,
        "migrated": 0.04,
        "on_three_brokers": 0.08,
        "priced": 0.5,
        "processed": 1.0,
        "repeated_outputs": 0.08,
        "sessions_closed": 0.5,
        "shop_late": 0.3,
        "shop_windows_closed": 0.4,
        "went_back": 0.04,
        "windows_closed": 0.9,
    },
    "streams": {
        "aborted_inputs": 0.25,
        "fault_broker": 0.3,
        "fault_cut": 0.3,
        "fault_worker": 0.4,
        "looks": 1.0,
        "processed": 1.0,
        "stream_batches": 0.4,  # with at_least_once
    },
    "transactions": {
        "aborted": 0.8,
        "applications_killed": 0.6,
        "batches_read": 0.95,
        "committed": 0.95,
        "ends_lost": 0.12,  # about half of what was seen, as the next two
        "fenced": 0.6,
        "given_up": 0.3,
        "hangs": 0.4,
        "heard_late": 0.06,
        "kills": 0.6,
        "zombies": 0.4,
    },
    "wire-mirror": {"mirrored_batches": 1.0, "cuts": 0.5, "power_cuts": 0.4},
    "wire-producers": {"power_cuts": 0.5, "kills": 0.3, "crashes_that_lost_acked": 0.05, "acked": 0.95, "resends": 0.5},
    "zombies": {
        "compacted_away": 1.0,
        "fault_broker": 0.1,
        "hung": 1.0,
        "hung_at_checkpoint": 0.12,
        "hung_at_commit": 0.2,
        "hung_at_offsets": 0.12,
        "kills": 0.6,
        "looks": 1.0,
        "lost_tasks": 0.5,
        "went_back": 0.12,
    },
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def failures(summary: Summary) -> str:
    first = summary.failed[0]
    return (
        f"{len(summary.failed)} of {summary.runs} seeds failed, among them {[r.seed for r in summary.failed[:10]]}; "
        f"python -m tests.simulation --scenario {summary.scenario} --seed {first.seed}\n{first.tail}\n{first.error}"
    )


def test_no_scenario_is_left_out() -> None:
    assert set(SCENARIOS) == set(LIVELY)


@pytest.mark.parametrize("name", sorted(LIVELY))
def test_every_seed_holds_and_its_faults_happened(name: str) -> None:
    seeds = max(1, round(SEEDS * SHARE.get(name, 1)))
    summary = run_seeds(name, range(seeds), processes=PROCESSES)
    assert not summary.failed, failures(summary)
    for counter, part in LIVELY[name].items():
        share = summary.runs_with[counter] / summary.runs
        assert share >= part, f"{counter} counted in {share:.0%} of the runs of {name}, not in {part:.0%}"


@pytest.mark.parametrize("plant", sorted(FOUND_BY))
def test_a_planted_bug_is_found(plant: str) -> None:
    seeds = seeds_of(plant)
    summary = run_seeds(FOUND_BY[plant], seeds[:AT_FIRST], plant=plant, stop_at_failure=True)
    if not summary.failed:
        summary = run_seeds(FOUND_BY[plant], seeds[AT_FIRST:], plant=plant, processes=PROCESSES, stop_at_failure=True)
    assert summary.failed, f"{len(seeds)} seeds of {FOUND_BY[plant]} do not see {plant}"
    print(f"{plant}: seed {summary.failed[0].seed} of {FOUND_BY[plant]}")
    assert summary.failed[0].error_type == "AssertionError", failures(summary)


def test_planted_bugs_name_what_is_there() -> None:
    """Those that no seed sees, too, which nothing else plants."""
    for plant in PLANTS:
        with planted(plant):
            pass


def test_every_invariant_is_checked_and_broken_by_a_planted_bug() -> None:
    for each in INVARIANTS:
        assert each.scenarios and each.plants, each.what
        assert set(each.scenarios) <= set(LIVELY), each.what
        assert {FOUND_BY[plant] for plant in each.plants} <= set(each.scenarios), each.what
    assert {plant for each in INVARIANTS for plant in each.plants} == set(FOUND_BY) == set(PLANTS) - set(NOT_SEEN)
