"""The quorum's step function in all orders of events, within small bounds. `make model` has larger ones."""

from __future__ import annotations

import pytest

from tests.simulation.controls import planted

from .model import Bounds, explore

CALM = Bounds(epochs=1, values=1, crashes=0, losses=0, late=0)
STATES = 4_000  # of those that need more than that


def test_one_epoch_without_faults_in_all_orders() -> None:
    found = explore(CALM)
    assert found.error is None, "\n".join([*found.way, found.error])
    assert found.ended and found.states > 5_000
    assert found.most == {"leaders": 1, "committed records": 2}


@pytest.mark.parametrize(
    "bounds",
    [Bounds(epochs=2, crashes=1, losses=1), Bounds(epochs=2, values=1, crashes=1, losses=1, snapshots=1, late=0)],
    ids=["late answers", "answers at once"],
)
def test_nearest_states_of_two_epochs_with_faults(bounds: Bounds) -> None:
    found = explore(bounds, STATES)
    assert found.error is None, "\n".join([*found.way, found.error])


@pytest.mark.parametrize(
    ("plant", "crashes"),
    [
        ("follower-fetches-before-it-has-flushed", 1),
        ("leader-counts-what-is-not-on-disk", 1),
        ("votes-not-on-disk", 1),
        ("votes-twice-in-an-epoch", 0),
    ],
)
def test_planted_bug_is_found(plant: str, crashes: int) -> None:
    with planted(plant):
        found = explore(Bounds(epochs=1, values=0, crashes=crashes, losses=0, late=0), 20_000)
    assert found.error is not None and found.way
