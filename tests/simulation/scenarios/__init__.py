"""Scenarios by name. Each is a coroutine function of a `Simulation` that raises when a check fails."""

from __future__ import annotations

from ..runner import Scenario
from .echo import echo
from .log import log

SCENARIOS: dict[str, Scenario] = {
    "echo": echo,
    "log": log,
}
