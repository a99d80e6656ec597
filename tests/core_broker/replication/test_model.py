"""Replication in all orders of events, within small bounds. `make model` has larger ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.controls import planted

from .model import Bounds, explore

CALM = Bounds(values=2, fences=0, lags=0)
THREE = Bounds(values=1)
TWO = Bounds(replicas=2, min_isr=1, values=1)
CUT = replace(THREE, cuts=1, fences=0, lags=0)
SYNCED = replace(TWO, fsync=1, epochs=2, cuts=1, fences=0)
STATES = 3_000  # of those that need more than that


@pytest.mark.parametrize(
    ("bounds", "leaders", "committed"),
    [
        (CALM, 1, 2),
        (replace(TWO, losses=1), 2, 1),
        (replace(TWO, crashes=1, fences=0), 2, 1),
        (SYNCED, 2, 1),
    ],
    ids=["no faults", "fencing, lagging, losing", "a kill", "a power cut under fsync"],
)
def test_all_orders_of_events(bounds: Bounds, leaders: int, committed: int) -> None:
    found = explore(bounds)
    assert found.error is None, "\n".join([*found.way, found.error])
    assert found.ended
    assert found.most == {"leaders": leaders, "committed records": committed}


@pytest.mark.parametrize(
    "bounds",
    [
        replace(THREE, epochs=2, values=2, losses=1, late=1),
        CUT,
        replace(THREE, elr=0, crashes=1),
        replace(TWO, moves=1, elections=1, shutdowns=1),
    ],
    ids=["late answers", "a power cut", "a kill without ELR", "a move and a shutdown"],
)
def test_nearest_states(bounds: Bounds) -> None:
    found = explore(bounds, STATES)
    assert found.error is None, "\n".join([*found.way, found.error])


def test_history_is_the_shortest_and_reads_as_one() -> None:
    with planted("changes-count-before-they-are-agreed"):
        found = explore(THREE)
    assert [*found.way, found.error] == [
        "1 appends",
        "2 does not keep up with 1",
        "3 fetches offset 0 from 1 in epoch 0: records [(0, 0)], high watermark 0",
        "2 is in sync and has [], committed is [(0, 0)]",
    ]


@pytest.mark.parametrize(
    "bounds",
    [replace(TWO, unclean=1), replace(SYNCED, fsync=0)],
    ids=["an unclean election", "a power cut of the only one in sync, which had not synced"],
)
def test_what_may_be_lost_is_lost(bounds: Bounds) -> None:
    """The control."""
    found = explore(bounds, STATES)
    assert found.error is not None and "committed is" in found.error


@pytest.mark.parametrize(
    ("plant", "bounds"),
    [
        ("anybody-may-be-in-sync", replace(TWO, cuts=1, fences=0)),
        ("broker-epochs-are-not-checked", replace(TWO, cuts=1, fences=0)),
        ("brokers-lead-before-they-know-themselves", CUT),
        ("changes-count-before-they-are-agreed", THREE),
        ("changes-of-old-leaders-are-taken", THREE),
        ("committed-without-followers", THREE),
        ("divergence-is-ignored", replace(THREE, values=2, lags=0)),
        ("elections-are-always-unclean", TWO),
        ("elections-forget-the-epoch", THREE),
        ("followers-believe-any-high-watermark", replace(TWO, values=2, fences=0)),
        ("followers-join-behind", replace(TWO, values=2, fences=0)),
        ("followers-serve-all-they-have", THREE),
        ("followers-tell-before-they-have-synced", replace(SYNCED, epochs=3, fences=1, lags=0)),
        ("leaders-count-what-is-not-on-disk", SYNCED),
        ("lost-answers-mean-no", replace(TWO, values=2, fences=0, losses=1)),
        ("moves-do-not-wait", replace(TWO, min_isr=2, moves=1, lags=0)),
        ("new-leaders-do-not-begin-their-epoch", replace(THREE, values=2, lags=0)),
        ("old-changes-are-taken", THREE),
        ("restarts-change-nothing", CUT),
        ("those-that-lost-stay-eligible", replace(CUT, lags=1)),
        ("too-few-in-sync-do-not-matter", THREE),
    ],
)
def test_rule_taken_out_is_missed(plant: str, bounds: Bounds) -> None:
    with planted(plant):
        found = explore(bounds, 20_000)
    assert found.error is not None
