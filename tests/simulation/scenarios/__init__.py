"""Scenarios by name. Each is a coroutine function of a `Simulation` that raises when a check fails."""

from __future__ import annotations

from ..runner import Scenario
from .broker_start import broker_start
from .cuts import cuts
from .diverged import diverged
from .echo import echo
from .log import log
from .mirror import mirror
from .producers import producers
from .wire_producers import wire_producers

SCENARIOS: dict[str, Scenario] = {
    "broker-start": broker_start,
    "cuts": cuts,
    "diverged": diverged,
    "echo": echo,
    "log": log,
    "mirror": mirror,
    "producers": producers,
    "wire-producers": wire_producers,
}
